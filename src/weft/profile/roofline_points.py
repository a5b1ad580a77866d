"""The position of a kernel in a chip's roofline: FLOP per byte of DRAM, and highest possible FLOP per second."""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.chips import Chip, TensorKind
from weft.core.register_file import LANES
from weft.kernels.ladder import MASKS, RUNGS
from weft.model.bounds import SECTOR_BYTES, dram_cycles
from weft.model.roofline import Mask, attention_work

from .kernel_profile import KernelProfile, LaunchProfile

_FLOP = {"FFMA": 2, "FADD": 1, "FMUL": 1}
_ATTENTION = ("sdpa", "quantised_sdpa", "fp8_sdpa")


@dataclass(frozen=True)
class Ceiling:
    """A horizontal roof."""

    label: str
    flops: float
    """Per second, at the chip's maximum clock."""
    sure: bool = True
    """False: another unit could do that work."""


@dataclass(frozen=True)
class RoofPoint:
    """One kernel, or one launch of it, with nothing in the caches."""

    label: str
    flop: int
    bytes: float
    """Bytes that DRAM moves at least, as in LB_cold: the point of the bound is then never above DRAM's roof."""
    bound_seconds: float
    """LB_cold."""
    estimate_seconds: tuple[float, float]
    """EST_cold, both ends."""

    @property
    def intensity(self) -> float:
        return self.flop / self.bytes


@dataclass(frozen=True)
class Roofline:
    """The roofs, and the points under them."""

    meaning: str
    """What is counted as FLOP."""
    bytes_per_second: float
    ceilings: tuple[Ceiling, ...]
    points: tuple[RoofPoint, ...]


@dataclass(frozen=True)
class _Sizes:
    b: int
    hq: int
    hkv: int
    sq: int
    skv: int
    d: int


def roofline(profile: KernelProfile) -> Roofline:
    """Return the roofline. FLOP of a rung of attention are those of its mathematics, else those executed."""
    chip = profile.chip
    clock = chip.max_ghz * 1e9
    kinds = {kind for each in profile.launches for kind, macs in each.work.instructions.tensor_macs.items() if macs}
    ceilings = [Ceiling("fp32 lanes", 2 * chip.architecture.fp32_lanes * chip.sms * clock)]
    ceilings += [
        Ceiling(f"tensor cores, {kind}", 2 * chip.peak_macs(kind) * chip.sms * clock) for kind in _sorted(kinds)
    ]
    attention = _attention(profile)
    if attention is None:
        points = tuple(
            _point(each.entry, _executed(each), (each,), chip) for each in profile.launches if _executed(each)
        )
        return Roofline("executed: multiply-adds of SASS", chip.dram_gbs * 1e9, tuple(ceilings), points)
    flop, scores = attention
    exponentials = chip.architecture.mufu_lanes * chip.sms * clock
    ceilings.append(Ceiling("one MUFU per score", flop / scores * exponentials, sure=False))
    point = _point(profile.target, flop, profile.launches, chip)
    return Roofline("of the mathematics: 4 d per score", chip.dram_gbs * 1e9, tuple(ceilings), (point,))


def _sorted(kinds: set[TensorKind]) -> list[TensorKind]:
    return sorted(kinds, key=str)


def _attention(profile: KernelProfile) -> tuple[int, int] | None:
    """FLOP and scores of an attention rung."""
    rung = RUNGS.get(profile.target)
    if rung is None or rung.task not in _ATTENTION:
        return None
    sizes: Mapping[str, int] = profile.sizes
    shape = _Sizes(*(sizes[name] for name in ("B", "HQ", "HKV", "SQ", "SKV", "D")))
    work = attention_work(shape, mask=Mask(MASKS[int(profile.defines.get("CAUSAL", "0"))]))
    return work.flops, work.scores


def _executed(launch: LaunchProfile) -> int:
    lanes = sum(LANES * _FLOP.get(opcode.partition(".")[0], 0) * count for opcode, count in launch.counts.sass.items())
    return lanes + 2 * sum(launch.work.instructions.tensor_macs.values())


def _point(label: str, flop: int, launches: tuple[LaunchProfile, ...], chip: Chip) -> RoofPoint:
    """Return the point; only the first launch is cold, because later ones may find their inputs in L2."""
    first, *later = launches
    bound = first.bounds.microseconds(first.bounds.cold) + sum(
        each.bounds.microseconds(each.bounds.warm) for each in later
    )
    low, high = (
        first.cold.microseconds(getattr(first.cold, end))
        + sum(each.warm.microseconds(getattr(each.warm, end)) for each in later)
        for end in ("low", "high")
    )
    nanoseconds = dram_cycles(first.work, chip, clock_ghz=1.0)
    moved = max(float(SECTOR_BYTES), nanoseconds * chip.dram_gbs)
    return RoofPoint(label, flop, moved, bound * 1e-6, (low * 1e-6, high * 1e-6))
