"""Every way in which the lanes of an access are moved gives what lane after lane gives, on two kinds of CPU."""

import platform

import numpy as np
import pytest

from tests.vm.runtime_device import ALL_LANES, Array, Device, Report, aligned
from weft.vm.context import MISALIGNED, OUT_OF_BOUNDS
from weft.vm.memory import GLOBAL_BASE, SHARED_START
from weft.vm.runtime.access import build_access
from weft.vm.runtime.access_name import parse_name
from weft.vm.runtime.watch import Instrumentation

LANE = np.arange(32)
NAMES = [
    f"{op}.{space}.b{bits}.v{count}"
    for op in ("ld", "st")
    for space in ("shared", "global")
    for bits, count in ((8, 1), (16, 1), (16, 4), (32, 1), (32, 2), (32, 4), (64, 1), (64, 2))
]
PLAIN = Instrumentation()
SITE = 5
_CPUS = ("host", "x86-64-v3") if platform.machine() in ("x86_64", "AMD64") else ("host",)


@pytest.fixture(scope="module", params=_CPUS)
def device(request: pytest.FixtureRequest) -> Device:
    return Device([function for name in NAMES for function in build_access(name, PLAIN)], request.param)


def patterns(size: int, rng: np.random.Generator) -> list[tuple[str, Array, int]]:
    """Return (name, byte offsets, mask) for elements of `size` bytes."""
    row = LANE * size
    per_piece = max(64 // size, 1)
    padded = row + LANE // per_piece * 16
    few = int(rng.integers(1, 1 << 32))
    lane = int(rng.integers(0, 32))
    moved = padded.copy()
    moved[lane] += 16 * size
    return [
        ("a run", row + 64, ALL_LANES),
        ("a run, some lanes", row + 64, few),
        ("rows with padding", padded + 32, ALL_LANES),
        ("rows with padding, some lanes", padded + 32, few),
        ("rows in another order", (padded + 32)[::-1].reshape(-1, min(per_piece, 32))[:, ::-1].reshape(-1), ALL_LANES),
        ("rows at one place", LANE % per_piece * size, ALL_LANES),
        ("rows but for one lane", moved, ALL_LANES),
        ("one lane", rng.integers(0, 100, 32) * size, 1 << lane),
        ("one place", np.full(32, 48), ALL_LANES),
        ("anywhere", rng.integers(0, 200, 32) * size, ALL_LANES),
        ("anywhere, some lanes", rng.integers(0, 200, 32) * size, few),
        ("no lane", row, 0),
        ("one lane outside", np.where(lane == LANE, 1 << 20, row), ALL_LANES),
        ("rows, the last outside", padded + np.where(LANE >= 31, 1 << 20, 0), ALL_LANES),
        ("only one lane, outside", np.full(32, 1 << 20), 1 << lane),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_moves(name: str, device: Device) -> None:
    rng = np.random.default_rng(3)
    shape = parse_name(name)
    memory = device.shared[SHARED_START:] if shape.space == "shared" else device.memory
    base = SHARED_START if shape.space == "shared" else GLOBAL_BASE
    for what, offsets, mask in patterns(shape.bytes, rng):
        device.fill(rng)
        on = mask >> LANE & 1 == 1
        inside = offsets + shape.bytes <= memory.size
        data = rng.integers(0, 256, (shape.vector, 32, shape.bits // 8)).astype(np.uint8)
        expected_memory = memory.copy()
        expected = np.zeros_like(data)
        for lane in np.flatnonzero(on & inside):
            for member in range(shape.vector):
                at = offsets[lane] + member * shape.bits // 8
                place = expected_memory[at : at + shape.bits // 8]
                if shape.store:
                    place[:] = data[member, lane]
                else:
                    expected[member, lane] = place
        kind = np.uint32 if shape.space == "shared" else np.uint64
        addresses = aligned(32 * np.dtype(kind).itemsize).view(kind)
        addresses[:] = offsets + base
        room = aligned(data.nbytes)
        room[:] = data.reshape(-1) if shape.store else 0
        args = [room] if shape.store or shape.vector > 1 else []
        loaded = device.call(name, addresses, mask, SITE, *args)
        got = room if shape.vector > 1 else loaded.view(np.uint8)
        if not shape.store:
            np.testing.assert_array_equal(got, expected.reshape(-1), what)
        np.testing.assert_array_equal(memory, expected_memory, what)
        lost = [int(lane) for lane in np.flatnonzero(on & ~inside)]
        wanted = [Report(OUT_OF_BOUNDS, SITE, sum(1 << lane for lane in lost), int(addresses[lost[0]]))] if lost else []
        assert device.take_reports() == wanted, what


@pytest.mark.parametrize("name", ["ld.shared.b32.v1", "st.shared.b32.v4", "st.global.b64.v1", "ld.global.b32.v2"])
def test_one_misaligned_lane_is_reported_and_moves_nothing(name: str, device: Device) -> None:
    shape = parse_name(name)
    memory = device.shared[SHARED_START:] if shape.space == "shared" else device.memory
    base = SHARED_START if shape.space == "shared" else GLOBAL_BASE
    device.fill(np.random.default_rng(1))
    before = memory.copy()
    addresses = aligned(32 * (4 if shape.space == "shared" else 8)).view("u4" if shape.space == "shared" else "u8")
    addresses[:] = base + LANE * shape.bytes + 2
    room = aligned(32 * shape.bytes)
    args = [room] if shape.store or shape.vector > 1 else []
    loaded = device.call(name, addresses, 1 << 9, SITE, *args)
    assert device.take_reports() == [Report(MISALIGNED, SITE, 1 << 9, int(addresses[9]))]
    assert not loaded.any() and not room.any()
    np.testing.assert_array_equal(memory, before)
