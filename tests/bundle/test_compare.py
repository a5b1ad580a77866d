"""The differences between a bundle's answer and this machine's, and whether the verdict differs."""

from dataclasses import replace

import pytest

from tests.bundle.test_file import ANSWERED, FAILED
from weft.bundle.compare import compare
from weft.bundle.records import Answer
from weft.core.status import Status

WORKLOAD = "small f16 none unit_normal seed 0"


def test_the_same_is_the_same() -> None:
    found = compare(ANSWERED, ANSWERED, {"weft": "1"}, {"weft": "1"})
    assert found.same and found.differences == () and found.bits == (1, 1)


@pytest.mark.parametrize(
    ("here", "what", "same"),
    [
        (replace(ANSWERED, ptx=""), "PTX", True),
        (replace(ANSWERED, outputs={WORKLOAD: {"o": "02" * 32}}), f"bits of o, {WORKLOAD}", True),
        (replace(ANSWERED, outputs={WORKLOAD: {}}), f"bits of o, {WORKLOAD}", True),
        (replace(ANSWERED, outputs={}), f"outputs of {WORKLOAD}", True),
        (replace(ANSWERED, estimate=None), "EST in cycles", True),
        (replace(ANSWERED, message="tight: 1.17 beyond"), "message", True),
        (replace(ANSWERED, status=Status.PASSED), "verdict", False),
        (replace(ANSWERED, failure=replace(FAILED, debug_build=True)), "verdict", False),
        (replace(ANSWERED, judged=2), "verdict", False),
        (replace(ANSWERED, planned=3), "verdict", False),
    ],
)
def test_one_difference(here: Answer, what: str, same: bool) -> None:
    found = compare(ANSWERED, here, {}, {})
    assert [each.what for each in found.differences] == [what]
    assert found.same is same


def test_versions_on_either_side() -> None:
    found = compare(ANSWERED, ANSWERED, {"weft": "1", "numpy": "2"}, {"weft": "2", "cpu": "x"})
    rows = [(each.what, each.there, each.here) for each in found.differences]
    assert rows == [("weft", "1", "2"), ("numpy", "2", "unknown"), ("cpu", "unknown", "x")]
    assert found.same
