"""Finds the smallest workload that fails in the same way as a larger one."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from weft.core.finding_codes import Severity
from weft.core.status import Status
from weft.judge.verdict import Verdict
from weft.tasks.task import Workload

SECONDS = 15.0
RAGGED = (5, 9, 17, 33, 49, 65, 97, 129, 193, 257)
"""At least a few rows and keys: with one key every softmax is 1, and different errors look the same."""
WHOLE = (16, 32, 48, 64, 96, 128, 192, 256, 384)
HEAD_SIZES = (32, 64)

Judge = Callable[[Workload], Verdict]


def shrink(
    failed: Verdict,
    judge: Judge,
    *,
    takes: Callable[[Workload], bool] = lambda workload: True,
    blocks: tuple[int, ...] = (),
    partial_tiles: bool = False,
    masks: tuple[str, ...] = ("none",),
    seconds: float = SECONDS,
) -> Verdict:
    """Return the verdict on the smallest failing workload that was found in time.

    Each property in turn is made as small as possible while the failure stays of the same kind. A length that is a
    multiple of 16 stays one (of `blocks` too, where it was): a kernel that supports only full tiles would otherwise
    fail for another reason. With `partial_tiles` it is known to support others. The head size comes last because it
    costs a compilation.
    """
    deadline = time.monotonic() + seconds
    whole = () if partial_tiles else blocks
    lengths = _lengths("skv", blocks, whole), _lengths("sq", blocks, whole)
    for step in (_batch, _heads, _plain_mask(masks), _plain_regime, *lengths, _d):
        for smaller in step(failed.workload):
            if time.monotonic() > deadline:
                return failed
            if not takes(smaller):
                continue
            verdict = judge(smaller)
            if same_failure(verdict, failed):
                failed = verdict
                break
    return failed


def same_failure(verdict: Verdict, other: Verdict) -> bool:
    """Whether they have the same status and first failing gate; of errors, at least one in common."""
    if verdict.status is not other.status:
        return False
    if verdict.status is not Status.UNSAFE:
        return _failing_gate(verdict) == _failing_gate(other)
    codes, others = ({f.code for f in each.findings if f.level is Severity.ERROR} for each in (verdict, other))
    return bool(codes & others)


def _failing_gate(verdict: Verdict) -> str:
    """Return the gate's name without its figure: `flash max` and `flash mean` are one gate."""
    return next((gate.gate.split()[0] for gate in verdict.gates if not gate.passed), "")


def _sized(workload: Workload, **sizes: int) -> Workload:
    return replace(workload, shape=replace(workload.shape, name="shrunk", **sizes))


def _batch(workload: Workload) -> Iterator[Workload]:
    if workload.shape.b > 1:
        yield _sized(workload, b=1)


def _heads(workload: Workload) -> Iterator[Workload]:
    """Yield one head; else one group; else two heads, for mistakes between them."""
    shape = workload.shape
    for hq, hkv in ((1, 1), (shape.group, 1), (2 * shape.group, 2)):
        if hq < shape.hq:
            yield _sized(workload, hq=hq, hkv=hkv)


def _plain_mask(masks: tuple[str, ...]) -> Callable[[Workload], Iterator[Workload]]:
    def without(workload: Workload) -> Iterator[Workload]:
        if workload.mask != "none" and "none" in masks:
            yield replace(workload, mask="none")

    return without


def _plain_regime(workload: Workload) -> Iterator[Workload]:
    if workload.regime != "unit_normal":
        yield replace(workload, regime="unit_normal")


def _lengths(axis: str, blocks: tuple[int, ...], whole: tuple[int, ...]) -> Callable[[Workload], Iterator[Workload]]:
    def shorter(workload: Workload) -> Iterator[Workload]:
        length = int(getattr(workload.shape, axis))
        unit = math.lcm(*(block for block in (16, *whole) if length % block == 0))
        if length % 16:
            sizes = sorted({*RAGGED, *(block + 1 for block in blocks), *(2 * block + 1 for block in blocks)})
        else:
            sizes = sorted({-(-size // unit) * unit for size in WHOLE})
        # A square problem stays square where it can: a mask's alignment and equal lengths may matter.
        other = "sq" if axis == "skv" else "skv"
        for size in sizes:
            if size >= length:
                return
            if axis == "skv" and getattr(workload.shape, other) == length:
                yield _sized(workload, skv=size, sq=size)
            else:
                yield _sized(workload, **{axis: size})

    return shorter


def _d(workload: Workload) -> Iterator[Workload]:
    for d in HEAD_SIZES:
        if d < workload.shape.d:
            yield _sized(workload, d=d)
