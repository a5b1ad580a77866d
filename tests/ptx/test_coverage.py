"""Every row of the instruction table is tested, and has a meaning on both engines."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.ptx.harness import ENGINES, HEADER
from tests.ptx.instruction_list import CHAPTERS as TITLES
from tests.ptx.instruction_list import missing, page
from weft.ptx import isa
from weft.ptx.isa import ROWS, Form
from weft.ptx.parse import parse

CHAPTERS = sorted({row.chapter for row in ROWS})


def _rows(chapter: str) -> list[Form]:
    return [row for row in ROWS if row.chapter == chapter]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_row_is_run_by_the_tests_of_its_chapter(chapter: str) -> None:
    """`tests/ptx/test_<chapter>.py` lists the opcodes it runs in OPCODES, or the rows it iterates over in ROWS."""
    module = import_module(f"tests.ptx.test_{chapter}")
    tested = set(getattr(module, "ROWS", ()))
    for opcode in getattr(module, "OPCODES", ()):
        found = isa.lookup(opcode)
        assert found is not None, f"{opcode} is tested, but no row has it"
        tested.add(found[0])
    missing = [row.text for row in _rows(chapter) if row not in tested]
    assert not missing, f"rows without a test: {missing}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_row_has_a_meaning_in_the_interpreter(chapter: str) -> None:
    execute = import_module(f"weft.vm.reference.{chapter}").EXECUTE
    assert not {row.name for row in _rows(chapter)} - set(execute)


@pytest.mark.skipif("jit" not in ENGINES, reason="the compiled engine is not part of this tree")
@pytest.mark.parametrize("chapter", [name for name in CHAPTERS if name != "control"])
def test_every_row_has_a_meaning_in_the_compiler(chapter: str) -> None:
    """Branches end blocks and are written by the kernel emitter, so the chapter on control flow is not here."""
    emit = import_module(f"weft.vm.emit.{chapter}").EMIT
    assert not {row.name for row in _rows(chapter)} - set(emit)


@pytest.mark.parametrize(
    "opcode",
    [
        "add.s33",
        "add.rn.s32",
        "ld.global.v3.f32",
        "shfl.sync.left.b32",
        "bar.sync.all",
        "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32",
        "frobnicate.b32",
    ],
)
def test_unknown_forms_have_no_row(opcode: str) -> None:
    assert isa.lookup(opcode) is None


def test_every_opcode_of_the_list_has_a_row() -> None:
    assert not missing()


def test_the_page_is_what_the_tables_say() -> None:
    assert set(TITLES) == {row.chapter for row in ROWS}
    assert (Path(__file__).parents[2] / "docs" / "ptx_coverage.md").read_text() == page(), "run scripts/ptx_coverage"


@pytest.mark.parametrize(
    ("statement", "needs"),
    [
        ("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16 {%a}, %b, %b, %a, 0, 1, 1, 1, 0, 0;", "sm_90a"),
        ("tcgen05.fence::before_thread_sync;", "sm_100a"),
        ("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%a], [%b], [%a];", "TMA"),
        ("mbarrier.try_wait.parity.relaxed.cluster.shared.b64 %p, [%a], 0;", "sm_90"),
        ("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%a], [%a], 16, [%a];", "sm_90"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared::cluster.b16 {%a}, [%a];", "shared::cluster needs sm_90"),
        ("mov.u32 %a, %cluster_ctarank;", "clusters need sm_90"),
        ("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%a], {%a};", "sm_100a"),
    ],
)  # fmt: skip
def test_newer_instructions_are_refused_with_the_line_and_a_cure(statement: str, needs: str) -> None:
    text = f"{HEADER}.visible .entry k()\n{{ .reg .b32 %a; .reg .b64 %b; .reg .pred %p;\n{statement}\nret; }}"
    refused = parse(text).functions["k"].refused
    assert refused is not None
    assert needs in str(refused)
    assert 'arch="sm_89"' in str(refused)
    assert refused.line == 6
