"""Runs of a candidate in a supervised child for the judge: inputs are sent, outputs and findings are returned."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.core.finding_json import finding_of
from weft.core.records import Dim3, Run, worst_first
from weft.core.status import Status
from weft.coverage.records import Boundary, Coverage
from weft.engines.check_indices import Shapes
from weft.engines.sample import CannotSample
from weft.judge.judge import call_of
from weft.judge.limits import of_records, records
from weft.judge.look import Look
from weft.judge.runs import OTHER_SCHEDULES, Call, Ran, Refused, Watch
from weft.judge.select import Supports
from weft.tasks.registry import TASKS
from weft.tasks.task import Declared, Outputs, Problem, Task, Workload

from .children import Child, ChildEnded, Ended
from .counted import CountedLaunch
from .disassembler import NEEDED
from .frames import Frame
from .records import Request

MOST_PROGRAMS = 64
"""Limit of program runs that one question may need."""


@dataclass(frozen=True)
class Counted:
    """A profile's launches, or the reason why there are none."""

    launches: tuple[CountedLaunch, ...]
    why: str
    outputs: Outputs


class Remote:
    """A candidate in a child, as the judge's `Runs`."""

    repeated_by = "another order of CTAs and warps"
    one_order = True

    def __init__(self, child: Child, request: Request, task: Task) -> None:
        self.child, self.request, self.task = child, request, task
        self.max_steps = request.max_steps
        self._unread = 0
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
            stated = _names(reply.fields["nondeterministic"])
            self.declared = Declared(request.rung, _texts(reply.fields["macros"]), stated)
            said = reply.fields["supports"]
            only_d = said["only_d"]
            self.supports = Supports(
                task,
                _names(said["dtypes"]),
                _names(said["masks"]),
                _names(said["encodings"]),
                only_d=None if only_d is None else int(only_d),
                limits=of_records(said["limits"]),
                any_mask=bool(said["any_mask"]),
                refuses=self._refusal if said["may_refuse"] else None,
            )

    def run(self, call: Call, watch: Watch) -> Ran:
        return self._ran(self._ask_call("run", call, tools=watch.tools, max_steps=watch.max_steps, kept=watch.kept))

    def again(self) -> Iterator[Ran]:
        """Send the request at once, so that the child works while the judge checks its first outputs."""
        for schedule in OTHER_SCHEDULES:
            self.child.post(Frame({"do": "again", "schedule": schedule}))
            self._unread += 1
        return self._repeated()

    def _repeated(self) -> Iterator[Ran]:
        while self._unread:
            self._unread -= 1
            yield self._ran(self._checked(self.child.answer()))

    def run_debug(self, call: Call) -> Run:
        return self._run(self._ask_call("debug", call))

    def look(self, look: Look) -> tuple[Boundary, ...]:
        limits = records(look.limits)
        reply = self._ask({"do": "look", "inputs": dict(look.inputs), "axes": look.axes, "d": look.d, "limits": limits})
        with _sense():
            return Coverage.from_record(reply.fields).boundaries

    def coverage(self) -> Coverage:
        reply = self._ask({"do": "coverage"})
        with _sense():
            return Coverage.from_record(reply.fields)

    def check_indices(self, defines: Mapping[str, str], calls: Sequence[Sequence[Shapes]]) -> Run:
        return self._run(self._ask({"do": "indices", "defines": dict(defines), "calls": calls}))

    def grids(self, call: Call) -> tuple[Dim3, ...]:
        raise CannotSample("a supervised candidate cannot be sampled")

    def count(self, workload: Workload) -> Counted:
        """Return the counts of a workload that was judged."""
        reply = self._ask_call("profile", self._call(workload))
        run = self._run(reply)
        if not run.clean:
            raise Refused(Status.UNSAFE, str(worst_first(run.findings)[0]))
        with _sense():
            launches = tuple(CountedLaunch.from_record(record) for record in reply.fields["launches"])
            return Counted(launches, str(reply.fields["why"]), reply.arrays)

    def canonical(self, workload: Workload) -> str:
        """Return the hash of what would be launched."""
        reply = self._ask_call("canonical", self._call(workload))
        with _sense():
            digest = reply.fields["digest"]
            if not isinstance(digest, str) or len(digest) != 64:
                raise ValueError(f"{digest!r} is not a hash")
            return digest

    def diagnosis(self, workload: Workload) -> str:
        """Return why it fails. Use a separate child: here the process receives expected values."""
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

    def _refusal(self, problem: Problem) -> str:
        reply = self._ask_call("refusal", call_of(self.task, problem))
        with _sense():
            return str(reply.fields["line"])

    def _call(self, workload: Workload) -> Call:
        return call_of(self.task, self.task.draw(workload))

    def _ask_call(self, do: str, call: Call, **more: Any) -> Frame:
        return self._ask({"do": do, "defines": dict(call.defines), "outputs": call.outputs, **more}, call)

    def _ask(self, fields: Mapping[str, Any], call: Call | None = None) -> Frame:
        while self._unread:  # the judge did not need these answers
            self._unread -= 1
            self.child.answer()
        reply = self.child.ask(Frame(fields, call.inputs if call is not None else {}))
        for _ in range(MOST_PROGRAMS):
            if NEEDED not in reply.fields:
                return self._checked(reply)
            reply = self.child.ask(self.child.become(reply))
        raise Refused(Status.REJECTED, f"the candidate has more than {MOST_PROGRAMS} kernels to disassemble")

    def _checked(self, reply: Frame) -> Frame:
        if "error" not in reply.fields:
            return reply
        with _sense():
            raise Refused(Status(reply.fields["error"]), str(reply.fields["message"]))

    def _ran(self, reply: Frame) -> Ran:
        with _sense():
            numbers = _texts(reply.fields["numbers"])
        return Ran(self._run(reply), reply.arrays, numbers)

    def _run(self, reply: Frame) -> Run:
        with _sense():
            findings = tuple(finding_of(record) for record in reply.fields["findings"])
            left_out = {"launches_left_out": int(reply.fields["launches_left_out"])}
            return Run((), findings, "", 0, "", "", counters=left_out)


class _sense:  # noqa: N801  (reads as a word of the language)
    """Ends the child if its answer cannot be read."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (KeyError, TypeError, ValueError, AttributeError, OverflowError)):
            message = f"the child's answer is invalid: {type(error).__name__} {error}"
            raise ChildEnded(Ended(Status.CRASHED, message)) from error


def _texts(record: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in record.items()}


def _names(record: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in record)
