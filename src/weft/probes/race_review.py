"""Turns suspicions into findings: runs the suspicious CTAs of the first pass again and judges them exactly.

All of them first run again under a second look, which clears most; it is compiled code, the judgement is not.
Races in shared memory and of copies are judged CTA by CTA, those in global memory for the entire launch. One run
records all CTAs that are left, if their log is short enough.
CTAs that did the same as one without a race are not judged again (`race_streams.py`).
Every other suspicious CTA is judged as long as their logs together stay below a limit; after that one CTA for each set
of suspicious instructions, and a finding says how many CTAs that one represents. What could not be judged at all stays
as a warning.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from weft.core.finding_codes import Severity
from weft.core.records import Dim3, Finding, Place
from weft.ptx.module import Instruction
from weft.vm.ir import LANES
from weft.vm.launch import REPORT_CAPACITY
from weft.vm.memory import GLOBAL_BASE
from weft.vm.runtime.watch import Scene

from .barrier_line import barrier_line, line_of_wait
from .combine import Probes
from .conflict import Conflict
from .global_race import MOST_THREADS, copied_and_used, suspects
from .global_race_review import judge_global
from .happens_before import Known, judge_cta
from .race_cure import cure_of
from .race_streams import Streams
from .race_units import Units
from .read_only_loads import ReadOnlyLoads, WrittenRead, read_only_sites
from .record import Recorder
from .semantics import semantics_of
from .stream import Stream

RECORDS_AT_MOST = 1 << 16
"""Records of all judged CTAs together, beyond which only new sets of suspicious instructions are judged."""
FIRST_LOG, LOG_AT_MOST = 1 << 14, 1 << 16
"""Records of one CTA: room at the first attempt, and at most. To judge one takes about 0.1 ms and up to 10 KB. Of a
longer log the first records are judged: what they show is a race whatever comes after them."""

LOG_OF_ALL = 200_000
"""Records of all suspicious CTAs in one log, at most; if they do not fit, each CTA is run and recorded alone."""

_WORDS = {
    "R101": "write-write race", "R102": "read-after-write race", "R103": "write-after-read race",
    "R104": "copy in flight accessed", "R105": "source of a copy overwritten",
    "R107": "no proxy fence between an access and an asynchronous one", "R109": "bulk load into memory in use",
    "R108": "tensor map used without a fence after it was written",
    "S309": "bulk load for which no thread waits", "S313": "exit while a bulk copy reads shared memory",
    "S312": "access to the shared memory of another CTA that may have ended",
    "S316": "access to the shared memory of another CTA that may not have started",
}  # fmt: skip

AT_THE_END = ("S309", "S312", "S313")
"""Codes of what is missing at the end of a log: it may follow where the log is cut off."""


@dataclass(frozen=True)
class _Depth:
    """How far CTAs were judged."""

    whole: bool
    """Whether all of the log was."""
    has_agents: bool
    """Whether they have asynchronous accesses. The first pass does not follow the mbarriers that order these, and
    suspects right code: what was not judged is no more than that."""

    @property
    def severity(self) -> Severity:
        return Severity.INFO if self.whole or self.has_agents else Severity.WARNING


def judge_suspects(
    scene: Scene,
    codes: tuple[int, int],
    look_again: Callable[[Scene, Collection[int]], Iterable[int]],
    streams: Streams | None,
) -> tuple[Finding, ...]:
    """Return the races of the CTAs that reported a suspicion and that `look_again` does not clear, or agents.

    `codes` are the numbers of these two reports. `streams` are those of the CTAs, if the run followed them.
    """
    suspect, agents = codes
    found_sites: dict[int, dict[int, set[int]]] = {suspect: {}, agents: {}}
    for row in scene.reports:
        if int(row["code"]) in found_sites:
            found_sites[int(row["code"])].setdefault(int(row["cta"]), set()).add(int(row["line"]))
    for code, ctas in found_sites.items():
        if ctas and len(scene.reports) >= REPORT_CAPACITY:  # some reports may be lost: any CTA may be suspicious
            found_sites[code] = {number: ctas.get(number, set()) for number in range(math.prod(scene.launch.grid))}
    sites = {cta: found_sites[suspect][cta] for cta in look_again(scene, found_sites[suspect])}
    sites |= {cta: found_sites[agents][cta] for cta in found_sites[agents].keys() - sites}
    units = Units.of(scene)
    sites = units.joined(sites)
    streams = streams if units.size == 1 else None  # a stream is what one CTA does
    judging = _Judging(scene, sites, units, units.joined(found_sites[agents]).keys(), streams)
    order = _ends_first(sorted(sites))
    firsts = streams.firsts(order) if streams is not None else []
    judging.judge(firsts)
    judging.judge([cta for cta in order if cta not in set(firsts)])
    found: dict[tuple[object, ...], Finding] = {}
    for cta in sorted(judging.conflicts):
        _add(found, scene, judging.conflicts[cta])
    left = judging.left
    if any(finding.level is Severity.ERROR for finding in found.values()):  # that other CTAs did the same is no news
        left = {depth: ctas for depth, ctas in left.items() if depth.severity is not Severity.INFO}
    unjudged = (_unjudged(scene, depth, ctas, len(sites)) for depth, ctas in left.items())
    return (*found.values(), *unjudged)


class _Judging:
    """Judges CTAs of a launch, or its clusters, exactly, until their logs are too long together."""

    def __init__(
        self,
        scene: Scene,
        sites: Mapping[int, set[int]],
        units: Units,
        has_agents: Collection[int],
        streams: Streams | None,
    ) -> None:
        self.scene, self.sites, self.units, self.has_agents, self.streams = scene, sites, units, has_agents, streams
        self.conflicts: dict[int, list[Conflict]] = {}
        """The first CTA of a unit → its races; so in the other maps."""
        self.left: dict[_Depth, dict[int, set[int]]] = {}
        """CTAs that were not judged, or not to the end of their log, with their suspicious instructions."""
        self._judged: dict[frozenset[int], _Depth] = {}
        self._spent = 0
        self._same = Known()

    def judge(self, ctas: Sequence[int]) -> None:
        """Judge CTAs in this order, except for those that did the same as one without a race."""
        streams = self.streams
        logs = self._logs([cta for cta in ctas if streams is None or streams.cost(cta) is None])
        for cta in ctas:
            if streams is not None and streams.is_cleared(cta):
                continue
            suspicious, instructions = self.sites[cta], frozenset(self.sites[cta])
            if self._spent > RECORDS_AT_MOST and instructions in self._judged:
                self.left.setdefault(self._judged[instructions], {})[cta] = suspicious
                continue
            cost = streams.cost(cta) if streams is not None else None
            if streams is not None and cost is not None:
                # It counts as if it had been judged here: what is left must not depend on earlier launches.
                self._judged[instructions] = _Depth(whole=True, has_agents=cta in self.has_agents)
                self._spent += cost
                streams.clear(cta)
                continue
            log = logs[cta] if cta in logs else self._log(cta)
            self._judged[instructions] = _Depth(log.whole, cta in self.has_agents)
            if not log.whole:
                self.left.setdefault(self._judged[instructions], {})[cta] = suspicious
            self._judge_log(cta, log, self._same if cta in logs else Known())

    def _judge_log(self, cta: int, log: "_Log", same: Known) -> None:
        shapes, semantics = len(same.shapes), semantics_of(self.scene)
        semantics = replace(semantics, one_cluster=self.units.size > 1)
        judgement = judge_cta(log.records, math.prod(self.scene.launch.block), semantics, same)
        # A CTA that did the same as another costs little.
        cost = len(log.records) if len(same.shapes) > shapes else 0
        self._spent += cost
        self.conflicts[cta] = judgement.conflicts
        if not log.whole:  # a wait may follow
            self.conflicts[cta] = [each for each in judgement.conflicts if each.code not in AT_THE_END]
        elif judgement.settled and self.streams is not None and log.digest is not None:
            self.streams.keep(log.records, log.digest, semantics, cost)
            if (self.streams.digest(cta) == log.digest).all():
                self.streams.clear(cta)

    def _logs(self, ctas: Sequence[int]) -> "dict[int, _Log]":
        """Return the logs of these CTAs from one run; none if only one is suspicious, or if they are too long together.

        The room depends on all suspicious CTAs, so that it is not less where most of them did the same.
        """
        capacity = min(FIRST_LOG * len(self.sites) * self.units.size, LOG_OF_ALL)
        if len(self.sites) < 2 or not ctas:
            return {}
        log, count, digests = self._recorded(sorted(ctas), capacity)
        if count > capacity:
            return {}
        numbers, index = np.unique(log["cta"], return_inverse=True)
        whose = np.array([self.units.first(cta) for cta in numbers.tolist()])[index]
        by_cta = np.argsort(whose, kind="stable")
        parts = np.split(by_cta, np.flatnonzero(np.diff(whose[by_cta])) + 1)
        logs = {int(whose[part[0]]): log[part] for part in parts if len(part)}
        return {cta: _Log(own, True, digests[cta] if digests is not None else None) for cta, own in logs.items()}

    def _log(self, cta: int) -> "_Log":
        room, most = FIRST_LOG * self.units.size, LOG_AT_MOST * self.units.size
        log, count, digests = self._recorded([cta], room)
        if count > room:
            log, count, digests = self._recorded([cta], min(count, most))
        return _Log(log, len(log) == count, digests[cta] if digests is not None else None)

    def _recorded(
        self, ctas: Sequence[int], capacity: int
    ) -> tuple[npt.NDArray[np.void], int, npt.NDArray[np.uint64] | None]:
        """Return the log of some CTAs, how long it would be without the limit, and digests if streams are followed."""
        count = math.prod(self.scene.launch.grid)
        ctas = sorted(member for cta in ctas for member in self.units.members(cta))
        chosen = np.zeros(count, bool)
        chosen[ctas] = True
        recorder = Recorder(chosen, capacity)
        if self.streams is None:
            self.scene.again(recorder, ctas)
            return *recorder.read(), None
        stream = Stream(count)
        self.scene.again(Probes(recorder, stream), ctas)
        return *recorder.read(), stream.read()


@dataclass(frozen=True)
class _Log:
    """What a CTA did when it ran again."""

    records: npt.NDArray[np.void]
    whole: bool
    digest: npt.NDArray[np.uint64] | None
    """Of its stream, if streams are followed."""


def judge_buffers(scene: Scene, known: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the races in global memory, without those of copies' sources that are `known` already."""
    judgement = judge_global(scene)
    found: dict[tuple[object, ...], Finding] = {}
    _add(found, scene, judgement.conflicts)
    sources = {(finding.place, finding.other) for finding in known if finding.code == "R105"}
    kept = [finding for finding in found.values() if (finding.place, finding.other) not in sources]
    if judgement.left:
        words = f"possible race: {judgement.left} bytes that several threads use, first at"
        message = f"{words} {_where(scene, judgement.address)}, were not checked in detail"
        if judgement.severity is Severity.INFO:
            message += "; other bytes that the same instructions use were"
        name = _where(scene, judgement.address).rpartition("+")[0]
        rest = Finding("R102", message, severity=judgement.severity, cure="launch a smaller grid", name=name)
        kept.append(rest)
    return tuple(kept)


def judge_read_only(scene: Scene) -> tuple[Finding, ...]:
    """Return the loads through the read-only cache of bytes that the same launch stores."""
    sites = read_only_sites(item for item in scene.source.inlined.body if isinstance(item, Instruction))
    buffers = suspects(scene.boards, scene.memory) if sites else ()
    threads = math.prod(scene.launch.grid) * -(-math.prod(scene.launch.block) // LANES) * LANES
    if not buffers or threads > MOST_THREADS:  # `judge_buffers` reports what is not judged
        return ()
    look = ReadOnlyLoads(buffers, sites)
    scene.again(look, None)
    found: dict[tuple[object, ...], Finding] = {}
    for met in look.read():
        finding = _read_only(scene, met)
        found.setdefault((finding.place or met.load, finding.other or met.store), finding)  # unrolled loops
    return tuple(found.values())


def unchecked_copies(scene: Scene) -> tuple[Finding, ...]:
    """Return a note if bulk copies store to global memory, or load what the launch writes: these are not judged."""
    if not copied_and_used(scene.boards, scene.memory):
        return ()
    body = [item for item in scene.source.inlined.body if isinstance(item, Instruction)]
    starts = [ins for ins in body if ins.form.facts.starts == "bulk"]
    copies = [ins for ins in starts if any(each.reads or each.writes for each in ins.form.facts.accesses)]
    message = (
        f"races of bulk copies ({copies[0].opcode}) in global memory were not checked; those in shared memory were"
    )
    cure = "wait for a store's bulk group before other threads use what it wrote"
    note = Finding("R104", message, ptx_line=copies[0].line, place=copies[0].place, severity=Severity.INFO, cure=cure)
    return (replace(note, count=len(copies)),)


def _read_only(scene: Scene, met: WrittenRead) -> Finding:
    load, store = (scene.source.instruction_at.get(site) for site in (met.load, met.store))
    address = met.offset + GLOBAL_BASE
    where = _where(scene, address)
    per_cta = -(-math.prod(scene.launch.block) // LANES) * LANES
    thread = met.thread - 1
    return Finding(
        "R106",
        f"read-only load ({load.opcode if load else 'ld.global.nc'}) of memory that this launch writes, at {where}",
        ptx_line=met.load,
        place=load.place if load else None,
        cta=_position(thread // per_cta, scene.launch.grid),
        warp=thread % per_cta // LANES,
        lanes=1 << thread % LANES,
        address=address,
        name=where.rpartition("+")[0],
        other=store.place if store else None,
    )


def _add(found: dict[tuple[object, ...], Finding], scene: Scene, conflicts: Iterable[Conflict]) -> None:
    for conflict in conflicts:
        finding = _finding(scene, conflict)
        # Unrolled loops are many instructions of one line.
        places = (finding.place or conflict.later.site, finding.other or conflict.earlier.site)
        near = conflict.across, conflict.later.warp == conflict.earlier.warp  # each has its own cure
        key = (finding.code, finding.level, *places, *near)
        known = found.get(key)
        found[key] = finding if known is None else replace(known, count=known.count + finding.count)


def _ends_first(ctas: list[int]) -> list[int]:
    """The first, the last, the second, the last but one, and so on: the last ones have the rests of tiles."""
    pairs = zip(ctas, reversed(ctas), strict=True)
    return list(dict.fromkeys(cta for pair in pairs for cta in pair))


def _where(scene: Scene, address: int) -> str:
    """Return `name+0x40` if the address is in a shared array or a buffer, else the address."""
    buffer = scene.memory.owner(address)
    if buffer is None or not buffer.name:
        return scene.places.where(None, address)
    return f"{buffer.name.removeprefix('argument ')}+{address - buffer.address:#x}"


def _finding(scene: Scene, conflict: Conflict) -> Finding:
    sides = (conflict.later, conflict.earlier, conflict.behind)
    later, earlier, behind = (scene.source.instruction_at.get(side.site) for side in sides)
    where = _where(scene, conflict.address)
    plural = "byte" if conflict.size_bytes == 1 else "bytes"
    extent = f"{conflict.size_bytes} {plural} at {where}" if "+" in where else f"{conflict.size_bytes} {plural} {where}"
    words = _WORDS[conflict.code]
    if conflict.agent == "wgmma" and conflict.code == "R105":
        words = "operand of a product overwritten"
    if conflict.across:
        words += f" with CTA {_position(conflict.earlier.cta, scene.launch.grid)}"
        if conflict.severity is Severity.WARNING:
            words = f"possible {words}"
    same = ", the same value" if conflict.severity is Severity.INFO else ""
    if conflict.replicas:
        same += " except for rounding: a tensor element that Triton keeps in several threads"
    in_warp = not conflict.across and conflict.earlier.warp == conflict.later.warp
    if conflict.lacks is not None:
        step = scene.source.instruction_at.get(conflict.lacks.wait, earlier)
        after = line_of_wait(_place(step), _place(later))
    else:
        other = _place(later if behind is earlier else earlier)
        after = barrier_line(_place(behind), other, _barriers(scene, of_warps=in_warp))
    two = conflict.earlier is not conflict.later  # not so for a copy that is left over
    cure, cure_place = cure_of(conflict, after, _place(later))
    return Finding(
        conflict.code,
        f"{words}, {extent}{same}",
        ptx_line=conflict.later.site,
        place=later.place if later else None,
        cta=_position(conflict.later.cta, scene.launch.grid),
        warp=conflict.later.warp,
        lanes=conflict.later.lanes,
        address=conflict.address,
        count=conflict.count,
        severity=conflict.severity,
        cure=cure,
        name=where.rpartition("+")[0],
        other=earlier.place if earlier and two else None,
        other_warp=conflict.earlier.warp if two else -1,
        other_lanes=conflict.earlier.lanes if two else 0,
        other_cta=_position(conflict.earlier.cta, scene.launch.grid) if conflict.across else None,
        cure_place=cure_place,
    )


def _place(ins: Instruction | None) -> Place | None:
    return ins.place if ins else None


def _barriers(scene: Scene, *, of_warps: bool) -> list[Place]:
    """Return the places of the kernel's barriers; with `of_warps`, also of those that order lanes of one warp."""
    found = [item for item in scene.source.inlined.body if isinstance(item, Instruction)]
    kept = (ins for ins in found if ins.facts.is_barrier or (of_warps and ins.facts.is_warp_barrier))
    return [ins.place for ins in kept if ins.place is not None]


def _unjudged(scene: Scene, depth: _Depth, left: Mapping[int, set[int]], total: int) -> Finding:
    cta, sites = next(iter(left.items()))
    ins = scene.source.instruction_at.get(min(sites)) if sites else None
    which = "CTAs with asynchronous accesses" if depth.has_agents else "suspicious CTAs"
    words = f"{len(left)} of {total} {which} were not checked in detail"
    words += "; CTAs that did the same were" if depth.whole else f" beyond {LOG_AT_MOST:,} accesses"
    return Finding(
        "R102",
        words if depth.has_agents else f"possible race: {words}",
        ptx_line=ins.line if ins else 0,
        place=ins.place if ins else None,
        cta=_position(cta, scene.launch.grid),
        severity=depth.severity,
        cure="launch a smaller grid",
        count=len(left),
    )


def _position(number: int, grid: Dim3) -> Dim3:
    return (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
