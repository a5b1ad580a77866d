"""`weft worker`: judge what searches put into a store, on this machine, until there is nothing left to do."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer

from weft.fleet.slots import Slots
from weft.fleet.worker import Event, Terms, Worker, worker_name
from weft.store.store import default_store, open_store

from .runs import StoreAt

IDLE_SECONDS = 900.0


def worker(
    store: StoreAt = None,
    slots: Annotated[int, typer.Option(min=0, help="Evaluations at once (default: one per core).")] = 0,
    idle_seconds: Annotated[
        float, typer.Option(min=0, help="Stop after so long without work; 0: never.")
    ] = IDLE_SECONDS,
    require_isolation: Annotated[int, typer.Option(min=0, max=3, help="Refuse to judge under less.")] = 0,
    once: Annotated[bool, typer.Option("--once", help="Stop as soon as nothing is queued.")] = False,
    run: Annotated[int | None, typer.Option(metavar="N", help="Work for run N alone.")] = None,
    lease_seconds: Annotated[float, typer.Option(min=1, help="After which a dead worker's work is free.")] = 60.0,
    grace_seconds: Annotated[float, typer.Option(min=0, help="To finish what runs when told to stop.")] = 20.0,
    name: Annotated[str, typer.Option(help="Under which it leases (default: host, process, chance).")] = "",
    tied: Annotated[bool, typer.Option("--tied", hidden=True, help="Stop when standard input ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> int:
    """Lease evaluations, judge them in child processes, write the verdicts back.

    It may be killed at any moment: what it had is judged by another worker. SIGTERM lets it finish what it has, or
    gives that back. Exit codes: 0 it stopped by itself or was told to, 2 it could not go on.
    """
    tell = _json_line if as_json else _line
    count = slots or len(os.sched_getaffinity(0))
    terms = Terms(lease_seconds, idle_seconds or None, once, run, require_isolation, grace_seconds)
    where = store or default_store()
    with open_store(where) as opened:
        if count == 1:
            one = Worker(opened, name or worker_name(), terms, tell)
            _until_told(one.stop)
            if tied:
                threading.Thread(target=_until_parent_is_gone, args=(one,), daemon=True).start()
            one.work()
            return 0
        options = [
            "--idle-seconds",
            str(idle_seconds),
            "--require-isolation",
            str(require_isolation),
            "--lease-seconds",
            str(lease_seconds),
            "--grace-seconds",
            str(grace_seconds),
            *(["--once"] if once else []),
            *(["--run", str(run)] if run is not None else []),
        ]
        several = Slots(opened, where, count, options, tell, grace_seconds=grace_seconds)
        _until_told(several.stop)
        several.run()
    return 0


def _until_told(stop: Callable[[], None]) -> None:
    def told(number: int, frame: object) -> None:
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)


def _until_parent_is_gone(one: Worker) -> None:
    while os.read(0, 1 << 12):  # not sys.stdin: a thread that sleeps in its lock would spoil the end of the process
        pass
    one.stop()


def _json_line(event: Event) -> None:
    print(json.dumps(asdict(event)), flush=True)


def _line(event: Event) -> None:
    at = time.strftime("%H:%M:%S")
    what = f"evaluation {event.evaluation} of run {event.run}: " if event.evaluation is not None else ""
    status = f"{event.status} in {event.seconds:.1f} s" if event.status else event.event.replace("_", " ")
    why = f" ({event.message.splitlines()[0]})" if event.message and event.status != "PASSED" else ""
    print(f"{at} {event.worker} {what}{status}{why}", flush=True)
