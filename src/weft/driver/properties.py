"""A chip of the model → what the driver reports about the device: attributes by their numbers, name, UUID."""

import struct

from weft.core.chips import Chip
from weft.core.errors import ResourceError
from weft.engines.protocol import PLAIN_SHARED_BYTES
from weft.model.occupancy import MAX_REGISTERS, MAX_THREADS, LaunchShape, occupancy, shared_per_block
from weft.vm.launch import LARGEST_BLOCK, LARGEST_GRID
from weft.vm.memory import GLOBAL_BASE

from .description import device_name, memory_bus

_RECORD = struct.Struct("=QQ16s96s192i")


def device_record(chip: Chip, memory_bytes: int, which: int = 0) -> bytes:
    """Return `struct device_record` of shim.h. Every device has as much memory, one window behind the other."""
    known = attributes(chip)
    name, uuid = device_name(chip, which)
    numbers = (known.get(number, 0) for number in range(192))
    return _RECORD.pack(memory_bytes, GLOBAL_BASE + which * memory_bytes, uuid.bytes, name.encode(), *numbers)


def attributes(chip: Chip) -> dict[int, int]:
    """Return CUdevice_attribute → value; what is not here is 0: a feature that the virtual GPU does not have."""
    sm = chip.architecture
    major, minor = map(int, sm.capability.split("."))
    bus_bits, memory_khz = memory_bus(chip)
    return {
        1: MAX_THREADS,
        **dict(zip((2, 3, 4), LARGEST_BLOCK, strict=True)),
        **dict(zip((5, 6, 7), LARGEST_GRID, strict=True)),
        8: PLAIN_SHARED_BYTES,
        9: 1 << 16,  # constant memory
        10: 32,  # warp
        11: 2**31 - 1,  # pitch
        12: sm.registers,
        13: round(chip.boost_ghz * 1e6),
        14: 512,  # alignment of textures
        15: 1,  # copies may overlap kernels
        16: chip.sms,
        19: 1,  # maps host memory
        30: 512,  # alignment of surfaces
        31: 1,  # concurrent kernels
        36: memory_khz,
        37: bus_bits,
        38: chip.l2_bytes,
        39: sm.max_warps * 32,
        40: 2,  # copy engines
        41: 1,  # unified addresses
        51: 32,  # alignment of a texture's pitch
        75: major,
        76: minor,
        78: 1,  # priorities of streams
        79: 1,
        80: 1,  # L1 caches global and local memory
        81: sm.shared_bytes,
        82: sm.registers,
        83: 1,  # managed memory
        87: 2 if sm.capability in ("8.0", "9.0") else 64,  # single to double precision
        89: 1,  # host and kernels may use managed memory at the same time
        90: 1,  # preemption
        95: 1,  # cooperative launch
        97: sm.shared_bytes_per_block,
        99: 1,  # host memory can be registered
        106: sm.max_blocks,
        111: sm.reserved_shared_bytes,
        115: 1,  # memory pools
        120: int(major >= 9),  # clusters
        127: int(major >= 9),  # tensor maps
        144: 1,  # pools of host memory
    }


def blocks_per_sm(chip: Chip, threads: int, registers: int, shared_bytes: int) -> int:
    """Return how many blocks an SM holds; 0 if a block does not fit."""
    shape = LaunchShape(threads, 1, min(max(registers, 1), MAX_REGISTERS), shared_bytes)
    try:
        return occupancy(shape, chip).blocks
    except ResourceError:
        return 0


def dynamic_shared_for(chip: Chip, blocks: int, static_bytes: int) -> int:
    """Return the dynamic shared memory with which an SM still holds `blocks` blocks."""
    sm = chip.architecture
    unit = sm.shared_unit
    largest = sm.shared_bytes // blocks // unit * unit - sm.reserved_shared_bytes
    while largest > 0 and shared_per_block(largest, sm) * blocks > sm.shared_bytes:
        largest -= unit
    return max(0, min(largest, sm.shared_bytes_per_block) - static_bytes)
