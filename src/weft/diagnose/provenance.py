"""Follows Q, K and V through a recorded run: the marks that `weft.shadow` moves with bytes are nodes.

Moves copy the nodes of bytes; arithmetic creates nodes by the algebra of tags and records them on the board. Only the
interpreter computes values.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weft.attention.dtypes import Array
from weft.ptx.module import WIDTH, Instruction
from weft.shadow import marks
from weft.shadow.marks import Finish, Product, Shadow, Target, places
from weft.shadow.matrices import deal
from weft.shadow.transport import Transport
from weft.vm.memory import GLOBAL_BASE
from weft.vm.reference.machine import Grid, RunningWarp

from .acts import Acts
from .algebra import Algebra
from .board import PLACED, Board
from .elements import holders, matrix_numbers, numbers
from .nodes import MIX_NODE, Nodes, Numbers, Where, single
from .tags import INPUTS, Flag, Ids, Kind, Tags, among, full

Handler = Callable[["Provenance", Shadow, RunningWarp, Instruction], Finish | None]

ROLES: Mapping[str, tuple[str, ...]] = {
    "q": ("q", "q_code"),
    "k": ("k", "k_code", "k_cache", "k_cache_code"),
    "v": ("v", "v_code", "v_cache", "v_cache_code"),
    "o": ("o",),
    "lse": ("lse",),
}
"""Names of a kernel's arrays in the tasks."""
_PADDED = (Kind.Q, Kind.K, Kind.V, Kind.S, Kind.P)
"""Kinds whose product with a literal zero is padding."""
_SUMS = ("sum", "difference", "product and sum")
_SUMS_OF_KEYS = ((Kind.L, "l"), (Kind.U, "u"))


@dataclass
class Output:
    """A result buffer of the current launch: its address and its elements."""

    name: str
    start: int
    array: Array
    numbers: Ids | None = None
    """Which element of the dense output each of its elements is; None: it is dense."""


class GlobalArray(NamedTuple):
    """An argument of the current launch."""

    name: str
    start: int
    stop: int


@dataclass
class Provenance(marks.Algebra):
    """One recorded run, over all launches. `handlers`: what a row computes → how the nodes of the result are made."""

    nodes: Nodes
    algebra: Algebra
    board: Board
    handlers: Mapping[str, Handler]
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Host arrays of the launch by argument name."""
    held: dict[str, Ids] = field(default_factory=dict)
    """Nodes of the bytes of each argument, kept from launch to launch."""
    element_numbers: Mapping[str, Array] = field(default_factory=dict)
    """By array: which element of the dense array each of its elements is, -1 for none. Others are dense."""

    def __post_init__(self) -> None:
        self.dtype, self.predicates = np.dtype(np.int32), False
        self.computes = {computes: partial(handler, self) for computes, handler in self.handlers.items()}
        self.acts = Acts(self.nodes)
        self.outputs: list[Output] = []
        self.global_arrays: list[GlobalArray] = []
        self.transport = Transport(self)

    # -- launches ------------------------------------------------------------------------------------------------

    def seed(self, inputs: Mapping[str, tuple[str, Array]]) -> None:
        """Number the elements of Q, K and V. `inputs`: role → argument name and (rows, columns) of it."""
        for role, (name, array) in inputs.items():
            numbers = self.element_numbers.get(name, np.arange(array.size)).reshape(-1)
            rows = self.algebra.sizes.q_rows if role == "q" else self.algebra.sizes.kv_rows
            values, used = np.zeros((rows, array.shape[-1])), numbers >= 0
            values.reshape(-1)[numbers[used]] = array.reshape(-1)[used].astype(np.float64)
            first = self.nodes.add_input(INPUTS[role], values)
            ids = np.where(used, first + numbers, 0).astype(np.int32)
            self.held[name] = np.repeat(ids, array.dtype.itemsize)

    def begin(self, s: Shadow, grid: Grid) -> None:
        """At a launch's first instruction, give its buffers their nodes."""
        self.nodes.launch += 1
        held = s.of_storage(grid.global_region)
        assert held is not None
        self.outputs, self.global_arrays = [], []
        for allocation in grid.memory.allocations:
            name = allocation.name.removeprefix("argument ")
            start = allocation.address - GLOBAL_BASE
            self.global_arrays.append(GlobalArray(name, start, start + allocation.size_bytes))
            if name in self.held:
                held[start : start + allocation.size_bytes] = self.held[name]
            for role in ("o", "lse"):
                if name in ROLES[role]:
                    self.outputs.append(Output(role, start, self.arrays[name], self.element_numbers.get(role)))

    def end(self) -> None:
        """After a launch, keep the nodes of its buffers."""
        grid = self.transport.grid
        if grid is None:
            return
        held = self.transport.shadow.of_storage(grid.global_region)
        assert held is not None
        for allocation in grid.memory.allocations:
            start = allocation.address - GLOBAL_BASE
            name = allocation.name.removeprefix("argument ")
            self.held[name] = held[start : start + allocation.size_bytes].copy()
        self.transport.grid = None

    # -- what the transport asks ---------------------------------------------------------------------------------

    def one(self, marks: Ids) -> Ids:
        """Return the one node in the bytes of a value, MIX_NODE where there are several."""
        return single(marks)

    def both(self, a: Ids, b: Ids) -> Ids:
        """Return the one node of two values; with two different ones it is unknown."""
        if not b.any():
            return a
        if not a.any():
            return b
        same = self.nodes.tags[a] == self.nodes.tags[b]
        return np.where((b == 0) | same, a, np.where(a == 0, b, np.int32(MIX_NODE))).astype(np.int32)

    def executes(self, s: Shadow, w: RunningWarp, ins: Instruction) -> None:
        """Look for followed values that lose their fraction, or that lanes exchange."""
        if ins.facts.group == "warp" and ins.facts.copies:
            self.acts.exchanged(w, ins, single(s.read(w, ins.operand("a"), 4)))
        if ins.facts.converts and "irnd" in ins.mods:
            kind = ins.mods["atype"]
            ids = single(s.read(w, ins.operand("a"), WIDTH[kind] // 8))
            if ids.any():
                self.acts.cut(w, ins, ids, numbers(w, ins.operand("a"), kind, ins.line)[:, 0])

    def loaded(self, w: RunningWarp, ins: Instruction, target: Target, marks: Ids) -> Ids:
        """Record a load. A constant at an address computed from an element is that element, looked up."""
        self.acts.moved("load", w, ins, target, marks)
        if not target.pointer.any():
            return marks
        return np.where(marks.any(axis=1, keepdims=True), marks, target.pointer[:, None])

    def copied(self, w: RunningWarp, ins: Instruction, marks: Ids) -> None:
        """Record the load of a copy to shared memory."""
        self.acts.copied(w, ins, marks)

    def stored(self, w: RunningWarp, ins: Instruction, target: Target, marks: Ids, data: marks.Bits) -> None:
        """Record a store; of bytes that are stored to O or LSE, the elements are recorded on the board."""
        self.acts.moved("store", w, ins, target, marks)
        for storage, lanes, offsets in places(w, target, data.shape[1]):
            if storage.name != "global":
                continue
            for array in self.global_arrays:
                inside = lanes & (offsets >= array.start) & (offsets < array.stop)
                if inside.any():
                    first, last = int(offsets[inside].min()), int(offsets[inside].max())
                    self.acts.wrote(array.name, w, ins, first - array.start, last + data.shape[1] - array.start)
            for output in self.outputs:
                size = output.array.dtype.itemsize
                inside = lanes & (offsets >= output.start) & (offsets < output.start + output.array.nbytes)
                if not inside.any() or data.shape[1] % size:
                    continue
                where = Where(self.nodes.event(w, ins), np.flatnonzero(inside))
                for part in range(data.shape[1] // size):
                    piece = slice(part * size, (part + 1) * size)
                    raw = np.ascontiguousarray(data[inside][:, piece]).view(output.array.dtype).reshape(-1)
                    index = (offsets[inside] - output.start) // size + part
                    if output.numbers is not None:
                        index = np.asarray(output.numbers.reshape(-1)[index], np.int64)
                    tags = self.nodes.tags[single(marks[inside][:, piece])]
                    self.board.stored(output.name, index, raw.astype(np.float64), tags, where)

    def multiplied(self, s: Shadow, w: RunningWarp, product: Product) -> Finish:
        """Handle a matrix product: k products and sums of elements by the algebra."""
        ins = product.instruction
        a, b, c = (self.nodes.tags[matrix] for matrix in product.marks)
        event = self.nodes.event(w, ins)
        made_by = holders(product.d).reshape(-1)
        read_by = None if product.a is None else holders(product.a)
        x, y = (matrix_numbers(product.bits(name), kind) for name, kind in zip("ab", product.types, strict=False))
        m, n = c.shape
        result: Tags = c.reshape(-1).copy()
        steps = np.flatnonzero(a["kind"].any(axis=0) | b["kind"].any(axis=1))
        if steps.size:
            # All products at once, step by step, and then their sums.
            left, right = (np.repeat(each[:, steps].T.reshape(-1), n) for each in (a, x))
            top, bottom = (np.tile(each[steps], m).reshape(-1) for each in (b, y))
            lanes = np.tile(made_by, steps.size) if read_by is None else np.repeat(read_by[:, steps].T.reshape(-1), n)
            terms = self.multiply(left, right, top, bottom, Where(event, lanes, in_steps=True))
            for term in terms.reshape(steps.size, m * n):
                result = self.add(result, term)

        def done() -> None:
            values = matrix_numbers(product.bits("d"), product.types[3]).reshape(-1)
            made = self.make(result, values, Where(event, made_by))
            deal(s, w, product, made.reshape(m, n))

        return done

    def unmarked(self, w: RunningWarp, ins: Instruction) -> Finish | None:
        """Look for a NaN in sums of constants: without a visible key there is no score to follow."""
        return partial(self._look_for_nan, w, ins) if ins.facts.computes in _SUMS else None

    def _look_for_nan(self, w: RunningWarp, ins: Instruction) -> None:
        self.acts.made_nan(w, ins, numbers(w, ins.operand("d"), ins.operand_type("d"), ins.line)[w.mask])

    # -- what handlers share -------------------------------------------------------------------------------------

    def multiply(self, a: Tags, a_values: Numbers, b: Tags, b_values: Numbers, where: Where) -> Tags:
        """Return the product's tags; operands of Q·Kᵀ and P·V are recorded on the board."""
        out = self.algebra.product(a, b)
        self.acts.multiplied(a, a_values, b, b_values, where.event)
        for one, one_values, other, other_values in ((a, a_values, b, b_values), (b, b_values, a, a_values)):
            kinds = set(one["kind"].tolist())
            if Kind.Q in kinds:
                of_score = (one["kind"] == Kind.Q) & (other["kind"] == Kind.K)
                self._see("q", one, one_values, of_score, where)
                self._see("k", other, other_values, of_score, where)
            if Kind.V in kinds:
                of_u = (one["kind"] == Kind.V) & (out["kind"] == Kind.U) & (other["kind"] != Kind.U)
                self._see("v", one, one_values, of_u, where)
                self._see_weights(other[of_u], other_values[of_u], one["row"][of_u], where.only(of_u))
            if Kind.U in kinds:
                divided = (one["kind"] == Kind.U) & (other["kind"] == Kind.INVERSE_L)
                if divided.any():
                    self.board.divided(one[divided], other[divided], other_values[divided], where.only(divided))
            for kind, stage in _SUMS_OF_KEYS:
                if kind in kinds:
                    rescaled = (one["kind"] == kind) & (other["kind"] == Kind.R)
                    values = other_values[rescaled]
                    self.board.rescaled(stage, one[rescaled], other[rescaled], values, where.only(rescaled))
            padding = (other["kind"] == Kind.CONST) & (other_values == 0)
            if padding.any():
                padding &= among(one["kind"], *_PADDED)
                out[padding] = other[padding]
        if out["flags"].any():
            for flag in (Flag.INNER, Flag.KEY, Flag.HEAD, Flag.TIMES_L, Flag.UNWEIGHTED):
                self.board.example(flag, a, b, out["flags"])
        return out

    def _see(self, stage: str, tags: Tags, values: Numbers, lanes: npt.NDArray[np.bool_], where: Where) -> None:
        at = tags["row"][lanes], tags["col"][lanes]
        self.board.note(stage, at, values[lanes], where.only(lanes), tags["node"][lanes])

    def _see_weights(self, p: Tags, values: Numbers, keys: Array, where: Where) -> None:
        """Record P where it is multiplied with the rows `keys` of V; a weight with a known key keeps that key."""
        at = p["row"], self.board.key(np.where(p["col"] >= 0, p["col"], keys))
        self.board.note("p", at, values, where, p["node"])
        self.board.place(p, keys)
        # A weight of 0 without a score: a constant replaced the score, which is a mask.
        hidden = (p["kind"] == Kind.R) & (values == 0)
        at = p["row"][hidden], self.board.key(keys[hidden])
        nothing = np.full(at[0].size, -np.inf)
        self.board.note("masked", at, nothing, where.only(hidden), p["node"][hidden], once=True)

    def add(self, a: Tags, b: Tags, *, minus: bool = False) -> Tags:
        """Return the sum's tags."""
        out = self.algebra.total(a, b, minus=minus)
        self.acts.added(a, b, out)
        if out["flags"].any():
            for flag in (Flag.KEYS, Flag.ROWS, Flag.REPEATED, Flag.COLUMNS):
                self.board.example(flag, a, b, out["flags"])
        return out

    def subtract(self, a: Tags, b: Tags, b_values: Numbers, where: Where) -> Tags:
        """Return the difference's tags."""
        return self.add(a, b, minus=True)

    def largest(self, a: Tags, a_values: Numbers, b: Tags, b_values: Numbers) -> Tags:
        """Return the tags of max(a, b)."""
        self.acts.compared(a, b)
        return self.algebra.largest(a, b)

    def make(self, tags: Tags, values: Numbers, where: Where) -> Ids:
        """Create nodes, and record those of a stage on the board; constants stay untracked."""
        scores = tags["kind"] == Kind.S
        if scores.any():
            scores[scores] = full(tags["terms"][scores], self.algebra.sizes.shape.d)
            at = tags["row"][scores], self.board.key(tags["col"][scores])
            nodes = np.zeros(at[0].size, np.int32)
            self.board.note("products", at, values[scores], where.only(scores), nodes, once=True)
        for kind, stage in _SUMS_OF_KEYS:
            found = tags["kind"] == kind
            if found.any():
                self.board.covers(stage, tags[found], values[found], where.only(found))
        for flag in PLACED:
            if flag not in self.board.raised and (tags["flags"] & flag).any():
                self.board.raised[flag] = where.event
        made = self.nodes.add(tags, values, where)
        made[tags["kind"] == Kind.CONST] = 0
        return made
