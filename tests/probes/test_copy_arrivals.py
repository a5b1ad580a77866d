"""Copies that arrive at mbarriers: a right ring has no finding, and each mistake has one.

A thread's copies are complete for a thread that finds their phase complete, and for no other; they do not publish
what else the thread did (PTX ISA, mbarrier.test_wait).
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.records import Binary, Finding
from weft.probes import RaceCheck

FOLDER = Path(__file__).parent / "cuda"
RINGS, HEADERS = ("ring<true>", "ring<false>"), ("primitives", "libcu")
KERNELS = (*RINGS, *HEADERS, "drained")
EITHER = {"R103", "R104"}
"""Nothing orders a read and a copy: which of the two comes first is arbitrary."""
SCHEDULES = (0, 1, 2)
ROWS, FEW = 7, 3


@cache
def binary(file: str, wrong: str) -> Binary:
    entries = HEADERS if "headers" in file else (*RINGS, "drained", "overwritten")
    define = f"#define {wrong}\n" if wrong else ""
    return weft.compile_cuda(define + (FOLDER / file).read_text(), name=file, entries=entries)


def launched(kernel: str, wrong: str, schedule: int, rows: int) -> tuple[tuple[Finding, ...], np.ndarray]:
    x, y = np.arange(rows * 32, dtype=np.float32), np.zeros(64, np.float32)
    code = binary("copy_rings_headers.cu" if kernel in HEADERS else "copy_rings.cu", wrong)
    gpu = weft.VirtualGPU(threads=1, schedule=schedule)
    run = gpu.launch(code, kernel, 1, 96, [x, y, np.int32(rows)], watch=RaceCheck(), max_steps=1 << 20)
    return run.findings, y


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_right_ring_has_no_finding(kernel: str, schedule: int) -> None:
    found, y = launched(kernel, "", schedule, ROWS)
    assert found == ()
    sums = np.arange(ROWS * 32).reshape(ROWS, 32).sum(axis=0)
    expected = np.tile(sums[::-1], 2)
    np.testing.assert_array_equal(y, expected + np.tile(sums, 2) if kernel == "drained" else expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_source_may_be_written_once_the_copy_is_known_to_be_complete(schedule: int) -> None:
    found, y = launched("overwritten", "", schedule, 1)
    assert found == ()
    np.testing.assert_array_equal(y[:32], np.arange(32))
    found, _ = launched("overwritten", "NO_WAIT", schedule, 1)
    assert {"R102", "R103", "R105"} & {finding.code for finding in found if finding.level == "error"}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "kernel, wrong, codes",
    [
        *((kernel, "NO_ARRIVAL", {"R104"}) for kernel in (*RINGS, *HEADERS)),
        *((kernel, "WRONG_PARITY", EITHER) for kernel in RINGS),
        *((kernel, "NO_WAIT", EITHER) for kernel in (*RINGS, *HEADERS)),
        *((kernel, "NO_EMPTY", EITHER) for kernel in (*RINGS, *HEADERS)),
        ("ring<true>", "OWN_READ", {"R104"}),
        ("ring<true>", "PLAIN_STORE", {"R102"}),
        ("drained", "NO_WAIT", {"R104"}),
    ],
)
def test_a_wrong_ring_is_found(kernel: str, wrong: str, codes: set[str], schedule: int) -> None:
    found, _ = launched(kernel, wrong, schedule, FEW)
    assert codes & {finding.code for finding in found if finding.level == "error"}
    # No thread misuses an mbarrier: no race is about its word.
    assert not [each for each in found if each.code[0] == "R" and each.name.endswith(("full", "empty", "bar"))]
