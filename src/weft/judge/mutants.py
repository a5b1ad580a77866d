"""The registry of wrong implementations: what the gate of each task must reject."""

from .mutant import Mutant
from .mutants_fp8 import FP8_MUTANTS
from .mutants_online import ONLINE_MUTANTS
from .mutants_sdpa import SDPA_MUTANTS

MUTANTS: tuple[Mutant, ...] = (*SDPA_MUTANTS, *ONLINE_MUTANTS, *FP8_MUTANTS)


def mutants_of(task: str) -> tuple[Mutant, ...]:
    """All of a task, excluded ones too."""
    return tuple(mutant for mutant in MUTANTS if task in mutant.tasks)
