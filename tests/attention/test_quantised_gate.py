"""The gate of quantised kernels: right ones pass in every regime, a biased quantiser does not."""

from functools import partial

import numpy as np
import pytest

from weft.attention.gates import quantised_gate
from weft.attention.quantisation_noise import DRAWS, MANY_DRAWS, noise_size
from weft.attention.quantise import QUANTISERS
from weft.attention.reference import attention, visible
from weft.attention.regimes import REGIMES, make
from weft.attention.shapes import SHAPES


def _judge(
    encoding: str, regime: str, shape_name: str, *, bias: float = 0.0, seed: int = 0, draws: int = DRAWS
) -> bool:
    shape, quantiser = SHAPES[shape_name], QUANTISERS[encoding]
    original = make(regime, shape, "f16", seed)
    coded = [quantiser.encode(x.astype(np.float32)) for x in original]
    mask = visible(shape.sq, shape.skv, None)
    exact = attention(*original, mask=mask)
    q, k, v = (quantiser.decode(*each).astype(np.float64) for each in coded)
    v = v + bias * coded[2].scale[..., None, None] * 448 / 127
    out = attention(q, k, v, mask=mask).o
    scales = (coded[0].scale, coded[1].scale, coded[2].scale)
    noise = noise_size(quantiser, original, scales, exact, attend=partial(attention, mask=mask), draws=draws)
    return quantised_gate(out.astype(np.float16), exact.o, noise, out.astype(np.float16), out, "f16").passed


@pytest.mark.parametrize("encoding", QUANTISERS)
@pytest.mark.parametrize("regime", REGIMES)
def test_rounding_errors_pass(encoding: str, regime: str) -> None:
    for shape in ("ragged", "one_token", "decode", "d128"):
        for seed in range(3):
            assert _judge(encoding, regime, shape, seed=seed), (shape, seed)


@pytest.mark.parametrize("regime", ["unit_normal", "v_offset", "all_equal"])
@pytest.mark.parametrize("draws", [DRAWS, MANY_DRAWS])
def test_half_a_step_of_bias_does_not_pass(regime: str, draws: int) -> None:
    """Rounding averages out over 128 keys, a bias does not."""
    assert _judge("sim_fp8", regime, "split_128", draws=draws)
    assert not _judge("sim_fp8", regime, "split_128", bias=0.5, draws=draws)
