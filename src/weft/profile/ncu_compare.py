"""Compares a profile with a report of ncu: equal, different for a known reason, different, or not comparable."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from weft.core.chips import Chip, chips
from weft.core.commas import split_at_commas
from weft.model.occupancy import shared_per_block

from .kernel_profile import KernelProfile, LaunchProfile
from .ncu_records import Measured, NcuLaunch
from .ncu_values import Relation, Said, ncu_values

_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|bool|long|short|char|long long)\)")
_NUMBER = re.compile(r"(-?\d+)[uUlL]*")


@dataclass(frozen=True)
class Name:
    """A kernel's function, and its template arguments where they are spelled."""

    function: str
    arguments: tuple[str, ...]

    def may_be(self, other: "Name") -> bool:
        """Whether the names may be equal: types have several spellings, but numbers must be the same."""
        numbers = [
            (one, two)
            for one, two in zip(self.arguments, other.arguments, strict=False)
            if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(two)
        ]
        return self.function == other.function and all(one == two for one, two in numbers)


@dataclass(frozen=True)
class Pairing:
    """Weft's launches and those of a report, paired by name and order; and launches without a partner."""

    pairs: tuple[tuple[LaunchProfile, NcuLaunch], ...]
    alone: tuple[LaunchProfile, ...]
    """Launches that Weft ran and the report does not contain."""
    left: tuple[NcuLaunch, ...]
    """Only in the report: other kernels, or the same ones launched again."""


class Verdict(StrEnum):
    """The result of a row."""

    EQUAL = "equal"
    BOUND = "bound holds"
    EXPLAINED = "explained"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Row:
    """One metric."""

    metric: str
    weft: float
    ncu: Measured
    verdict: Verdict
    why: str

    @property
    def difference(self) -> float:
        """Weft's value minus ncu's."""
        return self.weft - self.ncu.value


@dataclass(frozen=True)
class Compared:
    """One launch and its partner in the report; `refused` says why they are not the same launch."""

    entry: str
    kernel: str
    number: str
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str = ""
    only_measured: tuple[str, ...] = ()
    """Metrics of the report that Weft does not count."""


@dataclass(frozen=True)
class Comparison:
    """All launches."""

    launches: tuple[Compared, ...]
    notes: tuple[str, ...]

    def count(self, verdict: Verdict) -> int:
        """Return the number of rows with this result."""
        return sum(row.verdict is verdict for launch in self.launches for row in launch.rows)


def compare_with_ncu(profile: KernelProfile, measured: Sequence[NcuLaunch]) -> Comparison:
    """Compare launches of one name in order. Raises nothing: what cannot be compared has a reason."""

    def fits(launch: LaunchProfile, one: NcuLaunch) -> bool:
        return not _another_launch(launch, one, profile.chip)

    found = pair(profile.launches, measured, fits)
    notes = [f"{launch.entry}: the report has no such launch" for launch in found.alone]
    if not found.pairs:
        notes.append(f"the report has: {', '.join(dict.fromkeys(each.kernel for each in measured))}")
    elif found.left:
        names = ", ".join(dict.fromkeys(each.kernel for each in found.left))
        notes.append(f"launches of the report that were not compared: {len(found.left)} ({names})")
    return Comparison(tuple(_compare(launch, one, profile.chip) for launch, one in found.pairs), tuple(notes))


def _compare(launch: LaunchProfile, measured: NcuLaunch, chip: Chip) -> Compared:
    refused = _another_launch(launch, measured, chip)
    if refused:
        return Compared(launch.entry, measured.kernel, measured.number, refused=refused)
    said = ncu_values(launch, chip)
    rows = []
    for metric, value in measured.metrics.items():
        if metric in said and not metric.startswith(("launch__grid_dim", "launch__block_dim")):
            rows.append(_row(metric, said[metric], value, launch, measured, chip))
    others = tuple(metric for metric in measured.metrics if metric not in said)
    if not rows:
        why = "the report has no metric that Weft counts: collect it with --set full, or with --metrics"
        return Compared(launch.entry, measured.kernel, measured.number, refused=why, only_measured=others)
    notes = [
        f"{what} {there} in the report, {here} in Weft: the totals are equal"
        for what, there, here in (("grid", measured.grid, launch.grid), ("block", measured.block, launch.block))
        if there != here
    ]
    return Compared(launch.entry, measured.kernel, measured.number, tuple(rows), tuple(notes), only_measured=others)


def _another_launch(launch: LaunchProfile, measured: NcuLaunch, chip: Chip) -> str:
    """Return why the two are not the same launch; empty if they may be."""
    capability = chip.architecture.capability
    if measured.capability is not None and measured.capability != capability:
        same = [name for name, each in chips().items() if each.architecture.capability == measured.capability]
        advice = f"use --gpu {' or '.join(same)}" if same else "the model has no such GPU"
        return f"compute capability {measured.capability} in the report, {capability} in Weft (other SASS): {advice}"
    if measured.grid is None or measured.block is None:
        return "the report does not contain grid and block: export it with --page raw"
    if prod(measured.block) != prod(launch.block):
        return f"blocks of {measured.block} in the report, {launch.block} in Weft: another launch or other macros (-D)"
    if prod(measured.grid) != prod(launch.grid):
        return f"a grid of {measured.grid} in the report, {launch.grid} in Weft: another size (--size, --shape)"
    return ""


def _row(metric: str, said: Said, value: Measured, launch: LaunchProfile, measured: NcuLaunch, chip: Chip) -> Row:
    if value.agrees(said.value):
        rounded = "to the digits that ncu printed" if value.within and value.value != said.value else ""
        return Row(metric, said.value, value, Verdict.EQUAL, rounded)
    if said.relation is Relation.RELATED:
        return Row(metric, said.value, value, Verdict.EXPLAINED, said.why)
    if said.relation is not Relation.SAME:
        if value.value >= said.value:
            return Row(metric, said.value, value, Verdict.BOUND, f"at least: {said.why}")
        cold = said.relation is Relation.AT_LEAST_COLD
        why = said.why if cold else f"less than a lower bound ({said.why}): the clock, or Weft, is wrong"
        return Row(metric, said.value, value, Verdict.EXPLAINED if cold else Verdict.DIFFERS, why)
    why = _known_reason(metric, said.value, value.value, launch, measured, chip)
    return Row(metric, said.value, value, Verdict.EXPLAINED if why else Verdict.DIFFERS, why or _hint(launch, measured))


def _known_reason(
    metric: str, ours: float, theirs: float, launch: LaunchProfile, measured: NcuLaunch, chip: Chip
) -> str:
    """Return a known reason, for what ptxas, the driver or the chip decides; counters of accesses have none."""
    registers = measured.metrics.get("launch__registers_per_thread")
    other_registers = registers is not None and not registers.agrees(launch.resources.registers)
    if metric == "launch__registers_per_thread":
        return "ptxas allocates registers: another version, or other flags"
    if metric == "launch__occupancy_limit_registers" and other_registers:
        return "the registers differ"
    if metric == "launch__occupancy_limit_shared_mem" and theirs < ours:
        return _shared_configuration(theirs, launch, measured, chip)
    if metric == "launch__waves_per_multiprocessor":
        sms = measured.metrics.get("device__attribute_multiprocessor_count") or measured.metrics.get("launch__sm_count")
        if sms is not None and not sms.agrees(chip.sms):
            return f"{sms.value:.0f} SMs in the report, {chip.sms} in Weft"
    if metric in ("sm__maximum_warps_per_active_cycle_pct", "sm__maximum_warps_avg_per_active_cycle") and theirs < ours:
        limit = measured.metrics.get("launch__occupancy_limit_shared_mem")
        if limit is not None and limit.value * launch.occupancy.warps_per_block < launch.occupancy.warps:
            return _shared_configuration(limit.value, launch, measured, chip)
        return "the registers differ" if other_registers else ""
    return ""


def _shared_configuration(blocks: float, launch: LaunchProfile, measured: NcuLaunch, chip: Chip) -> str:
    """Return the reason where the driver gave shared memory less than the largest part of L1, which Weft assumes."""
    size = measured.metrics.get("launch__shared_mem_config_size")
    if size is None:
        return "Weft assumes the largest shared memory of an SM, ncu reports the one that the driver chose"
    per_block = shared_per_block(launch.shared_bytes, chip.architecture)
    fits = size.value // per_block == blocks
    return f"the driver chose {size.value:.0f} bytes of shared memory per SM, Weft assumes the largest" if fits else ""


def _hint(launch: LaunchProfile, measured: NcuLaunch) -> str:
    """Return what to check where no rule explains a difference."""
    registers = measured.metrics.get("launch__registers_per_thread")
    if registers is not None and not registers.agrees(launch.resources.registers):
        return (
            f"unexplained: other SASS, {registers.value:.0f} registers in the report, {launch.resources.registers} here"
        )
    return "unexplained: other inputs, other macros or flags, another compiler, or an error in Weft"


def pair(
    launches: Sequence[LaunchProfile], measured: Sequence[NcuLaunch], fits: Callable[[LaunchProfile, NcuLaunch], bool]
) -> Pairing:
    """Pair each launch with the first unpaired one of its name that fits; if none fits, with the first of its name."""
    free = list(measured)
    pairs, alone = [], []
    for launch in launches:
        name = kernel_name(launch.entry)
        named = [each for each in free if name.may_be(kernel_name(each.kernel))]
        if not named:
            alone.append(launch)
        else:
            found = next((each for each in named if fits(launch, each)), named[0])
            free.remove(found)
            pairs.append((launch, found))
    return Pairing(tuple(pairs), tuple(alone), tuple(free))


def kernel_name(text: str) -> Name:
    """`void ns::attn<(int)64, (bool)1>(const __half *, …)` → `attn` with 64 and 1."""
    plain = text.replace("(anonymous namespace)::", "")
    depth = 0
    end, start = len(plain), 0
    for at, sign in enumerate(plain):
        depth += (sign == "<") - (sign == ">")
        if depth == 0 and sign == "(":
            end = at
            break
        if depth == 0 and (sign.isspace() or plain.startswith("::", at)):
            start = at + (1 if sign.isspace() else 2)
    function, _, arguments = plain[start:end].strip().partition("<")
    parts = split_at_commas(arguments.rpartition(">")[0], "<(", ">)")
    return Name(function.strip(), tuple(_argument(part) for part in parts if part.strip()))


def _argument(text: str) -> str:
    plain = _CAST.sub("", text).replace(" ", "")
    plain = {"true": "1", "false": "0"}.get(plain, plain)
    number = _NUMBER.fullmatch(plain)
    return number[1] if number else plain
