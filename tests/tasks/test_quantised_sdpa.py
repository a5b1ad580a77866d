"""`quantised_sdpa`: the recipe that a kernel declares, that `weft check` finds every mutant, and the error parts."""

from dataclasses import replace
from pathlib import Path

import pytest

from weft.attention.fp8_recipe import Recipe
from weft.attention.shapes import SHAPES
from weft.core.status import Status
from weft.diagnose.records import Case
from weft.judge.candidate import Candidate
from weft.judge.certify import certify
from weft.judge.verdict import Verdict
from weft.tasks.quantised_sdpa import QUANTISED_SDPA, draw, judge
from weft.tasks.recipe_problem import recipe_of
from weft.tasks.task import Declared, Workload

WORKLOAD = Workload(SHAPES["gqa_4_ragged"], "f16", "none", "unit_normal", 0)


@pytest.mark.parametrize(
    ("macros", "recipe"),
    [
        ({}, Recipe(out_dtype="bf16")),
        ({"FLUSH": "0", "SMOOTH": "0"}, Recipe(out_dtype="bf16", flush=False, smooth=False)),
        ({"FUSED_PRODUCTS": "32"}, Recipe(out_dtype="bf16", products=32)),
        ({"BLOCK_M": "32", "BLOCK_N": "128", "ELEMENT": "half"}, Recipe(out_dtype="bf16", block_m=32, block_n=128)),
    ],
)
def test_a_kernel_s_macros_name_its_recipe(macros: dict[str, str], recipe: Recipe) -> None:
    assert recipe_of(macros, "bf16") == recipe


def test_a_recipe_that_was_not_declared_is_rejected() -> None:
    problem = draw(WORKLOAD)
    followed = problem.followed(Recipe(block_n=128))
    outputs = {"o": followed.o, "lse": followed.lse}
    assert judge(problem, outputs, Declared(None, {"BLOCK_N": "128"})).passed
    assert not judge(problem, outputs, Declared()).passed


def test_the_parts_add_up() -> None:
    problem = draw(WORKLOAD)
    followed = problem.followed(Recipe())
    judged = judge(problem, {"o": followed.o}, Declared())
    assert [gate.gate for gate in judged.gates] == ["tight", "bias", "quantised"]
    assert judged.parts["err_kernel"].max == 0
    assert judged.error.bias == pytest.approx(sum(part.bias for part in judged.parts.values()), abs=1e-12)
    assert 0 < judged.parts["err_algorithm"].rmse < judged.parts["err_quant"].rmse < 0.05


def test_a_part_of_the_quick_selection_kills_every_mutant() -> None:
    quick = QUANTISED_SDPA.quick
    shapes = ("ragged", "gqa_4", "gqa_4_ragged", "few_keys")
    regimes = ("unit_normal", "logits_32", "zero_rows", "small_values")
    assert set(shapes) <= set(quick.shapes) and set(regimes) <= set(quick.regimes)
    todo = [
        Workload(SHAPES[shape], "f16", mask, regime, 0)
        for regime in regimes
        for shape in shapes
        for mask in quick.masks
    ]
    assert not certify(replace(QUANTISED_SDPA, right={}), "f16", todo).survivors


def test_its_kernels_are_not_compared_with_the_stages_of_float32_attention() -> None:
    """A diagnosis of codes as values would report a wrong stage; it has only the verdict and the findings."""
    verdict = Verdict(WORKLOAD, Status.INCORRECT_NUMERICAL)
    assert Case(Candidate(Path("k.cu")), QUANTISED_SDPA, draw(WORKLOAD), verdict, verdict).attention is None
