"""Follows Q, K and V through a recorded run: an observer of the reference interpreter.

Moves copy the nodes of bytes; arithmetic creates nodes by the algebra and records them on the board. Only the
interpreter computes values.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.attention.dtypes import Array
from weft.ptx.module import Instruction
from weft.vm.memory import GLOBAL_BASE
from weft.vm.reference.machine import Grid, Observer, RunningWarp

from .acts import Acts
from .algebra import Algebra
from .board import Board
from .nodes import Nodes, Numbers, Where
from .shadow import Shadow
from .tags import Flag, Ids, Kind, Tags, among, full

Finish = Callable[[], None]
Handler = Callable[["Provenance", RunningWarp, Instruction], Finish | None]

ROLES: Mapping[str, tuple[str, ...]] = {
    "q": ("q", "q_code"),
    "k": ("k", "k_code"),
    "v": ("v", "v_code"),
    "o": ("o",),
    "lse": ("lse",),
}
"""Names of a kernel's arrays in the tasks."""
_PADDED = (Kind.Q, Kind.K, Kind.V, Kind.S, Kind.P)
"""Kinds whose product with a literal zero is padding."""
KINDS = {"q": Kind.Q, "k": Kind.K, "v": Kind.V}


@dataclass
class Output:
    """A result buffer of the current launch: its address and its elements."""

    name: str
    start: int
    array: Array


@dataclass
class Provenance(Observer):
    """One recorded run, over all launches."""

    nodes: Nodes
    algebra: Algebra
    board: Board
    handlers: Mapping[tuple[str, str], Handler]
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Host arrays of the launch by argument name."""
    held: dict[str, Ids] = field(default_factory=dict)
    """Nodes of the bytes of each argument, kept from launch to launch."""

    def __post_init__(self) -> None:
        self.shadow = Shadow()
        self.acts = Acts(self.nodes)
        self.grid: Grid | None = None
        self.outputs: list[Output] = []
        self._finish: Finish | None = None

    # -- launches ------------------------------------------------------------------------------------------------

    def seed(self, inputs: Mapping[str, tuple[str, Array]]) -> None:
        """Number the elements of Q, K and V. `inputs`: role → argument name and (rows, columns) of it."""
        for role, (name, array) in inputs.items():
            values = array.reshape(-1, array.shape[-1])
            first = self.nodes.add_input(KINDS[role], values.astype(np.float64))
            ids = np.arange(first, first + values.size, dtype=np.int32)
            self.held[name] = np.repeat(ids, array.dtype.itemsize)

    def begin(self, grid: Grid) -> None:
        """At a launch's first instruction, give its buffers their nodes."""
        self.grid, self.shadow = grid, Shadow()
        self.nodes.launch += 1
        shadow = self.shadow.of_region(grid.global_region)
        self.outputs = []
        for allocation in grid.memory.allocations:
            name = allocation.name.removeprefix("argument ")
            start = allocation.address - GLOBAL_BASE
            if name in self.held:
                shadow[start : start + allocation.size_bytes] = self.held[name]
            for role in ("o", "lse"):
                if name in ROLES[role]:
                    self.outputs.append(Output(role, start, self.arrays[name]))

    def end(self) -> None:
        """After a launch, keep the nodes of its buffers."""
        if self.grid is None:
            return
        shadow = self.shadow.of_region(self.grid.global_region)
        for allocation in self.grid.memory.allocations:
            start = allocation.address - GLOBAL_BASE
            name = allocation.name.removeprefix("argument ")
            self.held[name] = shadow[start : start + allocation.size_bytes].copy()
        self.grid = None

    # -- instructions --------------------------------------------------------------------------------------------

    def before(self, w: RunningWarp, ins: Instruction) -> None:
        if w.grid is not self.grid:
            self.begin(w.grid)
        handler = self.handlers.get((ins.form.chapter, ins.form.name))
        if handler is None:
            self.shadow.forget(w, ins)
            self._finish = None
        else:
            self._finish = handler(self, w, ins)

    def after(self, w: RunningWarp, ins: Instruction) -> None:
        if self._finish is not None:
            self._finish()

    # -- what handlers share -------------------------------------------------------------------------------------

    def multiply(self, a: Tags, a_values: Numbers, b: Tags, b_values: Numbers, where: Where) -> Tags:
        """Return the product's tags; operands of Q·Kᵀ and P·V are recorded on the board."""
        out = self.algebra.product(a, b)
        self.acts.multiplied(a, a_values, b, b_values, where.event)
        for one, one_values, other, other_values in ((a, a_values, b, b_values), (b, b_values, a, a_values)):
            of_score = (one["kind"] == Kind.Q) & (other["kind"] == Kind.K)
            if of_score.any():
                self._see("q", one, one_values, of_score, where)
                self._see("k", other, other_values, of_score, where)
            of_u = (one["kind"] == Kind.V) & (out["kind"] == Kind.U) & (other["kind"] != Kind.U)
            if of_u.any():
                self._see("v", one, one_values, of_u, where)
                self._see_weights(other[of_u], other_values[of_u], one["row"][of_u], where.only(of_u))
            padding = (other["kind"] == Kind.CONST) & (other_values == 0) & among(one["kind"], *_PADDED)
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

    def largest(self, a: Tags, a_values: Numbers, b: Tags, b_values: Numbers) -> Tags:
        """Return the tags of max(a, b)."""
        return self.algebra.largest(a, b)

    def make(self, tags: Tags, values: Numbers, where: Where) -> Ids:
        """Create nodes, and record those of a stage on the board; constants stay untracked."""
        scores = tags["kind"] == Kind.S
        if scores.any():
            scores[scores] = full(tags["terms"][scores], self.algebra.sizes.shape.d)
            at = tags["row"][scores], self.board.key(tags["col"][scores])
            nodes = np.zeros(at[0].size, np.int32)
            self.board.note("products", at, values[scores], where.only(scores), nodes, once=True)
        for kind, stage in ((Kind.L, "l"), (Kind.U, "u")):
            found = tags["kind"] == kind
            if found.any():
                self.board.covers(stage, tags[found], values[found], where.only(found))
        made = self.nodes.add(tags, values, where)
        made[tags["kind"] == Kind.CONST] = 0
        return made
