"""`python -m weft.cli.launch_once RUNG SHAPE DTYPE MASK ENCODING`: run a kernel once on the GPU, for a profiler."""

import sys

from weft.attention.shapes import shape as shape_of
from weft.engines.cuda_device import require_gpu
from weft.engines.cuda_gpu import CudaGPU
from weft.judge.judge import judge
from weft.judge.local_runs import EngineRuns
from weft.judge.select import find_candidate
from weft.tasks.task import Workload


def main(arguments: list[str]) -> int:
    """Return 0 if the outputs are correct."""
    target, shape, dtype, mask, encoding = arguments
    gpu = CudaGPU(require_gpu())
    candidate, supports = find_candidate(target, task=None, arch=gpu.arch)
    workload = Workload(shape_of(shape), dtype, mask, "unit_normal", 0, encoding)
    return 0 if judge(EngineRuns(candidate, gpu), supports.task, workload).verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
