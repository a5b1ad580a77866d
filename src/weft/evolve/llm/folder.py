"""An external agent that uses files: questions are written to `outbox`, answers are read from `inbox`.

outbox/1_0_0.3fa9c2d1.md            the question
inbox/1_0_0.3fa9c2d1.cu, .json      the answer: the source, then what it changes and why
outbox/5e884898.verdict.json        the verdict of a candidate
"""

import json
import time
from pathlib import Path

from weft.evolve.history import History
from weft.evolve.records import Member

from .prompt import fenced
from .question import Answer, ModelError, Question
from .reply import MOST_SOURCE_BYTES

POLL_SECONDS = 0.1


class Folder:
    """Waits `wait_seconds` for an answer."""

    def __init__(self, folder: Path, wait_seconds: float) -> None:
        self._outbox, self._inbox, self._wait_seconds = folder / "outbox", folder / "inbox", wait_seconds

    def ask(self, question: Question) -> Answer:
        """Write the question and wait for the answer. The question's digest in the name excludes old answers."""
        self._outbox.mkdir(parents=True, exist_ok=True)
        self._inbox.mkdir(parents=True, exist_ok=True)
        stem = f"{question.place.replace('/', '_')}.{question.key[:8]}"
        conversation = "\n\n".join(f"<!-- {message.role} -->\n\n{message.content}" for message in question.messages)
        _put(
            self._outbox / f"{stem}.md", f"<!-- answer: inbox/{stem}.cu, then inbox/{stem}.json -->\n\n{conversation}\n"
        )
        source, described = self._inbox / f"{stem}.cu", self._inbox / f"{stem}.json"
        began = time.monotonic()
        while not (source.is_file() and described.is_file()):
            if time.monotonic() - began > self._wait_seconds:
                raise ModelError(f"no {described} after {self._wait_seconds:g} s; resume the run to continue")
            time.sleep(POLL_SECONDS)
        text = f"{fenced(_get(source), 'cuda')}\n{fenced(_get(described), 'json')}\n"
        return Answer(text, milliseconds=round(1000 * (time.monotonic() - began)))


def write_verdicts(folder: Path, history: History) -> tuple[Path, ...]:
    """Write one file per candidate that passed, failed or is a duplicate; return the files."""
    outbox = folder / "outbox"
    outbox.mkdir(parents=True, exist_ok=True)
    settled = [member for member in history if member.evaluation is not None or member.duplicate_of is not None]
    paths = tuple(outbox / f"{member.digest[:8]}.verdict.json" for member in settled)
    for path, member in zip(paths, settled, strict=True):
        _put(path, json.dumps(_verdict(history, member), indent=1, ensure_ascii=False) + "\n")
    return paths


def _verdict(history: History, member: Member) -> dict[str, object]:
    found, same = member.evaluation, member.duplicate_of
    return {
        "digest": member.digest,
        "parents": [history.by_id[parent].digest for parent in member.parents],
        "changes": [str(change) for change in member.changes],
        "status": member.status,
        "message": found.message if found is not None else "",
        "failure": found.record()["failure"] if found is not None else None,
        "diagnosis": found.diagnosis if found is not None else "",
        "modelled_cycles": member.score,
        "limited_by": member.limiter,
        "same_code_as": history.by_id[same].digest if same is not None else None,
    }


def _get(path: Path) -> str:
    """Read one byte more than the limit, so that the reply's check finds that it is too long."""
    with path.open("rb") as stream:
        return stream.read(MOST_SOURCE_BYTES + 1).decode(errors="replace")


def _put(path: Path, text: str) -> None:
    """Write a file atomically, because another process waits for it."""
    partly = path.with_suffix(".partly")
    partly.write_text(text)
    partly.replace(path)
