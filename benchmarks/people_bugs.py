"""Diagnoses wrong attention kernels with the bugs that people write, in designs outside the ladder.

    python benchmarks/people_bugs.py [--rows FILE] [--only warp_row] [--repair] [--report]
    python benchmarks/people_bugs.py --check [--only warp_row]

`people_bugs/` has right kernels (CUDA, Triton), each with a TOML table of its bugs: what a person did, the edits, and
the stages of the attention contract that the changed lines compute. The lines at fault are the changed ones. Each bug
is diagnosed as by `weft diagnose` with only the file, and scored as by `mutants.py`; a row is written once, a new run
continues. `--check` judges as `weft check` instead: every design must pass, every bug must be rejected.
The last line is one JSON object; docs/reference/people_bugs.md explains its fields.
"""

import argparse
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.gate import Job, in_a_process
from benchmarks.mutants import NEAR, Row, answer, append_row, cpu_seconds, digest_of, read_rows, repairs_of
from tests.zoo.bug import Edit
from weft.attention.stages import STAGES
from weft.core.status import Status
from weft.diagnose.diagnose import diagnose
from weft.judge.select import find_candidate

FOLDER = Path(__file__).parent / "people_bugs"
FIGURES = {"stage": "stage_right", "line_first": "line_right", "line_in_three": "line_among_three", "cause": "named"}


@dataclass(frozen=True)
class PersonBug:
    """One mistake in one right design."""

    design: Path
    name: str
    kind: str
    what: str
    """What the person did."""
    stages: tuple[str, ...]
    """The stages whose values the changed lines compute; any of them may be named."""
    edits: tuple[Edit, ...]

    @property
    def id(self) -> str:
        """Return a name that is unique in the set, and the stem of the wrong file."""
        return f"{self.design.stem}_{self.name}"

    @cached_property
    def text(self) -> str:
        """The wrong kernel."""
        text = self.design.read_text()
        for edit in self.edits:
            text = edit.apply(text)
        return text

    @cached_property
    def faults(self) -> tuple[range, ...]:
        """The changed lines of the wrong file; where lines were only removed, the two next to the gap."""
        right, wrong = self.design.read_text().splitlines(), self.text.splitlines()
        steps = SequenceMatcher(None, right, wrong, autojunk=False).get_opcodes()
        changed = [(first, end) for what, _, _, first, end in steps if what != "equal"]
        return tuple(range(first + 1, end + 1) if end > first else range(first, first + 2) for first, end in changed)

    def is_near(self, line: int) -> bool:
        """Return whether a reported line is at most NEAR lines from a changed one."""
        return any(part.start - NEAR <= line < part.stop + NEAR for part in self.faults)

    def write(self, folder: Path) -> Path:
        """Write the wrong kernel and return its path."""
        path = folder / f"{self.id}{self.design.suffix}"
        path.write_text(self.text)
        return path


def main() -> None:
    """Run what is missing, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=Path("people_bugs.jsonl"), help="one line per bug (default: here)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a design or the id of a bug")
    parser.add_argument("--repair", action="store_true", help="as weft diagnose --repair; use another file of rows")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--check", action="store_true", help="judge designs and bugs as `weft check` does")
    parser.add_argument("--report", action="store_true", help="report on the existing rows; nothing is run")
    options = parser.parse_args()
    chosen = [bug for bug in people_bugs() if not options.only or {bug.id, bug.design.stem} & set(options.only)]
    if options.check:
        print(json.dumps(check(chosen)))
        return
    if not options.report:
        part, parts = map(int, options.shard.split("/"))
        run(chosen[part - 1 :: parts], options.rows, repair=options.repair)
    wanted = {bug.id for bug in chosen}
    print(json.dumps(report([row for row in read_rows(options.rows) if row["id"] in wanted])))


def designs() -> list[Path]:
    """Return the right kernels."""
    return sorted(path for path in FOLDER.iterdir() if path.suffix in (".cu", ".py"))


def people_bugs() -> list[PersonBug]:
    """Return every bug of every design, in a fixed order."""
    return [bug for design in designs() for bug in read_bugs(design)]


def read_bugs(design: Path) -> list[PersonBug]:
    """Return the bugs of the table next to a design. Raises ValueError for a stage that does not exist."""
    found = []
    for row in tomllib.loads(design.with_suffix(".toml").read_text())["bug"]:
        stages, edits = tuple(row.pop("stages")), tuple(Edit(old, new) for old, new in row.pop("edits"))
        if not stages or not set(stages) <= set(STAGES):
            raise ValueError(f"{design.stem}.toml, {row['name']}: stages are {', '.join(STAGES)}")
        found.append(PersonBug(design, stages=stages, edits=edits, **row))
    return found


def run(chosen: Sequence[PersonBug], path: Path, *, repair: bool = False) -> None:
    """Diagnose every bug that has no row of this source."""
    done = {(row["id"], row["source"]) for row in read_rows(path)}
    with tempfile.TemporaryDirectory() as folder:
        for number, bug in enumerate(chosen, 1):
            source = digest_of(bug.text)
            if (bug.id, source) in done:
                continue
            row = {"id": bug.id, "source": source, **diagnose_one(bug, Path(folder), repair=repair)}
            append_row(path, row)
            print(f"{number}/{len(chosen)} {bug.id}: {row['outcome']}, {row['seconds']:.1f} s", flush=True)


def diagnose_one(bug: PersonBug, folder: Path, *, repair: bool = False) -> Row:
    """Return the row of one bug."""
    wall, busy = time.perf_counter(), cpu_seconds()
    diagnosis = diagnose(*find_candidate(str(bug.write(folder)), task=None), repair=repair)
    row: Row = {"design": bug.design.stem, "kind": bug.kind, "stages": bug.stages}
    row |= {"faults": [[part.start, part.stop - 1] for part in bug.faults]}
    row |= {"seconds": cpu_seconds() - busy, "wall_seconds": time.perf_counter() - wall}
    row |= answer(diagnosis, bug.id, bug.stages, bug.is_near) | repairs_of(diagnosis)
    return row | ({"outcome": "refused"} if diagnosis.verdict.status is Status.COMPILE_ERROR else {})


def report(rows: Sequence[Row]) -> Row:
    """Return counts, of all bugs, of each language and of each design."""
    named = {row["design"]: [each for each in rows if each["design"] == row["design"]] for row in rows}
    triton = {path.stem for path in designs() if path.suffix == ".py"}
    languages = {
        "CUDA": [row for row in rows if row["design"] not in triton],
        "Triton": [row for row in rows if row["design"] in triton],
    }
    return {
        **_counts(rows),
        "seconds_median": round(median(row["seconds"] for row in rows), 2) if rows else None,
        "survivors": [row["id"] for row in rows if row["outcome"] != "killed"],
        "by_language": {name: _counts(own) for name, own in languages.items()},
        "by_design": {name: _counts(own) for name, own in sorted(named.items())},
    }


def _counts(rows: Sequence[Row]) -> dict[str, int]:
    killed = [row for row in rows if row["outcome"] == "killed"]
    counts = {name: sum(row[field] for row in killed) for name, field in FIGURES.items()}
    fixed = sum(bool(row["fix"]) for row in killed)
    return {"bugs": len(rows), "killed": len(killed), **counts, "fixed": fixed}


def check(chosen: Sequence[PersonBug]) -> Row:
    """Judge designs and bugs as `weft check` does, a bug until it is rejected; return those not judged as expected."""
    unexpected = []
    with tempfile.TemporaryDirectory() as folder:
        right = [Job(path.stem, str(path), right=True) for path in dict.fromkeys(bug.design for bug in chosen)]
        for job in (*right, *(Job(bug.id, str(bug.write(Path(folder))), right=False) for bug in chosen)):
            row = in_a_process(job)
            print(f"{row.name}: {row.status}, {row.workloads} workloads, {row.seconds} s  {row.message}", flush=True)
            unexpected += [] if row.expected else [row.name]
    return {"designs": len(right), "bugs": len(chosen), "unexpected": unexpected}


if __name__ == "__main__":
    main()
