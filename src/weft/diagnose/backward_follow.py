"""Follows the inputs of a backward pass through a recorded run, to the stages S, P, dP, delta, dS, dQ, dK and dV.

The rules of the forward pass apply as far as S and P; these add what is computed from them. Each launch has its own
values of a stage: kernels for dQ and for dK and dV compute S, P, dP and dS again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from weft.attention.dtypes import Array
from weft.shadow.marks import Shadow
from weft.vm.memory import GLOBAL_BASE
from weft.vm.reference.machine import Grid

from .algebra import PRODUCTS, SUMS, Algebra, Rule, as_kind, exponent_of, into, require_same, table_of
from .board import Board, Sheet
from .nodes import Numbers, Where
from .provenance import Output, Provenance
from .tags import NONE, Flag, Ids, Kind, Tags, among, full

INPUTS: Mapping[str, Kind] = {
    "q": Kind.Q, "k": Kind.K, "v": Kind.V, "o": Kind.O, "lse": Kind.LSE, "do": Kind.DO
}  # fmt: skip
GRADIENTS = ("dq", "dk", "dv")
_PADDED = (Kind.Q, Kind.K, Kind.V, Kind.O, Kind.DO, Kind.S, Kind.P, Kind.DP, Kind.DS)
"""Kinds whose product with a literal zero is padding, or a weight that a mask replaced."""
_SUMMED = (Kind.DQ, Kind.DK, Kind.DV)
_THIS = -1
"""As a source: the node that is being made."""


def _term_of_dp(algebra: Algebra, do: Tags, v: Tags) -> Tags:
    out = as_kind(do, Kind.DP)
    out["flags"] |= v["flags"]
    out["flags"][(do["col"] != v["col"]) | (do["col"] < 0)] |= Flag.INNER
    out["col"], out["terms"] = v["row"], algebra.sizes.bit(do["col"])
    return out


def _term_of_delta(algebra: Algebra, do: Tags, o: Tags) -> Tags:
    out = into(Kind.DELTA)(algebra, do, o)
    out["flags"][do["col"] != o["col"]] |= Flag.INNER
    out["col"], out["terms"] = NONE, algebra.sizes.bit(do["col"])
    return out


def _summed(kind: Kind) -> Rule:
    """Return a rule for sums of one kind at the same row and column."""

    def rule(algebra: Algebra, a: Tags, b: Tags) -> Tags:
        out = into(kind)(algebra, a, b)
        require_same(out, a, b, "col", Flag.COLUMNS)
        out["terms"] |= b["terms"]
        return out

    return rule


def _of_query(algebra: Algebra, ds: Tags, k: Tags) -> Tags:
    out = as_kind(ds, Kind.DQ)
    out["col"] = k["col"]
    return out


def _of_key(kind: Kind) -> Rule:
    """Return a rule for a term of a key's gradient: a weight of that key times an element of a query's row."""

    def rule(algebra: Algebra, weight: Tags, element: Tags) -> Tags:
        out = as_kind(weight, kind)
        out["row"], out["col"] = weight["col"], element["col"]
        return out

    return rule


K = Kind
_PRODUCTS = {
    **PRODUCTS,
    **table_of(
        {
            (K.DO, K.V): _term_of_dp,
            (K.DO, K.O): _term_of_delta,
            **{(K.P, kind): into(K.DS) for kind in (K.E, K.DP, K.DELTA)},
            # The rows of dS are multiplied with rows of keys, its columns with rows of queries, whichever they are.
            **{(ds, row): _of_query for ds in (K.DS, K.E, K.DP) for row in (K.K, K.V)},
            **{(ds, row): _of_key(K.DK) for ds in (K.DS, K.E, K.DP) for row in (K.Q, K.DO, K.O)},
            **{(K.P, row): _of_key(K.DV) for row in (K.DO, K.Q, K.O)},
        }
    ),
}
_SUMS = {
    **SUMS,
    **table_of(
        {
            (K.S, K.LSE): exponent_of,
            (K.DP, K.DELTA): into(K.E),
            **{(kind, kind): _summed(kind) for kind in (K.DP, K.DELTA, K.DS, K.DQ, K.DK, K.DV)},
        }
    ),
}


class BackwardAlgebra(Algebra):
    """The rules of the forward pass, and those of gradients."""

    def product(self, a: Tags, b: Tags) -> Tags:
        return self.by_pair(a, b, _PRODUCTS)

    def total(self, a: Tags, b: Tags, *, minus: bool = False) -> Tags:
        return self.by_pair(a, b, _SUMS)


@dataclass
class BackwardBoard(Board):
    """Sheets for each launch."""

    launch: int = 0
    by_launch: dict[tuple[str, int], Sheet] = field(default_factory=dict)

    def note(
        self, stage: str, at: tuple[Array, Array], values: Numbers, where: Where, nodes: Array, *, once: bool = False
    ) -> None:
        """Record elements where they are used; the first value of a launch counts."""
        known = (at[0] >= 0) & (at[1] >= 0)
        sheet = self.own_sheet(stage)
        place = at[0][known], at[1][known]
        fresh = sheet.event[place] == 0
        at_fresh = place[0][fresh], place[1][fresh]
        sheet.put(at_fresh, values[known][fresh], where.only(known).only(fresh), nodes[known][fresh])

    def own_sheet(self, stage: str) -> Sheet:
        """Return the sheet of a stage in the current launch."""
        rows, shape = self.sizes.q_rows, self.sizes.shape
        blank = {
            "delta": (rows, 1),
            "dq": (rows, shape.d),
            **dict.fromkeys(("dk", "dv"), (self.sizes.kv_rows, shape.d)),
        }
        key = stage, self.launch
        if key not in self.by_launch:
            self.by_launch[key] = Sheet.blank(*blank.get(stage, (rows, shape.skv)))
        return self.by_launch[key]

    def stored(self, name: str, index: Array, values: Numbers, tags: Tags, where: Where) -> None:
        """Record elements of a gradient as they are written, with the node of their sum."""
        self.own_sheet(name).put(tuple(np.divmod(index, self.sizes.shape.d)), values, where, tags["source"])


@dataclass
class BackwardProvenance(Provenance):
    """One recorded run of a backward pass, over all launches."""

    board: BackwardBoard

    def seed_all(self, arrays: Mapping[str, Array]) -> None:
        """Number the elements of every input."""
        for name, kind in INPUTS.items():
            array = arrays[name]
            values = array.reshape(-1, 1 if name == "lse" else array.shape[-1])
            first = self.nodes.add_input(kind, values.astype(np.float64))
            ids = np.arange(first, first + values.size, dtype=np.int32)
            self.held[name] = np.repeat(ids, array.dtype.itemsize)

    def begin(self, s: Shadow, grid: Grid) -> None:
        super().begin(s, grid)
        self.board.launch = self.nodes.launch
        self.outputs = []
        for allocation in grid.memory.allocations:
            name = allocation.name.removeprefix("argument ")
            if name in GRADIENTS:
                self.outputs.append(Output(name, allocation.address - GLOBAL_BASE, self.arrays[name]))

    def multiply(self, a: Tags, a_values: Numbers, b: Tags, b_values: Numbers, where: Where) -> Tags:
        """Return the product's tags; P and dS are recorded where they are multiplied into what follows them."""
        out = self.algebra.product(a, b)
        for one, one_values, other, other_values in ((a, a_values, b, b_values), (b, b_values, a, a_values)):
            weights = (one["kind"] == Kind.P) & among(out["kind"], Kind.DS, Kind.DV)
            slopes = among(one["kind"], Kind.DS, Kind.E, Kind.DP) & among(out["kind"], Kind.DQ, Kind.DK)
            for stage, lanes in (("p", weights), ("ds", slopes)):
                if lanes.any():
                    at = one["row"][lanes], self.board.key(one["col"][lanes])
                    self.board.note(stage, at, one_values[lanes], where.only(lanes), one["node"][lanes])
            padding = (other["kind"] == Kind.CONST) & (other_values == 0) & among(one["kind"], *_PADDED)
            out[padding] = other[padding]
        return out

    def add(self, a: Tags, b: Tags, *, minus: bool = False) -> Tags:
        """Return the sum's tags. The source of a gradient is its last sum, whatever it is multiplied with then."""
        out = self.algebra.total(a, b, minus=minus)
        out["source"][among(out["kind"], *_SUMMED)] = _THIS
        return out

    def make(self, tags: Tags, values: Numbers, where: Where) -> Ids:
        """Create nodes; complete sums dP and delta are recorded."""
        made = self.nodes.add(tags, values, where)
        own = tags["source"] == _THIS
        self.nodes.tags["source"][made[own]] = made[own]
        made[tags["kind"] == Kind.CONST] = 0
        for kind, stage in ((Kind.DP, "dp"), (Kind.DELTA, "delta")):
            whole = tags["kind"] == kind
            if whole.any():
                whole[whole] = full(tags["terms"][whole], self.algebra.sizes.shape.d)
                rows = tags["row"][whole]
                keys = np.zeros_like(rows) if stage == "delta" else self.board.key(tags["col"][whole])
                self.board.note(stage, (rows, keys), values[whole], where.only(whole), made[whole])
        return made
