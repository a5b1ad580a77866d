"""All finding codes in one table, which `weft explain`, the pages and the judge read."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The severity of a finding. An ERROR fails a run; a WARNING is shown, and fails only a strict check."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class FindingCode:
    """One row: what a code means for every kernel."""

    code: str
    name: str
    tool: str
    """The checker that reports it: memcheck, initcheck, racecheck, synccheck, kernel (in every run), or, without a run,
    in compiled code: indexcheck, check."""
    cure: str
    """One sentence, shown where the finding has no more specific cure."""
    severity: Severity = Severity.ERROR
    ends_launch: bool = False
    """The launch ends with it, so the outputs mean nothing and no allow line can suppress it."""


_ROWS = (
    FindingCode("M101", "out of bounds", "memcheck", "guard the index, or fix the offset or the size of the buffer"),
    FindingCode("M102", "misaligned access", "memcheck", "align the buffer and its offsets, or use a narrower access"),
    FindingCode("M103", "too many copies in flight", "memcheck", "wait for older cp.async groups before issuing more"),
    FindingCode("M104", "freed or foreign pointer", "memcheck", "pass a pointer that this launch's arguments own"),
    FindingCode(
        "M105", "outside its region", "memcheck", "keep the index inside the region, or make the region larger"
    ),
    FindingCode(
        "M106",
        "index overflow",
        "indexcheck",
        "compute the index in 64 bits (size_t), or state the limit by a `require` line",
    ),
    FindingCode(
        "M107",
        "bulk copy does not fit",
        "memcheck",
        "copy multiples of 16 bytes; give the tensor map the rank, box and type that the instruction needs",
    ),
    FindingCode(
        "M108",
        "invalid free",
        "memcheck",
        "free each pointer that malloc returned exactly once, and no other pointer",
    ),
    FindingCode(
        "I201", "uninitialised shared memory", "initcheck", "write it, or wait for its copy, before reading it"
    ),
    FindingCode("I202", "uninitialised global memory", "initcheck", "write the buffer, or fill it, before reading it"),
    FindingCode("I203", "uninitialised local memory", "initcheck", "assign the variable before reading it"),
    FindingCode("R101", "write-write race", "racecheck", "put a barrier between the two writes"),
    FindingCode("R102", "read-after-write race", "racecheck", "put a barrier between the write and the read"),
    FindingCode("R103", "write-after-read race", "racecheck", "put a barrier between the read and the write"),
    FindingCode(
        "R104", "copy in flight accessed", "racecheck", "add cp.async.wait_group and then a barrier before the access"
    ),
    FindingCode("R105", "source of a copy overwritten", "racecheck", "wait for the copy before writing to its source"),
    FindingCode(
        "R106",
        "read-only load of written memory",
        "racecheck",
        "load it without __ldg and const __restrict__, or write it in another launch",
    ),
    FindingCode(
        "R107",
        "proxy fence missing",
        "racecheck",
        "add fence.proxy.async after the access of the thread and before the barrier that hands the memory on",
    ),
    FindingCode(
        "R108",
        "tensor map not fenced",
        "racecheck",
        "release the map after the write (tensormap.cp_fenceproxy), acquire it before the copy (fence.proxy.tensormap)",
    ),
    FindingCode(
        "R109",
        "stage reused",
        "racecheck",
        "let the thread that issues the load wait until all readers of the stage have released it",
    ),
    FindingCode(
        "S301",
        "deadlock",
        "synccheck",
        "make every thread reach the barrier, or give it the number or mask of those that do",
        ends_launch=True,
    ),
    FindingCode(
        "S302",
        "out of budget",
        "synccheck",
        "make the loop end; if the kernel is right but long, raise --max-steps",
        ends_launch=True,
    ),
    FindingCode("S303", "no such barrier", "synccheck", "use barrier numbers 0 to 15"),
    FindingCode("S304", "member mask does not match", "synccheck", "set exactly the bits of the lanes that execute it"),
    FindingCode("S305", "barrier count", "synccheck", "use a multiple of 32, at most the CTA's number of threads"),
    FindingCode("S306", "barrier in divergent code", "synccheck", "move the barrier out of the branch"),
    FindingCode(
        "S307", "exited lanes needed", "synccheck", "do not return early: guard the thread's loads and stores instead"
    ),
    FindingCode(
        "S308",
        "mbarrier misused",
        "synccheck",
        "initialise it once with the arrivals of a phase, and put a barrier between that and its first use",
    ),
    FindingCode(
        "S309",
        "bytes of an mbarrier",
        "synccheck",
        "expect exactly the bytes that the copies of the phase signal, and wait for the phase",
    ),
    FindingCode(
        "S310",
        "accumulator in flight",
        "synccheck",
        "use the registers after the wgmma.wait_group of their product, and put wgmma.fence before the next product",
        Severity.WARNING,
    ),
    FindingCode(
        "S311",
        "warpgroup not together",
        "synccheck",
        "let all four warps of the warpgroup execute the same wgmma and setmaxnreg, with the same descriptors",
    ),
    FindingCode(
        "S312",
        "peer gone",
        "synccheck",
        "let every CTA of the cluster wait for the others, by cluster.sync(), before it exits",
    ),
    FindingCode(
        "S313",
        "exit with copies",
        "racecheck",
        "let the thread that issued the copy execute cp.async.bulk.wait_group.read 0 before it exits",
    ),
    FindingCode(
        "S314",
        "wrong number of registers",
        "synccheck",
        "let setmaxnreg.dec ask for at most, and setmaxnreg.inc for at least, the registers that the warps have",
    ),
    FindingCode(
        "S315",
        "barrier of a cluster misused",
        "synccheck",
        "let every thread arrive once and then wait once in each phase",
    ),
    FindingCode(
        "S316",
        "peer not started",
        "racecheck",
        "let every CTA of the cluster wait for the others, by cluster.sync(), before the first access to one of them",
    ),
    FindingCode(
        "X401",
        "trap",
        "kernel",
        "find the condition that leads to the trap and handle that case",
        ends_launch=True,
    ),
    FindingCode("X402", "assertion failed", "kernel", "make the asserted expression hold", ends_launch=True),
    FindingCode(
        "X403", "branch beyond its table", "kernel", "keep the index of brx.idx inside its table", ends_launch=True
    ),
    FindingCode(
        "X404",
        "compiler-dependent code",
        "kernel",
        "keep only host code behind the macro, and let device code be the same for every compiler",
        Severity.INFO,
    ),
    FindingCode("K501", "input changed", "kernel", "declare the array inout, or do not write it"),
    FindingCode("K502", "allow line without effect", "kernel", "remove the line", Severity.INFO),
    FindingCode(
        "K503",
        "comparison that recognises a call",
        "check",
        "compute the same way for all inputs, addresses and machines",
        Severity.INFO,
    ),
    FindingCode(
        "P701",
        "code changed by ptxas",
        "kernel",
        "keep other instructions away from accumulators in flight; give the kernel launch bounds for setmaxnreg",
        Severity.INFO,
    ),
)

FINDING_CODES: Mapping[str, FindingCode] = {row.code: row for row in _ROWS}
"""Code → row, in the order of the documentation."""
