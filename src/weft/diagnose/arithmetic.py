"""Floating-point arithmetic, selections and conversions to float: these instructions create nodes."""

import math
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import numpy.typing as npt

from weft.ptx.module import WIDTH, Instruction, Operand
from weft.vm.reference.machine import RunningWarp

from .nodes import Numbers, Where
from .provenance import Finish, Handler, Provenance
from .shadow import single
from .tags import NONE, Flag, Ids, Kind, Tags, among

_PACKED = {"f16x2": np.dtype(np.float16), "bf16x2": np.dtype(ml_dtypes.bfloat16)}
_CODES = ("e4m3x2", "e5m2x2")
_SINGLE = ("f16", "bf16", "f32", "f64")


def elements(ids: Ids | None, ptx_type: str) -> Ids | None:
    """Convert (32, bytes) to (32, elements) of a float type."""
    if ids is None:
        return None
    parts = 2 if ptx_type in _PACKED else 1
    split = ids.reshape(32, parts, -1)
    return np.stack([single(split[:, part]) for part in range(parts)], axis=1)


def numbers(w: RunningWarp, operand: Operand, ptx_type: str, line: int) -> Numbers:
    """Return (32, elements) of an operand as float64."""
    raw = w.read(operand, ptx_type, line)
    if ptx_type in _PACKED:
        raw = np.ascontiguousarray(raw).view(_PACKED[ptx_type]).reshape(32, 2)
    with np.errstate(invalid="ignore"):
        values: Numbers = raw.reshape(32, -1).astype(np.float64)
    return values


def spread(ids: Ids, size: int) -> Ids:
    """Convert (32, elements) to (32, size) bytes."""
    return np.repeat(ids, size // ids.shape[1], axis=1)


class Operands:
    """The operands of one instruction in the active lanes: tags and numbers, element by element."""

    def __init__(self, p: Provenance, w: RunningWarp, ins: Instruction, names: str) -> None:
        self.p, self.w, self.ins = p, w, ins
        self.on = np.flatnonzero(w.mask)
        self.ids: list[Ids | None] = []
        for name in names:
            kind = ins.operand_type(name)
            self.ids.append(elements(p.shadow.read(w, ins.operand(name), WIDTH[kind] // 8), kind))
        self.names = names
        self.tracked = any(ids is not None and ids[self.on].any() for ids in self.ids)

    def take(self) -> tuple[list[Tags], list[Numbers]]:
        """Return tags and numbers, flat over lanes and elements."""
        tags, values = [], []
        for name, ids in zip(self.names, self.ids, strict=True):
            kind = self.ins.operand_type(name)
            read = numbers(self.w, self.ins.operand(name), kind, self.ins.line)[self.on]
            self.width = read.shape[1]
            flat = np.zeros(read.size, np.int32) if ids is None else ids[self.on].reshape(-1)
            tags.append(self.p.nodes.tags[flat])
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
            self.p.shadow.write(self.w, self.ins.operand("d"), spread(ids, WIDTH[kind] // 8))

        return done


def _look_for_nan(p: Provenance, w: RunningWarp, ins: Instruction) -> None:
    p.acts.made_nan(w, ins, numbers(w, ins.operand("d"), ins.operand_type("d"), ins.line)[w.mask])


def _binary(name: str) -> Handler:
    def handle(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
        operands = Operands(p, w, ins, "ab")
        if not operands.tracked:
            p.shadow.forget(w, ins)
            return partial(_look_for_nan, p, w, ins) if name in ("add", "sub") else None
        (a, b), (x, y) = operands.take()
        match name:
            case "mul":
                result = p.multiply(a, x, b, y, operands.where)
                _scale_exponent(result, (a, b, y), (b, a, x))
            case "div":
                result = p.multiply(a, x, p.algebra.inverse(b), y, operands.where)
            case "max":
                result = p.largest(a, x, b, y)
            case "min":
                result = p.algebra.clamped(a, b)
            case _:
                minus = name == "sub"
                result = p.add(a, b, minus=minus)
                _show_exponent(p, (a, x), (b, -y if minus else y), result, operands.where)
        return operands.finish(result)

    return handle


def _fma(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    operands = Operands(p, w, ins, "abc")
    if not operands.tracked:
        p.shadow.forget(w, ins)
        return partial(_look_for_nan, p, w, ins)
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
        lanes = made & (s["kind"] == Kind.S) & ((m["kind"] == Kind.M) | ((m["kind"] == Kind.S) & (s is a[0])))
        if lanes.any():
            p.acts.subtracted(where.event)
            p.board.exponent(s[lanes], score[lanes], m[lanes], -negated[lanes], where.only(lanes))


def _unary(name: str) -> Handler:
    def handle(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
        operands = Operands(p, w, ins, "a")
        if not operands.tracked:
            p.shadow.forget(w, ins)
            return None
        (a,), _ = operands.take()
        match name:
            case "ex2":
                result = p.algebra.exponential(a)
                weights = (a["kind"] == Kind.X) & (a["col"] != NONE)
                p.board.units.update(float(f"{abs(f) * math.log(2):.4g}") for f in np.unique(a["factor"][weights]))
            case "rcp":
                result = p.algebra.inverse(a)
            case "lg2":
                result = p.algebra.logarithm(a)
            case "neg" | "abs":
                result = a.copy()
            case _:
                result = a.copy()
                result["kind"] = Kind.MIX
        return operands.finish(result)

    return handle


def _selp(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """A selection moves bytes, unless one side is a score: then it may be a mask or a maximum."""
    size = WIDTH[ins.type] // 8
    first, second = (p.shadow.read(w, ins.operand(name), size) for name in "ab")
    condition = w.src(ins, "c")
    if first is None and second is None:
        p.shadow.forget(w, ins)
        return None
    blank = np.zeros((32, size), np.int32)
    a, b = (blank if ids is None else ids for ids in (first, second))
    whole = size == 4 and all((ids == ids[:, :1]).all() for ids in (a, b))
    if whole and among(p.nodes.tags["kind"][np.concatenate([a[:, 0], b[:, 0]])], Kind.S, Kind.M).any():
        return _choose(p, w, ins, condition)
    p.shadow.write(w, ins.operand("d"), np.where(condition[:, None], a, b))
    return None


def _choose(p: Provenance, w: RunningWarp, ins: Instruction, condition: npt.NDArray[np.bool_]) -> Finish:
    """Handle a selection as f32, whatever type the instruction has."""
    operands = Operands(p, w, replace(ins, mods={**ins.mods, "type": "f32"}), "ab")
    (a, b), (x, y) = operands.take()
    for tags, values in ((a, x), (b, y)):
        scores = (tags["kind"] == Kind.S) & ((tags["flags"] & Flag.MASKED) == 0)
        p.board.before_mask(tags[scores], values[scores], operands.where.only(scores))
    return operands.finish(p.algebra.chosen(a, b, condition[operands.on]))


def _cvt(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """A conversion keeps the tag: the converted number is read where it is used."""
    source, result = ins.mods.get("atype", ""), ins.mods.get("dtype", "")
    if result in _PACKED and source == "f32":  # the first source is the upper half
        high, low = (p.shadow.read(w, ins.operand(name), 4) for name in "ab")
        halves = [np.zeros(32, np.int32) if ids is None else single(ids) for ids in (low, high)]
        p.shadow.write(w, ins.operand("d"), np.repeat(np.stack(halves, axis=1), 2, axis=1))
        return None
    if result in _CODES:  # a byte each; of two sources the first is the upper one, of a packed one the halves are
        p.shadow.write(w, ins.operand("d"), _two_codes(p, w, ins, source))
        return None
    held = p.shadow.read(w, ins.operand("a"), WIDTH[source] // 8) if source in WIDTH else None
    if held is None or ins.find("b") is not None:
        p.shadow.forget(w, ins)
    elif source in _SINGLE or result in _SINGLE:
        p.shadow.write(w, ins.operand("d"), np.repeat(single(held)[:, None], 8, axis=1))
    else:
        p.shadow.write(w, ins.operand("d"), held)
    return None


def _two_codes(p: Provenance, w: RunningWarp, ins: Instruction, source: str) -> Ids | None:
    if source in _PACKED:
        return elements(p.shadow.read(w, ins.operand("a"), 4), source)
    held = [p.shadow.read(w, ins.operand(name), 4) for name in "ba"]
    return np.stack([np.zeros(32, np.int32) if ids is None else single(ids) for ids in held], axis=1)


ARITHMETIC: dict[tuple[str, str], Handler] = {
    **{
        (chapter, name): _binary(name)
        for chapter, names in (
            ("floating", ("add", "sub", "mul", "div", "max", "min")),
            ("half", ("add", "sub", "mul", "max", "min")),
        )
        for name in names
    },
    **{(chapter, name): _fma for chapter in ("floating", "half") for name in ("fma", "mad")},
    **{
        (chapter, name): _unary(name)
        for chapter in ("floating", "half")
        for name in ("ex2", "rcp", "lg2", "neg", "abs", "sqrt", "rsqrt", "tanh", "sin", "cos")
    },
    ("compare", "selp"): _selp,
    ("convert", "cvt"): _cvt,
}
