"""A worker: lease an evaluation, judge it under a supervisor, finish it, until the queue is empty or it is stopped.

with open_store(url) as store:
    Worker(store, worker_name(), Terms(idle_seconds=600)).work()

It may be killed at any moment. Its lease then expires and another worker judges the evaluation; if the first worker is
still alive, the store refuses its result, because the lease's token is out of date.
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from weft.core.errors import UsageError, WeftError
from weft.core.status import Status
from weft.store.errors import Fenced, StoreError
from weft.store.records import EvaluationRow, Lease, State
from weft.store.store import Store
from weft.supervise.isolation import NotIsolated
from weft.supervise.records import Evaluation
from weft.supervise.supervisor import Supervisor

from .requests import NotOurs, request_of

FIRST_WAIT_SECONDS = 0.05
"""First pause between two reads of an empty queue."""
PATIENCE_SECONDS = 120.0
"""How long a failing store is retried, in addition to the store's own retries."""
LOOK_SECONDS = 0.1
"""Pause between two checks whether to stop."""
LOST_ATTEMPTS = 10
"""Attempts per evaluation: in a fleet, machines die more often than candidates kill them."""


class FleetError(WeftError):
    """The workers of a fleet cannot continue. The message has the reason."""


@dataclass(frozen=True)
class Terms:
    """How a worker works."""

    lease_seconds: float = 60.0
    idle_seconds: float | None = None
    """Seconds without work after which it stops, so that a rented machine costs no more. None: never."""
    once: bool = False
    """Stop as soon as nothing is queued."""
    run_id: int | None = None
    """Evaluate only for this run."""
    require_isolation: int = 0
    grace_seconds: float = 20.0
    """Time to finish the running evaluation after a request to stop."""
    needs: str | None = "vgpu"
    """The kind of evaluations it takes; None: any, on a machine with a GPU."""
    longest_wait_seconds: float = 2.0
    """Longest pause between two reads of an empty queue."""
    lost_attempts: int = LOST_ATTEMPTS
    """Number of leases after which a lost evaluation is given up."""
    leave_to_others: bool = True
    """Leave an evaluation that requires more isolation to a worker on another machine; False: raise NotIsolated."""

    def __post_init__(self) -> None:
        if self.lease_seconds < 1:
            raise UsageError("a lease of less than a second expires before its first heartbeat")

    @property
    def heartbeat_seconds(self) -> float:
        return self.lease_seconds / 4


@dataclass(frozen=True)
class Event:
    """An action of a worker."""

    event: str
    """started, leased, finished, fenced, given_back, refused, stopped."""
    worker: str
    run: int | None = None
    evaluation: int | None = None
    candidate: int | None = None
    status: str = ""
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class Tally:
    """The totals of a worker."""

    finished: int = 0
    given_back: int = 0
    fenced: int = 0
    refused: int = 0
    why: str = ""
    """Why it stopped."""


Tell = Callable[[Event], None]
Found = TypeVar("Found")


def _silent(event: Event) -> None:
    """Ignores every event."""


def worker_name() -> str:
    """Return a name unique to this worker; leases are owned by name."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def give_back_for(store: Store, owner: str, row: EvaluationRow, why: str) -> bool:
    """Queue the evaluation of a worker that is known to be gone again, without waiting for its lease to expire."""
    if row.state is not State.LEASED or row.owner != owner:
        return False
    lease = Lease(row.id, row.run_id, row.candidate_id, row.key, row.request, owner, row.token, store.now())
    try:
        store.give_back(lease, why, attempts=LOST_ATTEMPTS)
    except Fenced:  # another worker has it already
        return False
    return True


class Worker:
    """One slot: one evaluation at a time, one warm supervisor."""

    def __init__(self, store: Store, name: str, terms: Terms = Terms(), tell: Tell = _silent) -> None:  # noqa: B008
        self.store, self.name, self.terms, self._tell = store, name, terms, tell
        self._stop_by = float("inf")
        self._present_at = 0.0
        self._tally = Tally()
        self._not_ours: set[int] = set()

    def stop(self, grace_seconds: float | None = None) -> None:
        """Finish the running evaluation, or return it to the queue after the grace period.

        May be called from a signal handler or another thread. Takes no lock: a handler may interrupt the holder.
        """
        self._stop_by = time.monotonic() + (self.terms.grace_seconds if grace_seconds is None else grace_seconds)

    @property
    def stopping(self) -> bool:
        """Return whether the worker was asked to stop."""
        return self._stop_by < float("inf")

    def work(self) -> Tally:
        """Work until asked to stop, or idle for too long."""
        self.store.register_worker(
            self.name, host=socket.gethostname(), pid=os.getpid(), kind=self.terms.needs or "gpu"
        )
        self._say("started")
        try:
            with Supervisor() as supervisor:
                if self.terms.require_isolation:
                    supervisor.isolation.require(self.terms.require_isolation)
                why = self._loop(supervisor)
        finally:
            self.store.reclaim(self.name)
            self.store.stop_worker(self.name)
        self._tally = replace(self._tally, why=why)
        self._say("stopped", message=why)
        return self._tally

    def _loop(self, supervisor: Supervisor) -> str:
        idle_since, wait = time.monotonic(), FIRST_WAIT_SECONDS
        while not self.stopping:
            self._patiently(lambda: self.present("idle"))
            lease = self._patiently(self._lease)
            if lease is not None:
                self._do(supervisor, lease)
                if lease.evaluation_id not in self._not_ours:
                    idle_since, wait = time.monotonic(), FIRST_WAIT_SECONDS
                continue
            if self.terms.once:
                return "nothing is queued"
            if self.terms.idle_seconds is not None and time.monotonic() - idle_since >= self.terms.idle_seconds:
                return f"idle for {self.terms.idle_seconds:g} s"
            self._sleep(wait)
            wait = min(1.5 * wait, self.terms.longest_wait_seconds)
        return "asked to stop"

    def _lease(self) -> Lease | None:
        return self.store.lease(
            self.name,
            seconds=self.terms.lease_seconds,
            run_id=self.terms.run_id,
            needs=self.terms.needs,
            skip=self._not_ours,
        )

    def _patiently(self, act: Callable[[], Found]) -> Found:
        """Retry while the store is busy or unreachable, so that no verdict is lost. Raises StoreError."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return act()
            except Fenced:
                raise
            except StoreError:
                if self.stopping or time.monotonic() >= deadline:
                    raise
                self._sleep(1.0)

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))

    def _do(self, supervisor: Supervisor, lease: Lease) -> None:
        try:
            request, limits = request_of(self.store, lease)
            self._say("leased", lease)
            supervisor.limits = limits
            with _Heart(self, supervisor, lease) as heart:
                found = supervisor.evaluate(request)
        except (NotOurs, NotIsolated) as error:
            if isinstance(error, NotIsolated) and not self.terms.leave_to_others:
                raise
            self._not_ours.add(lease.evaluation_id)
            self.store.reclaim(self.name)  # unlike give_back, this does not count as an attempt
            self._count("refused", lease, message=str(error))
            return
        if heart.fenced:
            self._count("fenced", lease, message="another worker has it")
            return
        if heart.out_of_time:  # the result may be incomplete: an interrupted diagnosis must not become a verdict
            found = Evaluation(Status.LOST)
        try:
            self._patiently(lambda: self._keep(lease, found))
        except Fenced as error:
            self._count("fenced", lease, message=str(error))

    def _keep(self, lease: Lease, found: Evaluation) -> None:
        if found.status is not Status.LOST:
            self.store.finish(lease, found.status.value, found.record(), seconds=found.seconds)
            self._count("finished", lease, status=found.status.value, seconds=found.seconds, message=found.message)
        elif self.stopping:
            self.store.reclaim(self.name)
            self._count("given_back", lease, message="the worker was asked to stop")
        else:
            self.store.give_back(lease, found.message, attempts=self.terms.lost_attempts)
            self._count("given_back", lease, message=found.message)

    def present(self, state: str) -> None:
        """Write a heartbeat to the store, at most once per interval."""
        if time.monotonic() >= self._present_at:
            self._present_at = time.monotonic() + self.terms.heartbeat_seconds
            self.store.worker_heartbeat(self.name, state)

    @property
    def out_of_time(self) -> bool:
        """Return whether the running evaluation must be returned to the queue now."""
        return time.monotonic() >= self._stop_by

    def _count(self, event: str, lease: Lease, *, status: str = "", seconds: float = 0.0, message: str = "") -> None:
        self._tally = replace(self._tally, **{event: getattr(self._tally, event) + 1})
        self._say(event, lease, status=status, seconds=seconds, message=message)

    def _say(
        self, event: str, lease: Lease | None = None, *, status: str = "", seconds: float = 0.0, message: str = ""
    ) -> None:
        happened = Event(event, self.name, status=status, seconds=round(seconds, 3), message=message)
        if lease is not None:
            happened = replace(happened, run=lease.run_id, evaluation=lease.evaluation_id, candidate=lease.candidate_id)
        self._tell(happened)


@dataclass
class _Heart:
    """Renews the lease from a second thread: a workload may take longer than a lease.

    Ends the evaluation when another worker has the lease, or when the worker must stop now.
    """

    worker: Worker
    supervisor: Supervisor
    lease: Lease
    fenced: bool = False
    out_of_time: bool = False
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "_Heart":
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        store, terms = self.worker.store, self.worker.terms
        step = min(0.25, terms.heartbeat_seconds)
        due = time.monotonic() + terms.heartbeat_seconds
        while not self._over.wait(step):
            self.out_of_time = self.out_of_time or self.worker.out_of_time
            if self.fenced or self.out_of_time:
                self.supervisor.interrupt()  # repeated: a fork server that is just starting cannot be ended yet
                continue
            if time.monotonic() < due:
                continue
            try:
                store.heartbeat(self.lease, seconds=terms.lease_seconds)
                self.worker.present(f"evaluation {self.lease.evaluation_id}")
            except Fenced:
                self.fenced = True
                continue
            except StoreError:
                pass  # the store may be back before the lease ends; `finish` will fail otherwise
            due = time.monotonic() + terms.heartbeat_seconds
