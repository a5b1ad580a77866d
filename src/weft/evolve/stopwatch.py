"""Scores from times on a real GPU: every child is timed with its parent, and again before it may be an elite.

This has not been run on hardware; tests use a stand-in that records the calls to a device.
"""

import secrets
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from weft.bench.contender import KernelContender
from weft.bench.measure import BenchSettings, Cache
from weft.bench.run import bench
from weft.engines.cuda_gpu import CudaGPU
from weft.judge.select import find_candidate
from weft.supervise.records import CandidateSource, ScoreOn
from weft.tasks.task import Workload

DRAWS = 3


@dataclass(frozen=True)
class Timing:
    """The times of rounds with parent and child."""

    microseconds: float
    """Median of the child."""
    ratio: float
    """Median over the rounds of child time divided by parent time. 1 for the start."""
    ratio_high: float
    """The upper end of its confidence interval."""
    wrong: str
    """What is wrong with its outputs on the GPU; empty if they are correct."""

    def record(self) -> list[Any]:
        return [self.microseconds, self.ratio, self.ratio_high, self.wrong]


class Stopwatch(Protocol):
    """Times candidates."""

    def time(self, child: CandidateSource, parent: CandidateSource | None) -> Timing:
        """Time both in the same rounds; a start has no parent and is timed alone."""
        ...


@dataclass(frozen=True)
class GpuStopwatch:
    """Times on a CUDA GPU, with inputs in L2 as the estimate assumes."""

    gpu: CudaGPU
    task: str
    score_on: ScoreOn
    rounds: BenchSettings

    def time(self, child: CandidateSource, parent: CandidateSource | None) -> Timing:
        from weft.attention.shapes import shape

        on = self.score_on
        with tempfile.TemporaryDirectory() as folder:
            sources = {"parent": parent, "child": child} if parent is not None else {"child": child}
            found = {}
            for name, source in sources.items():
                path = Path(folder) / f"{name}.cu"
                path.write_text(source.text)
                found[name] = find_candidate(str(path), task=self.task, arch=self.gpu.arch)
            workload = Workload(shape(on.shape), on.dtype, on.mask, on.regime, 0, on.encoding)
            task = found["child"][1].task
            problems = [task.draw(replace(workload, seed=secrets.randbelow(1 << 31))) for _ in range(DRAWS)]
            contenders = [
                KernelContender(name, self.gpu, candidate, task, problems[0]) for name, (candidate, _) in found.items()
            ]
            try:
                result = bench(self.gpu.device, contenders, problems, replace(self.rounds, cache=Cache.WARM))
            finally:
                for contender in contenders:
                    contender.close()
        row = result.rows[-1]
        ratio, high = (row.against.ratio.median, row.against.ratio.high) if row.against is not None else (1.0, 1.0)
        return Timing(1000 * row.time_ms.median, ratio, high, row.wrong)


def time_child(stopwatch: Stopwatch, child: CandidateSource, parent: CandidateSource | None, gain: float) -> Timing:
    """Time once, and again if it would be kept; then the whole interval must be better, so that noise promotes none."""
    first = stopwatch.time(child, parent)
    if parent is None or first.wrong or first.ratio > 1 - gain:
        return first
    again = stopwatch.time(child, parent)
    return replace(again, ratio=max(again.ratio_high, first.ratio))
