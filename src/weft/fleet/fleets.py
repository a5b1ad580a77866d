"""What evaluates a search: threads of the driver, processes of this machine, workers started elsewhere, or actors of a
Ray cluster.

The store is the queue. A fleet only keeps workers running; the work that a driver and its fleet had when they died is
in the store.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from os import environ
from typing import Protocol

from weft.core import knobs
from weft.core.errors import UsageError
from weft.store.leases import ATTEMPTS
from weft.store.records import State
from weft.store.store import Store

from .terms import Terms
from .worker import FleetError, Worker, worker_name

SPELLINGS = "local:N, workers, ray, ray:auto or ray:ADDRESS (with /GPU for nodes that have one)"
LOCAL_IDLE_SECONDS = 60.0
"""If the driver dies, its workers continue and stop soon after the queue is empty."""
QUIET_SECONDS = 5.0
"""Seconds without any worker until the driver prints a message."""
ALIVE = timedelta(seconds=90)
NO_NETWORK = 2
"""The isolation level from which on a candidate has no network."""
DRIVER = "driver of run"
"""Prefix of the names of a driver's threads. Host names have no blanks, so no other worker has such a name."""
THREAD_TERMS = Terms(longest_wait_seconds=0.5, lost_attempts=ATTEMPTS, leave_to_others=False)
"""A thread polls often for a new generation. It leaves nothing to others: there may be no other worker."""

Say = Callable[[str], None]


class Fleet(Protocol):
    """Workers for a run."""

    def start(self, run_id: int) -> None:
        """Start the workers."""

    def tend(self) -> None:
        """Replace workers that died; called repeatedly while the driver waits."""

    def close(self) -> None:
        """End the workers: the run is over."""


class ThreadFleet:
    """Workers in threads of the driver, each with its own fork server that stays warm until the run is over."""

    def __init__(self, store: Store, count: int, terms: Terms = THREAD_TERMS) -> None:
        self.store, self.count, self.terms = store, count, terms
        self._workers: list[Worker] = []
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, run_id: int) -> None:
        terms = replace(self.terms, run_id=run_id)
        self._workers = [Worker(self.store, _thread_name(run_id), terms) for _ in range(self.count)]
        self._threads = [threading.Thread(target=self._work, args=(each,), daemon=True) for each in self._workers]
        for thread in self._threads:
            thread.start()

    def _work(self, worker: Worker) -> None:
        try:
            worker.work()
        except BaseException as error:  # raised by `tend`, in the thread that waits
            self._failures.append(error)

    def tend(self) -> None:
        """Raise the error that ended a worker: the others would fail in the same way."""
        if self._failures:
            raise self._failures[0]

    def close(self) -> None:
        """Stop the workers. Evaluations that still run are queued again."""
        for worker in self._workers:
            worker.stop(grace_seconds=0)
        for thread in self._threads:
            thread.join()


def reclaim_threads(store: Store, run_id: int) -> None:
    """Queue again what the threads of an earlier driver of the run had leased, so that the driver after a killed one
    need not wait for the leases to expire.
    """
    owners = {row.owner for row in store.evaluations(run_id, state=State.LEASED) if row.owner is not None}
    for owner in owners:
        if owner.startswith(_thread_prefix(run_id)):
            store.reclaim(owner)


def _thread_prefix(run_id: int) -> str:
    return f"{DRIVER} {run_id}: "


def _thread_name(run_id: int) -> str:
    return _thread_prefix(run_id) + worker_name()


class LocalFleet:
    """Worker processes of this machine. They outlive a driver that is killed."""

    def __init__(self, where: str, slots: int) -> None:
        self.where, self.slots = where, slots
        self._run = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, run_id: int) -> None:
        self._run = run_id
        self._log = knobs.cache_dir() / "fleet" / f"run-{run_id}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._spawn()

    def _spawn(self) -> None:
        command = [
            sys.executable,
            "-P",
            "-m",
            "weft",
            "worker",
            "--run",
            str(self._run),
            "--slots",
            str(self.slots),
            "--idle-seconds",
            str(LOCAL_IDLE_SECONDS),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**environ, "WEFT_STORE": self.where},
            )

    def tend(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None and code > 0:
            raise FleetError(f"the workers ended with exit code {code}: see {self._log}")
        if code is not None:  # idle while the proposer was busy, or killed
            self._spawn()

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


class Volunteers:
    """Workers that the user starts separately, on any machine that reaches the store."""

    def __init__(self, store: Store, where: str, say: Say) -> None:
        self.store, self.where, self._say = store, where, say
        self._look_at = float("inf")

    def start(self, run_id: int) -> None:
        self._look_at = time.monotonic() + QUIET_SECONDS

    def tend(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = float("inf")
        now = self.store.now()
        # Threads of a driver judge only for their own run.
        others = [row for row in self.store.workers() if not row.name.startswith(DRIVER)]
        if not any(row.stopped_at is None and now - row.heartbeat_at < ALIVE for row in others):
            self._say("no worker is running: start some with `weft worker --store STORE`, on this machine or on others")

    def close(self) -> None:
        """Do nothing: the driver did not start these workers."""


def fleet_of(spelled: str, store: Store, where: str, say: Say) -> Fleet:
    """Return the fleet for `local:2`, `workers` or `ray:auto`; raise UsageError for anything else."""
    kind, _, rest = spelled.partition(":")
    if kind == "local" and rest.isdecimal() and int(rest) > 0:
        return LocalFleet(where, int(rest))
    if spelled == "workers":
        return Volunteers(store, where, say)
    if kind.partition("/")[0] == "ray":
        from .ray_fleet import RayFleet

        # Ray's ports are open on every interface of a node: a candidate with a network could use them.
        terms = Terms(idle_seconds=LOCAL_IDLE_SECONDS, require_isolation=NO_NETWORK)
        return RayFleet.parse(spelled, store, where, terms)
    raise UsageError(f"--fleet {spelled}: give {SPELLINGS}")
