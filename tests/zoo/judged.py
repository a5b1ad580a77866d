"""Run a kernel of the zoo at its workload and compare it with float64 attention."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

import weft
from tests.zoo.bug import Bug
from weft.attention.quantise import Quantiser, SimFp8
from weft.attention.reference import Causal, attention
from weft.attention.regimes import make
from weft.attention.shapes import SHAPES
from weft.core.errors import LaunchError
from weft.core.records import Finding
from weft.kernels.ladder import MASKS
from weft.probes import InitCheck, Probes, RaceCheck

Array = npt.NDArray[Any]

HALF_ULP = 2.0**-11
"""Relative error of one rounding to f16, the output type of every kernel here."""


@dataclass(frozen=True)
class Workload:
    """A kernel's input arrays, and their dequantised values."""

    arrays: dict[str, Array]
    q: Array
    k: Array
    v: Array
    original_v: Array
    """Before quantisation."""


@dataclass(frozen=True)
class Judged:
    """How far o is from float64 attention on the kernel's own inputs, and the findings of the run."""

    refused: str = ""
    """Why a launch did not happen."""
    findings: tuple[Finding, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    ptx_digest: str = ""
    o: Array | None = None
    expected: Array | None = None
    limit: Array | None = None

    @property
    def ratio(self) -> float:
        """The largest error in units of the rounding limit; infinite where o is NaN."""
        assert self.o is not None and self.expected is not None
        error = np.abs(self.o - self.expected) / self.limit
        return float(np.where(np.isfinite(error), error, np.inf).max())

    @property
    def codes(self) -> set[str]:
        """The codes of the findings."""
        return {finding.code for finding in self.findings}


def workload(task: str, shape: str, regime: str, quantiser: Quantiser) -> Workload:
    """Return the workload with seed 0 in f16; codes by the given quantiser, which the kernel decodes like `SimFp8`."""
    q, k, v = make(regime, SHAPES[shape], "f16", 0)
    if task == "sdpa":
        return Workload({"q": q, "k": k, "v": v}, q, k, v, v)
    arrays: dict[str, Array] = {}
    meant: list[Array] = []
    for name, x in zip("qkv", (q, k, v), strict=True):
        coded = quantiser.encode(x.astype(np.float32))
        arrays |= {f"{name}_code": coded.codes, f"{name}_scale": coded.scale}
        meant.append(SimFp8().decode(coded.codes, coded.scale))
    return Workload(arrays, meant[0], meant[1], meant[2], v)


def run(bug: Bug, path: Path, *, fixed: bool = False, schedule: int = 0) -> Judged:
    """Run a file, the bug's or its twin's, at the bug's workload."""
    quantiser = SimFp8() if fixed else bug.quantiser
    given = workload(bug.task, bug.shape, bug.regime, quantiser)
    flags = dict(bug.twin_flags if fixed else bug.flags)
    if bug.mask != "none":
        flags["CAUSAL"] = str(MASKS.index(bug.mask))
    kernel = weft.load(path, defines=flags)
    try:
        gpu = weft.VirtualGPU(schedule=schedule)
        arrays = {name: array.copy() for name, array in given.arrays.items()}
        outcome, results = kernel.run(gpu, arrays, watch=Probes(InitCheck(), RaceCheck()))
    except LaunchError as error:
        return Judged(refused=str(error))
    causal = None if bug.mask == "none" else cast(Causal, bug.mask)
    expected = attention(given.q, given.k, given.v, causal=causal).o
    spread = attention(given.q, given.k, np.abs(given.v), causal=causal).o
    # O is rounded once, and so are the P and V of a tensor-core kernel; 1e-5 covers fp32 sums.
    limit = HALF_ULP * (np.abs(expected) + 4 * spread) + 1e-5 * max(1.0, float(np.abs(given.v).max()))
    return Judged(
        findings=outcome.findings,
        defines=tuple(outcome.defines.items()),
        ptx_digest=outcome.ptx_digest,
        o=results["o"].astype(np.float64),
        expected=expected,
        limit=limit,
    )
