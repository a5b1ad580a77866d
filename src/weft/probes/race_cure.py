"""The cure of a race, in the words of the language that the kernel is written in."""

from pathlib import PurePath

from weft.core.finding_codes import Severity
from weft.core.records import Place

from .barrier_line import BarrierLine, users_frames
from .conflict import Conflict, CopyStep

_CURES = {
    ("R104", "bulk"): "let the thread wait for the phase of the copy's mbarrier before the access",
    ("R105", "bulk"): "wait for the copy (cp.async.bulk.wait_group.read), then execute a barrier, then write",
    ("R105", "wgmma"): "wait for the product (wgmma.wait_group), then execute a barrier, then write",
    ("R109", "bulk"): "wait for the copy (cp.async.bulk.wait_group.read) before the stage is filled again",
    (
        "R109",
        "wgmma",
    ): "wait for the product (wgmma.wait_group) before the stage is given to the thread that fills it",
}
"""By the kind of asynchronous operation that the earlier access belongs to."""


def cure_of(conflict: Conflict, barrier: BarrierLine | None, accessed: Place | None) -> tuple[str, Place | None]:
    """Return the cure of a conflict, empty where the general cure of its code is enough, and the line of its barrier.

    `accessed` is the place that the finding names: a barrier in another file is named with the file.
    """
    if conflict.replicas:
        return "none needed: all of the values are right", None
    if conflict.agent:
        return _CURES[conflict.code, conflict.agent], None
    if conflict.across and conflict.owner >= 0 and conflict.code in ("R101", "R102", "R103"):
        return "put cluster.sync() between the two, or let the later one wait for an mbarrier (acquire.cluster)", None
    if conflict.lacks is not None and barrier is not None and PurePath(barrier.place.file).suffix != ".py":
        return _of_copy(conflict.lacks, barrier, accessed)
    if conflict.code in ("R104", "R105", "R107", "R108", "R109", "S309", "S312", "S313", "S316") or barrier is None:
        return "", None
    where = _where(barrier, accessed)
    text = (
        _in_triton(conflict, where)
        if PurePath(barrier.place.file).suffix == ".py"
        else _in_cuda(conflict, barrier, where)
    )
    return text, barrier.place if where in text and not conflict.across else None


def _of_copy(lacks: CopyStep, barrier: BarrierLine, accessed: Place | None) -> tuple[str, Place | None]:
    line = _line(barrier, accessed)
    if lacks.name == "commit":
        return (
            f"end the copy's group after {line} (cp.async.commit_group): a wait holds for ended groups",
            barrier.place,
        )
    if lacks.name == "left":
        groups = "the last group" if lacks.pending == 1 else f"the last {lacks.pending} groups"
        text = f"the wait of {line} does not include {groups}, to which the copy belongs: let it leave out fewer"
        return f"{text}, end the copy's group earlier, or access another stage", barrier.place
    if lacks.name == "barrier":
        return f"add a barrier after the wait of {line}, which holds for the waiting thread alone", barrier.place
    return "", None


def _in_cuda(conflict: Conflict, barrier: BarrierLine, where: str) -> str:
    inseparable = barrier.inside and conflict.code == "R101"
    if conflict.across:
        if conflict.code == "R101":
            one = "let only one CTA write it"
            return one if conflict.severity is Severity.INFO else "let each CTA write only its own elements"
        fence = f"add __threadfence() {where} and then an atomic that the other CTA waits for"
        return f"move the later access to another launch, or {fence}"
    if conflict.severity is Severity.INFO:
        return "let only one thread write it" + ("" if inseparable else f", or add a barrier {where}")
    if conflict.earlier.warp == conflict.later.warp:
        if _one_store(conflict):
            return "let only one lane write it"
        if not inseparable:
            return f"add __syncwarp() {where} (lanes of a warp do not always run in lockstep)"
    if inseparable:
        return f"let only one thread write each element in line {barrier.place.line}"
    return f"add a barrier {where}"


def _in_triton(conflict: Conflict, where: str) -> str:
    """A program of Triton is a CTA; its tensors have no threads that a cure could name."""
    if conflict.across:
        if conflict.code == "R101":
            if conflict.severity is Severity.INFO:
                return "let only one program store it"
            return "let each program store only its own elements, or combine them: tl.atomic_add, tl.atomic_max"
        exchange = f"add tl.atomic_xchg {where} (sem='release') that the other program waits for"
        return f"move the later access to another launch, or {exchange}"
    if conflict.code == "R101" and conflict.earlier.site == conflict.later.site:
        return "give each element of the tensor its own address, or combine them: tl.atomic_add, tl.atomic_max"
    return f"add tl.debug_barrier() {where}"


def _one_store(conflict: Conflict) -> bool:
    return conflict.earlier.site == conflict.later.site and conflict.earlier.record == conflict.later.record


def _where(barrier: BarrierLine, accessed: Place | None) -> str:
    line = _line(barrier, accessed)
    return f"between the read and the write of {line}" if barrier.inside else f"after {line}"


def _line(barrier: BarrierLine, accessed: Place | None) -> str:
    frames, file = users_frames(accessed), barrier.place.file
    name = "" if not frames or frames[-1][0] == file else f" of {PurePath(file).name}"
    return f"line {barrier.place.line}{name}"
