"""One sentence of advice for a costly line or a launch, based only on the counts."""

from collections import Counter

from .kernel_profile import LaunchProfile
from .line_costs import LineCost
from .records import SourceLine

FEW_WARPS = 8
"""Two warps for each of four sub-partitions: fewer cannot even hide the latency of arithmetic."""
WIDE = 16
"""Bytes per lane of the widest access."""
_UNITS = {
    "tensor": "tensor cores: the matrix products themselves; use another type or fewer products",
    "fma": "fp32 and integer multiply-adds: move products to tensor cores",
    "alu": "integer, logic and compare instructions: hoist index arithmetic out of the loop",
    "mufu": "special functions: use exp2f with log2(e) folded into the scale, and fewer divisions",
}


def line_advice(line: LineCost) -> str:
    """Return the most important advice for one line, with its numbers."""
    if line.local:
        return f"{line.local} accesses to local memory (spills or indexed arrays): use fewer live values or unroll less"
    conflicted = max(line.accesses, key=lambda access: access.excess, default=None)
    if conflicted is not None and conflicted.excess and conflicted.ideal:
        return _conflict(conflicted)
    scattered = max(line.accesses, key=_wasted_sectors, default=None)
    if scattered is not None and _wasted_sectors(scattered) > 0:
        return _uncoalesced(scattered)
    narrow = [access for access in line.accesses if 0 < access.lane_bytes < WIDE]
    if line.unit in ("lsu", "tags", "smem", "sectors") and narrow:
        access = max(narrow, key=lambda each: each.executed)
        return (
            f"{access.executed} accesses of {access.lane_bytes} bytes per lane: load up to 16 at once, or keep values"
        )
    if line.unit in ("lsu", "tags", "smem", "sectors"):
        return "the accesses are wide and without conflicts: reuse what is loaded, in registers or larger tiles"
    if line.unit in _UNITS:
        return _UNITS[line.unit]
    names: Counter[str] = Counter()
    for opcode, count in line.sass.items():
        names[opcode.partition(".")[0]] += count
    most = ", ".join(name for name, _ in names.most_common(3))
    return f"issue slots: {line.instructions} warp instructions, most of them {most}"


def launch_advice(launch: LaunchProfile, sms: int) -> tuple[str, ...]:
    """Return advice on spills, few warps, and a grid that leaves SMs idle."""
    found = []
    needs, held = launch.resources, launch.occupancy
    if needs.spill_store_bytes or needs.spill_load_bytes:
        found.append(
            f"spills: {needs.spill_store_bytes} bytes stored and {needs.spill_load_bytes} loaded per thread at "
            f"{needs.registers} registers; use smaller tiles or a higher __launch_bounds__ limit"
        )
    if held.warps <= FEW_WARPS:
        limits = " and ".join(name.replace("_mem", " memory") for name in held.limiters)
        found.append(f"low occupancy: {held.warps} of {held.max_warps} warps, limited by {limits}")
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    if blocks < sms:
        found.append(f"{blocks} blocks leave {sms - blocks} of {sms} SMs idle: split the work further")
    return tuple(found)


def _conflict(access: SourceLine) -> str:
    ways = access.wavefronts / access.ideal
    wasted, of = _per_access(access.excess, access.executed), _per_access(access.wavefronts, access.executed)
    padding = "by one word" if 0 < access.lane_bytes <= 4 else "to D+8 halves (16 bytes more)"
    return (
        f"{_number(ways)}-way bank conflict: {wasted} of {of} wavefronts wasted per access, {access.excess} in all; "
        f"pad the row {padding} or XOR-swizzle"
    )


def _wasted_sectors(access: SourceLine) -> int:
    """Return the sectors in excess of what 32 neighbouring lanes need: 32 lanes × bytes / 32 bytes."""
    return access.sectors - access.executed * access.lane_bytes if access.lane_bytes and access.sectors else 0


def _uncoalesced(access: SourceLine) -> str:
    touched = _per_access(access.sectors, access.executed)
    if access.sectors < 2 * access.executed * access.lane_bytes:
        return f"misaligned: {touched} sectors per request instead of {access.lane_bytes}; align rows to 32 bytes"
    return (
        f"uncoalesced: {touched} sectors per request instead of {access.lane_bytes}; "
        "let neighbouring lanes access neighbouring addresses"
    )


def _per_access(total: int, accesses: int) -> str:
    return _number(total / max(accesses, 1))


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"
