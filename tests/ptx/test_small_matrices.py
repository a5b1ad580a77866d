"""mma of 4- and 6-bit types and with scales, and ldmatrix of bytes (sm_100a, sm_120a), by the manual's layouts."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.in_turn import one_in
from tests.ptx.harness import Array, check_body, random_values
from weft.core.errors import Unsupported

N = 128
WARPS = N // 32
G, T = np.arange(32) // 4, np.arange(32) % 4
DTYPE: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn, "e2m1": ml_dtypes.float4_e2m1fn, "ue8m0": ml_dtypes.float8_e8m0fnu,
    "ue4m3": ml_dtypes.float8_e4m3fn, "f32": np.float32, "f16": np.float16,
}  # fmt: skip
SCALE_VECTORS = {0: "", 1: ".scale_vec::1X", 2: ".scale_vec::2X", 4: ".scale_vec::4X"}


@dataclass(frozen=True)
class Kind:
    """One kind of product, and where its opcode names it."""

    name: str
    k: int
    a: str
    b: str
    result: str = "f32"
    scale: str = ""
    scales: int = 0
    first: bool = False
    """`kind::` before the shape, as CUTLASS writes it, not after the layouts."""
    vector: bool = True
    """Whether `scale_vec` is written."""

    @property
    def opcode(self) -> str:
        scaled = ".block_scale" + (SCALE_VECTORS[self.scales] if self.vector else "") if self.scale else ""
        kind, place = f".kind::{self.name}{scaled}", f".m16n8k{self.k}.row.col"
        types = ".".join([self.result, self.a, self.b, self.result, *([self.scale] if self.scale else [])])
        return f"mma.sync.aligned{kind + place if self.first else place + kind}.{types}"


F8F6F4 = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
PAIRS = [(a, b) for a in F8F6F4 for b in F8F6F4]
PLAIN = [Kind("f8f6f4", 32, a, b, result, first=a == b) for a, b in PAIRS for result in ("f32", "f16")]
SCALED = [
    *(Kind("mxf8f6f4", 32, a, b, "f32", "ue8m0", 1, first=a == b, vector=a != "e5m2") for a, b in PAIRS),
    *(Kind("mxf4", 64, "e2m1", "e2m1", "f32", "ue8m0", 2, vector=vector) for vector in (True, False)),
    *(Kind("mxf4nvf4", 64, "e2m1", "e2m1", "f32", scale, n) for scale, n in (("ue8m0", 2), ("ue8m0", 4), ("ue4m3", 4))),
]
LDMATRIX = [
    *(f"ldmatrix.sync.aligned.m16n16.{num}.trans.shared.b8" for num in ("x1", "x2")),
    *(
        f"ldmatrix.sync.aligned.m16n16.{num}.trans.shared::cta.b8x16.{source}"
        for num in ("x1", "x2")
        for source in ("b6x16_p32", "b4x16_p64")
    ),
    *(
        f"ldmatrix.sync.aligned.m8n16.{num}.shared.b8x16.{source}"
        for num in ("x1", "x2", "x4")
        for source in ("b6x16_p32", "b4x16_p64")
    ),
]
OPCODES = [*(kind.opcode for kind in (*PLAIN, *SCALED)), *LDMATRIX]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(17)


def _codes(values: Array, name: str) -> Array:
    """Return a byte for each element: e2m1 in bits 2 to 5, the others from bit 0 on."""
    bits = values.astype(DTYPE[name]).view(np.uint8)
    return bits << 2 if name == "e2m1" else bits


def _register_words(matrices: Array, kind: Kind, side: str) -> list[Array]:
    """Return the registers of A (rows g and g + 8 in turn) or of B, given as [warp, row or column, k]."""
    name = kind.a if side == "a" else kind.b
    codes = _codes(matrices, name)
    if kind.k == 64:  # two elements in a byte, the first in its low half
        codes = codes[..., 0::2] >> 2 | codes[..., 1::2] << 2
    words = np.ascontiguousarray(codes).view(np.uint32)  # [warp, row, 8 words]
    tops = (0, 8) if side == "a" else (0,)
    return [words[:, G + top, T + first].reshape(N) for first in (0, 4) for top in tops]


def _run(kind: Kind, a: Array, b: Array, c: Array, scales: str = "", columns: dict[str, Any] | None = None) -> Array:
    """Return D, [warp, 16, 8]. `scales` is the rest of the instruction, `columns` its registers."""
    half = kind.result == "f16"
    places = [(G + top, 2 * T + i) for top in (0, 8) for i in ((0,) if half else (0, 1))]
    held = [c[:, row, column] for row, column in places]
    if half:
        held = [low.view(np.uint16).astype(np.uint32) | c[:, row, column + 1].view(np.uint16).astype(np.uint32) << 16
                for low, (row, column) in zip(held, places, strict=True)]  # fmt: skip
    inputs = {"a": _register_words(a, kind, "a"), "b": _register_words(b, kind, "b"), "c": held}
    given = {
        f"{name}{i}": ("b32", np.ascontiguousarray(column.reshape(N)).view(np.uint32))
        for name, registers in inputs.items()
        for i, column in enumerate(registers)
    }
    lists = ", ".join(
        "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"
        for name, count in (("d", len(places)), ("a", 4), ("b", 2), ("c", len(places)))
    )
    outputs = {f"d{i}": "b32" for i in range(len(places))}
    ran = check_body(f"{kind.opcode} {lists}{scales};", {**given, **(columns or {})}, outputs, n=N)
    result = np.zeros((WARPS, 16, 8), DTYPE[kind.result])
    for i, (row, column) in enumerate(places):
        words = ran.outputs[f"d{i}"].reshape(WARPS, 32)
        if half:
            result[:, row, column] = (words & 0xFFFF).astype(np.uint16).view(np.float16)
            result[:, row, column + 1] = (words >> 16).astype(np.uint16).view(np.float16)
        else:
            result[:, row, column] = words.view(np.float32)
    return result


def _whole(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return numbers that every type has: their sums of products are exact."""
    return rng.choice(np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]), shape)


@pytest.mark.parametrize("kind", one_in(5, PLAIN), ids=lambda kind: kind.opcode)
def test_types_of_every_width_are_multiplied(kind: Kind, rng: np.random.Generator) -> None:
    a, b = _whole(rng, (WARPS, 16, 32)), _whole(rng, (WARPS, 8, 32))
    c = rng.integers(-9, 9, (WARPS, 16, 8)).astype(DTYPE[kind.result])
    np.testing.assert_array_equal(_run(kind, a, b, c), a @ b.transpose(0, 2, 1) + c)


@pytest.mark.parametrize("kind", one_in(4, SCALED), ids=lambda kind: kind.opcode)
@pytest.mark.parametrize("chosen", ["constants", "registers"])
def test_scales_are_the_chosen_bytes_of_the_chosen_lanes(kind: Kind, chosen: str, rng: np.random.Generator) -> None:
    """Lanes 2 i and 2 i + 1 of four have the scales of rows g and g + 8, lane j those of column g; others hold NaN."""
    a, b = _whole(rng, (WARPS, 16, kind.k)), _whole(rng, (WARPS, 8, kind.k))
    c = rng.integers(-9, 9, (WARPS, 16, 8)).astype(np.float32)
    powers = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    sa, sb = (rng.choice(powers, (WARPS, rows, kind.scales)) for rows in (16, 8))
    for byte_a, lane_a, byte_b, lane_b in [(0, 0, 0, 0), (4 - kind.scales, 1, 0, 3), (0, 1, 4 - kind.scales, 2)]:
        words = {side: np.full((WARPS, 32, 4), 0xFF, np.uint8) for side in "ab"}
        bytes_a, bytes_b = (slice(first, first + kind.scales) for first in (byte_a, byte_b))
        codes_a, codes_b = (scale.astype(DTYPE[kind.scale]).view(np.uint8) for scale in (sa, sb))
        for top in range(2):
            words["a"][:, 2 * lane_a + top :: 4, bytes_a] = codes_a[:, 8 * top : 8 * top + 8]
        words["b"][:, lane_b::4, bytes_b] = codes_b
        columns: dict[str, Any] = {
            f"s{side}": ("b32", held.reshape(-1).view(np.uint32)) for side, held in words.items()
        }
        select = [str(number) for number in (byte_a, lane_a, byte_b, lane_b)]
        if chosen == "registers":
            columns |= {f"n{i}": ("b16", np.full(N, int(x), np.uint16)) for i, x in enumerate(select)}
            select = [f"%n{i}" for i in range(4)]
        scales = f", {{%sa}}, {{{select[0]}, {select[1]}}}, %sb, {{{select[2]}, {select[3]}}}"
        got = _run(kind, a, b, c, scales, columns)
        each = kind.k // kind.scales
        want = (a * sa.repeat(each, 2)) @ (b * sb.repeat(each, 2)).transpose(0, 2, 1) + c
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", one_in(9, [*PLAIN, *SCALED]), ids=lambda kind: kind.opcode)
def test_engines_agree_on_any_bits(kind: Kind, rng: np.random.Generator) -> None:
    registers = 2 if kind.result == "f16" else 4
    counts = {"d": registers, "a": 4, "b": 2, "c": registers}
    columns = {f"{x}{i}": ("b32", random_values("b32", N, rng)) for x in "abc" for i in range(counts[x])}
    lists = ", ".join("{" + ", ".join(f"%{x}{i}" for i in range(counts[x])) + "}" for x in "dabc")
    if kind.scale:
        columns |= {f"s{x}": ("b32", random_values("b32", N, rng)) for x in "ab"}
        lists += ", %sa, {0, 1}, %sb, {0, 2}"
    check_body(f"{kind.opcode} {lists};", columns, {f"d{i}": "b32" for i in range(registers)}, n=N)


@pytest.mark.parametrize("select", ["{1, 0}, %sb, {0, 0}", "{0, 2}, %sb, {0, 0}", "{0, 0}, %sb, {2, 4}"])
def test_a_selector_that_ptxas_refuses_is_refused(select: str) -> None:
    kind = Kind("mxf4", 64, "e2m1", "e2m1", "f32", "ue8m0", 2)
    lists = "{%d0, %d1, %d2, %d3}, {%a, %a, %a, %a}, {%a, %a}, {%a, %a, %a, %a}"
    columns = {name: ("b32", np.zeros(N, np.uint32)) for name in ("a", "sa", "sb")}
    with pytest.raises(Unsupported):
        check_body(f"{kind.opcode} {lists}, %sa, {select};", columns, {f"d{i}": "b32" for i in range(4)}, n=N)


@pytest.mark.parametrize("opcode", LDMATRIX)
def test_ldmatrix_of_bytes(opcode: str, rng: np.random.Generator) -> None:
    """m16n16 is transposed: lane l gets rows 4 (l mod 4) to + 3 of column l / 4, then of column l / 4 + 8."""
    wide = ".m16n16." in opcode
    number = next(int(part[1:]) for part in opcode.split(".") if part in ("x1", "x2", "x4"))
    count = 2 * number if wide else number
    rows = [random_values("b64", N, rng) for _ in range(2)]  # each lane has one row of 16 bytes
    body = f"""mov.u32 %t0, %tid.x; shl.b32 %t0, %t0, 4; mov.u32 %t1, rows; add.u32 %t0, %t0, %t1;
      st.shared.v2.b64 [%t0], {{%lo, %hi}};
      bar.warp.sync -1;
      {opcode} {{{", ".join(f"%d{i}" for i in range(count))}}}, [%t0];"""
    columns = {"lo": ("b64", rows[0]), "hi": ("b64", rows[1])}
    scope = ".shared .align 16 .b8 rows[2048];"
    ran = check_body(body, columns, {f"d{i}": "b32" for i in range(count)}, module_scope=scope, n=N)
    elements = np.stack(rows, axis=1).view(np.uint8).reshape(WARPS, 32, 16).astype(object)
    for source, bits in (("b6x16_p32", 6), ("b4x16_p64", 4)):
        if source in opcode:
            value = sum(elements[..., i] << 8 * i for i in range(16))
            elements = np.stack([value >> bits * j & (1 << bits) - 1 for j in range(16)], axis=-1)
    elements = elements.astype(np.uint32)
    for i in range(count):
        if wide:
            parts = [elements[:, 16 * (i // 2) + 4 * T + j, G + 8 * (i % 2)] for j in range(4)]
        else:
            parts = [elements[:, 8 * i + G, 4 * T + j] for j in range(4)]
        want = sum(part << np.uint32(8 * j) for j, part in enumerate(parts))
        np.testing.assert_array_equal(ran.outputs[f"d{i}"], want.reshape(N))
    assert not ran.findings
