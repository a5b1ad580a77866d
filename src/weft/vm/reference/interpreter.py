"""The slow, simple interpreter: it defines what a launch computes.

CTAs run one after the other, or in turn if one may wait for another, as those of a cluster do. Within a CTA warps run
in order, each until all its lanes wait or have exited. Within a warp the lanes with the lowest program counter run
first, together. A lane that reaches a warp collective is parked until every live lane of its member mask has reached
the same instruction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from math import prod
from typing import Any

import numpy as np

from weft.core.records import Finding
from weft.ptx.module import Function, Instruction, Module
from weft.ptx.passes.build_cfg import build_cfg
from weft.ptx.passes.find_in_flight import is_product
from weft.ptx.passes.find_waits import waits_for_others
from weft.ptx.passes.kernel_passes import KernelPasses

from ..clusters import cluster_with, members, reaches_peers
from ..findings import in_flight_findings
from ..launch_spec import DeviceRun, LaunchSpec
from ..layout import Layout
from ..memory import GlobalMemory
from . import (
    bits,
    bulk,
    cluster,
    compare,
    control,
    convert,
    floating,
    half,
    integer,
    matrix,
    mbarrier,
    sync,
    warpgroups,
    wgmma,
)
from . import memory as memory_chapter
from .bulk_queue import finish
from .machine import EXITED, PARKED, RUNNING, WAITING, Cluster, Cta, Grid, Observer, RunningWarp, Stop
from .program import line_up
from .warp import Lanes

EXECUTE: Mapping[str, Mapping[str, Callable[[Any, Instruction], None]]] = {
    "integer": integer.EXECUTE,
    "bits": bits.EXECUTE,
    "floating": floating.EXECUTE,
    "half": half.EXECUTE,
    "compare": compare.EXECUTE,
    "convert": convert.EXECUTE,
    "memory": memory_chapter.EXECUTE,
    "control": control.EXECUTE,
    "sync": sync.EXECUTE,
    "mbarrier": mbarrier.EXECUTE,
    "matrix": matrix.EXECUTE,
    "wgmma": wgmma.EXECUTE,
    "bulk": bulk.EXECUTE,
    "cluster": cluster.EXECUTE,
}
"""Chapter → opcode name → its implementation."""
_TURN = 50_000
"""Warp instructions after which a warp yields to the others, because it may spin on a value that they will write."""
_TURN_TOGETHER = 64
"""The same if CTAs may wait for each other."""
MOST_TOGETHER = 256
"""CTAs that run at once in that case."""
_MOST_FRUITLESS = 1000
"""Rounds in which all warps only wait for mbarriers, and none of these changes, before that is a deadlock."""
_PATIENCE = 1024
"""Warp instructions for which a runnable lane is passed over: the others may spin on a value that it will write."""
_FAVOUR = 256
"""Warp instructions that such a lane then gets."""


def run(
    module: Module,
    launch: LaunchSpec,
    memory: GlobalMemory,
    *,
    layout: Layout,
    globals_at: Mapping[str, int],
    arch: str = "sm_89",
    ctas: Iterable[int] | None = None,
    observer: Observer | None = None,
) -> DeviceRun:
    """Execute one launch on `memory`; only the CTAs with these linear numbers, if some are given."""
    grid = Grid(module, launch, layout, memory, globals_at, arch, line_up(module, launch.entry), observer)
    waiting = _clusters(grid, ctas)
    waits = any(_waits(module, code.function) for code in grid.program.codes.values())
    size = prod(grid.cluster)
    together = max(MOST_TOGETHER // size, 1) if waits else 1
    under_way: list[Cta] = []
    try:
        while under_way := [*under_way, *chain(*islice(waiting, together - -(-len(under_way) // size)))]:
            grid.turn = _TURN if together * size == 1 else _TURN_TOGETHER
            under_way = [cta for cta in under_way if _run_cta(cta, to_its_end=together * size == 1)]
            if under_way and all(cta.fruitless > _MOST_FRUITLESS for cta in under_way):
                _hopeless(under_way[0], [warp for warp in under_way[0].warps if warp.live.any()])
    except Stop:
        pass
    findings = (*grid.findings.values(), *_known_without_a_run(grid))
    return DeviceRun(findings, "".join(grid.printed), grid.steps, conditions=grid.conditions)


def _clusters(grid: Grid, chosen: Iterable[int] | None) -> Iterator[list[Cta]]:
    """Yield the CTAs of each cluster, by rank; only clusters with one of the chosen CTAs, if some are given."""
    sizes, (nx, ny, nz) = grid.cluster, grid.launch.grid
    every = range(nx * ny * nz // prod(sizes))
    numbers = every if chosen is None else dict.fromkeys(cluster_with(grid.launch.grid, sizes, cta) for cta in chosen)
    for number in numbers:
        places = members(grid.launch.grid, sizes, number)
        ctas = [Cta(grid, (cta % nx, cta // nx % ny, cta // (nx * ny))) for cta in places]
        shared = Cluster(ctas)
        for cta in ctas:
            cta.cluster = shared
        yield ctas


def _known_without_a_run(grid: Grid) -> tuple[Finding, ...]:
    instructions = [ins for ins in grid.program.instructions if ins is not None]
    if not any(is_product(ins) for ins in instructions):
        return ()
    passes = KernelPasses(grid.module, grid.program.entry.function, warps_are_rows=True)
    return in_flight_findings(passes.in_flight, {ins.line: ins for ins in instructions})


def _waits(module: Module, function: Function) -> bool:
    return waits_for_others(build_cfg(function))


def _run_cta(cta: Cta, *, to_its_end: bool) -> bool:
    """Run rounds of all warps in order, or one round; complete barriers open between rounds. False when it is over."""
    while cta.live_threads():
        ran = [warp for warp in cta.warps if _run_warp(warp)]
        if sync.release(cta) or any(not warp.gives_way for warp in ran):
            cta.fruitless = 0
        elif not ran:
            _deadlock(cta)
        else:
            cta.fruitless += 1
            if to_its_end and cta.fruitless > _MOST_FRUITLESS:
                _hopeless(cta, ran)
        if not to_its_end:
            return True
    finish(cta)
    warpgroups.finish(cta)
    return False


def _hopeless(cta: Cta, waiting: list[RunningWarp]) -> None:
    """Report what warps wait for when all warps only wait, and end the launch."""
    for w in waiting:
        code, name = "S301", f"deadlock: these lanes wait for the mbarrier at {w.waits_at:#x}, which misses"
        lanes = sum(1 << int(lane) for lane in np.flatnonzero(w.live))
        words = f"{name} {mbarrier.missing_at(cta, w.waits_at)}"
        if w.missing_registers is not None:
            needed, free = w.missing_registers
            words = f"deadlock: setmaxnreg.inc waits for {needed} registers of the CTA's pool, which has {free}"
        if w.missing_threads:
            threads = prod(cta.grid.launch.block) * len(cta.cluster.ctas)
            missing = f"{w.missing_threads} of its {threads} threads miss"
            words = f"deadlock: these lanes wait for the barrier of their cluster, which {missing}"
        if w.behind is not None:
            code, name = "S311", f"deadlock: wgmma.wait_group waits for warp {w.behind.number} of the warpgroup"
            words = f"{name}, which has executed {w.behind.steps_taken} of its wgmma and setmaxnreg"
        cta.grid.record(Finding(code, words, int(w.line[w.live].max()), None, cta.index, w.number, lanes))
    if any(_held(w).any() for w in cta.warps):
        _deadlock(cta)
    raise Stop


def _held(w: RunningWarp) -> Lanes:
    """Return the lanes at a barrier or a collective."""
    held: Lanes = (w.state == WAITING) | (w.state == PARKED)
    return held


def _run_warp(w: RunningWarp) -> bool:
    """Run until every lane is parked, waits or has exited, or the turn is over. False if no lane could run."""
    began, w.gives_way, w.missing_registers, w.missing_threads, w.behind = w.steps, False, None, 0, None
    while w.steps - began < w.grid.turn and not w.gives_way:
        if not _meet(w) and not _step(w):
            break
    return w.steps > began


def _step(w: RunningWarp) -> bool:
    """Execute one instruction for the lanes with the lowest program counter."""
    running = w.state == RUNNING
    if not running.any():
        return False
    pc = int(w.pc[running].min())
    if not running[w.favoured] or w.steps >= w.favoured_until:
        waited = np.where(running, w.steps - w.last_run, 0)
        if waited.max() > _PATIENCE:
            w.favoured, w.favoured_until = int(waited.argmax()), w.steps + _FAVOUR
    if running[w.favoured] and w.steps < w.favoured_until:
        pc = int(w.pc[w.favoured])
    group = running & (w.pc == pc)
    w.enter(w.grid.program.owners[pc])
    ins = w.grid.program.instructions[pc]
    if ins is None:
        _spend(w, group)
        w.mask = group
        control.leave(w)
        w.pc[group] = w.next_pc[group]
        return True
    if w.grid.observer is not None and ins.guard is not None:
        w.grid.observer.guard(w, ins, group)
    on = group & _guard(w, ins)
    members = _members(w, ins)
    if members is None:
        _execute(w, ins, group, on)
        return True
    w.state[on] = PARKED
    w.member[on] = members[on]
    w.line[on] = ins.line
    off = group & ~on
    w.pc[off] += 1
    if not on.any():
        _spend(w, off)
    return True


def _guard(w: RunningWarp, ins: Instruction) -> Lanes:
    if ins.guard is None:
        return np.ones(32, bool)
    value = w.file[ins.guard.reg.name]
    return ~value if ins.guard.negated else value


def _members(w: RunningWarp, ins: Instruction) -> Lanes | None:
    """Return the member mask of a warp collective, per lane; None for other instructions."""
    if "mask" in ins.form.index:
        return w.src(ins, "mask")
    return np.full(32, 0xFFFFFFFF, np.uint32) if ins.facts.group == "warp" else None


def _meet(w: RunningWarp) -> bool:
    """Execute a collective whose members have all arrived. False if there is none."""
    parked = w.state == PARKED
    if not parked.any():
        return False
    lane = np.arange(32)
    for first in np.flatnonzero(parked):
        ins = w.grid.program.instructions[int(w.pc[first])]
        assert ins is not None
        group = parked & (w.member == w.member[first])
        if not ins.facts.is_warp_barrier:  # bar.warp.sync may be several instructions with the same mask
            group &= w.pc == w.pc[first]
        wanted = (int(w.member[first]) >> lane & 1).astype(bool) & w.live
        if (wanted & ~group).any():
            continue
        unnamed = group & ~(int(w.member[first]) >> lane & 1).astype(bool)
        if unnamed.any():
            w.report("S304", f"{ins.opcode} by a lane outside its member mask", ins, unnamed)
        gone = w.present & ~w.live
        if gone.any() and "mask" not in ins.form.index:
            w.report("S307", f"{ins.opcode} needs all lanes of the warp, but these lanes have exited", ins, gone)
        w.enter(w.grid.program.owners[int(w.pc[first])])
        w.state[group] = RUNNING
        _execute(w, ins, group, group)
        return True
    return False


def _execute(w: RunningWarp, ins: Instruction, group: Lanes, on: Lanes) -> None:
    """Execute `ins` for the lanes `on`; all of `group` continue after it."""
    _spend(w, group)
    w.line[group] = ins.line
    w.next_pc[group] = w.pc[group] + 1
    w.mask = on
    if on.any():
        observer = w.grid.observer
        if observer is not None:
            observer.before(w, ins)
        execute = EXECUTE[ins.form.chapter][ins.form.name]
        if ins.find("ctas") is not None:
            cluster.multicast(w, ins, execute)
        elif ins.facts.uses_memory and not ins.facts.starts and reaches_peers(ins, generic=w.grid.maps_generic):
            cluster.at_each_cta(w, ins, execute)
        else:
            execute(w, ins)
        if observer is not None:
            observer.after(w, ins)
    w.pc[group] = w.next_pc[group]


def _spend(w: RunningWarp, group: Lanes) -> None:
    if w.grid.steps >= w.grid.launch.max_steps:
        w.grid.record(
            Finding(
                "S302",
                f"instruction budget exhausted after {w.grid.steps} warp instructions: possible infinite loop",
                int(w.line.max()),
                None,
                w.cta.index,
                w.number,
            )
        )
        raise Stop
    w.grid.steps += 1
    w.steps += 1
    w.last_run[group] = w.steps


def _deadlock(cta: Cta) -> None:
    """Report which lanes wait where when no lane can continue, and end the launch."""
    where: dict[tuple[int, str], list[str]] = {}
    for w in cta.warps:
        for line in sorted(set(w.line[w.live].tolist())):
            for state, verb in ((WAITING, "barrier"), (PARKED, "warp collective")):
                lanes = [str(lane) for lane in np.flatnonzero((w.state == state) & (w.line == line))]
                if lanes:
                    text = "all lanes" if len(lanes) == np.count_nonzero(w.live) else f"lanes {','.join(lanes)}"
                    where.setdefault((line, verb), []).append(f"warp {w.number} {text}")
    who = "; ".join(f"{', '.join(names)} at the {verb} in PTX line {line}" for (line, verb), names in where.items())
    gone = sum(int(np.count_nonzero(w.state == EXITED)) for w in cta.warps)
    first = next(w for w in cta.warps if _held(w).any())
    mask = sum(1 << int(lane) for lane in np.flatnonzero(_held(first)))
    cta.grid.record(
        Finding(
            "S301",
            f"deadlock: {who}; {gone} threads have exited",
            int(first.line[_held(first)].max()),
            None,
            cta.index,
            first.number,
            mask,
        )
    )
    raise Stop
