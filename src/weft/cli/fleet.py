"""`weft fleet`: print the state of a fleet as text, JSON or Prometheus metrics; and its log."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.fleet.metrics import exposition
from weft.fleet.status import WINDOW_SECONDS, FleetStatus, fleet_status, status_record
from weft.store.records import EventRow, State
from weft.store.store import Store, open_store

from .help_text import FullSummaries
from .runs import AsJson, StoreAt
from .tables import print_table

app = typer.Typer(
    cls=FullSummaries,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Show the workers of a store and its queue.",
)

POLL_SECONDS = 1.0
OVERLAP = 500
"""Events that are read again: a server numbers events before it commits them, so a lower number may appear later."""


@app.command("status")
def status(
    store: StoreAt = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Print metrics in the Prometheus format.")] = False,
    window: Annotated[float, typer.Option(min=1, metavar="S", help="Compute rates over S seconds.")] = WINDOW_SECONDS,
    all_workers: Annotated[bool, typer.Option("--all", help="Show workers that were silent for an hour, too.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show the queue, the workers and their rates."""
    if metrics and as_json:
        raise UsageError("--metrics and --json are two formats: choose one")
    with open_store(store) as opened:
        found = fleet_status(opened, window_seconds=window)
    if metrics:
        print(exposition(found), end="")
    elif as_json:
        print(json.dumps(status_record(found), indent=2))
    else:
        _show(found, all_workers=all_workers)
    return 0


@app.command("logs")
def logs(
    store: StoreAt = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new events.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Number of recent events to print first.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> int:
    """Print the log: evaluations leased, finished, fenced and returned; workers started and stopped."""
    with open_store(store) as opened:
        try:
            for event in followed(opened, lines) if follow else opened.last_events(lines):
                print(_json_line(event) if as_json else _line(event), flush=True)
        except KeyboardInterrupt:  # the user ends it this way
            return 0
    return 0


def _show(found: FleetStatus, *, all_workers: bool) -> None:
    census = found.census
    shown = [worker for worker in found.workers if all_workers or worker.recent]
    rows = [
        [
            worker.row.name,
            worker.row.kind,
            worker.row.slots,
            worker.life,
            worker.row.state,
            f"{worker.silent_seconds:.0f} s ago",
            f"{worker.per_minute:.1f}",
        ]
        for worker in shown
    ]
    print_table(["worker", "kind", "slots", "life", "doing", "heard", "verdicts/min"], rows)
    if len(shown) < len(found.workers):
        print(f"{len(found.workers) - len(shown)} more workers were silent for an hour; --all shows them")
    states = list(State)
    runs = [
        [run.id, run.kind, run.task, run.state, *(found.run_depth(run.id)[state] for state in states)]
        for run in found.runs
    ]
    print_table(["run", "kind", "task", "state", *(state.value.lower() for state in states)], runs)
    depth = ", ".join(f"{count} {state.value.lower()}" for state, count in census.depth.items())
    waiting = ", ".join(f"{count} for a {needs}" for needs, count in sorted(census.waiting.items()))
    print(f"evaluations: {depth}" + (f" (waiting: {waiting})" if waiting else ""))
    oldest = found.oldest_lease_seconds
    if oldest is not None:
        print(f"oldest lease: renewed {oldest:.0f} s ago; {census.overdue} ran out")
    alive = sum(worker.life == "running" for worker in found.workers)
    print(f"{alive} workers · {found.per_minute:.1f} verdicts a minute · {found.store}")


def _line(event: EventRow) -> str:
    what = event.kind.replace("_", " ")
    where = f"evaluation {event.evaluation_id} of run {event.run_id} " if event.evaluation_id is not None else ""
    token = f" (token {event.token})" if event.token is not None else ""
    note = f": {event.note}" if event.note else ""
    return f"{event.at:%Y-%m-%dT%H:%M:%SZ} {event.owner} {where}{what}{token}{note}"


def _json_line(event: EventRow) -> str:
    return json.dumps({**asdict(event), "at": event.at.isoformat()})


def followed(store: Store, last: int, *, wait: Callable[[float], bool] | None = None) -> Iterator[EventRow]:
    """Yield the newest `last` events, then every new one, until `wait` (default: sleep) returns False."""
    wait = wait or _sleep
    first = store.last_events(last + OVERLAP)
    seen = {event.id for event in first}
    yield from first[len(first) - last :] if last < len(first) else first
    while wait(POLL_SECONDS):
        after = max(seen, default=0) - OVERLAP
        seen = {number for number in seen if number > after}
        while rows := store.events(after, limit=2 * OVERLAP):
            yield from (event for event in rows if event.id not in seen)
            seen |= {event.id for event in rows}
            after = rows[-1].id


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True
