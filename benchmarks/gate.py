"""Tests the correctness gate with kernels written for it: every wrong one must be rejected, every right one must pass.

    python benchmarks/gate.py [--quick] [--before] [--only NAME ...] [--jobs 2]

Each kernel of `gate_corpus.py` is judged in a separate process as plain `weft check` judges it, for at most ten
minutes: a wrong one until the first workload that rejects it, a right one on all workloads. A wrong kernel that is not
rejected within its time is a false pass, a right one that does not pass a false reject: nothing is left undecided.
`--before` judges on the former fixed selection (six shapes, the first type, all masks, five regimes, three seeds) and
`--quick` on a few workloads, which only shows that the benchmark runs. Seconds are CPU seconds, because
other work on the machine does not change them; compare runs with the compiler's cache in the same state.
The last line is one JSON object.
"""

import argparse
import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.gate_corpus import right_kernels, wrong_kernels
from weft.core.errors import WeftError
from weft.core.status import Status
from weft.engines.kernel_file import MAX_STEPS
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy, call_of
from weft.judge.judging import LIMITS, Judging
from weft.judge.local_runs import LocalRuns
from weft.judge.runs import Watch
from weft.judge.select import Choice, Supports, find_candidate, followed, hide_seeds, plan
from weft.judge.verdict import Verdict, conclude
from weft.kernels.ladder import MASKS
from weft.tasks.task import Task, Workload

SECONDS = 600
"""Wall-clock limit of one kernel."""
SHOWN = 100
"""Characters of a message in the table."""
FORMER = Choice(
    shapes=("small", "ragged", "d48", "gqa_4", "gqa_4_ragged", "few_keys"),
    regimes=("unit_normal", "logits_32", "offsets", "sorted_keys", "large_magnitude"),
    masks=MASKS,
    seeds=(0, 1, 2),
)
"""The fixed selection of earlier versions of `weft check`, on the kernel's first type."""
REJECTIONS = frozenset(
    (
        Status.RESOURCE_ERROR,
        Status.UNSAFE,
        Status.INCORRECT_SHAPE,
        Status.INCORRECT_DTYPE,
        Status.INCORRECT_NUMERICAL,
        Status.NONDETERMINISTIC,
        Status.TIMEOUT,
    )
)
"""If a wrong kernel does not compile, or crashes with its judge, the gate has not found it."""
QUICK = Choice(shapes=("small", "few_keys"), regimes=("unit_normal",), seeds=(0,))


UNREACHED = {
    "wrong/knows_the_test.compiler": "what NVRTC compiles of it is right; X404 names the line",
    "wrong/knows_the_test.addresses": "it is right wherever the virtual GPU places memory; K503 names the line",
}
"""Wrong kernels that no run finds, and what is reported to the user."""


@dataclass(frozen=True)
class Job:
    """One kernel to be judged."""

    name: str
    path: str
    right: bool
    defines: Mapping[str, str] = field(default_factory=dict)
    """The macros that switch on the bug of a wrong one."""
    selection: str = "plain"
    """`plain`, `before` or `quick`."""


@dataclass(frozen=True)
class Row:
    """The gate's verdict on one kernel."""

    name: str
    right: bool
    status: str
    message: str
    workloads: int = 0
    """Number of judged workloads, including the one that rejects it."""
    planned: int = 0
    seconds: float = 0.0
    """CPU seconds until the kernel was rejected or passed."""

    @property
    def rejected(self) -> bool:
        """Return whether the gate rejected the kernel because of its results."""
        return bool(self.workloads) and self.status in REJECTIONS

    @property
    def expected(self) -> bool:
        """Return whether a wrong kernel was rejected, or a right one passed."""
        return self.status == Status.PASSED if self.right else self.rejected


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the corpus, print a row per kernel and the totals. Returns 1 if a verdict is false."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few workloads per kernel")
    parser.add_argument("--before", action="store_true", help="the former selection")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="kernels by name, such as right/two_pass")
    parser.add_argument("--jobs", type=int, default=2, help="kernels judged at once")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is not None:
        print(json.dumps(asdict(judge_one(Job(**json.loads(options.one))))))
        return 0
    selection = "quick" if options.quick else "before" if options.before else "plain"
    chosen = list(jobs(selection))
    unknown = sorted(set(options.only) - {job.name for job in chosen})
    if unknown:
        parser.error(f"no kernel is named {', '.join(unknown)}")
    os.environ.setdefault("WEFT_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    rows = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(in_a_process, (job for job in chosen if job.name in options.only or not options.only)):
            rows.append(row)
            print(table_line(row), flush=True)
    print(json.dumps(report(rows)))
    return 0 if all(row.expected or row.name in UNREACHED for row in rows) else 1


def jobs(selection: str) -> Iterator[Job]:
    """Return every kernel of the corpus: the wrong ones first, because they end sooner."""
    for wrong in wrong_kernels():
        name = f"{wrong.design.parent.name}/{wrong.design.stem}.{wrong.name}"
        yield Job(name, str(wrong.design), False, {"WRONG": str(wrong.number)}, selection)
    for path in right_kernels():
        yield Job(f"{path.parent.name}/{path.stem}", str(path), True, selection=selection)


def in_a_process(job: Job) -> Row:
    """Judge a kernel in a separate process, which is ended after the time limit."""
    command = [sys.executable, __file__, "--one", json.dumps(asdict(job))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except subprocess.TimeoutExpired:
        return Row(job.name, job.right, str(Status.TIMEOUT), f"not judged within {SECONDS} s")
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        return Row(job.name, job.right, str(Status.CRASHED), f"the judge's process died: {last[0]}")
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def judge_one(job: Job) -> Row:
    """Judge a kernel in this process: a wrong one until it is rejected, a right one on all workloads."""
    try:
        candidate, supports = find_candidate(job.path, task=None)
    except WeftError as error:
        return Row(job.name, job.right, str(Status.REJECTED), str(error))
    candidate = replace(candidate, defines=dict(job.defines))
    choice = choice_of(job.selection, supports)
    todo = plan(supports, choice)
    if job.selection == "plain":
        todo = hide_seeds(todo, secrets.randbelow(1 << 31))
    follow, policy = (
        followed(supports, choice),
        Policy(stop=not job.right, limits=LIMITS if job.selection == "plain" else ()),
    )
    judging = Judging(LocalRuns(candidate), supports.task, todo, policy, follow=follow)
    verdicts: list[Verdict] = [judged.verdict for judged in judging]
    concluded = conclude(verdicts, len(judging.todo))
    return Row(
        job.name,
        job.right,
        str(concluded.status),
        concluded.message if concluded.failure is None else f"{concluded.failure.label}: {concluded.message}",
        concluded.judged,
        concluded.planned,
        round(_cpu_seconds(), 2),
    )


def choice_of(selection: str, supports: Supports) -> Choice:
    """Return the choice of workloads; plain `weft check` makes no choice."""
    if selection == "before":
        return replace(FORMER, dtypes=supports.dtypes[:1])
    return QUICK if selection == "quick" else Choice()


def report(rows: Sequence[Row]) -> dict[str, object]:
    """Return the totals."""
    wrong, right = ([row for row in rows if row.right is kind] for kind in (False, True))
    return {
        "wrong": len(wrong),
        "false_passes": [row.name for row in wrong if not row.expected and row.name not in UNREACHED],
        "unreached": {row.name: UNREACHED[row.name] for row in wrong if not row.expected and row.name in UNREACHED},
        "right": len(right),
        "false_rejects": [
            {"name": row.name, "status": row.status, "message": row.message} for row in right if not row.expected
        ],
        "first_red_seconds_median": _median([row.seconds for row in wrong if row.expected]),
        "first_red_workloads_median": _median([row.workloads for row in wrong if row.expected]),
        "right_seconds_median": _median([row.seconds for row in right if row.expected]),
        "coverage_cost": coverage_cost() if len(rows) > 1 else None,
    }


def coverage_cost(rounds: int = 9) -> float:
    """Return the share of CPU time that coverage adds to a check, the median of interleaved rounds over three rungs.

    A round runs a launch with the marks of branches compiled in, and without; the time to parse the kernel and to read
    the lines of its source, once per check, is added in full to a check of the length that the launches represent.
    """
    ratios = []
    with tempfile.TemporaryDirectory() as cache:
        for name in ("scalar", "wmma", "pipelined"):
            candidate, supports = find_candidate(name, task=None)
            todo = plan(supports, Choice(dtypes=supports.dtypes[:1], seeds=(0,)))
            without = _prepared(candidate, supports.task, todo[0], cache)
            runs, call = LocalRuns(candidate), call_of(supports.task, supports.task.draw(todo[0]))
            marked = partial(runs.run, call, WATCH)
            marked()
            times = [(_seconds(marked), _seconds(without)) for _ in range(rounds)]
            marks = statistics.median(with_marks / plain for with_marks, plain in times)
            once = _seconds(runs.coverage)
            check = statistics.median(plain for _, plain in times) * 3 * len(todo)  # a run is repeated twice
            ratios.append(marks - 1 + once / check)
    return round(max(ratios), 4)


WATCH = Watch(("all",), MAX_STEPS)


def _prepared(candidate: Candidate, task: Task, workload: Workload, cache: str) -> Callable[[], object]:
    """Run the kernel without marks of branches, from a separate cache, because the key does not contain this choice."""
    runs, call = LocalRuns(candidate), call_of(task, task.draw(workload))
    with (
        mock.patch.dict(os.environ, {"WEFT_CACHE": cache}),
        mock.patch("weft.ptx.passes.kernel_passes.find_hidden_ways", lambda cfg: frozenset()),
    ):
        runs.run(call, WATCH)
    return partial(runs.run, call, WATCH)


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def table_line(row: Row) -> str:
    """Return the row of one kernel, with the message if the verdict is not the expected one."""
    kind, mark = "right" if row.right else "wrong", "" if row.expected else "  FALSE "
    judged = f"{row.workloads} of {row.planned} workloads"
    return f"{row.name:42} {kind}  {row.status:20} {judged:22} {row.seconds:6.1f} s{mark}" + (
        "" if row.expected else row.message[:SHOWN]
    )


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 2) if values else None


def _cpu_seconds() -> float:
    """Return the CPU time of this process and the compilers it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    sys.exit(main())
