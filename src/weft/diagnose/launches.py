"""Judges each launch of several alone, on the reference's inputs for it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm, Emulated
from weft.core.errors import WeftError
from weft.core.records import Place, worst_first
from weft.engines.kernel_file import KernelFile
from weft.engines.virtual import VirtualGPU
from weft.tasks.attention_problem import AttentionProblem

from .compare import Mask, differs
from .partials import Workspace, contents, workspaces
from .records import LaunchJudgement
from .tolerance import EPS, Tolerance

NOTHING_SEEN = -1e4
"""A split without a visible key may have any maximum below this."""


def judge_launches(
    kernel: KernelFile, problem: AttentionProblem, algorithm: Algorithm, arrays: Mapping[str, Array]
) -> tuple[LaunchJudgement, ...]:
    """Return a judgement per launch; none for a kernel of one launch. `arrays` are those after a run of all of them."""
    sequence = kernel.sequence(problem.arrays)
    # Where sequences have their own lengths, it is not known which keys a part has.
    if len(sequence) < 2 or not problem.is_dense:
        return ()
    reference = _Reference(kernel, problem, algorithm, problem.emulated(algorithm), workspaces(kernel, arrays))
    taken = [_arrays_of(kernel, number) for number in range(len(kernel.launches))]
    happening = [number for number, launch in enumerate(kernel.launches) if launch in sequence]
    return tuple(reference.judge(number, taken) for number in happening)


def _arrays_of(kernel: KernelFile, number: int) -> list[str]:
    """Return the workspaces and outputs among a launch's arguments."""
    made = {line.name for line in (*kernel.workspaces, *kernel.outputs)}
    return [argument.name for argument in kernel.launches[number].passed() if argument.name in made]


@dataclass(frozen=True)
class _Reference:
    kernel: KernelFile
    problem: AttentionProblem
    algorithm: Algorithm
    emulated: Emulated
    spaces: tuple[Workspace, ...]

    def judge(self, number: int, taken: list[list[str]]) -> LaunchJudgement:
        launch = self.kernel.launches[number]
        entry, place = launch.name, Place(self.kernel.path, launch.line)
        known = {space.name: space for space in self.spaces}
        before = {name for names in taken[:number] for name in names}
        handed = [name for name in taken[number] if name in before]
        left = [name for name in taken[number] if name not in before]
        strange = [name for name in (*handed, *left) if name not in known and name not in ("o", "lse")]
        if strange or not left:
            what = f"the contents of {', '.join(strange)}" if strange else "its output"
            return LaunchJudgement(number, entry, place, None, f"not judged alone: {what} cannot be predicted")
        prepared = {name: known[name].store(self._contents(known[name]), _F32) for name in handed}
        inputs = {name: array.copy() for name, array in self.problem.arrays.items()}
        try:
            run, arrays = self.kernel.run(VirtualGPU(self.kernel.gpu), inputs, only=number, prepared=prepared)
        except WeftError as error:
            return LaunchJudgement(number, entry, place, None, f"not judged alone: {error}")
        if not run.clean:
            return LaunchJudgement(number, entry, place, False, str(worst_first(run.findings)[0]))
        wrong = {name: self._wrong(name, known.get(name), arrays[name]) for name in left}
        given = f"on the reference's {', '.join(handed)}" if handed else "on the inputs"
        bad = [name for name in left if wrong[name].any()]
        if not bad:
            return LaunchJudgement(number, entry, place, True, f"right {given}: {', '.join(left)}")
        first = bad[0]
        share = 100 * float(wrong[first].mean())
        message = f"wrong {given}: {share:.3g} % of {first}, first at [{_first(wrong[first])}]"
        return LaunchJudgement(number, entry, place, False, message, wrong)

    def _wrong(self, name: str, space: Workspace | None, actual: Array) -> Mask:
        if space is None:
            return self._output_wrong(name, actual)
        expected = self._contents(space).astype(np.float64)
        sizes = dict(zip("nbhsd", (expected.shape[0], *self.problem.workload.shape.q), strict=True))
        found = space.load(actual, sizes).astype(np.float64)
        wrong = differs(found, expected, np.broadcast_to(self._tolerance(space), expected.shape))
        empty = np.isneginf(self._row("m"))
        if space.role in ("m", "lse"):
            wrong &= ~(empty & (found <= NOTHING_SEEN))
        elif space.role != "l":  # a split with weight 0 may have any finite U
            wrong &= ~(empty[..., None] & np.isfinite(found))
        return space.store(wrong, np.dtype(bool)).astype(bool)

    def _contents(self, space: Workspace) -> Array:
        return contents(space, self.emulated.partials, base=self.algorithm.exp_base)

    def _row(self, role: str) -> Array:
        """Return m or l of every split, (n, b, h, s)."""
        return np.stack([getattr(partial, role) for partial in self.emulated.partials])

    def _tolerance(self, space: Workspace) -> Array:
        m, l = self._row("m"), self._row("l")
        tolerance = Tolerance(self.problem, self.algorithm, {})
        share = tolerance.share + self.problem.workload.shape.skv * EPS
        if space.role in ("m", "lse"):
            return np.asarray(tolerance.score + share + 4 * EPS * np.where(np.isfinite(m), np.abs(m), 0))
        if space.role == "l":
            return np.asarray(l * share + 1e-30)
        weight = share[None] * (l if space.role == "u" else np.ones_like(l))
        return np.asarray(weight[..., None] * tolerance.v_max[None, :, :, None, :] + 1e-30)

    def _output_wrong(self, name: str, actual: Array) -> Mask:
        emulated = self.emulated
        tolerance = Tolerance(self.problem, self.algorithm, {("o", None): emulated.o, ("lse", None): emulated.lse})
        expected = emulated.o if name == "o" else emulated.lse
        return differs(actual.astype(np.float64), expected.astype(np.float64), tolerance.of(name, None))


_F32 = np.dtype(np.float32)


def _first(wrong: Mask) -> str:
    return ", ".join(str(int(i)) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
