"""Operands of the wrong type are refused with the line; all others compile (PTX ISA 6.1, 9.4)."""

from collections.abc import Sequence

import llvmlite.binding as llvm
import pytest

from tests.ptx.harness import HEADER, header_for
from weft.core.errors import ParseError, Unsupported
from weft.ptx.isa import ROWS, Form, lookup
from weft.ptx.isa.form import TYPES
from weft.ptx.module import WIDTH
from weft.ptx.parse import parse
from weft.vm.emit.divergent import Divergent
from weft.vm.emit.in_step import InStep
from weft.vm.program import ProgramSource

REGISTERS = {
    "%p": "pred", "%h": "b16", "%uh": "u16", "%fh": "f16", "%r": "b32", "%u": "u32", "%s": "s32", "%f": "f32",
    "%d": "b64", "%ud": "u64", "%fd": "f64",
}  # fmt: skip
"""Prefix → type; there are ten of each."""
LINE = 1 + HEADER.count("\n") + 2


def kernel(line: str) -> str:
    declared = " ".join(f".reg .{kind} {prefix}<10>;" for prefix, kind in REGISTERS.items())
    return f"{header_for(line)}.visible .entry k()\n{{ {declared} .shared .align 16 .b8 tile[4096];\n{line}\nret; }}\n"


def compiles(text: str) -> None:
    """Check that both versions of the kernel's code are IR that LLVM accepts."""
    source = ProgramSource(parse(text), "k", mode="hardware", arch=None, cubin=())
    for copy in (InStep, Divergent):
        llvm.parse_assembly(copy(source.kernel, "copy", []).emit_module()).verify()


FITS = (
    "and.b32 %r1, %r2, 1;", "and.b32 %f1, %u2, %s3;", "and.pred %p1, %p2, !%p3;", "add.s32 %u1, %r2, %s3;",
    "add.f32 %f1, %r2, 0f3F800000;", "add.f32 %r1, %r2, %r3;", "add.f16 %h1, %fh2, %h3;", "add.f16x2 %r1, %r2, %u3;",
    "fma.rn.bf16x2 %r1, %r2, %r3, %r4;", "mul.wide.u32 %d1, %r2, 4;", "mul.wide.s16 %r1, %h2, %h3;",
    "shl.b64 %d1, %d2, %r3;", "setp.lt.and.s32 %p1|%p2, %r1, 3, !%p3;", "selp.f32 %f1, %r1, %f2, %p1;",
    "mov.b64 {%r1, %f2}, %d1;", "mov.b32 %f1, {%h1, %uh2};", "mov.b64 %d1, {%h1, %h2, %h3, %h4};",
    "mov.u32 %r1, %tid.x;",
    "mov.u64 %d1, %clock64;", "mov.u32 %r1, tile;", "mov.b32 %r1, 0f3F800000;", "mov.pred %p1, 1;",
    "mov.u16 %h1, %tid.x;",
    "ld.shared.u8 %h1, [%r1];", "ld.shared.u8 %d1, [tile+3];", "ld.shared.s16 %r1, [%r2];", "ld.shared.f32 %f1, [%r1];",
    "ld.shared.b32 %fd1, [%r1];", "ld.shared.v4.b32 {%r1, %f2, %u3, _}, [%r4];", "ld.global.b32 {%r1}, [%d1];",
    "st.shared.u8 [%r1], %r2;", "st.shared.b16 [%r1], %f1;", "st.shared.f32 [%d1], %d2;", "st.shared.b32 [%u1], 7;",
    "cvt.u8.u32 %h1, %r1;", "cvt.u8.u32 %d1, %d2;", "cvt.rn.f32.s8 %f1, %r1;", "cvt.f32.f16 %f1, %r1;",
    "cvt.rn.f16x2.f32 %r1, %f1, %f2;", "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;", "popc.b64 %r1, %d1;",
    "shfl.sync.idx.b32 %f1|%p1, %f2, %r1, 31, -1;", "vote.sync.ballot.b32 %r1, !%p1, -1;", "brev.b64 %d1, %fd1;",
    "bar.red.popc.u32 %r1, 0, 32, %p1;", "bar.red.popc.u32 %r1, 0, %p1;", "match.all.sync.b64 %r1|%p1, %d1, -1;",
    "atom.shared.add.f32 %f1, [%r1], %f2;", "atom.shared.cas.b64 %d1, [%r1], %d2, %fd3;", "@!%p1 add.u32 %r1, %r1, 1;",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %r4}, {%r1, %r2, %r3, %r4}, {%f1, %r2},"
    " {%f1, %f2, %f3, %f4};", "cp.async.ca.shared.global [%r1], [%d1], 4, %r2;",
)  # fmt: skip
WRONG = (
    "and.b32 %r1, %p1, 1;", "and.b32 %p1, %r1, %r2;", "and.pred %p1, %p2, %r1;", "and.pred %r1, %p2, %p3;",
    "add.s32 %r1, %r2, !%p1;", "add.s32 %r1, %r2, %h1;", "add.s32 %r1, %d2, 1;", "add.s32 %d1, %r1, %r2;",
    "add.s32 %f1, %r1, %r2;", "add.f32 %f1, %s1, %f2;", "add.f32 %f1, %fd1, %f2;", "add.f16 %r1, %h1, %h2;",
    "add.f16 %h1, %uh1, %h2;", "add.f16x2 %h1, %r1, %r2;", "mul.wide.u32 %r1, %r2, 4;", "mul.wide.s16 %d1, %h2, %h3;",
    "shl.b64 %d1, %d2, %d3;", "shl.b32 %r1, %r2, %h3;", "setp.lt.s32 %r1, %r2, 3;", "setp.lt.s32 %p1|%r2, %r2, 3;",
    "setp.lt.and.s32 %p1, %r1, 3, %r2;", "selp.b32 %r1, %r2, %r3, %r4;", "mov.b64 {%r1, %h2}, %d1;",
    "mov.b64 {%p1, %r2}, %d1;", "mov.b32 %r1, {%h1, %h2, %h3};", "mov.u32 %r1, %p1;", "mov.pred %p1, %r1;",
    "mov.u32 %r1, %clock64;", "mov.u64 %d1, %tid.x;", "mov.f32 %f1, tile;", "mov.u32 %r1, 0f3F800000;",
    "mov.u64 %d1, %r1;", "ld.shared.u8 %p1, [%r1];", "ld.shared.u32 %h1, [%r1];", "ld.shared.u32 %f1, [%r1];",
    "ld.shared.f32 %fd1, [%r1];", "ld.shared.f32 %u1, [%r1];", "ld.shared.b32 %r1, [%h1];", "ld.shared.b32 %r1, [%f1];",
    "ld.shared.b32 %r1, [%p1];", "ld.shared.b32 %r1, %r2;", "add.u32 %r1, %r2, [%r3];",
    "ld.shared.v4.b32 %r1, [%r4];", "st.shared.v2.b32 [%r1], %r2;", "ld.shared.v4.b32 {%r1, %r2}, [%r4];",
    "ld.shared.b32 {%r1, %r2}, [%r4];", "ld.shared.v2.b32 {%r1, %h2}, [%r4];",
    "st.shared.u32 [%r1], %p1;", "st.shared.b64 [%r1], %r2;", "st.shared.v2.b32 [%r1], {%r2, %p1};",
    "cvt.u32.u64 %r1, %r2;", "cvt.u32.u8 %h1, %h2;", "cvt.rn.f32.s32 %f1, %p1;", "cvt.rni.s32.f32 %f1, %f2;",
    "popc.b64 %d1, %d2;", "shfl.sync.idx.b32 %r1|%r3, %r2, 0, 31, -1;", "shfl.sync.idx.b32 %d1, %d2, 0, 31, -1;",
    "vote.sync.ballot.b32 %r1, %r2, -1;", "bar.red.popc.u32 %r1, 0, %r2, %r3;", "bar.sync %p1;", "bar.sync %d1;",
    "bar.warp.sync %d1;", "match.all.sync.b64 %r1|%p1, %r2, -1;", "atom.shared.add.f32 %f1, [%r1], %s2;",
    "atom.shared.cas.b64 %d1, [%r1], %d2, %r3;", "@%r1 add.u32 %r1, %r1, 1;", "@!%d1 bra DONE;\nDONE:",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %p4}, {%r1, %r2, %r3, %r4}, {%r1, %r2},"
    " {%f1, %f2, %f3, %f4};", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%h1}, [%r1];",
    "cp.async.ca.shared.global [%r1], [%d1], 4, %d2;", "mbarrier.arrive.shared.b64 %r1, [%r2];",
)  # fmt: skip


def test_what_the_manual_allows() -> None:
    for line in FITS:
        compiles(kernel(line))


@pytest.mark.parametrize("line", WRONG)
def test_what_it_forbids(line: str) -> None:
    with pytest.raises(ParseError) as refused:
        parse(kernel(line))
    assert refused.value.line == LINE


def _opcodes(row: Form) -> set[str]:
    """Return the row with the first choice of every required slot, for each of its types."""
    types = [slot for slot in row.slots if slot.name in ("type", "dtype", "atype") and not slot.optional]
    found = set()
    for number in range(max((len(slot.choices) for slot in types), default=1)):
        parts = [
            sorted(slot.choices)[number % len(slot.choices) if slot in types else 0]
            for slot in row.slots
            if not slot.optional
        ]
        found.add(".".join([row.name, *parts]))
    return found


def _register(kind: str) -> str:
    """Return a register that fits a type: the bit type of its size, at least 16 bits."""
    wanted = "pred" if kind == "pred" else f"b{max(16, WIDTH[kind])}"
    return next(prefix for prefix, declared in REGISTERS.items() if declared == wanted) + "1"


def _spelled(opcode: str, row: Form, operands: Sequence[str]) -> list[str]:
    """Return the operands as PTX has them: coordinates are inside the brackets of the tensor map before them."""
    spelled: list[str] = []
    for spec, operand in zip(row.operands, operands, strict=False):
        if spec.name == "coordinates":
            count = 5 if "gather4" in opcode else 1  # of one dimension, which is the first choice of the row
            spelled[-1] = f"{spelled[-1][:-1]}, {{{', '.join([operand] * count)}}}]"
        else:
            spelled.append(operand)
    return spelled


@pytest.mark.parametrize("chapter", sorted({row.chapter for row in ROWS} - {"matrix", "wgmma"}))
def test_every_operand_of_every_row(chapter: str) -> None:
    """In each place a register of each type: refused at its line, or compiled; predicates only where required."""
    checked = 0
    for opcode in sorted({opcode for row in ROWS if row.chapter == chapter for opcode in _opcodes(row)}):
        found = lookup(opcode)
        if found is None or found[0].name in ("call", "bra", "brx"):
            continue
        row, mods = found
        kinds = [row.operand_type(spec.name, mods) for spec in row.operands[: row.required]]
        right = [
            "[%d1]" if spec.kind == "address" else _register(kind) if kind in TYPES else "0"
            for spec, kind in zip(row.operands, kinds, strict=False)
        ]
        for at, kind in enumerate(kinds):
            if not right[at].startswith("%"):
                continue
            for prefix, declared in REGISTERS.items():
                operands = [*right[:at], f"{prefix}1", *right[at + 1 :]]
                text = kernel(f"{opcode} {', '.join(_spelled(opcode, row, operands))};")
                checked += 1
                try:
                    compiles(text)
                except (ParseError, Unsupported) as refused:
                    assert f"line {LINE}" in str(refused), (opcode, declared)
                    assert f"{prefix}1" != right[at] or isinstance(refused, Unsupported), (opcode, str(refused))
                else:
                    assert (declared == "pred") == (kind == "pred"), (opcode, at, declared)
    assert checked > 10
