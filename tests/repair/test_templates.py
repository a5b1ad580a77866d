"""Each template undoes its kind of mistake: the edited kernel computes what numpy says it should."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from weft.engines.kernel_file import load
from weft.engines.launch import Launch
from weft.engines.virtual import VirtualGPU
from weft.ptx.parse import parse
from weft.repair.edits import Edit, edits_of
from weft.repair.switched import CHOICE, switched

SOURCE = """// weft: sizes N=64
// weft: in x : f32[N] = normal
// weft: out y : f32[11, N]
// weft: launch values(x, y, 48, 3.0) grid(1) block(64)
__global__ void values(const float* x, float* y, int n, float factor) {
    int i = threadIdx.x;
    int column = i % 8, row = i / 8;
    float a = x[i];
    if (i < n) y[i] = fmaxf(a, 0.5f);
    y[64 + i] = truncf(a);
    y[128 + i] = a;
    y[192 + column * 8 + row] = a;
    y[256 + i] = __shfl_down_sync(0xffffffffu, a, 1);
    int head = i;
    y[320 + i] = x[head];
    y[384 + i] = 0.0f;
    y[448 + i] = expf(a);
    y[512 + i] = exp2f(a);
    y[576 + i] = log2f(a * a);
    float count = 0.0f;
    for (int j = 0; j < 128; j += 64) count += 1.0f;
    y[640 + i] = count;
}
"""
N, LIMIT = 64, 48
Expected = Callable[[np.ndarray], np.ndarray]
TRIED: dict[tuple[int, str], tuple[int, Expected]] = {
    (9, "fmaxf → min"): (0, lambda x: np.where(np.arange(N) < LIMIT, np.minimum(x, np.float32(0.5)), -1)),
    (10, "without the call of truncf"): (1, lambda x: x),
    (11, "the value times log2(e)"): (2, lambda x: x * np.float32(math.log2(math.e))),
    (11, "the value times another variable"): (2, lambda x: x * np.float32(3.0)),
    (11, "= → +="): (2, lambda x: x + np.float32(-1.0)),
    (11, "only below a limit of other lines"): (2, lambda x: np.where(np.arange(N) < LIMIT, x, -1)),
    (12, "two variables exchanged"): (3, lambda x: x),
    (13, "__shfl_down_sync → shfl.bfly"): (4, lambda x: x[np.arange(N) ^ 1]),
    (15, "a variable divided by HQ / HKV"): (5, lambda x: x[np.arange(N) // 2]),
    (16, "0 → -inf"): (6, lambda x: np.full(N, -np.inf)),
    (17, "expf with the other base"): (7, np.exp2),
    (18, "exp2f with the other base"): (8, np.exp),
    (19, "log2f with the other base"): (9, lambda x: np.log(x * x)),
    (21, "64 → 32"): (10, lambda x: np.full(N, 128 / 32)),
}
"""Source line and words of an edit → the row of y that changes, and its values. Every row is -1 before."""


@pytest.fixture(scope="module")
def switchable(tmp_path_factory: pytest.TempPathFactory) -> tuple[VirtualGPU, Launch, list[Edit]]:
    file = tmp_path_factory.mktemp("templates") / "values.cu"
    file.write_text(SOURCE)
    kernel = replace(load(file), debug=True)
    x = np.random.default_rng(0).normal(size=N).astype(np.float32) * 3
    y = np.zeros((11, N), np.float32)
    launch = kernel.bind({"x": x, "y": y}).launches[0]
    text = launch.binary.ptx
    functions = [each for each in parse(text).functions.values() if each.body]
    found = edits_of(text, functions, [str(file.resolve())], {"HQ": 4, "HKV": 2, "SQ": 3, "SKV": 8})
    edits = sorted((each for each in found if (each.place.line, each.words) in TRIED), key=lambda edit: edit.order)
    binary = replace(launch.binary, ptx=switched(text, edits), ptx_digest="templates")
    gpu = VirtualGPU(kernel.gpu, threads=1)
    return gpu, Launch(binary, launch.entry, launch.grid, launch.block, (x, y, LIMIT, 3.0)), edits


def run(switchable: tuple[VirtualGPU, Launch, list[Edit]], number: int) -> np.ndarray:
    gpu, launch, _ = switchable
    y = launch.args[1]
    assert isinstance(y, np.ndarray)
    y[...] = -1
    gpu.reset()
    gpu.set_symbol(launch.binary, launch.entry, CHOICE, np.array([number], np.uint32))
    gpu.run((launch,))
    return y.copy()


@pytest.mark.parametrize(("line", "words"), TRIED)
def test_one_edit_changes_one_row(switchable: tuple[VirtualGPU, Launch, list[Edit]], line: int, words: str) -> None:
    x = switchable[1].args[0]
    assert isinstance(x, np.ndarray)
    row, wanted = TRIED[line, words]
    right = run(switchable, 0)
    assert not np.array_equal(right[row], wanted(x))
    right[row] = wanted(x)
    within = 1e-5 if words.endswith("base") else 0.0  # numpy's functions round in another way
    numbers = [at for at, edit in enumerate(switchable[2], 1) if (edit.place.line, edit.words) == (line, words)]
    assert any(np.allclose(run(switchable, number), right, rtol=within, atol=within) for number in numbers)
