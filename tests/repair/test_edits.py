"""Edits of a -G build: each takes effect alone, at the line of the source that it names."""

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
// weft: out y : i32[N]
// weft: launch numbers(y, N) grid(1) block(64)
__device__ int twice(int x) {
    return x + x;
}
__global__ void numbers(int* y, int n) {
    int i = threadIdx.x;
    int start = 5;
    if (i < n) y[i] = twice(i) * 3 - start;
}
"""
TRIED = {
    (9, "5 → 4"): lambda i, n: 6 * i - 4,
    (9, "5 → 0"): lambda i, n: 6 * i,
    (10, "3 → 2"): lambda i, n: 4 * i - 5,
    (10, "- → +"): lambda i, n: 6 * i + 5,
    (10, "without the first operand of -"): lambda i, n: np.full_like(i, 5),
    (5, "+ → -"): lambda i, n: np.full_like(i, -5),
    (10, "< → <="): lambda i, n: 6 * i - 5,
}
"""Source line and words of an edit → what the kernel then computes for i < n."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[VirtualGPU, Launch, list[Edit], np.ndarray]:
    file = tmp_path_factory.mktemp("edits") / "numbers.cu"
    file.write_text(SOURCE)
    kernel = replace(load(file), debug=True)
    y = np.zeros(64, np.int32)
    launch = kernel.bind({"y": y}).launches[0]
    text = launch.binary.ptx
    functions = [each for each in parse(text).functions.values() if each.body]
    edits = sorted(edits_of(text, functions, [str(file.resolve())]), key=lambda edit: edit.order)
    binary = replace(launch.binary, ptx=switched(text, edits), ptx_digest="switched")
    gpu = VirtualGPU(kernel.gpu, threads=1)
    return gpu, Launch(binary, launch.entry, launch.grid, launch.block, (y, 48)), edits, y


def run(compiled: tuple[VirtualGPU, Launch, list[Edit], np.ndarray], number: int) -> np.ndarray:
    gpu, launch, _, y = compiled
    y[:] = -1
    gpu.reset()
    gpu.set_symbol(launch.binary, launch.entry, CHOICE, np.array([number], np.uint32))
    gpu.run((launch,))
    return y.copy()


def test_without_a_choice_the_kernel_is_unchanged(compiled: tuple[VirtualGPU, Launch, list[Edit], np.ndarray]) -> None:
    i = np.arange(64)
    assert np.array_equal(run(compiled, 0), np.where(i < 48, 6 * i - 5, -1))


@pytest.mark.parametrize(("line", "words"), TRIED)
def test_one_edit_takes_effect(
    compiled: tuple[VirtualGPU, Launch, list[Edit], np.ndarray], line: int, words: str
) -> None:
    i = np.arange(64)
    reach = 49 if words == "< → <=" else 48
    wanted = np.where(i < reach, TRIED[line, words](i, reach), -1)
    numbers = [at for at, edit in enumerate(compiled[2], 1) if (edit.place.line, edit.words) == (line, words)]
    assert any(np.array_equal(run(compiled, number), wanted) for number in numbers), len(numbers)


def test_a_variable_takes_the_place_of_another(compiled: tuple[VirtualGPU, Launch, list[Edit], np.ndarray]) -> None:
    """`- start` with the parameter n in place of start."""
    i = np.arange(64)
    numbers = [at for at, edit in enumerate(compiled[2], 1) if edit.place.line == 10 and "variable" in edit.words]
    wanted = np.where(i < 48, 6 * i - 48, -1)
    assert any(np.array_equal(run(compiled, number), wanted) for number in numbers), len(numbers)


def test_every_edit_has_its_own_key(compiled: tuple[VirtualGPU, Launch, list[Edit], np.ndarray]) -> None:
    keys = [edit.key for edit in compiled[2]]
    assert len(set(keys)) == len(keys) > 30
