"""What Weft knows about a launch under ncu's names: values that must be equal, bounds, and similar values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from weft.core.chips import Chip

from .count import OURS
from .kernel_profile import LaunchProfile

SECTOR_BYTES = 32
_WARM_CACHES = "minimum that cold caches read (32 bytes for each accessed sector); less means --cache-control none"
_HARDWARE_WAVEFRONTS = (
    "a hardware counter that also counts accesses that wait for the data path; "
    "memory_l1_wavefronts_shared depends only on addresses"
)
_ALL_SASS = "every SASS instruction: index arithmetic and loops differ between versions and flags of ptxas"

_LDSM = "vm__ldsm: those with an active lane; never compared with a capture of ncu"


class Relation(StrEnum):
    """How a value of Weft relates to ncu's metric."""

    SAME = "same"
    AT_LEAST = "at least"
    """No schedule can measure less."""
    AT_LEAST_COLD = "at least, cold"
    """No schedule can measure less if caches are empty at the start."""
    RELATED = "related"
    """Nearly the same quantity, counted in another way."""


@dataclass(frozen=True)
class Said:
    """A value under one of ncu's names, and what it means."""

    value: float
    relation: Relation
    why: str = ""
    """Why ncu's value may differ."""


def ncu_values(launch: LaunchProfile, chip: Chip) -> Mapping[str, Said]:
    """Return the values by ncu's name."""
    found = {name: Said(value, Relation.SAME) for name, value in _same(launch, chip).items()}
    found |= {name: said for name, said in _bounds(launch).items() if name not in found}
    return found


def _same(launch: LaunchProfile, chip: Chip) -> dict[str, float]:
    static = launch.resources.static_shared_bytes
    sides = {
        f"launch__{what}_dim_{axis}": side
        for what, extent in (("grid", launch.grid), ("block", launch.block))
        for axis, side in zip("xyz", extent, strict=True)
    }
    return {
        **launch.counts.ncu,
        "launch__registers_per_thread": launch.resources.registers,
        **launch.occupancy.ncu,
        "sm__maximum_warps_avg_per_active_cycle": launch.occupancy.warps,
        "launch__shared_mem_per_block_static": static,
        "launch__shared_mem_per_block_dynamic": launch.shared_bytes - static,
        "launch__shared_mem_per_block_driver": chip.architecture.reserved_shared_bytes,
        "launch__grid_size": prod(launch.grid),
        "launch__block_size": prod(launch.block),
        "launch__thread_count": prod(launch.grid) * prod(launch.block),
        **sides,
    }


def _bounds(launch: LaunchProfile) -> dict[str, Said]:
    vm, ncu, bounds = launch.counts.vm, launch.counts.ncu, launch.bounds
    touched = vm.get("vm__distinct_load_sectors", 0)
    nanoseconds = 1e3 * bounds.microseconds(bounds.warm)
    low, high = (1e3 * launch.cold.microseconds(end) for end in (launch.cold.low, launch.cold.high))
    time = f"LB_warm at {bounds.clock_ghz:g} GHz; EST_cold is {low:.0f} to {high:.0f} at {launch.cold.clock_ghz:g} GHz"
    wavefronts = ncu.get("memory_l1_wavefronts_shared", vm.get("vm__shared_wavefronts", 0))
    excess = ncu.get("derived__memory_l1_wavefronts_shared_excessive", vm.get("vm__shared_wavefronts_excessive", 0))
    found = {
        "gpu__time_duration.sum": Said(nanoseconds, Relation.AT_LEAST, time),
        "gpc__cycles_elapsed.max": Said(bounds.warm, Relation.AT_LEAST, "LB_warm"),
        "sm__cycles_elapsed.max": Said(bounds.warm, Relation.AT_LEAST, "LB_warm"),
        "dram__bytes_read.sum": Said(SECTOR_BYTES * touched, Relation.AT_LEAST_COLD, _WARM_CACHES),
        "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum": Said(touched, Relation.AT_LEAST_COLD, _WARM_CACHES),
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": Said(wavefronts, Relation.RELATED, _HARDWARE_WAVEFRONTS),
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": Said(excess, Relation.RELATED, _HARDWARE_WAVEFRONTS),
    }
    for name in ("smsp__inst_executed.sum", "sm__inst_executed.sum", "inst_executed"):
        found[name] = Said(vm["vm__sass_inst_executed"], Relation.RELATED, _ALL_SASS)
    found["smsp__inst_executed_op_ldsm.sum"] = Said(vm["vm__ldsm"], Relation.RELATED, _LDSM)
    for name, ours in OURS.items():
        if name not in ncu and ours in vm:
            found[name] = Said(vm[ours], Relation.RELATED, f"{ours}: {_not_sure(launch)}")
    return found


def _not_sure(launch: LaunchProfile) -> str:
    """Return why a counter has Weft's name."""
    if launch.counts.matched < 1:
        return f"counted at PTX level where no SASS was matched ({launch.counts.matched:.1%} are)"
    return "includes cp.async, atomics, copied loops or accesses without an active lane: ncu may count them otherwise"
