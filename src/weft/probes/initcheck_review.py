"""Decides which reads that initcheck saw are findings: those whose value reaches a branch, an address or an output.

First by the registers alone (`taint_slice.py`), which holds for all CTAs; then by following the values in CTAs that
read (`taint.py`). A read is dropped if it has no effect in every CTA that did it; or if it has no effect where it was
followed, in this launch or an earlier one of the same kernel, and the launch does the same with other contents of
shared and local memory (`refill.py`). Where following is too much work the read stays, and its message says so; if
other contents change nothing, it is then information. The same holds in a -G build, where structures of CUDA's own
headers are copied with members that were never set. Where other contents change branches but not the results of the
launch, the value reaches only elements that are never stored: a warning. Where they change the results, an error.

Following takes seconds, and a kernel is judged on many workloads: its result for an instruction is kept for later
launches of the same kernel that depend on their contents in the same way (`_Known`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np

from weft.core.finding_codes import Severity
from weft.core.records import Finding
from weft.ptx.module import Instruction
from weft.vm.launch import REPORT_CAPACITY
from weft.vm.layout import Layout
from weft.vm.memory import LOCAL_BASE
from weft.vm.program import ProgramSource
from weft.vm.runtime.watch import Scene

from .initcheck_reports import CODES, CTAS_REPORTED, UNWRITTEN_GLOBAL
from .local_variables import variable_at
from .refill import Effect, effect_of_contents
from .taint import follow, runnable
from .taint_labels import Sink
from .taint_slice import Slicer
from .unset_registers import unset_variables

MOST_CTAS, FIRST_CTAS = 8, 2
"""CTAs in which values are followed: at most, and where other contents of memory change nothing."""
MOST_STEPS, MOST_STEPS_TO_NAME = 120_000, 30_000
"""Warp instructions spent on that in all CTAs together; and where other contents show whether a value has an effect."""
_REACHES = "its value reaches"
_SAME = "; with other initial contents the results and the branches of the launch are the same"
_SAME_RESULT = "; with other initial contents the results of the launch are the same"
_OTHER = "; with other initial contents the results of the launch are different"
_SPACES = {"I201": "shared", "I202": "global", "I203": "local"}


@dataclass
class _Read:
    """An instruction that read uninitialised memory, and what is known about it."""

    line: int
    ctas: frozenset[int]
    sink: Sink | None = None
    harmless_in: set[int] = field(default_factory=set)

    @property
    def harmless(self) -> bool:
        """Whether it had no effect in every CTA that did it; unknown for instructions that stopped reporting."""
        return self.sink is None and self.ctas <= self.harmless_in and len(self.ctas) < CTAS_REPORTED


@dataclass
class _Known:
    """The results of following a kernel's reads in launches of one `Effect`, by PTX line."""

    sinks: dict[int, Sink] = field(default_factory=dict)
    harmless: set[int] = field(default_factory=set)
    tried: set[int] = field(default_factory=set)
    """Reads that were followed, with any result: they are not followed again."""

    def follow(self, reads: Mapping[int, _Read], scene: Scene, most_ctas: int) -> None:
        """Follow the reads that were not followed before; reads with a known sink get it."""
        for line, read in reads.items():
            read.sink = self.sinks.get(line)
        new = {line: read for line, read in reads.items() if line not in self.tried}
        _follow_all(new, scene, most_ctas, MOST_STEPS_TO_NAME)
        self.tried |= new.keys()
        self.sinks |= {line: read.sink for line, read in new.items() if read.sink is not None}
        self.harmless |= {line for line, read in new.items() if read.sink is None and read.harmless_in}


_KNOWN: WeakKeyDictionary[ProgramSource, dict[Effect, _Known]] = WeakKeyDictionary()
"""By kernel; each build is another kernel."""


def review(findings: tuple[Finding, ...], scene: Scene) -> tuple[Finding, ...]:
    """Return the findings without harmless reads, with the name of what was read and what its value reached."""
    reads = _open_reads(scene)
    if not reads or not _global_lines(scene).isdisjoint(reads):  # other contents do not reach global memory
        _follow_all(reads, scene, MOST_CTAS, MOST_STEPS)
        return _described_all(findings, reads, scene)
    effect = effect_of_contents(scene)
    known = _KNOWN.setdefault(scene.source, {}).setdefault(effect, _Known())
    known.follow(reads, scene, FIRST_CTAS if effect is Effect.NOTHING else MOST_CTAS)
    if effect is Effect.NOTHING and known.harmless.issuperset(reads):
        return tuple(finding for finding in findings if finding.code not in _SPACES)
    return _weighed(_described_all(findings, reads, scene), effect)


def _weighed(findings: tuple[Finding, ...], effect: Effect) -> tuple[Finding, ...]:
    """Return the findings with the severity that follows from the effect of other contents."""
    if effect is Effect.NOTHING:
        return tuple(_with(finding, Severity.INFO, _SAME) if _open(finding) else finding for finding in findings)
    if effect is Effect.WAYS:
        return tuple(
            _with(finding, Severity.WARNING, _SAME_RESULT) if _open(finding) or _decides_a_branch(finding) else finding
            for finding in findings
        )
    if any(_REACHES in finding.message for finding in findings):
        return findings
    return tuple(_with(finding, Severity.ERROR, _OTHER) if _open(finding) else finding for finding in findings)


def _with(finding: Finding, severity: Severity, why: str) -> Finding:
    return replace(finding, severity=severity.value, message=finding.message + why)


def review_debug_build(findings: tuple[Finding, ...], scene: Scene) -> tuple[Finding, ...]:
    """Review a -G build, with its unset variables; what has no effect there is only information."""
    reads = _open_reads(scene)
    _follow_all(reads, scene, FIRST_CTAS, MOST_STEPS)
    kept, unset = _described_all(findings, reads, scene), unset_variables(scene, MOST_STEPS)
    if not any(_open(finding) or _decides_a_branch(finding) for finding in kept):
        return kept + unset
    effect = effect_of_contents(scene)
    explained = unset or any(_REACHES in finding.message for finding in kept)
    if effect is Effect.RESULT and explained:  # the cause is found: the other reads may have no effect
        return tuple(_with(finding, Severity.WARNING, "") if _open(finding) else finding for finding in kept) + unset
    return _weighed(kept, effect) + unset


def _open(finding: Finding) -> bool:
    """Whether it is about shared or local memory, and its value was not seen to reach anything."""
    return finding.code in ("I201", "I203") and _REACHES not in finding.message


def _decides_a_branch(finding: Finding) -> bool:
    """Whether it is about shared or local memory, and its value was seen to reach a branch first."""
    return finding.code in ("I201", "I203") and f"{_REACHES} a branch" in finding.message


def _global_lines(scene: Scene) -> set[int]:
    rows = scene.reports[scene.reports["code"] == UNWRITTEN_GLOBAL]
    return set(rows["line"].tolist())


def _described_all(findings: tuple[Finding, ...], reads: Mapping[int, _Read], scene: Scene) -> tuple[Finding, ...]:
    all_known = scene.reports.size < REPORT_CAPACITY  # beyond it reports are lost, and with them CTAs and bytes
    kept = []
    for finding in findings:
        read = reads.get(finding.ptx_line)
        if finding.code not in _SPACES:
            kept.append(finding)
        elif not all_known or (read is not None and not read.harmless):
            kept.append(_described(finding, read or _Read(finding.ptx_line, frozenset()), scene))
    return tuple(_joined(kept))


def _joined(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield one finding for each source line and variable: an unrolled loop reads with many instructions."""
    first: dict[object, Finding] = {}
    for number, finding in enumerate(findings):
        same = finding.code in _SPACES and finding.place is not None
        key = (finding.code, finding.place, finding.name, finding.level) if same else number
        known = first.get(key)
        first[key] = finding if known is None else replace(known, count=known.count + finding.count)
    yield from first.values()


def _open_reads(scene: Scene) -> dict[int, _Read]:
    """Return the reads whose values may reach something, by the registers alone."""
    rows = scene.reports[np.isin(scene.reports["code"], list(CODES))]
    if not rows.size:
        return {}
    slicer = Slicer(item for item in scene.source.inlined.body if isinstance(item, Instruction))
    reads = {}
    for line in np.unique(rows["line"]):
        own = rows[rows["line"] == line]
        if not slicer.reaches_nothing(int(line), int(np.bitwise_or.reduce(own["detail"]))):
            reads[int(line)] = _Read(int(line), frozenset(own["cta"].tolist()))
    return reads


def _follow_all(reads: Mapping[int, _Read], scene: Scene, most_ctas: int, most_steps: int) -> None:
    """Follow the reads in the CTAs that do them, the first CTAs first, while a read is undecided."""
    if not reads:
        return  # most launches: nothing of the kernel is parsed
    left = most_steps
    wanted = sorted(frozenset().union(*(read.ctas for read in reads.values())))[:most_ctas]
    for ctas in runnable(scene, wanted, MOST_STEPS):
        open_here = frozenset(line for line, read in reads.items() if read.sink is None and read.ctas & set(ctas))
        if not open_here or left <= 0:
            continue
        followed = follow(scene, ctas, open_here, left)
        left -= followed.steps
        for line in open_here:
            if line in followed.sinks:
                reads[line].sink = followed.sinks[line]
            elif line in followed.harmless:
                reads[line].harmless_in |= reads[line].ctas & set(ctas)


def _described(finding: Finding, read: _Read, scene: Scene) -> Finding:
    name, offset = _object(finding, scene)
    what = f"read of uninitialised {_SPACES[finding.code]} memory"
    where = f"{name}+{offset:#x}" if name else f"{finding.address:#x}"
    message = f"{what} at {where}"
    if read.sink is not None:
        return replace(
            finding,
            message=f"{message}; {_REACHES} {read.sink.what}",
            name=name,
            other=read.sink.instruction.place,
        )
    if read.harmless_in:
        message += f"; its value has no effect in the {len(read.harmless_in)} CTAs in which it was followed"
        return replace(finding, message=message, name=name, severity=Severity.WARNING.value)
    return replace(finding, message=f"{message}; whether its value has an effect is not known", name=name)


def _object(finding: Finding, scene: Scene) -> tuple[str, int]:
    """Return the variable or buffer at an address, and the offset in it."""
    if finding.code == "I202":
        owner = scene.memory.owner(finding.address) or scene.memory.freed_owner(finding.address)
        return (owner.name.removeprefix("argument "), finding.address - owner.address) if owner else ("", 0)
    if finding.code == "I201":
        for region in scene.places.regions:
            if region.address <= finding.address < region.address + region.size_bytes:
                return region.name, finding.address - region.address
        return _variable(scene.layout, "shared", finding.address)
    depot, offset = _variable(scene.layout, "local", finding.address - LOCAL_BASE)
    known = variable_at(scene.source.text or "", depot, offset)
    return (known.name, offset - known.offset) if known else (depot, offset)


def _variable(layout: Layout, space: str, address: int) -> tuple[str, int]:
    for placed in layout.symbols.values():
        end = placed.address + placed.size_bytes
        if placed.space == space and placed.address <= address and (address < end or not placed.size_bytes):
            return placed.name, address - placed.address
    return "", 0
