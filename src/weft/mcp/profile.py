"""The tool `profile`: what limits a kernel on a GPU, and its costliest lines. Modelled, not measured."""

from pathlib import Path as File
from typing import Annotated

from mcp.types import CallToolResult
from pydantic import Field

from weft.core.chips import chip as find_chip
from weft.interop.open_kernel import load
from weft.judge.shape_sizes import call_at
from weft.kernels.ladder import RUNGS
from weft.profile.advice import launch_advice, line_advice
from weft.profile.kernel_profile import KernelProfile, LaunchProfile, profile_kernel

from .answers import CostlyLine, LaunchAnswer, ProfileAnswer, reply, where
from .apart import apart
from .calls import AnyContext, Progress, carried_out
from .options import Detail, Gpu, Language, Launch, Path, Text
from .sources import Given, written

LINES, MORE_LINES = 3, 15


def profile(
    context: AnyContext,
    path: Path = "",
    text: Text = "",
    language: Language = "cuda",
    launch: Launch = "",
    gpu: Gpu = "l4",
    shape: Annotated[str, Field(description="A named shape, such as mission. Empty: the sizes in the file.")] = "",
    sizes: Annotated[dict[str, int] | None, Field(description='Sizes of the launch lines, such as {"S": 512}.')] = None,
    defines: Annotated[
        dict[str, str] | None, Field(description="Macros that override those of the launch lines.")
    ] = None,
    detail: Detail = False,
) -> Annotated[CallToolResult, ProfileAnswer]:
    """Model a kernel on a GPU: advice, limiter, bounds and estimate in cycles, occupancy, the costliest lines."""
    with carried_out():
        given, progress = Given(path, text, language, launch), Progress(context)
        arguments = {
            "given": given,
            "gpu": gpu,
            "shape": shape,
            "sizes": sizes or {},
            "defines": defines or {},
            "detail": detail,
        }
        progress.tell("compiling and counting")
        if given.text:
            return reply(apart(count, ProfileAnswer, arguments, progress))
        return reply(count(given, gpu, shape, sizes or {}, defines or {}, detail=detail))


def count(
    given: Given, gpu: str, shape: str, sizes: dict[str, int], defines: dict[str, str], *, detail: bool
) -> ProfileAnswer:
    """Run every launch once and model its cost on the GPU from the counts."""
    with written(given) as target:
        path = RUNGS[target].path if target in RUNGS else File(target)
        kernel = load(path, gpu=gpu, defines=defines)
        call = call_at(kernel, shape, target)
        found = profile_kernel(kernel, find_chip(gpu), target=target, arrays=call.arrays, sizes={**call.sizes, **sizes})
        return _answer(found, detail)


def _answer(found: KernelProfile, detail: bool) -> ProfileAnswer:
    low, high = found.estimate
    longest = found.longest.bounds
    expected = f", {low:.0f} to {high:.0f} expected" if found.has_estimate else ""
    return ProfileAnswer(
        summary=f"{longest.warm_limiter} limits it: at least {found.warm} cycles{expected}",
        gpu=found.chip.name,
        lb_warm_us=round(longest.microseconds(found.warm), 2),
        lb_warm_cycles=found.warm,
        lb_cold_cycles=found.cold,
        est_warm_cycles=(round(low), round(high)) if found.has_estimate else None,
        sizes=dict(found.sizes),
        launches=tuple(_launch(each, found, detail) for each in found.launches),
    )


def _launch(launch: LaunchProfile, profile: KernelProfile, detail: bool) -> LaunchAnswer:
    needs, held, guess = launch.resources, launch.occupancy, launch.warm
    return LaunchAnswer(
        entry=launch.entry,
        advice=launch_advice(launch, profile.chip.sms),
        limiter=launch.bounds.warm_limiter,
        lb_warm_cycles=launch.bounds.warm,
        est_warm_cycles=(round(guess.low), round(guess.high)) if profile.has_estimate else None,
        warps_per_sm=f"{held.warps} of {held.max_warps}",
        limited_by=tuple(held.limiters),
        registers=needs.registers,
        shared_bytes=launch.shared_bytes,
        spilled_bytes=needs.spill_store_bytes + needs.spill_load_bytes,
        lines=tuple(
            CostlyLine(line_advice(line), where(line.place), round(line.cycles), line.unit)
            for line in launch.lines[: MORE_LINES if detail else LINES]
        ),
        counters=dict(launch.counts.ncu) if detail else None,
    )
