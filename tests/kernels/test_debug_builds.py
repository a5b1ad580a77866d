"""Every CUDA kernel of the suite as its -G build: the same verdict, and without contraction the same bits.

A debug build has calls, generic addresses and its locals in memory; it is another program that computes the same.
"""

import numpy as np
import pytest

import weft
from tests.kernels.case import CUDA_FOLDER, Case, Cuda
from tests.kernels.cases import CASES
from tests.kernels.test_kernels import run_case
from weft.core.errors import Unsupported
from weft.core.records import Binary

REFUSED = "pipelines.cu"
"""libcu++ calls through function pointers in debug builds."""


def _one_per_kernel() -> list[Case]:
    """The last case of every kernel, whatever its template arguments; `benchmarks/debug_builds.py` runs all."""
    chosen = {
        (case.source.file, *(entry.partition("<")[0] for entry in case.source.entries)): case
        for case in CASES
        if isinstance(case.source, Cuda) and case.source.file != REFUSED
    }
    return list(chosen.values())


def build(source: Cuda, *, debug: bool) -> Binary:
    return weft.compile_cuda(
        CUDA_FOLDER / source.file, arch=source.arch, defines=source.defines, entries=source.entries, debug=debug,
        fmad=False,
    )  # fmt: skip


@pytest.mark.parametrize("case", _one_per_kernel(), ids=lambda case: case.name)
def test_the_debug_build_computes_the_same(case: Case) -> None:
    pytest.importorskip("torch")
    same_bits(case)


def same_bits(case: Case) -> None:
    """Run both builds of a case; each is held against what must come out, and they against each other."""
    assert isinstance(case.source, Cuda)
    optimised, debug = (run_case(case, build(case.source, debug=debug)) for debug in (False, True))
    for name, values in optimised.items():
        np.testing.assert_array_equal(debug[name].view(np.uint8), values.view(np.uint8), name)


def test_calls_through_pointers_are_refused_with_the_line() -> None:
    binary = build(Cuda(REFUSED, ("exchanged",)), debug=True)
    with pytest.raises(Unsupported, match=r"PTX line \d+: indirect call"):
        weft.VirtualGPU().launch(binary, "exchanged", 1, 128, [np.zeros(128, np.int32), np.zeros(128, np.int32)])
