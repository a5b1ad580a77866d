"""The buffers that a launch can reach, and racecheck on a launch of which only those are copied."""

import struct

import numpy as np
import pytest

import weft
from weft.core.errors import Unsupported
from weft.probes.racecheck import RaceCheck
from weft.vm import reach
from weft.vm.launch import run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GlobalMemory
from weft.vm.program import compile_program
from weft.vm.reach import reachable


@pytest.fixture(autouse=True)
def _small_buffers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "COPY_ALL_BYTES", 0)


def _names(memory: GlobalMemory, params: bytes, *addresses: int) -> set[str]:
    found = reachable(memory, params, addresses)
    assert found is not None
    starts = {tuple(memory.extents[number].tolist()) for number in found}
    return {each.name for each in memory.allocations if (each.address - 0x7000_0000_0000, each.size_bytes) in starts}


def test_by_parameters_variables_and_buffers() -> None:
    memory = GlobalMemory()
    at = {name: memory.allocate(1000, name) for name in "abcdefg"}
    for address in at.values():
        memory.write(address, bytes(1000))
    memory.write(at["b"] + 92, struct.pack("<Q", at["d"] + 999))  # at a multiple of 4 bytes only
    memory.write(at["d"] + 992, struct.pack("<Q", at["e"]))  # the last word
    packed = struct.pack("<B", 1) + struct.pack("<Q", at["b"] + 8)
    assert _names(memory, packed) == {"b", "d", "e"}
    assert _names(memory, struct.pack("<Q", at["a"]), at["g"]) == {"a", "g"}
    assert _names(memory, b"") == set()


def test_an_address_between_buffers_reaches_both() -> None:
    memory = GlobalMemory()
    at = {name: memory.allocate(1000, name) for name in "abc"}
    for address in at.values():
        memory.write(address, bytes(1000))
    assert _names(memory, struct.pack("<Q", at["b"] + 1000)) == {"b", "c"}, "the end of b"
    assert _names(memory, struct.pack("<Q", at["b"] - 4)) == {"a", "b"}, "one element before b"
    assert _names(memory, struct.pack("<Q", at["c"] + 1000)) == {"c"}


def test_small_memory_is_copied_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "COPY_ALL_BYTES", 1 << 20)
    memory = GlobalMemory()
    memory.allocate(1000)
    assert reachable(memory, b"", ()) is None


SOURCE = """
extern "C" __global__ void count(int* total) { total[0] = total[0] + 1; }
extern "C" __global__ void hidden(int* total, long long distance) {
    total[0] = total[0] + 1;
    total[distance + threadIdx.x] = 1;
}
"""


def _launch(entry: str, hide: bool) -> tuple[GlobalMemory, list[str], int, int]:
    program = compile_program(weft.compile_cuda(SOURCE, name="reach.cu", arch="sm_89").ptx, entry, arch="sm_89")
    memory = GlobalMemory()
    total, other = memory.allocate(4, "total"), memory.allocate(4 * 64, "other")
    memory.write(total, bytes(4))
    memory.write(other, bytes([7]) * 256)
    params = struct.pack("<Qq", total, (other - total) // 4)[: 16 if hide else 8]
    outcome = run(program, LaunchSpec(entry, (1, 1, 1), (64, 1, 1), params), memory, globals_at={}, watch=RaceCheck())
    return memory, [finding.code for finding in outcome.findings], total, other


def test_a_race_is_found_if_only_reached_buffers_are_copied() -> None:
    memory, codes, total, other = _launch("count", hide=False)
    assert codes and codes[0].startswith("R")
    assert (memory.read(other, 256) == 7).all()
    assert memory.read(total, 4).view(np.int32)[0] > 0, "the launch's own result, not the repeated one's"


def test_a_write_to_a_buffer_that_was_not_copied_is_refused() -> None:
    with pytest.raises(Unsupported, match="wrote to offset 0 in other"):
        _launch("hidden", hide=True)
