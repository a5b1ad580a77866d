"""Every row of the instruction table carries the facts that passes, engines and checkers use, and they fit its text.

The expectations are read from the text of the row as the manual writes it: `[a]` is an address, `.sync` and a member
mask mean a warp, `async` means later. A fact that is forgotten fails here for every row that needs it.
"""

import ast
from pathlib import Path

import pytest

import weft
from tests.ptx.harness import HEADER
from weft.ptx import isa
from weft.ptx.isa import ROWS, Form
from weft.ptx.isa.form import form
from weft.ptx.module import WIDTH, Instruction
from weft.ptx.parse import parse

SOURCES = Path(weft.__file__).parent
BY_NAME = {
    "ptx/indices/numbers.py": "the integer functions that it evaluates, by name; others make a register unknown",
    "ptx/indices/steps.py": "the integer instructions that it follows, by name; others make a register unknown",
    "ptx/passes/find_recognition.py": "recognises idioms of arithmetic (1 << n & mask); others are no idiom",
    "ptx/passes/find_uniform.py": "recognises tid.x >> 5 and tid.x & ~31; others vary as their operands do",
    "coverage/size_values.py": "the integer functions that it evaluates, by name; others make a register unknown",
    "repair/sites.py": "finds constants, comparisons and calls that an edit can change, by name; others have no edit",
    "repair/templates.py": "writes other instructions in place of those that it knows by name; others stay as they are",
    "profile/ptx_accesses.py": "recognises an address plus a constant; others are a new root",
}
"""Files outside the engines that compare names of instructions, and why no fact of the row can replace that."""


def _words(row: Form) -> set[str]:
    return {row.name, *(choice for slot in row.slots for choice in slot.choices), *(s.name for s in row.slots)}


def _named(row: Form, kind: str) -> list[str]:
    return [spec.name for spec in row.operands if spec.kind == kind]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text)
def test_facts_fit_the_text_of_the_row(row: Form) -> None:
    facts, words = row.facts, _words(row)
    assert sorted(access.address for access in facts.accesses) == sorted(_named(row, "address"))
    for access in facts.accesses:
        if isinstance(access.width, str) and access.width not in ("type", "row", "tile"):
            assert access.width in row.index
        if access.width == "type":
            types = next((slot.choices for slot in row.slots if slot.name == "type"), frozenset[str]())
            assert types and all(WIDTH[each] >= 8 for each in types)
        if access.data:
            assert row.operands[row.index[access.data]].written == (access.verb == "load")
        if "nc" in words:
            assert access.read_only
    assert bool(facts.control in ("jump", "table")) == bool(_named(row, "label"))
    joint = row.chapter == "matrix" or "mma_async" in words or row.name == "setmaxnreg"
    assert (facts.group == "warp") == ("mask" in row.index or ("aligned" in words and joint))
    assert (facts.group == "cta") == (row.name in ("bar", "barrier") and not words & {"warp", "cluster"})
    assert (facts.group == "cluster") == (row.name == "barrier" and "cluster" in words)
    assert facts.maps == (row.name == "mapa")
    assert facts.fences_inits == ("mbarrier_init" in words)
    assert facts.registers == (row.name == "setmaxnreg")
    assert bool(facts.orders) == (row.name == "wgmma" and "mma_async" not in words)
    assert facts.waits == ((facts.group == "cta" and "arrive" not in words) or "warp" in words)
    later = "async" in words and "proxy" not in words and row.chapter != "cluster"
    assert bool(facts.starts or facts.settles) == later
    for name in (*facts.copies, *facts.converts):
        assert name in row.index and not row.operands[row.index[name]].written
    assert facts.reads_carry == (row.name in ("addc", "subc", "madc"))
    assert facts.compares == ("cmp" in words)
    assert facts.is_mbarrier == ("mbarrier" in words and "pending_count" not in words)
    assert facts.multiplies == (row.name if {"mma", "mma_async"} & words and "mma" in row.name else "")
    assert facts.updates == (("d",) if "mma_async" in words else ())
    assert facts.result == "operands" or row.returns or facts.group
    assert facts.target in ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_90a+", "sm_100", "sm_100a+", "sm_120a")


@pytest.mark.parametrize(
    ("opcode", "spaces"),
    [
        ("ld.u32", ["generic"]),
        ("ld.shared::cta.u32", ["shared"]),
        ("ld.param::entry.u32", ["param"]),
        ("ld.global.nc.u32", ["global"]),
        ("st.local.v2.f32", ["local"]),
        ("atom.add.u32", ["generic"]),
        ("red.shared.add.u32", ["shared"]),
        ("cp.async.cg.shared::cta.global", ["shared", "global"]),
        ("ldmatrix.sync.aligned.m8n8.x4.b16", ["shared"]),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", ["generic"]),
        ("mbarrier.init.b64", ["shared"]),
    ],
)
def test_state_spaces_of_accesses(opcode: str, spaces: list[str]) -> None:
    found = isa.lookup(opcode)
    assert found is not None
    row, mods = found
    assert [access.space(mods) for access in row.facts.accesses] == spaces


def test_bytes_of_accesses() -> None:
    text = f"""{HEADER}.visible .entry k() {{
    .reg .b32 %r<5>; .reg .b64 %a; .reg .f32 %f<3>; .reg .b16 %h;
    ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%a];
    st.shared.u8 [%a], %h;
    cp.async.cg.shared.global [%r1], [%a], 16;
    cp.async.ca.shared.global [%r1], [%a], 8, %r2;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r1}}, [%a];
    atom.global.add.f32 %f1, [%a], %f2;
    mbarrier.init.shared.b64 [%a], 1;
    ret; }}"""
    body = [item for item in parse(text).functions["k"].body if isinstance(item, Instruction)]
    bytes_ = [[ins.bytes_of(access) for access in ins.facts.accesses] for ins in body]
    assert bytes_ == [[16], [1], [16, 16], [8, 8], [16], [4], [8], []]


def test_a_row_cannot_be_written_without_facts() -> None:
    with pytest.raises(TypeError):
        form("memory", "9.7.9.8", "ld.type d, [a]")  # type: ignore[arg-type, call-arg]


@pytest.mark.parametrize(
    ("statement", "target", "needed"),
    [
        ("cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f1;", "sm_86", "sm_89"),
        ("fma.rn.bf16 %h1, %h1, %h1, %h1;", "sm_80", ""),
        ("add.bf16 %h1, %h1, %h1;", "sm_89", "sm_90"),
        ("max.xorsign.abs.f32 %f1, %f1, %f1;", "sm_80", "sm_86"),
        ("atom.global.add.noftz.f16 %h1, [%a], %h1;", "sm_80", ""),
        ("atom.global.add.noftz.bf16 %h1, [%a], %h1;", "sm_89", "sm_90"),
        ("ld.acquire.cluster.global.u32 %r1, [%a];", "sm_89", "sm_90"),
        ("ld.acquire.gpu.global.u32 %r1, [%a];", "sm_80", ""),
    ],
)
def test_a_form_of_a_later_target_is_refused(statement: str, target: str, needed: str) -> None:
    """As ptxas 13.0 does: the targets of all rows were compared with its messages."""
    declared = ".reg .b32 %r<3>; .reg .f32 %f<3>; .reg .b16 %h<3>; .reg .b64 %a;"
    text = f"{HEADER.replace('sm_89', target)}.visible .entry k() {{ {declared}\n{statement}\nret; }}"
    refused = parse(text).functions["k"].refused
    if not needed:
        assert refused is None
    else:
        assert f"needs {needed}, and the file is for {target}" in str(refused)


def _compares_names(path: Path) -> list[int]:
    """Return the lines of a file that use the name or the chapter of an instruction's row."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in ("name", "chapter") and _is_row(node.value):
            found.append(node.lineno)
        if isinstance(node, ast.Attribute) and node.attr == "startswith" and _is_opcode(node.value):
            found.append(node.lineno)
    return found


def _is_row(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "form"


def _is_opcode(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "opcode"


def test_no_pass_probe_or_diagnosis_compares_names_of_instructions() -> None:
    """The engines find an instruction's meaning by its name: that is their table. Everyone else uses facts."""
    engines = ("ptx/isa/", "vm/emit/", "vm/reference/")
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if not name.startswith(engines) and (lines := _compares_names(path)):
            found[name] = lines
    assert set(found) == set(BY_NAME), found
