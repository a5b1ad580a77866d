"""Attention's own work compared with loops over every pair, and its roofs computed by hand."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.chips import TensorKind, chip
from weft.core.errors import UsageError
from weft.model.roofline import Mask, attention_roof, attention_work


@dataclass(frozen=True)
class Size:
    b: int
    hq: int
    hkv: int
    sq: int
    skv: int
    d: int


SEES = {
    Mask.NONE: lambda i, j, size: True,
    Mask.TOP_LEFT: lambda i, j, size: j <= i,
    Mask.BOTTOM_RIGHT: lambda i, j, size: j <= i + size.skv - size.sq,
}


@settings(max_examples=60)
@given(
    sq=st.integers(1, 20),
    skv=st.integers(1, 20),
    mask=st.sampled_from(list(Mask)),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
)
def test_every_pair_is_counted(sq: int, skv: int, mask: Mask, sizes: tuple[int, int, int]) -> None:
    b, hkv, group = sizes
    size = Size(b, hkv * group, hkv, sq, skv, 16)
    pairs = [(i, j) for i in range(sq) for j in range(skv) if SEES[mask](i, j, size)]
    found = attention_work(size, element_bytes=1, out_bytes=4, mask=mask)
    assert found.scores == b * size.hq * len(pairs)
    assert found.flops == b * size.hq * len(pairs) * (2 * 16 + 2 * 16)
    queries, keys = {i for i, _ in pairs}, {j for _, j in pairs}
    assert found.read_bytes == b * 16 * (size.hq * len(queries) + 2 * hkv * len(keys))
    assert found.written_bytes == b * size.hq * sq * 16 * 4


def test_flops_of_the_published_series() -> None:
    """4 · S² · d · heads · batch."""
    assert attention_work(Size(16, 16, 16, 4096, 4096, 128)).flops == 2_199_023_255_552


def test_the_roof_on_l4() -> None:
    """58 SMs of 512 multiply-adds: the ridge is 58 · 1024 · 2.04 / 300.1 FLOP per byte."""
    l4, size = chip("l4"), Size(2, 8, 8, 2048, 2048, 64)
    done = attention_work(size)
    roof = attention_roof(done, l4)
    assert roof.ridge == pytest.approx(58 * 1024 * 2.04 / 300.1)
    assert roof.tensor_cycles == pytest.approx(4 * 16 * 2048**2 * 64 / (58 * 1024))
    assert roof.exp_cycles == pytest.approx(16 * 2048**2 / (58 * 16))
    assert done.intensity == pytest.approx(4 * 16 * 2048**2 * 64 / (4 * 16 * 2048 * 64 * 2))
    assert roof.dram_cycles == pytest.approx(3 * 16 * 2048 * 64 * 2 / 300.1e9 * 2.04e9)
    assert roof.warm == roof.cold == roof.tensor_cycles
    eight_bit = attention_roof(done, l4, TensorKind.FP8_F32, second=TensorKind.F16_F32)
    assert eight_bit.tensor_cycles == pytest.approx(0.75 * roof.tensor_cycles)


def test_decoding_is_bound_by_memory() -> None:
    l4 = chip("l4")
    roof = attention_roof(attention_work(Size(1, 8, 8, 1, 8192, 128)), l4)
    assert roof.cold == roof.dram_cycles > roof.tensor_cycles


def test_queries_without_a_visible_key() -> None:
    """Bottom-right with two queries and one key: the first query sees none."""
    assert attention_work(Size(1, 1, 1, 2, 1, 8), mask=Mask.BOTTOM_RIGHT).scores == 1
    with pytest.raises(UsageError, match="no query sees"):
        attention_work(Size(1, 1, 1, 0, 1, 8))
