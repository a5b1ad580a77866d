"""Judge a bundle with the supervisor: its untrusted kernel runs in a child process and is judged here."""

import hashlib
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import llvmlite
import ml_dtypes
import numpy as np

import weft
from weft.core.errors import UsageError
from weft.core.status import Status
from weft.judge.verdict import Verdict
from weft.supervise.key import judge_version
from weft.supervise.records import Evaluation, Limits
from weft.supervise.supervisor import Supervisor
from weft.tasks.registry import TASKS
from weft.tasks.task import Outputs
from weft.toolchain import cuda_headers, nvrtc
from weft.vm.jit import host

from .records import Answer, Bundle

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ReplayTerms:
    """How a bundle is judged here."""

    seconds: float = 600.0
    """Time limit of the kernel, all workloads together."""
    trust_task: bool = False
    """Whether the bundle's task, which is Python code, may run."""
    isolation: int = 0
    """The lowest isolation level that is accepted."""


def answer(bundle: Bundle, terms: ReplayTerms, progress: Progress) -> Answer:
    """Judge the bundle on this machine and return the answer."""
    if not bundle.task_text:
        if bundle.task not in TASKS:
            known = ", ".join(TASKS)
            raise UsageError(
                f"the bundle's task is {bundle.task!r}, which this version of Weft does not have ({known})"
            )
        return _answer(bundle, bundle.task, terms, progress)
    if not terms.trust_task:
        raise UsageError(
            "the bundle contains task.py, which is Python code and would run with your permissions: "
            "read it (unzip -p FILE task.py), then add --trust-task"
        )
    with TemporaryDirectory() as folder:
        file = Path(folder) / "task.py"
        file.write_text(bundle.task_text)
        return _answer(bundle, str(file), terms, progress)


def _answer(bundle: Bundle, task: str, terms: ReplayTerms, progress: Progress) -> Answer:
    outputs: dict[str, dict[str, str]] = {}

    def seen(verdict: Verdict, arrays: Outputs) -> None:
        outputs[str(verdict.workload)] = {name: _digest(arrays, name) for name in sorted(arrays)}

    request = replace(bundle.request(task), isolation=terms.isolation)
    limits = Limits(wall_seconds=terms.seconds, cpu_seconds=max(1, int(4 * terms.seconds)))
    with Supervisor(limits) as supervisor:
        code = supervisor.canonical_ptx(request)
        found = supervisor.evaluate(request, progress=progress, seen=seen)
    if Status.LOST in (code.status, found.status):
        raise UsageError(f"the judgement was interrupted: {found.message or code.message}; try again")
    return Answer(
        status=found.status,
        message=found.scope.noted(found.message),
        judged=found.judged,
        planned=found.planned,
        failure=found.failure,
        ptx=code.digest or "",
        outputs=outputs,
        estimate=_estimate(found),
    )


def _estimate(found: Evaluation) -> tuple[float, float] | None:
    return (found.profile.est_low, found.profile.est_high) if found.profile is not None else None


def _digest(arrays: Outputs, name: str) -> str:
    array = arrays[name]
    digest = hashlib.sha256(f"{array.dtype} {array.shape} ".encode())
    digest.update(array.tobytes())
    return digest.hexdigest()


def environment() -> dict[str, str]:
    """Return what an answer depends on outside the bundle: this machine and installation, without user or host."""
    return {
        "weft": weft.__version__,
        "judge": judge_version()[:16],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "llvmlite": llvmlite.__version__,
        "compiler": nvrtc.version(),
        "headers": cuda_headers.fingerprint()[:16],
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": host()[0],
    }
