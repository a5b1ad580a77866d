"""A few of the faults of benchmarks/faults.py: drivers and workers killed, a server restarted, disks full."""

import os

from benchmarks import fault_driver, fault_store, fault_workers, faults


def test_killed_drivers_lose_nothing_and_find_the_same() -> None:
    found = fault_driver.quick()
    assert found["driver_kills"] == 3
    assert (found["lost"], found["changed"], found["duplicates"]) == (0, 0, 0)
    assert (found["other_lineages"], found["strays"]) == (0, 0)


def test_what_killed_workers_leave_is_judged_right() -> None:
    found = fault_workers.quick()
    assert found["worker_kills"] == 4
    assert (found["lost"], found["wrong"], found["duplicates"], found["strays"]) == (0, 0, 0, 0)
    assert found["leases"] >= found["evaluations"] > 0


def test_a_store_that_stops_loses_no_acknowledged_row() -> None:
    found = fault_store.quick()
    assert (found["restarts"], found["restarts_with_work_left"]) == (1, 1)
    assert found["restart_lost"] == found["restart_wrong"] == found["restart_duplicates"] == 0
    assert found["restart_workers_failed"] == 0
    assert found["fenced"] == found["stopped"] > 0
    assert found["fenced_wrong"] == 0
    assert found["disk_trials"] == (3 if os.geteuid() == 0 else 0)  # only root may mount
    assert (found["unclear"], found["corrupt"], found["told_lost"], found["strays"]) == (0, 0, 0, 0)


def test_the_summary_hides_no_part() -> None:
    driver = {"driver_kills": 200, "lost": 1, "changed": 2, "duplicates": 4, "other_lineages": 8, "strays": 16}
    workers = {"worker_kills": 1000, "lost": 32, "duplicates": 64, "wrong": 128, "strays": 256}
    store = {
        "restart_lost": 512,
        "told_lost": 1024,
        "restart_duplicates": 2048,
        "restart_wrong": 4096,
        "fenced_wrong": 8192,
        "unclear": 16384,
        "corrupt": 32768,
        "strays": 65536,
    }
    hostile = {"hostile_runs": 500, "hostile_wrong_status": 3, "files_outside": 5, "honest_rejected": 7, "strays": 0}
    found = faults.summary({"driver": driver, "workers": workers, "store": store, "hostile": hostile})
    assert found["lost"] == 1 + 2 + 32 + 512 + 1024
    assert found["duplicates"] == 4 + 64 + 2048
    assert found["wrong"] == 8 + 128 + 4096 + 8192 + 16384 + 32768
    assert found["strays"] == 16 + 256 + 65536
    assert [found[name] for name in ("driver_kills", "worker_kills", "hostile_runs")] == [200, 1000, 500]
    assert [found[name] for name in ("hostile_wrong_status", "files_outside", "honest_rejected")] == [3, 5, 7]
