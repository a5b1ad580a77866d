"""`weft bundle`: write a kernel, its workloads, the versions used and the verdict to one file."""

import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import typer

from weft.bundle.answer import ReplayTerms, answer, environment
from weft.bundle.compare import verdict_text
from weft.bundle.file import pack
from weft.bundle.gather import CANDIDATE, UNKNOWN, BundleOptions, from_kernel, from_search
from weft.bundle.records import Bundle
from weft.core.errors import UsageError
from weft.core.status import Status
from weft.engines.kernel_file import MAX_STEPS
from weft.interop.open_kernel import load
from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.store.store import open_store
from weft.tasks.registry import TASKS, find_task
from weft.tasks.task import Axes

from .launch_draft import draft_shown, say_host_code
from .terminal import bar, print_line


def bundle(
    target: Annotated[
        str, typer.Argument(help="A rung, a CUDA or PTX file with launch lines, or RUN:CANDIDATE of a search.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The bundle: name.weft.")],
    task: Annotated[
        str | None, typer.Option(help=f"Task of a file: {', '.join(TASKS)} or a Python file (default: sdpa).")
    ] = None,
    shapes: Annotated[str, typer.Option(help="Named shapes, with commas, or all (default: a quick choice).")] = "",
    regimes: Annotated[str, typer.Option(help="Input regimes, with commas, or all (default: a quick choice).")] = "",
    masks: Annotated[
        str, typer.Option(help="Masks: none, top_left, bottom_right; causal means both (default: the kernel's).")
    ] = "",
    dtypes: Annotated[str, typer.Option(help="Types: f16 or half, bf16, f32 (default: the kernel's first).")] = "",
    encodings: Annotated[
        str, typer.Option(help="Encodings of 8-bit inputs: sim_fp8, e4m3 (default: the kernel's).")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per workload.")] = 3,
    gpu: Annotated[str, typer.Option(help="The GPU to compile for.")] = "l4",
    launch: Annotated[
        Path | None, typer.Option(help="Launch lines of a PTX file (default: the .launch file next to it).")
    ] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Limit of loop iterations per host thread.")] = MAX_STEPS,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit of the kernel, all workloads together.")] = 600.0,
    store: Annotated[
        str | None, typer.Option(metavar="WHERE", help="The store of RUN:CANDIDATE (default: WEFT_STORE).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Judge a kernel and write everything about it to one file, which `weft replay` judges again on any machine.

    A wrong kernel is bundled, too: send the file with a bug report. Exit codes: 0 written, 2 usage error.
    """
    found = CANDIDATE.fullmatch(target)
    if found is not None:
        with open_store(store) as kept:
            made = from_search(kept, int(found[1]), int(found[2]))
    else:
        given = dict(shapes=shapes, regimes=regimes, masks=masks, dtypes=dtypes, encodings=encodings)
        known = find_task(task or (RUNGS[target].task if target in RUNGS else "sdpa")).workloads
        axes = {axis.name: _names(given[axis.name], getattr(known, axis.name)) for axis in fields(Axes)}
        choice = Choice(**axes, seeds=tuple(range(seeds)))
        made = from_kernel(target, BundleOptions(choice, task, gpu, launch, max_steps))
        if made.source.language == "cuda" and target not in RUNGS:
            with draft_shown(target):
                say_host_code(load(target, gpu=gpu))
    with bar(f"judging {made.name}") as tell:
        # The user bundles a local task file, so its Python code may run.
        found_answer = answer(made, ReplayTerms(seconds, trust_task=True), tell)
    if found_answer.status == Status.REJECTED:
        raise UsageError(f"{target} cannot be bundled: {found_answer.message}")
    whole = replace(made, environment=environment(), answer=found_answer)
    _write(output, pack(whole))
    _show(whole, output, as_json=as_json)
    return 0


def _names(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    return known if text == "all" else tuple(name for name in text.split(",") if name)


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error}") from error


def _show(made: Bundle, output: Path, *, as_json: bool) -> None:
    assert made.answer is not None
    size = output.stat().st_size
    before = made.origin.get("status", made.answer.status)
    if before not in (made.answer.status, UNKNOWN):
        print(
            f"weft: the verdict in the store is {before}, the verdict of this run is {made.answer.status}",
            file=sys.stderr,
        )
    if as_json:
        record = {"file": str(output), "bytes": size, "status": made.answer.status, "ptx": made.answer.ptx}
        print(json.dumps({**record, "verdict": verdict_text(made.answer)}, indent=2))
        return
    print_line(f"{made.name}: {verdict_text(made.answer)}")
    if made.answer.message:
        print(f"  {made.answer.message}")
    print(f"{output}: {size:,} bytes · PTX {made.answer.ptx[:16] or 'none'} · judge it again: weft replay {output}")
