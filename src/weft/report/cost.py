"""A kernel's profile → the data of its sections: bounds, occupancy, counters, and cost by line."""

from collections.abc import Callable
from math import prod

from weft.core.records import Place
from weft.model.estimate import Estimate
from weft.profile.advice import launch_advice, line_advice
from weft.profile.kernel_profile import KernelProfile, LaunchProfile
from weft.profile.roofline_points import roofline

from .records import Cost, LaunchCost, LineCost, Named


def cost_of(profile: KernelProfile) -> Cost:
    """Return the cost of all launches on the GPU."""
    sizes = " ".join(f"{name}={value}" for name, value in {**profile.sizes, **profile.defines}.items())
    low, high = profile.estimate
    longest = profile.longest
    bounds, warm = longest.bounds, longest.warm
    facts = (
        Named("limiter", bounds.warm_limiter),
        Named("at least", f"{profile.warm:,} cycles · {bounds.microseconds(profile.warm):.1f} µs"),
        Named("at least, cold", f"{profile.cold:,} cycles · {bounds.microseconds(profile.cold):.1f} µs"),
        Named("estimate", _estimate(warm, low, high) if profile.has_estimate else "not given for this GPU"),
        Named("warps per SM", f"{longest.occupancy.warps} of {longest.occupancy.max_warps}"),
    )
    return Cost(
        title=" · ".join([profile.chip.title, sizes, profile.compiler]),
        facts=facts,
        launches=tuple(_launch(launch, profile.chip.sms) for launch in profile.launches),
        roofline=roofline(profile),
    )


def _estimate(warm: Estimate, low: float, high: float) -> str:
    return f"{_range(low, high)} cycles · {_micro(warm.microseconds(low), warm.microseconds(high))} µs"


def line_costs_of(profile: KernelProfile, line_here: Callable[[Place | None], int | None]) -> tuple[LineCost, ...]:
    """Return the cost by line of the kernel's file: cycles of all launches, unit and advice of the costliest one."""
    found: dict[int, LineCost] = {}
    for launch in profile.launches:
        for cost in launch.lines:
            line = line_here(cost.place)
            if line is None or cost.cycles <= 0:
                continue
            made = LineCost(line, cost.cycles, cost.unit, line_advice(cost))
            before = found.get(line)
            if before is not None:
                dearer = max(before, made, key=lambda each: each.cycles)
                made = LineCost(line, before.cycles + made.cycles, dearer.unit, dearer.advice)
            found[line] = made
    return tuple(sorted(found.values(), key=lambda each: each.line))


def _launch(launch: LaunchProfile, sms: int) -> LaunchCost:
    held, needs = launch.occupancy, launch.resources
    spilled = needs.spill_store_bytes + needs.spill_load_bytes
    facts = (
        Named("registers", str(needs.registers)),
        Named("shared memory", f"{launch.shared_bytes:,} bytes"),
        Named("spilled", f"{spilled:,} bytes"),
        Named("waves", f"{held.waves:.2f} ({prod(launch.grid):,} blocks)"),
        Named("matched to SASS", f"{launch.counts.matched:.1%}"),
        Named("estimate", launch.warm.label),
    )
    static = {"launch__registers_per_thread": needs.registers, **held.ncu}
    counters = {**launch.counts.ncu, **{name: round(value, 2) for name, value in static.items()}}
    return LaunchCost(
        entry=launch.entry,
        shape=f"grid {_dims(launch.grid)} · block {_dims(launch.block)}",
        facts=facts,
        bounds=tuple(sorted(launch.bounds.terms.items(), key=lambda term: -term[1])),
        estimate=(launch.warm.low, launch.warm.high),
        limiter=launch.bounds.warm_limiter,
        occupancy=(
            ("registers", held.by_registers),
            ("shared memory", held.by_shared),
            ("warps", held.by_warps),
            ("blocks", held.by_blocks),
        ),
        warps=(held.warps, held.max_warps),
        counters=tuple(counters.items()),
        own_counters=tuple((name, count) for name, count in sorted(launch.counts.vm.items()) if count),
        advice=launch_advice(launch, sms),
        notes=tuple(launch.counts.notes),
    )


def _dims(size: tuple[int, int, int]) -> str:
    return " × ".join(map(str, size))


def _range(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys((f"{low:,.0f}", f"{high:,.0f}")))


def _micro(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys((f"{low:.1f}", f"{high:.1f}")))
