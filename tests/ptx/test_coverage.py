"""Every row of the instruction table is tested, and has a meaning on both engines."""

from importlib import import_module

import pytest

from tests.ptx.harness import ENGINES
from weft.ptx import isa
from weft.ptx.isa import ROWS, Form

CHAPTERS = sorted({row.chapter for row in ROWS})


def _rows(chapter: str) -> list[Form]:
    return [row for row in ROWS if row.chapter == chapter]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_row_is_run_by_the_tests_of_its_chapter(chapter: str) -> None:
    """`tests/ptx/test_<chapter>.py` lists the opcodes it runs in OPCODES, or the rows it goes through in ROWS."""
    module = import_module(f"tests.ptx.test_{chapter}")
    tested = {row.text for row in getattr(module, "ROWS", ())}
    for opcode in getattr(module, "OPCODES", ()):
        found = isa.lookup(opcode)
        assert found is not None, f"{opcode} is tested, but no row has it"
        tested.add(found[0].text)
    missing = [row.text for row in _rows(chapter) if row.text not in tested]
    assert not missing, f"rows without a test: {missing}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_row_has_a_meaning_in_the_interpreter(chapter: str) -> None:
    execute = import_module(f"weft.vm.reference.{chapter}").EXECUTE
    assert not {row.name for row in _rows(chapter)} - set(execute)


@pytest.mark.skipif("jit" not in ENGINES, reason="the compiled engine is not part of this tree")
@pytest.mark.parametrize("chapter", [name for name in CHAPTERS if name != "control"])
def test_every_row_has_a_meaning_in_the_compiler(chapter: str) -> None:
    """Branches end blocks and are written by the kernel emitter itself, so the chapter on control flow is not here."""
    emit = import_module(f"weft.vm.emit.{chapter}").EMIT
    assert not {row.name for row in _rows(chapter)} - set(emit)


@pytest.mark.parametrize("opcode", ["add.s33", "add.rn.s32", "ld.global.v3.f32", "shfl.sync.left.b32", "bar.sync.all",
                                    "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32", "frobnicate.b32"])  # fmt: skip
def test_unknown_forms_have_no_row(opcode: str) -> None:
    assert isa.lookup(opcode) is None
