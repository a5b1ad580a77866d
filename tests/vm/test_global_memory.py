"""Global memory: places of freed buffers, an arena from outside, what counts as written."""

import gc
import itertools
import mmap
import random
import sys
import tracemalloc

import numpy as np
import pytest

from weft.core.errors import DeviceMemoryError, LaunchError
from weft.vm.host_memory import give_back
from weft.vm.memory import ALIGN, GLOBAL_BASE, LEAST_GAP, QUARANTINE_COUNT, WINDOW_BYTES, GlobalMemory


def test_a_freed_place_stays_unused_and_keeps_its_name() -> None:
    memory = GlobalMemory(1 << 20)
    first = memory.allocate(1000, "cudaMalloc #1")
    memory.allocate(1000, "cudaMalloc #2")
    assert memory.free(first).name == "cudaMalloc #1"
    assert memory.owner(first) is None
    gone = memory.freed_owner(first + 999)
    assert gone is not None and (gone.name, gone.address) == ("cudaMalloc #1", first)
    assert memory.freed_owner(first + 1000) is None
    assert memory.allocate(1000) > first, "another buffer is not placed there"
    assert memory.freed_owner(first) is not None


def test_the_oldest_place_is_used_again_when_many_are_freed() -> None:
    memory = GlobalMemory(1 << 20)
    stays = memory.allocate(100, "stays")
    freed = [memory.allocate(16 << 10) for _ in range(8)]
    last = memory.allocate(100, "last")
    for address in freed:
        memory.free(address)
    again = memory.allocate(16 << 10, "again")
    assert again == freed[0], "128 KB of places are kept: those of the oldest buffers are used again"
    assert memory.freed_owner(again) is None and memory.freed_owner(freed[-1]) is not None
    assert [each.name for each in memory.allocations] == ["stays", "last", "again"]
    for address, name in ((stays, "stays"), (last, "last"), (again, "again")):
        found = memory.owner(address + 99)
        assert found is not None and found.name == name


def test_only_the_start_of_a_live_buffer_can_be_freed() -> None:
    memory = GlobalMemory(1 << 20)
    address = memory.allocate(1000)
    for wrong in (address + 256, address - 1, 0, GLOBAL_BASE, address + (1 << 40)):
        with pytest.raises(LaunchError, match="not the start of a buffer"):
            memory.free(wrong)
    memory.free(address)
    with pytest.raises(LaunchError, match="not the start of a buffer"):
        memory.free(address)


def test_a_buffer_of_no_bytes_can_be_freed() -> None:
    memory = GlobalMemory(1 << 20)
    empty, other = memory.allocate(0), memory.allocate(0)
    assert empty != other and memory.owner(empty) is None
    memory.free(empty)
    assert len(memory.allocations) == 1


def test_a_given_arena_does_not_move_and_can_be_full() -> None:
    arena = np.zeros(1 << 20, np.uint8)
    memory = GlobalMemory(arena=arena)
    large = memory.allocate(600 << 10)
    with pytest.raises(DeviceMemoryError, match="614400 bytes requested"):
        memory.allocate(600 << 10)
    memory.write(large, b"\x07")
    assert memory.arena is arena and arena[large - GLOBAL_BASE] == 7
    memory.free(large)
    assert memory.allocate(600 << 10) == large, "the arena is full: places in quarantine are used"


def test_a_sparse_file_is_an_arena_and_gets_its_pages_back(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "memory"
    with path.open("wb+") as file:
        file.truncate(64 << 30)
        mapping = mmap.mmap(file.fileno(), 64 << 30)
    discarded: list[tuple[int, int]] = []
    memory = GlobalMemory(arena=np.frombuffer(mapping, np.uint8), discard=lambda *span: discarded.append(span))
    address = memory.allocate(1 << 20, align=4096)
    memory.write(address, bytes([1]) * (1 << 20))
    memory.free(address)
    assert discarded == [(address - GLOBAL_BASE, 1 << 20)]
    assert memory.used < 4 << 20 and path.stat().st_blocks * 512 < 4 << 20
    del memory


def test_pages_of_a_page_aligned_buffer_belong_to_it_alone() -> None:
    memory = GlobalMemory()
    spans = []
    for size, align in ((100, 4096), (100, 256), (5000, 4096), (1, 256), (4096, 4096)):
        start = memory.allocate(size, align=align) - GLOBAL_BASE
        assert start % align == 0
        spans.append((start, start + size))
    assert LEAST_GAP >= 4096
    pages = [set(range(start // 4096, (end - 1) // 4096 + 1)) for start, end in spans]
    for number, mine in enumerate(pages):
        assert not any(mine & other for at, other in enumerate(pages) if at != number)


def test_initcheck_is_limited_by_what_is_used() -> None:
    with mmap.mmap(-1, 3 * WINDOW_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) as mapping:
        memory = GlobalMemory(arena=np.frombuffer(mapping, np.uint8))
        assert len(memory.keep_written()) > 3 * WINDOW_BYTES
        memory = GlobalMemory(arena=np.frombuffer(mapping, np.uint8))
        memory.allocate(WINDOW_BYTES)
        with pytest.raises(LaunchError, match="initcheck takes"):
            memory.keep_written()
        del memory


def test_what_counts_as_written() -> None:
    memory = GlobalMemory(1 << 20)
    memory.mark_written(memory.allocate(64), 64)  # nothing records it yet
    written = memory.keep_written()
    address = memory.allocate(1000, written=False)
    at = address - GLOBAL_BASE
    assert not written[at : at + 1000].any()
    assert (written[at + 1000 : memory.used] == 0xFF).all(), "the gap is not memory that a kernel forgot to write"
    memory.mark_written(address + 10, 20)
    assert written[at : at + 1000].nonzero()[0].tolist() == list(range(10, 30))
    memory.mark_written(address + 10, 20, written=False)
    assert not written[at : at + 1000].any()


def test_random_allocations_never_overlap() -> None:
    chance = random.Random(5)
    memory = GlobalMemory(arena=np.zeros(1 << 22, np.uint8))
    live: dict[int, int] = {}
    full = 0
    for _ in range(3000):
        if live and chance.random() < 0.45:
            address = chance.choice(list(live))
            memory.free(address)
            del live[address]
            continue
        size, align = chance.choice((0, 1, 100, 4096, 60_000, 300_000)), chance.choice((256, 512, 4096))
        try:
            live[memory.allocate(size, align=align)] = size
        except DeviceMemoryError:
            full += 1
    assert full, "the arena was full at times"
    spans = sorted((address - GLOBAL_BASE, size) for address, size in live.items())
    for (start, size), (following, _) in itertools.pairwise(spans):
        assert start + size + LEAST_GAP <= following
    owners = np.zeros(len(memory.arena) // ALIGN, bool)
    for start, size in spans:
        owners[start // ALIGN : -(-(start + size) // ALIGN)] = True
        number = memory.owners[start // ALIGN] if size else 0
        assert not size or memory.extents[number].tolist() == [start, size]
    assert ((memory.owners[: len(owners)] != 0) == owners).all()
    for address in live:
        memory.free(address)
    memory.rewind()
    assert memory.used == 256, "all places are one again"


def test_scratch_and_permanent_buffers_can_be_mixed() -> None:
    memory = GlobalMemory(1 << 20)
    permanent = memory.allocate(64, "permanent")
    mark = memory.mark()
    scratch = memory.allocate(64, "argument x")
    memory.free(permanent)
    later = memory.allocate(64, "argument y")
    memory.release(mark)
    assert memory.allocations == []
    for address, words in ((scratch, " of an earlier launch"), (later, " of an earlier launch"), (permanent, "")):
        gone = memory.freed_owner(address)
        assert gone is not None and gone.of == words


def test_the_number_of_places_in_quarantine_is_limited() -> None:
    memory = GlobalMemory(1 << 30)
    addresses = [memory.allocate(1) for _ in range(QUARANTINE_COUNT + 10)]
    for address in addresses:
        memory.free(address)
    assert memory.freed_owner(addresses[9]) is None and memory.freed_owner(addresses[10]) is not None


def test_launches_leave_no_memory_of_the_host_behind() -> None:
    memory = GlobalMemory(1 << 22)

    def launch(number: int) -> None:
        mark = memory.mark()
        memory.allocate(100, f"argument {'xy'[number % 2]}")
        memory.release(mark)

    tracemalloc.start()
    try:
        for number in range(100):  # NumPy keeps some freed memory for later
            launch(number)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(500):
            launch(number)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory.used > 600 * LEAST_GAP, "all places stay unused"
    assert after - before < 500 * 16, "not even a name for each launch"


def test_more_places_than_the_quarantine_has_rows() -> None:
    memory = GlobalMemory(1 << 26)
    mark = memory.mark()
    addresses = [memory.allocate(16, f"buffer {number}") for number in range(5000)]
    memory.release(mark)  # 21 MB: all places can be used again
    assert all(memory.freed_owner(address) is None for address in (addresses[0], addresses[-1]))
    again = [memory.allocate(16, f"buffer {number}") for number in range(5000)]
    for address in again:
        memory.free(address)
    limit = len(memory.arena) // 8
    named = [memory.freed_owner(address + 15) for address in again]
    kept = [number for number, found in enumerate(named) if found is not None]
    assert kept == list(range(kept[0], 5000)), "the oldest are used again first"
    assert [found.name for found in named if found is not None] == [f"buffer {number}" for number in kept]
    place = again[1] - again[0]
    assert limit - place < len(kept) * place <= limit


def test_a_withdrawn_buffer_keeps_its_address_and_counts_as_freed() -> None:
    memory = GlobalMemory()
    first, second = memory.allocate(100, "first"), memory.allocate(100, "second")
    memory.keep_written()
    memory.withdraw(first)
    assert memory.owner(first) is None
    gone = memory.freed_owner(first + 99)
    assert gone is not None and gone.name == "first"
    assert [each.name for each in memory.allocations] == ["second"]
    others = [memory.allocate(100) for _ in range(200)]
    assert first not in others  # its place is not used
    memory.restore(first)
    found = memory.owner(first + 99)
    assert found is not None and found.name == "first" and memory.freed_owner(first) is None
    assert memory.written is not None and not memory.written[first - GLOBAL_BASE : first - GLOBAL_BASE + 100].any()
    memory.withdraw(second)
    assert memory.free(second).name == "second"  # also while it is withdrawn
    for wrong in (lambda: memory.restore(first), lambda: memory.withdraw(second)):
        with pytest.raises(LaunchError):
            wrong()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep the pages")
def test_whole_pages_are_given_back() -> None:
    data = np.full(1 << 20, 7, np.uint8)
    give_back(data[100 : 100 + 3 * mmap.PAGESIZE])
    zero = np.flatnonzero(data == 0)
    assert len(zero) == 2 * mmap.PAGESIZE, "the pages at both ends have other bytes, too"
    assert (data.ctypes.data + zero[0]) % mmap.PAGESIZE == 0 and zero[0] >= 100
    assert zero[-1] - zero[0] == len(zero) - 1
    give_back(data[10:20])
    assert np.count_nonzero(data == 0) == len(zero)
