"""Every example runs unmodified."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import weft

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda script: script.stem)
def test_script(script: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    needs_triton = "import triton" in script.read_text()
    if needs_triton and find_spec("triton") is None:
        assert done.stdout == "Triton is not installed: pip install 'weft-gpu[triton]'\n"
    else:
        assert "warp instructions" in done.stdout


def test_scripts_are_short() -> None:
    for script in EXAMPLES.glob("*.py"):
        assert len(script.read_text().splitlines()) <= 45, script.name


@pytest.mark.parametrize(("rows", "columns"), [(37, 100), (1, 1), (5, 33)])
def test_softmax(rows: int, columns: int) -> None:
    run, arrays = weft.load(EXAMPLES / "softmax.cu").run(weft.VirtualGPU(), sizes={"ROWS": rows, "COLUMNS": columns})
    x = arrays["x"].astype(np.float64)
    weights = np.exp(x - x.max(1, keepdims=True))
    assert run.clean
    # expf has 2 ulp, the sum of up to 100 terms in a tree of 9 levels 9 roundings, the division 1 ulp.
    np.testing.assert_allclose(arrays["out"], weights / weights.sum(1, keepdims=True), rtol=20 * 2.0**-24)


@pytest.mark.parametrize("S", [1, 32, 77])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(S: int, causal: int) -> None:
    run, arrays = weft.load(EXAMPLES / "attention.cu").run(weft.VirtualGPU(), sizes={"S": S, "causal": causal}, seed=S)
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores[..., np.triu(np.ones((S, S), bool), k=1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights @ v / weights.sum(-1, keepdims=True)
    assert run.clean and run.entries == (f"attention<32, {'true' if causal else 'false'}>",)
    # O is rounded to fp16: half an ulp is 2^-11 of |O| < 4.5; the fp32 arithmetic before it is far finer.
    np.testing.assert_allclose(arrays["o"].astype(np.float64), expected, rtol=2.0**-11, atol=1e-5)
