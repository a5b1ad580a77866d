"""`backward_mma`, compared with the gradients in float64; initcheck and racecheck watch every run."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import weft
from tests.in_turn import one_in
from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import CompileError
from weft.kernels import RUNGS
from weft.kernels.ladder import ELEMENTS, MASKS
from weft.probes import InitCheck, Probes, RaceCheck
from weft.tasks.backward_problem import BackwardProblem
from weft.tasks.sdpa_backward import SDPA_BACKWARD
from weft.tasks.task import Workload

RUNG = RUNGS["backward_mma"]

NARROW = Shape("narrow", 1, 2, 1, 37, 41, 5)  # rows without aligned chunks; one incomplete fragment of columns
D20 = Shape("d20", 1, 4, 2, 70, 65, 20)
WIDE = Shape("wide", 2, 2, 1, 45, 70, 128)
ONE = Shape("one", 2, 2, 2, 1, 1, 16)
LONG = Shape("long", 1, 2, 1, 70, 150, 40)  # several tiles in both directions; D is no multiple of 16


@dataclass(frozen=True)
class Case:
    shape: Shape
    mask: str = "none"
    dtype: str = "f16"
    levers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        levers = [f"{name}={value}" for name, value in self.levers.items()]
        return "-".join([self.shape.name, self.dtype, self.mask, *levers])

    @property
    def defines(self) -> dict[str, str]:
        return {"CAUSAL": str(MASKS.index(self.mask)), "ELEMENT": ELEMENTS[self.dtype], **self.levers}

    def draw(self) -> BackwardProblem:
        problem = SDPA_BACKWARD.draw(Workload(self.shape, self.dtype, self.mask, "unit_normal", 0))
        assert isinstance(problem, BackwardProblem)
        return problem


CASES = (
    Case(LONG, "bottom_right"),
    Case(SHAPES["ragged"], "top_left", "bf16"),
    Case(SHAPES["few_keys"], "bottom_right", "bf16"),  # a CTA of queries that see no key
    Case(SHAPES["few_keys"], "top_left"),
    Case(NARROW, "none", "bf16"),
    Case(NARROW, "bottom_right", "f16", {"BLOCK_M": "32", "BLOCK_N": "32"}),
    Case(LONG, "none", "bf16", {"BLOCK_M": "32"}),
    Case(LONG, "top_left", "f16", {"BLOCK_N": "32"}),
    Case(D20, "bottom_right"),
    Case(WIDE, "bottom_right", "bf16"),
    Case(WIDE, "none"),
    Case(ONE),
)


def run(case: Case, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return dQ, dK and dV of a run without findings."""
    kernel = weft.load(RUNG.path, defines=case.defines)
    outcome, results = kernel.run(weft.VirtualGPU(), arrays, watch=Probes(InitCheck(), RaceCheck()))
    assert outcome.clean, "\n".join(map(str, outcome.findings))
    return dict(results)


@pytest.mark.parametrize("case", one_in(4, CASES), ids=str)
def test_gradients(case: Case) -> None:
    problem = case.draw()
    results = run(case, dict(problem.arrays))
    for name in ("dq", "dk", "dv"):
        error = np.abs(results[name].astype(np.float64) - getattr(problem.gold, name))
        assert (error <= problem.limits[name]).all(), name  # false for a NaN
    unseen = ~problem.forward.mask.any(axis=-1)
    assert (results["dq"][:, :, unseen] == 0).all()


def test_some_rows_see_no_key() -> None:
    shape = SHAPES["few_keys"]
    assert shape.sq - shape.skv > 64  # a complete CTA of them


@pytest.mark.parametrize(
    ("defines", "sizes", "message"),
    [
        ({"ELEMENT": "float"}, {}, "takes half or __nv_bfloat16"),
        ({"CAUSAL": "3"}, {}, "CAUSAL is 0"),
        ({"BLOCK_M": "24"}, {}, "tiles are whole"),
        ({}, {"D": 129}, "D is 1 to 128"),
    ],
)
def test_what_is_not_supported_does_not_compile(defines: dict[str, str], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        weft.load(RUNG.path, defines=defines).compile(sizes=sizes)


def test_heads_that_cannot_share_keys_are_a_finding() -> None:
    outcome, _ = weft.load(RUNG.path).run(weft.VirtualGPU(), sizes={"HQ": 3, "HKV": 2})
    assert any("HQ % HKV == 0" in str(finding) for finding in outcome.findings)
