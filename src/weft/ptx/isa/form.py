"""The rows of the instruction table, and how an opcode finds its row.

A row is written as the manual writes it:

    form("floating", Facts(…), "9.7.3.3", "add{.rnd}{.ftz}{.sat}.f32   d, a, b", rnd="rn rz rm rp")

`{.x}` is optional, `.x` is required. `x` is a choice if the row names its values,
and a literal otherwise. The slot `type` is the instruction type; a row with a literal type has it as `type`.
Operands whose name starts with `d` or `p`, and both of a pair `p|q`, are written; all others are read.
`d:u32` gives an operand its own type: a literal type, the name of a slot, or `wide` (twice the
instruction type). Operands after `;` may be absent. `[a]` is an address, `@L` a label, `*x` may be a vector;
`*coordinates` is a vector inside the brackets of the address before it.
The facts say what the instruction is (`facts.py`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from .facts import Computation, Facts

TYPES = frozenset(
    "pred b8 u8 s8 b16 u16 s16 f16 bf16 b32 u32 s32 f32 f16x2 bf16x2 tf32 u16x2 s16x2 b64 u64 s64 f64 f32x2 b128 "
    "e4m3 e5m2 e3m2 e2m3 e2m1 e4m3x2 e5m2x2 e3m2x2 e2m3x2 e2m1x2 ue8m0 ue4m3 ue8m0x2".split()
)
ORDERED = (
    TYPES,
    frozenset("const global local param shared shared::cta shared::cluster param::entry param::func".split()),
    frozenset("row col".split()),
    frozenset("L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged".split()),
)
"""Modifiers that mean something else in another order: types, state spaces, layouts, cache policies."""
WIDER = {"u8": "u16", "s8": "s16", "u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


@dataclass(frozen=True)
class Slot:
    """One modifier position of an opcode."""

    name: str
    choices: frozenset[str]
    optional: bool


@dataclass(frozen=True)
class OperandSpec:
    """One operand position: its name in the manual, whether it is written, its type rule."""

    name: str
    written: bool
    type_rule: str
    kind: str
    """value, address, label, pair (`p|q` or just `p`), or vector (one register or several)."""


@dataclass(frozen=True)
class Form:
    """A row of the table: the opcode's name, its modifiers and its operands."""

    text: str
    name: str
    slots: tuple[Slot, ...]
    operands: tuple[OperandSpec, ...]
    required: int
    """How many operands must be present."""
    section: str
    chapter: str
    """The table that contains it; `vm/emit` and `vm/reference` have a module of the same name."""
    facts: Facts

    @cached_property
    def slot_names(self) -> frozenset[str]:
        return frozenset(slot.name for slot in self.slots)

    @property
    def returns(self) -> bool:
        """Return whether it writes a register: `atom` does, `red` does not."""
        return any(spec.written for spec in self.operands)

    @property
    def wider_registers(self) -> bool:
        """Return whether operands may be in registers that are wider than their type, as in `ld`, `st` and `cvt`."""
        return "vec" in self.slot_names or ("dtype" in self.slot_names and bool(self.facts.converts))

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Return operand name → position."""
        return {spec.name: at for at, spec in enumerate(self.operands)}

    def operand_type(self, name: str, mods: Mapping[str, str]) -> str:
        """Return the type in which operand `name` is taken, given the modifiers chosen."""
        rule = self.operands[self.index[name]].type_rule
        if rule == "wide":
            return WIDER[mods["type"]]
        return mods.get(rule, rule)

    def match(self, parts: tuple[str, ...]) -> dict[str, str] | None:
        """Return the modifiers of `parts` by slot, or None if this row does not have them in this order."""
        return _match(self.slots, parts)

    def match_in_any_order(self, parts: tuple[str, ...]) -> dict[str, str] | None:
        """Modifiers of `parts` by slot, or None if this row does not have them.

        ptxas takes modifiers in every order (`red.and.release.cta.b32`, `ld.global.volatile.u32`), except those of one
        kind (`ORDERED`): `cvt.f32.rn.s32` converts to f32, `cp.async.ca.global.shared` is an error.
        """
        return _assign(self.slots, parts, {})


def _match(slots: tuple[Slot, ...], parts: tuple[str, ...]) -> dict[str, str] | None:
    if not slots:
        return {} if not parts else None
    head, rest = slots[0], slots[1:]
    if parts and parts[0] in head.choices:
        found = _match(rest, parts[1:])
        if found is not None:
            return {head.name: parts[0], **found}
    return _match(rest, parts) if head.optional else None


def _assign(slots: tuple[Slot, ...], parts: tuple[str, ...], found: dict[int, str]) -> dict[str, str] | None:
    """Give each part a slot that is still free."""
    if not parts:
        missing = any(not slot.optional and at not in found for at, slot in enumerate(slots))
        return None if missing else {slots[at].name: part for at, part in sorted(found.items())}
    part, *rest = parts
    kept = next((kind for kind in ORDERED if part in kind), frozenset[str]())
    first = max((at + 1 for at, other in found.items() if other in kept), default=0)
    for at in range(first, len(slots)):
        if at not in found and part in slots[at].choices:
            mods = _assign(slots, tuple(rest), {**found, at: part})
            if mods is not None:
                return mods
    return None


_OPCODE = re.compile(r"\{\.([\w:]+)\}|\.([\w:]+)")


def form(chapter: str, facts: Facts, section: str, text: str, /, **choices: str) -> Form:
    """Read one row; see the module's docstring for the notation."""
    head, _, tail = text.strip().partition(" ")
    name = re.split(r"[.{]", head, maxsplit=1)[0]
    slots = []
    for optional, required in _OPCODE.findall(head[len(name) :]):
        slot = optional or required
        values = frozenset(choices[slot].split()) if slot in choices else frozenset([slot])
        slots.append(Slot("type" if slot in TYPES and slot not in choices else slot, values, bool(optional)))
    fixed, _, absent = tail.partition(";")
    operands = [_operand(item) for item in fixed.split(",") if item.strip()]
    required_count = len(operands)
    operands += [_operand(item) for item in absent.split(",") if item.strip()]
    return Form(text.strip(), name, tuple(slots), tuple(operands), required_count, section, chapter, facts)


def computing(chapter: str, facts: Facts) -> Callable[..., Form]:
    """Return a function that reads rows of a chapter; its first argument is what the row computes."""

    def row(computes: Computation, section: str, text: str, /, **choices: str) -> Form:
        return form(chapter, replace(facts, computes=computes), section, text, **choices)

    return row


_OPERAND = re.compile(r"^(\*?)(\[?)(@?)([\w|]+)\]?(?::([\w]+))?$")


def _operand(text: str) -> OperandSpec:
    found = _OPERAND.match(text.strip())
    if found is None:
        raise ValueError(f"bad operand {text!r} in an ISA row")
    star, bracket, at, names, rule = found.groups()
    name, bar, _ = names.partition("|")
    kind = "vector" if star else "address" if bracket else "label" if at else "pair" if bar else "value"
    written = not bracket and not at and name[0] in "dp"
    return OperandSpec(name, written, rule or "type", kind)
