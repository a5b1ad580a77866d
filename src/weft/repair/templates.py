"""What is tested in place of an instruction: each template is one kind of small mistake, undone.

None of them was written to undo an operator that `weft.mutate` holds out (a halved constant, * for /, exchanged
branches, a lost term or stride of an index): those measure whether the search generalises. Two of those operators are
undone by templates that serve other mistakes: `loop_ends_early` by one more or less, `masked_score_zero` by a starting
value. They do not count in a score of held-out repairs.
"""

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations

from weft.ptx.module import FloatImm, Imm, Reg

from .sites import Site

INSTEAD, AFTER = -1, -2
"""Changes of a complete instruction: another one in its place, or one behind it; otherwise the number of an operand."""
TEMP, CHOSEN, GUARD = "{t}", "{p}", "{g}"
"""In the text of a change: the operand's substitute, the predicate that the edit is chosen, and a free predicate."""
MOST_GUARDS = 6
MOST_PAIRS = 3


class Kind(IntEnum):
    """Kinds of edits, the likelier mistake first: where edits at two lines work, the lower number is reported first."""

    CONSTANT = 0
    OPERATION = 1
    TERM = 2
    CALL = 3
    VALUE = 4
    EXCHANGE = 5
    OPERAND = 6
    GUARDED = 7
    ORDER = 8
    """Two statements in the other order, in the source."""
    NAMED = 9
    """A constant with a name, or what the compiler computes of constants, in the source."""
    BARRIER = 10
    """A barrier that is added, in the source."""


@dataclass(frozen=True)
class Change:
    """One line of the PTX with an edit."""

    ptx_line: int
    at: int
    text: str
    """Instructions, each with `;`. Of an operand: what computes its substitute."""
    type: str = ""
    """Of an operand: the type of its substitute."""

    @property
    def replaces(self) -> bool:
        return self.at == INSTEAD


@dataclass(frozen=True)
class Made:
    """What a template makes of a site."""

    kind: Kind
    at: int
    mark: str
    """What is done, independent of the values of constants: the same in the builds for other sizes."""
    words: str
    changes: tuple[Change, ...]


Template = Callable[[Site], Iterator[Made]]

_COMPARISONS = {
    "lt": ("le", "gt", "ge"), "le": ("lt", "ge", "gt"), "gt": ("ge", "lt", "le"), "ge": ("gt", "le", "lt"),
    "eq": ("ne",), "ne": ("eq",),
}  # fmt: skip
_OPERATIONS = {"add": "sub", "sub": "add", "min": "max", "max": "min", "div": "rem", "rem": "div"}
_SYMBOLS = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "add": "+", "sub": "-", "mul": "*", "min": "min", "max": "max", "div": "/", "rem": "%",
}  # fmt: skip
_ORDINALS = ("", "first", "second")
_FLOATS = (0.0, 1.0, -math.inf)
"""Starting values of sums, products and maxima."""
_EDITED = (
    "add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "neg", "setp", "selp", "mov", "cvt", "st", "shl",
    "rcp",
)  # fmt: skip
"""Opcodes whose sources are tested; an address or a branch target is none."""
_BASES = {"log2(e)": math.log2(math.e), "ln(2)": math.log(2.0)}
"""Factors between exponentials, and logarithms, of base e and 2."""
_EXTREMES = {"fmaxf": "min.f32", "fminf": "max.f32", "max": "min.s32", "min": "max.s32"}
_OTHER_BASE = {
    "expf": ("ex2.approx.f32 {0}, {1};",),
    "__expf": ("ex2.approx.f32 {0}, {1};",),
    "exp2f": ("mul.f32 {0}, {1}, 0f3FB8AA3B;", "ex2.approx.f32 {0}, {0};"),
    "logf": ("mul.f32 {0}, {0}, 0f3FB8AA3B;",),
    "__logf": ("mul.f32 {0}, {0}, 0f3FB8AA3B;",),
    "log2f": ("mul.f32 {0}, {0}, 0f3F317218;",),
}
"""Function → what computes its result {0} with the other base, from that result or from its argument {1}. The constants
are log2(e) and ln(2).
"""
_SHUFFLES = {"down": "bfly", "up": "bfly", "xor": "down"}
_STEPS = 4, 1024
"""Steps of loops that are tested with half of their value; of a smaller one, one less is half."""
_BITS_OF_FLOATS = 1 << 24
"""Larger integers are bits of floats: infinity plus one would be NaN, which `fminf` leaves out."""
_FLOAT_WORDS = {"-inf as bits": -math.inf, "1 as bits": 1.0}
"""Starting values of float arrays, which -G builds store as integers."""


def constants(site: Site) -> Iterator[Made]:
    """Another constant: one more, one less, half of a step or of a float, a starting value, the other sign."""
    if not _is_edited(site) or site.is_address:
        return
    for at in range(1, len(site.operands)):
        operand = site.ins.operands[at]
        if isinstance(operand, Reg) and site.ends and site.name == "mov":
            operand = site.scope.constants.get(operand.name, operand)
        if isinstance(operand, Imm):
            kind = _width(site, at)
            counts = abs(operand.value) < _BITS_OF_FLOATS
            values = {"-1": operand.value - 1, "+1": operand.value + 1} if counts else {}
            if site.name == "add" and _STEPS[0] <= operand.value <= _STEPS[1] and operand.value % 2 == 0:
                values["/2"] = operand.value // 2  # the step of a loop, counted twice
            if site.name in ("mov", "add", "st"):  # where 0 and 1 are values that people write
                values |= {"0": 0, "1": 1}
            if site.opcode in ("mov.u32", "mov.b32") and operand.value in (0, _bits(1.0)):
                values |= {mark: _bits(number) for mark, number in _FLOAT_WORDS.items()}
            for mark, value in values.items():
                if kind and value != operand.value:
                    words = f"{_spelled(operand.value)} → {_spelled(value)}"
                    yield _operand(site, Kind.CONSTANT, at, mark, words, f"mov.{kind} {TEMP}, {value};", kind)
        elif isinstance(operand, FloatImm) and operand.width == 32:
            held: float = struct.unpack("<f", operand.bits.to_bytes(4, "little"))[0]
            numbers = {str(number): number for number in _FLOATS} | {"-x": -held, "x/2": held / 2}
            for mark, number in numbers.items():
                if _bits(number) != operand.bits:
                    words = f"{held:g} → {number:g}"
                    yield _operand(site, Kind.CONSTANT, at, mark, words, f"mov.f32 {TEMP}, {_float(number)};", "f32")


def operations(site: Site) -> Iterator[Made]:
    """Another comparison or operation."""
    parts = site.opcode.split(".")
    if site.is_address:
        return
    if site.name == "setp":
        for other in _COMPARISONS.get(parts[1], ()):
            opcode = ".".join(["setp", other, *parts[2:]])
            yield _instead(site, Kind.OPERATION, f"setp {other}", _arrow(parts[1], other), opcode, site.operands)
    elif site.name in _OPERATIONS and not (site.name in ("div", "rem") and parts[-1].startswith("f")):
        other = _OPERATIONS[site.name]
        opcode = ".".join([other, *parts[1:]])
        yield _instead(site, Kind.OPERATION, other, _arrow(site.name, other), opcode, site.operands)


def terms(site: Site) -> Iterator[Made]:
    """A sum, difference or product without one of its operands."""
    parts = site.opcode.split(".")
    if site.name not in ("add", "sub", "mul") or len(site.operands) != 3 or site.is_address:
        return
    for at in (1, 2):
        if isinstance(site.ins.operands[at], Reg):
            words = f"without the {_ORDINALS[3 - at]} operand of {_SYMBOLS[site.name]}"
            kept = (site.operands[0], site.operands[at])
            yield _instead(site, Kind.TERM, f"without {3 - at}", words, f"mov.{parts[-1]}", kept)


def calls(site: Site) -> Iterator[Made]:
    """The other of two functions: max and min, the kinds of shuffles, the bases of exponentials and logarithms; or an
    argument in place of the result.
    """
    call, result = site.call, site.operands[0]
    if call is None:
        return
    if call.name in _EXTREMES and len(call.arguments) == 2:
        opcode = _EXTREMES[call.name]
        words = f"{call.name} → {opcode[:3]}"
        yield _after(site, Kind.CALL, "extreme", words, f"{opcode} {result}, {', '.join(call.arguments)};")
    for name, other in _SHUFFLES.items():
        if f"__shfl_{name}_sync" in call.name and len(call.arguments) == 4:
            mask, value, offset, _ = call.arguments
            words = f"__shfl_{name}_sync → shfl.{other}"
            text = f"shfl.sync.{other}.b32 {result}, {value}, {offset}, 31, {mask};"
            yield _after(site, Kind.CALL, "shuffle", words, text)
    if call.name in _OTHER_BASE and len(call.arguments) == 1:
        texts = [text.format(result, call.arguments[0]) for text in _OTHER_BASE[call.name]]
        yield _after(site, Kind.CALL, "base", f"{call.name} with the other base", f" @{CHOSEN} ".join(texts))
    for number, argument in enumerate(call.arguments):
        if site.scope.types.get(argument) == site.result_type and site.result_type == "f32":
            words = f"without the call of {_plain(call.name)}"
            yield _after(site, Kind.CALL, f"argument {number}", words, f"mov.f32 {result}, {argument};")


def float_values(site: Site) -> Iterator[Made]:
    """A finished float times or plus a variable, or with the base of its exponential changed."""
    at = _value_at(site, "f32")
    if at is None:
        return
    value = site.operands[at]
    for name, factor in _BASES.items():
        text = f"mul.f32 {TEMP}, {value}, {_float(factor)};"
        yield _value(site, at, f"times {name}", f"the value times {name}", text)
    for number, other in enumerate(site.scope.like(value, site.ins.line)):
        for opcode, symbol in (("mul", "times"), ("add", "plus")):
            text = f"{opcode}.f32 {TEMP}, {value}, {other};"
            yield _value(site, at, f"{symbol} {number}", f"the value {symbol} another variable", text)


def element_sums(site: Site) -> Iterator[Made]:
    """An array element that is added to, not overwritten."""
    if site.name == "st" and site.opcode.endswith(".f32") and site.ins.space != "param" and len(site.operands) == 2:
        load = site.opcode.replace("st", "ld", 1)
        text = f"{load} {TEMP}, {site.operands[0]}; add.f32 {TEMP}, {TEMP}, {site.operands[1]};"
        yield _operand(site, Kind.VALUE, 1, "+=", "= → +=", text, "f32")


def integer_values(site: Site) -> Iterator[Made]:
    """An integer variable divided by the number of query heads per KV head, or moved by SKV - SQ."""
    sizes = site.scope.sizes
    group = sizes.get("HQ", 1) // max(sizes.get("HKV", 1), 1)
    shift = sizes.get("SKV", 0) - sizes.get("SQ", 0)
    if site.name not in ("cvt", "add", "mul", "mov") or site.result_type not in ("b32", "b64"):
        return
    for at in range(1, len(site.operands)):
        operand = site.ins.operands[at]
        if not isinstance(operand, Reg) or operand.name not in site.scope.named or site.register_type(at) != "b32":
            continue
        text = f"div.s32 {TEMP}, {operand.name}, {group};"
        if group > 1:
            yield _operand(site, Kind.VALUE, at, "group", "a variable divided by HQ / HKV", text, "b32")
        if shift and site.result_type == "b32":
            for opcode, symbol in (("add", "+"), ("sub", "-")):
                text = f"{opcode}.s32 {TEMP}, {operand.name}, {shift};"
                words = f"a variable {symbol} (SKV - SQ)"
                yield _operand(site, Kind.VALUE, at, f"{symbol} shift", words, text, "b32")


def conversions(site: Site) -> Iterator[Made]:
    """A float that is not cut to an integer."""
    if site.opcode.startswith(("cvt.rzi.f32.f32", "cvt.rmi.f32.f32", "cvt.rni.f32.f32")):
        yield _instead(site, Kind.OPERATION, "not cut", "without cutting to an integer", "mov.f32", site.operands)


def variables(site: Site) -> Iterator[Made]:
    """Another variable of the same type in place of an operand."""
    if not _is_edited(site) or site.name == "mov":  # copies: their uses are tested
        return
    for at in range(1, len(site.operands)):
        kind = site.register_type(at) if site.operands[at] not in site.scope.scaled else ""
        if kind in ("b32", "b64", "f32", "b16"):
            for number, other in enumerate(site.scope.like(site.operands[at], site.ins.line)):
                words = "another variable in place of an operand"
                text = f"mov.{kind} {TEMP}, {other};"
                yield _operand(site, Kind.OPERAND, at, f"variable {number}", words, text, kind)


def exchanges(site: Site) -> Iterator[Made]:
    """Two integer variables of a line in each other's place."""
    ins = site.ins
    first = site.scope.read_at[site.place.file, site.place.line][0]
    if ins is not first:
        return
    here = [each for each in site.scope.read_at[site.place.file, site.place.line] if each.guard is None]
    for number, (a, b) in enumerate(list(combinations(site.scope.integers_at(site.place), 2))[:MOST_PAIRS]):
        other = {a: b, b: a}
        changes = [
            Change(each.line, at, f"mov.b32 {TEMP}, {other[operand.name]};", "b32")
            for each in here
            for at, operand in enumerate(each.operands)
            if isinstance(operand, Reg) and operand.name in other and not each.form.operands[at].written
        ]
        if len(changes) > 1:
            yield Made(Kind.EXCHANGE, 0, f"exchange {number}", "two variables exchanged", tuple(changes))


def guards(site: Site) -> Iterator[Made]:
    """A store, or a new value, only if an index of the line is below a limit that other lines compare with."""
    pairs = [(x, limit) for x in site.scope.integers_at(site.place) for limit in site.scope.limits if x != limit]
    stores = site.name == "st" and site.ins.space != "param" and len(site.operands) == 2
    for number, (x, limit) in enumerate(pairs[:MOST_GUARDS]):
        if stores:
            text = f"setp.lt.s32 {GUARD}, {x}, {limit}; and.pred {GUARD}, {GUARD}, {CHOSEN}; "
            text += f"@{GUARD} {site.opcode} {', '.join(site.operands)};"
            change = Change(site.ins.line, INSTEAD, text)
            yield Made(Kind.GUARDED, INSTEAD, f"guard {number}", "only below a limit of other lines", (change,))
        elif site.ends and site.result_type == "f32":
            others = {"-inf": _float(-math.inf), "0": _float(0.0)}
            if site.name == "add" and site.register_type(1) == "f32":
                others["old"] = site.operands[1]
            for mark, other in others.items():
                text = f"setp.ge.s32 {GUARD}, {x}, {limit}; and.pred {GUARD}, {GUARD}, {CHOSEN}; "
                text += f"@{GUARD} mov.f32 {site.operands[0]}, {other};"
                words = f"{mark} from a limit of other lines on"
                yield Made(Kind.GUARDED, AFTER, f"guard {number} {mark}", words, (Change(site.ins.line, AFTER, text),))


TEMPLATES: tuple[Template, ...] = (
    constants, operations, terms, calls, conversions, float_values, element_sums, integer_values, exchanges, guards,
    variables,
)  # fmt: skip


def _is_edited(site: Site) -> bool:
    argument = site.ins.space == "param" and site.name == "st"
    return site.name in _EDITED and (argument or site.ins.space != "param")


def _value_at(site: Site, kind: str) -> int | None:
    """Return the operand with the finished value: the source of a store or argument, the result of others."""
    if not site.ends or not site.operands:
        return None
    at = 1 if site.name == "st" else 0
    if at >= len(site.operands) or site.register_type(at) != kind:
        return None
    return at


def _value(site: Site, at: int, mark: str, words: str, text: str) -> Made:
    """Return a change of a value: of a store's source before it, of a result after it."""
    if at:
        return _operand(site, Kind.VALUE, at, mark, words, text, "f32")
    return _after(site, Kind.VALUE, mark, words, text.replace(TEMP, site.operands[0]))


def _operand(site: Site, kind: Kind, at: int, mark: str, words: str, text: str, type_: str) -> Made:
    return Made(kind, at, mark, words, (Change(site.ins.line, at, text, type_),))


def _instead(site: Site, kind: Kind, mark: str, words: str, opcode: str, operands: tuple[str, ...]) -> Made:
    text = f"@{CHOSEN} {opcode} {', '.join(operands)};"
    return Made(kind, INSTEAD, mark, words, (Change(site.ins.line, INSTEAD, text),))


def _after(site: Site, kind: Kind, mark: str, words: str, text: str) -> Made:
    text = text if text.startswith("setp") else f"@{CHOSEN} {text}"
    return Made(kind, AFTER, mark, words, (Change(site.ins.line, AFTER, text),))


def _width(site: Site, at: int) -> str:
    """Return the type of a register that can hold an integer operand; empty if it cannot be replaced."""
    specs = site.ins.form.operands
    if at >= len(specs):
        return ""
    kind = site.ins.operand_type(specs[at].name)
    return {"16": "b16", "32": "b32", "64": "b64"}.get(kind[1:], "")


def _bits(number: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", number))[0])


def _float(number: float) -> str:
    return f"0f{_bits(number):08X}"


def _spelled(value: int) -> str:
    """Return an integer as the source has it: some are the bits of a float."""
    return {_bits(1.0): "1.0f", _bits(-math.inf): "-inf"}.get(value, str(value))


def _arrow(was: str, becomes: str) -> str:
    return f"{_SYMBOLS[was]} → {_SYMBOLS[becomes]}"


def _plain(name: str) -> str:
    """Return the name of a function as the source has it, where it is not decorated."""
    return name if not name.startswith("_Z") else "the function"
