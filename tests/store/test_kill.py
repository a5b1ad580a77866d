"""Writers that are killed while writing: no acknowledged row is lost, no row exists twice."""

import os
import random
import select
import signal
import sqlite3
import time

import pytest

from weft.store.records import State
from weft.store.store import open_store

KILLS = {"sqlite": 30, "postgresql": 10}


def write_until_killed(where: str, pipe: int) -> None:
    """Write candidate, evaluation, lease and result, all idempotent; send the number once all is committed."""
    with open_store(where) as store:
        store.reclaim("writer")
        done = {row.request["number"] for row in store.evaluations(1) if row.state is State.DONE}
        number = 0
        while True:
            if number not in done:
                candidate = store.add_candidate(1, digest=f"digest {number}", source=f"source {number}")
                row = store.enqueue(1, candidate.id, f"key {number}", request={"number": number})
                lease = store.lease("writer", evaluation_id=row.id)
                assert lease is not None
                store.finish(lease, "PASSED", {"number": number, "square": number**2})
                os.write(pipe, number.to_bytes(4, "little"))
            number += 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_kill_9_loses_no_acknowledged_row_and_doubles_none(where: str) -> None:
    moments, kills = random.Random(11), KILLS["postgresql" if "://" in where else "sqlite"]
    with open_store(where) as store:
        store.start_run("evolve", task="sdpa")
    written: list[int] = []
    for _ in range(kills):
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                write_until_killed(where, writable)
            finally:
                os._exit(1)
        os.close(writable)
        assert select.select([readable], [], [], 30)[0]
        time.sleep(moments.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        with os.fdopen(readable, "rb") as pipe:
            acknowledged = pipe.read()
        written += [int.from_bytes(acknowledged[at : at + 4], "little") for at in range(0, len(acknowledged), 4)]
    with open_store(where) as store:
        done = store.evaluations(1, state=State.DONE)
        found = {row.request["number"]: row.result for row in done}
        assert len(done) == len(found)
        assert len(written) == len(set(written)) >= kills
        for number in written:
            assert found[number] == {"number": number, "square": number**2}
            assert store.cached(f"key {number}") is not None
        # Only the work that was running when the last writer was killed may be left.
        assert len(store.candidates(1)) - len(done) <= 1
    if "://" not in where:
        with sqlite3.connect(where) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
