"""Collect what goes into a bundle: a kernel's file, a rung, or a candidate of a search. Nothing runs here."""

import re
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.engines.kernel_file import MAX_STEPS
from weft.engines.launch_lines import read_lines
from weft.evolve.crew import request_for
from weft.evolve.history import FINAL
from weft.evolve.settings import Settings
from weft.judge.select import Choice, not_a_kernel
from weft.kernels.ladder import RUNGS
from weft.store.records import SUPERSEDED
from weft.store.store import Store
from weft.supervise.records import CandidateSource
from weft.tasks.registry import TASKS

from .records import Bundle

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
CANDIDATE = re.compile(r"(\d+):(\d+)")
"""RUN:CANDIDATE, as `weft runs` numbers them."""
UNKNOWN = "not evaluated"
"""The status of a candidate that waits in the queue."""


@dataclass(frozen=True)
class BundleOptions:
    """The workloads that a kernel is judged on."""

    choice: Choice
    task: str | None = None
    chip: str = "l4"
    launch: Path | None = None
    max_steps: int = MAX_STEPS


def from_kernel(target: str, asked: BundleOptions) -> Bundle:
    """Return the bundle of a rung, or of a CUDA or PTX file with launch lines."""
    rung = RUNGS.get(target)
    path = rung.path if rung is not None else Path(target)
    if not path.is_file():
        raise UsageError(f"{not_a_kernel(target)}, nor RUN:CANDIDATE of a search")
    language = {".cu": "cuda", ".ptx": "ptx"}.get(path.suffix)
    if language is None:
        raise UsageError(
            f"{target} is not a CUDA C++ or PTX file. A Triton kernel is Python code, which would run on the machine "
            "that replays it: bundle its PTX (weft show --as ptx) with its launch lines"
        )
    text = path.read_text()
    task, task_text = _task(asked.task or (rung.task if rung is not None else "sdpa"))
    launch = asked.launch or path.with_suffix(".launch")
    launch_text = launch.read_text() if language == "ptx" and launch.is_file() else ""
    if rung is None:
        _refuse_other_files(path, text, launch_text)
    return Bundle(
        name=path.name,
        source=CandidateSource(text, language, launch_text),
        task=task,
        task_text=task_text,
        choice=asked.choice,
        chip=asked.chip,
        rung=target if rung is not None else None,
        score=None,
        debug_build=True,
        max_steps=asked.max_steps,
    )


def from_search(store: Store, run: int, candidate: int) -> Bundle:
    """Return the bundle of a candidate, with the workloads of its search; of a winner, all workloads."""
    row = store.candidate(candidate)
    if row.run_id != run:
        raise UsageError(
            f"candidate {candidate} belongs to run {row.run_id}, not to run {run}: see weft runs show {run}"
        )
    settings = Settings.from_record(store.run(run).settings)
    evaluations = [each for each in store.evaluations(run) if each.candidate_id == candidate]
    final = any(each.request.get("for") == FINAL for each in evaluations)
    request = request_for(store, row, settings, FINAL if final else "search")
    status = next((each.status for each in reversed(evaluations) if each.status not in (None, SUPERSEDED)), None)
    task, task_text = _task(request.task)
    origin = {"run": str(run), "candidate": str(candidate), "status": str(status or UNKNOWN)}
    return Bundle(
        name=f"run {run}, candidate {candidate}",
        source=request.source,
        task=task,
        task_text=task_text,
        choice=request.choice,
        chip=request.chip,
        rung=request.rung,
        score=request.score,
        debug_build=request.debug_build,
        max_steps=request.max_steps,
        origin=origin,
    )


def _task(name: str) -> tuple[str, str]:
    """Return the task's name, and its text if it is a file."""
    if name in TASKS:
        return name, ""
    path = Path(name)
    if path.suffix != ".py" or not path.is_file():
        known = f"{', '.join(TASKS)}, or a Python file that defines TASK"
        raise UsageError(f"task {name!r}{did_you_mean(name, TASKS)}: use one of {known}")
    return path.name, path.read_text()


def _refuse_other_files(path: Path, text: str, launch: str) -> None:
    """Refuse a kernel that includes or links local files: they would be missing on another machine."""
    if read_lines(f"{launch}\n{text}", str(path)).links:
        raise UsageError(
            f"{path} has link lines, but a bundle has one source file: bundle the PTX of the linked program "
            "(weft show --as ptx) with its launch lines"
        )
    for name in _INCLUDE.findall(text):
        if (path.parent / name).is_file():
            raise UsageError(
                f"{path} includes the local file {name}, but a bundle has one source file: paste it into the kernel"
            )
