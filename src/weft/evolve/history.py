"""All candidates of a run in the store. Every decision of a search depends only on this and on its settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from weft.store.records import SUPERSEDED
from weft.store.store import Store

from .records import Member, member_of
from .settings import Prices

SEARCH = "search"
FINAL = "final"
"""The purpose of an evaluation: the search, or the whole check of a possible winner."""


@dataclass(frozen=True)
class History:
    """The members in the order of proposal; the first is the start."""

    members: tuple[Member, ...]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    @cached_property
    def by_id(self) -> dict[int, Member]:
        return {member.id: member for member in self.members}

    @property
    def start(self) -> Member:
        return self.members[0]

    @property
    def generation(self) -> int:
        """Return the number of the last generation."""
        return self.members[-1].generation

    def until(self, generation: int) -> "History":
        """Return the history without later generations."""
        return History(tuple(member for member in self.members if member.generation <= generation))

    def of(self, generation: int) -> tuple[Member, ...]:
        """Return the members of one generation."""
        return tuple(member for member in self.members if member.generation == generation)

    def parent(self, member: Member) -> Member | None:
        """Return the candidate that it changes."""
        return self.by_id[member.parents[0]] if member.parents else None

    @property
    def evaluations(self) -> int:
        """Return how many candidates were or are being evaluated; a verdict from the cache counts, too."""
        return sum(member.duplicate_of is None for member in self.members)

    @property
    def seconds(self) -> float:
        """Return the seconds of evaluating and proposing."""
        return sum(member.seconds + member.spent.seconds for member in self.members)

    @property
    def tokens(self) -> int:
        return sum(member.spent.prompt_tokens + member.spent.completion_tokens for member in self.members)

    def money(self, prices: Prices) -> float:
        """Return the cost of tokens and machine time."""
        prompt = sum(member.spent.prompt_tokens for member in self.members)
        completion = sum(member.spent.completion_tokens for member in self.members)
        tokens = (prompt * prices.prompt_per_million + completion * prices.completion_per_million) / 1e6
        return tokens + self.seconds * prices.machine_per_hour / 3600


def read_history(store: Store, run_id: int) -> History:
    """Read the history of a run."""
    rows = [row for row in store.evaluations(run_id) if row.status != SUPERSEDED]
    searches = {row.candidate_id: row for row in rows if row.request.get("for") == SEARCH}
    return History(tuple(member_of(row, searches.get(row.id)) for row in store.candidates(run_id)))
