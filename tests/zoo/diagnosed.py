"""Diagnose a kernel of the zoo at its workload, and compare the result with the zoo's record."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.zoo.bug import Bug, build
from weft.attention.quantise import Quantiser, SimFp8
from weft.attention.regimes import make
from weft.diagnose.conclusion import place_of, stage_of
from weft.diagnose.diagnose import diagnose
from weft.diagnose.records import Diagnosis
from weft.judge.select import Choice, find_candidate
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.fp8_sdpa import FP8_SDPA
from weft.tasks.task import Task, Workload


@dataclass(frozen=True)
class Named:
    """The diagnosis of a bug."""

    bug: Bug
    stage: str
    cause: str
    line: int
    """0: none."""
    healthy: bool

    @property
    def stage_right(self) -> bool:
        """Whether it is the expected stage, or one in which the values of register-only stages show."""
        return self.stage in (self.bug.stage, *self.bug.also)

    @property
    def cause_right(self) -> bool:
        return self.cause == self.bug.cause

    @property
    def line_right(self) -> bool:
        """Whether it is the faulty line; true as well where no line of the kernel is faulty."""
        return self.bug.faulty_line() in (0, self.line)


def diagnose_bug(bug: Bug, folder: Path, *, fixed: bool = False) -> Diagnosis:
    """Return the diagnosis of the bug's file, or of its twin's, at the bug's workload."""
    candidate, supports = find_candidate(str(build(bug, folder, fixed=fixed)), task=bug.task)
    candidate = replace(candidate, defines=dict(bug.twin_flags if fixed else bug.flags))
    if bug.stage == "quantiser" and not fixed:
        supports = replace(supports, task=coded_by(bug.quantiser))
    encodings = ("sim_fp8",) if bug.task == "fp8_sdpa" else ()
    return diagnose(candidate, supports, Choice((bug.shape,), (bug.regime,), (bug.mask,), ("f16",), encodings, (0,)))


def named(bug: Bug, diagnosis: Diagnosis) -> Named:
    """Return the headline of the diagnosis."""
    cause = diagnosis.signatures[0].name if diagnosis.signatures else ""
    place = place_of(diagnosis)
    return Named(bug, stage_of(diagnosis), cause, place.line if place is not None else 0, diagnosis.healthy)


def coded_by(quantiser: Quantiser) -> Task:
    """Return `fp8_sdpa` on the codes of another encoder; they are decoded by the contract."""

    def draw(workload: Workload) -> AttentionProblem:
        original = make(workload.regime, workload.shape, workload.dtype, workload.seed)
        coded = [quantiser.encode(x.astype(np.float32)) for x in original]
        arrays = {f"{name}_code": each.codes for name, each in zip("qkv", coded, strict=True)}
        arrays |= {f"{name}_scale": each.scale for name, each in zip("qkv", coded, strict=True)}
        q, k, v = (SimFp8().decode(each.codes, each.scale).astype(np.float32) for each in coded)
        scales = (coded[0].scale, coded[1].scale, coded[2].scale)
        return AttentionProblem(workload, arrays, q, k, v, original, scales)

    return replace(FP8_SDPA, draw=draw)
