"""Fragment layouts compared with places given in the PTX manual, and wmma layouts with their purpose."""

import numpy as np
import pytest

from weft.core.errors import Unsupported
from weft.vm.mma_kind import MmaKind, wmma_parts
from weft.vm.reference.fragments import mma_fragment, wmma_fragment
from weft.vm.reference.tensorcore import mma

F16 = MmaKind(16, 8, 16, "f16", "f16", "f32", "f32")
TF32 = MmaKind(16, 8, 8, "tf32", "tf32", "f32", "f32")
S8 = MmaKind(16, 8, 32, "s8", "s8", "s32", "s32")
F64 = MmaKind(8, 8, 4, "f64", "f64", "f64", "f64")
F64_K8, F64_K16 = (MmaKind(16, 8, k, "f64", "f64", "f64", "f64") for k in (8, 16))


@pytest.mark.parametrize(
    ("kind", "operand", "register", "lane", "element", "place"),
    [
        (F16, "a", 0, 5, 1, (1, 3)),  # lane 5: g = 1, t = 1; a1 is row g, column 2 t + 1
        (F16, "a", 1, 5, 0, (9, 2)),  # a2: row g + 8
        (F16, "a", 2, 5, 0, (1, 10)),  # a4: row g, column 2 t + 8
        (F16, "a", 3, 31, 1, (15, 15)),  # a7 of the last lane is the last element
        (F16, "b", 1, 5, 1, (11, 1)),  # b3: row 2 t + 1 + 8, column g
        (F16, "c", 1, 5, 0, (1, 3)),  # c1: row g, column 2 t + 1
        (F16, "c", 2, 5, 0, (9, 2)),  # c2: row g + 8, column 2 t
        (TF32, "a", 1, 6, 0, (9, 2)),  # a1: row g + 8, column t
        (TF32, "a", 2, 6, 0, (1, 6)),  # a2: row g, column t + 4
        (TF32, "b", 1, 6, 0, (6, 1)),  # b1: row t + 4, column g
        (S8, "a", 1, 7, 3, (9, 15)),  # a7: row g + 8, column 4 t + 3
        (S8, "a", 2, 7, 0, (1, 28)),  # a8: row g, column 4 t + 16
        (S8, "b", 1, 7, 2, (30, 1)),  # b6: row 4 t + 2 + 16, column g
        (F64, "a", 0, 7, 0, (1, 3)),
        (F64, "b", 0, 7, 0, (3, 1)),
        (F64, "c", 1, 7, 0, (1, 7)),
        (F64_K8, "a", 1, 7, 0, (9, 3)),  # a1: row g + 8, column t
        (F64_K8, "a", 2, 7, 0, (1, 7)),  # a2: row g, column t + 4
        (F64_K8, "c", 3, 7, 0, (9, 7)),  # c3: row g + 8, column 2 t + 1
        (F64_K16, "a", 4, 7, 0, (1, 11)),  # a4: row g, column 2 i + t
        (F64_K16, "a", 7, 7, 0, (9, 15)),  # a7: row g + 8, column 2 i - 2 + t
        (F64_K16, "b", 3, 7, 0, (15, 1)),  # b3: row t + 4 i, column g
    ],
)
def test_places_of_the_manual(
    kind: MmaKind, operand: str, register: int, lane: int, element: int, place: tuple[int, int]
) -> None:
    fragment = mma_fragment(kind, operand)
    at = (register, lane, element)
    assert (fragment.rows[at], fragment.columns[at]) == place


@pytest.mark.parametrize("kind", [F16, TF32, S8, F64, F64_K8, F64_K16], ids=lambda kind: kind.label)
@pytest.mark.parametrize("operand", ["a", "b", "c", "d"])
def test_every_element_has_one_place(kind: MmaKind, operand: str) -> None:
    fragment = mma_fragment(kind, operand)
    places = set(zip(fragment.rows.ravel().tolist(), fragment.columns.ravel().tolist(), strict=True))
    assert len(places) == fragment.rows.size == fragment.shape[0] * fragment.shape[1]


@pytest.mark.parametrize(
    ("shape", "element", "counts"),
    [  # registers of A, B and C that PTX requires
        ((16, 16, 16), "f16", (8, 8, 8)),
        ((32, 8, 16), "f16", (8, 8, 8)),
        ((8, 32, 16), "f16", (8, 8, 8)),
        ((16, 16, 16), "bf16", (4, 4, 8)),
        ((32, 8, 16), "bf16", (8, 2, 8)),
        ((8, 32, 16), "bf16", (2, 8, 8)),
        ((16, 16, 16), "s8", (2, 2, 8)),
        ((32, 8, 16), "s8", (4, 1, 8)),
        ((8, 32, 16), "s8", (1, 4, 8)),
        ((16, 16, 8), "tf32", (4, 4, 8)),
    ],
)
def test_wmma_is_m16n8_side_by_side(shape: tuple[int, int, int], element: str, counts: tuple[int, int, int]) -> None:
    """Carrying out the parts on packed registers gives the matrix product."""
    m, n, k = shape
    accumulator = "s32" if element == "s8" else "f32"
    a_layout = wmma_fragment(*shape, operand="a", element=element)
    b_layout = wmma_fragment(*shape, operand="b", element=element)
    c_layout = wmma_fragment(*shape, operand="c", element=accumulator)
    assert (a_layout.registers, b_layout.registers, c_layout.registers) == counts
    kind = MmaKind(16, 8, k, element, element, accumulator, accumulator)

    rng = np.random.default_rng(8)
    x, y = rng.integers(-3, 4, (m, k)), rng.integers(-3, 4, (k, n))
    a, b = a_layout.pack(_encode(x, element)), b_layout.pack(_encode(y, element))
    d = np.zeros((8, 32), np.uint32)
    for part in wmma_parts(*shape, a_type=element, c_type=accumulator):
        absent = np.zeros(32, np.uint32)
        part_a = np.stack([absent if i is None else a[i] for i in part.a])
        matrix_a = mma_fragment(kind, "a").unpack(part_a)
        matrix_b = mma_fragment(kind, "b").unpack(b[list(part.b)])
        result = mma(matrix_a, matrix_b, np.zeros((16, 8), np.uint32), kind=kind)
        for i, register in zip(part.c, mma_fragment(kind, "d").pack(result), strict=True):
            if i is not None:
                d[i] = register
    bits = c_layout.unpack(d)
    values = bits.view(np.int32) if accumulator == "s32" else bits.view(np.float32)
    assert np.array_equal(values, x @ y)


def _encode(values: np.ndarray, element: str) -> np.ndarray:
    if element == "s8":
        return values.astype(np.int8).view(np.uint8)
    if element == "f16":
        return values.astype(np.float16).view(np.uint16)
    wide = values.astype(np.float32).view(np.uint32)
    return wide if element == "tf32" else (wide >> 16).astype(np.uint16)


def test_f16_accumulators_take_half_the_registers() -> None:
    layout = wmma_fragment(16, 16, 16, operand="c", element="f16")
    assert layout.registers == 4
    parts = wmma_parts(16, 16, 16, a_type="f16", c_type="f16")
    assert [part.c for part in parts] == [(0, 1), (2, 3)]
    assert layout.columns[2].min() == 8  # the right half follows the left one


def test_unknown_wmma_shapes_are_refused() -> None:
    with pytest.raises(Unsupported):
        wmma_fragment(16, 16, 16, operand="a", element="tf32")
