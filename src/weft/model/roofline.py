"""Attention on a roofline: its multiply-adds, exponentials and bytes, independent of the kernel."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from weft.core.chips import Chip, TensorKind
from weft.core.errors import UsageError

from .bounds import checked_clock


class Sizes(Protocol):
    """Sizes: q is (b, hq, sq, d), k and v are (b, hkv, skv, d)."""

    @property
    def b(self) -> int: ...
    @property
    def hq(self) -> int: ...
    @property
    def hkv(self) -> int: ...
    @property
    def sq(self) -> int: ...
    @property
    def skv(self) -> int: ...
    @property
    def d(self) -> int: ...


class Mask(StrEnum):
    """Which keys a query attends to."""

    NONE = "none"
    TOP_LEFT = "top_left"
    BOTTOM_RIGHT = "bottom_right"


@dataclass(frozen=True)
class AttentionWork:
    """The work that the mathematics requires."""

    scores: int
    """Pairs of a query and a key it attends to, over batch and heads: one exponential each."""
    flops: int
    """Two products of d multiply-adds per score."""
    read_bytes: int
    """Bytes of q, k and v, read once, as far as a query attends to a key."""
    written_bytes: int
    """Bytes of o, written once."""

    @property
    def intensity(self) -> float:
        """Return FLOP per byte read or written."""
        return self.flops / (self.read_bytes + self.written_bytes)


@dataclass(frozen=True)
class AttentionRoof:
    """The least time that a chip needs for it."""

    tensor_cycles: float
    dram_cycles: float
    exp_cycles: float
    """One MUFU per score. A polynomial on the FMA lanes can replace it, so it is not part of the bound."""
    ridge: float
    """FLOP per byte at which DRAM and tensor cores take the same time."""

    @property
    def warm(self) -> float:
        """Return the least cycles with the inputs in L2."""
        return self.tensor_cycles

    @property
    def cold(self) -> float:
        """Return the least cycles with the inputs in DRAM."""
        return max(self.tensor_cycles, self.dram_cycles)


def visible_keys(sq: int, skv: int, mask: Mask) -> list[int]:
    """Return the number of keys of each query: all, those with j ≤ i, or those with j ≤ i + skv − sq."""
    if mask is Mask.NONE:
        return [skv] * sq
    first = 1 if mask is Mask.TOP_LEFT else 1 + skv - sq
    return [min(max(first + i, 0), skv) for i in range(sq)]


def attention_work(
    sizes: Sizes, *, element_bytes: int = 2, out_bytes: int = 2, mask: Mask = Mask.NONE
) -> AttentionWork:
    """Return the work of the forward pass on dense inputs."""
    seen = visible_keys(sizes.sq, sizes.skv, mask)
    heads, pairs = sizes.b * sizes.hq, sum(seen)
    if pairs < 1:
        raise UsageError("no query sees a key: there is nothing to bound")
    queries_read = heads * sum(keys > 0 for keys in seen) * sizes.d
    keys_read = 2 * sizes.b * sizes.hkv * max(seen) * sizes.d
    return AttentionWork(
        scores=heads * pairs,
        flops=4 * heads * pairs * sizes.d,
        read_bytes=(queries_read + keys_read) * element_bytes,
        written_bytes=heads * sizes.sq * sizes.d * out_bytes,
    )


def attention_roof(
    work: AttentionWork,
    chip: Chip,
    kind: TensorKind = TensorKind.F16_F32,
    *,
    second: TensorKind | None = None,
    clock_ghz: float | None = None,
) -> AttentionRoof:
    """Return the cycles at the chip's maximum clock unless one is given; `second`: P·V has another type than Q·Kᵀ."""
    clock = checked_clock(chip, clock_ghz, chip.max_ghz)
    macs = work.flops / 4
    tensor = sum(macs / (chip.peak_macs(one) * chip.sms) for one in (kind, second or kind))
    moved = work.read_bytes + max(0, work.written_bytes - chip.l2_bytes)
    return AttentionRoof(
        tensor_cycles=tensor,
        dram_cycles=moved / chip.dram_gbs * clock,
        exp_cycles=work.scores / (chip.architecture.mufu_lanes * chip.sms),
        ridge=work.flops / tensor * clock / chip.dram_gbs,
    )
