"""A chip of the model → name, UUID and clocks of its virtual GPU; the line that describes it to libnvidia-ml."""

import hashlib
import uuid

from weft.core.chips import Chip


def device_name(chip: Chip, which: int = 0) -> tuple[str, uuid.UUID]:
    """Return the name and the UUID, which name and number of the device determine."""
    name = f"Weft virtual {chip.title}"
    drawn = f"{name} {which}" if which else name
    return name, uuid.UUID(bytes=hashlib.sha256(drawn.encode()).digest()[:16])


def memory_bus(chip: Chip) -> tuple[int, int]:
    """Return a bus width and a clock in kHz whose product is the chip's bandwidth."""
    bits = {"8.0": 5120, "9.0": 5120}.get(chip.architecture.capability, 192 if chip.name == "l4" else 384)
    return bits, round(chip.dram_gbs * 1e9 / 2 / (bits / 8) / 1e3)


def device_line(chip: Chip, memory_bytes: int, which: int) -> str:
    """Return what nvml.c reads: name, UUID, bytes of memory, capability, clocks of SMs and memory in MHz, bus width."""
    name, number = device_name(chip, which)
    bits, memory_khz = memory_bus(chip)
    clocks = f"{round(chip.boost_ghz * 1e3)};{round(memory_khz / 1e3)}"
    return f"{name};GPU-{number};{memory_bytes};{chip.architecture.capability};{clocks};{bits}"
