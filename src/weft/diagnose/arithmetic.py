"""Floating-point arithmetic and selections: these instructions create nodes."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from weft.ptx.module import WIDTH, Instruction
from weft.shadow.marks import Finish, Shadow
from weft.shadow.rules import select
from weft.vm.reference.machine import RunningWarp

from .elements import elements, numbers, spread
from .nodes import Numbers, Where
from .provenance import Handler, Provenance
from .tags import NONE, Flag, Kind, Tags, among


class Operands:
    """The operands of one instruction in the active lanes: tags and numbers, element by element."""

    def __init__(self, p: Provenance, s: Shadow, w: RunningWarp, ins: Instruction, names: str) -> None:
        self.p, self.s, self.w, self.ins = p, s, w, ins
        self.on = np.flatnonzero(w.mask)
        kinds = [ins.operand_type(name) for name in names]
        read = (s.read(w, ins.operand(name), WIDTH[kind] // 8) for name, kind in zip(names, kinds, strict=True))
        self.ids = [elements(ids, kind) for ids, kind in zip(read, kinds, strict=True)]
        self.names = names
        self.tracked = any(ids[self.on].any() for ids in self.ids)

    def take(self) -> tuple[list[Tags], list[Numbers]]:
        """Return tags and numbers, flat over lanes and elements."""
        tags, values = [], []
        for name, ids in zip(self.names, self.ids, strict=True):
            kind = self.ins.operand_type(name)
            read = numbers(self.w, self.ins.operand(name), kind, self.ins.line)[self.on]
            self.width = read.shape[1]
            tags.append(self.p.nodes.tags[ids[self.on].reshape(-1)])
            values.append(read.reshape(-1))
        event = self.p.nodes.event(self.w, self.ins)
        self.where = Where(event, np.repeat(self.on, self.width))
        return tags, values

    def finish(self, result: Tags) -> Finish:
        """Return a function that creates the result's nodes after the instruction has run."""

        def done() -> None:
            kind = self.ins.operand_type("d")
            values = numbers(self.w, self.ins.operand("d"), kind, self.ins.line)[self.on].reshape(-1)
            self.p.acts.made_nan(self.w, self.ins, values)
            made = self.p.make(result, values, self.where)
            ids = np.zeros((32, self.width), np.int32)
            ids[self.on] = made.reshape(-1, self.width)
            self.s.write(self.w, self.ins.operand("d"), spread(ids, WIDTH[kind] // 8))

        return done


def _binary(p: Provenance, s: Shadow, w: RunningWarp, ins: Instruction) -> Finish | None:
    operands = Operands(p, s, w, ins, "ab" if ins.find("c") is None else "abc")
    if not operands.tracked:
        s.forget(w, ins)
        return p.unmarked(w, ins)
    (a, b, *third), (x, y, *rest) = operands.take()
    match ins.facts.computes:
        case "product":
            result = p.multiply(a, x, b, y, operands.where)
            _scale_exponent(result, (a, b, y), (b, a, x))
        case "quotient":
            result = p.multiply(a, x, p.algebra.inverse(b), y, operands.where)
        case "larger":
            result = p.largest(a, x, b, y)
            for c, z in zip(third, rest, strict=True):
                result = p.largest(result, np.fmax(x, y), c, z)
        case "smaller":
            result = p.algebra.clamped(a, b)
            for c in third:
                result = p.algebra.clamped(result, c)
        case computes:
            minus = computes == "difference"
            result = p.subtract(a, b, y, operands.where) if minus else p.add(a, b)
            _show_exponent(p, (a, x), (b, -y if minus else y), result, operands.where)
    return operands.finish(result)


def _product_and_sum(p: Provenance, s: Shadow, w: RunningWarp, ins: Instruction) -> Finish | None:
    operands = Operands(p, s, w, ins, "abc")
    if not operands.tracked:
        s.forget(w, ins)
        return p.unmarked(w, ins)
    (a, b, c), (x, y, z) = operands.take()
    product = p.multiply(a, x, b, y, operands.where)
    _scale_exponent(product, (a, b, y), (b, a, x))
    result = p.add(product, c)
    with np.errstate(all="ignore"):
        _show_exponent(p, (product, x * y), (c, z), result, operands.where)
    return operands.finish(result)


def _scale_exponent(result: Tags, *pairs: tuple[Tags, Tags, Numbers]) -> None:
    """Record the constant that an exponent is multiplied with: it shows the unit of the scores."""
    for exponent, other, factor in pairs:
        scaled = (exponent["kind"] == Kind.X) & (other["kind"] == Kind.CONST)
        result["factor"][scaled] = exponent["factor"][scaled] * factor[scaled]


def _show_exponent(p: Provenance, a: tuple[Tags, Numbers], b: tuple[Tags, Numbers], result: Tags, where: Where) -> None:
    """Record S and m on the board where m is subtracted from S. Of two scores the second is the maximum."""
    made = (result["kind"] == Kind.X) & (result["col"] != NONE)
    for (s, score), (m, negated) in ((a, b), (b, a)):
        lanes = (
            made & (s["kind"] == Kind.S) & (among(m["kind"], Kind.M, Kind.LSE) | ((m["kind"] == Kind.S) & (s is a[0])))
        )
        if lanes.any():
            p.acts.subtracted(where.event)
            p.board.exponent(s[lanes], score[lanes], m[lanes], -negated[lanes], where.only(lanes))


def _unary(p: Provenance, s: Shadow, w: RunningWarp, ins: Instruction) -> Finish | None:
    operands = Operands(p, s, w, ins, "a")
    if not operands.tracked:
        s.forget(w, ins)
        return None
    (a,), _ = operands.take()
    match ins.facts.computes:
        case "exponential":
            result = p.algebra.exponential(a)
            weights = (a["kind"] == Kind.X) & (a["col"] != NONE)
            p.board.units.update(float(f"{abs(f) * math.log(2):.4g}") for f in np.unique(a["factor"][weights]))
        case "reciprocal":
            result = p.algebra.inverse(a)
        case "logarithm":
            result = p.algebra.logarithm(a)
        case "sign":
            result = a.copy()
        case _:
            result = p.algebra.function(a)
    return operands.finish(result)


def _select(p: Provenance, s: Shadow, w: RunningWarp, ins: Instruction) -> Finish | None:
    """A selection moves bytes, unless one side is a score: then it may be a mask or a maximum."""
    size = WIDTH[ins.type] // 8
    a, b = (s.read(w, ins.operand(name), size) for name in "ab")
    whole = size == 4 and all((ids == ids[:, :1]).all() for ids in (a, b))
    if whole and among(p.nodes.tags["kind"][np.concatenate([a[:, 0], b[:, 0]])], Kind.S, Kind.M).any():
        return _choose(p, s, w, ins, w.src(ins, "c"))
    select(s, w, ins)
    return None


def _choose(p: Provenance, s: Shadow, w: RunningWarp, ins: Instruction, condition: npt.NDArray[np.bool_]) -> Finish:
    """Handle a selection as f32, whatever type the instruction has."""
    operands = Operands(p, s, w, replace(ins, mods={**ins.mods, "type": "f32"}), "ab")
    (a, b), (x, y) = operands.take()
    for tags, values in ((a, x), (b, y)):
        scores = (tags["kind"] == Kind.S) & ((tags["flags"] & Flag.MASKED) == 0)
        if scores.any():
            p.acts.masked(operands.where.event)
            p.board.before_mask(tags[scores], values[scores], operands.where.only(scores))
    first = condition[operands.on]
    return operands.finish(p.algebra.chosen(a, b, first, np.where(first, x, y)))


ARITHMETIC: Mapping[str, Handler] = {
    **dict.fromkeys(("sum", "difference", "product", "quotient", "larger", "smaller"), _binary),
    "product and sum": _product_and_sum,
    **dict.fromkeys(("exponential", "reciprocal", "logarithm", "sign", "function"), _unary),
    "select": _select,
}
"""By what the row computes (`Facts.computes`)."""
