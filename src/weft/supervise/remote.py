"""The judge's side of a candidate that runs in a child: draws inputs, asks, holds what comes back against the gates.

The decisions are those of `judge/check.py`, in the same order; only the runs are elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weft.attention.errors import ContractError
from weft.core.records import Run
from weft.judge.check import OTHER_SCHEDULES, judged_verdict, unsafe_verdict, wrong_form
from weft.judge.select import Supports
from weft.judge.verdict import Status, Verdict
from weft.tasks.registry import TASKS
from weft.tasks.task import Declared, Outputs, Problem, Task, Workload

from .children import Child, ChildEnded, Ended
from .counted import CountedLaunch
from .disassembler import NEEDED
from .frames import Frame
from .plain import finding_of
from .records import Outcome, Request

MOST_TILE = 4096
"""Of BLOCK_M, BLOCK_N and SPLITS: the emulation follows what a candidate declares, within reason."""


MOST_PROGRAMS = 64
"""Runs of a program that one question may need."""


class NoAnswer(Exception):
    """The child says that the candidate cannot be judged."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome, self.message = outcome, message


@dataclass(frozen=True)
class Counted:
    """A profile's launches, or why there are none."""

    launches: tuple[CountedLaunch, ...]
    why: str
    outputs: Outputs


class Remote:
    """A candidate in a child."""

    def __init__(self, child: Child, request: Request, task: Task, arch: str) -> None:
        self.child, self.request, self.task = child, request, task
        source = request.source
        reply = self._ask(
            {
                "do": "open",
                "text": source.text,
                "language": source.language,
                "launch": source.launch,
                "defines": dict(source.defines),
                "gpu": request.chip,
                "task": request.task,
                "task_text": "" if request.task in TASKS else Path(request.task).read_text(),
                "rung": request.rung,
                "max_steps": request.max_steps,
            }
        )
        with _sense():
            self.macros = _texts(reply.fields["macros"])
            said = reply.fields["supports"]
            only_d = said["only_d"]
            self.supports = Supports(
                task,
                _names(said["dtypes"]),
                _names(said["masks"]),
                _names(said["encodings"]),
                only_d=None if only_d is None else int(only_d),
            )

    def judge(self, workload: Workload) -> tuple[Verdict, Outputs]:
        """One workload, as `weft check` judges it."""
        task, problem = self.task, self.task.draw(workload)
        outputs: Outputs = {}
        try:
            reply = self._ask(self._question("run", problem, tools=["all"]), problem)
            run, outputs = self._run(reply), reply.arrays
            with _sense():
                numbers = _texts(reply.fields["numbers"])
        except NoAnswer as error:
            return _refused(workload, error), outputs
        if not run.clean:
            return unsafe_verdict(workload, run), outputs
        self._require(outputs)
        wrong = wrong_form(outputs, task, problem)
        if wrong is not None:
            return wrong, outputs
        declared = self._declared(numbers)
        for schedule in OTHER_SCHEDULES:  # the child goes on while its first outputs are judged
            self.child.post(Frame({"do": "again", "schedule": schedule}))
        try:
            judged = task.judge(problem, outputs, declared)
        except (ContractError, ValueError) as error:
            raise NoAnswer(Outcome.REJECTED, f"what it declares cannot be emulated: {error}") from error
        verdict = replace(judged_verdict(task, workload, judged, outputs), findings=run.findings)
        if not verdict.passed:
            return verdict, outputs
        for _ in OTHER_SCHEDULES:
            reply = self._checked(self.child.answer())
            shuffled = self._run(reply)
            if not shuffled.clean:
                return unsafe_verdict(workload, shuffled), outputs
            if not same_bits(outputs, reply.arrays):
                message = "another order of CTAs and warps gives other bits"
                return replace(verdict, status=Status.NONDETERMINISTIC, message=message), outputs
        return verdict, outputs

    def judge_debug_build(self, workload: Workload) -> Verdict | None:
        """Initialisation once more in the -G build; None: nothing was found."""
        problem = self.task.draw(workload)
        try:
            run = self._run(self._ask(self._question("debug", problem), problem))
        except NoAnswer as error:
            if error.outcome in (Outcome.COMPILE_ERROR, Outcome.LAUNCH_ERROR, Outcome.UNSUPPORTED):
                message = f"its debug build (-G) cannot be judged: {error.message}"
                return Verdict(workload, Status.UNSUPPORTED, message, debug_build=True)
            raise
        return None if run.clean else replace(unsafe_verdict(workload, run), debug_build=True)

    def count(self, workload: Workload) -> Counted:
        """The counts of a workload that was judged."""
        problem = self.task.draw(workload)
        reply = self._ask(self._question("profile", problem), problem)
        run = self._run(reply)
        if not run.clean:
            raise NoAnswer(Outcome.UNSAFE, str(run.findings[0]))
        with _sense():
            launches = tuple(CountedLaunch.from_record(record) for record in reply.fields["launches"])
            return Counted(launches, str(reply.fields["why"]), reply.arrays)

    def canonical(self, workload: Workload) -> str:
        """The hash of what would be launched."""
        problem = self.task.draw(workload)
        reply = self._ask(self._question("canonical", problem), problem)
        with _sense():
            digest = reply.fields["digest"]
            if not isinstance(digest, str) or len(digest) != 64:
                raise ValueError(f"{digest!r} is no hash")
            return digest

    def diagnosis(self, workload: Workload) -> str:
        """Why it fails, in words. Only in a child of its own: here expected values enter the process."""
        named = {
            "shape": workload.shape.name,
            "dtype": workload.dtype,
            "mask": workload.mask,
            "regime": workload.regime,
            "seed": workload.seed,
            "encoding": workload.encoding,
        }
        reply = self._ask({"do": "diagnose", "workload": named, "task": self.request.task})
        with _sense():
            return str(reply.fields["text"])

    def _question(self, do: str, problem: Problem, **more: Any) -> dict[str, Any]:
        outputs = [output.name for output in self.task.outputs]
        return {"do": do, "defines": problem.defines(), "outputs": outputs, **more}

    def _ask(self, fields: Mapping[str, Any], problem: Problem | None = None) -> Frame:
        reply = self.child.ask(Frame(fields, problem.arrays if problem is not None else {}))
        for _ in range(MOST_PROGRAMS):
            if NEEDED not in reply.fields:
                return self._checked(reply)
            reply = self.child.ask(self.child.become(reply))
        raise NoAnswer(Outcome.REJECTED, f"it has more than {MOST_PROGRAMS} kernels to disassemble")

    def _checked(self, reply: Frame) -> Frame:
        if "error" not in reply.fields:
            return reply
        with _sense():
            raise NoAnswer(Outcome(reply.fields["error"]), str(reply.fields["message"]))

    def _run(self, reply: Frame) -> Run:
        with _sense():
            return Run((), tuple(finding_of(record) for record in reply.fields["findings"]), "", 0, "", "")

    def _require(self, outputs: Outputs) -> None:
        for output in self.task.outputs:
            if output.name not in outputs and not output.optional:
                raise NoAnswer(Outcome.CRASHED, f"the child's answer lacks the output {output.name}")

    def _declared(self, numbers: Mapping[str, str]) -> Declared:
        """What the candidate says of its arithmetic, as far as it is believable."""
        macros = {**self.macros, **numbers}
        for name in ("BLOCK_M", "BLOCK_N", "SPLITS", "splits"):
            if name in macros and not (macros[name].isdecimal() and 1 <= int(macros[name][:9]) <= MOST_TILE):
                raise NoAnswer(Outcome.REJECTED, f"{name} is {macros[name][:40]}; it must be 1 to {MOST_TILE}")
        return Declared(self.request.rung, macros)


class _sense:  # noqa: N801  (reads as a word of the language)
    """A child's answer that cannot be read is the end of the child."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (KeyError, TypeError, ValueError, AttributeError, OverflowError)):
            message = f"the child's answer makes no sense: {type(error).__name__} {error}"
            raise ChildEnded(Ended(Outcome.CRASHED, message)) from error


def same_bits(one: Outputs, other: Outputs) -> bool:
    """Whether two runs left the same."""
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def _refused(workload: Workload, error: NoAnswer) -> Verdict:
    """The verdict on what did not run, where the judge has a status for it."""
    if error.outcome.value not in Status.__members__:
        raise error
    return Verdict(workload, Status(error.outcome.value), error.message)


def _texts(record: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in record.items()}


def _names(record: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in record)
