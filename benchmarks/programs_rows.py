"""Plugin of pytest for benchmarks/programs.py: one JSON line per test, written when the test ends.

pytest writes its own report at its end only. These lines are there after a crash and after a test that never ends, with
the name of the test that was running, and a second run leaves out what has a line already. WEFT_ROWS is the file of
lines; WEFT_TESTS_PER_FILE takes a sample of its tests, chosen by its name, so that it is the same each time.
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

ROWS = Path(os.environ["WEFT_ROWS"])
MESSAGE = 3000
"""Characters of a failure that are kept: its end names the error."""


def write(**row: Any) -> None:
    """Append a line."""
    with ROWS.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def done() -> set[str]:
    """Return the tests that were started before."""
    if not ROWS.exists():
        return set()
    return {row["test"] for row in map(json.loads, ROWS.read_text().splitlines()) if "test" in row}


def failure(report: pytest.TestReport | pytest.CollectReport) -> dict[str, str]:
    """Return the message and the end of the text of what did not pass."""
    if not report.failed:
        return {}
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext[-MESSAGE:]
    return {"message": crash.message if crash else text, "text": text}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the sample, then leave out what an earlier run started."""
    wanted = int(os.environ.get("WEFT_TESTS_PER_FILE", "0"))
    files: dict[str, list[str]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item.nodeid)
    chosen: set[str] = set()
    for file, names in files.items():
        some = wanted and len(names) > wanted
        chosen.update(random.Random(Path(file).name).sample(names, wanted) if some else names)
    items[:] = [item for item in items if item.nodeid in chosen]
    write(collected=len(items))
    before = done()
    items[:] = [item for item in items if item.nodeid not in before]


def pytest_runtest_logstart(nodeid: str) -> None:
    write(test=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write how a test ended: its call, or a set-up or tear-down that did not pass."""
    if report.when == "call" or not report.passed:
        write(
            test=report.nodeid,
            end=report.outcome,
            seconds=round(report.duration, 3),
            **failure(report),
        )


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        write(test=report.nodeid, end="failed", seconds=0, **failure(report))
