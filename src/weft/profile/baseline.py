"""Stores the integers of a profile in a file and reports which became worse: for CI, without a GPU and without noise.

Estimates are not stored. The file pins the compiler, which includes ptxas: another version generates other SASS, and a
difference would not be caused by the source.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.core.errors import Unsupported, UsageError
from weft.core.records import Place
from weft.model.opcodes import TENSOR

from .kernel_profile import KernelProfile, LaunchProfile
from .line_costs import LineCost

FORMAT = 1
MORE_IS_BETTER = frozenset(["blocks_per_sm"])
_BY_LINE = {"spill_bytes": "local_accesses", "lb_warm_cycles": "busy_cycles", "lb_cold_cycles": "busy_cycles"}
"""Counter of a launch → the counter of its lines that explains it, where the names differ."""


@dataclass(frozen=True)
class LineChange:
    """One source line whose part of a counter grew."""

    place: Place | None
    text: str
    before: int
    now: int


@dataclass(frozen=True)
class Change:
    """One integer that changed."""

    entry: str
    counter: str
    before: int
    now: int
    lines: tuple[LineChange, ...]
    """The lines that grew, largest growth first."""

    @property
    def worse(self) -> bool:
        grew = self.now > self.before
        return not grew if self.counter in MORE_IS_BETTER else grew


def key_of(profile: KernelProfile) -> str:
    """Return the key of a profile's row in a baseline."""
    numbers = [f"{name}={value}" for name, value in {**profile.sizes, **profile.defines}.items()]
    return " ".join([profile.target, profile.chip.name, *numbers])


def integers(launch: LaunchProfile) -> dict[str, int]:
    """Return the integers of a launch that a baseline checks."""
    return {
        "excess_wavefronts": sum(access.excess for access in launch.counts.lines),
        "shared_wavefronts": sum(access.wavefronts for access in launch.counts.lines),
        "global_sectors": sum(access.sectors for access in launch.counts.lines),
        "mma": _issued(launch.counts.sass, TENSOR),
        "mufu": _issued(launch.counts.sass, {"MUFU"}),
        "barriers": _issued(launch.counts.sass, {"BAR"}),
        "registers": launch.resources.registers,
        "spill_bytes": launch.resources.spill_store_bytes + launch.resources.spill_load_bytes,
        "blocks_per_sm": launch.occupancy.blocks,
        "lb_warm_cycles": launch.bounds.warm,
        "lb_cold_cycles": launch.bounds.cold,
    }


def write_baseline(file: Path, profiles: tuple[KernelProfile, ...]) -> None:
    """Write these profiles to the file; other rows stay."""
    rows = _read(file) if file.exists() else {}
    rows |= {key_of(profile): _row(profile) for profile in profiles}
    text = json.dumps({"format": FORMAT, "profiles": dict(sorted(rows.items()))}, indent=1, ensure_ascii=False)
    try:
        file.write_text(text + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error}") from error


def compare(file: Path, profile: KernelProfile) -> tuple[Change, ...]:
    """Return every integer that changed; raises Unsupported where the file cannot be compared with this profile."""
    rows, key = _read(file), key_of(profile)
    if key not in rows:
        raise Unsupported(f"{file} has no row for {key}: add one with --update; it has {', '.join(rows) or 'none'}")
    row = rows[key]
    if row["compiler"] != profile.compiler:
        raise Unsupported(
            f"{file} was made with {row['compiler']}, this is {profile.compiler}: other SASS gives other counters; "
            "use the pinned compiler, or check the difference and run with --update"
        )
    before = row["launches"]
    now = [launch.entry for launch in profile.launches]
    if [launch["entry"] for launch in before] != now:
        raise Unsupported(f"{file}: {key} launched other kernels; now {', '.join(now)}: check this, then --update")
    changes = []
    for launch, old in zip(profile.launches, before, strict=True):
        for counter, value in integers(launch).items():
            if counter not in old["integers"]:
                raise Unsupported(f"{file} has no {counter} of {key}: write it again with --update")
            if value != old["integers"][counter]:
                lines = _grown(launch, old["lines"], _BY_LINE.get(counter, counter))
                changes.append(Change(launch.entry, counter, old["integers"][counter], value, lines))
    return tuple(changes)


def _row(profile: KernelProfile) -> dict[str, Any]:
    launches = [
        {"entry": launch.entry, "integers": integers(launch), "lines": _by_text(launch)} for launch in profile.launches
    ]
    return {"compiler": profile.compiler, "launches": launches}


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
        if found["format"] != FORMAT:
            raise UsageError(
                f"{file} has format {found['format']}, this Weft reads {FORMAT}: write it again with --update"
            )
        rows: dict[str, Any] = found["profiles"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"cannot read the baseline {file}: {error}; --update writes one") from error
    return rows


def _line_integers(line: LineCost) -> dict[str, int]:
    counted = {
        "excess_wavefronts": line.excess,
        "shared_wavefronts": line.wavefronts,
        "global_sectors": line.sectors,
        "mma": _issued(line.sass, TENSOR),
        "mufu": _issued(line.sass, {"MUFU"}),
        "barriers": _issued(line.sass, {"BAR"}),
        "local_accesses": line.local,
        "busy_cycles": round(line.cycles),
    }
    return {name: value for name, value in counted.items() if value}


def _by_text(launch: LaunchProfile) -> dict[str, dict[str, int]]:
    """Return the lines by their text: a line that only moved is the same."""
    found: dict[str, Counter[str]] = {}
    for line in launch.lines:
        found.setdefault(_text(line.place), Counter()).update(_line_integers(line))
    return {text: dict(counted) for text, counted in found.items() if counted}


def _grown(launch: LaunchProfile, before: Mapping[str, Mapping[str, int]], counter: str) -> tuple[LineChange, ...]:
    totals = _by_text(launch)
    found: dict[str, LineChange] = {}
    for line in launch.lines:
        text = _text(line.place)
        old, now = before.get(text, {}).get(counter, 0), totals.get(text, {}).get(counter, 0)
        if now > old:
            found.setdefault(text, LineChange(line.place, text, old, now))
    return tuple(sorted(found.values(), key=lambda change: change.before - change.now))


def _text(place: Place | None) -> str:
    if place is None:
        return ""
    lines = _source(place.file)
    return " ".join(lines[place.line - 1].split()) if 0 < place.line <= len(lines) else f"line {place.line}"


def _source(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text().splitlines())
    except (OSError, UnicodeDecodeError):
        return ()


def _issued(sass: Mapping[str, int], names: Collection[str]) -> int:
    return sum(count for opcode, count in sass.items() if opcode.partition(".")[0] in names)
