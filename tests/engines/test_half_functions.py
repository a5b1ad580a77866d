"""The functions of cuda_fp16.h: their PTX declares registers without a blank (`.reg.b32 f;`)."""

from pathlib import Path

import numpy as np
import pytest

import weft

FUNCTIONS = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: 10.0**x,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: x**-0.5,
    "rcp": lambda x: 1 / x,
}
COUNT = 64


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The inputs, and each function of one number and of two at a time."""
    file = tmp_path_factory.mktemp("half") / "half.cu"
    lines = [
        f"y[{at} * n + t] = h{name}(x[t]); if (t < n / 2) ((half2*)z)[{at} * n / 2 + t] = h2{name}(((half2*)x)[t]);"
        for at, name in enumerate(FUNCTIONS)
    ]
    body = "\n".join(lines)
    Path(file).write_text(
        f'#include <cuda_fp16.h>\nextern "C" __global__ void k(half* x, half* y, half* z, int n) {{\n'
        f"const int t = threadIdx.x;\n{body}\n}}\n"
    )
    x = np.linspace(0.02, 3.0, COUNT).astype(np.float16)
    y, z = np.zeros((2, len(FUNCTIONS), COUNT), np.float16)
    run = weft.VirtualGPU().launch(weft.compile_cuda(str(file)), "k", 1, COUNT, [x, y, z, COUNT])
    assert not run.findings
    return x, y, z


@pytest.mark.parametrize(("at", "name"), list(enumerate(FUNCTIONS)))
def test_half_functions_are_within_an_ulp(at: int, name: str, results: tuple[np.ndarray, ...]) -> None:
    x, y, z = results
    want = FUNCTIONS[name](x.astype(np.float64)).astype(np.float16)
    for got in (y[at], z[at]):
        assert np.abs(got - want).max() <= np.spacing(np.abs(want)).max()
        assert (np.abs(got.view(np.int16).astype(int) - want.view(np.int16)) <= 1).all()
