"""`weft worker`: evaluate the candidates that searches queue in a store, on this machine."""

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
from weft.fleet.terms import Event, Terms
from weft.fleet.worker import Worker, worker_name
from weft.store.store import default_store, open_store

from .runs import StoreAt

IDLE_SECONDS = 900.0


def worker(
    store: StoreAt = None,
    slots: Annotated[int, typer.Option(min=0, help="Parallel evaluations (default: one per core).")] = 0,
    idle_seconds: Annotated[
        float, typer.Option(min=0, help="Stop after this time without work; 0: never.")
    ] = IDLE_SECONDS,
    require_isolation: Annotated[
        int, typer.Option(min=0, max=3, help="Refuse to judge below this isolation level.")
    ] = 0,
    once: Annotated[bool, typer.Option("--once", help="Stop as soon as nothing is queued.")] = False,
    run: Annotated[int | None, typer.Option(metavar="N", help="Work for run N only.")] = None,
    lease_seconds: Annotated[float, typer.Option(min=1, help="Time after which another worker may take over.")] = 60.0,
    grace_seconds: Annotated[float, typer.Option(min=0, help="Time to finish running work after SIGTERM.")] = 20.0,
    name: Annotated[str, typer.Option(help="The worker's name (default: host, process, random).")] = "",
    tied: Annotated[bool, typer.Option("--tied", hidden=True, help="Stop when standard input ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> int:
    """Lease evaluations from a store's queue, judge them in child processes, write the verdicts to the store.

    You can kill it at any moment: another worker judges what it had. On SIGTERM it finishes its evaluations or
    returns them to the queue. Exit codes: 0 it stopped by itself or by a signal, 2 it could not continue.
    """
    tell = _json_line if as_json else _line
    count = slots or len(os.sched_getaffinity(0))
    terms = Terms(lease_seconds, idle_seconds or None, once, run, require_isolation, grace_seconds)
    where = store or default_store()
    with open_store(where) as opened:
        if count == 1:
            one = Worker(opened, name or worker_name(), terms, tell)
            _until_signalled(one.stop)
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
        _until_signalled(several.stop)
        several.run()
    return 0


def _until_signalled(stop: Callable[[], None]) -> None:
    def on_signal(number: int, frame: object) -> None:
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


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
