"""The tool `diagnose`: the first wrong stage, its line, its cause and its cure."""

import math
from pathlib import Path as File
from typing import Annotated

from mcp.types import CallToolResult
from pydantic import Field

from weft.attention.shapes import SHAPES
from weft.core.records import Place
from weft.diagnose.conclusion import cure_of, known_as, place_of, sentence, stage_of
from weft.diagnose.diagnose import diagnose as look_inside
from weft.diagnose.records import Diagnosis
from weft.judge.select import Choice, find_candidate

from .answers import DiagnoseAnswer, VerifyWith, finding_answers, reply, where
from .apart import apart
from .calls import AnyContext, Progress, carried_out
from .options import (
    Detail,
    Dtypes,
    Encodings,
    Gpu,
    Language,
    Launch,
    Masks,
    Path,
    Regimes,
    Shapes,
    Task,
    Text,
    chosen,
)
from .sources import Given, written

FINDINGS, ALL_FINDINGS = 2, 20
STAGES = 12
"""Number of stages shown that are proven correct: the last ones."""


def diagnose(
    context: AnyContext,
    path: Path = "",
    text: Text = "",
    language: Language = "cuda",
    launch: Launch = "",
    task: Task = "",
    shapes: Shapes = None,
    regimes: Regimes = None,
    masks: Masks = None,
    dtypes: Dtypes = None,
    encodings: Encodings = None,
    seed: Annotated[int, Field(ge=0, description="Seed of the inputs.")] = 0,
    gpu: Gpu = "l4",
    detail: Detail = False,
) -> Annotated[CallToolResult, DiagnoseAnswer]:
    """Find the first error in a kernel that fails: cure, line, stage, cause, and the arithmetic of one element."""
    with carried_out():
        given, progress = Given(path, text, language, launch), Progress(context)
        choice = chosen(shapes, regimes, masks, dtypes, encodings, (seed,))
        arguments = {"given": given, "task": task, "choice": choice, "gpu": gpu, "detail": detail}
        if given.text:
            return reply(apart(look, DiagnoseAnswer, arguments, progress))
        return reply(look(given, task, choice, gpu, detail, progress))


def look(
    given: Given, task: str, choice: Choice, gpu: str, detail: bool, progress: Progress | None = None
) -> DiagnoseAnswer:
    """Diagnose in a separate process, without progress messages."""
    with written(given) as target:
        candidate, supports = find_candidate(target, task=task or None, gpu=gpu)
        found = look_inside(candidate, supports, choice, progress=progress.tell if progress is not None else _silent)
        return _answer(found, detail)


def _silent(what: str) -> None:
    """Ignores every event."""


def _answer(found: Diagnosis, detail: bool) -> DiagnoseAnswer:
    status, judged, seconds = str(found.verdict.status), found.judged, round(found.seconds, 1)
    if found.healthy:
        return DiagnoseAnswer(
            cure="",
            where="",
            source_line="",
            what="the kernel passed all workloads that were judged"
            + (", with the warnings in `findings`" if found.other_findings else ""),
            status=status,
            healthy=True,
            next="`check` judges more workloads; `profile` shows what limits it",
            findings=finding_answers(found.other_findings, ALL_FINDINGS if detail else FINDINGS, detail=detail),
            judged=judged,
            seconds=seconds,
        )
    place, first = place_of(found), found.first
    best = found.signatures[0] if found.signatures else None
    rows: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    if detail and first is not None:
        at = first.index[:-1]
        rows = tuple(f"{x:.5g}" for x in first.expected[at]), tuple(f"{x:.5g}" for x in first.actual[at])
    return DiagnoseAnswer(
        cure=cure_of(found),
        where=where(place),
        source_line=_line(place),
        what=sentence(found),
        status=status,
        healthy=False,
        next="fix that line, then `check` with the arguments in `verify`, then `check` without them",
        stage=stage_of(found),
        known_as=best.name if best is not None else "",
        explained=_rounded_down(best.explained) if best is not None else None,
        right_before=found.proven_right[None if detail else -STAGES :],
        not_observed=found.not_observed,
        not_observed_because=found.not_observed_because,
        arithmetic=first.arithmetic if first is not None else (),
        verify=_verify(found),
        case=str(found.verdict.workload),
        findings=finding_answers(
            (*found.causes, *found.other_findings), ALL_FINDINGS if detail else FINDINGS, detail=detail
        ),
        other_explanations=tuple(f"{known_as(each)}: {each.message}" for each in found.signatures[1:])
        if detail
        else (),
        expected_row=rows[0],
        actual_row=rows[1],
        judged=judged,
        seconds=seconds,
    )


def _rounded_down(share: float | None) -> float | None:
    """Return the share rounded down to four digits, so that an unexplained rest stays visible."""
    return None if share is None else math.floor(1e4 * share) / 1e4


def _verify(found: Diagnosis) -> VerifyWith | None:
    work = found.case.first_verdict.workload
    if work.shape.name not in SHAPES:
        return None
    return VerifyWith(
        (work.shape.name,), (work.mask,), (work.regime,), (work.dtype,), (work.encoding,), seeds=work.seed + 1
    )


def _line(place: Place | None) -> str:
    try:
        return File(place.file).read_text(errors="replace").splitlines()[place.line - 1].strip() if place else ""
    except (OSError, IndexError):
        return ""
