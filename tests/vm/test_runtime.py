"""Tiles, copies, atomics and lane exchange of the runtime compared with small NumPy models, on two kinds of CPU."""

import platform
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.vm.runtime_device import (
    ALL_LANES,
    GLOBAL_BYTES,
    SHARED_BYTES,
    SHARED_END,
    Array,
    Device,
    Report,
    aligned,
    mask_of,
)
from weft.core.errors import Unsupported
from weft.vm.context import COPY_QUEUE_FULL, MISALIGNED, OUT_OF_BOUNDS, WARP_GROUP
from weft.vm.ir import Builder, Value, vec
from weft.vm.memory import GLOBAL_BASE, SHARED_BASE, SHARED_START
from weft.vm.reference.fragments import wmma_fragment
from weft.vm.runtime.atomics import build_atomic
from weft.vm.runtime.copies import build_copies
from weft.vm.runtime.lanes import build_lanes
from weft.vm.runtime.mbarrier import build_mbarrier
from weft.vm.runtime.tiles import build_tiles
from weft.vm.runtime.watch import Access, Instrumentation

LANE = np.arange(32)
SITE = 7
PLAIN = Instrumentation()
Build = Callable[[str, Instrumentation], list[Builder]]
_CPUS = ("host", "x86-64-v3") if platform.machine() in ("x86_64", "AMD64") else ("host",)


@pytest.fixture(scope="module", params=_CPUS)
def cpu(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def device(build: Build, names: list[str], cpu: str) -> Device:
    return Device([function for name in names for function in build(name, PLAIN)], cpu)


def some_mask(rng: np.random.Generator, trial: int) -> int:
    return ALL_LANES if trial % 2 == 0 else int(rng.integers(0, 1 << 32))


def is_on(mask: int) -> Array:
    return (mask >> LANE & 1).astype(bool)


# -- ldmatrix and movmatrix ---------------------------------------------------------------------------------


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(cpu: str, count: int, trans: str) -> None:
    name = f"ldmatrix.x{count}{trans}"
    d, rng, out = device(build_tiles, [name], cpu), np.random.default_rng(count), aligned(512)
    d.fill(rng)
    for trial in range(6):
        address = (SHARED_START + 16 * rng.integers(0, SHARED_BYTES // 16, 32)).astype(np.uint32)
        mask = some_mask(rng, trial)
        if trial >= 2:  # past the end, before the start, misaligned
            address[[1, 3, 5]] = SHARED_END - 8, 16, SHARED_START + 34
        on = is_on(mask) & (8 * count > LANE)
        outside = on & ((address < SHARED_START) | (address > SHARED_END - 16))
        crooked = on & ~outside & (address % 16 != 0)
        rows = np.zeros((32, 16), np.uint8)
        for lane in np.flatnonzero(on & ~outside & ~crooked):
            rows[lane] = d.shared[address[lane] : address[lane] + 16]
        expected = rows[: 8 * count].view(np.uint16).reshape(count, 8, 8)
        if trans:
            expected = expected.transpose(0, 2, 1)
        out[:] = 0xEE
        d.call(name, address, mask, SITE, out)
        np.testing.assert_array_equal(out[: 128 * count].view(np.uint16).reshape(count, 8, 8), expected)
        assert (out[128 * count :] == 0xEE).all()
        assert d.take_reports() == [
            Report(code, SITE, mask_of(np.flatnonzero(lanes)), int(address[lanes][0]))
            for code, lanes in ((OUT_OF_BOUNDS, outside), (MISALIGNED, crooked))
            if lanes.any()
        ]


def test_movmatrix_transposes(cpu: str) -> None:
    d = device(build_tiles, ["movmatrix"], cpu)
    a = np.random.default_rng(0).integers(0, 1 << 32, 32, dtype=np.uint32)
    moved = d.call("movmatrix", a, ALL_LANES, SITE)
    np.testing.assert_array_equal(moved.view(np.uint16).reshape(8, 8), a.view(np.uint16).reshape(8, 8).T)


# -- wmma ---------------------------------------------------------------------------------------------------

_WMMA_INPUTS = {"m16n16k16": "f16 bf16", "m32n8k16": "f16 u8", "m8n32k16": "bf16 s8", "m16n16k8": "tf32"}
_WMMA_SUMS = (
    "m16n16k16.shared.f16", "m16n16k16.global.f32", "m32n8k16.shared.s32", "m8n32k16.generic.f16",
    "m8n32k16.shared.f32", "m16n16k8.global.f32",
)  # fmt: skip
_WMMA = [
    *(f"load.{x}.{layout}.{shape}.{space}.{kind}"
      for shape, kinds in _WMMA_INPUTS.items()
      for kind, space in zip(kinds.split(), ("shared", "generic"), strict=False)
      for layout in ("row", "col") for x in "ab"),
    *(f"{verb}.{layout}.{rest}"
      for rest in _WMMA_SUMS for layout in ("row", "col") for verb in ("load.c", "store.d")),
]  # fmt: skip


@pytest.fixture(scope="module")
def wmma(cpu: str) -> Device:
    return device(build_tiles, ["wmma." + name for name in _WMMA], cpu)


@pytest.mark.parametrize("name", _WMMA)
def test_wmma(wmma: Device, name: str) -> None:
    d, rng, registers = wmma, np.random.default_rng(1), aligned(1024)
    d.fill(rng)
    verb, operand, layout, shape, space, kind = name.split(".")
    m, n, k = (int(number) for number in re.findall(r"\d+", shape))
    fragment = wmma_fragment(m, n, k, operand="c" if operand == "d" else operand, element=kind)
    dtype, item = np.dtype(f"uint{fragment.bits}"), fragment.bits // 8
    lines, length = fragment.shape if layout == "row" else fragment.shape[::-1]
    stride, start = length + 48 // item, SHARED_START + 144
    memory = d.memory if space == "global" else d.shared
    base = {"shared": 0, "global": GLOBAL_BASE, "generic": SHARED_BASE}[space]
    at = start + np.arange(lines)[:, None] * stride * item + np.arange(length * item)
    used = 128 * fragment.registers
    size = GLOBAL_BYTES if space == "global" else SHARED_END
    too_far = size - ((lines - 1) * stride + length) * item // 16 * 16 + 16
    leaves = min(base + too_far + (lines - 1) * stride * item, base + size)  # the last line, or the array's end
    if verb == "load":
        d.call("wmma." + name, base + start, stride, ALL_LANES, SITE, registers)
        matrix = memory[at].view(dtype)
        expected = fragment.pack(matrix if layout == "row" else matrix.T)
        np.testing.assert_array_equal(registers[:used].view(np.uint32).reshape(-1, 32), expected)
        d.call("wmma." + name, base + too_far, stride, ALL_LANES, SITE, registers)
        assert not registers[:used].any()
    else:
        matrix = rng.integers(0, 256, (fragment.shape[0], fragment.shape[1] * item)).astype(np.uint8).view(dtype)
        registers[:used] = fragment.pack(matrix).view(np.uint8).ravel()
        expected = memory.copy()
        expected[at] = np.ascontiguousarray(matrix if layout == "row" else matrix.T).view(np.uint8)
        d.call("wmma." + name, base + start, stride, ALL_LANES, SITE, registers)
        np.testing.assert_array_equal(memory, expected)
        d.call("wmma." + name, base + too_far, stride, ALL_LANES, SITE, registers)
        np.testing.assert_array_equal(memory, expected)
    assert d.take_reports() == [Report(OUT_OF_BOUNDS, SITE, ALL_LANES, leaves)]
    d.call("wmma." + name, base + start + item, stride, ALL_LANES, SITE, registers)
    assert d.take_reports() == [Report(MISALIGNED, SITE, ALL_LANES, base + start + item)]


class Recorder(Instrumentation):
    """Records the events of the builder."""

    key = "recorder"

    def __init__(self) -> None:
        self.events: list[Access] = []
        self.rows: list[tuple[str, int, int]] = []

    def access(self, b: Builder, event: Access) -> None:
        self.events.append(event)

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int, used: int = 16) -> None:
        self.rows.append((offsets.ty, rows, used))


def test_watchers_receive_tiles_copies_and_atomics() -> None:
    watch = Recorder()
    build_tiles("ldmatrix.x4", watch)
    assert watch.rows == [(vec("i32"), 32, 16)] * 2  # all rows in one array; any others
    build_tiles("wmma.load.a.row.m16n16k16.shared.f16", watch)
    build_copies("cp.async.16", watch)
    build_copies("cp.perform", watch)
    build_atomic("atom.generic.add.u32", watch)
    seen = [(event.store, event.space, event.bytes) for event in watch.events]
    assert seen == [
        *[(False, "shared", 4)] * 4,
        (False, "global", 16),
        (True, "shared", 4),
        (True, "shared", 8),
        (True, "shared", 16),
        (False, "generic", 4),
    ]


@pytest.mark.parametrize("build, name", [
    (build_tiles, "wmma.load.a.row.m16n16k16.shared.f32"),
    (build_tiles, "wmma.load.c.row.m16n16k8.shared.f16"),
    (build_tiles, "wmma.load.a.row.m8n8k4.shared.f32"),
    (build_copies, "cp.async.12"),
    (build_atomic, "atom.global.add.b32"),
    (build_atomic, "atom.local.add.u32"),
    (build_lanes, "redux.add.b32"),
])  # fmt: skip
def test_unknown_names_are_unsupported(build: Build, name: str) -> None:
    with pytest.raises(Unsupported):
        build(name, PLAIN)


# -- cp.async -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copier(cpu: str) -> Device:
    names = ["async.4", "async.8", "async.16", "commit", "wait", "perform", "forget"]
    copies = [function for name in names for function in build_copies(f"cp.{name}", PLAIN)]
    return Device([*copies, *build_mbarrier("mbarrier.land", PLAIN)], cpu)


def _issue(d: Device, rng: np.random.Generator, mask: int, group: Array) -> tuple[list[Any], list[Report]]:
    """Return a random cp.async: the copies it should queue and the reports it should make."""
    size = int(rng.choice([4, 8, 16]))
    dst = (SHARED_START + size * rng.integers(0, SHARED_BYTES // size, 32)).astype(np.uint32)
    src = (GLOBAL_BASE + size * rng.integers(0, GLOBAL_BYTES // size, 32)).astype(np.uint64)
    taken = (np.full(32, size), rng.choice([0, size], 32), rng.integers(0, size + 3, 32))[rng.integers(3)]
    if rng.integers(3) == 0:
        dst[[1, 4]] = SHARED_END, SHARED_START + 1
        src[[2, 3, 5]] = GLOBAL_BASE + GLOBAL_BYTES, 5, GLOBAL_BASE + 2
    d.call(f"cp.async.{size}", dst, src, taken.astype(np.uint32), mask, SITE)
    copies: list[Any] = []
    bad: dict[tuple[int, str], list[int]] = {}
    for lane in np.flatnonzero(is_on(mask)):
        to, at, count = int(dst[lane]), int(src[lane]) - GLOBAL_BASE, min(int(taken[lane]), size)
        to_inside, at_inside = (
            SHARED_START <= to <= SHARED_END - size,
            count == 0 or 0 <= at <= GLOBAL_BYTES - count,
        )
        wrong = {
            (OUT_OF_BOUNDS, "dst"): not to_inside,
            (OUT_OF_BOUNDS, "src"): not at_inside,
            (MISALIGNED, "dst"): to_inside and at_inside and to % size != 0,
            (MISALIGNED, "src"): to_inside and at_inside and count > 0 and at % size != 0,
        }
        for key in (key for key, holds in wrong.items() if holds):
            bad.setdefault(key, []).append(int(lane))
        if not any(wrong.values()):
            copies.append((int(lane), int(group[lane]), to, at, count, size))
    first: dict[str, Array] = {"dst": dst + np.uint64(SHARED_BASE), "src": src}  # both generic
    reports = [
        Report(code, SITE, mask_of(lanes), int(first[which][lanes[0]])) for (code, which), lanes in sorted(bad.items())
    ]
    return copies, reports


@pytest.mark.parametrize("seed", range(4))
def test_copies_become_visible_at_their_wait(copier: Device, seed: int) -> None:
    d, rng = copier, np.random.default_rng(seed)
    d.fill(rng)
    d.warp[WARP_GROUP.at : WARP_GROUP.at + 128] = 0
    committed, expected = np.zeros(32, int), d.shared.copy()
    queue: list[Any] = []
    for step in range(60):
        mask = some_mask(rng, int(rng.integers(2)))
        match rng.integers(10):
            case 0 | 1:
                d.call("cp.commit", mask)
                committed += is_on(mask)
            case 2 | 3:
                d.memory[:] = rng.integers(0, 256, GLOBAL_BYTES)  # the source is read at the wait
                pending = int(rng.integers(-1, 3)) if step < 50 else -1
                d.call("cp.wait", pending & 0xFFFFFFFF, mask, SITE)
                rest = []
                for lane, group, to, at, count, size in queue:
                    if mask >> lane & 1 and (pending == -1 or group < committed[lane] - pending):
                        expected[to : to + size] = 0
                        expected[to : to + count] = d.memory[at : at + count]
                    else:
                        rest.append((lane, group, to, at, count, size))
                queue = rest
                assert (d.queued == 0) == (not queue)
            case _:
                copies, reports = _issue(d, rng, mask, committed)
                queue += copies
                assert d.take_reports() == reports
        np.testing.assert_array_equal(d.shared, expected)
    d.call("cp.wait", 0xFFFFFFFF, ALL_LANES, SITE)
    assert d.queued == 0
    assert d.take_reports() == []


def test_a_full_queue_is_reported(copier: Device) -> None:
    d = copier
    dst, src = (SHARED_START + 16 * LANE).astype(np.uint32), (GLOBAL_BASE + 16 * LANE).astype(np.uint64)
    for _ in range(49):
        d.call("cp.async.16", dst, src, np.full(32, 16, np.uint32), ALL_LANES, SITE)
    assert d.queued == 48
    assert d.take_reports() == [Report(COPY_QUEUE_FULL, SITE, ALL_LANES, SHARED_START)]
    d.call("cp.wait", 0xFFFFFFFF, ALL_LANES, SITE)
    assert d.queued == 0


# -- atomics ------------------------------------------------------------------------------------------------

_ATOMICS = [
    f"{op}.{kind}"
    for op, kinds in {
        "and": "b32 b64", "or": "b32", "xor": "b64", "exch": "b32 b64", "cas": "b16 b32 b64",
        "inc": "u32", "dec": "u32", "add": "u32 s32 u64 f32 f64 f16 f16x2 bf16 bf16x2",
        "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64",
    }.items()
    for kind in kinds.split()
]  # fmt: skip
_SPACES = ("global", "shared", "generic")
_FLOATS = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "f16x2": np.float16,
    "bf16": ml_dtypes.bfloat16, "bf16x2": ml_dtypes.bfloat16,
}  # fmt: skip


@pytest.fixture(scope="module")
def atomics(cpu: str) -> Device:
    return device(build_atomic, [f"atom.{space}.{name}" for space in _SPACES for name in _ATOMICS], cpu)


def _flushed(x: Array) -> Array:
    tiny = np.abs(x) < np.float32(2.0**-126)
    return np.where(tiny, np.copysign(np.float32(0), x), x).astype(np.float32)


def _modified(op: str, kind: str, old: bytes, b: bytes, c: bytes, *, flush: bool) -> bytes:
    """Return what is written back according to PTX."""
    dtype = np.dtype(_FLOATS[kind]) if kind in _FLOATS else np.dtype(f"{'int' if kind[0] == 's' else 'uint'}{kind[1:]}")
    x, y, z = (np.frombuffer(raw, dtype) for raw in (old, b, c))
    with np.errstate(all="ignore"):
        if kind in _FLOATS:
            if kind == "f32" and flush:
                total = _flushed(_flushed(x) + _flushed(y))
            else:
                total = (x + y).astype(dtype)
            words = total.view(f"uint{8 * dtype.itemsize}").copy()
            if kind != "f64":
                words[np.isnan(total.astype(np.float32))] = 0x7FFFFFFF if kind == "f32" else 0x7FFF
            return words.tobytes()
        results: dict[str, Callable[[], Array]] = {
            "and": lambda: x & y,
            "or": lambda: x | y,
            "xor": lambda: x ^ y,
            "exch": lambda: y,
            "add": lambda: x + y,
            "cas": lambda: np.where(x == y, z, x),
            "inc": lambda: np.where(x >= y, 0, x + 1),
            "dec": lambda: np.where((x == 0) | (x > y), y, x - 1),
            "min": lambda: np.minimum(x, y),
            "max": lambda: np.maximum(x, y),
        }
        return results[op]().astype(dtype).tobytes()


@pytest.mark.parametrize("space", _SPACES)
@pytest.mark.parametrize("name", _ATOMICS)
def test_atomics(atomics: Device, space: str, name: str) -> None:
    d, rng = atomics, np.random.default_rng(3)
    op, kind = name.split(".")
    size = {"f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4}.get(kind) or int(kind[1:]) // 8
    word = np.dtype(f"uint{8 * size}")
    for trial in range(6):
        d.fill(rng)
        b, c = (rng.integers(0, 256, 32 * size).astype(np.uint8).view(word) for _ in range(2))
        if op in ("cas", "inc", "dec") and trial % 3:  # few values, so that comparisons are often true
            for memory in (d.memory, d.shared):
                memory.view(word)[:] = rng.integers(0, 3, memory.size // size)
            b = rng.integers(0, 3, 32).astype(word)
        if kind == "f32" and trial % 3 == 2:  # subnormal values
            d.memory.view(np.uint32)[:] &= 0x807FFFFF
            d.shared.view(np.uint32)[:] &= 0x807FFFFF
            b &= np.uint32(0x80FFFFFF)
        places = 1024 + size * rng.integers(0, 8, 32)  # several lanes at one address
        near = rng.integers(0, 2, 32).astype(bool) if space == "generic" else np.full(32, space == "shared")
        address = places + (0 if space == "shared" else np.where(near, SHARED_BASE, GLOBAL_BASE))
        mask = some_mask(rng, trial)
        if trial >= 4:
            address[[7, 9]] += 1, -(1 << 20)
        on, reports = is_on(mask), []
        if trial >= 4 and on[9]:
            reports.append((OUT_OF_BOUNDS, 9))
        if trial >= 4 and on[7]:
            reports.append((MISALIGNED, 7))
        on[[lane for _, lane in reports]] = False
        memories, found = {False: d.memory.copy(), True: d.shared.copy()}, np.zeros(32, word)
        for lane in np.flatnonzero(on):
            cell = memories[bool(near[lane])][places[lane] : places[lane] + size]
            old = cell.tobytes()
            found[lane] = np.frombuffer(old, word)[0]
            new = _modified(op, kind, old, b[lane].tobytes(), c[lane].tobytes(), flush=not near[lane])
            cell[:] = np.frombuffer(new, np.uint8)
        address = address.astype(np.uint32 if space == "shared" else np.uint64)
        np.testing.assert_array_equal(d.call(f"atom.{space}.{name}", address, mask, SITE, b, c), found)
        np.testing.assert_array_equal(d.memory, memories[False])
        np.testing.assert_array_equal(d.shared, memories[True])
        assert d.take_reports() == [Report(code, SITE, 1 << lane, int(address[lane])) for code, lane in reports]


# -- shfl, match, redux -------------------------------------------------------------------------------------

_REDUX = ["add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"]
_MATCH = ["any.b32", "any.b64", "all.b32", "all.b64"]


@pytest.fixture(scope="module")
def lanes(cpu: str) -> Device:
    names = [f"shfl.{mode}" for mode in ("up", "down", "bfly", "idx")]
    return device(
        build_lanes,
        [*names, *(f"match.{name}" for name in _MATCH), *(f"redux.{name}" for name in _REDUX)],
        cpu,
    )


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shfl(lanes: Device, mode: str) -> None:
    rng = np.random.default_rng(5)
    for trial in range(60):
        a = rng.integers(0, 1 << 32, 32, dtype=np.uint32)
        b = np.full(32, rng.integers(0, 34)) if trial % 2 else rng.integers(0, 40, 32)
        c = (np.full(32, 31), np.zeros(32, int), rng.integers(0, 1 << 13, 32))[trial % 3]
        # PTX ISA 9.7.9.6, the pseudo code of shfl.sync
        distance, clamp, segment = b & 31, c & 31, c >> 8 & 31
        first, limit = LANE & segment, (LANE & segment) | (clamp & ~segment)
        source = {
            "up": LANE - distance,
            "down": LANE + distance,
            "bfly": LANE ^ distance,
            "idx": first | (distance & ~segment),
        }[mode]
        valid = source >= limit if mode == "up" else source <= limit
        predicate = np.zeros(1, np.uint32)
        got = lanes.call(f"shfl.{mode}", a, b.astype(np.uint32), c.astype(np.uint32), ALL_LANES, predicate)
        np.testing.assert_array_equal(got, a[np.where(valid, source, LANE)])
        assert int(predicate[0]) == mask_of(np.flatnonzero(valid))


@pytest.mark.parametrize("name", _MATCH)
def test_match(lanes: Device, name: str) -> None:
    rng, dtype = np.random.default_rng(6), np.dtype(f"uint{name[-2:]}")
    for trial in range(20):
        members = some_mask(rng, trial) | 1
        on = is_on(members)
        a = (rng.integers(0, 1 + trial % 4, 32) << dtype.itemsize * 7).astype(dtype)
        a[~on] = 77  # the values of other lanes must not matter
        if name.startswith("any"):
            expected = [
                mask_of(np.flatnonzero(on & (a == value))) if here else 0 for value, here in zip(a, on, strict=True)
            ]
        else:
            expected = [members if (a[on] == a[0]).all() else 0] * 32
        np.testing.assert_array_equal(lanes.call(f"match.{name}", a, members), np.array(expected, np.uint32))


@pytest.mark.parametrize("name", _REDUX)
def test_redux(lanes: Device, name: str) -> None:
    rng = np.random.default_rng(7)
    op, kind = name.split(".")
    fold = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[op]
    for trial in range(10):
        members = some_mask(rng, trial) | 2
        a = rng.integers(0, 1 << 32, 32, dtype=np.uint32).view(np.int32 if kind == "s32" else np.uint32)
        expected = fold.reduce(a[is_on(members)], dtype=a.dtype)
        np.testing.assert_array_equal(lanes.call(f"redux.{name}", a, members).view(a.dtype), np.full(32, expected))
