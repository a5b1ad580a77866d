"""The mutants of the ladder that a gate and a diagnosis are tried with. Seed, size and what is held out stand here.

Held-out rungs: `fp8_wmma`, a tensor-core kernel that decodes codes on the way in, whose nearest kin (`wmma`,
`fp8_scalar`) stay in view; and `fa_triton`, whose language stays in view through `fp8_triton`. So what is scored there
is whether a diagnosis carries over to a kernel it was not tuned with, not whether it knows a task or a compiler at all.
"""

from dataclasses import dataclass
from pathlib import Path

from weft.kernels.ladder import RUNGS

from .generate import generate
from .labels import read_labels, stages_of, stages_of_lines
from .records import Mutant
from .sample import Balance, sample

SEED = 9
PER_RUNG = 42
HELD_OUT_RUNGS = ("fp8_wmma", "fa_triton")
LEFT_OUT = ("qk_dot",)
"""It computes scores alone: there is no stage before or after to tell from."""


@dataclass(frozen=True)
class Labelled:
    """A mutant of a rung with the stages that may be named for it."""

    rung: str
    mutant: Mutant
    stages: tuple[str, ...]
    held_out: bool
    """By its operator or by its rung."""


def all_of(rung: str, labels: Path) -> tuple[Labelled, ...]:
    """Every mutant of a rung whose line makes some stage; `labels` is the folder of tables."""
    row = RUNGS[rung]
    source = row.path.read_text()
    lines = stages_of_lines(source, row.language, row.file, read_labels(labels / f"{rung}.txt"))
    found = ((mutant, stages_of(mutant, lines)) for mutant in generate(source, row.language, row.file))
    return tuple(
        Labelled(rung, mutant, stages, mutant.held_out or rung in HELD_OUT_RUNGS) for mutant, stages in found if stages
    )


def ladder_sample(labels: Path, per_rung: int = PER_RUNG, seed: int = SEED) -> tuple[Labelled, ...]:
    """The sample, rung by rung."""
    balance = Balance()
    chosen: list[Labelled] = []
    for rung in (name for name in RUNGS if name not in LEFT_OUT):
        possible = {each.mutant.id: each for each in all_of(rung, labels)}
        drawn = sample([each.mutant for each in possible.values()], per_rung, seed, balance)
        chosen += [possible[mutant.id] for mutant in drawn]
    return tuple(chosen)
