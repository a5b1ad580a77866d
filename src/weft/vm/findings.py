"""Turns the reports of a run into Findings with their place in the source."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from weft.core.records import Dim3, Finding
from weft.ptx.module import Instruction
from weft.ptx.passes.find_in_flight import InFlight

from . import context as c
from .mbarrier_word import COUNT_MASK, STATE_ADDRESS_MASK, STATE_BYTES_SHIFT, STATE_MISSING_SHIFT, waiting_words
from .memory import SHARED_BASE, WINDOW_BYTES
from .places import Places, Spot, access_words

if TYPE_CHECKING:
    from .program import ProgramSource

CODES: Mapping[int, tuple[str, str]] = {
    c.OUT_OF_BOUNDS: ("M101", "{spot}"),
    c.MISALIGNED: ("M102", "misaligned {what}: {size} at {address:#x}, {where}"),
    c.COPY_QUEUE_FULL: ("M103", "more asynchronous copies in flight than the virtual GPU supports"),
    c.DEADLOCK: (
        "S301",
        "deadlock: these lanes wait, and no running thread can release them (lanes at a barrier: {address:#010x})",
    ),
    c.OUT_OF_BUDGET: ("S302", "loop budget (--max-steps) exhausted: possible infinite loop"),
    c.OUT_OF_ROOM: (
        "S302",
        "loop budget (--max-steps) exhausted while {address} CTAs have not started: the running CTAs fill the GPU, so "
        "a wait for the others never ends",
    ),
    c.BAD_BARRIER: ("S303", "barrier number {address} does not exist: valid numbers are 0 to 15"),
    c.BAD_COUNT: ("S305", "barrier for {address} threads: the count must be a multiple of 32"),
    c.BAD_MASK: ("S304", "these lanes execute a collective whose member mask does not include them"),
    c.EXITED_LANES: ("S307", "these lanes have exited, but the instruction needs all lanes of the warp"),
    c.SPLIT_BARRIER: ("S306", "lanes of one warp reach barrier {address} at different instructions"),
    c.TOO_MANY: ("S305", "barrier for {address} threads: the CTA has fewer"),
    c.MIXED_COUNTS: ("S305", "barrier for {address} threads: other warps arrived with a different count"),
    c.BAD_MBARRIER: ("S308", "no initialised mbarrier at {where}, or more arrivals than it expects"),
    c.NO_ARRIVAL: ("S301", "deadlock: these lanes wait for the mbarrier at {where}, which misses {missing}"),
    c.BAD_MAP: (
        "M107",
        "the tensor map at {where} is invalid or not supported, or does not fit the instruction (rank, box, type)",
    ),
    c.BAD_SIZE: ("M107", "a bulk copy of {address} bytes: the size must be a multiple of 16"),
    c.EARLY_PHASE: ("S309", "the phase of an mbarrier ends before a copy that signals it: too few bytes are expected"),
    c.NOT_AWAITED: ("S309", "the CTA ends, and no thread waited for this copy"),
    c.GIVEN_UP: ("S309", "the mbarrier at {where} is given up while bytes of its phase are missing"),
    c.OTHER_STEP: (
        "S311",
        "the warps of a warpgroup are not together: another one executed a different instruction here",
    ),
    c.OTHER_DESCRIPTOR: ("S311", "the warps of a warpgroup give this product different descriptors"),
    c.FEWER_STEPS: (
        "S311",
        "the warps of a warpgroup are not together: warp {upper} ends after {lower} of its wgmma and setmaxnreg",
    ),
    c.INCOMPLETE_GROUP: (
        "S311",
        "this instruction needs a warpgroup, but the last one of the CTA has fewer than four warps",
    ),
    c.NO_REGISTERS: (
        "S301",
        "deadlock: setmaxnreg.inc waits for {upper} registers of the CTA's pool, which has {lower}",
    ),
    c.WRONG_REGISTERS: ("S314", "the warp has {lower} registers per thread, and setmaxnreg asks for {upper}"),
    c.NO_CLUSTER: (
        "S301",
        "deadlock: these lanes wait for the barrier of their cluster, which {upper} of its {lower} threads miss",
    ),
    c.BEHIND: (
        "S311",
        "deadlock: wgmma.wait_group waits for warp {upper} of the warpgroup, which has executed {lower} of its wgmma"
        " and setmaxnreg",
    ),
    c.PEER_GONE: ("S312", "access to the shared memory of CTA rank {lower} of the cluster, which has ended"),
    c.ARRIVED_TWICE: ("S315", "these lanes arrive at the barrier of the cluster twice without a wait between"),
    c.NOT_ARRIVED: ("S315", "these lanes wait for the barrier of the cluster, at which they did not arrive"),
    c.BAD_INDEX: ("X403", "branch index {address} is outside its table"),
    c.TRAP: ("X401", "trap"),
}
"""Report number → finding code and message."""

_NUMBERS = (
    c.OTHER_STEP,
    c.OTHER_DESCRIPTOR,
    c.FEWER_STEPS,
    c.INCOMPLETE_GROUP,
    c.NO_REGISTERS,
    c.WRONG_REGISTERS,
    c.NO_CLUSTER,
    c.BEHIND,
    c.PEER_GONE,
    c.ARRIVED_TWICE,
    c.NOT_ARRIVED,
)
"""Reports whose address is something else: a PTX line, or two numbers."""

REPORT = np.dtype(
    [
        ("code", "i4"),
        ("line", "i4"),
        ("lanes", "u4"),
        ("warp", "i4"),
        ("address", "u8"),
        ("cta", "u4"),
        ("detail", "u4"),
    ]
)


def trap_words(ins: Instruction | None) -> str:
    """Return the message of a trap: the kernel's own, or one in place of a call (`ptx/passes/resolve_calls.py`)."""
    if ins is not None and ins.opcode != ins.form.text:
        return "call through a pointer that is the address of no function of this module with these parameters"
    return "the kernel executed trap"


def in_flight_findings(found: Iterable[InFlight], instruction_at: Mapping[int, Instruction]) -> tuple[Finding, ...]:
    """Return a finding for registers that code touches while a product may use them; it is known without a run."""

    def words(each: InFlight) -> str:
        registers = f"{each.count} registers" if each.count > 1 else "a register"
        first = f"(the first is {each.register})" if each.count > 1 else f"({each.register})"
        if each.early:
            return f"{registers} of wgmma.mma_async used before the wgmma.wait_group that completes it {first}"
        return f"no wgmma.fence between the last access of {registers} and the wgmma.mma_async that uses them {first}"

    def finding(each: InFlight) -> Finding:
        here, other = instruction_at.get(each.line), instruction_at.get(each.other)
        places = (here.place if here else None), (other.place if other else None)
        return Finding("S310", words(each), each.line, places[0], other=places[1])

    return tuple(finding(each) for each in found)


def findings_of(
    reports: npt.NDArray[np.uint8],
    grid: Dim3,
    source: "ProgramSource",
    places: Places,
    probe_codes: Mapping[int, tuple[str, str]],
) -> tuple[Finding, ...]:
    """Returns one finding per code and instruction, at its first CTA and warp, with the number of times it occurred."""
    codes = {**probe_codes, **CODES}
    rows = np.sort(reports.view(REPORT), order=["code", "line", "cta", "warp"])
    grouped: dict[tuple[int, str, int], list[np.void]] = {}
    spots: dict[tuple[int, int], Spot] = {}
    for row in rows:
        code, line, address = int(row["code"]), int(row["line"]), int(row["address"])
        name = codes[code][0]
        if code == c.OUT_OF_BOUNDS:
            if (line, address) not in spots:
                spots[line, address] = places.spot(source.instruction_at.get(line), address)
            name = spots[line, address].code
        grouped.setdefault((code, name, line), []).append(row)
    found = []
    for (code, name, line), seen in grouped.items():
        first = seen[0]
        number, address = int(first["cta"]), int(first["address"])
        cta = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
        instruction = source.instruction_at.get(line) if line >= 0 else source.waiting_at(-1 - line)
        spot = spots[line, address] if code == c.OUT_OF_BOUNDS else Spot(name, "")
        missing = ""
        if code == c.NO_ARRIVAL:
            pending, arrivals = address >> STATE_BYTES_SHIFT, address >> STATE_MISSING_SHIFT & COUNT_MASK
            missing = waiting_words(arrivals, pending)
            address = SHARED_BASE + (address & STATE_ADDRESS_MASK)
        other = source.instruction_at.get(address) if code == c.OTHER_STEP else None
        upper, lower = divmod(address, 1 << 32)
        if code in _NUMBERS:
            address = 0
        where = places.where(instruction, address)
        if instruction is not None and instruction.facts.starts and address < SHARED_BASE + WINDOW_BYTES:
            address %= SHARED_BASE  # a copy's target, reported as a generic address
        what, size = access_words(instruction, address)
        words = trap_words(source.trap_at(line)) if code == c.TRAP else codes[code][1]
        numbers = {"address": address, "upper": upper, "lower": lower}
        message = words.format(**numbers, where=where, spot=spot.message, what=what, size=size, missing=missing)
        found.append(
            Finding(
                name,
                message,
                name=spot.name,
                ptx_line=instruction.line if instruction else 0,
                place=instruction.place if instruction else None,
                cta=cta,
                warp=int(first["warp"]),
                lanes=int(first["lanes"]),
                address=address,
                count=len(seen),
                other=other.place if other else None,
            )
        )
    return tuple(found)
