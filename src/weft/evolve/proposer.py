"""Who makes children: the protocol of all proposers."""

from collections.abc import Sequence
from typing import Protocol

from .history import History
from .records import Member, Proposal
from .settings import Settings


class Proposer(Protocol):
    """Deterministic: the same history, settings and place give the same proposal."""

    @property
    def name(self) -> str: ...

    @property
    def gave_up(self) -> str:
        """Why the last proposal was None; empty: nothing new is left to try."""
        ...

    def propose(
        self, history: History, settings: Settings, place: str, siblings: Sequence[Proposal]
    ) -> Proposal | None:
        """A child of one of the history's best; None where nothing new is left to try.

        `place` names the slot of the generation and the attempt, the seed of every choice. `siblings` were proposed
        before it in this generation.
        """
        ...

    def repair(self, history: History, settings: Settings, failed: Member, place: str) -> Proposal | None:
        """Another version of a child that failed, with its verdict and diagnosis in hand; None: it cannot."""
        ...
