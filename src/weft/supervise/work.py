"""What a child does with a candidate: read it, compile it, run it, count it. One method per question."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.attention.dtypes import Array
from weft.attention.shapes import SHAPES
from weft.core.errors import ToolMissing, Unsupported, UsageError
from weft.core.records import Run, worst_first
from weft.diagnose.conclusion import cure_of, place_of, sentence, stage_of
from weft.diagnose.diagnose import diagnose
from weft.engines.debug_build import check_debug_build
from weft.engines.kernel_file import KernelFile, load
from weft.engines.protocol import Engine
from weft.engines.virtual import VirtualGPU
from weft.judge.check import Candidate
from weft.judge.select import Choice, Supports, find_candidate
from weft.probes.tools import watch_for
from weft.profile.profiler import Profiler
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .canonical import launches_digest
from .counted import counted_launches
from .frames import Frame
from .plain import finding_record
from .screen import Rejected, screen, screen_options, without_allows

MOST_FINDINGS = 500
MOST_OUTPUT_BYTES = 512 << 20
"""That go back to the judge: more than any workload asks for."""


class Work:
    """One candidate, once it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The candidate's own: its text, and what is compiled from it."""
        self.candidate: Candidate
        self.supports: Supports
        self.max_steps = 0
        self.inputs: Mapping[str, Array] = {}
        self.kernel: KernelFile
        self.gpu: VirtualGPU
        self.outputs: Sequence[str] = ()

    def do(self, question: Frame) -> Frame:
        """Answer one question. What goes wrong raises."""
        fields = question.fields
        if question.arrays:
            self.inputs = question.arrays
        return {
            "open": self._open,
            "run": self._run,
            "again": self._again,
            "debug": self._debug,
            "profile": self._profile,
            "canonical": self._canonical,
            "diagnose": self._diagnose,
        }[fields["do"]](fields)

    def _open(self, fields: Mapping[str, Any]) -> Frame:
        """Read the candidate, refuse what is none, and say what it supports."""
        text, language = fields["text"], fields["language"]
        screen(text, language)
        path, launch = self._write(without_allows(text), language, without_allows(fields["launch"]))
        os.chdir(path.parent)
        task = fields["task"]
        if fields["task_text"]:  # a task in a file is out of reach from here
            task = "task.py"
            Path(task).write_text(fields["task_text"])
        # The name alone: findings and messages show no folder of ours.
        target, beside = Path(path.name), Path(launch.name) if launch is not None else None
        screen_options(load(target, arch=fields["arch"], launch=beside).lines.options)
        candidate, self.supports = find_candidate(str(target), task=task, arch=fields["arch"], launch=beside)
        self.candidate = replace(
            candidate, rung=fields["rung"], defines=fields["defines"], max_steps=fields["max_steps"]
        )
        supports = self.supports
        return Frame(
            {
                "macros": self.candidate.declared.macros,
                "supports": {
                    "dtypes": supports.dtypes,
                    "masks": supports.masks,
                    "encodings": supports.encodings,
                    "only_d": supports.only_d,
                },
            }
        )

    def _run(self, fields: Mapping[str, Any]) -> Frame:
        """The first run, watched."""
        self.kernel, self.outputs = self._load(fields["defines"]), fields["outputs"]
        self.gpu = VirtualGPU(self.kernel.arch)
        run, arrays = self._launch(self.kernel, self.gpu, watch_for(fields["tools"]))
        numbers = self.kernel.numbers(self.inputs)
        return Frame({"findings": _findings(run), "numbers": numbers}, self._results(arrays))

    def _again(self, fields: Mapping[str, Any]) -> Frame:
        """The same inputs in another order of CTAs and warps, on a device whose variables keep what was left there."""
        self.gpu.schedule = fields["schedule"]
        run, arrays = self._launch(self.kernel, self.gpu)
        return Frame({"findings": _findings(run)}, self._results(arrays))

    def _debug(self, fields: Mapping[str, Any]) -> Frame:
        """Initialisation in the -G build."""
        return Frame({"findings": _findings(check_debug_build(self._load(fields["defines"]), self.inputs))})

    def _profile(self, fields: Mapping[str, Any]) -> Frame:
        """The counts of every launch; and the outputs, which show that it was the run that was judged."""
        kernel, self.outputs = self._load(fields["defines"]), fields["outputs"]
        profiler = Profiler(VirtualGPU(kernel.arch))
        try:
            run, arrays = self._launch(kernel, profiler)
            launches, why = counted_launches(profiler, kernel)
        except (Unsupported, ToolMissing) as error:
            return Frame({"findings": [], "launches": [], "why": str(error)})
        return Frame({"findings": _findings(run), "launches": launches, "why": why}, self._results(arrays))

    def _canonical(self, fields: Mapping[str, Any]) -> Frame:
        """A hash of what would be launched, and how; nothing runs."""
        kernel = self._load(fields["defines"])
        if not kernel.compiled and "assert" in kernel.source.text:
            # An assert carries the file's name and its line into the code.
            kernel = replace(kernel, defines={**kernel.defines, "NDEBUG": "1"})
        copies = {name: array.copy() for name, array in self.inputs.items()}
        return Frame({"digest": launches_digest(kernel.bind(copies))})

    def _diagnose(self, fields: Mapping[str, Any]) -> Frame:
        """Why a workload fails, in words. Nothing that is decided hangs on it."""
        work = fields["workload"]
        choice = Choice(
            (work["shape"],), (work["regime"],), (work["mask"],), (work["dtype"],), (work["encoding"],), (work["seed"],)
        )
        if work["shape"] not in SHAPES:
            raise UsageError(f"no shape is called {work['shape']}")
        supports = self.supports
        if self.candidate.rung is not None:
            supports = find_candidate(self.candidate.rung, task=fields["task"], arch=self.candidate.arch)[1]
        found = diagnose(self.candidate, supports, choice)
        if found.healthy:
            return Frame({"text": ""})
        place, stage, cure = place_of(found), stage_of(found), cure_of(found)
        rows = [f"{place}: {sentence(found)}" if place else sentence(found), f"case: {found.verdict.workload}"]
        rows += [f"stage: {stage}"] if stage else []
        rows += [f"right before it: {', '.join(found.proven_right)}"] if found.proven_right else []
        rows += [*found.first.arithmetic] if found.first is not None else []
        rows += [f"known as: {each.name}, {100 * each.confidence:.0f} % sure" for each in found.signatures[:1]]
        rows += [f"cure: {cure}"] if cure else []
        return Frame({"text": "\n".join(rows)})

    def _load(self, defines: Mapping[str, str]) -> KernelFile:
        """The file with the workload's macros, as `Candidate.load` does; without its allow lines."""
        candidate = self.candidate
        selected = {name: value for name, value in defines.items() if name in candidate.declared.macros}
        kernel = load(
            candidate.path, arch=candidate.arch, defines={**candidate.defines, **selected}, launch=candidate.launch
        )
        return replace(kernel, allows=())

    def _launch(
        self, kernel: KernelFile, gpu: Engine, watch: Instrumentation = PLAIN
    ) -> tuple[Run, Mapping[str, Array]]:
        copies = {name: array.copy() for name, array in self.inputs.items()}
        return kernel.run(gpu, copies, watch=watch, max_steps=self.candidate.max_steps)

    def _write(self, text: str, language: str, launch: str) -> tuple[Path, Path | None]:
        """The candidate's file and its launch lines'."""
        path = self.folder / ("kernel.cu" if language == "cuda" else "kernel.ptx")
        beside = path.with_suffix(".launch")
        for file, content in ((path, text), (beside, launch)):
            if content or file == path:
                file.write_text(content, newline="")
        return path, beside if launch else None

    def _results(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        found = {name: arrays[name] for name in self.outputs if name in arrays}
        size = sum(array.nbytes for array in found.values())
        if size > MOST_OUTPUT_BYTES:
            raise Rejected(f"its outputs have {size} bytes; a candidate's have at most {MOST_OUTPUT_BYTES}")
        return found


def _findings(run: Run) -> list[dict[str, Any]]:
    """All of them: whatever file an allow line stands in, it excuses nothing here."""
    found = (*run.findings, *(each.finding for each in run.suppressed))
    return [finding_record(finding) for finding in worst_first(found)[:MOST_FINDINGS]]
