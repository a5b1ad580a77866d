"""What every engine must do. A new engine is added by a line in ENGINES."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.engines.recording_cuda import RecordingCuda
from weft.core.errors import LaunchError, ResourceError, UsageError
from weft.core.records import Binary, Place
from weft.engines.cuda_device import NoGPU, require_gpu
from weft.engines.cuda_gpu import CudaGPU
from weft.engines.launch import Launch
from weft.engines.protocol import CannotWatch, Capabilities, Engine, RunOptions
from weft.engines.sample import CannotSample, CtaSample
from weft.probes import Probes, RaceCheck


def a_real_gpu() -> Engine:
    try:
        return CudaGPU(require_gpu())
    except NoGPU as why:
        pytest.skip(str(why))


def a_stand_in() -> Engine:
    return CudaGPU(RecordingCuda().device())


ENGINES: Mapping[str, Callable[[], Engine]] = {
    "virtual": weft.VirtualGPU,
    "cuda": a_real_gpu,
    "cuda (stand-in)": a_stand_in,
}

SOURCE = r"""
#include <stdio.h>
struct Row { const float* x; bool twice; float scale; char flag; double offset; short n; };
__constant__ float table[4];
__device__ int counter;

__global__ void axpy(float a, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void widths(char a, short b, int c, long long d, float e, double f, bool g, double* out) {
    out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; out[6] = g;
}
__global__ void members(Row row, double* out) {
    out[0] = row.x[row.n]; out[1] = row.twice; out[2] = row.scale; out[3] = row.flag; out[4] = row.offset;
    out[5] = row.n;
}
__global__ void indices(int* out) {
    const int cta = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[cta * (blockDim.x * blockDim.y * blockDim.z) + thread] = 1000 * cta + thread;
}
__global__ void reverse(float* x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void fixed(float* x) {
    __shared__ float s[256];
    s[threadIdx.x] = 2.0f * x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void __launch_bounds__(64) bounded(float* x) { x[threadIdx.x] = 1.0f; }
__global__ void look_up(float* out) { out[threadIdx.x] = table[threadIdx.x]; }
__global__ void count(int* out) { *out = ++counter; }
__global__ void address(const float* x, unsigned long long* out) { *out = reinterpret_cast<unsigned long long>(x); }
__global__ void say(int n) { printf("%d of %d: %.2f\n", blockIdx.x, n, 0.5 * blockIdx.x); }
__global__ void tickets(int* next, int* out) { out[atomicAdd(next, 1)] = 1; }
"""


@cache
def binary(arch: str) -> Binary:
    return weft.compile_cuda(SOURCE, name="contract.cu", arch=arch)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return ENGINES[request.param]()


def test_arrays_change_in_place_and_inputs_do_not(engine: Engine) -> None:
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    run = engine.launch(binary(engine.arch), "axpy", 2, 64, [2.0, x, y, 99], names=["a", "x", "y", "n"])
    assert run.clean and run.entries == ("axpy",) and run.ptx_digest == binary(engine.arch).ptx_digest
    assert np.array_equal(x, np.arange(100))
    assert np.array_equal(y, [*range(1, 199, 2), 1])


def test_a_read_only_array_is_an_input(engine: Engine) -> None:
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    x.flags.writeable = False
    engine.launch(binary(engine.arch), "axpy", 1, 4, [3.0, x, y, 4])
    assert y.tolist() == [3, 3, 3, 3]


def test_the_same_array_twice_is_one_buffer(engine: Engine) -> None:
    x = np.arange(8, dtype=np.float32)
    engine.launch(binary(engine.arch), "axpy", 1, 8, [2.0, x, x, 8])
    assert np.array_equal(x, 3 * np.arange(8))


def test_numbers_take_the_width_of_their_parameter(engine: Engine) -> None:
    out = np.zeros(7)
    engine.launch(binary(engine.arch), "widths", 1, 1, [-1, -2, -3, -(1 << 40), 0.5, 0.1, True, out])
    assert out.tolist() == [-1, -2, -3, -(1 << 40), 0.5, 0.1, 1]
    typed = [np.int8(5), np.int16(6), np.int32(7), np.int64(8), np.float32(0.25), np.float64(9), np.bool_(False), out]
    engine.launch(binary(engine.arch), "widths", 1, 1, typed)
    assert out.tolist() == [5, 6, 7, 8, 0.25, 9, 0]


def test_a_tuple_is_a_struct_with_the_alignment_of_c(engine: Engine) -> None:
    x, out = np.array([0, 0, 0, 7.5], np.float32), np.zeros(6)
    row = (x, np.bool_(True), np.float32(0.25), np.int8(-5), np.float64(1e300), np.int16(3))
    engine.launch(binary(engine.arch), "members", 1, 1, [row, out])
    assert out.tolist() == [7.5, 1, 0.25, -5, 1e300, 3]


def test_grids_and_blocks_have_up_to_three_axes(engine: Engine) -> None:
    out = np.zeros(24 * 40, np.int32)
    engine.launch(binary(engine.arch), "indices", (2, 3, 4), (5, 4, 2), [out])
    assert np.array_equal(out, [1000 * cta + thread for cta in range(24) for thread in range(40)])


@pytest.mark.parametrize(("grid", "block"), [(0, 32), (1, 0), (1, 1025), (1, (1, 1, 1, 1)), ((1, 1, 1, 1), 1)])
def test_invalid_grids_and_blocks_are_refused(engine: Engine, grid: int, block: int) -> None:
    out = np.zeros(4, np.int32)
    with pytest.raises(LaunchError):
        engine.launch(binary(engine.arch), "indices", grid, block, [out])
    assert not out.any()


@pytest.mark.parametrize("args", [[], [np.zeros(4, np.float32), 1], [np.int32(4)], ["four"], [np.zeros((4, 4)).T]])
def test_arguments_that_do_not_fit_are_refused(engine: Engine, args: list[object]) -> None:
    with pytest.raises(LaunchError):
        engine.launch(binary(engine.arch), "indices", 1, 4, args)


def test_a_block_over_the_launch_bound_is_refused(engine: Engine) -> None:
    x = np.zeros(96, np.float32)
    engine.launch(binary(engine.arch), "bounded", 1, 64, [x])
    assert x.tolist() == [1] * 64 + [0] * 32
    with pytest.raises(ResourceError, match="64 threads"):
        engine.launch(binary(engine.arch), "bounded", 1, 96, [x])
    assert x.sum() == 64


def test_dynamic_shared_memory(engine: Engine) -> None:
    x = np.arange(64, dtype=np.float32)
    assert engine.launch(binary(engine.arch), "reverse", 1, 64, [x], shared_bytes=256).clean
    assert np.array_equal(x, np.arange(64)[::-1])
    assert engine.static_shared_bytes(binary(engine.arch), "reverse") == 0
    assert engine.static_shared_bytes(binary(engine.arch), "fixed") == 1024


@pytest.mark.parametrize(("entry", "static_bytes"), [("reverse", 0), ("fixed", 1024)])
def test_shared_memory_up_to_the_limit_and_not_over(engine: Engine, entry: str, static_bytes: int) -> None:
    x = np.arange(32, dtype=np.float32)
    most = engine.shared_limit_bytes - static_bytes
    assert engine.launch(binary(engine.arch), entry, 1, 32, [x], shared_bytes=most).clean
    before = x.copy()
    with pytest.raises(ResourceError, match=str(engine.shared_limit_bytes)):
        engine.launch(binary(engine.arch), entry, 1, 32, [x], shared_bytes=most + 4)
    assert np.array_equal(x, before)


def test_symbols_start_as_zero_and_take_values(engine: Engine) -> None:
    out = np.ones(4, np.float32)
    engine.launch(binary(engine.arch), "look_up", 1, 4, [out])
    assert out.tolist() == [0, 0, 0, 0]
    engine.set_symbol(binary(engine.arch), "look_up", "table", np.array([1, 2, 3, 4], np.float32))
    engine.launch(binary(engine.arch), "look_up", 1, 4, [out])
    assert out.tolist() == [1, 2, 3, 4]


def test_a_device_variable_persists_from_launch_to_launch(engine: Engine) -> None:
    out = np.zeros(1, np.int32)
    engine.set_symbol(binary(engine.arch), "count", "counter", np.array([40], np.int32))
    for expected in (41, 42):
        engine.launch(binary(engine.arch), "count", 1, 1, [out])
        assert out[0] == expected


def test_missing_or_too_small_symbols_are_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="tables"):
        engine.set_symbol(binary(engine.arch), "look_up", "tables", np.zeros(4, np.float32))
    with pytest.raises(UsageError, match="20 bytes"):
        engine.set_symbol(binary(engine.arch), "look_up", "table", np.zeros(5, np.float32))


def test_a_missing_kernel_is_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="axpby"):
        engine.launch(binary(engine.arch), "axpby", 1, 1, [])


def test_launches_see_each_others_writes(engine: Engine) -> None:
    x, t, y = np.full(8, 1, np.float32), np.zeros(8, np.float32), np.zeros(8, np.float32)
    engine.launch(binary(engine.arch), "axpy", 1, 8, [5.0, x, t, 8])
    engine.launch(binary(engine.arch), "axpy", 1, 8, [2.0, t, y, 8])
    assert y.tolist() == [10] * 8


def test_in_a_sequence_arrays_keep_their_addresses(engine: Engine) -> None:
    arrays = [np.full(n, n, np.float32) for n in (4, 300)]
    first, second = (np.zeros(1, np.uint64) for _ in range(2))
    launches = [
        Launch(binary(engine.arch), "address", 1, 1, [arrays[0], first]),
        Launch(binary(engine.arch), "axpy", 1, 4, [1.0, arrays[1], arrays[0], 4]),
        Launch(binary(engine.arch), "address", 1, 1, [arrays[0], second]),
    ]
    run = engine.run(launches)
    assert run.clean and run.entries == ("address", "axpy", "address")
    assert first[0] == second[0] != 0
    assert arrays[0].tolist() == [304] * 4


def test_launches_of_a_run_see_each_others_writes(engine: Engine) -> None:
    x, t, y = np.full(8, 1, np.float32), np.zeros(8, np.float32), np.zeros(8, np.float32)
    made = [Launch(binary(engine.arch), "axpy", 1, 8, [5.0, x, t, 8])]
    made += [Launch(binary(engine.arch), "axpy", 1, 8, [2.0, t, y, 8])]
    assert engine.run(made).clean
    assert t.tolist() == [5] * 8 and y.tolist() == [10] * 8


def test_a_refused_launch_leaves_all_arrays_unchanged(engine: Engine) -> None:
    x, y = np.ones(8, np.float32), np.zeros(96, np.float32)
    good = Launch(binary(engine.arch), "axpy", 1, 8, [5.0, x, y, 8])
    too_large = Launch(binary(engine.arch), "bounded", 1, 96, [y], place=Place("two.cu", 7))
    no_array = Launch(binary(engine.arch), "bounded", 1, 64, [], place=Place("two.cu", 8))
    for bad, line in ((too_large, 7), (no_array, 8)):
        with pytest.raises(LaunchError, match=f"^two.cu:{line}: "):
            engine.run([good, bad])
        assert not y.any()


def test_shared_memory_above_48_kb_needs_the_opt_in(engine: Engine) -> None:
    x = np.arange(32, dtype=np.float32)
    for shared_bytes, fits in ((48 * 1024, True), (48 * 1024 + 4, False)):
        launch = Launch(binary(engine.arch), "reverse", 1, 32, [x], shared_bytes=shared_bytes, opt_in_shared=False)
        if fits:
            assert engine.run([launch]).clean
        else:
            with pytest.raises(ResourceError, match="must opt in"):
                engine.run([launch])


def test_goes_on_decides_whether_the_next_launch_runs(engine: Engine) -> None:
    x = np.zeros(4, np.float32)
    launches = [Launch(binary(engine.arch), "bounded", 1, 4, [x]), Launch(binary(engine.arch), "fixed", 1, 4, [x])]
    assert engine.run(launches, RunOptions(goes_on=lambda run: False)).entries == ("bounded",)
    assert x.tolist() == [1] * 4
    assert engine.run(launches).entries == ("bounded", "fixed")
    assert x.tolist() == [2] * 4


def test_a_run_without_launches_is_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="no launch"):
        engine.run([])


def test_printf_is_collected(engine: Engine) -> None:
    run = engine.launch(binary(engine.arch), "say", 3, 1, [3])
    assert sorted(run.printed.splitlines()) == ["0 of 3: 0.00", "1 of 3: 0.50", "2 of 3: 1.00"]


def test_watching_is_done_or_refused(engine: Engine) -> None:
    x = np.ones(64, np.float32)
    launch = {"grid": 1, "block": 64, "args": [x], "watch": Probes(RaceCheck())}
    if engine.capabilities.can_watch:
        assert engine.launch(binary(engine.arch), "fixed", **launch).clean
        assert x.tolist() == [2] * 64
    else:
        with pytest.raises(CannotWatch):
            engine.launch(binary(engine.arch), "fixed", **launch)
        assert x.tolist() == [1] * 64


def test_sampling_is_done_or_refused(engine: Engine) -> None:
    out = np.full(6, -1, np.int32)
    launch = {"grid": (3, 2), "block": 1, "args": [out], "ctas": CtaSample(((1, 1),))}
    if engine.capabilities.can_sample:
        assert engine.launch(binary(engine.arch), "indices", **launch).clean
        assert out.tolist() == [-1, -1, -1, -1, 4000, -1]
    else:
        with pytest.raises(CannotSample):
            engine.launch(binary(engine.arch), "indices", **launch)
    counted = np.zeros(6, np.int32)
    with pytest.raises(CannotSample):
        engine.launch(binary(engine.arch), "tickets", (3, 2), 1, [out, counted], ctas=CtaSample(((1, 1),)))
    assert not counted.any()


@pytest.mark.parametrize("kind", ENGINES)
def test_exact_engines_repeat_every_bit(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    results = set()
    for _ in range(2):
        engine, y = ENGINES[kind](), np.ones(1000, np.float32)
        engine.launch(binary(engine.arch), "axpy", 4, 256, [0.3, x, y, 1000])
        results.add(y.tobytes())
        assert (np.abs(y - (np.float64(np.float32(0.3)) * x + 1)) <= 2.0**-23 * (1 + np.abs(x))).all()
    assert len(results) == 1 or not engine.capabilities.exact


class Blind(weft.VirtualGPU):
    """An engine that cannot watch runs."""

    name = "blind"
    capabilities = Capabilities(can_watch=False, can_sample=True, exact=True)


def test_a_kernel_file_does_not_run_silently_without_checkers(tmp_path: Path) -> None:
    path = tmp_path / "fill.cu"
    path.write_text(
        "// weft: sizes N=8\n// weft: out y : f32[N]\n// weft: launch fill(y) grid(N) block(1)\n"
        'extern "C" __global__ void fill(float* y) { y[blockIdx.x] = 1.0f; }\n'
    )
    kernel = weft.load(path)
    assert kernel.run(Blind()).arrays["y"].tolist() == [1] * 8
    with pytest.raises(CannotWatch, match="'blind' cannot watch"):
        kernel.run(Blind(), watch=Probes(RaceCheck()))
