"""CTAs with agents that did the same are judged once; one that differs in anything that decides is still judged.

Each kernel is right in every CTA except those whose number in `kinds` says which mistake they make. CTAs, or launches,
in which no mistake is made come first, so that their streams of events are known when the wrong CTA is met.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import weft
from benchmarks.async_races import KERNELS
from weft.core.finding_codes import Severity
from weft.core.records import Binary, Finding
from weft.engines.virtual import VirtualGPU
from weft.kernels import RUNGS
from weft.probes import InitCheck, Probes, RaceCheck, race_review
from weft.vm.program import Plan
from weft.vm.runtime.watch import Instrumentation

CTAS, WRONG = 12, 5
NO_WAIT, NO_FENCE, READ_AFTER_RELEASE, NO_RELEASE_AWAITED, OTHER_MBARRIER, LONGER = range(1, 7)
RING = """
#include "async.cuh"
extern "C" __global__ void kernel(const int* x, const int* kinds, int* y) {
    __shared__ alignas(128) int stage[2][64];
    __shared__ unsigned long long full[2], empty[2];
    const int t = threadIdx.x, kind = kinds[blockIdx.x], rounds = kind == 6 ? 7 : 5;
    if (t == 0)
        for (int s = 0; s < 2; s++) {
            init(&full[s], 1);
            init(&empty[s], 64);
        }
    __syncthreads();
    if (t >= 64) {
        if (t == 64)
#pragma unroll 1
            for (int k = 0; k < rounds; k++) {
                const int s = k % 2, round = k / 2;
                if (round > 0 && !(kind == 4 && k == 3)) wait(&empty[s], round - 1 & 1);
                expect(&full[s], 256);
                load(stage[s], x + 64 * (k + blockIdx.x), 256, &full[s]);
            }
        return;
    }
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < rounds; k++) {
        const int s = k % 2, round = k / 2;
        if (!(kind == 1 && k == 0)) wait(&full[kind == 5 && k == 0 ? 1 - s : s], round & 1);
        if (kind == 3 && k == 2) arrive(&empty[s]);
        sum += stage[s][t];
        if (!(kind == 2 && k == 2)) fence_async();
        if (!(kind == 3 && k == 2)) arrive(&empty[s]);
    }
    y[64 * blockIdx.x + t] = sum;
}
"""
CODES = {
    NO_WAIT: "R104",
    NO_FENCE: "R107",
    READ_AFTER_RELEASE: "R109",
    NO_RELEASE_AWAITED: "R109",
    OTHER_MBARRIER: "R104",
}
LOADED = """
#include "async.cuh"
extern "C" __global__ void kernel(int* x, const int* kinds, int* y) {
    __shared__ alignas(128) int tile[64];
    __shared__ unsigned long long bar;
    __shared__ int other[32], one;
    if (threadIdx.x == 0) one = 0;
    const int t = threadIdx.x, kind = kinds[blockIdx.x];
    if (t == 0) init(&bar, 1);
    __syncthreads();
    if (t == 0) {
        expect(&bar, 256);
        load(tile, kinds + 64, 256, &bar);
    }
    wait(&bar, 0);
    MORE
    __syncthreads();
    y[64 * blockIdx.x + t] = tile[t] + one;
}
"""
VALUES = "one = kind ? t / 32 : 7;"
SOURCES = """
    if (t < 32) {
        int* own = x + 32 * blockIdx.x + t;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(other + t)), "l"(own) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        *(kind ? own : y + 64 * blockIdx.x + t) = 1;
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
"""
GLOBAL_FLAG = "if (t == 0) atomicAdd(x, 1);"


class Unfollowed(RaceCheck):
    """Judges every CTA, whatever others did."""

    def for_launch(self, plan: Plan, ctas: int) -> Instrumentation:
        return self


@dataclass
class Judged:
    """The CTAs that were judged, and the lengths of their logs."""

    ctas: list[int] = field(default_factory=list)
    records: list[int] = field(default_factory=list)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judged]:
    seen, judge = Judged(), race_review.judge_cta

    def counted(log: npt.NDArray[np.void], *args: Any) -> Any:
        seen.ctas.append(int(log["cta"][0]))
        seen.records.append(len(log))
        return judge(log, *args)

    monkeypatch.setattr(race_review, "judge_cta", counted)
    yield seen


def compiled(text: str, folder: Path) -> Binary:
    (folder / "async.cuh").write_text((KERNELS / "async.cuh").read_text())
    path = folder / "kernel.cu"
    path.write_text(text)
    return weft.compile_cuda(path, entries=["kernel"], arch="sm_90a")


class Launcher:
    """Launches a kernel with kinds of CTAs; one GPU, so that the kernel is the same."""

    def __init__(self, text: str, folder: Path, schedule: int = 0) -> None:
        self.binary, self.gpu = compiled(text, folder), VirtualGPU("h100", schedule=schedule)
        self.threads = 96 if text == RING else 64

    def __call__(
        self, wrong: dict[int, int] | None = None, ctas: int = CTAS, watch: Instrumentation | None = None
    ) -> tuple[Finding, ...]:
        kinds = np.zeros(max(ctas, 128), np.int32)
        for cta, kind in (wrong or {}).items():
            kinds[cta] = kind
        args = [np.arange(64 * (ctas + 8), dtype=np.int32), kinds, np.zeros(64 * ctas, np.int32)]
        return self.gpu.launch(self.binary, "kernel", ctas, self.threads, args, watch=watch or RaceCheck()).findings


@pytest.mark.parametrize("schedule", (0, 1, 2))
@pytest.mark.parametrize("kind", CODES)
def test_one_cta_that_skips_one_step_is_found(kind: int, schedule: int, tmp_path: Path) -> None:
    launch = Launcher(RING, tmp_path, schedule)
    assert launch() == ()
    for findings in (launch({WRONG: kind}), launch({WRONG: kind})):
        assert {each.cta for each in findings} == {(WRONG, 0, 0)}
        assert CODES[kind] in {each.code for each in findings}
        assert findings == launch({WRONG: kind}, watch=Unfollowed())
    assert launch() == ()


def test_every_wrong_cta_counts(tmp_path: Path) -> None:
    """The same mistake in three CTAs: three times as many pairs of warps as in one."""
    launch = Launcher(RING, tmp_path)
    one, three = launch({WRONG: NO_WAIT}), launch(dict.fromkeys((2, WRONG, 11), NO_WAIT))
    assert {each.cta for each in three} == {(2, 0, 0)}
    assert [(each.code, each.count) for each in three] == [(each.code, 3 * each.count) for each in one] != []


def test_ctas_that_do_the_same_are_judged_once(judged: Judged, tmp_path: Path) -> None:
    launch = Launcher(RING, tmp_path)
    launch()
    assert len(judged.ctas) == 1
    launch()
    launch(ctas=30)
    assert len(judged.ctas) == 1, "a later launch repeats nothing"
    launch({3: LONGER, 4: LONGER, 7: LONGER})
    assert len(judged.ctas) == 2 and judged.ctas[1] in (3, 4, 7)
    launch({3: LONGER, WRONG: NO_WAIT})
    assert judged.ctas[2:] == [WRONG]
    launch({3: LONGER, WRONG: NO_WAIT})
    assert judged.ctas[3:] == [WRONG], "a CTA with a race clears no other"


def test_with_other_checkers_too(judged: Judged, tmp_path: Path) -> None:
    launch = Launcher(RING, tmp_path)
    assert launch(watch=Probes(InitCheck(), RaceCheck())) == () and len(judged.ctas) == 1
    findings = launch({WRONG: NO_WAIT}, watch=Probes(InitCheck(), RaceCheck()))
    assert ("R104", (WRONG, 0, 0)) in {(each.code, each.cta) for each in findings}
    assert judged.ctas[1:] == [WRONG]


def test_the_cost_does_not_grow_with_the_grid(judged: Judged, tmp_path: Path) -> None:
    """Records that are judged: those of one CTA, whether there are 4 CTAs or 64."""
    few, many = Launcher(RING, tmp_path), Launcher(RING, tmp_path)
    few(ctas=4)
    many(ctas=64)
    assert len(judged.records) == 2 and judged.records[0] == judged.records[1] > 0


def test_what_a_cta_stores_still_decides(judged: Judged, tmp_path: Path) -> None:
    """Two warps store to one place: harmless if the value is the same, which the stream of events does not show."""
    launch = Launcher(LOADED.replace("MORE", VALUES), tmp_path)
    assert launch() == () and len(judged.ctas) == CTAS
    (finding,) = launch({WRONG: 1})
    assert (finding.code, finding.level, finding.cta) == ("R101", Severity.ERROR, (WRONG, 0, 0))


def test_a_source_of_copies_that_one_cta_overwrites_is_found(judged: Judged, tmp_path: Path) -> None:
    """The CTAs differ in the global address of one store, which the stream of events does not show."""
    launch = Launcher(LOADED.replace("MORE", SOURCES), tmp_path)
    assert launch() == () and len(judged.ctas) == 1
    found = {each.code: each.cta for each in launch({WRONG: 1}) if each.level is Severity.ERROR}
    assert found.get("R105") == (WRONG, 0, 0)


def test_ctas_that_synchronise_through_global_memory_are_all_judged(judged: Judged, tmp_path: Path) -> None:
    """Whether two of its accesses are at one address decides, and the stream of events does not show it."""
    launch = Launcher(LOADED.replace("MORE", GLOBAL_FLAG), tmp_path)
    for number in (1, 2):
        assert launch() == () and len(judged.ctas) == number * CTAS


def test_hopper_attention_is_judged_once(judged: Judged) -> None:
    """32 CTAs do the same, in two launches with other numbers."""
    kernel = weft.load(RUNGS["hopper_tma"].path)
    gpu, rng = VirtualGPU(kernel.gpu), np.random.default_rng(1)
    for _ in range(2):
        arrays = {name: rng.standard_normal((1, 8, 512, 64)).astype(np.float16) for name in "qkv"}
        assert kernel.run(gpu, arrays, watch=RaceCheck()).run.findings == ()
    assert len(judged.ctas) == 1
