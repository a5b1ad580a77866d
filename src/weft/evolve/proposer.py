"""The protocol of all proposers, which make children."""

from collections.abc import Sequence
from typing import Protocol

from .history import History
from .records import Member, Proposal
from .settings import Settings


class Proposer(Protocol):
    """Proposes children. Deterministic: the same history, settings and place give the same proposal."""

    @property
    def name(self) -> str: ...

    @property
    def gave_up(self) -> str:
        """Return why the last proposal was None; empty: there is nothing new to propose."""
        ...

    def propose(
        self, history: History, settings: Settings, place: str, siblings: Sequence[Proposal]
    ) -> Proposal | None:
        """Return a child of one of the history's best; None if there is nothing new to propose.

        `place` names the slot of the generation and the attempt, the seed of every choice. `siblings` were proposed
        before it in this generation.
        """
        ...

    def repair(self, history: History, settings: Settings, failed: Member, place: str) -> Proposal | None:
        """Return another version of a child that failed, based on its verdict and diagnosis; None if not possible."""
        ...
