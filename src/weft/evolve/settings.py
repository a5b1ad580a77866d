"""The settings of a search. They are stored with the run: resuming it needs nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from weft.attention.errors import ContractError
from weft.attention.shapes import shape as shape_of
from weft.core.errors import UsageError
from weft.judge.select import Choice, find_candidate
from weft.kernels.ladder import RUNGS
from weft.supervise.records import ScoreOn
from weft.tasks.registry import find_task
from weft.tasks.task import Task

SEARCH_CHOICE = Choice(
    shapes=("small", "ragged", "gqa_4_ragged"), regimes=("unit_normal", "sorted_keys"), masks=("none", "bottom_right"),
    seeds=(0,),
)  # fmt: skip
"""The workloads of every candidate; a winner is judged as `weft check` does."""
FEW_SHAPES = 3
"""Number of shapes in a search on a task that lacks some of these."""


@dataclass(frozen=True)
class Budget:
    """The limits of a search; None: no limit."""

    evaluations: int = 60
    seconds: float | None = None
    """Seconds of evaluating and proposing, over all sessions of the run."""
    tokens: int | None = None
    money: float | None = None

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in given.items():
            if value is not None and value <= 0:
                raise UsageError(f"a budget of {value} {name} allows nothing: give a number above 0")


@dataclass(frozen=True)
class Prices:
    """The prices of tokens and machines, in one currency."""

    prompt_per_million: float = 0.0
    completion_per_million: float = 0.0
    machine_per_hour: float = 0.0


@dataclass(frozen=True)
class Settings:
    """The settings of one search."""

    task: str = "sdpa"
    start: str = "wmma"
    """A rung, or the path of a file with launch lines."""
    chip: str = "l4"
    score_on: ScoreOn = field(default_factory=ScoreOn)
    proposer: str = "levers"
    seed: int = 0
    batch: int = 4
    """Children per generation: proposed together, so that the order in which they finish has no effect."""
    elites: int = 3
    gain: float = 0.03
    """A child is kept if it is better than its parent by this share."""
    repairs: int = 2
    """Limit of attempts to repair a child that failed."""
    choice: Choice = SEARCH_CHOICE
    final: Choice = field(default_factory=Choice)
    """The workloads of a winner."""
    budget: Budget = field(default_factory=Budget)
    prices: Prices = field(default_factory=Prices)
    folder: str = ""
    """Folder of the brief that `weft evolve init` wrote, if the proposer reads one."""
    model: str = ""
    """The language model, if the proposer uses one."""
    isolation: int = 0
    """The lowest isolation level at which candidates are judged."""

    def record(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Settings":
        """Read the result of `record`. A setting that an older version lacks has its default."""
        read: dict[str, Callable[[Any], Any]] = {
            "score_on": lambda value: ScoreOn(**value),
            "choice": _choice,
            "final": _choice,
            "budget": lambda value: Budget(**value),
            "prices": lambda value: Prices(**value),
        }
        known = [each.name for each in fields(cls) if each.name in record]
        return cls(**{name: read[name](record[name]) if name in read else record[name] for name in known})


def settings_for(start: str, *, task: str = "", shape: str = "") -> Settings:
    """Return the settings of a search with what its task decides: workloads, and type and shape of the score.

    The default task is that of a rung, and `sdpa` of a file; the default start is a rung of the task; the default
    shape is the task's typical one.
    """
    name = task or (RUNGS[start].task if start in RUNGS else Settings.task)
    found = find_task(name)
    start = start or _rung_of(name)
    if start in RUNGS and RUNGS[start].language == "CUDA":
        find_candidate(start, task=name)  # refuses a rung that computes something else
    try:
        scored = shape_of(shape or found.typical)
    except ContractError as error:
        raise UsageError(f"--shape {shape}: {error}") from error
    every = found.workloads
    dtype = ScoreOn.dtype if ScoreOn.dtype in every.dtypes else every.dtypes[0]
    score = ScoreOn(shape=scored.name, dtype=dtype, encoding=every.encodings[0])
    return Settings(task=name, start=start, score_on=score, choice=_choice_on(found))


def _rung_of(task: str) -> str:
    """Return the rung that a search on a task starts from if none is named."""
    if task == Settings.task:
        return Settings.start
    for rung in RUNGS.values():
        if rung.language == "CUDA" and task in (rung.task, *rung.also):
            return rung.name
    raise UsageError(f"no CUDA rung computes {task}: name a .cu file with launch lines (--start)")


def _choice_on(task: Task) -> Choice:
    """Return the workloads of every candidate: `SEARCH_CHOICE`, as far as the task has them."""
    every = task.workloads
    has_shapes = set(SEARCH_CHOICE.shapes) <= set(every.shapes)
    return replace(
        SEARCH_CHOICE,
        shapes=SEARCH_CHOICE.shapes if has_shapes else task.quick.shapes[:FEW_SHAPES],
        regimes=tuple(name for name in SEARCH_CHOICE.regimes if name in every.regimes),
        masks=tuple(name for name in SEARCH_CHOICE.masks if name in every.masks),
    )


def _choice(record: Mapping[str, Any]) -> Choice:
    return Choice(**{name: tuple(values) for name, values in record.items()})
