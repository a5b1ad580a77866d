"""Behaviour specific to the virtual GPU; test_contract.py tests what all engines do."""

from functools import cache

import numpy as np
import pytest

import weft
from weft.core.errors import LaunchError, UsageError
from weft.core.records import Binary

SOURCE = """
struct Row { const float* x; bool twice; float scale; char flag; double offset; short n; };
__constant__ float table[4];

__global__ void add_one(float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1.0f;
}
__global__ void add_into(const float* a, float* b) { b[threadIdx.x] += a[threadIdx.x]; }
__global__ void members(Row row, double* out) {
    out[0] = row.x[row.n]; out[1] = row.twice; out[2] = row.scale; out[3] = row.flag; out[4] = row.offset;
    out[5] = row.n;
}
__global__ void bits(const unsigned short* x, unsigned* out) { out[threadIdx.x] = x[threadIdx.x]; }
__global__ void look_up(float* out) { out[threadIdx.x] = table[threadIdx.x]; }
__global__ void dynamic(float* x) { extern __shared__ float s[]; s[threadIdx.x] = x[threadIdx.x]; }
"""


@cache
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, name="virtual_test.cu")


@pytest.fixture
def gpu() -> weft.VirtualGPU:
    return weft.VirtualGPU(threads=1)


def test_a_struct_can_be_given_as_bytes(gpu: weft.VirtualGPU) -> None:
    x, out = np.zeros(1, np.float32), np.zeros(6)
    with pytest.raises(LaunchError, match="has 3 bytes; the kernel's parameter has 40"):
        gpu.launch(binary(), "members", 1, 1, [b"abc", out])
    with pytest.raises(LaunchError, match=r"a member of struct .* is a float"):
        gpu.launch(binary(), "members", 1, 1, [(x, 1.0), out])


def test_two_views_of_the_same_memory_are_one_buffer(gpu: weft.VirtualGPU) -> None:
    x = np.arange(8, dtype=np.float32)
    gpu.launch(binary(), "add_into", 1, 8, [x.reshape(2, 4), x.view(np.int32)])
    assert np.array_equal(x, 2 * np.arange(8))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([np.zeros(4, np.float32)], "takes 2 arguments; 1 were given"),
        ([np.zeros((4, 4), np.float32).T, 4], "not C-contiguous"),
        ([np.zeros(4, np.float32), "four"], "is a str; give an array, a number, bytes or a tuple"),
        ([np.zeros(4, np.float32), np.zeros(4, np.float32)], "has 8 bytes; the kernel's parameter has 4"),
        ([1.5, 4, 4], "takes 2 arguments; 3 were given"),
        ([np.zeros(4, np.float32), np.int64(4)], "has 8 bytes; the kernel's parameter has 4"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(gpu: weft.VirtualGPU, args: list[object], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        gpu.launch(binary(), "add_one", 1, 4, args)


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        (1, 1025, "1025"),
        (1, (32, 32, 2), "2048|larger than"),
        (0, 32, "at least 1"),
        (1, 0, "a block has 1 to 1024|at least 1"),
        (1, (1, 1, 1, 1), "dimensions, not 4"),
    ],
)
def test_invalid_grids_and_blocks_are_refused(gpu: weft.VirtualGPU, grid: int, block: int, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        gpu.launch(binary(), "add_one", grid, block, [np.zeros(4, np.float32), 4])


def test_shared_memory_over_the_limit_of_the_chip() -> None:
    """99 KB per CTA on sm_89, 163 KB on sm_80 (CUDA programming guide, table of compute capabilities)."""
    x = np.zeros(32, np.float32)
    assert weft.VirtualGPU("sm_80").launch(binary(), "dynamic", 1, 32, [x], shared_bytes=163 * 1024).clean
    assert weft.VirtualGPU("sm_89").launch(binary(), "dynamic", 1, 32, [x], shared_bytes=99 * 1024).clean
    with pytest.raises(LaunchError, match="sm_89 has 101376 per CTA"):
        weft.VirtualGPU("sm_89").launch(binary(), "dynamic", 1, 32, [x], shared_bytes=99 * 1024 + 4)


def test_missing_or_too_small_symbols_are_refused(gpu: weft.VirtualGPU) -> None:
    with pytest.raises(UsageError, match=r"no variable 'tables' in this module; it has: .*table"):
        gpu.set_symbol(binary(), "look_up", "tables", np.zeros(4, np.float32))
    with pytest.raises(UsageError, match="the value for table has 20 bytes; the variable has 16"):
        gpu.set_symbol(binary(), "look_up", "table", np.zeros(5, np.float32))


def test_a_missing_kernel_is_refused(gpu: weft.VirtualGPU) -> None:
    with pytest.raises(UsageError, match="no kernel 'add_two'"):
        gpu.launch(binary(), "add_two", 1, 1, [])


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(UsageError, match="sm_89"):
        weft.VirtualGPU("sm_70")


def test_torch_tensors_change_in_place(gpu: weft.VirtualGPU) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(8, dtype=torch.float32)
    gpu.launch(binary(), "add_one", 1, 8, [x, 8])
    assert x.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_bfloat16_tensors_are_passed_as_bits(gpu: weft.VirtualGPU) -> None:
    """A bfloat16 is the upper half of a float: 1 = 0x3F80, -2 = 0xC000."""
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0, -2.0, 0.0], dtype=torch.bfloat16)
    out = np.zeros(3, np.uint32)
    gpu.launch(binary(), "bits", 1, 3, [x, out])
    assert out.tolist() == [0x3F80, 0xC000, 0]


def test_a_tensor_that_is_not_contiguous(gpu: weft.VirtualGPU) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(LaunchError, match=r"call \.contiguous\(\) first"):
        gpu.launch(binary(), "add_one", 1, 4, [torch.zeros(4, 4).t(), 4])


COUNTERS = """
__device__ int {name} = {start};
extern "C" __global__ void {name}_up(int* o) {{ o[0] = ++{name}; }}
"""


def test_variables_of_several_modules_persist_from_run_to_run() -> None:
    """Launches of two modules, each with a variable, run twice."""
    gpu = weft.VirtualGPU()
    apples = weft.compile_cuda(COUNTERS.format(name="apples", start=10), name="apples.cu")
    pears = weft.compile_cuda(COUNTERS.format(name="pears", start=20), name="pears.cu")
    out = [np.zeros(1, np.int32) for _ in range(4)]
    kernels = [(apples, "apples_up"), (pears, "pears_up"), (apples, "apples_up"), (pears, "pears_up")]
    launches = [weft.Launch(binary, entry, 1, 1, [o]) for (binary, entry), o in zip(kernels, out, strict=True)]
    for before in (0, 2):
        run = gpu.run(launches)
        assert run.findings == ()
        assert [int(o[0]) for o in out] == [11 + before, 21 + before, 12 + before, 22 + before]


def test_a_pointer_in_a_module_points_to_its_variable() -> None:
    """A third module is added later; the variables of the first two are neither moved nor freed."""
    gpu = weft.VirtualGPU()
    names = ("apples", "pears", "plums")
    made = {name: weft.compile_cuda(COUNTERS.format(name=name, start=0), name=f"{name}.cu") for name in names}
    for round_number, known in enumerate((names[:1], names[:2], names, names), 1):
        out = {name: np.zeros(1, np.int32) for name in known}
        assert gpu.run([weft.Launch(made[name], f"{name}_up", 1, 1, [out[name]]) for name in known]).findings == ()
        joined = {name: max(1, names.index(name) + 1) for name in known}
        assert {name: int(o[0]) for name, o in out.items()} == {name: round_number - joined[name] + 1 for name in known}


def test_a_module_outside_the_scratch_block_is_refused() -> None:
    """Its variables would be freed with the scratch memory, and found again by its next launch."""
    gpu, out = weft.VirtualGPU(), np.zeros(1, np.int32)
    known, other = (
        weft.Launch(weft.compile_cuda(COUNTERS.format(name=name, start=0), name="k.cu"), f"{name}_up", 1, 1, [out])
        for name in ("apples", "pears")
    )
    with gpu.scratch([known]):
        gpu.memory.allocate(64, "of the caller")
        assert gpu.run([known]).clean and out[0] == 1
        with pytest.raises(UsageError, match="pears_up is not one of the launches"):
            gpu.run([other])
    assert gpu.run([other]).clean and out[0] == 1
    assert gpu.run([known]).clean and out[0] == 2


def test_after_a_reset_variables_are_new_and_kernels_are_kept() -> None:
    gpu, out = weft.VirtualGPU(), np.zeros(1, np.int32)
    binary = weft.compile_cuda(COUNTERS.format(name="apples", start=10), name="apples.cu")
    program = gpu.program(binary, "apples_up")
    for _ in range(2):
        for expected in (11, 12):
            assert gpu.launch(binary, "apples_up", 1, 1, [out]).clean
            assert out[0] == expected
        gpu.reset()
    assert gpu.program(binary, "apples_up") is program
