"""The timed loop on the stand-in: what is done around every timed call, and what becomes of the times."""

import itertools
import json
import random
from dataclasses import replace

import pytest

from tests.engines.recording_cuda import RecordingCuda
from weft.attention.shapes import SHAPES
from weft.bench.contender import KernelContender
from weft.bench.measure import BenchSettings, Cache
from weft.bench.run import BenchResult, bench, record
from weft.bench.statistics import Answer, BadTiming
from weft.engines.cuda_device import CudaFailure
from weft.engines.cuda_gpu import CudaGPU
from weft.judge.select import find_candidate
from weft.tasks.task import Problem, Workload

SHAPE = "split_4"
TWELVE = BenchSettings(rounds=12, warmup=1)


def problems(count: int = 3) -> list[Problem]:
    _, supports = find_candidate("scalar", task=None)
    workload = Workload(SHAPES[SHAPE], "f32", "none", "unit_normal", 0)
    return [supports.task.draw(replace(workload, seed=seed)) for seed in range(count)]


def run_bench(gpu: RecordingCuda, *targets: str, settings: BenchSettings = TWELVE) -> BenchResult:
    engine, drawn = CudaGPU(gpu.device()), problems()
    contenders = []
    for target in targets:
        candidate, supports = find_candidate(target, task=None)
        contenders.append(KernelContender(target, engine, candidate, supports.task, drawn[0]))
    gpu.calls.clear()
    return bench(engine.device, contenders, drawn, settings)


def costs(times: dict[str, float], seed: int = 0, noise: float = 0.01) -> object:
    rng = random.Random(seed)

    def cost(kernel: str) -> float:
        (mean,) = (time for name, time in times.items() if name in kernel)
        return mean * (1 + rng.expovariate(1 / noise))

    return cost


def test_a_faster_kernel_is_found_and_the_outputs_are_right() -> None:
    gpu = RecordingCuda()
    gpu.cost_ms = costs({"scalar_attention": 0.1, "fa1_attention": 0.09})
    result = run_bench(gpu, "scalar", "fa1")
    baseline, other = result.rows
    assert baseline.name == "scalar" and baseline.against is None
    assert other.against is not None and other.against.answer is Answer.FASTER
    assert 0.1 <= baseline.time_ms.low <= baseline.time_ms.median <= baseline.time_ms.high < 0.12
    assert 0.85 < other.against.ratio.median < 0.95 and result.right and result.notes == ()
    assert len(other.samples_ms) == 12 and result.clocks_mhz == (2040,) * 12


def test_equal_kernels_are_not_distinguishable() -> None:
    gpu = RecordingCuda()
    gpu.cost_ms = costs({"attention": 0.1}, seed=4)
    (_, other) = run_bench(gpu, "scalar", "fa1").rows
    assert other.against is not None and other.against.answer is Answer.NOT_DISTINGUISHABLE
    assert "not distinguishable" in str(other.against)


@pytest.mark.parametrize("cache", Cache)
def test_what_happens_around_a_timed_call(cache: Cache) -> None:
    gpu = RecordingCuda(l2_bytes=1 << 15)
    run_bench(gpu, "scalar", settings=BenchSettings(rounds=8, warmup=0, cache=cache, checked=0))
    names = gpu.names()
    first = names.index("Stream.record")
    leading = [name for name in names[:first] if name not in ("Device.create_event", "Device.to_system_device")]
    uploads, poison = ["cuMemcpyHtoDAsync"] * 3, ["cuMemsetD8Async"] * 2
    flush = ["cuMemsetD8Async"] if cache is Cache.COLD else ["cuMemsetD8Async", *["cuMemcpyDtoDAsync"] * 3]
    assert leading[-6 - len(flush) :] == [*uploads, *poison, "cuCtxResetPersistingL2Cache", *flush]
    after = ["Stream.record", "cuLaunchKernel", "Stream.record", "cuStreamSynchronize"]
    assert names[first : first + 4] == after
    assert max(given["N"] for given in gpu.given("cuMemsetD8Async")) == 4 * gpu.l2_bytes


def test_a_gpu_that_waits_for_the_host_gets_more_to_do_first() -> None:
    """The pretended GPU reaches every event at once unless the buffer was written eight times before it."""
    gpu = RecordingCuda()
    large = 4 * gpu.l2_bytes

    def reach_unless_busy() -> None:
        since = itertools.takewhile(lambda call: call.name != "cuStreamSynchronize", reversed(gpu.calls))
        if sum(call.name == "cuMemsetD8Async" and call.given["N"] == large for call in since) < 8:
            gpu.wait()

    gpu.on_record = reach_unless_busy
    result = run_bench(gpu, "scalar", settings=BenchSettings(rounds=8, warmup=1, checked=0))
    assert result.notes == ()
    assert len(gpu.given("cuLaunchKernel")) == 9 + 3  # the first call is tried after 1, 2, 4 and 8 writes


def test_a_host_that_cannot_be_hidden_is_said() -> None:
    gpu = RecordingCuda()
    gpu.on_record = gpu.wait
    result = run_bench(gpu, "scalar", settings=BenchSettings(rounds=8, warmup=0, checked=0))
    assert any("in 8 rounds the GPU waited for the host" in note for note in result.notes)


def test_every_call_gets_other_inputs_and_turns_alternate() -> None:
    gpu = RecordingCuda()
    order: list[str] = []
    gpu.cost_ms = lambda name: order.append(name) or 0.1  # type: ignore[func-returns-value]
    run_bench(gpu, "scalar", "fa1", settings=BenchSettings(rounds=8, warmup=0))
    sides = ["scalar" if "scalar" in name else "fa1" for name in order]
    assert sides == ["scalar", "fa1", "fa1", "scalar"] * 4
    uploads = [given["srcHost"] for given in gpu.given("cuMemcpyHtoDAsync")]
    calls = [tuple(uploads[at : at + 3]) for at in range(0, len(uploads), 3)]
    per_contender = calls[0::4], calls[3::4]  # first in its round, second in the next
    assert all(a != b for mine in per_contender for a, b in itertools.pairwise(mine))


def test_a_clock_that_drifts_is_said() -> None:
    gpu = RecordingCuda()
    gpu.mhz = lambda reading: 2040 - 15 * reading
    rng = random.Random(2)
    gpu.cost_ms = lambda name: 0.1 * (1 + 0.01 * len(gpu.given("cuLaunchKernel"))) * (1 + 0.001 * rng.random())
    result = run_bench(gpu, "scalar", settings=BenchSettings(rounds=30, warmup=0))
    assert any("the clock drifted by -" in note for note in result.notes)
    assert any("scalar drifted by +" in note for note in result.notes)


@pytest.mark.parametrize(("cost", "why"), [(0.0, "resolution"), (-1.0, "backwards")])
def test_times_that_cannot_be_are_refused(cost: float, why: str) -> None:
    gpu = RecordingCuda()
    gpu.cost_ms = lambda name: cost
    with pytest.raises(BadTiming, match=why):
        run_bench(gpu, "scalar")


def test_a_contender_that_computes_nothing_is_wrong() -> None:
    """It leaves its outputs as they were: NaN, whatever an earlier call left there."""
    gpu = RecordingCuda()
    engine, drawn = CudaGPU(gpu.device()), problems()
    candidate, supports = find_candidate("scalar", task=None)
    contender = KernelContender("idle", engine, candidate, supports.task, drawn[0])
    contender.upload(drawn[0])
    contender.enqueue()
    calls = itertools.count()
    enqueue = contender.enqueue

    def once() -> None:
        if next(calls) < 3:
            enqueue()
        gpu.queue.append(lambda: setattr(gpu, "clock_ms", gpu.clock_ms + 0.1))

    contender.enqueue = once  # type: ignore[method-assign]
    result = bench(engine.device, [contender], drawn, BenchSettings(rounds=12, warmup=0, checked=0))
    assert not result.right and "error inf exceeds" in result.rows[0].wrong


def test_a_fault_ends_the_bench() -> None:
    gpu = RecordingCuda()
    engine, drawn = CudaGPU(gpu.device()), problems()
    candidate, supports = find_candidate("scalar", task=None)
    contender = KernelContender("scalar", engine, candidate, supports.task, drawn[0])
    contender.call = contender.plan.bind({name: 64 for name in contender.plan.arrays})
    with pytest.raises(CudaFailure, match="ILLEGAL_ADDRESS"):
        bench(engine.device, [contender], drawn, BenchSettings(rounds=8, warmup=0))


def test_the_record_is_json_and_complete() -> None:
    gpu = RecordingCuda()
    gpu.cost_ms = costs({"attention": 0.1}, seed=1)
    data = json.loads(json.dumps(record(run_bench(gpu, "scalar", "fa1"))))
    assert data["gpu"] == "stand-in" and data["arch"] == "sm_89" and data["l2"] == "cold"
    assert data["workload"] == f"{SHAPE} f32 none unit_normal"
    assert data["rows"][0]["answer"] == "baseline"
    assert all(row["right"] and len(row["samples_ms"]) == 12 for row in data["rows"])
