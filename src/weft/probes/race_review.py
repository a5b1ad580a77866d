"""Turns suspicions into findings: runs the suspicious CTAs of the first pass again and judges them exactly.

All of them first run again under a second look, which clears most; it is compiled code, the judgement is not.
Races in shared memory and of copies are judged CTA by CTA, those in global memory for the entire launch. One run
records all CTAs that are left, if their log is short enough.
Every suspicious CTA is judged as long as their logs together stay below a limit; after that one CTA for each set of
suspicious instructions, and a finding says how many CTAs that one represents. What could not be judged at all stays as
a warning.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from weft.core.finding_codes import Severity
from weft.core.records import Dim3, Finding, Place
from weft.ptx.module import Instruction
from weft.vm.clusters import maps_generic, reaches_peers
from weft.vm.ir import LANES
from weft.vm.launch import REPORT_CAPACITY
from weft.vm.memory import GLOBAL_BASE
from weft.vm.runtime.watch import Scene

from .barrier_line import barrier_line
from .conflict import Conflict
from .global_race import MOST_THREADS, copied_and_used, suspects
from .global_race_review import judge_global
from .happens_before import Known, find_conflicts_in_cta
from .race_cure import cure_of
from .read_only_loads import ReadOnlyLoads, WrittenRead, read_only_sites
from .record import Recorder
from .semantics import semantics_of

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
}  # fmt: skip


@dataclass(frozen=True)
class _Depth:
    """How far CTAs were judged."""

    whole: bool
    """Whether all of the log was."""
    only_agents: bool
    """Whether the first pass suspects nothing in them: they have asynchronous accesses, which it does not follow."""

    @property
    def severity(self) -> Severity:
        return Severity.INFO if self.whole or self.only_agents else Severity.WARNING


def judge_suspects(
    scene: Scene, suspect: int, agents: int, look_again: Callable[[Scene, Collection[int]], Iterable[int]]
) -> tuple[Finding, ...]:
    """Return the races of the CTAs that reported `suspect` and that `look_again` does not clear, or `agents`."""
    found_sites: dict[int, dict[int, set[int]]] = {suspect: {}, agents: {}}
    for row in scene.reports:
        if int(row["code"]) in found_sites:
            found_sites[int(row["code"])].setdefault(int(row["cta"]), set()).add(int(row["line"]))
    for code, ctas in found_sites.items():
        if ctas and len(scene.reports) >= REPORT_CAPACITY:  # some reports may be lost: any CTA may be suspicious
            found_sites[code] = {number: ctas.get(number, set()) for number in range(math.prod(scene.launch.grid))}
    sites = {cta: found_sites[suspect][cta] for cta in look_again(scene, found_sites[suspect])}
    only_agents = found_sites[agents].keys() - sites
    sites |= {cta: found_sites[agents][cta] for cta in only_agents}
    conflicts: dict[int, list[Conflict]] = {}
    judged: dict[frozenset[int], _Depth] = {}
    left: dict[_Depth, dict[int, set[int]]] = {}
    spent = 0
    same = Known()
    logs = _logs(scene, sites)
    for cta in _ends_first(sorted(sites)):
        suspicious, instructions = sites[cta], frozenset(sites[cta])
        if spent > RECORDS_AT_MOST and instructions in judged:
            left.setdefault(judged[instructions], {})[cta] = suspicious
            continue
        log, whole = (logs[cta], True) if cta in logs else _log(scene, cta)
        judged[instructions] = _Depth(whole, cta in only_agents)
        if not whole:
            left.setdefault(judged[instructions], {})[cta] = suspicious
        shapes = len(same.shapes)
        conflicts[cta] = _conflicts(scene, log, same if cta in logs else Known())
        if cta not in logs or len(same.shapes) > shapes:  # a CTA that did the same as another costs little
            spent += len(log)
        if not whole:  # a wait may follow
            conflicts[cta] = [each for each in conflicts[cta] if each.code not in ("S309", "S313")]
    found: dict[tuple[object, ...], Finding] = {}
    for cta in sorted(conflicts):
        _add(found, scene, conflicts[cta])
    if any(finding.level is Severity.ERROR for finding in found.values()):  # that other CTAs did the same is no news
        left = {depth: ctas for depth, ctas in left.items() if depth.severity is not Severity.INFO}
    unjudged = (_unjudged(scene, depth, ctas, len(sites)) for depth, ctas in left.items())
    return (*found.values(), *unjudged)


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


def unchecked_peers(scene: Scene) -> tuple[Finding, ...]:
    """Return a note about accesses to the shared memory of other CTAs, which are not checked for races."""
    if math.prod(scene.source.function.cluster) < 2 and math.prod(scene.launch.cluster) < 2:
        return ()
    generic = maps_generic(scene.source.inlined)
    body = [item for item in scene.source.inlined.body if isinstance(item, Instruction)]
    found = [ins for ins in body if ins.facts.uses_memory and reaches_peers(ins, generic=generic)]
    if not found:
        return ()
    message = "races of accesses to the shared memory of other CTAs of the cluster were not checked"
    cure = "order them by barrier.cluster, or by an mbarrier of the CTA that owns the memory"
    first = found[0]
    note = Finding("R102", message, ptx_line=first.line, place=first.place, severity=Severity.INFO, cure=cure)
    return (replace(note, count=len(found)),)


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


def _logs(scene: Scene, ctas: Collection[int]) -> dict[int, npt.NDArray[np.void]]:
    """Return the logs of all these CTAs from one run; none if there is only one, or if they are too long together."""
    capacity = min(FIRST_LOG * len(ctas), LOG_OF_ALL)
    if len(ctas) < 2 or not capacity:
        return {}
    log, count = _recorded(scene, sorted(ctas), capacity)
    if count > capacity:
        return {}
    whose = log["cta"]
    by_cta = np.argsort(whose, kind="stable")
    parts = np.split(by_cta, np.flatnonzero(np.diff(whose[by_cta])) + 1)
    return {int(whose[part[0]]): log[part] for part in parts if len(part)}


def _recorded(scene: Scene, ctas: Sequence[int], capacity: int) -> tuple[npt.NDArray[np.void], int]:
    chosen = np.zeros(math.prod(scene.launch.grid), bool)
    chosen[ctas] = True
    recorder = Recorder(chosen, capacity)
    scene.again(recorder, ctas)
    return recorder.read()


def _ends_first(ctas: list[int]) -> list[int]:
    """The first, the last, the second, the last but one, and so on: the last ones have the rests of tiles."""
    pairs = zip(ctas, reversed(ctas), strict=True)
    return list(dict.fromkeys(cta for pair in pairs for cta in pair))


def _log(scene: Scene, cta: int) -> tuple[npt.NDArray[np.void], bool]:
    """The log of one CTA, and whether it is whole."""
    log, count = _recorded(scene, [cta], FIRST_LOG)
    if count > FIRST_LOG:
        log, count = _recorded(scene, [cta], min(count, LOG_AT_MOST))
    return log, len(log) == count


def _conflicts(scene: Scene, log: npt.NDArray[np.void], same: Known) -> list[Conflict]:
    return find_conflicts_in_cta(log, math.prod(scene.launch.block), semantics_of(scene), same)


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
    after = barrier_line(
        _place(behind), _place(later if behind is earlier else earlier), _barriers(scene, of_warps=in_warp)
    )
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
    which = "CTAs with asynchronous accesses" if depth.only_agents else "suspicious CTAs"
    words = f"{len(left)} of {total} {which} were not checked in detail"
    words += "; CTAs that did the same were" if depth.whole else f" beyond {LOG_AT_MOST:,} accesses"
    return Finding(
        "R102",
        words if depth.only_agents else f"possible race: {words}",
        ptx_line=ins.line if ins else 0,
        place=ins.place if ins else None,
        cta=_position(cta, scene.launch.grid),
        severity=depth.severity,
        cure="launch a smaller grid",
        count=len(left),
    )


def _position(number: int, grid: Dim3) -> Dim3:
    return (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
