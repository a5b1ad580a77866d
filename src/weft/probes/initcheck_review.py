"""What stands of the reads that initcheck saw: those whose value reaches a branch, an address or an output.

First by the registers alone (`taint_slice.py`), which holds for all CTAs; then by following the values in the CTAs that
read (`taint.py`). A read is dropped only if nothing came of it in every CTA that did it; where that is too much work
it stays, and says so.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from weft.core.finding_codes import Severity
from weft.core.records import Finding
from weft.ptx.module import Instruction
from weft.vm.launch import REPORT_CAPACITY
from weft.vm.layout import Layout
from weft.vm.memory import LOCAL_BASE
from weft.vm.runtime.watch import Scene

from .initcheck_reports import CODES, CTAS_REPORTED
from .taint import follow
from .taint_slice import Slicer
from .taint_state import Sink

MOST_CTAS = 8
"""CTAs in which values are followed."""
MOST_STEPS = 120_000
"""Warp instructions spent on that, in all of them together."""
_NO_LINE = frozenset({-1})
_SPACES = {"I201": "shared", "I202": "global", "I203": "local"}
_PLACE = re.compile(r"^\.b64 (__local_depot\w+)\n((?:\.b8 [\d,]+\n)+)", re.MULTILINE)
_PLUS_UCONST = 35


@dataclass(frozen=True)
class LocalVariable:
    """A variable and where it begins in its function's local memory."""

    name: str
    offset: int


@dataclass
class _Read:
    """An instruction that read uninitialised memory, and what is known about it."""

    line: int
    ctas: frozenset[int]
    sink: Sink | None = None
    harmless_in: set[int] = field(default_factory=set)

    @property
    def harmless(self) -> bool:
        """Whether nothing came of it wherever it happened; instructions that stopped reporting are not known."""
        return self.sink is None and self.ctas <= self.harmless_in and len(self.ctas) < CTAS_REPORTED


def review(findings: tuple[Finding, ...], scene: Scene) -> tuple[Finding, ...]:
    """The findings without harmless reads, with the name of what was read and what its value reached."""
    rows = scene.reports[np.isin(scene.reports["code"], list(CODES))]
    if not rows.size:
        return findings
    reads = _reads(rows, Slicer(item for item in scene.source.inlined.body if isinstance(item, Instruction)))
    _follow_all(reads, scene)
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
    """An unrolled loop reads with many instructions: one finding for a line of the source and a variable."""
    first: dict[object, Finding] = {}
    for number, finding in enumerate(findings):
        same = finding.code in _SPACES and finding.place is not None
        key = (finding.code, finding.place, finding.name, finding.level) if same else number
        known = first.get(key)
        first[key] = finding if known is None else replace(known, count=known.count + finding.count)
    yield from first.values()


def _reads(rows: npt.NDArray[np.void], slicer: Slicer) -> dict[int, _Read]:
    reads = {}
    for line in np.unique(rows["line"]):
        own = rows[rows["line"] == line]
        if not slicer.reaches_nothing(int(line), int(np.bitwise_or.reduce(own["detail"]))):
            reads[int(line)] = _Read(int(line), frozenset(own["cta"].tolist()))
    return reads


def _follow_all(reads: Mapping[int, _Read], scene: Scene) -> None:
    """Follow in the CTAs that read, the first ones first, while there is something to learn."""
    left = MOST_STEPS
    for cta in sorted(frozenset().union(*(read.ctas for read in reads.values())))[:MOST_CTAS]:
        open_here = frozenset(read.line for read in reads.values() if cta in read.ctas and read.sink is None)
        if not open_here or left <= 0:
            continue
        followed = follow(scene, cta, open_here, left)
        left -= followed.steps
        for line in open_here:
            if line in followed.sinks:
                reads[line].sink = followed.sinks[line]
            elif line in followed.harmless:
                reads[line].harmless_in.add(cta)


def _described(finding: Finding, read: _Read, scene: Scene) -> Finding:
    name, offset = _object(finding, scene)
    what = f"uninitialised {_SPACES[finding.code]} memory read"
    where = f"{name}+{offset:#x}" if name else f"{finding.address:#x}"
    message = f"{what} at {where}"
    if read.sink is not None:
        return replace(
            finding,
            message=f"{message}, its value reaches {read.sink.what}",
            name=name,
            other=read.sink.instruction.place,
        )
    if read.harmless_in:
        message += f", without effect in the {len(read.harmless_in)} CTAs in which its value was followed"
        return replace(finding, message=message, name=name, severity=Severity.WARNING.value)
    return replace(finding, message=f"{message}, its value was not followed", name=name)


def _object(finding: Finding, scene: Scene) -> tuple[str, int]:
    """The variable or buffer at an address, and the offset in it."""
    if finding.code == "I202":
        owner = scene.memory.owner(finding.address)
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


def unset_variables(scene: Scene) -> tuple[Finding, ...]:
    """Return a finding for each place that an unset register's value reaches, in the first, middle and last CTA.

    In a -G build every use of a variable is still there, and scalars are registers. One that is live at the kernel's
    start is read before it is set, on some path; whether a thread takes that path, and whether the value matters, a run
    that follows it shows. Optimised code is not asked: there such registers are the compiler's choice.
    """
    liveness = scene.source.kernel.liveness
    registers = frozenset(liveness.at(0))
    if not registers:
        return ()
    nx, ny, nz = scene.launch.grid
    total = nx * ny * nz
    found: dict[object, Finding] = {}
    left = MOST_STEPS
    for cta in sorted({0, total // 2, total - 1}):
        if left <= 0:
            break
        followed = follow(scene, cta, _NO_LINE, left, registers=registers)
        left -= followed.steps
        for line, read in followed.unset.items():
            sink = followed.sinks.get(line)
            if sink is None:
                continue
            place = sink.instruction.place
            index = (cta % nx, cta // nx % ny, cta // (nx * ny))
            message = f"uninitialised variable (register {read.register}), its value reaches {sink.what}"
            finding = Finding("I203", message, line, place, index, read.warp, read.lanes, name=read.register)
            found.setdefault(place or line, finding)
    return tuple(found.values())


@lru_cache(maxsize=16)
def local_variables(ptx: str) -> Mapping[str, tuple[LocalVariable, ...]]:
    """Variables of each depot, in the order of their offsets; none where there is no debug information (-G).

    A variable in local memory has the location `addr <depot>, plus_uconst <offset>` (DWARF 4, 2.5.1), and NVVM writes
    its entry in this order: location, name, file, line. Only that is read; what looks otherwise has no name.
    """
    found: dict[str, list[LocalVariable]] = {}
    for depot, items in _PLACE.findall(ptx):
        data = bytes(int(number) for number in re.findall(r"\d+", items.replace(".b8", "")))
        if data[0] != _PLUS_UCONST:
            continue
        offset, at = _uleb(data, 1)
        name = data[at : data.find(0, at)].decode(errors="replace")
        if name:
            found.setdefault(depot, []).append(LocalVariable(name, offset))
    return {depot: tuple(sorted(variables, key=lambda v: v.offset)) for depot, variables in found.items()}


def variable_at(ptx: str, depot: str, offset: int) -> LocalVariable | None:
    """The variable at an offset of a depot; copies of an inlined function share the names of the original."""
    variables = local_variables(ptx).get(depot.partition("#")[0], ())
    return next((variable for variable in reversed(variables) if variable.offset <= offset), None)


def _uleb(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number and where it ends."""
    value, shift = 0, 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at
