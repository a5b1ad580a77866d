"""The work of a child: read, compile, run and profile a candidate. One method per question."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.attention.dtypes import Array
from weft.attention.shapes import is_shape
from weft.core.errors import ToolMissing, Unsupported, UsageError
from weft.core.finding_json import finding_record
from weft.core.records import Run, worst_first
from weft.coverage.records import Coverage
from weft.diagnose.conclusion import cure_of, known_as, place_of, sentence, stage_of
from weft.diagnose.diagnose import diagnose
from weft.engines.virtual import VirtualGPU
from weft.interop.open_kernel import load
from weft.judge.candidate import Candidate
from weft.judge.limits import of_records, records
from weft.judge.local_runs import LocalRuns
from weft.judge.look import Look
from weft.judge.runs import Call, Ran, Watch
from weft.judge.select import Choice, Supports, find_candidate
from weft.profile.profiler import Profiler
from weft.tasks.task import Outputs

from .canonical import launches_digest
from .counted import counted_launches
from .frames import Frame
from .screen import Rejected, screen, screen_options, without_allows

MOST_FINDINGS = 500
MOST_OUTPUT_BYTES = 512 << 20
"""Limit of the outputs sent to the judge: more than any workload needs."""


class Work:
    """One candidate, once it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Folder of the candidate's text and its compiled code."""
        self.candidate: Candidate
        self.supports: Supports
        self.runs: LocalRuns

    def do(self, question: Frame) -> Frame:
        """Answer one question. Errors raise."""
        fields, do = question.fields, question.fields["do"]
        if do == "open":
            return self._open(fields)
        if do == "again":
            return _answer(self.runs.run_again(fields["schedule"]))
        if do == "diagnose":
            return self._diagnose(fields)
        if do == "look":
            asked = {name: tuple(sizes) for name, sizes in fields["inputs"].items()}
            found = self.runs.look(Look(asked, tuple(fields["axes"]), fields["d"], of_records(fields["limits"])))
            return Frame(Coverage(boundaries=found).to_record())
        if do == "coverage":
            return Frame(self.runs.coverage().to_record())
        if do == "indices":
            return Frame(_seen(self.runs.check_indices(fields["defines"], fields["calls"])))
        call = Call(fields["defines"], question.arrays, tuple(fields["outputs"]))
        if do == "run":
            watch = Watch(tuple(fields["tools"]), fields["max_steps"], kept=fields["kept"])
            return _answer(self.runs.run(call, watch))
        if do == "refusal":
            return Frame({"line": self.candidate.load_with(call.defines).refusal(call.inputs)})
        return {"debug": self._debug, "profile": self._profile, "canonical": self._canonical}[do](call)

    def _open(self, fields: Mapping[str, Any]) -> Frame:
        """Read the candidate, refuse an invalid one, and return what it supports."""
        text, language = fields["text"], fields["language"]
        screen(text, language, fields["launch"])
        path, launch = self._write(without_allows(text), language, without_allows(fields["launch"]))
        os.chdir(path.parent)
        task = fields["task"]
        if fields["task_text"]:  # the child cannot read the file of a task
            task = "task.py"
            Path(task).write_text(fields["task_text"])
        # Only the name, so that findings and messages show no temporary folder.
        target, launch_file = Path(path.name), Path(launch.name) if launch is not None else None
        screen_options(load(target, gpu=fields["gpu"], launch=launch_file).lines.options)
        candidate, self.supports = find_candidate(str(target), task=task, gpu=fields["gpu"], launch=launch_file)
        self.candidate = replace(
            candidate, rung=fields["rung"], defines=fields["defines"], max_steps=fields["max_steps"], allows=False
        )
        self.runs = LocalRuns(self.candidate)
        supports = self.supports
        return Frame(
            {
                "macros": self.candidate.declared.macros,
                "nondeterministic": self.candidate.declared.nondeterministic,
                "supports": {
                    "dtypes": supports.dtypes,
                    "masks": supports.masks,
                    "encodings": supports.encodings,
                    "only_d": supports.only_d,
                    "limits": records(supports.limits),
                    "any_mask": supports.any_mask,
                    "may_refuse": supports.refuses is not None,
                },
            }
        )

    def _debug(self, call: Call) -> Frame:
        """Check initialisation in the -G build."""
        return Frame(_seen(self.runs.run_debug(call)))

    def _profile(self, call: Call) -> Frame:
        """Return the counts of every launch, and the outputs, which prove that it is the same run as the judged one."""
        kernel = self.candidate.load_with(call.defines)
        profiler = Profiler(VirtualGPU(kernel.gpu))
        try:
            run, arrays = kernel.run(profiler, _copied(call), max_steps=self.candidate.max_steps)
            launches, why = counted_launches(profiler, kernel)
        except (Unsupported, ToolMissing) as error:
            return Frame({"findings": [], "launches_left_out": 0, "launches": [], "why": str(error)})
        left = {name: arrays[name] for name in call.outputs if name in arrays}
        return Frame({**_seen(run), "launches": launches, "why": why}, _within_limit(left))

    def _canonical(self, call: Call) -> Frame:
        """Return a hash of what would be launched, and how; nothing runs."""
        kernel = self.candidate.load_with(call.defines)
        if not kernel.compiled and "assert" in kernel.source.text:
            # An assert puts the file's name and its line into the code.
            kernel = replace(kernel, defines={**kernel.defines, "NDEBUG": "1"})
        return Frame({"digest": launches_digest(kernel.bind(_copied(call)))})

    def _diagnose(self, fields: Mapping[str, Any]) -> Frame:
        """Return why a workload fails, as text. No decision depends on it."""
        work = fields["workload"]
        choice = Choice(
            (work["shape"],), (work["regime"],), (work["mask"],), (work["dtype"],), (work["encoding"],), (work["seed"],)
        )
        if not is_shape(work["shape"]):
            raise UsageError(f"there is no shape {work['shape']}")
        supports = self.supports
        if self.candidate.rung is not None:
            supports = find_candidate(self.candidate.rung, task=fields["task"], gpu=self.candidate.gpu)[1]
        found = diagnose(self.candidate, supports, choice)
        if found.healthy:
            return Frame({"text": ""})
        place, stage, cure = place_of(found), stage_of(found), cure_of(found)
        rows = [f"{place}: {sentence(found)}" if place else sentence(found), f"case: {found.verdict.workload}"]
        rows += [f"stage: {stage}"] if stage else []
        rows += [f"right before it: {', '.join(found.proven_right)}"] if found.proven_right else []
        rows += [*found.first.arithmetic] if found.first is not None else []
        rows += [f"known as: {known_as(each)}" for each in found.signatures[:1]]
        rows += [f"cure: {cure}"] if cure else []
        return Frame({"text": "\n".join(rows)})

    def _write(self, text: str, language: str, launch: str) -> tuple[Path, Path | None]:
        """Write the candidate's file and its launch lines; return their paths."""
        path = self.folder / ("kernel.cu" if language == "cuda" else "kernel.ptx")
        launch_file = path.with_suffix(".launch")
        for file, content in ((path, text), (launch_file, launch)):
            if content or file == path:
                file.write_text(content, newline="")
        return path, launch_file if launch else None


def _answer(ran: Ran) -> Frame:
    return Frame({**_seen(ran.run), "numbers": ran.numbers}, _within_limit(ran.outputs))


def _seen(run: Run) -> dict[str, Any]:
    """Return all findings: allow lines have no effect here, whatever file they are in."""
    found = (*run.findings, *(each.finding for each in run.suppressed))
    return {
        "findings": [finding_record(finding) for finding in worst_first(found)[:MOST_FINDINGS]],
        "launches_left_out": run.counters.get("launches_left_out", 0),
    }


def _within_limit(outputs: Outputs) -> Outputs:
    size = sum(array.nbytes for array in outputs.values())
    if size > MOST_OUTPUT_BYTES:
        raise Rejected(f"the outputs have {size} bytes, but the limit is {MOST_OUTPUT_BYTES}")
    return outputs


def _copied(call: Call) -> dict[str, Array]:
    return {name: array.copy() for name, array in call.inputs.items()}
