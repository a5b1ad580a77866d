"""Reports of a run → Findings with their place in the source."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from weft.core.records import Dim3, Finding

from . import context as c
from .memory import GlobalMemory

if TYPE_CHECKING:
    from .program import Source

CODES: Mapping[int, tuple[str, str]] = {
    c.OUT_OF_BOUNDS: ("M101", "out of bounds, {where}"),
    c.MISALIGNED: ("M102", "misaligned access, {where} at {address:#x}"),
    c.COPY_QUEUE_FULL: ("M103", "more asynchronous copies in flight than the virtual GPU keeps"),
    c.DEADLOCK: ("S301", "deadlock: these lanes wait and nobody can release them (at a barrier: {address:#010x})"),
    c.OUT_OF_BUDGET: ("S302", "an endless loop? the budget of loop iterations (max_steps) is used up"),
    c.BAD_BARRIER: ("S303", "barrier number {address} does not exist; there are 16"),
    c.BAD_COUNT: ("S305", "a barrier for {address} threads; the count must be a multiple of 32"),
    c.BAD_INDEX: ("X403", "branch index {address} is beyond its table"),
    c.TRAP: ("X401", "the kernel executed trap"),
}
"""Report number → finding code and message."""

_REPORT = np.dtype(
    [("code", "i4"), ("line", "i4"), ("lanes", "u4"), ("warp", "i4"), ("address", "u8"), ("cta", "u4"), ("spare", "u4")]
)


def findings_of(
    reports: npt.NDArray[np.uint8],
    grid: Dim3,
    source: "Source",
    memory: GlobalMemory,
    probe_codes: Mapping[int, tuple[str, str]],
) -> tuple[Finding, ...]:
    """One finding per code and instruction, at its first CTA and warp, with the number of times it was seen."""
    codes = {**probe_codes, **CODES}
    rows = np.sort(reports.view(_REPORT), order=["code", "line", "cta", "warp"])
    grouped: dict[tuple[int, int], list[np.void]] = {}
    for row in rows:
        grouped.setdefault((int(row["code"]), int(row["line"])), []).append(row)
    found = []
    for (code, line), seen in grouped.items():
        name, message = codes[code]
        first = seen[0]
        number, address = int(first["cta"]), int(first["address"])
        cta = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
        instruction = source.instruction_at.get(line) if line >= 0 else source.waiting_at(-1 - line)
        found.append(
            Finding(
                name,
                message.format(address=address, where=memory.describe(address)),
                ptx_line=instruction.line if instruction else 0,
                place=instruction.place if instruction else None,
                cta=cta,
                warp=int(first["warp"]),
                lanes=int(first["lanes"]),
                address=address,
                count=len(seen),
            )
        )
    return tuple(found)
