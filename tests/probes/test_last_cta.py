"""The last CTA resets a counter by a plain store: clean where its ticket observed the others, R101 where not.

The PTX memory model orders an observed write before everything after the read that observed it, with or without a fence
(`weft/probes/observation.py`). What the other CTAs did before their atomic still needs one.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest

import weft
from weft.core.records import Binary, Finding
from weft.probes import Probes, RaceCheck
from weft.probes.observation import Observation, StrongAccess

TICKET = r"""
#include <cooperative_groups.h>
__device__ unsigned count;

__device__ unsigned relaxed(unsigned* p) {
    unsigned v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ void relaxed(unsigned* p, unsigned v) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory");
}

enum Op { INC, ADD, CAS };
enum Reset { NONE, BY_LAST, BY_ANOTHER_THREAD, BY_EXCHANGE, TWICE };

template <Op OP> __device__ unsigned take() {
    if (OP == INC) return atomicInc(&count, 2 * gridDim.x);
    if (OP == ADD) return atomicAdd(&count, 1u);
    unsigned found = count, expected;
    do found = atomicCAS(&count, expected = found, found + 1); while (found != expected);
    return found;
}

template <Op OP, Reset RESET, bool FENCE> __global__ void last_cta(const float* x, float* partial, float* out) {
    namespace cg = cooperative_groups;
    cg::thread_block cta = cg::this_thread_block();
    __shared__ bool is_last;
    const int t = threadIdx.x;
    for (int i = t; i < 64; i += 64) partial[64 * blockIdx.x + i] = x[64 * blockIdx.x + i];
    if (FENCE) __threadfence();
    cta.sync();
    if (t == 0) is_last = take<OP>() == gridDim.x - 1;
    cta.sync();
    if (!is_last) return;
    float sum = 0;
    for (int i = 0; i < gridDim.x; ++i) sum += partial[64 * i + 63 - t];
    out[t] = sum;
    if (RESET == BY_LAST && t == 0) count = 0;
    if (RESET == BY_ANOTHER_THREAD && t == 33) count = 0;
    if (RESET == BY_EXCHANGE && t == 0) { atomicExch(&count, 5u); count = 0; }
    if (RESET == TWICE && t < 2) { if (t == 0) count = 1; __syncwarp(3); if (t == 1) count = 0; }
}

// Wrong: the result of the atomic is not used, so the order of the CTAs is unknown.
__global__ void unused() {
    if (threadIdx.x == 0) {
        atomicAdd(&count, 1u);
        if (blockIdx.x == gridDim.x - 1) count = 0;
    }
}
// Wrong: the scope of the atomic does not include the other CTAs.
__global__ void narrow(unsigned* o) {
    unsigned ticket;
    if (threadIdx.x == 0) {
        asm volatile("atom.relaxed.cta.global.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(&count) : "memory");
        if (ticket == gridDim.x - 1) count = 0;
    }
}
// Wrong: the store before its own ticket.
__global__ void before(unsigned* o) {
    if (threadIdx.x == 0) {
        if (blockIdx.x == gridDim.x - 1) count = 0;
        o[blockIdx.x] = atomicAdd(&count, 1u);
    }
}
// CTA 2 reads what CTA 1 stored; that does not observe the atomic of CTA 0.
__global__ void overwritten(unsigned* o) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) atomicAdd(&count, 1u);
    if (blockIdx.x == 1) relaxed(&count, 7);
    if (blockIdx.x == 2 && relaxed(&count) == 7) count = 0;
}
// CTA 1 has observed what CTA 0 did before it stored, so CTA 2 observes both.
__global__ void passed_on(unsigned* o) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) atomicAdd(&count, 1u);
    if (blockIdx.x == 1 && relaxed(&count) == 1) relaxed(&count, 7);
    if (blockIdx.x == 2 && relaxed(&count) == 7) count = 0;
}
// A counter for each pair of CTAs.
__global__ void pairs(unsigned* counts) {
    if (threadIdx.x == 0 && atomicAdd(&counts[blockIdx.x / 2], 1u) == 1) counts[blockIdx.x / 2] = 0;
}
// Warps of one CTA, a counter in shared memory.
__global__ void last_warp(unsigned* o) {
    __shared__ unsigned done;
    if (threadIdx.x == 0) done = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0 && atomicAdd(&done, 1u) == blockDim.x / 32 - 1) done = 9;
    __syncthreads();
    o[threadIdx.x % 3] = done;
}
__global__ void first_warp(unsigned* o) {
    __shared__ unsigned done;
    if (threadIdx.x == 0) done = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0 && atomicAdd(&done, 1u) == 0) done = 9;
    __syncthreads();
    o[threadIdx.x % 3] = done;
}
"""
OPS, RESETS = ("INC", "ADD", "CAS"), ("NONE", "BY_LAST", "BY_ANOTHER_THREAD", "BY_EXCHANGE", "TWICE")
SMALL = ("unused", "narrow", "before", "overwritten", "passed_on", "pairs", "last_warp", "first_warp")
SCHEDULES = (0, 1, 2)


def entry(op: str, reset: str, *, fence: bool) -> str:
    return f"last_cta<{op}, {reset}, {str(fence).lower()}>"


@cache
def binary() -> Binary:
    pairs = product(OPS, RESETS, (False, True))
    return weft.compile_cuda(TICKET, name="ticket.cu", entries=[*SMALL, *(entry(o, r, fence=f) for o, r, f in pairs)])


def last_cta(name: str, schedule: int) -> tuple[Finding, ...]:
    gpu, grid = weft.VirtualGPU(threads=1, schedule=schedule), 6
    x = np.arange(64 * grid, dtype=np.float32)
    partial, out = np.zeros_like(x), np.zeros(64, np.float32)
    run = gpu.launch(
        binary(), name, grid, 64, [x, partial, out], names=["x", "partial", "out"], watch=Probes(RaceCheck())
    )
    np.testing.assert_array_equal(out, x.reshape(grid, 64).sum(axis=0)[::-1])
    return run.findings


def small(name: str, schedule: int, grid: int) -> list[str]:
    gpu = weft.VirtualGPU(threads=1, schedule=schedule)
    args = [] if name == "unused" else [np.zeros(max(grid, 3), np.uint32)]
    return [finding.code for finding in gpu.launch(binary(), name, grid, 64, args, watch=RaceCheck()).findings]


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("op", ("INC", "ADD"))
def test_the_last_cta_may_reset_the_counter(op: str, reset: str) -> None:
    for schedule in SCHEDULES:
        assert last_cta(entry(op, reset, fence=True), schedule) == ()


def test_any_number_of_counters_may_be_reset() -> None:
    assert small("pairs", 0, 2 * 300) == []


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("op", ("INC", "ADD"))
def test_without_a_fence_the_partial_results_race_and_the_counter_does_not(op: str, reset: str) -> None:
    for schedule in SCHEDULES:
        found = last_cta(entry(op, reset, fence=False), schedule)
        assert {(finding.code, finding.name) for finding in found} == {("R102", "partial")}


def test_a_plain_read_of_the_counter_is_a_race() -> None:
    """A compare-and-swap may start with a plain read: nothing orders it with the writes of others."""
    for schedule in SCHEDULES:
        found = last_cta(entry("CAS", "BY_LAST", fence=True), schedule)
        assert {(finding.code, finding.name) for finding in found} == {("R102", "count"), ("R103", "count")}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["unused", "narrow", "before"])
def test_a_cta_that_did_not_observe_the_others_may_not_reset_it(name: str, schedule: int) -> None:
    assert "R101" in small(name, schedule, 5)


def test_a_store_ends_a_chain_unless_its_thread_knew_it() -> None:
    assert small("overwritten", 0, 3) == ["R101"]
    # Not R101. Nothing publishes that CTA 1 has read: observation is about writes.
    assert small("passed_on", 0, 3) == ["R103"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warps_and_shared_memory_too(schedule: int) -> None:
    assert "R101" not in small("last_warp", schedule, 1)
    assert "R101" in small("first_warp", schedule, 1)


# -- chains against sets ----------------------------------------------------------------------------------------------


def sets(script: Sequence[tuple[int, str]], threads: int) -> list[set[int]]:
    """Return which writes of one place each thread knows at the end, as sets of positions in the script."""
    knows: list[set[int]] = [set() for _ in range(threads)]
    chain: set[int] = set()
    for number, (thread, verb) in enumerate(script):
        if verb == "meet":
            knows[thread] |= knows[(thread + 1) % threads]
        if verb in ("read", "modify"):
            knows[thread] |= chain
        if verb == "modify" or (verb in ("reduce", "store", "hidden") and chain <= knows[thread]):
            keeps = set(chain)
        else:
            keeps = set(chain) if verb == "reduce" else set()
        if verb in ("modify", "reduce", "store"):
            chain = keeps | {number}
            knows[thread] |= {number} if verb != "reduce" or keeps <= knows[thread] else set()
        elif verb == "hidden":
            chain = keeps
    return knows


@pytest.mark.parametrize("seed", range(20))
def test_chains_contain_nothing_that_sets_do_not(seed: int) -> None:
    rng, threads, spot = np.random.default_rng(seed), 4, (-1, 0x100)
    verbs = ["read", "modify", "reduce", "store", "hidden", "meet"]
    weights = rng.dirichlet(np.ones(len(verbs)))
    script = [(int(rng.integers(threads)), str(rng.choice(verbs, p=weights))) for _ in range(60)]
    observation, rows = Observation([spot], threads), [np.full(threads + 1, -1, np.int32) for _ in range(threads)]
    for number, (thread, verb) in enumerate(script):
        if verb == "meet":
            rows[thread] = np.maximum(rows[thread], rows[(thread + 1) % threads])
            continue
        writes, modifies = verb != "read", verb in ("modify", "reduce")
        access = StrongAccess(spot, number, 0, verb in ("read", "modify"), writes, modifies, verb != "hidden")
        after = observation.after(access, rows[thread])
        rows[thread] = rows[thread] if after is None else after
    positions = {found[1]: at for (at, _), found in observation.writes.items()}
    for row, expected in zip(rows, sets(script, threads), strict=True):
        last = int(row[threads])
        known = range(observation.starts[last], last + 1) if last >= 0 else ()
        assert {positions[number] for number in known} <= expected


def test_the_last_ticket_knows_the_entire_chain() -> None:
    observation, spot = Observation([(-1, 8)], 0), (-1, 8)
    row = np.full(1, -1, np.int32)
    for number in range(5):
        after = observation.after(StrongAccess(spot, number, 0, True, True, True, True), np.full(1, -1, np.int32))
        assert after is not None
        row = after
    assert (observation.starts[int(row[0])], int(row[0])) == (0, 4)
