"""The expected effects of a lever, each a counter and its direction: hypotheses that a measurement confirms or refutes.

Rows are for one direction; the opposite change expects the opposite effect.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from weft.profile.baseline import integers
from weft.profile.count import OURS
from weft.profile.kernel_profile import KernelProfile
from weft.profile.records import Counts

from .space import Change

Direction = Literal["falls", "rises"]

LEAST = 0.01
"""A change of a counter below this share counts as no change."""

SUMMED = ("mma", "mufu", "barriers")
OPCODES = {"ldgsts": "LDGSTS", "ldg": "LDG", "sts": "STS"}
"""Counter → the SASS opcode whose instructions it counts."""

OPPOSITE: dict[Direction, Direction] = {"falls": "rises", "rises": "falls"}


@dataclass(frozen=True)
class Effect:
    """A counter of `observed`, its expected direction, and why."""

    counter: str
    direction: Direction
    why: str

    def holds(self, before: float, after: float) -> bool:
        """Return whether the counter changed in this direction."""
        moved = after - before if self.direction == "rises" else before - after
        return moved > 0 and moved >= LEAST * abs(before)

    def __str__(self) -> str:
        return f"{self.counter} {self.direction}: {self.why}"


MEMORY = {
    "shared_wavefronts": "memory_l1_wavefronts_shared",
    "excess_wavefronts": "derived__memory_l1_wavefronts_shared_excessive",
    "global_sectors": "memory_l2_theoretical_sectors_global",
}
"""Weft's counter → ncu's. Sectors are those of loads, stores and cp.async together."""

WORDS: dict[tuple[str, str, str], tuple[Effect, ...]] = {
    ("PRODUCT", "wmma", "mma"): (
        Effect("shared_wavefronts", "falls", "S, P and U stay in registers"),
        Effect("shuffles", "falls", "a row is in four lanes, not in a warp"),
        Effect("issued", "falls", "no loads and stores between the products"),
        Effect("registers", "rises", "S, P and U stay in registers"),
        Effect("shared_bytes", "falls", "no space for S, P and U"),
    ),
    ("COPY", "plain", "async"): (
        Effect("ldgsts", "rises", "cp.async copies"),
        Effect("ldg", "falls", "cp.async copies"),
        Effect("sts", "falls", "cp.async stores to shared memory itself"),
        Effect("registers", "falls", "a tile in flight needs none"),
    ),
    ("LAYOUT", "plain", "padded"): (
        Effect("excess_wavefronts", "falls", "rows start in different banks"),
        Effect("shared_bytes", "rises", "16 bytes per row"),
    ),
    ("LAYOUT", "plain", "swizzled"): (
        Effect("excess_wavefronts", "falls", "eight rows meet all banks once"),
        Effect("alu", "rises", "addresses are computed by XOR"),
    ),
    ("LAYOUT", "padded", "swizzled"): (
        Effect("shared_bytes", "falls", "rows without padding"),
        Effect("alu", "rises", "addresses are computed by XOR"),
    ),
    ("Q_AT", "shared", "registers"): (
        Effect("lsu", "falls", "Q is read once"),
        Effect("shared_wavefronts", "falls", "Q is read once"),
        Effect("registers", "rises", "Q stays there"),
    ),
    ("EXP", "exp", "exp2"): (
        Effect("fp32", "falls", "log2(e) is a part of the scale"),
        Effect("issued", "falls", "one multiplication less per score"),
    ),
    ("EXP", "exp2", "fused"): (
        Effect("fp32", "falls", "scale and subtraction are one instruction"),
        Effect("issued", "falls", "one instruction less per score"),
    ),
    ("EXP", "exp", "fused"): (
        Effect("fp32", "falls", "scale and subtraction are one instruction"),
        Effect("issued", "falls", "two instructions less per score"),
    ),
    ("RESCALE", "always", "moved"): (
        Effect("fp32", "falls", "U is multiplied less often"),
        Effect("issued", "falls", "U is multiplied less often"),
    ),
    ("RESCALE", "always", "lazy"): (
        Effect("fp32", "falls", "U is usually multiplied after the first tile only"),
        Effect("mufu", "falls", "r is computed less often"),
        Effect("issued", "falls", "U is multiplied less often"),
    ),
    ("RESCALE", "moved", "lazy"): (
        Effect("fp32", "falls", "a maximum that lags behind does not move"),
        Effect("issued", "falls", "a maximum that lags behind does not move"),
    ),
    ("TAIL", "every", "edge"): (
        Effect("alu", "falls", "no comparison per score inside the mask"),
        Effect("issued", "falls", "no comparison per score inside the mask"),
    ),
}

RISING: dict[str, tuple[Effect, ...]] = {
    "BLOCK_M": (
        Effect("global_sectors", "falls", "fewer CTAs read K and V"),
        Effect("shared_bytes", "rises", "more rows of Q"),
        Effect("ctas", "falls", "a CTA owns more queries"),
    ),
    "BLOCK_N": (
        Effect("barriers", "falls", "fewer tiles"),
        Effect("issued", "falls", "work per tile is done less often"),
        Effect("registers", "rises", "more scores at once"),
        Effect("shared_bytes", "rises", "larger tiles"),
    ),
    "WARPS": (
        Effect("registers", "falls", "more threads share the work"),
        Effect("barriers", "rises", "more warps wait"),
    ),
    "STAGES": (
        Effect("shared_bytes", "rises", "more buffers"),
        Effect("barriers", "falls", "a buffer is free before it is needed"),
    ),
}
"""Effects of levers of numbers, when they rise."""


def predicted(change: Change) -> tuple[Effect, ...]:
    """Return the expected effects of one lever; none for a lever without a row."""
    if change.lever in RISING and change.before.isdecimal() and change.after.isdecimal():
        rows = RISING[change.lever]
        return rows if int(change.after) > int(change.before) else _back(rows)
    row = (change.lever, change.before, change.after)
    if row in WORDS:
        return WORDS[row]
    return _back(WORDS.get((change.lever, change.after, change.before), ()))


def predicted_together(changes: Iterable[Change]) -> tuple[Effect, ...]:
    """Return the effects of all levers of a child: one per counter, none for a counter with opposite effects."""
    found: dict[str, list[Effect]] = {}
    for change in changes:
        for effect in predicted(change):
            found.setdefault(effect.counter, []).append(effect)
    return tuple(effects[0] for effects in found.values() if len({effect.direction for effect in effects}) == 1)


def _back(rows: tuple[Effect, ...]) -> tuple[Effect, ...]:
    return tuple(Effect(row.counter, OPPOSITE[row.direction], f"no longer: {row.why}") for row in rows)


def observed(profile: KernelProfile) -> dict[str, float]:
    """Return the counters of effects over all launches; registers, bytes and blocks per SM of the longest one."""
    totals: Counter[str] = Counter()
    for launch in profile.launches:
        done, whole = launch.work.instructions, integers(launch)
        totals.update({name: whole[name] for name in SUMMED})
        totals.update({name: _counted(launch.counts, counter) for name, counter in MEMORY.items()})
        totals.update({name: _issued(launch.counts.sass, opcode) for name, opcode in OPCODES.items()})
        totals.update(issued=done.executed + done.unsure, lsu=done.lsu, fp32=done.fp32, alu=done.alu)
        totals.update(shuffles=done.shuffles, ctas=prod(launch.grid))
    longest = profile.longest
    held = {name: integers(longest)[name] for name in ("registers", "spill_bytes", "blocks_per_sm")}
    counters = {**totals, **held, "shared_bytes": longest.shared_bytes, "wave_factor": longest.warm.wave_factor}
    return {name: float(value) for name, value in counters.items()}


def _issued(sass: Mapping[str, int], opcode: str) -> int:
    return sum(count for name, count in sass.items() if name.partition(".")[0] == opcode)


def _counted(counts: Counts, counter: str) -> int:
    """Return a counter by ncu's name, or by Weft's if accesses are not matched; a stored profile has no lines."""
    return counts.ncu[counter] if counter in counts.ncu else counts.vm[OURS[counter]]
