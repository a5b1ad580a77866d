"""Whether a task's gate is a gate: every wrong implementation must fail it somewhere, and no right one anywhere.

A kernel is judged in its own type, so a gate is certified for one output type at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.attention.dtypes import Array, rounded
from weft.attention.merge import Partial
from weft.attention.quantise import SimFp8
from weft.attention.reference import Attended
from weft.attention.shapes import SHAPES, Shape, square
from weft.core.errors import UsageError
from weft.kernels.ladder import ELEMENTS

from .declared import algorithms_of
from .mutant import Implementation, Mutant
from .mutants import mutants_of
from .numpy_attention import finite, online, plain, right_step
from .problem import TASKS, Judgement, Problem, judge, pose
from .verdict import Workload

_CASES = (
    ("ragged", "none", "unit_normal", 1),
    ("ragged", "top_left", "unit_normal", 0),
    ("gqa_4_ragged", "bottom_right", "unit_normal", 2),
    ("few_keys", "bottom_right", "v_offset", 1),
    ("few_keys", "top_left", "unit_normal", 1),
    ("ragged", "none", "logits_32", 2),
    ("ragged", "none", "v_offset", 1),
    ("ragged", "none", "sorted_keys", 0),
    ("gqa_4_ragged", "none", "sorted_keys", 1),
    ("gqa_4", "none", "unit_normal", 1),
    ("d32", "none", "unit_normal", 1),
    ("split_128", "none", "v_offset", 0),
    ("split_128", "top_left", "one_hot", 1),
    ("ragged", "none", "large_magnitude", 1),
)
"""Shape, mask, regime, seed."""

CERTIFIED: Mapping[str, tuple[str, ...]] = {"sdpa": ("f16", "bf16", "f32"), "fp8_sdpa": ("f16", "bf16", "f32")}
"""Task → output types for which its gate holds, the default first."""


def _short_operands(problem: Problem) -> Attended:
    """Inputs rounded to the output's type on their way to the tensor cores: decoded 8-bit ones are changed by that."""
    q, k, v = (rounded(x, problem.workload.dtype) for x in (problem.q, problem.k, problem.v))
    return plain(replace(problem, q=q, k=k, v=v))


def _tensor_core(problem: Problem, tile: int) -> Attended:
    """P rounded to the output's type before P·V, l of P as it was."""

    def step(state: Partial, s: Array, v: Array) -> Partial:
        new = right_step(state, s, v)
        p = np.exp(s - finite(new.m)[..., None])
        return new._replace(o=new.o + (rounded(p, problem.workload.dtype) - p) @ v)

    return online(problem, tile=tile, step=step)


RIGHT: Mapping[str, Implementation] = {
    "float64": plain,
    "online_32": lambda problem: online(problem, tile=32),
    "online_64": lambda problem: online(problem, tile=64),
    "split_4": lambda problem: online(problem, splits=4),
    "short_p_32": lambda problem: _tensor_core(problem, 32),
    "short_p_64": lambda problem: _tensor_core(problem, 64),
    "short_operands": _short_operands,
}
"""Right implementations: a gate that rejects one of them is wrong."""

LOOSE_LIMIT = 5e-3
_LOOSE_SHAPES = (
    square("loose_64", 1, 2, 64, 64),
    square("loose_128", 1, 2, 128, 64),
    square("loose_128_b2", 2, 1, 128, 64),
    square("loose_128_d128", 1, 1, 128, 128),
    square("loose_256", 1, 1, 256, 64),
)


@dataclass(frozen=True)
class Trial:
    """One implementation before the gate."""

    name: str
    what: str
    killed_by: str = ""
    """The gate, or empty: it passed everywhere."""
    workload: Workload | None = None
    """Where it was killed first."""

    @property
    def survived(self) -> bool:
        return not self.killed_by


@dataclass(frozen=True)
class Certificate:
    """What a gate did to all implementations of a task in one type."""

    task: str
    dtype: str
    mutants: tuple[Trial, ...]
    right: tuple[Trial, ...]
    excluded: tuple[tuple[Mutant, str], ...] = ()
    """Mutants that no gate can tell from a right kernel in this type, and why."""

    @property
    def survivors(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.mutants if trial.survived)

    @property
    def wrongly_killed(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.right if not trial.survived)

    @property
    def holds(self) -> bool:
        return bool(self.mutants) and not self.survivors and not self.wrongly_killed

    def __str__(self) -> str:
        killed, passed = len(self.mutants) - len(self.survivors), len(self.right) - len(self.wrongly_killed)
        mutants = f"{killed} of {len(self.mutants)} mutants killed"
        return f"{mutants}, {passed} of {len(self.right)} correct implementations passed"


def workloads(dtype: str) -> tuple[Workload, ...]:
    """The fixed list, the ones that kill most first."""
    if dtype not in ELEMENTS:
        raise UsageError(f"type {dtype!r}: use one of {', '.join(ELEMENTS)}")
    return tuple(Workload(SHAPES[shape], dtype, mask, regime, seed) for shape, mask, regime, seed in _CASES)


def certify(task: str, todo: Sequence[Workload]) -> Certificate:
    """Hold all implementations against the task's own gate, as kernels of which nothing is declared."""
    if not todo or len({workload.dtype for workload in todo}) > 1:
        raise UsageError("a gate is certified on workloads of one type")
    dtype = todo[0].dtype
    problems = [pose(task, workload) for workload in todo]
    mutants = mutants_of(task)
    return Certificate(
        task,
        dtype,
        tuple(_try(mutant, problems) for mutant in mutants if mutant.applies(task, dtype)),
        tuple(_try(Mutant(name, "right", run, breaks="lse"), problems) for name, run in RIGHT.items()),
        tuple((mutant, mutant.excluded[dtype]) for mutant in mutants if dtype in mutant.excluded),
    )


def _try(mutant: Mutant, problems: Sequence[Problem]) -> Trial:
    for problem in problems:
        judged = _judge(problem, _output(mutant, problem), with_lse=mutant.breaks == "lse")
        if not judged.passed:
            gate = next(gate.gate for gate in judged.gates if not gate.passed)
            return Trial(mutant.name, mutant.what, gate, problem.workload)
    return Trial(mutant.name, mutant.what)


def _output(mutant: Mutant, problem: Problem) -> Attended:
    with np.errstate(all="ignore"):  # being wrong is their purpose
        return mutant.run(problem)


def _judge(problem: Problem, output: Attended, *, with_lse: bool) -> Judgement:
    algorithms = algorithms_of(None, problem.task, problem.workload.dtype, {})
    return judge(problem, algorithms, output.o, output.lse if with_lse else None)


def certify_loose(task: str, dtype: str = "f16") -> Certificate:
    """The same against a gate that was used in earnest, kept as a warning.

    Inputs `randn * 0.1`, no mask, one seed; passed if the largest absolute OR the largest relative error of O is at
    most 5e-3. Its shapes are scaled down, which only makes it stricter: errors of O shrink with the
    number of keys. What it never asks for (masks, LSE, ragged lengths, GQA, other seeds) it cannot reject.
    """
    if task not in TASKS:
        raise UsageError(f"task {task!r}: use one of {', '.join(TASKS)}")
    posed = [_small_inputs(task, shape, dtype) for shape in _LOOSE_SHAPES]
    problems = [(problem, problem.gold().o) for problem in posed]
    right = [Mutant(name, "right", run) for name, run in RIGHT.items()]
    return Certificate(
        task,
        dtype,
        tuple(_try_loose(mutant, problems) for mutant in mutants_of(task) if mutant.applies(task, dtype)),
        tuple(_try_loose(mutant, problems) for mutant in right),
    )


def loose_survivors(task: str) -> tuple[str, ...]:
    """Names of the mutants the loose gate lets through."""
    return tuple(trial.name for trial in certify_loose(task).survivors)


def _small_inputs(task: str, shape: Shape, dtype: str) -> Problem:
    problem = pose(task, Workload(shape, dtype, "none", "unit_normal", 0))
    factor = np.float32(0.1)
    if task == "sdpa":
        small = {name: (x.astype(np.float32) * factor).astype(x.dtype) for name, x in problem.arrays.items()}
        return Problem(task, problem.workload, small, small["q"], small["k"], small["v"])
    arrays = {name: x * factor if name.endswith("_scale") else x for name, x in problem.arrays.items()}
    meant = [SimFp8().decode(arrays[f"{name}_code"], arrays[f"{name}_scale"]) for name in "qkv"]
    return Problem(task, problem.workload, arrays, *meant)


def _try_loose(mutant: Mutant, problems: Sequence[tuple[Problem, Array]]) -> Trial:
    for problem, gold in problems:
        error = np.abs(_output(mutant, problem).o.astype(np.float64) - gold)
        if not (error.max() <= LOOSE_LIMIT or (error / np.abs(gold)).max() <= LOOSE_LIMIT):
            return Trial(mutant.name, mutant.what, "loose", problem.workload)
    return Trial(mutant.name, mutant.what)
