"""Offsets are checked against the addresses in the SASS."""

import itertools
import re

import pytest

from weft.core.errors import ToolMissing
from weft.core.records import Binary
from weft.toolchain import compile_cuda, disassemble
from weft.toolchain.elf import CubinError, read_elf

SOURCE = """
__shared__ char module_bytes[5];
__noinline__ __device__ float callee(int i, float x) {
    __shared__ float in_callee[9];
    in_callee[0] = x;
    __syncthreads();
    return in_callee[i];
}
extern "C" __global__ void first(float* a) {
    __shared__ char bytes[3];
    __shared__ float row[8];
    __shared__ double wide[3];
    __shared__ alignas(128) float tile[33];
    bytes[0] = 1; row[0] = 2; wide[0] = 3; tile[0] = 4; module_bytes[0] = 5;
    __syncthreads();
    int i = threadIdx.x;
    a[0] = bytes[i] + row[i] + wide[i] + tile[i] + module_bytes[i] + callee(i, a[1]);
}
extern "C" __global__ void second(float* a) {
    module_bytes[threadIdx.x] = 1;
    __syncthreads();
    *a = module_bytes[2];
}
extern "C" __global__ void none(float* a) { *a = 1; }
"""


def layout(binary: Binary, entry: str) -> dict[str, tuple[int, int]]:
    return {re.sub(r"^_ZZ.*E\d+", "", s.name): (s.offset, s.size_bytes) for s in binary.shared[entry]}


def test_each_array_is_where_the_hardware_has_it() -> None:
    binary = compile_cuda(SOURCE, name="s.cu")
    assert layout(binary, "first") == {
        "bytes": (0, 3),
        "row": (4, 32),
        "wide": (40, 24),
        "tile": (128, 132),
        "module_bytes": (260, 5),
        "in_callee": (268, 36),
    }
    assert binary.resources["first"].static_shared_bytes == 304
    assert layout(binary, "second") == {"module_bytes": (0, 5)}
    assert binary.shared["none"] == ()
    try:
        sass = disassemble(binary).split(".text.first:")[1].split(".text.")[0]
    except ToolMissing:
        pytest.skip("nvdisasm is not installed")
    stores = {int(a, 16) for a in re.findall(r"STS\S* \[(0x[0-9a-f]+|RZ)\]", sass.replace("[RZ]", "[0x0]"))}
    assert stores == {0, 4, 40, 128, 260, 268}


def test_a_debug_build_lays_out_by_its_symbols() -> None:
    binary = compile_cuda(SOURCE, name="s.cu", debug=True)
    found = layout(binary, "first")
    assert {name: size for name, (_, size) in found.items()} == {
        "bytes": 3,
        "row": 32,
        "wide": 24,
        "tile": 132,
        "module_bytes": 5,
        "in_callee": 36,
    }
    ends = [(offset, offset + size) for offset, size in sorted(found.values())]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    assert ends[-1][1] <= binary.resources["first"].static_shared_bytes
    assert found["tile"][0] % 128 == 0


def test_sm_90_keeps_the_first_kilobyte() -> None:
    binary = compile_cuda(SOURCE, name="s.cu", arch="sm_90")
    assert layout(binary, "second") == {"module_bytes": (1024, 5)}
    assert layout(binary, "first")["tile"] == (1152, 132)


@pytest.mark.parametrize("data", [b"", b"MZ", b"\x7fELF\x02\x01" + b"\xff" * 100])
def test_a_damaged_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(CubinError):
        read_elf(data)
