"""What a kernel compares its sizes with: integer values that follow from parameters and the shape of the launch.

The kernel's blocks are evaluated in the order of the text, each loop a few times, for many launches at once. Values
from memory, or from floating-point arithmetic, are unknown. Which side of an if and else a value comes from is not
followed, so an outcome here is a guess: it proposes sizes to run, and decides nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.core.records import Place
from weft.ptx.module import WIDTH, Imm, Instruction, Mem, Not, Operand, Reg, Special, Sym
from weft.ptx.passes.build_cfg import Block, Cfg

Values = npt.NDArray[np.int64]
"""One value per launch."""
Outcomes = npt.NDArray[np.bool_]

ROUNDS = 3
"""Iterations of a loop: enough to see whether a second and a third one would follow."""
MOST_INSTRUCTIONS = 20_000


@dataclass(frozen=True)
class Launches:
    """Many launches of one kernel, each with one thread that is examined."""

    params: npt.NDArray[np.uint8]
    """Parameter blocks, one per row."""
    specials: Mapping[str, Values]
    """Special registers, such as `%ctaid.x`."""

    @property
    def count(self) -> int:
        return len(self.params)


@dataclass(frozen=True)
class Comparison:
    """A comparison, or the wrap of a number, and its outcome in each launch."""

    line: int
    """The line in the PTX."""
    place: Place | None
    outcomes: Outcomes
    literal: bool
    """Whether one side is a literal."""


def compare_sizes(cfg: Cfg, offsets: Mapping[str, int], launches: Launches) -> Iterator[Comparison]:
    """Yield every comparison with a known outcome, each time it is evaluated; `offsets` are those of parameters."""
    machine = _Machine(launches, offsets)
    rounds: dict[int, int] = {}
    at = done = 0
    while at < len(cfg.blocks) and done < MOST_INSTRUCTIONS:
        block = cfg.blocks[at]
        for ins in block.body:
            yield from machine.run(ins)
        done += len(block.body)
        back = _back_edge(block)
        rounds[at] = rounds.get(at, 0) + 1
        at = back if back is not None and rounds[at] < ROUNDS else at + 1


def _back_edge(block: Block) -> int | None:
    return next((target for target in block.targets if target <= block.id), None)


class _Machine:
    def __init__(self, launches: Launches, offsets: Mapping[str, int]) -> None:
        self.launches, self.offsets = launches, offsets
        self.file: dict[str, Values] = {}

    def run(self, ins: Instruction) -> Iterator[Comparison]:
        value: Values | None = None
        name = ins.form.name
        if ins.space == "param" and ins.facts.accesses:
            value = self._parameter(ins)
        elif name in _OPERATIONS and not _is_float(ins):
            names = [each for each in "abc" if ins.find(each) is not None]
            operands = [value for each in names if (value := self._read(ins, each)) is not None]
            if len(operands) == len(names):
                value = _OPERATIONS[name](ins, *operands)
                value = _as(value, "pred" if name == "setp" else ins.operand_type("d"))
                literal = any(isinstance(ins.find(each), Imm) for each in "ab")
                outcomes = _outcomes(ins, operands, value, literal=literal)
                if outcomes is not None:
                    yield Comparison(ins.line, ins.place, outcomes, literal)
        self._write(ins, value)

    def _write(self, ins: Instruction, value: Values | None) -> None:
        target, *others = [register.name for register in ins.written()] or [""]
        if value is not None and ins.guard is not None:
            guard, old = self.file.get(ins.guard.reg.name), self.file.get(target)
            if guard is None or old is None:
                value = None
            else:
                value = np.where((guard != 0) != ins.guard.negated, value, old)
        for name in (target, *others):
            self.file.pop(name, None)
        if value is not None and not others:
            self.file[target] = value

    def _parameter(self, ins: Instruction) -> Values | None:
        """`ld.param` of one integer."""
        source, target = ins.find("a"), ins.find("d")
        if _is_float(ins) or not isinstance(target, Reg):
            return None
        if not isinstance(source, Mem) or not isinstance(source.base, Sym) or source.base.name not in self.offsets:
            return None
        start = self.offsets[source.base.name] + source.base.offset + source.offset
        width = WIDTH[ins.type] // 8
        if start + width > self.launches.params.shape[1]:
            return None
        raw = self.launches.params[:, start : start + width].astype(np.int64)
        return _as((raw << (8 * np.arange(width, dtype=np.int64))).sum(axis=1), ins.type)

    def _read(self, ins: Instruction, name: str) -> Values | None:
        operand, ptx_type = ins.operand(name), ins.operand_type(name)
        value = self._value(operand)
        return None if value is None else _as(value, ptx_type)

    def _value(self, operand: Operand) -> Values | None:
        match operand:
            case Reg(name=name):
                return self.file.get(name)
            case Not(reg=reg):
                value = self.file.get(reg.name)
                return None if value is None else 1 - value
            case Imm(value=number):
                return np.full(self.launches.count, _signed(number), np.int64)
            case Special(name=name):
                return self.launches.specials.get(name)
        return None


def _outcomes(ins: Instruction, operands: list[Values], value: Values, *, literal: bool) -> Outcomes | None:
    """Return the outcomes of an instruction: of a comparison, or whether a number exceeds a literal and wraps."""
    name = ins.form.name
    if name == "setp":
        return value.astype(bool)
    if name in ("min", "max"):
        return np.asarray(operands[0] < operands[1])
    if name == "rem" and literal:
        return np.asarray(value != operands[0])
    mask = ins.find("b")
    if name == "and" and isinstance(mask, Imm):
        if mask.value > 0 and not mask.value & (mask.value + 1):  # x & 7
            return np.asarray(value != operands[0])
        if mask.value < 0 and not -mask.value & (-mask.value - 1):  # x - x % 8
            return np.asarray(value != 0)
    return None


def _is_float(ins: Instruction) -> bool:
    return any("f" in value for slot, value in ins.mods.items() if slot in ("type", "atype", "dtype", "stype"))


def _signed(value: int) -> int:
    return (value & (1 << 64) - 1 ^ 1 << 63) - (1 << 63)


def _as(value: Values, ptx_type: str) -> Values:
    """Return the low bits of a value as an integer of a type; 64 bits are signed."""
    width = WIDTH[ptx_type]
    if width == 64 or ptx_type == "pred":
        return value
    low = value & ((1 << width) - 1)
    return (low ^ (1 << width - 1)) - (1 << width - 1) if ptx_type[0] == "s" else low


def _quotient(a: Values, b: Values) -> Values:
    """Return the quotient rounded toward zero, as in C; 0 where it is undefined."""
    safe = np.where(b == 0, 1, b)
    return np.where(b == 0, 0, np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)))


def _product(ins: Instruction, a: Values, b: Values) -> Values:
    if ins.mods.get("mode") == "hi":
        return a * b >> WIDTH[ins.type]
    return a * b


_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_JOIN: Mapping[str, Callable[[Any, Any], Any]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _setp(ins: Instruction, a: Values, b: Values, c: Values | None = None) -> Values:
    outcome = _COMPARE[ins.mods["cmp"]](a, b)
    if c is not None:
        outcome = _JOIN[ins.mods["bool"]](outcome, c != 0)
    return np.asarray(outcome, np.int64)


_OPERATIONS: Mapping[str, Callable[..., Values]] = {
    "mov": lambda _, a: a,
    "cvt": lambda _, a: a,
    "cvta": lambda _, a: a,
    "add": lambda _, a, b: a + b,
    "sub": lambda _, a, b: a - b,
    "mul": _product,
    "mad": lambda ins, a, b, c: _product(ins, a, b) + c,
    "div": lambda _, a, b: _quotient(a, b),
    "rem": lambda _, a, b: a - b * _quotient(a, b),
    "min": lambda _, a, b: np.minimum(a, b),
    "max": lambda _, a, b: np.maximum(a, b),
    "neg": lambda _, a: -a,
    "abs": lambda _, a: np.abs(a),
    "and": lambda _, a, b: a & b,
    "or": lambda _, a, b: a | b,
    "xor": lambda _, a, b: a ^ b,
    "not": lambda ins, a: 1 - a if ins.type == "pred" else ~a,
    "shl": lambda _, a, b: a << np.clip(b, 0, 63),
    "shr": lambda _, a, b: a >> np.clip(b, 0, 63),
    "selp": lambda _, a, b, c: np.asarray(np.where(c != 0, a, b), np.int64),
    "setp": _setp,
}
"""The low bits of each are the instruction's result (PTX ISA 9.7.1, 9.7.6, 9.7.8)."""
