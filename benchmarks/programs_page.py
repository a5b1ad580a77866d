"""Counts of benchmarks/programs.py, and the page that is made of them."""

import collections
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from public_programs import Outcome, finding_text

STRIPPED = "a CUDA runtime in a stripped file (cuda.bindings.runtime)"
MACHINE_CODE = "a library of machine code (cuBLAS, cuFFT …)"
ENDED = "ended"
CRASHED = "a crash, or a test that does not end"
NOT_REACHED = "not reached in the time of the run"
LEFT_OUT = (STRIPPED, MACHINE_CODE, NOT_REACHED)
"""Not counted in the rate; their number is on the page."""

REASONS = (
    (r"lib(cublas|cusolver|cufft|curand|cusparse|cudnn|cutensor|nccl|cudss)\S*so|cuda[./]libs/?", MACHINE_CODE),
    (r"nvml", "NVML"),
    (r"texture|surface|cuArray|mipmap", "textures and arrays"),
    (r"\bipc|cuIpc", "IPC between processes"),
    (r"graph|capture", "graphs and capture"),
    (r"cluster", "clusters"),
    (r"ModuleNotFoundError|ImportError|No module named|FileNotFoundError", "something is not installed"),
    (r"NOT_SUPPORTED|\b801\b|NotSupported", "an entry point or a use of it that is refused (801)"),
    (r"NO_BINARY_FOR_GPU|\b209\b", "machine code without PTX (209)"),
    (r"Regex pattern did not match", "another text than the test expects"),
)
"""Text of a failure → reason, in this order."""


@dataclass
class Counts:
    """What happened to the tests of a suite."""

    passed: int = 0
    skipped: int = 0
    reasons: collections.Counter[str] = field(default_factory=collections.Counter)
    failed: list[tuple[str, str]] = field(default_factory=list)
    refusals: collections.Counter[str] = field(default_factory=collections.Counter)
    findings: list[str] = field(default_factory=list)
    launches: int = 0
    files: int = 0

    @property
    def failures(self) -> int:
        """Return how many tests did not pass."""
        return sum(self.reasons.values())

    @property
    def needed(self) -> int:
        """Return how many of them did not run, or needed a stripped runtime or a library of machine code."""
        return sum(number for reason, number in self.reasons.items() if reason in LEFT_OUT)

    @property
    def rate(self) -> float:
        """Return the share of tests that passed, of those that were not skipped and need no stripped runtime."""
        ran = self.passed + self.failures - self.needed
        return self.passed / ran if ran else 0.0


def reason_of(message: str, stripped: bool) -> str:
    """Return the reason of a failure by its message. `stripped`: a runtime in a stripped file was refused."""
    if stripped and "cudaErrorSymbolNotFound" in message:
        return STRIPPED
    found = (reason for pattern, reason in REASONS if re.search(pattern, message, re.IGNORECASE))
    return next(found, "another reason")


def count(counts: Counts, rows: Sequence[Any]) -> None:
    """Add the tests of some files, which ran in one process."""
    tests: dict[str, dict[str, Any]] = {}
    ends, stripped, collected = [], False, 0
    for row in rows:
        if "run" in row:
            record = row["run"]
            ends.append(row["end"])
            counts.launches += record.get("launches", 0)
            counts.findings += [finding_text(found) for found in record.get("findings", ())]
            for refused in record.get("refused", ()):
                counts.refusals[re.sub(r"\S*/(?=\S)", "", refused["what"])] += refused["times"]
                stripped |= refused["what"].startswith("the CUDA runtime in ")
        elif "test" in row:
            # A test has a row for each part that failed; its first failure is its end.
            if tests.get(row["test"], {}).get("end") != "failed":
                tests[row["test"]] = row
        else:
            collected = row.get("collected", collected)
    files: set[str] = set()
    last, finished = next(reversed(tests), ""), any("finished" in row for row in rows)
    for name, row in tests.items():
        file, _, inside = name.partition("::")
        files.add(file)
        where = f"{Path(file).stem}::{inside}" if inside else Path(file).stem
        if "end" not in row and name == last and not finished:
            add(counts, where, NOT_REACHED, "")
        elif "end" not in row:
            add(counts, where, CRASHED, ", ".join(end for end in ends if end != ENDED))
        elif row["end"] == "failed":
            add(counts, where, reason_of(row["message"], stripped), " ".join(row["message"].split())[:160])
        else:
            counts.passed += row["end"] == "passed"
            counts.skipped += row["end"] == "skipped"
    for _ in range(collected - len(tests)):
        add(counts, "a test", NOT_REACHED, "")
    if not tests and ends != [ENDED]:
        add(counts, "files without a test", CRASHED, ", ".join(ends))
    counts.files += len(files)


def add(counts: Counts, test: str, reason: str, text: str) -> None:
    """Add a test that did not pass."""
    counts.reasons[reason] += 1
    counts.failed.append((test, f"{reason}: {text}"))


def kept(folder: Path) -> dict[str, Counts]:
    """Return what the runs into this folder counted."""
    found = {}
    for suite in sorted(path for path in folder.iterdir() if path.is_dir()):
        found[suite.name] = Counts()
        for rows in sorted(suite.glob("*.jsonl")):
            count(found[suite.name], [json.loads(line) for line in rows.read_text().splitlines()])
    return found


def page(results: dict[str, Counts], programs: Sequence[Outcome], versions: Sequence[str], note: str) -> str:
    """Return docs/reference/programs.md."""
    lines = [
        "# Test suites of CUDA clients under `weft exec`",
        "",
        "Made by `python benchmarks/programs.py … --write`. The suites are unmodified. A test passes by its own",
        f"assertion: nothing was compared with a GPU. memcheck and synccheck are on. {', '.join(versions)}.",
        "The rate leaves out tests that are skipped, that the run did not reach in its time, that need a CUDA runtime",
        "in a stripped file, or a library of machine code. A test that crashes or does not end is a failed test.",
        *([note] if note else []),
        "",
        "| suite | files | passed | failed | of them left out | skipped | rate | launches |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, counts in results.items():
        row = [name, counts.files, counts.passed, counts.failures, counts.needed, counts.skipped, f"{counts.rate:.1%}"]
        lines.append(f"| {' | '.join(map(str, row))} | {counts.launches} |")
    if programs:
        lines += program_lines(programs)
    for name, counts in results.items():
        lines += suite_lines(name, counts)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def suite_lines(name: str, counts: Counts) -> list[str]:
    """Return a suite's part of the page."""
    lines = ["", f"## {name}: reasons", "", "| reason | tests |", "|---|---|"]
    lines += [f"| {reason} | {number} |" for reason, number in counts.reasons.most_common()]
    refused = "; ".join(f"`{what}` {number}×" for what, number in counts.refusals.most_common(12))
    lines += ["", f"Refused: {refused or 'nothing'}."]
    lines += ["", "Findings: " + (str(len(counts.findings)) if counts.findings else "none") + "."]
    lines += [f"- {row[:300]}" for row in dict.fromkeys(counts.findings)]
    shown = collections.Counter((test, why) for test, why in counts.failed if not why.startswith(LEFT_OUT))
    lines += ["", "Failed tests, without those left out:"] if shown else []
    lines += [f"- `{test}`: {why}" + (f" ({times} tests)" if times > 1 else "") for (test, why), times in shown.items()]
    return lines


ENDS = ("right", "unchecked", "waived", "wrong", "refused", "not done", "not built")


def program_lines(programs: Sequence[Outcome]) -> list[str]:
    """Return the part of the page about public programs."""
    lines = [
        "",
        "## Public programs",
        "",
        "Programs of nvcc, at small sizes (`benchmarks/public_programs.py` has the arguments). Right: the program ends",
        "with 0 and says that its results are right. Unchecked: it ends with 0 and says nothing about them.",
        "",
        f"| programs of | runs | {' | '.join(ENDS)} | with findings | launches |",
        f"|---|---|{'---|' * len(ENDS)}---|---|",
    ]
    for group in dict.fromkeys(each.name.split()[0] for each in programs):
        rows = [each for each in programs if each.name.split()[0] == group]
        ends = collections.Counter(each.end for each in rows)
        cells = [group, len(rows), *(ends[end] for end in ENDS), sum(bool(each.findings) for each in rows)]
        lines.append(f"| {' | '.join(map(str, cells))} | {sum(each.launches for each in rows)} |")
    others = []
    for each in programs:
        if each.end not in ENDS[:3]:
            why = each.refused[0] if each.refused else re.sub(r"[`|]", "'", " ".join(each.text.split()))[-160:]
            others.append(f"- `{each.name}`: {each.end}: {why[:240]}")
    findings = [f"- `{each.name}`: {finding[:260]}" for each in programs for finding in each.findings[:3]]
    lines += ["", "Neither right, nor unchecked, nor waived:", *(others or ["none."])]
    return [*lines, "", "Findings (read in the source: [found bugs](../found_bugs.md)):", *(findings or ["none."])]
