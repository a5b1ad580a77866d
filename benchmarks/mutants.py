"""Diagnoses hundreds of one-line mistakes in right kernels: is each found, and is its stage, line and cause named?

    python benchmarks/mutants.py [--every 3] [--shard 1/4] [--only scalar] [--tuning] [--no-policies] [--rows FILE]
    python benchmarks/mutants.py --originals
    python benchmarks/mutants.py --report [--figure docs/reference/mutants.svg]

Every mutant of `weft.mutate.ladder_sample` is compiled (the same PTX: equivalent; refused: not a mutant), then
diagnosed as by `weft diagnose` with only the file. A mutant that is not found is compared with its original on other,
larger workloads: the same bits and findings mean equivalent, otherwise it is a survivor. The three policies of
`mutant_policies.py` judge the same mutants, and all of this is run on the unmodified rungs.
Each mutant is a line of the rows' file, judged once: a new run, also one with another shard, continues.
The last line is one JSON object, of all rows in the file; docs/reference/mutants.md explains its fields.
"""

import argparse
import hashlib
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.mutant_policies import POLICIES, passes
from benchmarks.mutant_report import draw, report
from weft.core.records import inlining_chain
from weft.core.status import Status
from weft.diagnose.conclusion import cure_place_of, place_of, sentence, stage_of
from weft.diagnose.diagnose import diagnose, with_repairs
from weft.diagnose.records import Diagnosis
from weft.diagnose.suspects import suspects
from weft.judge.candidate import Candidate
from weft.judge.select import Supports, find_candidate
from weft.kernels.ladder import RUNGS
from weft.mutate.equivalent import Build, Original, larger_workloads
from weft.mutate.generate import apply
from weft.mutate.ladder_sample import LEFT_OUT, Labelled, ladder_sample
from weft.mutate.records import Mutant
from weft.mutate.trial import write_mutant

LABELS = Path(__file__).parent / "mutant_stages"
NEAR = 3
"""A reported line (for an inlined function also the line of its call; for a race also the line of the missing barrier)
may be this many lines from the changed one."""
SAID = 0.5
"""A signature of a lower rank is not printed next to others."""

Row = dict[str, Any]


def main() -> None:
    """Run what is missing, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=Path("mutants.jsonl"), help="one line per mutant (default: here)")
    parser.add_argument("--only", action="append", default=[], choices=RUNGS, help="a rung")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="each K-th mutant of each rung")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--no-policies", action="store_true", help="without the three other policies")
    parser.add_argument("--tuning", action="store_true", help="without held-out mutants: for work on the diagnosis")
    parser.add_argument(
        "--repair", action="store_true", help="also as weft diagnose --repair; rows that exist stay as they are"
    )
    parser.add_argument("--originals", action="store_true", help="the unmodified rungs alone")
    parser.add_argument("--report", action="store_true", help="report on the existing rows; nothing is run")
    parser.add_argument("--figure", type=Path, help="draw kill rates by policy and class")
    options = parser.parse_args()
    rungs = options.only or [name for name in RUNGS if name not in LEFT_OUT]
    policies = () if options.no_policies else tuple(POLICIES)
    if not options.report:
        sample = [each for each in ladder_sample(LABELS) if not (options.tuning and each.held_out)]
        chosen = stratified(sample, rungs, options.every)
        part, parts = map(int, options.shard.split("/"))
        if not options.originals:
            run(chosen[part - 1 :: parts], options.rows, policies, repair=options.repair)
        run_originals(rungs[part - 1 :: parts], options.rows, policies)
    rows = read_rows(options.rows)
    if options.figure is not None:
        draw(rows, options.figure)
    print(json.dumps(report(rows)))


def stratified(labelled: Sequence[Labelled], rungs: Sequence[str], every: int) -> list[Labelled]:
    """Return each K-th mutant of each rung, class by class, in random order, so that a part of a run is a sample."""
    found: list[Labelled] = []
    for number, rung in enumerate(rungs):
        own = sorted((each for each in labelled if each.rung == rung), key=lambda each: each.mutant.klass)
        found += own[number % every :: every]
    return sorted(found, key=lambda each: digest_of(each.mutant.id))


def read_rows(path: Path) -> list[Row]:
    """Return the last row of each mutant."""
    if not path.is_file():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return list({row["id"]: row for row in rows}.values())


def run(chosen: Sequence[Labelled], path: Path, policies: Sequence[str], *, repair: bool = False) -> None:
    """Run every mutant without a row of this source; only the policies if only they are missing."""
    done = {(row["id"], row["source"]): row for row in read_rows(path)}
    originals: dict[str, Original] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, each in enumerate(chosen, 1):
            digest = digest_of(apply(each.mutant, RUNGS[each.rung].path.read_text()))
            known = done.get((each.mutant.id, digest))
            if known is not None and not _lacking(known, policies):
                continue
            if each.rung not in originals:
                originals[each.rung] = Original(*find_candidate(each.rung, task=None))
            original = originals[each.rung]
            if known is not None:
                candidate = write_mutant(each.mutant, original.candidate, Path(folder))
                row = {**known, "policies": _filled(known, policies, candidate, original.supports)}
            else:
                tried = try_one(original, each, Path(folder), policies, repair=repair)
                row = {"id": each.mutant.id, "source": digest, **tried}
            append_row(path, row)
            print(f"{number}/{len(chosen)} {_told(row)}", flush=True)


def try_one(
    original: Original, labelled: Labelled, folder: Path, policies: Sequence[str] = (), *, repair: bool = False
) -> Row:
    """Judge one mutant by the diagnosis and the policies; return its row."""
    mutant = labelled.mutant
    row: Row = {
        "rung": labelled.rung,
        "operator": mutant.operator,
        "class": mutant.klass,
        "held_out": labelled.held_out,
        "line": mutant.line,
        "before": mutant.before.strip(),
        "after": mutant.after.strip(),
        "stages": labelled.stages,
    }
    candidate = write_mutant(mutant, original.candidate, folder)
    build = original.compare(candidate)
    if build is not Build.DIFFERENT:
        return {**row, "outcome": "refused" if build is Build.REFUSED else "same PTX"}
    wall, busy = time.perf_counter(), cpu_seconds()
    diagnosis = diagnose(candidate, original.supports)
    row |= {"seconds": cpu_seconds() - busy, "wall_seconds": time.perf_counter() - wall}
    status = diagnosis.verdict.status
    if status is Status.COMPILE_ERROR:
        return {**row, "outcome": "refused"}
    row |= answer(diagnosis, mutant.id, labelled.stages, lambda line: _is_near(line, mutant))
    if repair and row["outcome"] == "killed":
        repaired = with_repairs(diagnosis, original.supports)
        row["repaired"] = {
            "seconds": cpu_seconds() - busy,
            **repairs_of(repaired),
            **answer(repaired, mutant.id, labelled.stages, lambda line: _is_near(line, mutant)),
        }
        if repaired.fix is not None:
            fixed = folder / f"fixed_{mutant.id}{candidate.path.suffix}"
            fixed.write_text(repaired.fix.text)
            changed, larger = replace(candidate, path=fixed), larger_workloads(original.supports)
            right = original.compare(changed) is Build.SAME or original.same_runs(changed, larger)
            row["repaired"]["fix_right"] = right
    if diagnosis.verdict.passed or status is Status.UNSUPPORTED:
        same = original.same_runs(candidate, larger_workloads(original.supports))
        if same:
            return {**row, "outcome": "same runs"}
    return {**row, "policies": _judged(policies, candidate, original.supports)}


def _lacking(row: Row, policies: Sequence[str]) -> list[str]:
    """Return the policies that a row lacks; a mutant that does not count needs none."""
    return [policy for policy in policies if policy not in row["policies"]] if "policies" in row else []


def _judged(policies: Sequence[str], candidate: Candidate, supports: Supports) -> dict[str, bool]:
    """Return policy → whether it kills the candidate."""
    return {policy: not passes(policy, candidate, supports) for policy in policies}


def _filled(row: Row, policies: Sequence[str], candidate: Candidate, supports: Supports) -> dict[str, bool]:
    return {**row["policies"], **_judged(_lacking(row, policies), candidate, supports)}


def answer(diagnosis: Diagnosis, stem: str, stages: Sequence[str], is_near: Callable[[int], bool]) -> Row:
    """Return what the diagnosis reports to a user, and what of it is right: all of it is in `weft diagnose --json`.

    `stem` is the name of the wrong file, `stages` those that may be named, `is_near` accepts a line of the file.
    """
    killed = not diagnosis.healthy and diagnosis.verdict.status is not Status.UNSUPPORTED
    told = [at for place in (place_of(diagnosis), cure_place_of(diagnosis)) for at in inlining_chain(place)]
    lines = sorted({place.line for place in told if Path(place.file).stem == stem})
    three = [at for each in suspects(diagnosis) for at in inlining_chain(each.place) if Path(at.file).stem == stem]
    signature = diagnosis.signatures[0] if diagnosis.signatures else None
    named = signature.name if signature is not None and signature.rank >= SAID else ""
    cause = diagnosis.causes[0].code if diagnosis.causes else ""
    return {
        "outcome": "killed" if killed else "survived",
        "status": str(diagnosis.verdict.status),
        "workload": str(diagnosis.case.first_verdict.workload),
        "judged": diagnosis.judged,
        "said": "" if diagnosis.healthy else sentence(diagnosis),
        "stage": stage_of(diagnosis),
        "stage_right": killed and stage_of(diagnosis) in stages,
        "said_lines": lines,
        "line_right": killed and any(map(is_near, lines)),
        "origin_lines": [place.line for place in diagnosis.origins],
        "line_among_three": killed and any(is_near(at.line) for at in three),
        "signature": named,
        "cause": cause,
        "named": killed and bool(named or cause),
    }


def repairs_of(diagnosis: Diagnosis) -> Row:
    """Return the edits that repair all or a part, and the change of the source."""
    return {
        "repairs": [[repair.place.line, repair.words] for repair in diagnosis.repairs],
        "partly": [[each.place.line, each.words, round(each.corrected, 3)] for each in diagnosis.partly],
        "fix": "" if diagnosis.fix is None else diagnosis.fix.diff,
    }


def _is_near(line: int, mutant: Mutant) -> bool:
    return mutant.line - NEAR <= line <= mutant.line + mutant.before.count("\n") + NEAR


def run_originals(rungs: Sequence[str], path: Path, policies: Sequence[str]) -> None:
    """Run the unmodified rungs: every report is a false alarm, and a policy that rejects one is not scored on it."""
    done = {(row["id"], row["source"]): row for row in read_rows(path)}
    for rung in rungs:
        digest = digest_of(RUNGS[rung].path.read_text())
        known = done.get((rung, digest))
        if known is not None and not _lacking(known, policies):
            continue
        candidate, supports = find_candidate(rung, task=None)
        if known is not None:
            row = {**known, "policies": _filled(known, policies, candidate, supports)}
        else:
            diagnosis = diagnose(candidate, supports)
            row = {
                "id": rung,
                "source": digest,
                "rung": rung,
                "outcome": "original",
                "judged": diagnosis.judged,
                "alarm": not diagnosis.healthy or bool(diagnosis.causes),
                "said": "" if diagnosis.healthy else sentence(diagnosis),
                "policies": _judged(policies, candidate, supports),
            }
        append_row(path, row)
        print(f"{rung}: {row['judged']} workloads, {row['said'] or 'nothing said'}; {row['policies']}", flush=True)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cpu_seconds() -> float:
    """Return the CPU time of this process and the compilers it started, which other load does not change."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def append_row(path: Path, row: Row) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _told(row: Row) -> str:
    if row["held_out"]:  # only totals are inspected
        return f"{row['id']}: {row.get('seconds', 0):.1f} s"
    if row["outcome"] != "killed":
        return f"{row['id']}:{row['line']}: {row['outcome'].upper()} {row['after']}"
    told = f"{row['id']}: {row['seconds']:.1f} s, {row['signature'] or row['cause'] or 'no cause'}{_wrong(row, row)}"
    repaired = row.get("repaired")
    if repaired is None:
        return told
    return f"{told}; repair: {repaired['seconds']:.1f} s,{' FIX' if repaired['fix'] else ''}{_wrong(repaired, row)}"


def _wrong(answered: Row, row: Row) -> str:
    """Return what of an answer is wrong."""
    stage = "" if answered["stage_right"] else f" STAGE {answered['stage'] or 'none'}, not {'/'.join(row['stages'])}"
    line = "" if answered["line_right"] else f" LINE {answered['said_lines']}, not {row['line']}"
    return f"{stage}{line}"


if __name__ == "__main__":
    main()
