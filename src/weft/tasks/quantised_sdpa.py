"""`quantised_sdpa`: attention on f16, bf16 or f32 by the FP8 recipe; the kernel quantises, and both products are E4M3.

A kernel declares by macros its block sizes (BLOCK_M, BLOCK_N), whether it flushes (FLUSH), whether it smooths K
(SMOOTH), and how many products its tensor core adds at once (FUSED_PRODUCTS: 16 in Ada's mma, 32 in Hopper's wgmma);
the defaults are 64, 64, yes, yes and 16.
"""

from weft.attention.bias import bias_gate
from weft.attention.error_report import compare
from weft.attention.gates import lse_gate, size_gate, tight_gate
from weft.attention.quantisation_noise import DRAWS, MANY_DRAWS
from weft.attention.reference import attention
from weft.attention.regimes import make
from weft.attention.shapes import SHAPES
from weft.attention.stages import STAGES

from .attention_problem import OUTPUTS, attention_reference
from .mutants.recipe import RECIPE_MUTANTS
from .recipe_problem import RecipeProblem, recipe_of
from .recipe_runs import RIGHT_RECIPES
from .sdpa import CERTIFIED_ON, QUICK_REGIMES, QUICK_SHAPES
from .task import Axes, Declared, Judgement, Outputs, Task, Workload


def draw(workload: Workload) -> RecipeProblem:
    """q, k and v of the regime, in the workload's type."""
    q, k, v = make(workload.regime, workload.shape, workload.dtype, workload.seed)
    return RecipeProblem(workload, {"q": q, "k": k, "v": v}, q, k, v)


def judge(problem: RecipeProblem, outputs: Outputs, declared: Declared) -> Judgement:
    """Check the kernel against its recipe, and its total error against attention on the unquantised inputs."""
    o, lse, dtype = outputs["o"], outputs.get("lse"), problem.workload.dtype
    recipe = recipe_of(declared.macros, dtype)
    followed, exact = problem.followed(recipe), problem.exact.o
    gates = [tight_gate(o, followed.o, problem.v, dtype, allowance=followed.allowance)]
    if lse is not None:
        gates.append(lse_gate(lse, followed.lse))
    bias = bias_gate(o, (followed.unrounded,), dtype, keys=problem.mask.sum(axis=1))
    if bias is not None:
        gates.append(bias)
    whole = size_gate("quantised", o, exact, problem.size(recipe, DRAWS), dtype)
    if not whole.passed and all(gate.passed for gate in gates):  # all else is right: perhaps only a rare rounding
        whole = size_gate("quantised", o, exact, problem.size(recipe, MANY_DRAWS), dtype)
    gates.append(whole)
    dequantised = attention(*followed.dequantised, mask=problem.mask).o
    parts = {
        "err_quant": compare(dequantised, exact),
        "err_algorithm": compare(followed.o, dequantised),
        "err_kernel": compare(o, followed.o),
    }
    return Judgement(tuple(gates), compare(o, exact), exact, parts)


QUANTISED_SDPA = Task(
    name="quantised_sdpa",
    what="attention by the FP8 recipe: the kernel quantises Q, K, V and P to E4M3; O in f16, bf16 or f32, and LSE",
    inputs=("q", "k", "v"),
    outputs=OUTPUTS,
    stages=STAGES,
    draw=draw,
    reference=attention_reference,
    judge=judge,
    workloads=Axes(tuple(name for name, shape in SHAPES.items() if shape.d <= 128)),
    quick=Axes((*QUICK_SHAPES, "split_192"), (*QUICK_REGIMES, "outlier_channels")),
    mutants=RECIPE_MUTANTS,
    right=RIGHT_RECIPES,
    certified_on=(
        *CERTIFIED_ON,
        Workload(SHAPES["split_192"], "f16", "none", "v_offset", 0),
        Workload(SHAPES["split_192"], "f16", "none", "outlier_channels", 1),
    ),
    any_size=("B", "heads", "group", "SQ", "SKV", "S"),
)
