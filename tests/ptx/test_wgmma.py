"""Products of a warpgroup on both engines: every layout of a descriptor, every type, registers, signs, results.

The elements are small integers, so that every sum is exact and NumPy's product is the expected result. The layouts are
written as the manual does (9.7.15.5.1.2): strides in units of 16 bytes, then a swizzle of the byte address.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.ptx.harness import check_body
from weft.ptx.isa import ROWS as ALL_ROWS

Array = npt.NDArray[Any]
ROWS = [row for row in ALL_ROWS if row.chapter == "wgmma"]
AREA = 8192
"""Bytes of an operand in shared memory; A is first."""
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
MODES = {128: 1, 64: 2, 32: 3, 0: 0}


@dataclass(frozen=True)
class Layout:
    """A descriptor: swizzle width, whether K is contiguous, distances in bytes, bytes before the first element."""

    width: int
    by_k: bool
    leading: int
    stride: int
    start: int = 0

    def address(self, row: Array, k: Array, size: int) -> Array:
        """Return the byte of an element in its area, which begins at a multiple of 1024."""
        per_piece = 16 // size
        unit = max(self.width // 16, 1)  # pieces of 16 bytes in a row of the swizzle
        leading, stride = self.leading // 16, self.stride // 16
        if self.by_k:
            piece, within = np.divmod(k, per_piece)
            across = piece if self.width else piece * leading
            pieces = row % 8 * unit + row // 8 * stride + across
        else:
            piece, within = np.divmod(row, per_piece)
            block = piece // unit * leading if self.width else piece * stride
            pieces = k % 8 * unit + k // 8 * (stride if self.width else leading) + piece % unit + block
        byte = self.start + 16 * pieces + within * size
        bits = {128: 3, 64: 2, 32: 1, 0: 0}[self.width]
        return byte ^ ((byte >> 7 & (1 << bits) - 1) << 4)

    @property
    def constant(self) -> int:
        """Return the descriptor without its address."""
        return MODES[self.width] << 62 | (self.stride >> 4) << 32 | (self.leading >> 4) << 16


K_MAJOR = [Layout(128, True, 0, 1024), Layout(64, True, 0, 512), Layout(32, True, 0, 256), Layout(0, True, 128, 256)]
MN_MAJOR = [
    Layout(128, False, 4096, 1024), Layout(64, False, 1024, 512), Layout(32, False, 512, 256),
    Layout(0, False, 128, 256),
]  # fmt: skip


@dataclass(frozen=True)
class Product:
    """One instruction of the kernel."""

    type: str
    n: int
    b: Layout
    a: Layout | None = None
    """None: A is in registers."""
    result: str = "f32"
    signs: tuple[int, int] = (1, 1)
    keep: bool = True
    b_type: str = ""

    @property
    def depth(self) -> int:
        return 256 // (8 * np.dtype(DTYPES[self.type]).itemsize)

    @property
    def registers(self) -> int:
        return self.n // 4 if self.result == "f16" else self.n // 2


def _data(rng: np.random.Generator, name: str) -> tuple[Array, Array]:
    """Return the bytes of an area, and the numbers they mean."""
    dtype = np.dtype(DTYPES[name])
    values = rng.integers(0 if name == "u8" else -3, 4, AREA // dtype.itemsize).astype(dtype)
    return values.view(np.uint8), values


def _text(product: Product, number: int) -> list[str]:
    d = ", ".join(f"%d{number}_{i}" for i in range(product.registers))
    a_operand = "{%a0, %a1, %a2, %a3}" if product.a is None else "%da"
    tails: list[int] = []
    if product.result != "s32":
        tails += product.signs
    if product.type in ("f16", "bf16"):
        tails += [0 if layout.by_k else 1 for layout in (product.a, product.b) if layout is not None]
    types = f"{product.result}.{product.type}.{product.b_type or product.type}"
    lines = [f"add.u64 %db, %at, {(AREA + product.b.start) >> 4}; or.b64 %db, %db, {product.b.constant:#x};"]
    if product.a is not None:
        lines.append(f"add.u64 %da, %at, {product.a.start >> 4}; or.b64 %da, %da, {product.a.constant:#x};")
    lines += [f"mov.b32 %d{number}_{i}, {_one(product.result)};" for i in range(product.registers)]
    opcode = f"wgmma.mma_async.sync.aligned.m64n{product.n}k{product.depth}.{types}"
    operands = [f"{{{d}}}", a_operand, "%db", "%yes" if product.keep else "0", *map(str, tails)]
    return [*lines, "wgmma.fence.sync.aligned;", f"{opcode} {', '.join(operands)};"]


def _one(result: str) -> str:
    """Return 1 (two of them, if f16) as D begins."""
    return {"f32": "0x3f800000", "f16": "0x3c003c00", "s32": "1"}[result]


def _read(values: Array, layout: Layout, rows: int, depth: int) -> Array:
    r, k = np.meshgrid(np.arange(rows), np.arange(depth), indexing="ij")
    return values[layout.address(r, k, values.itemsize) // values.itemsize].astype(np.float64)


def _run(products: list[Product], rng: np.random.Generator) -> None:
    name = products[0].type
    other = products[0].b_type or name
    (a_bytes, a_values), (b_bytes, b_values) = _data(rng, name), _data(rng, other)
    both = np.concatenate([a_bytes, b_bytes])
    scope = f".shared .align 1024 .b8 area[{2 * AREA}];\n"
    scope += f".global .align 16 .b8 data[{2 * AREA}] = {{{', '.join(map(str, both))}}};"
    body = ["mov.u32 %t0, %tid.x; shl.b32 %t0, %t0, 4; mov.u32 %t1, area; add.u32 %t1, %t1, %t0;"]
    body += ["mov.u64 %from, data; cvt.u64.u32 %step, %t0; add.u64 %from, %from, %step;"]
    for at in range(0, 2 * AREA, 2048):
        body.append(f"ld.global.v4.b32 {{%t2, %t3, %t4, %t5}}, [%from+{at}];")
        body.append(f"st.shared.v4.b32 [%t1+{at}], {{%t2, %t3, %t4, %t5}};")
    body += ["fence.proxy.async.shared::cta; bar.sync 0; mov.u32 %t6, area; shr.u32 %t6, %t6, 4;"]
    body += ["cvt.u64.u32 %at, %t6; and.b64 %at, %at, 0x3fff; setp.eq.u32 %yes, %t6, %t6;"]
    for number, product in enumerate(products):
        body += _text(product, number)
    body += ["wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"]
    words = rng.integers(-3, 4, (128, 16 // np.dtype(DTYPES[name]).itemsize)).astype(DTYPES[name])
    registers = words.view(np.uint32).reshape(128, 4)
    declared = ".reg .b64 %at, %da, %db, %from, %step; .reg .pred %yes;"
    outputs = {f"d{number}_{i}": "b32" for number, p in enumerate(products) for i in range(p.registers)}
    inputs = {f"a{i}": ("b32", np.ascontiguousarray(registers[:, i])) for i in range(4)}
    ran = check_body("\n".join(body), inputs, outputs, declarations=declared, module_scope=scope)
    assert not ran.findings
    for number, product in enumerate(products):
        found = np.stack([ran.outputs[f"d{number}_{i}"] for i in range(product.registers)], axis=1)
        a = _from_registers(words, product.depth)
        if product.a is not None:
            a = _read(a_values, product.a, 64, product.depth)
        b = _read(b_values, product.b, product.n, product.depth)
        expected = product.signs[0] * product.signs[1] * a @ b.T + product.keep
        np.testing.assert_array_equal(_results(found, product), expected, str(product))


def _from_registers(words: Array, depth: int) -> Array:
    """Return A, 64 x K: register i of lane 4 g + t has the elements of row g + 8 (i mod 2), piece i / 2, place t."""
    per = words.shape[1] // 4
    tile = words.reshape(4, 8, 4, 2, 2, per)  # warp, g, t, piece, half of the rows, element
    return tile.transpose(0, 4, 1, 3, 2, 5).reshape(64, depth).astype(np.float64)


def _results(found: Array, product: Product) -> Array:
    """Return D, 64 x N: registers 4 j to 4 j + 3 of lane 4 g + t are columns 8 j + 2 t, + 1 of rows g and g + 8."""
    numbers = found.view({"f32": np.float32, "f16": np.float16, "s32": np.int32}[product.result])
    tile = numbers.reshape(4, 8, 4, product.n // 8, 2, 2)  # warp, g, t, block, half of the rows, column
    return tile.transpose(0, 4, 1, 3, 2, 5).reshape(64, product.n).astype(np.float64)


def test_every_layout_of_both_operands() -> None:
    pairs = [*zip(K_MAJOR, K_MAJOR, strict=True), *zip(MN_MAJOR, MN_MAJOR, strict=True)]
    products = [Product("f16", 16, b, a) for a, b in pairs]
    products.append(Product("f16", 16, MN_MAJOR[0], K_MAJOR[1]))
    # The second K step of an atom: 32 bytes further, the swizzle is that of the absolute address.
    products.append(Product("f16", 16, Layout(128, True, 0, 1024, start=32), Layout(64, True, 0, 512, start=32)))
    _run(products, np.random.default_rng(1))


def test_registers_signs_halves_and_more_than_eight_blocks() -> None:
    wide = Layout(0, True, 128, 256)
    products = [
        Product("f16", 72, wide),
        Product("f16", 16, MN_MAJOR[0], signs=(-1, 1)),
        Product("f16", 16, K_MAJOR[0], K_MAJOR[0], signs=(-1, -1), keep=False),
        Product("f16", 24, wide, result="f16"),
    ]
    _run(products, np.random.default_rng(2))


@pytest.mark.parametrize("name", ["bf16", "tf32", "e4m3", "e5m2", "s8", "u8"])
def test_every_type(name: str) -> None:
    result = "s32" if name in ("s8", "u8") else "f32"
    other = {"e4m3": "e5m2", "s8": "u8"}.get(name, "")
    products = [Product(name, 16, layout, layout, result, b_type=other) for layout in (K_MAJOR[0], K_MAJOR[3])]
    products.append(Product(name, 8, K_MAJOR[2], None, result, b_type=other))
    _run(products, np.random.default_rng(3))


@pytest.mark.parametrize(
    ("descriptor", "code"),
    [("0x3fff", "M101"), (hex(1 << 49 | 64), "M101")],
    ids=["outside every array", "base offset"],
)
def test_a_bad_descriptor_is_reported(descriptor: str, code: str) -> None:
    body = f"mov.b64 %at, {descriptor}; wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
    body += "{%d0, %d1, %d2, %d3}, %at, %at, 0, 1, 1, 0, 0;\n"
    body += "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    outputs = {f"d{i}": "b32" for i in range(4)}
    ran = check_body(
        body, {}, outputs, declarations=".reg .b64 %at;", module_scope=".shared .align 1024 .b8 area[2048];", n=128
    )
    assert {finding.code for finding in ran.findings} == {code}
