# mypy: ignore-errors
# Triton functions have no annotations that mypy supports.
from pathlib import Path

import pytest

from weft.core.errors import CompileError, UsageError
from weft.toolchain import compile_triton

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def matmul(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(y + at)))


@triton.jit
def wrong(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, absent)  # noqa: F821  (the error under test)


ADD = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}


def test_vector_add(own_cache: Path) -> None:
    binary = compile_triton(add, signature=ADD, constexprs={"BLOCK": 1024}, num_warps=8)
    assert ".target sm_89" in binary.ptx and ".entry add(" in binary.ptx
    assert binary.entries == {"add": "add"}
    assert binary.cubin.startswith(b"\x7fELF")
    assert binary.num_warps == 8 and binary.dynamic_shared_bytes == 0
    assert binary.resources["add"].registers > 0
    assert ".v4.b32" not in binary.ptx
    assert compile_triton(add, signature=ADD, constexprs={"BLOCK": 1024}, num_warps=8) == binary
    assert len([path for path in (own_cache / "triton").rglob("*") if path.is_file()]) == 1


def test_divisibility_gives_vector_loads() -> None:
    hints = {"x": 16, "y": 16, "out": 16, "n": 16}
    assert ".v4.b32" in compile_triton(add, signature=ADD, constexprs={"BLOCK": 1024}, attrs=hints).ptx


def test_shared_memory_is_known() -> None:
    types = {"x": "*fp16", "y": "*fp16", "out": "*fp32"}
    binary = compile_triton(matmul, signature=types, constexprs={"BLOCK": 64}, arch="sm_80")
    assert binary.dynamic_shared_bytes >= 2 * 64 * 64 * 2  # both operands pass through shared memory
    assert "mma.sync.aligned.m16n8k16" in binary.ptx and ".extern .shared" in binary.ptx


def test_an_error_names_file_and_line() -> None:
    with pytest.raises(CompileError, match="absent") as caught:
        compile_triton(wrong, signature={"x": "*fp32"}, constexprs={"BLOCK": 64})
    lines = Path(__file__).read_text().splitlines()
    expected = next(i for i, line in enumerate(lines, 1) if "tl.store(x + at, absent)" in line)
    place = caught.value.diagnostics[0].place
    assert place is not None and (Path(place.file).name, place.line) == (Path(__file__).name, expected)


def test_misuse() -> None:
    with pytest.raises(UsageError, match="give a type"):
        compile_triton(add, signature={"x": "*fp32"}, constexprs={"BLOCK": 64})
    with pytest.raises(UsageError, match="no parameter z"):
        compile_triton(add, signature={**ADD, "z": "i32"}, constexprs={"BLOCK": 64})
    with pytest.raises(UsageError, match="not a @triton"):
        compile_triton(len, signature={})
