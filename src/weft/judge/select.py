"""Which workloads a kernel is judged on: those of its task that it declares support for and the caller chose."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from weft.attention.regimes import fits_f16
from weft.attention.shapes import Shape
from weft.attention.shapes import shape as shape_of
from weft.attention.words import MASK_WORDS
from weft.core.chips import choose_gpu
from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.core.status import Status
from weft.engines.element_types import TYPE_WORDS
from weft.engines.kernel_source import read_source
from weft.kernels.ladder import RUNGS, Rung
from weft.tasks.registry import find_task
from weft.tasks.task import PLAIN, Axes, Problem, Task, Workload

from .candidate import Candidate
from .file_axes import file_axes
from .input_axes import input_axes
from .limits import Limit, limits_of, stand_ins
from .match_arrays import any_workload, match_arrays, require_layout, require_types
from .runs import Refused
from .verdict import NOTHING_SELECTED

HIDDEN_EVERY = 10
"""One workload in this many has a seed chosen at run time, so that a kernel cannot be fitted to it."""


@dataclass(frozen=True)
class Supports:
    """The shapes, types, masks and encodings of its task that a kernel supports."""

    task: Task
    dtypes: tuple[str, ...]
    masks: tuple[str, ...]
    encodings: tuple[str, ...] = (PLAIN,)
    largest_d: int | None = None
    gqa: bool = True
    only_d: int | None = None
    """The head dimension it was compiled for, if it supports no other."""
    f16_range: bool = False
    """Whether it takes only inputs within ±65504."""
    limits: tuple[Limit, ...] = ()
    """Sizes that its launch lines tie or fix."""
    any_mask: bool = False
    """Whether the file does not state its mask: `masks` is then a guess, and the caller may name another one."""
    refuses: Callable[[Problem], str] | None = field(default=None, compare=False)
    """Returns the launch line that excludes a problem (`require D == 64`), or empty; None: no line can exclude one."""
    _refusals: dict[Workload, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def why_not(self, shape: Shape) -> str:
        """Return why it does not take a shape, whatever the type and mask; empty if it does."""
        if self.largest_d is not None and shape.d > self.largest_d:
            return f"the kernel takes D up to {self.largest_d}"
        if self.only_d not in (None, shape.d):
            return f"the kernel is compiled for D = {self.only_d}"
        if not self.gqa and shape.group != 1:
            return "the kernel has one head count"
        return next((limit.why for limit in self.limits if not limit.holds(shape)), "")

    def takes(self, shape: Shape) -> bool:
        return not self.why_not(shape)

    def takes_workload(self, workload: Workload) -> bool:
        """Return whether a workload is within everything it supports."""
        within = workload.dtype in self.dtypes and workload.mask in self.masks and workload.encoding in self.encodings
        return within and not self.reason(workload)

    def reason(self, workload: Workload) -> str:
        """Return why it does not take the sizes of a workload: a limit, or a launch line; empty if it does."""
        return self.why_not(workload.shape) or self.refusal(workload)

    def refusal(self, workload: Workload) -> str:
        """Return the launch line that excludes a workload, whatever its values and seed; empty if none does."""
        if self.refuses is None:
            return ""
        key = replace(workload, regime=self.task.quick.regimes[0], seed=0)
        if key not in self._refusals:
            self._refusals[key] = self.refuses(self.task.draw(key))
        return self._refusals[key]

    def takes_values(self, regime: str, dtype: str) -> bool:
        return not self.f16_range or fits_f16(regime, dtype)


@dataclass(frozen=True)
class Choice:
    """What the caller requests; empty tuples mean the task's quick selection, and the kernel's first type."""

    shapes: tuple[str, ...] = ()
    regimes: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        """Replace synonyms of types and masks by their names: `half` is f16, `causal` is top_left and bottom_right."""
        masks = dict.fromkeys(name for word in self.masks for name in MASK_WORDS.get(word.lower(), (word,)))
        object.__setattr__(self, "masks", tuple(masks))
        object.__setattr__(self, "dtypes", tuple(dict.fromkeys(TYPE_WORDS.get(word, word) for word in self.dtypes)))


def find_candidate(
    target: str,
    *,
    task: str | None,
    gpu: str = "",
    arch: str = "",
    launch: Path | None = None,
    include_dirs: tuple[str, ...] = (),
    compiler: str = "nvrtc",
) -> tuple[Candidate, Supports]:
    """Return a rung of the ladder by name, or a CUDA or PTX file; `launch` is the launch-line file of a PTX file.

    `gpu` is the GPU it is judged on (default: that of the file's `gpu` line, else l4); `arch` (`sm_89`) chooses the
    smallest GPU of an architecture.
    """
    path = path_of(target)
    chosen = choose_gpu(gpu, arch, read_source(path, launch, include_dirs).lines.gpu)
    if target in RUNGS:
        rung = RUNGS[target]
        candidate = Candidate(rung.path, target, gpu=chosen, include_dirs=include_dirs, compiler=compiler)
        supports = _of_rung(rung, find_task(task or rung.task), candidate)
        match_arrays(candidate.kernel, supports.task, {})  # refuses a task that is not the rung's
        _require_macros(candidate, supports.task)
    else:
        candidate = Candidate(path, gpu=chosen, launch=launch, include_dirs=include_dirs, compiler=compiler)
        candidate, supports = _of_a_file(candidate, find_task(task or "sdpa"))
    return candidate, supports


def not_a_kernel(target: str) -> str:
    """Return the message about a name that is neither a file nor a rung."""
    return f"{target} is neither a file nor a rung of the ladder{did_you_mean(target, RUNGS)}: {', '.join(RUNGS)}"


def path_of(target: str) -> Path:
    """Return the path of a rung or of a file. Raises UsageError where the name is neither."""
    if target not in RUNGS and not Path(target).is_file():
        raise UsageError(not_a_kernel(target))
    return RUNGS[target].path if target in RUNGS else Path(target)


def _require_macros(candidate: Candidate, task: Task) -> None:
    """Refuse a rung that lacks a macro of the task: it computes another attention. A file may fix their values."""
    lacking = [name for name in task.macros if name not in candidate.declared.macros]
    if lacking:
        able = ", ".join(name for name, rung in RUNGS.items() if task.name in (rung.task, *rung.also))
        raise UsageError(
            f"{candidate.rung} cannot compute {task.name}: it has no macro {' or '.join(lacking)}. Use a kernel file"
            f"{f', or a rung that can: {able}' if able else ''}"
        )


def _of_a_file(candidate: Candidate, task: Task) -> tuple[Candidate, Supports]:
    """Return the candidate with its arrays named as in the task, and what its launch lines support."""
    axes = input_axes(task, any_workload(task))
    candidate = replace(candidate, wanted=match_arrays(candidate.kernel, task, axes))
    kernel = candidate.kernel
    require_layout(kernel, axes)
    declared = file_axes(kernel, task)
    if declared.dtypes[1:] == ():
        require_types(kernel, task, declared.dtypes[0])
    return candidate, Supports(
        task,
        declared.dtypes,
        declared.masks,
        declared.encodings,
        only_d=declared.only_d,
        limits=limits_of(kernel, axes),
        any_mask=declared.any_mask,
        refuses=candidate.refusal if kernel.may_refuse else None,
    )


def _of_rung(rung: Rung, task: Task, candidate: Candidate) -> Supports:
    return Supports(
        task,
        rung.outputs if rung.encodings else rung.dtypes,
        rung.masks,
        rung.encodings or (PLAIN,),
        rung.largest_d,
        rung.gqa,
        f16_range=rung.f16_range,
        refuses=candidate.refusal if candidate.kernel.may_refuse else None,
    )


def workloads(supports: Supports, choice: Choice) -> Iterator[Workload]:
    """Yield workloads in a fixed order: every combination of requested shapes, else a selection (see `_select`)."""
    supports = settled(supports, choice)
    asked = _asked(supports, choice, leave_out=refused_shapes(supports, choice))
    return (workload for workload in asked if not supports.reason(workload))


def settled(supports: Supports, choice: Choice) -> Supports:
    """Return what a kernel supports, with the mask that the caller named where the file does not state one."""
    every = supports.task.workloads.masks
    if not supports.any_mask or not choice.masks or choice.masks == every:
        return supports
    causal = [mask for mask in choice.masks if mask != "none"]
    tied = any((limit.axis, limit.equals) == ("sq", "skv") for limit in supports.limits)
    if len(choice.masks) > (2 if tied and causal == list(choice.masks) else 1):
        raise UsageError(
            f"masks {', '.join(choice.masks)}: the file has no macro CAUSAL, so it computes one mask. Name it, or "
            "state it in the file: `// weft: lever CAUSAL = 1 in 1` (0 none, 1 top_left, 2 bottom_right)"
        )
    return replace(supports, masks=choice.masks, any_mask=False)


def refused_shapes(supports: Supports, choice: Choice) -> dict[str, str]:
    """Return the shapes of a choice that the kernel does not take, and why."""
    reasons: dict[str, list[str]] = {}
    for workload in _asked(_unlimited(supports), choice):
        reasons.setdefault(workload.shape.name, []).append(supports.reason(workload))
    return {name: found[0] for name, found in reasons.items() if all(found)}


def skipped(supports: Supports, choice: Choice) -> dict[str, int]:
    """Return why workloads of a choice are left out, and how many for each reason."""
    supports = settled(supports, choice)
    reasons = (supports.reason(workload) for workload in _asked(_unlimited(supports), choice))
    return dict(Counter(reason for reason in reasons if reason).most_common())


def _unlimited(supports: Supports) -> Supports:
    """Return the same without limits on the shape."""
    return replace(supports, limits=(), refuses=None, largest_d=None, only_d=None, gqa=True)


def _asked(supports: Supports, choice: Choice, *, leave_out: Collection[str] = ()) -> Iterator[Workload]:
    """Yield the requested workloads that the kernel's types, masks and encodings allow."""
    task = supports.task
    supported = replace(task.workloads, dtypes=supports.dtypes, masks=supports.masks, encodings=supports.encodings)
    supported = supported.within(task.workloads)
    asked = replace(task.quick, dtypes=supported.dtypes[:1] if choice.shapes else supported.dtypes)
    asked = replace(
        asked, **{axis.name: getattr(choice, axis.name) or getattr(asked, axis.name) for axis in fields(Axes)}
    )
    axes = asked.within(supported)
    every = [shape_of(name) for name in axes.shapes]
    shapes = [shape for shape in every if supports.takes(shape) and shape.name not in leave_out]
    if not choice.shapes:
        others = (_stand_in(supports, shape, axes) for shape in every if shape not in shapes)
        shapes = list(dict.fromkeys((*shapes, *filter(None, others))))
        yield from dict.fromkeys(_select(supports, shapes, axes, choice.seeds))
        return
    for shape in shapes:
        for dtype in axes.dtypes:
            for mask in axes.masks:
                for encoding in axes.encodings:
                    for regime in (each for each in axes.regimes if supports.takes_values(each, dtype)):
                        for seed in choice.seeds:
                            yield Workload(shape, dtype, mask, regime, seed, encoding)


def _stand_in(supports: Supports, shape: Shape, axes: Axes) -> Shape | None:
    """Return a shape that the kernel takes instead of one that it does not take; None: there is none."""
    for each in stand_ins(shape, supports.limits) if axes.dtypes and axes.masks and axes.encodings else ():
        work = Workload(each, axes.dtypes[0], axes.masks[0], axes.regimes[0], 0, axes.encodings[0])
        if not supports.reason(work):
            return each
    return None


ALL_MASKS = 2
"""This many of the first shapes are run with every mask; so are those with more queries than keys, where rows see no
key, and those of a single query and D = 64, for which kernels have a separate path."""


def _select(supports: Supports, shapes: Sequence[Shape], axes: Axes, seeds: Sequence[int]) -> Iterator[Workload]:
    """Yield a selection with every shape in every regime, and every type, mask and encoding in every regime.

    All but a few shapes have one mask each, and other types run on the first shape only, so that each
    build is compiled once and runs many times. All shapes, masks, types and encodings come before any regime
    is repeated, so that a wrong kernel is found early.
    """
    if not (shapes and axes.dtypes and axes.masks and axes.encodings):
        return
    first, *others = axes.dtypes
    masks = axes.masks
    every = [shape for at, shape in enumerate(shapes) if at < ALL_MASKS or _meets_all_masks(shape)]

    def row(shape: Shape, dtype: str, mask: int, regime: int, encoding: int) -> Iterator[Workload]:
        regimes = [each for each in axes.regimes if supports.takes_values(each, dtype)]
        if regimes:
            yield Workload(
                shape,
                dtype,
                masks[mask % len(masks)],
                regimes[regime % len(regimes)],
                seeds[(mask + regime) % len(seeds)],
                axes.encodings[encoding % len(axes.encodings)],
            )

    for at, shape in enumerate(shapes):
        for turn in range(len(masks)) if shape in every else (0,):
            yield from row(shape, first, at + turn, at + turn, at + turn)
    for regime in range(len(axes.regimes)):
        for at, dtype in enumerate(others):
            yield from row(shapes[0], dtype, at + regime, regime, at)
        for at, shape in enumerate(shapes):
            # Shapes that are run with every mask have a different one each in the same regime.
            mask = every.index(shape) + regime + at if shape in every else at
            yield from row(shape, first, mask, regime + at, mask)


def _meets_all_masks(shape: Shape) -> bool:
    return shape.sq > shape.skv or (shape.sq == 1 and shape.d == 64)


def followed(supports: Supports, choice: Choice) -> Supports | None:
    """Return what to judge the kernel's own boundaries with; None if the caller chose the shapes."""
    return None if choice.shapes else settled(supports, choice)


def first_pass(todo: Sequence[Workload]) -> int:
    """Return how many of the first workloads contain every shape, type, mask and encoding of all of them."""
    seen: set[tuple[str, object]] = set()
    needed = 0
    for number, workload in enumerate(todo, 1):
        names = ("shape", "dtype", "mask", "encoding")
        new = {(name, getattr(workload, name)) for name in names} - seen
        needed, seen = (number, seen | new) if new else (needed, seen)
    return needed


def hide_seeds(todo: Sequence[Workload], seed: int) -> tuple[Workload, ...]:
    """Return the workloads with this seed in every tenth of them. Fewer than ten keep their seeds."""
    return tuple(
        replace(workload, seed=seed) if at % HIDDEN_EVERY == HIDDEN_EVERY - 1 else workload
        for at, workload in enumerate(todo)
    )


def plan(
    supports: Supports, choice: Choice, *, strict: bool = False, within_limits: bool = False
) -> tuple[Workload, ...]:
    """Return the workloads to be judged.

    `strict`: a requested workload that the candidate does not support is refused, never left out: a candidate of a
    search cannot choose what it is judged on. `within_limits`: from the judge's own selection it may leave out what its
    launch lines exclude, which is counted (`skipped`); what the caller names is refused all the same.
    """
    if strict and supports.any_mask and len(choice.masks) > 1:
        supports = replace(supports, any_mask=False)  # a kernel with one mask lacks the others
    supports = settled(supports, choice)
    todo = tuple(workloads(supports, choice))
    if not strict:
        return todo
    for axis in ("dtypes", "masks", "encodings"):
        missing = [name for name in getattr(choice, axis) if name not in getattr(supports, axis)]
        if missing:
            raise Refused(Status.REJECTED, f"the kernel does not support the {axis} {', '.join(missing)}")
    if choice.shapes or not within_limits:
        for workload in _asked(replace(supports, limits=()), choice):
            why = next((each.why for each in supports.limits if not each.holds(workload.shape)), "")
            if why := why or supports.refusal(workload):
                asked = f"the shape {workload.shape.name} ({workload.dtype}, {workload.mask})"
                raise Refused(Status.REJECTED, f"the kernel does not take {asked}: {why}")
    lacking = [name for name in choice.shapes if name not in {workload.shape.name for workload in todo}]
    if lacking:
        raise Refused(Status.REJECTED, f"the kernel does not take the shapes {', '.join(lacking)}")
    if not todo:
        raise Refused(Status.REJECTED, nothing_selected(supports, choice))
    return todo


def nothing_selected(supports: Supports, choice: Choice) -> str:
    """Return why no workload of a choice is left."""
    if left_out := skipped(supports, choice):
        return "; ".join(f"{count} skipped: {why}" for why, count in left_out.items())
    for axis in ("dtypes", "masks", "encodings"):
        asked, has = getattr(choice, axis), getattr(supports, axis)
        if asked and not set(asked) & set(has):
            return f"the kernel supports the {axis} {', '.join(has)}; requested: {', '.join(asked)}"
    return NOTHING_SELECTED
