"""The request in an evaluation's row is complete: any worker that reads the store can evaluate it.

The source is the candidate's artefact, the rest is the row's `ask`. The key that a worker computes must be the row's
key: a worker with another judge, another compiler or another task file does not touch the row.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from weft.core.errors import WeftError
from weft.judge.select import Choice
from weft.store.records import EvaluationRow, Lease
from weft.store.store import Store
from weft.supervise.key import request_key
from weft.supervise.records import CandidateSource, Limits, Request, ScoreOn

ASK = "ask"
"""Key of the result of `request_record` in an evaluation's request."""


class NotOurs(WeftError):
    """This worker cannot judge the evaluation: another version of Weft queued it."""


def request_record(request: Request, limits: Limits) -> dict[str, Any]:
    """Return plain data for the row; the source stays with the candidate."""
    return {
        "task": request.task,
        "rung": request.rung,
        "choice": asdict(request.choice),
        "score": asdict(request.score) if request.score is not None else None,
        "chip": request.chip,
        "clock_ghz": request.clock_ghz,
        "debug_build": request.debug_build,
        "diagnose": request.diagnose,
        "max_steps": request.max_steps,
        "isolation": request.isolation,
        "limits": asdict(limits),
    }


def request_of(store: Store, evaluation: Lease | EvaluationRow) -> tuple[Request, Limits]:
    """Return the request of an evaluation. Raises NotOurs."""
    row = store.candidate(evaluation.candidate_id)
    source = CandidateSource(store.text(row.source_digest), row.language, row.launch, row.defines)
    try:
        request, limits = _read(source, evaluation.request[ASK])
        same = request_key(request) == evaluation.key
    except (KeyError, TypeError, OSError) as error:
        why = f"its request cannot be read here: {type(error).__name__} {error}"
        raise NotOurs(_message(evaluation, why)) from error
    if not same:
        raise NotOurs(_message(evaluation, "its key covers another judge, compiler or task file"))
    return request, limits


def _read(source: CandidateSource, record: Mapping[str, Any]) -> tuple[Request, Limits]:
    score = record["score"]
    request = Request(
        source,
        task=record["task"],
        rung=record["rung"],
        choice=Choice(**{name: tuple(values) for name, values in record["choice"].items()}),
        score=ScoreOn(**score) if score is not None else None,
        chip=record["chip"],
        clock_ghz=record["clock_ghz"],
        debug_build=record["debug_build"],
        diagnose=record["diagnose"],
        max_steps=record["max_steps"],
        isolation=record["isolation"],
    )
    return request, Limits(**record["limits"])


def _message(evaluation: Lease | EvaluationRow, why: str) -> str:
    number = evaluation.evaluation_id if isinstance(evaluation, Lease) else evaluation.id
    return (
        f"evaluation {number} of run {evaluation.run_id} was queued by another version of Weft ({why}): "
        "run one version on every machine, or resume the run with this one"
    )
