"""Decode over pages of codes: the scores of `paged_decode` where scales are exact, every code, and shared pages."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch

import weft
from weft.attention.dtypes import Array, numpy_dtype
from weft.attention.shapes import Shape, shape
from weft.kernels import RUNGS
from weft.kernels.ladder import ELEMENTS
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

TASK = TASKS["paged_decode_fp8"]


def run(rung: str, arrays: Mapping[str, Array], dtype: str, **levers: str) -> dict[str, Array]:
    kernel = weft.load(RUNGS[rung].path, defines={"ELEMENT": ELEMENTS[dtype], **levers})
    outcome, after = kernel.run(weft.VirtualGPU(), {name: x.copy() for name, x in arrays.items()})
    assert outcome.clean, outcome.findings
    return after


def drawn(sizes: Shape, dtype: str) -> dict[str, Array]:
    return dict(TASK.draw(Workload(sizes, dtype, "none", "unit_normal", 3, "e4m3")).arrays)


def numbers(codes: Array) -> Array:
    """Return the values of E4M3 codes by PyTorch."""
    return torch.from_numpy(codes).view(torch.float8_e4m3fn).to(torch.float32).numpy()


@pytest.mark.parametrize("levers", [{}, {"SPLITS": "1"}, {"SPLITS": "9", "CAUSAL": "2", "WARPS": "1"}])
def test_exact_scales_give_the_scores_of_decode_over_numbers(levers: dict[str, str]) -> None:
    """Multiplication by a power of two rounds nothing, wherever it is: inside the loop or behind it.

    In u · rescale + p · v the compiler rounds one of the products, then the sum. Each kernel rounds twice per key, and
    twice per split in the merge: each time by 2^-24 of at most l · max|V|.
    """
    arrays = drawn(shape("b4-hq4-hkv2-sq5-skv77-d37"), "f32")  # an odd D: lanes have the columns of `paged_decode`
    arrays["k_scale"], arrays["v_scale"] = np.float32([0.25, 0.125]), np.float32([0.5, 16])
    coded = run("paged_decode_fp8", arrays, "f32", **levers)
    plain = {name: arrays[name] for name in ("q", "block_table", "seq_lens")}
    for name in "kv":
        plain[f"{name}_cache"] = numbers(arrays[f"{name}_cache_code"]) * arrays[f"{name}_scale"][:, None]
    decoded = run("paged_decode", plain, "f32", **levers)
    assert coded["lse"].tobytes() == decoded["lse"].tobytes()
    rounded = 2 * 2 * (77 + 9) * 2.0**-24 * np.nanmax(np.abs(plain["v_cache"]))
    assert (np.abs(coded["o"] - decoded["o"]) <= rounded).all()


@pytest.mark.parametrize("d", [254, 255, 256])
def test_every_code_is_read_as_pytorch_reads_it(d: int) -> None:
    """One key has all weight: O is its row of V, the 254 codes that are numbers. A lane reads 2, 1 or 4 at once."""
    codes = np.array([*(code for code in range(256) if code & 0x7F != 0x7F), 0, 0][:d], np.uint8)
    cache = np.full((1, 16, 1, d), 0x7F, np.uint8)
    cache[0, 0, 0] = codes
    arrays = {
        "q": np.ones((1, 1, 1, d), np.float32), "k_cache_code": cache, "v_cache_code": cache,
        "block_table": np.zeros((1, 1), np.int32), "seq_lens": np.ones(1, np.int32),
        "k_scale": np.float32([2.0**-6]), "v_scale": np.float32([0.5]),
    }  # fmt: skip
    after = run("paged_decode_fp8", arrays, "f32")
    assert np.array_equal(after["o"][0, 0, 0], numbers(codes) * np.float32(0.5))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sequences_may_share_a_page(dtype: str) -> None:
    """Two sequences with a common first page: the second one reads the codes of the first with the same scales."""
    arrays = drawn(Shape("shared", 2, 4, 2, 1, 60, 64), dtype)
    arrays["q"][1] = arrays["q"][0]
    arrays["seq_lens"][:] = 16
    arrays["block_table"][1, 0] = arrays["block_table"][0, 0]
    after = run("paged_decode_fp8", arrays, dtype)
    assert after["o"][0].tobytes() == after["o"][1].tobytes()
    page = arrays["block_table"][0, 0]
    k, v = (
        numbers(arrays[f"{name}_cache_code"][page]).astype(np.float64) * arrays[f"{name}_scale"][:, None]
        for name in "kv"
    )  # (slot, hkv, d)
    q, k, v = (torch.from_numpy(x) for x in (arrays["q"][0].astype(np.float64), k.swapaxes(0, 1), v.swapaxes(0, 1)))
    k, v = (x.repeat_interleave(2, 0) for x in (k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v).numpy()
    half_ulp = (
        np.abs(expected) * float(torch.finfo(getattr(torch, {"f16": "float16", "bf16": "bfloat16"}[dtype])).eps) / 2
    )
    assert after["o"].dtype == numpy_dtype(dtype)
    assert (np.abs(after["o"][0].astype(np.float64) - expected) <= half_ulp + 1e-5).all()
