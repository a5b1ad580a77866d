"""`weft check`: a kernel against the reference over shapes, types, masks, regimes and seeds; one verdict."""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from rich.progress import track

from weft.attention.regimes import REGIMES
from weft.attention.shapes import SHAPES
from weft.judge.check import Candidate
from weft.judge.check import check as judge_one
from weft.judge.select import QUICK_REGIMES, QUICK_SHAPES, Choice, Supports, find_candidate, workloads
from weft.judge.verdict import Status, Verdict, Workload

from .tables import print_table

SHOWN = 3
"""Failing workloads that are printed in full."""


def check(
    targets: Annotated[list[str], typer.Argument(help="Rungs of the ladder, or CUDA files with launch lines.")],
    task: Annotated[str | None, typer.Option(help="What a file computes: sdpa (default) or fp8_sdpa.")] = None,
    shapes: Annotated[str, typer.Option(help="Named shapes, with commas, or all.")] = ",".join(QUICK_SHAPES),
    regimes: Annotated[str, typer.Option(help="How inputs are drawn, with commas, or all.")] = ",".join(QUICK_REGIMES),
    masks: Annotated[str, typer.Option(help="none, top_left, bottom_right (default: what the kernel has).")] = "",
    dtypes: Annotated[str, typer.Option(help="f16, bf16, f32 (default: the kernel's first).")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per workload.")] = 3,
    arch: Annotated[str, typer.Option(help="The GPU's architecture.")] = "sm_89",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Judge kernels: memory, races in shared memory, numbers against the reference, determinism.

    Exit codes: 0 all passed, 1 something failed, 2 usage, 3 could not be judged, 5 nothing selected.
    """
    choice = Choice(
        shapes=_names(shapes, SHAPES), regimes=_names(regimes, REGIMES), masks=_names(masks, ()),
        dtypes=_names(dtypes, ()), seeds=seeds,
    )  # fmt: skip
    found = {target: find_candidate(target, task=task, arch=arch) for target in targets}
    verdicts = {target: list(_judge(target, *pair, choice)) for target, pair in found.items()}
    if as_json:
        print(json.dumps({target: [_record(v) for v in rows] for target, rows in verdicts.items()}, indent=2))
    else:
        _show(verdicts, choice)
    return _exit_code(verdicts)


def _names(text: str, known: Iterable[str]) -> tuple[str, ...]:
    return tuple(known) if text == "all" else tuple(name for name in text.split(",") if name)


def _judge(target: str, candidate: Candidate, supports: Supports, choice: Choice) -> Iterator[Verdict]:
    todo: Iterable[Workload] = list(workloads(supports, choice))
    if sys.stderr.isatty():
        from rich.console import Console

        todo = track(list(todo), description=target, console=Console(stderr=True), transient=True)
    for workload in todo:
        yield judge_one(candidate, supports.task, workload)


def _show(verdicts: dict[str, list[Verdict]], choice: Choice) -> None:
    rows = []
    for name in choice.shapes:
        cells = []
        for results in verdicts.values():
            here = [verdict for verdict in results if verdict.workload.shape.name == name]
            passed = sum(verdict.passed for verdict in here)
            cells.append(f"{passed} of {len(here)}" if here else "not for it")
        rows.append([name, *cells])
    print_table(["shape", *verdicts], rows)
    for target, results in verdicts.items():
        failed = [verdict for verdict in results if not verdict.passed]
        for verdict in failed[:SHOWN]:
            _explain(target, verdict)
        if len(failed) > SHOWN:
            print(f"{target}: {len(failed) - SHOWN} more workloads did not pass")
    everything = [verdict for results in verdicts.values() for verdict in results]
    passed = sum(verdict.passed for verdict in everything)
    seconds = sum(verdict.seconds for verdict in everything)
    scope = "races: shared memory between warps only"
    if any(verdict.passed and all(gate.gate != "lse" for gate in verdict.gates) for verdict in everything):
        scope += " · LSE not judged: the kernel has no output `lse`"
    print(f"{passed} of {len(everything)} workloads passed in {seconds:.1f} s · {scope}")


def _explain(target: str, verdict: Verdict) -> None:
    print(f"{target} · {verdict.workload} · {verdict.status}: {verdict.message}")
    for finding in verdict.findings[1:]:
        print(f"  {finding}")
    error = verdict.error
    if error is None or verdict.passed:
        return
    figures = f"max {error.max:.3g}, mean {error.mean:.3g}, bias {error.bias:.3g}"
    print(f"  against float64: {figures}, {100 * error.bad_share:.2g} % bad, {error.sign_flips} sign flips")
    for sample in verdict.samples:
        print(f"  o{list(sample.index)} = {sample.out:.6g}, should be {sample.expected:.6g}")


def _record(verdict: Verdict) -> dict[str, object]:
    work, error = verdict.workload, verdict.error
    return {
        "shape": work.shape.name,
        "dtype": work.dtype,
        "mask": work.mask,
        "regime": work.regime,
        "seed": work.seed,
        "status": str(verdict.status),
        "message": verdict.message,
        "findings": [str(finding) for finding in verdict.findings],
        "gates": {gate.gate: {"error": gate.error, "limit": gate.limit} for gate in verdict.gates},
        "max_error": error.max if error else None,
        "bias": error.bias if error else None,
        "seconds": verdict.seconds,
    }


def _exit_code(verdicts: dict[str, list[Verdict]]) -> int:
    """A kernel that was asked for and never run is not green, whatever the others are."""
    idle = [target for target, results in verdicts.items() if not results]
    for target in idle:
        print(f"weft: nothing selected: {target} supports none of these shapes, types and masks", file=sys.stderr)
    statuses = {verdict.status for results in verdicts.values() for verdict in results}
    if statuses - {Status.PASSED, Status.UNSUPPORTED}:
        return 1
    if Status.UNSUPPORTED in statuses:
        return 3
    return 5 if idle else 0
