"""The output of `weft fleet` for a store with a known history."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from weft.cli.fleet import followed
from weft.cli.main import main
from weft.fleet.metrics import exposition
from weft.fleet.status import fleet_status, status_record
from weft.store.errors import Fenced
from weft.store.records import Lease
from weft.store.store import Store, open_store

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
ODD = 'b"1\\\n'
"""A name that must be escaped in every format."""


class Clock:
    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def leased(store: Store, owner: str) -> Lease:
    lease = store.lease(owner, seconds=60)
    assert lease is not None
    return lease


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "weft.db"


@pytest.fixture
def store(place: Path) -> Iterator[Store]:
    """Three workers: one works, one died 100 s ago with a lease, one stopped. Six evaluations, one of them cached."""
    clock = Clock()
    with open_store(place, clock=clock) as opened:
        opened.start_run("evolve", task="sdpa")
        opened.start_run("evolve", task="fp8_sdpa")
        for run, digest in ((1, "a"), (1, "b"), (2, "a"), (2, "b")):
            opened.add_candidate(run, digest=digest, source=digest)
        for name in ("a.1", ODD, "c.1"):
            opened.register_worker(name, host=name[0], pid=7, kind="gpu" if name == "c.1" else "vgpu")
        opened.enqueue(1, 1, "k1")
        opened.enqueue(1, 2, "k2")
        opened.finish(leased(opened, "a.1"), "PASSED", {})
        leased(opened, ODD)
        opened.stop_worker("c.1")
        clock.forward(100)
        opened.enqueue(2, 3, "k1")
        opened.enqueue(2, 3, "k3", priority=1)
        opened.enqueue(2, 4, "k4", needs="gpu")
        opened.enqueue(2, 4, "k5")
        opened.finish(leased(opened, "a.1"), "UNSAFE", {})
        opened.worker_heartbeat("a.1", "idle")
        yield opened


def test_the_status_counts_and_distinguishes_running_from_dead_workers(store: Store) -> None:
    found = status_record(fleet_status(store, window_seconds=300))
    assert found["evaluations"] == {"queued": 2, "leased": 1, "done": 3, "abandoned": 0}
    assert found["waiting"] == {"gpu": 1, "vgpu": 1}
    assert found["statuses"] == {"PASSED": 2, "UNSAFE": 1}
    assert found["cached"] == 1
    assert found["per_minute"] == pytest.approx(2 / 5)
    assert (found["oldest_lease_seconds"], found["overdue_leases"]) == (100.0, 1)
    workers = {each["name"]: each for each in found["workers"]}  # type: ignore[attr-defined]
    assert {name: each["life"] for name, each in workers.items()} == {"a.1": "running", ODD: "silent", "c.1": "stopped"}
    assert workers["a.1"]["per_minute"] == pytest.approx(2 / 5)
    assert workers[ODD]["silent_seconds"] == 100.0
    assert [(each["run"], each["queued"], each["leased"], each["done"]) for each in found["runs"]] == [  # type: ignore[attr-defined]
        (1, 0, 1, 1),
        (2, 2, 0, 2),
    ]
    assert status_record(fleet_status(store, window_seconds=60))["per_minute"] == pytest.approx(1.0)


def test_prometheus_reads_the_same_numbers(store: Store) -> None:
    families = list(text_string_to_metric_families(exposition(fleet_status(store))))
    assert {family.type for family in families} == {"gauge", "counter"}
    assert all(family.documentation for family in families)
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }
    expected = {
        ("weft_evaluations", ("state", "queued")): 2,
        ("weft_evaluations", ("state", "leased")): 1,
        ("weft_evaluations", ("state", "done")): 3,
        ("weft_evaluations", ("state", "abandoned")): 0,
        ("weft_evaluations_waiting", ("needs", "gpu")): 1,
        ("weft_evaluations_waiting", ("needs", "vgpu")): 1,
        ("weft_verdicts_total", ("status", "PASSED")): 2,
        ("weft_verdicts_total", ("status", "UNSAFE")): 1,
        ("weft_verdicts_cached_total",): 1,
        ("weft_verdicts_per_minute",): 0.4,
        ("weft_leases_overdue",): 1,
        ("weft_oldest_lease_seconds",): 100,
        ("weft_workers", ("kind", "vgpu"), ("life", "running")): 1,
        ("weft_workers", ("kind", "vgpu"), ("life", "silent")): 1,
        ("weft_workers", ("kind", "gpu"), ("life", "stopped")): 1,
        ("weft_worker_silent_seconds", ("worker", "a.1")): 0,
        ("weft_worker_silent_seconds", ("worker", ODD)): 100,
        ("weft_worker_verdicts_per_minute", ("worker", "a.1")): 0.4,
        ("weft_worker_verdicts_per_minute", ("worker", ODD)): 0,
        ("weft_runs", ("state", "running")): 2,
    }
    assert samples == expected


def test_workers_that_died_long_ago_are_not_shown_for_ever(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with open_store(place, clock=clock) as store:
        store.register_worker("old", host="h", pid=1)
        clock.forward(3601)
        store.register_worker("new", host="h", pid=2)
        status = fleet_status(store)
    assert [worker.life for worker in status.workers] == ["running", "gone"]
    assert "old" not in exposition(status)
    with open_store(place) as store:
        store.register_worker("now", host="h", pid=3)
    assert main(["fleet", "status", "--store", str(place)]) == 0
    shown = capsys.readouterr().out
    assert "now\t" in shown and "old\t" not in shown and "2 more workers were silent for an hour" in shown
    assert main(["fleet", "status", "--store", str(place), "--all"]) == 0
    assert "old\t" in capsys.readouterr().out


def test_large_counts_keep_their_last_digit(place: Path) -> None:
    with open_store(place) as store:
        status = fleet_status(store)
    object.__setattr__(status.census, "cached", 12_345_678)
    assert "weft_verdicts_cached_total 12345678\n" in exposition(status)


def test_the_log_is_followed_without_a_gap_or_a_repetition(store: Store) -> None:
    late = iter(("a.1", "d.1", "e.1"))

    def wait(seconds: float) -> bool:
        name = next(late, None)
        if name is not None:
            store.register_worker(name, host="h", pid=9)
            store.stop_worker(name)
        return name is not None

    seen = [event.id for event in followed(store, 2, wait=wait)]
    everything = [event.id for event in store.events()]
    assert seen == everything[-8:]
    assert len(set(seen)) == 8


def test_the_commands(store: Store, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead = Lease(2, 1, 2, "k2", {}, ODD, 1, START)
    store.give_back(dead, "found dead")
    with pytest.raises(Fenced):
        store.heartbeat(dead)
    where = ["--store", str(place)]
    assert main(["fleet", "status", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["evaluations"]["queued"] == 3
    assert main(["fleet", "status", *where, "--metrics"]) == 0
    families = {family.name for family in text_string_to_metric_families(capsys.readouterr().out)}
    assert {"weft_evaluations", "weft_verdicts", "weft_workers"} <= families
    assert main(["fleet", "status", *where]) == 0
    # By the real clock all of this was long ago.
    assert capsys.readouterr().out.splitlines()[-1] == f"0 workers · 0.0 verdicts a minute · {place}"
    assert main(["fleet", "logs", *where, "--lines", "2"]) == 0
    assert [line.rpartition("(")[2] for line in capsys.readouterr().out.splitlines()][-1] == "token 1)"
    assert main(["fleet", "logs", *where, "--json"]) == 0
    kinds = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == [
        *["worker_started"] * 3,
        "leased",
        "finished",
        "leased",
        "worker_stopped",
        "leased",
        "finished",
        "given_back",
        "fenced",
    ]
    assert main(["fleet", "status", *where, "--json", "--metrics"]) == 2
