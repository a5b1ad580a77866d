"""Runs every CUDA C++ case of the kernel suite as -G build: the same verdict and, without contraction, the same bits.

    python -m benchmarks.debug_builds

CI runs one case per kernel (tests/kernels/test_debug_builds.py); this runs them all, and the pipelines take
minutes each.
"""

import time

from tests.kernels.case import Cuda
from tests.kernels.cases import CASES
from tests.kernels.test_debug_builds import same_bits


def main() -> None:
    """Print one line per case; raise at the first that differs."""
    for case in CASES:
        if isinstance(case.source, Cuda):
            began = time.perf_counter()
            same_bits(case)
            print(f"{case.name}\tsame\t{time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
