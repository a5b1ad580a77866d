"""Labels never get lost: for every opcode on registers, the result bits that a source byte changes are labelled if the
byte is. Sources are changed one byte at a time and the reference interpreter shows what changes."""

from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest

from tests.ptx.harness import HEADER, bits_type, random_values
from tests.ptx.opcodes import each_choice, rows_of
from weft.core.errors import WeftError
from weft.probes.taint_bits import ALL_BITS, bits_of, keep_bits
from weft.probes.taint_labels import Taint
from weft.ptx import isa
from weft.ptx.module import WIDTH, Instruction, Reg
from weft.ptx.parse import parse
from weft.shadow.marks import Shadow
from weft.shadow.rules import rule_for
from weft.vm.reference.interpreter import EXECUTE
from weft.vm.reference.warp import Warp

CHAPTERS = ("integer", "bits", "floating", "half", "compare", "convert")
LABEL = ALL_BITS | np.uint64(1)
Bytes = npt.NDArray[np.uint8]


class OneWarp(Warp):
    """A warp that runs single instructions."""

    code = SimpleNamespace(function=SimpleNamespace(name="k"))


def instruction(opcode: str) -> tuple[Instruction, dict[str, str]]:
    """Return the opcode on registers named like its operands, and their types."""
    row, mods = isa.lookup(opcode) or (None, None)
    assert row is not None and mods is not None
    types = {spec.name: bits_type(row.operand_type(spec.name, mods)) for spec in row.operands}
    text = []
    for spec in row.operands:
        if spec.name == "lut":
            text.append("0x96")
        elif spec.kind == "pair":
            text.append(f"%{spec.name}|%second")
            types["second"] = "pred"
        else:
            text.append(f"%{spec.name}")
    registers = "\n".join(f".reg .{kind} %{name};" for name, kind in types.items())
    body = f".visible .entry k()\n{{\n{registers}\n{opcode} {', '.join(text)};\nret;\n}}\n"
    function = parse(HEADER + body).functions["k"]
    function.check_supported()
    found = function.body[0]
    assert isinstance(found, Instruction)
    return found, {f"%{name}": kind for name, kind in types.items()}


def raw(warp: Warp, name: str) -> Bytes:
    return np.ascontiguousarray(warp.file[name]).view(np.uint8).reshape(32, -1)


def results(ins: Instruction, types: dict[str, str], values: dict[str, Bytes]) -> dict[str, Bytes]:
    warp = OneWarp({**types, "%cc": "pred"})
    for name, value in values.items():
        raw(warp, name)[:] = value
    EXECUTE[ins.form.chapter][ins.form.name](warp, ins)
    return {reg.name: raw(warp, reg.name).copy() for reg in ins.written()}


def labelled(
    ins: Instruction, types: dict[str, str], values: dict[str, Bytes], source: str, bits: Bytes
) -> dict[str, Bytes]:
    """Return which bits of the results have a label if these bits of one source have."""
    warp = OneWarp({**types, "%cc": "pred"})
    for name, value in values.items():
        raw(warp, name)[:] = value
    shadow = Shadow(Taint(np.zeros(0, bool), frozenset({1})))
    labels = keep_bits(np.full(bits.shape, LABEL), bits)
    shadow.write(warp, Reg(source), labels)  # type: ignore[arg-type]
    rule_for(ins, shadow.algebra)(shadow, warp, ins)  # type: ignore[arg-type]
    return {
        reg.name: bits_of(shadow.read(warp, reg, max(WIDTH[types.get(reg.name, "pred")] // 8, 1)))  # type: ignore[arg-type]
        for reg in ins.written()
    }


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_no_label_gets_lost(chapter: str) -> None:
    rng = np.random.default_rng(7)
    tried = 0
    for opcode in dict.fromkeys(opcode for row in rows_of(chapter) for opcode in each_choice(row)):
        if isa.lookup(opcode) is None:
            continue
        try:
            ins, types = instruction(opcode)
        except WeftError:  # a product of modifiers that PTX does not have
            continue
        sources = [reg.name for reg in ins.read()]
        kinds = {f"%{spec.name}": ins.operand_type(spec.name) for spec in ins.form.operands}
        values = {}
        for name in dict.fromkeys(sources):
            kind = kinds.get(name, "pred")
            bits = random_values(kind, 32, rng)
            size = max(WIDTH[types.get(name, "pred")] // 8, 1)
            values[name] = np.zeros((32, size), np.uint8)
            own = np.ascontiguousarray(bits).view(np.uint8).reshape(32, -1)[:, :size]
            values[name][:, : own.shape[1]] = own
        try:
            before = results(ins, types, values)
        except WeftError:
            continue
        for source, value in values.items():
            for at in sorted({0, int(rng.integers(value.shape[1])), value.shape[1] - 1}):
                changed = value.copy()
                noise = rng.integers(1, 256, 32) if types.get(source) != "pred" and source != "%cc" else np.ones(32)
                changed[:, at] ^= noise.astype(np.uint8)
                after = results(ins, types, {**values, source: changed})
                labels = labelled(ins, types, values, source, changed ^ value)
                for name, old in before.items():
                    lost = (after[name] ^ old) & ~labels[name]
                    assert not lost.any(), (opcode, source, at, name, np.argwhere(lost)[:3])
                tried += 1
    assert tried > 100


def test_a_bit_field_that_is_set_by_and_and_or_is_known() -> None:
    """x = (x & ~0x7f) | 5 leaves only bit 7 of an uninitialised byte unknown; x & 0x7f is then known."""
    types = {"%d": "b32", "%a": "b32", "%b": "b32"}
    unknown = np.zeros((32, 4), np.uint8)
    unknown[:, 0] = 0xFF

    def after(opcode: str, bits: Bytes, mask: int) -> Bytes:
        values = {"%a": np.zeros((32, 4), np.uint8), "%b": np.full(32, mask, np.uint32).view(np.uint8).reshape(32, 4)}
        return labelled(instruction(opcode)[0], types, values, "%a", bits)["%d"]

    cleared = after("and.b32", unknown, 0xFFFFFF80)
    stored = after("or.b32", cleared, 5)
    assert (stored[:, 0] == 0x80).all() and not stored[:, 1:].any()
    assert not after("and.b32", stored, 0x7F).any()
    assert (after("and.b32", stored, 0xFF)[:, 0] == 0x80).all()
    assert (after("or.b32", unknown, 0x0F)[:, 0] == 0xF0).all()
    assert (after("shr.u32", stored, 7)[:, 0] == 1).all()
