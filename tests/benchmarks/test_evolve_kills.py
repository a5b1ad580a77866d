"""A search whose driver is killed a few times ends like an undisturbed one."""

from pathlib import Path

import pytest

from benchmarks import evolve_kills


@pytest.mark.sweep  # a minute; test_faults.py kills drivers whose candidates are quick to judge
def test_killed_drivers_lose_nothing(tmp_path: Path) -> None:
    found = evolve_kills.torture(tmp_path, kills=4, budget=5, seed=3)
    assert found["kills"] == 4
    assert (found["lost"], found["changed"], found["doubled"], found["strays"]) == (0, 0, 0, 0)
    assert found["evaluations"] == 5
    assert found["same_lineage"]
