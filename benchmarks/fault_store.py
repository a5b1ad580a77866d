"""Break the store while it is used: a server that is restarted, a disk that is full or read-only, a worker
that is stopped for longer than its lease.

    python benchmarks/fault_store.py [--quick]

- PostgreSQL is shut down and killed in turns while two workers judge: they continue (`restart_…`).
- A worker is stopped (SIGSTOP) with a lease until another worker has finished the evaluation, and continued: its result
  is refused (`fenced`), the other one stays (`fenced_wrong`).
- The disk is full, for a file and for a server; the file system is mounted read-only: a `StoreError` names the reason,
  acknowledged rows are there, and SQLite's own check finds no error (`unclear`, `corrupt`, `told_lost`). Needs root.

The last line is one JSON object.
"""

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.fault_lives import expected_status, queue
from benchmarks.fault_mother import Mother
from benchmarks.postgres_server import PostgresServer
from weft.store.errors import StoreError
from weft.store.records import Happened, State
from weft.store.store import Store, open_store

PATIENCE_SECONDS = 300.0


def restarted(mother: Mother, server: PostgresServer, *, evaluations: int, restarts: int) -> Counter[str]:
    """Run workers with a server that stops and restarts."""
    where = server.new_database()
    found: Counter[str] = Counter()
    with open_store(where) as store:
        run_id = store.start_run("faults", task="sdpa").id
        for number in range(evaluations):
            queue(store, run_id, number)
        workers = [mother.start("work", where, f"w{number}", 30.0, 1) for number in range(2)]
        for number in range(restarts):
            _wait(lambda target=(number + 1) * evaluations // (restarts + 2): _done(store) >= target)
            server.stop(crash=number % 2 == 1)
            time.sleep(0.5)
            server.start()
            found["restarts"] += 1
            found["restarts_with_work_left"] += _done(store) < evaluations
        for worker in workers:
            _wait(lambda worker=worker: mother.ended(worker) is not None)
            found["restart_workers_failed"] += mother.ended(worker) != 0
        rows = store.evaluations(run_id)
        found["restart_lost"] = sum(row.state is not State.DONE for row in rows)
        found["restart_wrong"] = sum(row.status != expected_status(row.request["number"]) for row in rows)
        found["restart_duplicates"] = sum(count > 1 for count in _finished(store).values())
    return found


def stopped(mother: Mother, where: str, *, times: int) -> Counter[str]:
    """Stop workers for longer than their leases."""
    found: Counter[str] = Counter()
    with open_store(where) as store:
        run_id = store.start_run("faults", task="sdpa").id
        for number in range(times):
            row = queue(store, run_id, number)
            sleeper = mother.start("work", where, f"sleeper {number}", 2.0, 0)
            _wait(lambda row=row: store.evaluation(row.id).state is not State.QUEUED)
            os.kill(sleeper, signal.SIGSTOP)
            if store.evaluation(row.id).state is State.LEASED:
                found["stopped"] += 1
                other = mother.start("work", where, f"other {number}", 30.0, 0)
                _wait(lambda row=row: store.evaluation(row.id).state is State.DONE)
                mother.kill(other)
            before = store.evaluation(row.id)
            os.kill(sleeper, signal.SIGCONT)
            if before.owner == f"other {number}":
                _wait(lambda number=number: _told(store, Happened.FENCED, f"sleeper {number}"))
                found["fenced"] += 1
            mother.kill(sleeper)
            found["fenced_wrong"] += store.evaluation(row.id) != before
            found["fenced_wrong"] += before.status != expected_status(number)
    return found


def full_file(folder: Path) -> Counter[str]:
    """Use a file on a disk of two megabytes."""
    with _mounted(folder, "2m") as mount:
        with open_store(mount / "weft.db") as store:
            store.start_run("faults", task="sdpa")
            told, message = _fill(store)
            found = Counter(unclear="full" not in message, told_lost=len(told - _numbers(store)))
        with sqlite3.connect(mount / "weft.db") as raw:
            found["corrupt"] += raw.execute("PRAGMA integrity_check").fetchone() != ("ok",)
        _mount("-o", "remount,size=20m", str(mount))
        with open_store(mount / "weft.db") as store:
            store.start_run("faults", task="sdpa")  # there is room again
            found["told_lost"] += len(told - _numbers(store))
    return found


def full_server(folder: Path) -> Counter[str]:
    """Fill the disk of a server: it may even crash, and is started again when there is space."""
    with _mounted(folder, "160m") as mount, contextlib.closing(PostgresServer(mount / "pg")) as server:
        where, ballast = server.new_database(), mount / "ballast"
        with open_store(where) as store:
            store._patience = 3.0
            store.start_run("faults", task="sdpa")
            with ballast.open("wb") as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            told, message = _fill(store)
            signs = ("disk is full", "check that the server runs", "the server stopped")
            found = Counter(unclear=not any(sign in message for sign in signs))
            ballast.unlink()
            with contextlib.suppress(RuntimeError):  # it may still run
                server.stop(crash=True)
            server.start()
            store._patience = 60.0
            store.start_run("faults", task="sdpa")
            found["told_lost"] += len(told - _numbers(store))
    return found


def read_only(folder: Path) -> Counter[str]:
    """Use a file on a disk that is mounted read-only meanwhile."""
    found: Counter[str] = Counter()
    with _mounted(folder, "8m") as mount:
        with open_store(mount / "weft.db") as store:
            store.start_run("faults", task="sdpa")
        before = (mount / "weft.db").read_bytes()
        _mount("-o", "remount,ro", str(mount))
        try:
            with open_store(mount / "weft.db") as store:
                store.start_run("faults", task="sdpa")
            found["unclear"] += 1
        except StoreError as error:
            found["unclear"] += "--store or WEFT_STORE" not in str(error)
        found["corrupt"] += (mount / "weft.db").read_bytes() != before
    return found


def run(*, evaluations: int = 150, restarts: int = 6, stops: int = 10) -> dict[str, Any]:
    """Everything."""
    start = time.monotonic()
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, PostgresServer() as server:
        folder = Path(name)
        folder.chmod(0o711)  # the server's user passes through it
        with Mother(folder) as mother:
            _say("restarts")
            found += restarted(mother, server, evaluations=evaluations, restarts=restarts)
            _say("stops")
            for where, share in ((str(folder / "stopped.db"), stops - stops // 2), (server.new_database(), stops // 2)):
                found.update(stopped(mother, where, times=share))
            _say("disks")
            if os.geteuid() == 0:
                for trial in (full_file, full_server, read_only):
                    found.update(trial(folder / trial.__name__))
                    found["disk_trials"] += 1
            found["strays"] += mother.close()
    return {**_NOTHING_WRONG, **found, "seconds": round(time.monotonic() - start, 1)}


_NOTHING_WRONG = dict.fromkeys(
    "restart_lost restart_wrong restart_duplicates restart_workers_failed fenced fenced_wrong unclear corrupt "
    "told_lost disk_trials strays".split(),
    0,
)


def quick() -> dict[str, Any]:
    """Run the small version of CI."""
    return run(evaluations=8, restarts=1, stops=2)


def _fill(store: Store) -> tuple[set[int], str]:
    """Write until the store refuses; return the acknowledged numbers and the message."""
    told: set[int] = set()
    try:
        for number in range(100_000):
            candidate = store.add_candidate(1, digest=f"d{number}", source=os.urandom(2000).hex())
            row = store.enqueue(1, candidate.id, f"k{number}", request={"number": number})
            lease = store.lease("w", evaluation_id=row.id)
            assert lease is not None
            store.finish(lease, "PASSED", {"text": "x" * 2000})
            told.add(number)
    except StoreError as error:
        return told, str(error)
    raise SystemExit("the disk was never full")


def _numbers(store: Store) -> set[int]:
    return {row.request["number"] for row in store.evaluations(1, state=State.DONE)}


def _done(store: Store) -> int:
    return store.census().depth[State.DONE]


def _finished(store: Store) -> Counter[int | None]:
    return Counter(event.evaluation_id for event in store.last_events(100_000) if event.kind is Happened.FINISHED)


def _told(store: Store, kind: Happened, owner: str) -> bool:
    return any((event.kind, event.owner) == (kind, owner) for event in store.last_events(100))


def _wait(until: Any) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not until():
        if time.monotonic() > end:
            raise SystemExit("the fault benchmark makes no progress")
        time.sleep(0.02)


@contextlib.contextmanager
def _mounted(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    folder.chmod(0o755)
    _mount("-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="One restart, two stops.")
    given = parser.parse_args()
    print(json.dumps(quick() if given.quick else run()))


if __name__ == "__main__":
    main()
