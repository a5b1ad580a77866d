"""Convert a bundle to plain data and back. The data that is read is untrusted: every field is checked."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from weft.attention.shapes import is_shape
from weft.core.chips import chips
from weft.core.status import Status
from weft.judge.select import Choice
from weft.judge.verdict_json import verdict_of, verdict_record
from weft.kernels.ladder import RUNGS
from weft.supervise.records import SHOWN_FINDINGS, CandidateSource, ScoreOn

from .records import Answer, Bundle

MOST_STEPS = 1 << 40
_LAUNCH_LINE = re.compile(r"(?://|#)[^\S\n]*weft[^\S\n]*:.*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def spelled(bundle: Bundle) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the manifest and the answer."""
    source = bundle.source
    manifest = {
        "name": bundle.name,
        "launch_lines": [line.strip() for line in _LAUNCH_LINE.findall(source.launch or source.text)],
        "defines": dict(source.defines),
        "task": bundle.task,
        "choice": dataclasses.asdict(bundle.choice),
        "chip": bundle.chip,
        "rung": bundle.rung,
        "score": dataclasses.asdict(bundle.score) if bundle.score is not None else None,
        "debug_build": bundle.debug_build,
        "max_steps": bundle.max_steps,
        "environment": dict(bundle.environment),
        "origin": dict(bundle.origin),
    }
    if bundle.answer is None:
        raise ValueError("a bundle without an answer")
    return manifest, _spelled_answer(bundle.answer)


def bundle_of(
    manifest: Mapping[str, Any], answer: Mapping[str, Any], *, text: str, language: str, launch: str, task_text: str
) -> Bundle:
    """Return the bundle. Raises KeyError, TypeError or ValueError for data that is not a bundle."""
    score = manifest["score"]
    return Bundle(
        name=_text(manifest["name"]),
        source=CandidateSource(text, language, launch, _texts(manifest["defines"])),
        task=_text(manifest["task"]),
        task_text=task_text,
        choice=_choice(manifest["choice"]),
        chip=_one_of(manifest["chip"], chips(), "GPU"),
        rung=None if manifest["rung"] is None else _one_of(manifest["rung"], RUNGS, "rung"),
        score=None if score is None else _score(score),
        debug_build=_flag(manifest["debug_build"]),
        max_steps=_count(manifest["max_steps"], MOST_STEPS),
        environment=_texts(manifest["environment"]),
        origin=_texts(manifest["origin"]),
        answer=_answer(answer),
    )


def _spelled_answer(answer: Answer) -> dict[str, Any]:
    failure = answer.failure
    return {
        "status": str(answer.status),
        "message": answer.message,
        "judged": answer.judged,
        "planned": answer.planned,
        "failure": None if failure is None else verdict_record(failure, timed=False, findings=SHOWN_FINDINGS),
        "ptx": answer.ptx,
        "outputs": {workload: dict(digests) for workload, digests in answer.outputs.items()},
        "estimate": answer.estimate,
    }


def _answer(record: Mapping[str, Any]) -> Answer:
    estimate, failure = record["estimate"], record["failure"]
    if estimate is not None:
        low, high = estimate
        estimate = float(low), float(high)
    outputs = {_text(workload): _texts(digests) for workload, digests in _object(record["outputs"]).items()}
    for digests in outputs.values():
        for digest in digests.values():
            if not _DIGEST.fullmatch(digest):
                raise ValueError(f"{digest!r} is not a digest")
    return Answer(
        status=Status(record["status"]),
        message=_text(record["message"]),
        judged=_count(record["judged"]),
        planned=_count(record["planned"]),
        failure=None if failure is None else verdict_of(_object(failure)),
        ptx=_text(record["ptx"]),
        outputs=outputs,
        estimate=estimate,
    )


def _choice(record: Mapping[str, Any]) -> Choice:
    axes = {
        name: tuple(_text(each) for each in record[name])
        for name in ("shapes", "regimes", "masks", "dtypes", "encodings")
    }
    for name in axes["shapes"]:
        if not is_shape(name):
            raise ValueError(f"this version of Weft has no shape {name!r}")
    return Choice(**axes, seeds=tuple(_count(seed) for seed in record["seeds"]))


def _score(record: Mapping[str, Any]) -> ScoreOn:
    names = {name: _text(record[name]) for name in ("shape", "dtype", "mask", "regime", "encoding")}
    return ScoreOn(**names, seed=_count(record["seed"]))


def _one_of(value: Any, known: Mapping[str, object], what: str) -> str:
    if value not in known:
        raise ValueError(f"this version of Weft has no {what} {value!r}")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def _texts(value: Any) -> dict[str, str]:
    return {name: _text(text) for name, text in _object(value).items()}


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _count(value: Any, most: int = 1 << 53) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{value!r} is not a count")
    return value
