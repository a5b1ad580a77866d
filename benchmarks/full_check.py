"""Every rung of the ladder on every shape of its task × all regimes × three seeds, as `weft check` judges them.

Masks, types and encodings take turns over regimes and seeds, so that each is combined with every shape and regime. From
S = 2048 on, some CTAs of each workload run (at least eight), and one workload per rung and shape runs completely.

    python benchmarks/full_check.py --results full_check.jsonl

Every verdict is written to the file at once; a run with the same file and the same sources continues there.
The last line is one JSON object: workloads, passed and minutes of work, per rung and in total.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import weft
from weft.attention.shapes import shape
from weft.judge.judge import check
from weft.judge.select import find_candidate
from weft.judge.verdict import Verdict
from weft.kernels.ladder import RUNGS
from weft.tasks.task import Axes, Workload

LARGE = 2048
"""From this many queries on, workloads are sampled."""


@dataclass(frozen=True)
class Job:
    """One workload of one rung."""

    rung: str
    shape: str
    dtype: str
    mask: str
    encoding: str
    regime: str
    seed: int
    sampled: bool
    task: str | None = None
    """None: the rung's own."""

    @property
    def workload(self) -> Workload:
        return Workload(shape(self.shape), self.dtype, self.mask, self.regime, self.seed, self.encoding)


def jobs(rung: str, seeds: int, task: str | None = None) -> Iterator[Job]:
    """Return all workloads of a rung on its task, or on another one that it computes."""
    _, supports = find_candidate(rung, task=task)
    every = supports.task.workloads
    axes = replace(every, dtypes=supports.dtypes, masks=supports.masks, encodings=supports.encodings).within(every)
    for at_shape, name in enumerate(axes.shapes):
        large = max(shape(name).sq, shape(name).skv) >= LARGE
        for at_regime, regime in enumerate(axes.regimes):
            for seed in range(seeds):
                dtype, mask, encoding = _turn(axes, at_shape, at_regime, seed)
                dtype = dtype if supports.takes_values(regime, dtype) else supports.dtypes[0]
                job = Job(rung, name, dtype, mask, encoding, regime, seed, large and (at_regime, seed) != (0, 0), task)
                if supports.takes_workload(job.workload):
                    yield job


def _turn(axes: Axes, at_shape: int, at_regime: int, seed: int) -> tuple[str, str, str]:
    dtypes, masks, encodings = axes.dtypes, axes.masks, axes.encodings
    return (
        dtypes[(at_regime // len(masks) + seed + at_shape) % len(dtypes)],
        masks[(at_regime + seed) % len(masks)],
        encodings[(at_regime + at_shape + seed) % len(encodings)],
    )


def run(job: Job) -> tuple[Job, Verdict]:
    """Judge one workload in a process of the pool."""
    candidate, supports = find_candidate(job.rung, task=job.task)
    return job, check(candidate, supports.task, job.workload, sampled=job.sampled)


def record(job: Job, verdict: Verdict, sources: str) -> dict[str, object]:
    """Return one line of the results."""
    return {
        "job": asdict(job),
        "sources": sources,
        "status": str(verdict.status),
        "message": verdict.message,
        "seconds": round(verdict.seconds, 3),
        "ctas_left_out": verdict.ctas_left_out,
        "ratio": max((gate.ratio for gate in verdict.gates), default=None),
        "bias": {name: part.bias for name, part in verdict.parts.items()},
        "max": {name: part.max for name, part in verdict.parts.items()},
    }


def digest() -> str:
    """Return the digest of everything that decides a verdict: with a changed source the run starts again."""
    root = Path(weft.__file__).parent
    total = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".cu", ".h", ".cuh")):
        total.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return total.hexdigest()[:16]


def read(results: Path, sources: str) -> dict[Job, dict[str, object]]:
    """Return the rows that were already judged with these sources."""
    if not results.exists():
        return {}
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return {Job(**line["job"]): line for line in lines if line["sources"] == sources}


def summary(lines: list[Mapping[str, object]]) -> dict[str, object]:
    """Return workloads, passed, minutes, and quantisation errors per regime if there are any."""
    passed = [line for line in lines if line["status"] == "PASSED"]
    minutes = sum(float(str(line["seconds"])) for line in lines) / 60
    return {"workloads": len(lines), "passed": len(passed), "minutes": round(minutes, 1)}


def main() -> int:
    """Run the remaining workloads and print the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rungs", default=",".join(RUNGS))
    parser.add_argument("--task", default=None, help="judge the rungs on this task (default: each on its own)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("full_check.jsonl"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--every", type=int, default=1, help="judge every Nth workload; 5 meets all shapes and regimes")
    parser.add_argument("--most", type=int, default=None, help="stop after so many workloads")
    chosen = parser.parse_args()
    os.environ.setdefault("WEFT_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sources = digest()
    rungs = [list(jobs(rung, chosen.seeds, chosen.task)) for rung in chosen.rungs.split(",")]
    everything = [job for rung in rungs for job in rung[:: chosen.every]]
    done = read(chosen.results, sources)
    todo = [job for job in everything if job not in done][: chosen.most]
    print(f"{len(everything)} workloads, {len(everything) - len(todo)} of them judged before", file=sys.stderr)
    with multiprocessing.get_context("spawn").Pool(chosen.jobs) as pool, chosen.results.open("a") as file:
        for count, (job, verdict) in enumerate(pool.imap_unordered(run, todo), start=1):
            done[job] = record(job, verdict, sources)
            print(json.dumps(done[job]), file=file, flush=True)
            if not verdict.passed:
                print(f"{job.rung} {job.workload}: {verdict.status} {verdict.message}", file=sys.stderr)
            if count % 100 == 0:
                print(f"{count} of {len(todo)}", file=sys.stderr)
    lines = [done[job] for job in everything if job in done]
    totals = {
        name: summary([done[job] for job in everything if job.rung == name and job in done])
        for name in chosen.rungs.split(",")
    }
    print(json.dumps({"rungs": totals, **summary(lines), "of": len(everything)}))
    return 0 if len(lines) == len(everything) and summary(lines)["passed"] == len(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
