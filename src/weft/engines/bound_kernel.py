"""A kernel file with sizes, arrays and binaries: launches that are ready to run, and findings with the file's names."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from weft.core.errors import UsageError, at_line
from weft.core.finding_codes import FINDING_CODES
from weft.core.records import Finding, Place, Run
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array
from .kernel_source import KernelSource
from .launch import Launch
from .launch_records import ArrayLine
from .protocol import Engine, RunOptions
from .sample import CtaSample, require_one_plane
from .spell_findings import folded, plain_names, user_place
from .suppress import Allow, sift, unused


class FileRun(NamedTuple):
    """The result of running a kernel file: findings and figures, and every array it declares."""

    run: Run
    arrays: dict[str, Array]


@dataclass(frozen=True)
class BoundKernel:
    """Every launch of a call, in order, on its arrays."""

    source: KernelSource
    arch: str
    declared: tuple[ArrayLine, ...]
    arrays: dict[str, Array]
    """Every array that the file declares, workspaces and constants included."""
    launches: tuple[Launch, ...]
    uninitialised: tuple[str, ...]
    """Arrays that the kernels must fill."""
    allows: tuple[Allow, ...]
    complete: bool
    """Whether these are all launches of the call."""

    @property
    def constants(self) -> dict[str, Array]:
        """`__constant__` and `__device__` variables → their initial values."""
        return {line.name: self.arrays[line.name] for line in self._with_role("constant")}

    def run(
        self, gpu: Engine, *, max_steps: int, watch: Instrumentation = PLAIN, ctas: CtaSample | None = None
    ) -> FileRun:
        """Run every launch in order; see `KernelFile.run`."""
        if gpu.arch != self.arch.rstrip("af"):
            raise UsageError(f"{self.source.path} was loaded for {self.arch}; this GPU is {gpu.arch}")
        if ctas is not None:
            require_one_plane([launch.grid for launch in self.launches], self.source.path)
        for line in self._with_role("constant"):
            first = self.launches[0]
            with at_line(self.source.lines_path, line.line):
                gpu.set_symbol(first.binary, first.entry, line.name, self.arrays[line.name])
        before = {line.name: self.arrays[line.name].tobytes() for line in self._with_role("in")}
        empty = tuple(self.arrays[name] for name in self.uninitialised)
        run = gpu.run(self.launches, RunOptions(watch, ctas, max_steps, empty, self._goes_on))
        if left_out := len(self.launches) - len(run.entries):
            run = replace(run, counters={**run.counters, "launches_left_out": left_out})
        found = [*map(self.spelled, run.findings), *self._changed_inputs(before), *self.source.questions]
        return FileRun(self._sifted(replace(run, findings=folded(found)), watch), self.arrays)

    def _goes_on(self, run: Run) -> bool:
        """Whether the next launch runs: a launch with errors is the last one, unless the source allows them."""
        return replace(run, findings=sift(map(self.spelled, run.findings), self.allows).kept).clean

    def _sifted(self, run: Run, watch: Instrumentation) -> Run:
        """Return the run without allowed findings, and with the allow lines that a complete run did not need."""
        sifted = sift(run.findings, self.allows)
        run = replace(run, findings=sifted.kept, suppressed=sifted.suppressed)
        complete = self.complete and len(run.entries) == len(self.launches)
        if not run.clean or not complete or run.counters.get("ctas_left_out"):
            return run
        tools = {FINDING_CODES[code].tool for code, _ in watch.codes.values()}
        return replace(run, findings=run.findings + unused(self.allows, sifted.used, tools))

    def spelled(self, finding: Finding) -> Finding:
        """Return the finding with the user's names and paths."""
        return in_users_words(finding, self.source)

    def _changed_inputs(self, before: Mapping[str, bytes]) -> Sequence[Finding]:
        changed = []
        for line in self._with_role("in"):
            array = self.arrays[line.name]
            now = array.reshape(-1).view(np.uint8)
            different = np.flatnonzero(np.frombuffer(before[line.name], np.uint8) != now)
            if different.size:
                first = int(different[0]) // array.dtype.itemsize
                message = f"the kernel changed {line.name}, which is declared `in`, first at element {first}"
                changed.append(Finding("K501", message, place=Place(self.source.lines_path, line.line)))
        return changed

    def _with_role(self, role: str) -> tuple[ArrayLine, ...]:
        return tuple(line for line in self.declared if line.role == role)


def in_users_words(finding: Finding, source: KernelSource) -> Finding:
    """Return the finding with line, names, and the path as the user gave it; the compiler got the absolute path."""
    spelled = {os.path.abspath(file.path): file.path for file in source.files}
    places = (user_place(finding.place), user_place(finding.other), finding.cure_place)
    place, other, cure_place = (_respelled(at, spelled) for at in places)
    if place is None and source.compiled and not source.linked and finding.ptx_line:
        place = Place(source.path, finding.ptx_line)
    message, name = plain_names(finding.message), plain_names(finding.name)
    return replace(finding, message=message, name=name, place=place, other=other, cure_place=cure_place)


def _respelled(place: Place | None, spelled: Mapping[str, str]) -> Place | None:
    if place is None:
        return None
    file = spelled.get(place.file, place.file)
    return replace(place, file=file, inlined_at=_respelled(place.inlined_at, spelled))
