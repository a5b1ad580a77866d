"""Generated C++ functions give the same bits on the virtual GPU and on the host; `benchmarks/differential.py`: more."""

import os
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.differential import compare as comparison
from tests.differential.generate import generate
from tests.differential.operations import TYPES

RELEASE, DEBUG = 32, 12


@pytest.fixture(autouse=True)
def host_compiler() -> None:
    if comparison.host_compiler() is None:
        missing = "g++ is not installed: it is what the virtual GPU is compared with"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}; CI must have it")
        pytest.skip(missing)


def test_release_builds_equal_the_host(tmp_path: Path) -> None:
    assert comparison.compare(range(RELEASE), tmp_path) == []


def test_debug_builds_equal_the_host(tmp_path: Path) -> None:
    assert comparison.compare(range(DEBUG), tmp_path, builds=[True]) == []


def test_a_wrong_bit_is_detected(tmp_path: Path) -> None:
    function = generate(0)
    expected = comparison._on_host(comparison._compile_host([function], tmp_path), function)
    expected[100, function.outputs - 1] ^= np.uint64(1)
    device = comparison._compile_device([function], debug=False)
    message = comparison._compare_on_gpu(expected, function, weft.VirtualGPU(), device)
    assert f"output {function.outputs - 1}" in message


def test_functions_are_the_same_every_time_and_have_everything() -> None:
    functions = [generate(seed) for seed in range(100)]
    assert functions == [generate(seed) for seed in range(100)]
    text = "".join(function.text for function in functions)
    for part in (*TYPES, "if (", "for (", "do {", "switch (", "break", "continue", "return", "__hfma(", "sqrt("):
        assert part in text, part
    assert any(f"= g{function.seed}_0(" in function.text for function in functions), "calls"
