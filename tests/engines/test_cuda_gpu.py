"""The CUDA engine on the stand-in: which calls it makes, in which order, and how it reports errors."""

import ast
import inspect
from dataclasses import replace

import cuda.core
import numpy as np
import pytest
from cuda.bindings import driver

import weft
from tests.engines.recording_cuda import RecordingCuda
from weft.core.errors import LaunchError, ResourceError, UsageError
from weft.core.records import Binary
from weft.engines import cuda_device
from weft.engines.cuda_device import CudaDevice, CudaFailure, NoGPU, _waits_for_the_grid, require_gpu
from weft.engines.cuda_gpu import FAULTS, CudaGPU
from weft.kernels.ladder import RUNGS

SOURCE = r"""
#include <assert.h>
#include <cooperative_groups.h>
extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2.0f * x[threadIdx.x]; }
extern "C" __global__ void far(float* x) { x[threadIdx.x + 100000000] = 1.0f; }
extern "C" __global__ void odd(char* x) { *reinterpret_cast<float*>(x + 1) = 1.0f; }
extern "C" __global__ void refuse(const int* x) { assert(*x == 1); }
extern "C" __global__ void stop(const int* x) { if (*x != 1) __trap(); }
extern "C" __global__ void all_ctas(int* x) {
    x[blockIdx.x] = 1;
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0) x[0] = x[1] + x[2];
}
"""


@pytest.fixture(scope="module")
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, name="faults.cu")


@pytest.fixture
def cuda_gpu() -> RecordingCuda:
    return RecordingCuda()


def test_the_order_of_a_launch(binary: Binary, cuda_gpu: RecordingCuda) -> None:
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    CudaGPU(cuda_gpu.device()).launch(binary, "twice", 1, 32, [x, y], shared_bytes=64)
    assert np.array_equal(y, 2 * np.arange(32))
    assert cuda_gpu.names() == [
        "Device.set_current",
        "Device.create_stream",
        "ObjectCode.from_cubin",
        "ObjectCode.get_kernel",
        "Device.allocate",
        "Device.allocate",
        "cuMemcpyHtoDAsync",
        "cuMemcpyHtoDAsync",
        "cuLaunchKernel",
        "cuStreamSynchronize",
        "cuMemcpyDtoHAsync",
        "cuMemcpyDtoHAsync",
        "cuStreamSynchronize",
        "Buffer.close",
        "Buffer.close",
    ]
    (launch,) = cuda_gpu.given("cuLaunchKernel")
    assert [launch[f"gridDim{axis}"] for axis in "XYZ"] == [1, 1, 1]
    assert [launch[f"blockDim{axis}"] for axis in "XYZ"] == [32, 1, 1]
    assert launch["f"] == "twice" and launch["sharedMemBytes"] == 64
    assert [given["size"] for given in cuda_gpu.given("Device.allocate")] == [128, 128]
    assert [given["ByteCount"] for given in cuda_gpu.given("cuMemcpyDtoHAsync")] == [128, 128]
    assert [given["dstHost"] for given in cuda_gpu.given("cuMemcpyDtoHAsync")] == [x.ctypes.data, y.ctypes.data]
    assert not cuda_gpu.live


def test_a_read_only_array_is_not_copied_back(binary: Binary, cuda_gpu: RecordingCuda) -> None:
    x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
    x.flags.writeable = False
    CudaGPU(cuda_gpu.device()).launch(binary, "twice", 1, 32, [x, y])
    assert [given["dstHost"] for given in cuda_gpu.given("cuMemcpyDtoHAsync")] == [y.ctypes.data]


def test_a_kernel_and_its_module_are_loaded_once(binary: Binary, cuda_gpu: RecordingCuda) -> None:
    gpu, x = CudaGPU(cuda_gpu.device()), np.ones(32, np.float32)
    for _ in range(2):
        gpu.launch(binary, "twice", 1, 32, [x, x])
    names = cuda_gpu.names()
    assert names.count("ObjectCode.from_cubin") == names.count("ObjectCode.get_kernel") == 1


def test_a_binary_without_cubin_is_loaded_as_ptx(cuda_gpu: RecordingCuda, binary: Binary) -> None:
    x = np.ones(32, np.float32)
    CudaGPU(cuda_gpu.device()).launch(replace(binary, cubin=b""), "twice", 1, 32, [x, x])
    assert x.tolist() == [2] * 32
    assert cuda_gpu.given("ObjectCode.from_ptx")[0]["module"] == binary.ptx.encode()


def test_a_barrier_of_the_grid_is_launched_cooperatively(binary: Binary, cuda_gpu: RecordingCuda) -> None:
    x = np.zeros(3, np.int32)
    assert CudaGPU(cuda_gpu.device()).launch(binary, "all_ctas", 3, 1, [x]).clean
    assert x.tolist() == [2, 1, 1]
    assert "cuLaunchCooperativeKernel" in cuda_gpu.names() and "cuLaunchKernel" not in cuda_gpu.names()
    assert not _waits_for_the_grid(binary.ptx, "twice")


def test_a_barrier_inside_a_function_counts() -> None:
    ptx = """.visible .func together() { mov.u32 %r1, %envreg2; }
.visible .entry one() { call together; }
.visible .entry two() { mov.u32 %r1, %envreg2; }
"""
    assert _waits_for_the_grid(ptx, "one")
    own = ptx.replace("%envreg2", "%tid.x", 1)
    assert not _waits_for_the_grid(own, "one") and _waits_for_the_grid(own, "two")


@pytest.mark.parametrize(
    ("entry", "array", "code"),
    [("far", np.zeros(4, np.float32), "M101"), ("odd", np.zeros(8, np.int8), "M102"),
     ("refuse", np.zeros(1, np.int32), "X402"), ("stop", np.zeros(1, np.int32), "X401")],
)  # fmt: skip
def test_a_failing_kernel_is_a_finding_and_ends_the_run(
    binary: Binary, cuda_gpu: RecordingCuda, entry: str, array: np.ndarray, code: str
) -> None:
    gpu = CudaGPU(cuda_gpu.device())
    run = gpu.launch(binary, entry, 1, 1, [array])
    assert [finding.code for finding in run.findings] == [code] and not run.clean
    assert not array.any()
    with pytest.raises(LaunchError, match="start a new process"):
        gpu.launch(binary, "twice", 1, 4, [np.zeros(4, np.float32)] * 2)


def test_large_shared_memory_is_opted_in_once(cuda_gpu: RecordingCuda) -> None:
    source = 'extern __shared__ float s[]; extern "C" __global__ void k(float* x) { s[20000] = *x; *x = s[20000]; }'
    gpu, x = CudaGPU(cuda_gpu.device()), np.ones(1, np.float32)
    large = weft.compile_cuda(source, name="large.cu")
    for _ in range(2):
        assert gpu.launch(large, "k", 1, 1, [x], shared_bytes=90_000).clean
    assert [given["val"] for given in cuda_gpu.given("cuKernelSetAttribute")] == [90_000]
    names = cuda_gpu.names()
    assert names.index("cuKernelSetAttribute") < names.index("cuLaunchKernel")


def test_too_much_memory_is_a_resource_error(cuda_gpu: RecordingCuda) -> None:
    with pytest.raises(ResourceError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        cuda_gpu.device().allocate(1 << 35)


def test_a_refusal_of_the_driver_is_a_launch_error(binary: Binary, cuda_gpu: RecordingCuda) -> None:
    device = cuda_gpu.device()
    kernel = device.kernel(binary, "twice")
    with pytest.raises(CudaFailure, match="CUDA_ERROR_INVALID_VALUE") as refused:
        device.launch(kernel, (1, 1, 1), (1, 1, 1), bytes(32), shared_bytes=200 * 1024)
    assert isinstance(refused.value, LaunchError) and not isinstance(refused.value, ResourceError)


def test_a_binary_for_another_gpu_is_refused(binary: Binary) -> None:
    gpu = CudaGPU(RecordingCuda("80").device())
    assert gpu.arch == "sm_80"
    with pytest.raises(UsageError, match="compiled for sm_89; this GPU is sm_80"):
        gpu.launch(binary, "twice", 1, 1, [np.zeros(1, np.float32)] * 2)


def test_a_rung_gives_the_bits_of_the_virtual_gpu(cuda_gpu: RecordingCuda) -> None:
    """A complete kernel file: several launches, a workspace, buffers that stay."""
    kernel = weft.load(RUNGS["split_k"].path)
    sizes = {"SQ": 20, "SKV": 70, "D": 32}
    on_cpu = kernel.run(weft.VirtualGPU(), sizes=sizes).arrays
    on_gpu = kernel.run(CudaGPU(cuda_gpu.device()), sizes=sizes).arrays
    for name in ("o", "lse"):
        assert on_cpu[name].tobytes() == on_gpu[name].tobytes()
    assert cuda_gpu.names().count("cuLaunchKernel") == len(kernel.launches) == 2
    assert not cuda_gpu.live


def test_every_name_of_the_driver_exists() -> None:
    """A name that the stand-in never uses could still be misspelt."""
    tree = ast.parse(inspect.getsource(cuda_device))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "driver"
    }
    assert {"cuLaunchKernel", "cuStreamSynchronize", "CUfunction"} <= used
    assert [name for name in used if not hasattr(driver, name)] == []
    from_core = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "core"
    }
    assert from_core == {"Device", "ObjectCode", "EventOptions"}
    assert all(hasattr(cuda.core, name) for name in from_core)


USED = {
    "Device": (
        "get_all_devices", "set_current", "create_stream", "create_event", "allocate", "properties", "device_id",
        "compute_capability", "name", "to_system_device",
    ),
    "Stream": ("handle", "record"),
    "Event": ("is_done", "__sub__"),
    "Buffer": ("handle", "close"),
    "ObjectCode": ("from_cubin", "from_ptx", "get_kernel", "handle"),
    "Kernel": ("handle", "attributes"),
}  # fmt: skip
"""The attributes of cuda-core's classes that engine and bench use; the stand-in binds calls to their signatures."""


@pytest.mark.parametrize("owner", USED)
def test_cuda_core_has_what_is_used(owner: str) -> None:
    assert [name for name in USED[owner] if not hasattr(getattr(cuda.core, owner), name)] == []


def test_error_codes_exist_in_the_driver() -> None:
    known = {status.name for status in driver.CUresult}
    assert set(FAULTS) <= known and set(cuda_device.TOO_LARGE) <= known


def test_without_a_gpu_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        class Device:
            @staticmethod
            def get_all_devices() -> tuple[CudaDevice, ...]:
                return ()

    monkeypatch.setattr(cuda_device, "libraries", lambda: cuda_device.Libraries(Nothing, driver))
    with pytest.raises(NoGPU, match="no GPU 0: the driver reports 0"):
        require_gpu()

    def missing() -> cuda_device.Libraries:
        raise cuda_device.ToolMissing("the CUDA engine needs cuda-core")

    monkeypatch.setattr(cuda_device, "libraries", missing)
    with pytest.raises(NoGPU, match="needs cuda-core"):
        require_gpu()
