"""The kernel versions that a command used, and a kernel's versions over the entries of a journal."""

import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft.kernels.ladder import RUNGS

from .records import CommandRun, Entry, KernelVersion

KERNEL_FILES = (".cu", ".cuh", ".ptx", ".py")
_ESTIMATE = re.compile(r"^(?P<target>.+?): \S+ limits it, .*EST_warm (?P<low>\d+) to (?P<high>\d+)", re.MULTILINE)
_TABLE = "EST_warm cycles"


@dataclass(frozen=True)
class Version:
    """One source text of a kernel, over all entries that used it."""

    digest: str
    commit: str
    """Commit of the last entry."""
    entries: tuple[int, ...]
    check: str
    """`passed` or `failed` by its last check; empty if it was not checked."""
    estimate: tuple[float, float] | None
    """EST_warm of its last profile."""
    terms: str = ""
    """The options of that profile: estimates of the same terms can be compared."""

    @property
    def middle(self) -> float | None:
        """Return the middle of the estimate."""
        return None if self.estimate is None else sum(self.estimate) / 2


def kernels_of(words: Sequence[str]) -> tuple[KernelVersion, ...]:
    """Return the kernels that a weft command names: files, and rungs of the ladder."""
    if not words or os.path.basename(words[0]) != "weft":
        return ()
    found = {}
    for word in words[1:]:
        file = RUNGS[word].path if word in RUNGS else Path(word)
        if word in RUNGS or (file.suffix in KERNEL_FILES and file.is_file()):
            found[word] = KernelVersion(word, hashlib.sha256(file.read_bytes()).hexdigest())
    return tuple(found.values())


def commit_of(kernels: Sequence[KernelVersion]) -> str:
    """Return the commit of the repository of the first file, else of the working directory."""
    files = [Path(each.path) for each in kernels if each.path not in RUNGS]
    folder = files[0].resolve().parent if files else Path.cwd()
    head = _git(folder, "rev-parse", "HEAD")
    return f"{head}+" if head and _git(folder, "status", "--porcelain", "--untracked-files=no") else head


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def with_estimates(kernels: Iterable[KernelVersion], printed: str) -> tuple[KernelVersion, ...]:
    """Return the kernels with the estimates that `weft profile` printed."""
    known = dict(_estimates(printed))
    return tuple(replace(each, estimate=known.get(each.path)) for each in kernels)


def _estimates(printed: str) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield kernel and EST_warm: from JSON, from the last line of a profile, or from the table of several."""
    if printed.lstrip().startswith("{"):
        try:
            for profile in json.loads(printed)["profiles"]:
                low, high = profile["est_warm_cycles"]
                yield str(profile["target"]), (float(low), float(high))
        except (ValueError, KeyError, TypeError):
            return
        return
    for match in _ESTIMATE.finditer(printed):
        yield match["target"], (float(match["low"]), float(match["high"]))
    rows = [[cell.strip() for cell in re.split("[\t│┃]", line.strip("│┃"))] for line in printed.splitlines()]
    for at, cells in enumerate(rows):
        if cells[0] == _TABLE:
            heads = (row for row in reversed(rows[:at]) if not row[0] and any(row) and len(row) == len(cells))
            for target, cell in zip(next(heads, ())[1:], cells[1:], strict=False):
                ends = cell.split(" to ")
                yield target, (float(ends[0]), float(ends[-1]))


def versions(entries: Iterable[Entry]) -> Mapping[str, tuple[Version, ...]]:
    """Return kernel → its versions, in the order of their first entries."""
    found: dict[str, dict[str, Version]] = {}
    for entry in sorted(entries, key=lambda each: each.number):
        for kernel in entry.run.kernels if entry.run is not None else ():
            assert entry.run is not None
            known = found.setdefault(kernel.path, {})
            before = known.get(kernel.digest, Version(kernel.digest, "", (), "", None))
            known[kernel.digest] = replace(
                before,
                commit=entry.run.commit or before.commit,
                entries=(*before.entries, entry.number),
                check=("failed" if entry.run.exit_code else "passed") if entry.kind == "check" else before.check,
                estimate=kernel.estimate or before.estimate,
                terms=_terms(entry.run) if kernel.estimate else before.terms,
            )
    return {path: tuple(each.values()) for path, each in found.items()}


def _terms(run: CommandRun) -> str:
    """`weft profile k.cu --shape mission` → `--shape mission`."""
    named = {kernel.path for kernel in run.kernels}
    return shlex.join(word for word in run.words[2:] if word not in named and word != "--json")
