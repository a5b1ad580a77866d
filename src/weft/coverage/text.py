"""Coverage as text: a summary, the source with counts in its margin, and lcov's format."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from .records import Boundary, Coverage, Line

MOST = 6
"""The number of ranges, lines or sizes that a summary lists."""


def summary(coverage: Coverage) -> list[str]:
    """Return what the runs did not execute, and the sizes at which the kernel's path changes; empty without counts."""
    if not coverage.known:
        return []
    rows = []
    if coverage.never:
        rows.append(f"never executed: {_few(_ranges(coverage))}")
    once = [f"{_name(branch.file)}:{branch.line}" for branch in coverage.one_way]
    if once:
        rows.append(f"branches that always went the same way: {_few(once)}")
    run = [each for each in coverage.boundaries if not each.why_not]
    if run:
        rows.append(f"extra sizes run, at which the kernel's path changes: {_few(_by_axis(run))}")
    left = {(each.axis, each.value): each for each in coverage.boundaries if each.why_not}
    left = {key: each for key, each in left.items() if key not in {(each.axis, each.value) for each in run}}
    if left:
        reasons = [f"{each} ({_where(each)}{each.why_not})" for each in left.values()]
        rows.append(f"not run: {_few(reasons)}")
    return rows


def _where(boundary: Boundary) -> str:
    return f"{_name(boundary.file)}:{boundary.line}: " if boundary.line else ""


def _by_axis(boundaries: Sequence[Boundary]) -> list[str]:
    values: dict[str, list[int]] = {}
    for each in boundaries:
        values.setdefault(each.axis, []).append(each.value)
    return [f"{axis} {', '.join(map(str, sorted(set(numbers))))}" for axis, numbers in values.items()]


def _few(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return "; ".join(texts[:MOST]) + more


def _ranges(coverage: Coverage) -> list[str]:
    """Return ranges of consecutive lines, ignoring lines without code: `k.cu:88-97`."""
    found = []
    for file, lines in groupby(coverage.lines, key=lambda line: line.file):
        for missed, run in groupby(lines, key=lambda line: not line.runs):
            numbers = [line.number for line in run]
            if missed:
                last = f"-{numbers[-1]}" if numbers[-1] != numbers[0] else ""
                found.append(f"{_name(file)}:{numbers[0]}{last}")
    return found


def _name(file: str) -> str:
    return Path(file).name


def listing(coverage: Coverage, file: str, text: str) -> Iterator[str]:
    """Yield the source with each line's number of executions, and `1 way` at branches that always went the same way."""
    runs = {line.number: line.runs for line in coverage.lines if line.file == file}
    once = {branch.line for branch in coverage.one_way if branch.file == file}
    for number, line in enumerate(text.splitlines(), 1):
        count = "" if number not in runs else f"{runs[number]:,}" if runs[number] else "never"
        yield f"{count:>14} {'1 way' if number in once else '':5} {number:5} {line}".rstrip()


def lcov(coverage: Coverage) -> str:
    """Return lcov's trace format (geninfo(1)): DA is a line's count, BRDA whether each side of a branch was taken."""
    rows = []
    for file, lines in groupby(coverage.lines, key=lambda line: line.file):
        rows += ["TN:", f"SF:{Path(file).absolute()}"]
        here: list[Line] = list(lines)
        rows += [f"DA:{line.number},{line.runs}" for line in here]
        for branch in coverage.branches:
            if branch.file == file:
                rows += [f"BRDA:{branch.line},0,0,1", f"BRDA:{branch.line},0,1,{int(branch.both_ways)}"]
        rows += [f"LF:{len(here)}", f"LH:{sum(line.runs > 0 for line in here)}", "end_of_record"]
    return "\n".join(rows) + "\n" if rows else ""


def merge(parts: Iterable[Coverage]) -> Coverage:
    """Merge the coverage of several kernels; files are distinguished by their names."""
    together = list(parts)
    return Coverage(
        tuple(sorted(line for each in together for line in each.lines)),
        tuple(sorted(branch for each in together for branch in each.branches)),
        tuple(boundary for each in together for boundary in each.boundaries),
    )
