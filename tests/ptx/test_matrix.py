"""mma, wmma, ldmatrix and movmatrix on every engine. Small integers make every sum exact."""

import re
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.in_turn import one_in
from tests.ptx.harness import ENGINES, HEADER, Array, Engine, check_body, random_values
from tests.ptx.test_small_matrices import OPCODES as SMALL_OPCODES
from weft.ptx.parse import parse
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GlobalMemory

N = 1024
DTYPE: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
    "f64": np.float64,
}
SIZES = {name: np.dtype(dtype).itemsize for name, dtype in DTYPE.items()}

MMA_KINDS = [
    *((16, 8, k, acc, "f16", "f16", acc) for k in (8, 16) for acc in ("f16", "f32")),
    *((16, 8, k, "f32", "bf16", "bf16", "f32") for k in (8, 16)),
    *((16, 8, k, "f32", "tf32", "tf32", "f32") for k in (4, 8)),
    *((16, 8, 32, acc, a, b, acc) for acc in ("f16", "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *((16, 8, k, "s32", a, b, "s32") for k in (16, 32) for a in ("s8", "u8") for b in ("s8", "u8")),
]
Kind = tuple[int, int, int, str, str, str, str]


def _mma(kind: Kind, saturate: str = "") -> str:
    m, n, k, d, a, b, c = kind
    return f"mma.sync.aligned.m{m}n{n}k{k}.row.col{saturate}.{d}.{a}.{b}.{c}"


WMMA_SHAPES = [(16, 16, 16), (32, 8, 16), (8, 32, 16)]
WMMA_KINDS = [
    *((*shape, acc, "f16", "f16", acc) for shape in WMMA_SHAPES for acc in ("f16", "f32")),
    *((*shape, "f32", "bf16", "bf16", "f32") for shape in WMMA_SHAPES),
    *((*shape, "s32", t, t, "s32") for shape in WMMA_SHAPES for t in ("s8", "u8")),
    (16, 16, 8, "f32", "tf32", "tf32", "f32"),
]
WMMA_OF_DOUBLES = (8, 8, 4, "f64", "f64", "f64", "f64")
ROUNDINGS = ["", ".rn", ".rz", ".rm", ".rp"]
LAYOUTS = [("row", "col"), ("row", "row"), ("col", "col"), ("col", "row")]
SPACES = ["global", "shared", ""]


def _wmma(kind: Kind, layouts: tuple[str, str], space: str, saturate: str = "", rounding: str = "") -> dict[str, str]:
    m, n, k, d, a, b, c = kind
    shape, dot = f"m{m}n{n}k{k}", f".{space}" if space else ""
    types = f"{d}.{c}" if a == "f16" else f"{d}.{a}.{b}.{c}"
    return {
        "a": f"wmma.load.a.sync.aligned.{layouts[0]}.{shape}{dot}.{a}",
        "b": f"wmma.load.b.sync.aligned.{layouts[1]}.{shape}{dot}.{b}",
        "c": f"wmma.load.c.sync.aligned.{layouts[0]}.{shape}{dot}.{c}",
        "mma": f"wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}{rounding}.{types}{saturate}",
        "d": f"wmma.store.d.sync.aligned.{layouts[1]}.{shape}{dot}.{d}",
    }


LDMATRIX = [
    f"ldmatrix.sync.aligned.m8n8.{num}{trans}.{space}.b16"
    for num in ("x1", "x2", "x4")
    for trans in ("", ".trans")
    for space in ("shared", "shared::cta")
]
LDMATRIX += ["ldmatrix.sync.aligned.trans.m8n8.x4.shared.b16"]  # as FlashInfer writes it
LDMATRIX += ["ldmatrix.sync.aligned.x2.m8n8.shared.b16", "ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16"]  # CUTLASS
DOUBLE = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
DOUBLES = [
    f"mma.sync.aligned.{shape}.row.col{rounding}.f64.f64.f64.f64"
    for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")
    for rounding in ROUNDINGS
]
OPCODES = [
    *(_mma(kind) for kind in MMA_KINDS),
    *(_mma(kind, ".satfinite") for kind in MMA_KINDS if kind[3] == "s32"),
    *(
        opcode
        for kind in (*WMMA_KINDS, WMMA_OF_DOUBLES)
        for layouts in LAYOUTS
        for space in SPACES
        for opcode in _wmma(kind, layouts, space).values()
    ),
    *LDMATRIX,
    *DOUBLES,
    *(_wmma(WMMA_OF_DOUBLES, ("row", "col"), "", "", rounding)["mma"] for rounding in ROUNDINGS),
    *SMALL_OPCODES,
    "movmatrix.sync.aligned.m8n8.trans.b16",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16",  # run by test_small_forms_of_sm_90.py
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(31)


def _registers(rows: int, columns: int, ptx_type: str) -> int:
    return rows * columns * SIZES[ptx_type] // (32 * max(SIZES[ptx_type], 4))


def _listed(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


def _run_mma(kind: Kind, inputs: dict[str, Array], saturate: str = "") -> dict[str, Array]:
    m, n, k, d, a, b, c = kind
    counts = {"a": _registers(m, k, a), "b": _registers(k, n, b), "c": _registers(m, n, c), "d": _registers(m, n, d)}
    body = f"{_mma(kind, saturate)} {', '.join(_listed(x, counts[x]) for x in 'dabc')};"
    columns = {f"{x}{i}": ("b32", inputs[x][:, i]) for x in "abc" for i in range(counts[x])}
    return check_body(body, columns, {f"d{i}": "b32" for i in range(counts["d"])}).outputs


def _words(values: Array, ptx_type: str) -> Array:
    """(threads, elements) as (threads, 32-bit registers)."""
    return np.ascontiguousarray(values.astype(DTYPE[ptx_type])).view(np.uint32)


@pytest.mark.parametrize("kind", MMA_KINDS, ids=_mma)
def test_mma_of_constant_matrices(kind: Kind) -> None:
    """A = 1, B = 2, C = c: every element of D is c + 2 K, in every layout."""
    m, n, k, d, a, b, c = kind
    per_thread = {"a": m * k // 32, "b": k * n // 32, "c": m * n // 32}
    ones, twos = np.ones((N, per_thread["a"])), np.full((N, per_thread["b"]), 2)
    start = np.tile(np.arange(N)[:, None] // 32 % 16, (1, per_thread["c"]))
    out = _run_mma(kind, {"a": _words(ones, a), "b": _words(twos, b), "c": _words(start, c)})
    got = np.stack([out[f"d{i}"] for i in range(len(out))], axis=1).view(DTYPE[d]).astype(np.float64)
    np.testing.assert_array_equal(got, start + 2 * k)


def test_mma_m16n8k16_layout_is_the_manuals(rng: np.random.Generator) -> None:
    """Integers gathered by the manual's formulas for groupID and threadID_in_group."""
    warps = N // 32
    A, B, C = (rng.integers(-4, 5, shape) for shape in ((warps, 16, 16), (warps, 16, 8), (warps, 16, 8)))
    g, t = np.arange(32) // 4, np.arange(32) % 4
    a = np.stack([A[:, g + 8 * (i in (2, 3, 6, 7)), 2 * t + (i & 1) + 8 * (i >= 4)] for i in range(8)], axis=-1)
    b = np.stack([B[:, 2 * t + (i & 1) + 8 * (i >= 2), g] for i in range(4)], axis=-1)
    c = np.stack([C[:, g + 8 * (i >= 2), 2 * t + (i & 1)] for i in range(4)], axis=-1)
    out = _run_mma(
        (16, 8, 16, "f32", "f16", "f16", "f32"),
        {
            "a": _words(a.reshape(N, 8), "f16"),
            "b": _words(b.reshape(N, 4), "f16"),
            "c": _words(c.reshape(N, 4), "f32"),
        },
    )
    D = A @ B + C
    for i in range(4):
        expected = D[:, g + 8 * (i >= 2), 2 * t + (i & 1)].reshape(N).astype(np.float32)
        np.testing.assert_array_equal(out[f"d{i}"].view(np.float32), expected)


@pytest.mark.parametrize("kind", MMA_KINDS, ids=_mma)
def test_mma_of_random_matrices(kind: Kind, rng: np.random.Generator) -> None:
    """Engines agree on any bits, also on denormals, infinities and NaN."""
    m, n, k, _, a, b, c = kind
    shapes = {"a": _registers(m, k, a), "b": _registers(k, n, b), "c": _registers(m, n, c)}
    wild = {x: rng.integers(0, 1 << 32, (N, count), np.uint64).astype(np.uint32) for x, count in shapes.items()}
    for saturate in ("", ".satfinite") if kind[3] == "s32" else ("",):
        _run_mma(kind, wild, saturate)
    tame = {
        x: _words(rng.integers(-3, 4, (N, shapes[x] * 4 // SIZES[t])), t)
        for x, t in (("a", a), ("b", b), ("c", c))
        if t != "u8"
    }
    _run_mma(kind, {**wild, **tame})


@pytest.mark.parametrize("values", ["integers", "random bits"])
def test_mma_of_doubles(values: str, rng: np.random.Generator) -> None:
    """The manual's layout: A[g, t], B[t, g], C[g, 2 t + i] with g = lane / 4, t = lane mod 4."""
    warps = N // 32
    A, B, C = (rng.integers(-9, 10, (warps, 8, n)).astype(np.float64) for n in (4, 4, 8))
    if values == "random bits":
        A, B, C = (random_values("f64", x.size, rng).reshape(x.shape) for x in (A, B, C))
    g, t = np.arange(32) // 4, np.arange(32) % 4
    columns = {"a": A[:, g, t], "b": B[:, g, t], "c0": C[:, g, 2 * t], "c1": C[:, g, 2 * t + 1]}
    ran = check_body(
        f"{DOUBLE} {{%d0, %d1}}, {{%a}}, {{%b}}, {{%c0, %c1}};\n{DOUBLE} {{%e0, %e1}}, {{%a}}, {{%b}}, {{%d0, %d1}};",
        {name: ("f64", column.reshape(N)) for name, column in columns.items()},
        dict.fromkeys(("d0", "d1", "e0", "e1"), "f64"),
    )
    if values == "integers":
        product = A @ B.transpose(0, 2, 1)
        for i in range(2):
            for name, want in (("d", product + C), ("e", 2 * product + C)):
                got = ran.outputs[f"{name}{i}"].view(np.float64)
                np.testing.assert_array_equal(got, want[:, g, 2 * t + i].reshape(N))


@pytest.mark.parametrize("values", ["integers", "random bits"])
@pytest.mark.parametrize("opcode", DOUBLES)
def test_mma_of_doubles_of_every_shape_and_rounding(opcode: str, values: str, rng: np.random.Generator) -> None:
    """The manual's layouts: A[g or g + 8, t + 4 i], B[t + 4 i, g], C[g or g + 8, 2 t + i]."""
    m, k = (int(size) for size in re.findall(r"m(\d+)n8k(\d+)", opcode)[0])
    warps = 128 // 32
    A, B, C = (rng.integers(-9, 10, (warps, *shape)).astype(np.float64) for shape in ((m, k), (k, 8), (m, 8)))
    if values == "random bits":
        A, B, C = (random_values("f64", x.size, rng).reshape(x.shape) for x in (A, B, C))
    g, t = np.arange(32) // 4, np.arange(32) % 4
    tops = (0, 8) if m == 16 else (0,)
    a = [A[:, g + top, t + first] for first in range(0, k, 4) for top in tops]
    b = [B[:, t + first, g] for first in range(0, k, 4)]
    places = [(g + top, 2 * t + i) for top in tops for i in range(2)]
    columns = {
        f"{name}{i}": ("f64", column.reshape(128))
        for name, held in (("a", a), ("b", b), ("c", [C[:, row, column] for row, column in places]))
        for i, column in enumerate(held)
    }
    lists = ", ".join(_listed(name, len(held)) for name, held in (("d", places), ("a", a), ("b", b), ("c", places)))
    ran = check_body(f"{opcode} {lists};", columns, {f"d{i}": "f64" for i in range(len(places))}, n=128)
    if values == "integers":
        product = A @ B + C
        for i, (row, column) in enumerate(places):
            got = ran.outputs[f"d{i}"].view(np.float64)
            np.testing.assert_array_equal(got, product[:, row, column].reshape(128))


# -- wmma --------------------------------------------------------------------------------------------------------

WARPS = 8


def _wmma_kernel(
    kind: Kind, layouts: tuple[str, str], space: str, pads: dict[str, int], saturate: str
) -> tuple[str, dict[str, int]]:
    """Each warp loads its own A, B and C, multiplies, and stores D."""
    m, n, k, d, a, b, c = kind
    shapes = {
        "a": (m, k, a, layouts[0]),
        "b": (k, n, b, layouts[1]),
        "c": (m, n, c, layouts[0]),
        "d": (m, n, d, layouts[1]),
    }
    stride, size = {}, {}
    for x, (rows, columns, t, layout) in shapes.items():
        inner, outer = (columns, rows) if layout == "row" else (rows, columns)
        stride[x] = inner + pads[x]
        size[x] = -(-outer * stride[x] * SIZES[t] // 128) * 128
    ops = _wmma(kind, layouts, space, saturate)
    counts = {x: _registers(rows, columns, t) for x, (rows, columns, t, _) in shapes.items()}
    counts |= {x: 8 for x in "ab" if shapes[x][2] == "f16"}  # PTX gives f16 A and B eight registers in every shape
    lines = [
        "mov.u32 %t0, %tid.x; shr.u32 %t1, %t0, 5; mov.u32 %t2, %ctaid.x; "
        "mad.lo.u32 %t3, %t2, 2, %t1; and.b32 %t4, %t0, 31;"
    ]
    scope, at = "", 0
    for x in "abcd":
        lines.append(
            f"ld.param.u64 %g{x}, [{x.upper()}]; mul.wide.u32 %off, %t3, {size[x]}; "
            f"add.u64 %g{x}, %g{x}, %off; mov.u64 %p{x}, %g{x};"
        )
    if space == "shared":
        total = sum(size.values())
        scope = f".shared .align 128 .b8 tiles[{2 * total}];"
        for x in "abcd":
            lines.append(
                f"mul.wide.u32 %off, %t1, {total}; mov.u64 %p{x}, tiles; add.u64 %p{x}, %p{x}, %off; "
                f"add.u64 %p{x}, %p{x}, {at};"
            )
            at += size[x]
        lines.append("mul.wide.u32 %off, %t4, 4;")
        for x in "abcd":
            lines += _copy(f"%g{x}", "global", f"%p{x}", "shared", size[x])
        lines.append("bar.warp.sync -1;")
    for x in "abc":
        stated = f", {stride[x]}" if pads[x] else ""
        lines.append(f"{ops[x]} {_listed(x, counts[x])}, [%p{x}]{stated};")
    lines.append(f"{ops['mma']} {', '.join(_listed(x, counts[x]) for x in 'dabc')};")
    lines.append(f"mov.u32 %t5, {stride['d']}; {ops['d']} [%pd], {_listed('d', counts['d'])}, %t5;")
    if space == "shared":
        lines += ["bar.warp.sync -1;", *_copy("%pd", "shared", "%gd", "global", size["d"])]
    width = "b64" if d == "f64" else "b32"
    registers = " ".join(f".reg .{width} %{x}<{max(counts[x], 1)}>; .reg .b64 %g{x}, %p{x};" for x in "abcd")
    body = "\n  ".join(lines)
    text = (
        f"{HEADER}{scope}\n.visible .entry k(.param .u64 A, .param .u64 B, .param .u64 C, .param .u64 D)\n{{\n"
        f"  {registers} .reg .b32 %t<8>; .reg .b64 %off, %from, %to;\n  {body}\n  ret;\n}}\n"
    )
    return text, {**{f"stride_{x}": stride[x] for x in "abcd"}, **{f"size_{x}": size[x] for x in "abcd"}}


def _copy(source: str, source_space: str, target: str, target_space: str, size: int) -> list[str]:
    lines = [f"add.u64 %from, {source}, %off; add.u64 %to, {target}, %off;"]
    for at in range(0, size, 128):
        lines.append(f"ld.{source_space}.b32 %t6, [%from+{at}]; st.{target_space}.b32 [%to+{at}], %t6;")
    return lines


def _laid_out(matrix: Array, layout: str, stride: int, size: int, ptx_type: str) -> Array:
    lines = matrix if layout == "row" else matrix.T
    flat = np.zeros(size // SIZES[ptx_type], DTYPE[ptx_type])
    for number, line in enumerate(lines):
        flat[number * stride : number * stride + len(line)] = line.astype(DTYPE[ptx_type])
    return flat


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize(
    "kind", [*one_in(4, WMMA_KINDS), WMMA_OF_DOUBLES], ids=lambda kind: "{}x{}x{}.{}.{}".format(*kind[:5])
)
def test_wmma_multiplies_matrices_in_memory(
    kind: Kind, layouts: tuple[str, str], space: str, rng: np.random.Generator
) -> None:
    m, n, k, d, a, b, c = kind
    padded = layouts[0] == layouts[1]
    pads = dict.fromkeys("abcd", 16 if padded else 0)
    saturate = ".satfinite" if d == "s32" and padded else ""
    text, sizes = _wmma_kernel(kind, layouts, space, pads, saturate)
    low = 0 if a == "u8" else -4
    matrices = [
        (rng.integers(low, 5, (m, k)), rng.integers(low, 5, (k, n)), rng.integers(-9, 9, (m, n))) for _ in range(WARPS)
    ]
    for engine in ENGINES:
        memory = GlobalMemory(1 << 20)
        addresses = []
        for at, (x, t, layout) in enumerate((("a", a, layouts[0]), ("b", b, layouts[1]), ("c", c, layouts[0]))):
            parts = [_laid_out(warp[at], layout, sizes[f"stride_{x}"], sizes[f"size_{x}"], t) for warp in matrices]
            data = np.concatenate(parts).view(np.uint8)
            addresses.append(memory.allocate(len(data)))
            memory.write(addresses[-1], data)
        addresses.append(memory.allocate(WARPS * sizes["size_d"]))
        memory.write(addresses[-1], bytes(WARPS * sizes["size_d"]))
        spec = LaunchSpec("k", (WARPS // 2, 1, 1), (64, 1, 1), struct.pack("<4Q", *addresses))
        outcome = Engine(engine, parse(text)).run(spec, memory, {})
        assert not outcome.findings
        got = memory.read(addresses[3], WARPS * sizes["size_d"]).view(DTYPE[d]).reshape(WARPS, -1)
        for warp, (A, B, C) in enumerate(matrices):
            expected = _laid_out(A @ B + C, layouts[1], sizes["stride_d"], sizes["size_d"], d)
            np.testing.assert_array_equal(got[warp].astype(np.float64), expected.astype(np.float64), engine)


# -- ldmatrix and movmatrix --------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", LDMATRIX)
def test_ldmatrix(opcode: str, rng: np.random.Generator) -> None:
    """Lane 8 i + r points at row r of matrix i; lane l receives elements 2 (l mod 4), 2 (l mod 4) + 1 of row l / 4."""
    count = next(int(part[1:]) for part in opcode.split(".") if part in ("x1", "x2", "x4"))
    rows = [random_values("b64", N, rng) for _ in range(2)]  # each lane has one row of 16 bytes
    body = f"""mov.u32 %t0, %tid.x; shl.b32 %t0, %t0, 4; mov.u32 %t1, rows; add.u32 %t0, %t0, %t1;
      st.shared.v2.b64 [%t0], {{%lo, %hi}};
      bar.warp.sync -1;
      {opcode} {_listed("d", count)}, [%t0];"""
    ran = check_body(
        body,
        {"lo": ("b64", rows[0]), "hi": ("b64", rows[1])},
        {f"d{i}": "b32" for i in range(count)},
        module_scope=".shared .align 16 .b8 rows[2048];",
    )
    tiles = np.stack(rows, axis=1).view(np.uint16).reshape(N // 32, 4, 8, 8)
    if ".trans" in opcode:
        tiles = tiles.transpose(0, 1, 3, 2)
    g, t = np.arange(32) // 4, np.arange(32) % 4
    for i in range(count):
        low, high = (tiles[:, i, g, 2 * t + j].astype(np.uint32) for j in (0, 1))
        np.testing.assert_array_equal(ran.outputs[f"d{i}"], (low | high << 16).ravel())
    assert not ran.findings


def test_ldmatrix_of_a_misaligned_row_is_reported() -> None:
    body = "mov.u32 %t0, rows; add.u32 %t0, %t0, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d0}, [%t0];"
    ran = check_body(body, {}, {"d0": "b32"}, module_scope=".shared .align 16 .b8 rows[2048];", n=128)
    assert {f.code for f in ran.findings} == {"M102"}


def test_movmatrix_transposes(rng: np.random.Generator) -> None:
    a = random_values("b32", N, rng)
    ran = check_body("movmatrix.sync.aligned.m8n8.trans.b16 %d, %a;", {"a": ("b32", a)}, {"d": "b32"})
    tiles = a.view(np.uint16).reshape(N // 32, 8, 8)
    expected = np.ascontiguousarray(tiles.transpose(0, 2, 1)).view(np.uint32).ravel()
    np.testing.assert_array_equal(ran.outputs["d"], expected)
