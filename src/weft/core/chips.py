"""The GPUs that Weft supports: chips.json as frozen values. Every cell names its source; a missing one is an error."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from .errors import UsageError
from .names import did_you_mean

DEFAULT_GPU = "l4"


class TensorKind(StrEnum):
    """The types that a tensor core multiplies and accumulates."""

    F16_F32 = "f16_f32"
    F16_F16 = "f16_f16"
    BF16_F32 = "bf16_f32"
    TF32_F32 = "tf32_f32"
    INT8 = "int8"
    INT4 = "int4"
    FP8_F32 = "fp8_f32"
    FP8_F16 = "fp8_f16"


@dataclass(frozen=True)
class Citation:
    """The source of a cell's value. `url` is None if no public page confirms it."""

    title: str
    url: str | None


@dataclass(frozen=True)
class Architecture:
    """One compute capability: the resources of an SM and its rates per clock."""

    capability: str
    max_warps: int
    max_blocks: int
    shared_bytes: int
    shared_bytes_per_block: int
    registers: int
    register_unit: int
    """A warp's registers are allocated in multiples of this."""
    shared_unit: int
    reserved_shared_bytes: int
    """Shared memory that the driver takes for every block."""
    sub_partitions: int
    fp32_lanes: int
    imad_lanes: int
    alu_lanes: int
    mufu_lanes: int
    lsu_instructions: float
    """Warp instructions whose addresses the load/store units take per clock."""
    shared_wavefronts: int
    issue_slots: int
    l1_fill_bytes: int
    sources: Mapping[str, Citation]

    @property
    def target(self) -> str:
        """Return the compiler's name of it: sm_89."""
        return "sm_" + self.capability.replace(".", "")


@dataclass(frozen=True)
class Chip:
    """One GPU."""

    name: str
    title: str
    architecture: Architecture
    sms: int
    boost_ghz: float
    max_ghz: float
    """The highest clock the driver allows; bounds are computed at it."""
    sustained_ghz: float | None
    """The clock of a GPU whose power limit keeps it well below its boost clock."""
    dram_gib: int
    """Size of its memory."""
    dram_gbs: float
    dram_reachable: float
    """Share of `dram_gbs` that a copy reaches; estimates only."""
    l2_bytes: int
    tensor_macs: Mapping[TensorKind, int]
    """Dense multiply-adds per SM and clock; a kind that is missing does not run on this GPU's tensor cores."""
    mma_sync_share: float
    """Share of that rate that mma.sync reaches; estimates only."""
    issue_weight: float | None
    """The estimate's c, if it was fitted for this GPU."""
    sources: Mapping[str, Citation]

    def peak_macs(self, kind: TensorKind) -> int:
        """Return the dense multiply-adds per SM and clock; raises UsageError for a kind that the GPU does not have."""
        if kind not in self.tensor_macs:
            known = ", ".join(self.tensor_macs)
            raise UsageError(f"the tensor cores of {self.title} have no {kind}; they have {known}")
        return self.tensor_macs[kind]


@cache
def chips() -> Mapping[str, Chip]:
    """Return every GPU of chips.json by its short name."""
    table = json.loads(files(__package__).joinpath("chips.json").read_text(encoding="utf-8"))
    sources = {key: Citation(row["title"], row["url"]) for key, row in table["sources"].items()}
    architectures = {name: _architecture(name, row, sources) for name, row in table["architectures"].items()}
    found = {name: _chip(name, row, architectures, sources) for name, row in table["chips"].items()}
    return MappingProxyType(found)


def chip(name: str) -> Chip:
    """Return the GPU with this short name ("l4"); raises UsageError with the known names."""
    found = chips().get(name.lower())
    if found is None:
        raise UsageError(f"unknown GPU {name!r}{did_you_mean(name, chips())}; known are {', '.join(chips())}")
    return found


@cache
def smallest_chips() -> Mapping[str, Chip]:
    """Return the GPU with the fewest SMs of each architecture, by target (`sm_89`): what fits it fits the others."""
    found: dict[str, Chip] = {}
    for one in chips().values():
        target = one.architecture.target
        if target not in found or one.sms < found[target].sms:
            found[target] = one
    return MappingProxyType(found)


def choose_gpu(gpu: str = "", arch: str = "", default: str = "") -> str:
    """Return the given GPU or architecture (its smallest GPU), else `default` or the default GPU."""
    if gpu and arch:
        raise UsageError(f"both a GPU ({gpu}) and an architecture ({arch}): give one of them")
    return gpu or arch or default or DEFAULT_GPU


def chip_of(gpu: str) -> Chip:
    """Return the GPU of this name ("l4"), or the smallest GPU of this architecture ("sm_89", "sm_90a")."""
    if not gpu.startswith("sm_"):
        return chip(gpu)
    found = smallest_chips().get(gpu.rstrip("af"))
    if found is None:
        hint = did_you_mean(gpu, smallest_chips())
        raise UsageError(f"unknown architecture {gpu!r}{hint}; known are {', '.join(smallest_chips())}")
    return found


def target_of(gpu: str) -> str:
    """Return the architecture that code is compiled for: that of this GPU, or the given one unchanged.

    From 9.0 on, some instructions are only in code for one architecture: wgmma needs sm_90a, which a named GPU runs.
    """
    if gpu.startswith("sm_"):
        return gpu
    architecture = chip(gpu).architecture
    return f"{architecture.target}a" if float(architecture.capability) >= 9.0 else architecture.target


def _architecture(name: str, row: Mapping[str, Any], sources: Mapping[str, Citation]) -> Architecture:
    _expect(name, row, {field.name for field in fields(Architecture)} - {"capability", "sources"})
    named = {cell: sources[row[cell]["source"]] for cell in row}
    return Architecture(capability=name, **{cell: row[cell]["value"] for cell in row}, sources=MappingProxyType(named))


def _chip(
    name: str, row: Mapping[str, Any], architectures: Mapping[str, Architecture], sources: Mapping[str, Citation]
) -> Chip:
    _expect(name, row, {field.name for field in fields(Chip)} - {"name", "sources"})
    cells = {cell: row[cell] for cell in row if cell not in ("title", "architecture", "tensor_macs")}
    tensor = {TensorKind(kind): cell["value"] for kind, cell in row["tensor_macs"].items()}
    named = {cell: sources[value["source"]] for cell, value in cells.items()}
    named |= {f"tensor_macs.{kind}": sources[cell["source"]] for kind, cell in row["tensor_macs"].items()}
    return Chip(
        name=name,
        title=row["title"],
        architecture=architectures[row["architecture"]],
        tensor_macs=MappingProxyType(tensor),
        **{cell: value["value"] for cell, value in cells.items()},
        sources=MappingProxyType(named),
    )


def _expect(name: str, row: Mapping[str, Any], cells: set[str]) -> None:
    if set(row) != cells:
        raise UsageError(f"chips.json, {name}: cells {sorted(set(row) ^ cells)} are missing or unknown")
