"""A search while it runs: a small board on a terminal, a line per generation in a pipe. Both to standard error."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table

from weft.evolve.elites import elites
from weft.evolve.history import History
from weft.evolve.settings import Settings

from .terminal import console


class EvolveView:
    """Is called with what just happened and the history."""

    def __init__(self, run_id: int, settings: Settings) -> None:
        self.run_id, self.settings = run_id, settings
        self._start = time.monotonic()
        self._first: int | None = None
        self._live = (
            Live(console=console(stderr=True), transient=True, refresh_per_second=4) if sys.stderr.isatty() else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, what: str, history: History) -> None:
        if self._live is not None:
            self._live.update(self._board(what, history))
        elif what != "evaluated":
            print(self._line(what, history), file=sys.stderr, flush=True)

    def _line(self, what: str, history: History) -> str:
        best = _best(history, self.settings)
        return (
            f"generation {history.generation}: {what}; {history.evaluations} of {self.settings.budget.evaluations} "
            f"evaluations, best {best}"
        )

    def _board(self, what: str, history: History) -> Table:
        done = sum(member.evaluation is not None for member in history)
        if self._first is None:
            self._first = done
        minutes = (time.monotonic() - self._start) / 60
        budget, prices = self.settings.budget, self.settings.prices
        board = Table(title=f"run {self.run_id}: {what}", show_header=False, title_justify="left")
        board.add_row("best so far", _best(history, self.settings))
        board.add_row("elites", ", ".join(f"{each.id} ({each.score:,.0f})" for each in elites(history, self.settings)))
        board.add_row("generation", f"{history.generation}, {_waiting(history)} in the queue")
        board.add_row("evaluations", _of(history.evaluations, budget.evaluations))
        board.add_row("rate", f"{(done - self._first) / minutes:.1f} a minute" if minutes > 0.05 else "")
        board.add_row("seconds", _of(round(history.seconds), budget.seconds))
        if history.tokens or budget.tokens:
            board.add_row("tokens", _of(history.tokens, budget.tokens))
        money = history.money(prices)
        if money or budget.money:
            board.add_row("money", _of(round(money, 2), budget.money))
        return board


def _waiting(history: History) -> int:
    return sum(member.evaluation is None and member.duplicate_of is None for member in history)


def _of(value: float, limit: float | None) -> str:
    return f"{value:,} of {limit:,}" if limit is not None else f"{value:,}"


def _best(history: History, settings: Settings) -> str:
    chosen = elites(history, settings)
    start = history.start.score
    if not chosen or chosen[0].score is None or start is None:
        return "none yet"
    best = chosen[0]
    assert best.score is not None
    return f"candidate {best.id}: {best.score:,.0f} cycles, ×{best.score / start:.2f} of the start"
