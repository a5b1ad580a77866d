"""The output of `weft profile`: headline, counters, costly lines; a comparison of kernels; changes."""

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

from weft.core.records import Place
from weft.kernels.ladder import FOLDER
from weft.profile.advice import launch_advice, line_advice
from weft.profile.baseline import Change, integers
from weft.profile.kernel_profile import KernelProfile, LaunchProfile
from weft.profile.line_costs import LineCost

from .tables import print_table

MODELLED = "modelled, not measured: counters of the virtual GPU and the cubin's SASS, cycles of a model"
LINES_NAMED = 3


def show(profile: KernelProfile, lines: int) -> None:
    """Print one kernel, launch by launch, and a summary line."""
    sizes = " ".join(f"{name}={value}" for name, value in {**profile.sizes, **profile.defines}.items())
    print(" · ".join([profile.target, profile.chip.title, sizes, profile.compiler]))
    for number, launch in enumerate(profile.launches, 1):
        if len(profile.launches) > 1:
            print(f"launch {number} of {len(profile.launches)}: {launch.entry}")
        for line in headline(launch, profile):
            print(line)
        rows = [[name, value] for name, value in _exact(launch).items()]
        print_table(["counter (ncu's name)", "value"], rows)
        print_table(["counter (Weft's)", "value"], [[name, n] for name, n in sorted(launch.counts.vm.items()) if n])
        print_table(
            ["line", "cycles", "unit", "advice"],
            [[place(line.place), round(line.cycles), line.unit, line_advice(line)] for line in launch.lines[:lines]],
        )
        for note in launch.counts.notes:
            print(f"note: {note}")
    print(summary(profile))


NO_ESTIMATE = (
    "not given for {}: the model has no measured rates of wgmma and bulk copies. LB, resources, and counts of "
    "instructions and of accesses by threads hold; what wgmma and bulk copies move is in no counter of sectors"
)


def headline(launch: LaunchProfile, profile: KernelProfile) -> Iterator[str]:
    """Yield limiter, bounds, estimate, occupancy, and advice about the launch."""
    bounds, warm, cold, held = launch.bounds, launch.warm, launch.cold, launch.occupancy
    blocks = prod(launch.grid)
    yield f"limiter    {bounds.warm_limiter} (warm), {bounds.cold_limiter} (cold)"
    for name, cycles in (("LB_warm", bounds.warm), ("LB_cold", bounds.cold)):
        yield f"{name}    {cycles} cycles, {bounds.microseconds(cycles):.1f} µs at {bounds.clock_ghz:g} GHz, at least"
    if not profile.has_estimate:
        yield f"EST        {NO_ESTIMATE.format(profile.chip.title)}"
    for name, guess in (("EST_warm", warm), ("EST_cold", cold)) if profile.has_estimate else ():
        ends = list(dict.fromkeys(f"{guess.microseconds(end):.1f}" for end in (guess.low, guess.high)))
        cycles_text = " to ".join(dict.fromkeys(f"{end:.0f}" for end in (guess.low, guess.high)))
        yield f"{name}   {cycles_text} cycles, {' to '.join(ends)} µs at {guess.clock_ghz:g} GHz, {guess.label}"
    yield f"tensor     {tensor_cores(launch, estimated=profile.has_estimate)}"
    yield (
        f"occupancy  {held.warps} of {held.max_warps} warps per SM (blocks: {held.blocks}), limited by "
        f"{' and '.join(held.limiters)}; {blocks} blocks are {held.waves:.2f} waves"
    )
    yield (
        f"resources  {launch.resources.registers} registers, {launch.shared_bytes} bytes of shared memory, "
        f"{launch.resources.spill_store_bytes + launch.resources.spill_load_bytes} bytes spilled"
    )
    yield f"matched    {launch.counts.matched:.1%} of executed accesses to SASS"
    for advice in launch_advice(launch, profile.chip.sms):
        yield f"advice     {advice}"


def tensor_cores(launch: LaunchProfile, *, estimated: bool = True) -> str:
    """Return how busy the tensor cores are by the estimate, and at most by the lower bound."""
    if not launch.warm.tensor_cycles:
        return "no tensor-core instruction"
    if not estimated:
        return f"busy at most {_most_busy(launch):.1%}, at LB_warm"
    ends = " to ".join(dict.fromkeys(f"{share:.1%}" for share in launch.warm.tensor_utilisation))
    return f"busy {ends} of EST_warm; at most {_most_busy(launch):.1%}, at LB_warm"


def _most_busy(launch: LaunchProfile) -> float:
    return launch.warm.tensor_cycles / launch.bounds.warm


def show_side_by_side(profiles: Sequence[KernelProfile]) -> None:
    """Print one column per kernel, with the counters of all its launches added."""
    rows: list[list[object]] = []

    def put(name: str, cells: Sequence[object]) -> None:
        rows.append([name, *cells])

    put("launches", [len(each.launches) for each in profiles])
    put("limiter", [each.longest.bounds.warm_limiter for each in profiles])
    put("LB_warm cycles", [each.warm for each in profiles])
    put("LB_cold cycles", [each.cold for each in profiles])
    if profiles[0].has_estimate:
        put("EST_warm cycles", [" to ".join(f"{end:.0f}" for end in dict.fromkeys(each.estimate)) for each in profiles])
        put("tensor cores busy", [_busy(each) for each in profiles])
    put("warps per SM", [f"{each.longest.occupancy.warps} of {each.longest.occupancy.max_warps}" for each in profiles])
    put("limited by", [" ".join(each.longest.occupancy.limiters) for each in profiles])
    totals = [_totals(each) for each in profiles]
    for name in totals[0]:
        put(name, [total[name] for total in totals])
    counted = [each.counters() for each in profiles]
    for which in (0, 1):
        for name in sorted({name for pair in counted for name in pair[which]}):
            cells = [pair[which].get(name, "–") for pair in counted]
            if any(cell not in (0, "–") for cell in cells):
                put(name, cells)
    put("SASS matched", [f"{min(launch.counts.matched for launch in each.launches):.1%}" for each in profiles])
    print_table(["", *(each.target for each in profiles)], rows)
    first = profiles[0]
    for other in profiles[1:]:
        print(f"{other.target} against {first.target}: LB_warm ×{other.warm / first.warm:.2f}")
    print(f"{first.chip.title} · {MODELLED}")


def _busy(profile: KernelProfile) -> str:
    """Return the share of EST_warm over all launches, for both ends of the range."""
    cycles = sum(launch.warm.tensor_cycles for launch in profile.launches)
    low, high = profile.estimate
    return " to ".join(dict.fromkeys(f"{cycles / end:.1%}" for end in (high, low)))


def summary(profile: KernelProfile) -> str:
    """Return the last line."""
    low, high = profile.estimate
    estimate = f", EST_warm {low:.0f} to {high:.0f}" if profile.has_estimate else ""
    return (
        f"{profile.target}: {profile.longest.bounds.warm_limiter} limits it, LB_warm {profile.warm} cycles, "
        f"LB_cold {profile.cold}{estimate} · {MODELLED}"
    )


def change_lines(profile: KernelProfile, changes: Sequence[Change]) -> Iterator[str]:
    """Yield each counter that changed; those that got worse with the lines that grew."""
    for change in sorted(changes, key=lambda each: not each.worse):
        word = "worse" if change.worse else "better"
        yield f"{word}: {profile.target}: {change.entry}: {change.counter} {change.before} → {change.now}"
        if change.worse:
            for line in change.lines[:LINES_NAMED]:
                yield f"  {place(line.place)}: {line.before} → {line.now}: {line.text}"


def record(profile: KernelProfile, lines: int) -> dict[str, Any]:
    """Return the JSON record."""
    return {
        "target": profile.target,
        "gpu": profile.chip.name,
        "sizes": dict(profile.sizes),
        "defines": dict(profile.defines),
        "compiler": profile.compiler,
        "lb_warm_cycles": profile.warm,
        "lb_cold_cycles": profile.cold,
        "est_warm_cycles": list(profile.estimate) if profile.has_estimate else None,
        "launches": [_launch_record(launch, lines, profile) for launch in profile.launches],
    }


def _launch_record(launch: LaunchProfile, lines: int, profile: KernelProfile) -> dict[str, Any]:
    bounds, guessed = launch.bounds, profile.has_estimate
    return {
        "entry": launch.entry,
        "grid": launch.grid,
        "block": launch.block,
        "limiter": {"warm": bounds.warm_limiter, "cold": bounds.cold_limiter},
        "bounds": {"clock_ghz": bounds.clock_ghz, **bounds.named},
        "estimates": {
            name: {"clock_ghz": guess.clock_ghz, "label": guess.label, "limiter": guess.limiter, **guess.named}
            for name, guess in (("warm", launch.warm), ("cold", launch.cold))
        }
        if guessed
        else {},
        "tensor_utilisation": {
            "estimate": launch.warm.tensor_utilisation if guessed else None,
            "at_most": _most_busy(launch),
        },
        "occupancy": {
            "blocks": launch.occupancy.blocks,
            "warps": launch.occupancy.warps,
            "max_warps": launch.occupancy.max_warps,
            "limiters": launch.occupancy.limiters,
        },
        "integers": integers(launch),
        "ncu": _exact(launch),
        "vm": dict(launch.counts.vm),
        "sass_matched": launch.counts.matched,
        "notes": launch.counts.notes,
        "advice": launch_advice(launch, profile.chip.sms),
        "lines": [_line_record(line) for line in launch.lines[:lines]],
    }


def _line_record(line: LineCost) -> dict[str, Any]:
    return {
        "place": place(line.place),
        "cycles": line.cycles,
        "unit": line.unit,
        "instructions": line.instructions,
        "accesses": line.executed,
        "wavefronts": line.wavefronts,
        "excess_wavefronts": line.excess,
        "sectors": line.sectors,
        "advice": line_advice(line),
    }


def place(at: Place | None) -> str:
    """Return the place as text: a rung's file by its name, others as the user wrote them."""
    if at is None:
        return "(no line)"
    file = Path(at.file)
    return f"{file.name if file.is_relative_to(FOLDER) else at.file}:{at.line}"


def _exact(launch: LaunchProfile) -> dict[str, float]:
    """Return the counters that have an ncu name."""
    static = {"launch__registers_per_thread": launch.resources.registers, **launch.occupancy.ncu}
    return {**launch.counts.ncu, **{name: round(value, 2) for name, value in static.items()}}


def _totals(profile: KernelProfile) -> dict[str, object]:
    """Return the counters of a baseline: sums, or the value of the longest launch where a sum makes no sense."""
    each = [integers(launch) for launch in profile.launches]
    found: dict[str, object] = {}
    for name, value in integers(profile.longest).items():
        alone = name in ("registers", "blocks_per_sm")
        if not name.startswith("lb_"):
            found[name] = value if alone else sum(row[name] for row in each)
    return found
