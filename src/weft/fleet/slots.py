"""Several workers on one machine: a process per slot, restarted when it dies, all ended together.

Each is a `weft worker --slots 1`. The parent reads the events they print, so it knows what a slot that died was judging
and queues that again at once, and with it what the slot had leased and not begun, which does not count as an attempt.
Without a parent the leases would have to expire.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from weft.store.errors import StoreError
from weft.store.store import Store

from .terms import Event
from .worker import LOOK_SECONDS, FleetError, give_back_for, worker_name

RESTART_SECONDS = 0.5
"""Pause before a slot that died is restarted: a slot that dies at once must not keep a core busy."""
PATIENCE_SECONDS = 10.0
"""Time after the slots' grace period until they are killed."""


class Slot:
    """One process and its last event."""

    def __init__(self, command: Sequence[str], where: str, tell: Callable[[Event], None]) -> None:
        self.name, self.leased, self._tell = worker_name(), 0, tell
        # Standard input ties it to this process: when this process ends in any way, the slot reads the end and stops.
        self.process = subprocess.Popen(
            [*command, "--name", self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Not an argument, which every user of the machine sees: a URL may contain a password.
            start_new_session=True,
            env={**os.environ, "WEFT_STORE": where},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = Event(**json.loads(line))
            except (ValueError, TypeError):
                continue  # an incomplete line of a slot that died
            self.leased = (event.evaluation or 0) if event.event == "leased" else 0
            self._tell(event)

    def ended(self) -> int | None:
        """Return its exit code once all its output was read, else None."""
        code = self.process.poll()
        if code is not None:
            self._reader.join()
        return code


class Slots:
    """`count` slots, until they stop by themselves or `stop` is called."""

    def __init__(
        self,
        store: Store,
        where: str,
        count: int,
        options: Sequence[str],
        tell: Callable[[Event], None],
        *,
        grace_seconds: float = 20.0,
    ) -> None:
        self.store, self._where, self._tell, self._stopping = store, where, tell, False
        self._grace_seconds = grace_seconds
        self._command = [sys.executable, "-P", "-m", "weft", "worker", "--slots", "1", "--json", "--tied", *options]
        self._slots = [Slot(self._command, where, tell) for _ in range(count)]

    def stop(self) -> None:
        """Stop all slots."""
        self._stopping = True

    def run(self) -> None:
        """Run until all slots have stopped. Raises FleetError."""
        try:
            while self._slots:
                if self._stopping:
                    return
                for slot in list(self._slots):
                    code = slot.ended()
                    if code is not None:
                        self._slots.remove(slot)
                        self._after(slot, code)
                time.sleep(LOOK_SECONDS)
        finally:
            self._end()

    def _after(self, slot: Slot, code: int) -> None:
        if code == 0:
            return
        if code > 0:
            raise FleetError(f"the worker {slot.name} ended with exit code {code}: its message is above")
        self._give_back(slot, f"the worker was killed by {signal.Signals(-code).name}")
        self.store.reclaim(slot.name)
        with contextlib.suppress(StoreError):  # it may have died before it was registered
            self.store.stop_worker(slot.name)
        time.sleep(RESTART_SECONDS)
        if not self._stopping:
            self._slots.append(Slot(self._command, self._where, self._tell))

    def _give_back(self, slot: Slot, why: str) -> None:
        if slot.leased:
            row = self.store.evaluation(slot.leased)
            if give_back_for(self.store, slot.name, row, why):
                self._tell(Event("given_back", slot.name, row.run_id, row.id, row.candidate_id, message=why))

    def _end(self) -> None:
        for slot in self._slots:
            slot.process.terminate()
        deadline = time.monotonic() + self._grace_seconds + PATIENCE_SECONDS
        for slot in self._slots:
            try:
                slot.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(slot.process.pid, signal.SIGKILL)
                slot.process.wait()
            slot.ended()
