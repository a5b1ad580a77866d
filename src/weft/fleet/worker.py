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
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from weft.core.errors import WeftError
from weft.core.status import Status
from weft.store.backend import Bell
from weft.store.errors import Fenced, StoreError
from weft.store.records import EvaluationRow, Lease, Result, State
from weft.store.store import Store
from weft.supervise.isolation import NotIsolated
from weft.supervise.records import Evaluation
from weft.supervise.supervisor import Supervisor

from .pace import AHEAD_SECONDS, Pace
from .requests import NotOurs, request_of
from .terms import LOST_ATTEMPTS, Event, Tally, Terms

FIRST_WAIT_SECONDS = 0.05
"""First pause between two reads of an empty queue."""
PATIENCE_SECONDS = 120.0
"""How long a failing store is retried, in addition to the store's own retries."""
LOOK_SECONDS = 0.1
"""Pause between two checks whether to stop."""
WRITE_SECONDS = 0.25
"""Longest time that a result of a short evaluation waits to be written together with the next ones."""


class FleetError(WeftError):
    """The workers of a fleet cannot continue. The message has the reason."""


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
    """One slot: judges one evaluation at a time, with one warm supervisor."""

    def __init__(self, store: Store, name: str, terms: Terms = Terms(), tell: Tell = _silent) -> None:  # noqa: B008
        self.store, self.name, self.terms, self._tell = store, name, terms, tell
        self._stop_by = float("inf")
        self._present_at = 0.0
        self._tally = Tally()
        self._not_ours: set[int] = set()
        self._pace = Pace()
        self._bell: Bell | None = None
        self._counting = threading.Lock()

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
            self._close_bell()
            self.store.reclaim(self.name)
            self.store.stop_worker(self.name)
        self._tally = replace(self._tally, why=why)
        self._say("stopped", message=why)
        return self._tally

    def _loop(self, supervisor: Supervisor) -> str:
        idle_since, wait = time.monotonic(), FIRST_WAIT_SECONDS
        while not self.stopping:
            self.patiently(lambda: self.present("idle"))
            leases = self.patiently(self._lease)
            if leases:
                self._close_bell()
                self._do(supervisor, leases)
                if any(lease.evaluation_id not in self._not_ours for lease in leases):
                    idle_since, wait = time.monotonic(), FIRST_WAIT_SECONDS
                continue
            if self.terms.once:
                return "nothing is queued"
            if self.terms.idle_seconds is not None and time.monotonic() - idle_since >= self.terms.idle_seconds:
                return f"idle for {self.terms.idle_seconds:g} s"
            try:
                if self._bell is None:
                    self._bell = self.store.bell()
                    continue  # read the queue again: something may have been queued before the bell was there
                self._sleep(wait, self._bell)
            except StoreError:
                self._close_bell()
                self._sleep(wait)
            wait = min(1.5 * wait, self.terms.longest_wait_seconds)
        return "asked to stop"

    def _lease(self) -> tuple[Lease, ...]:
        return self.store.lease_some(
            self.name,
            self._pace.most,
            seconds=self.terms.lease_seconds,
            run_id=self.terms.run_id,
            needs=self.terms.needs,
            skip=self._not_ours,
        )

    def patiently(self, act: Callable[[], Found]) -> Found:
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

    def _close_bell(self) -> None:
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    def _sleep(self, seconds: float, bell: Bell | None = None) -> None:
        """Wait, but not longer than until a stop or the bell."""
        until = time.monotonic() + seconds
        while not self.stopping and (left := until - time.monotonic()) > 0:
            if bell is None:
                time.sleep(min(left, LOOK_SECONDS))
            elif bell.wait(min(left, LOOK_SECONDS)):
                return

    def _do(self, supervisor: Supervisor, leases: Sequence[Lease]) -> None:
        with _Held(self, supervisor, deque(leases)) as held:
            while (lease := held.next()) is not None:
                self._judge(supervisor, lease, held)

    def _judge(self, supervisor: Supervisor, lease: Lease, held: "_Held") -> None:
        start = time.monotonic()
        try:
            request, limits = request_of(self.store, lease)
            self._say("leased", lease)
            supervisor.limits = limits
            found = supervisor.evaluate(request)
        except (NotOurs, NotIsolated) as error:
            if isinstance(error, NotIsolated) and not self.terms.leave_to_others:
                raise
            self._not_ours.add(lease.evaluation_id)
            held.ended(lease)
            self.store.reclaim(self.name, [lease])  # unlike give_back, this does not count as an attempt
            self.count("refused", lease, message=str(error))
            return
        self._pace.add(time.monotonic() - start)
        match held.ended(lease, found):
            case _Ended.FENCED:
                self.count("fenced", lease, message="another worker has it")
            case _Ended.LOST:
                try:
                    self.patiently(lambda: self._give_back(lease, found.message))
                except Fenced as error:
                    self.count("fenced", lease, message=str(error))

    def _give_back(self, lease: Lease, message: str) -> None:
        if self.stopping:
            self.release([lease], "the worker was asked to stop")
        else:
            self.store.give_back(lease, message, attempts=self.terms.lost_attempts)
            self.count("given_back", lease, message=message)

    def release(self, leases: Sequence[Lease], why: str) -> None:
        """Queue again what was leased and not judged. It does not count as an attempt."""
        self.store.reclaim(self.name, leases)
        for lease in leases:
            self.count("given_back", lease, message=why)

    def present(self, state: str) -> None:
        """Write a heartbeat to the store, at most once per interval."""
        if time.monotonic() >= self._present_at:
            self._present_at = time.monotonic() + self.terms.heartbeat_seconds
            self.store.worker_heartbeat(self.name, state)

    @property
    def out_of_time(self) -> bool:
        """Return whether the running evaluation must be returned to the queue now."""
        return time.monotonic() >= self._stop_by

    def count(self, event: str, lease: Lease, *, status: str = "", seconds: float = 0.0, message: str = "") -> None:
        """Count and report what happened to a lease. Called by two threads."""
        with self._counting:
            self._tally = replace(self._tally, **{event: getattr(self._tally, event) + 1})
        self._say(event, lease, status=status, seconds=seconds, message=message)

    def _say(
        self, event: str, lease: Lease | None = None, *, status: str = "", seconds: float = 0.0, message: str = ""
    ) -> None:
        happened = Event(event, self.name, status=status, seconds=round(seconds, 3), message=message)
        if lease is not None:
            happened = replace(happened, run=lease.run_id, evaluation=lease.evaluation_id, candidate=lease.candidate_id)
        self._tell(happened)


class _Ended(Enum):
    """How an evaluation ended for its worker."""

    JUDGED = "judged"
    FENCED = "fenced"
    LOST = "lost"


@dataclass
class _Held:
    """The leases of a worker: the one that runs, those ahead of it, and those whose results are not written yet.

    A second thread renews them, because a workload may take longer than a lease. It ends the running evaluation when
    another worker has the lease, or when the worker must stop now; it writes results that have waited long enough, and
    gives back what was leased ahead when the running evaluation takes long.
    """

    worker: Worker
    supervisor: Supervisor
    ahead: deque[Lease]
    out_of_time: bool = False
    _running: Lease | None = None
    _since: float = 0.0
    _fenced: bool = False
    _judged: list[tuple[Lease, Evaluation]] = field(default_factory=list)
    _oldest: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)
    _state: threading.Lock = field(default_factory=threading.Lock)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> "_Held":
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.worker.patiently(self.write)

    def next(self) -> Lease | None:
        """Return the lease to judge next; None after the last. If the worker is stopping, those left are given back."""
        with self._state:
            if self.ahead and not self.worker.stopping:
                self._running, self._since, self._fenced = self.ahead.popleft(), time.monotonic(), False
                return self._running
        self._release("the worker was asked to stop")
        return None

    def ended(self, lease: Lease, found: Evaluation | None = None) -> _Ended:
        """End the running evaluation and take its result, if there is one to be written."""
        with self._state:
            self._running = None
            if self._fenced:
                return _Ended.FENCED
            if found is None or found.status is Status.LOST or self.out_of_time:
                return _Ended.LOST  # out of time: an interrupted diagnosis must not become a verdict
            self._oldest = self._oldest if self._judged else time.monotonic()
            self._judged.append((lease, found))
            return _Ended.JUDGED

    def write(self) -> None:
        """Write the results so far in one transaction. Raises StoreError; then a later call writes them."""
        with self._writing:
            with self._state:
                judged = list(self._judged)
            if not judged:
                return
            rows = self.worker.store.finish_all(
                [Result(lease, found.status.value, found.record(), found.seconds) for lease, found in judged]
            )
            with self._state:
                del self._judged[: len(judged)]
                self._oldest = time.monotonic()
        for (lease, found), row in zip(judged, rows, strict=True):
            if isinstance(row, Fenced):
                self.worker.count("fenced", lease, message=str(row))
            else:
                status, message = found.status.value, found.message
                self.worker.count("finished", lease, status=status, seconds=found.seconds, message=message)

    def _release(self, why: str) -> None:
        with self._state:
            left = list(self.ahead)
            self.ahead.clear()
        if left:
            self.worker.release(left, why)

    def _beat(self) -> None:
        terms = self.worker.terms
        due = time.monotonic() + terms.heartbeat_seconds
        while not self._over.wait(LOOK_SECONDS):
            with self._state:
                self.out_of_time = self.out_of_time or self.worker.out_of_time
                if self._running is not None and (self._fenced or self.out_of_time):
                    self.supervisor.interrupt()  # repeated: a fork server that is just starting cannot be ended yet
                now = time.monotonic()
                late = bool(self._judged) and now + LOOK_SECONDS >= self._oldest + WRITE_SECONDS
                slow = self._running is not None and now >= self._since + AHEAD_SECONDS
            # The store may be back before the leases end; the worker's own thread writes the results otherwise.
            with suppress(StoreError):
                if late:
                    self.write()
                if slow:
                    self._release("the evaluation before it takes long")
                if now >= due:
                    self._renew()
            if now >= due:
                due = time.monotonic() + terms.heartbeat_seconds

    def _renew(self) -> None:
        with self._state:
            running = self._running
            leases = [*([running] if running else []), *self.ahead, *(lease for lease, _ in self._judged)]
        renewed = self.worker.store.heartbeat_all(leases, seconds=self.worker.terms.lease_seconds) if leases else ()
        lost = [lease for lease, found in zip(leases, renewed, strict=True) if isinstance(found, Fenced)]
        with self._state:
            self._fenced = self._fenced or (self._running is not None and self._running in lost)
            gone = [lease for lease in self.ahead if lease in lost]
            self.ahead = deque(lease for lease in self.ahead if lease not in lost)
        for lease in gone:
            self.worker.count("fenced", lease, message="another worker has it")
        if running is not None:
            self.worker.present(f"evaluation {running.evaluation_id}")
