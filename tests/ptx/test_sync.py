"""Barriers, fences, atomics, votes, matches, reductions and shuffles on every engine."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.in_turn import one_in
from tests.ptx.harness import ENGINES, Array, check_body, random_values
from weft.ptx.module import WIDTH

N = 1024
LANE = np.arange(N) % 32
WARP_START = np.arange(N) - LANE
TYPES = {
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
    "exch": "b32 b64",
    "add": "u32 s32 u64 f32 f64",
    "inc": "u32",
    "dec": "u32",
    "min": "u32 s32 u64 s64",
    "max": "u32 s32 u64 s64",
    "cas": "b16 b32 b64",
    "add.noftz": "f16 f16x2 bf16 bf16x2",
}
OPERATIONS = [(op, t) for op, types in TYPES.items() for t in types.split()]
OPERATION_FIRST = [
    "atom.add.gpu.u32",
    *(f"atom.{op}.acquire.gpu.{t}" for op, t in OPERATIONS if op not in ("inc", "dec", "add.noftz")),
]
_LAST = {op: types.split()[-1] for op, types in TYPES.items()}
SPACE_FIRST = [
    *(f"atom.global.gpu.acq_rel.{op}.{t}" for op, t in _LAST.items() if op != "cas"),
    *(f"atom.global.acq_rel.gpu.cas.{t}" for t in TYPES["cas"].split()),
    *(f"red.global.gpu.relaxed.{op}.{t}" for op, t in _LAST.items() if op not in ("exch", "cas")),
    "atom.global.gpu.acq_rel.add.f32",
    "atom.shared.cta.relaxed.add.u32",
]
"""The order of modifiers in which Triton writes atomics; ptxas accepts any."""
ATOMICS = [
    *(f"atom.{space}.{op}.{t}" for space in ("global", "shared") for op, t in OPERATIONS),
    *(f"red.{space}.{op}.{t}" for space in ("global", "shared") for op, t in OPERATIONS if op not in ("exch", "cas")),
    "atom.add.u32",
    "red.max.s32",
    *OPERATION_FIRST,
    *SPACE_FIRST,
    "atom.shared::cta.add.u32",
    "red.shared::cta.add.u32",
    *(
        f"{name}.{order}.{scope}.global.add.u32"
        for name in ("atom", "red")
        for order in ["relaxed", "acquire", "release", "acq_rel"]
        for scope in ["cta", "cluster", "gpu", "sys"]
    ),
]
BARRIERS = [
    "bar.sync",
    "bar.cta.sync",
    "bar.arrive",
    "bar.cta.arrive",
    "bar.red.popc.u32",
    "bar.cta.red.popc.u32",
    "barrier.red.popc.u32",
    "barrier.cta.red.popc.aligned.u32",
    "barrier.red.and.pred",
    "barrier.cta.red.or.aligned.pred",
    "bar.red.and.pred",
    "bar.red.or.pred",
    "barrier.sync",
    "barrier.cta.sync.aligned",
    "barrier.sync.aligned",
    "barrier.arrive",
    "barrier.cta.arrive.aligned",
    "bar.warp.sync",
]
FENCES = [
    *(f"membar.{level}" for level in ("cta", "gl", "sys")),
    "fence.proxy.alias",
    "fence.proxy.async",
    *(f"fence.proxy.async.{space}" for space in ("global", "shared::cta", "shared::cluster")),
    "fence.proxy.tensormap::generic.release.gpu",
    "fence.mbarrier_init.release.cluster",
    *(f"fence{order}.{scope}" for order in ("", ".sc", ".acq_rel") for scope in ["cta", "cluster", "gpu", "sys"]),
]
REDUX = [
    *(f"redux.sync.{op}.{t}" for op in ("add", "min", "max") for t in ("u32", "s32")),
    *(f"redux.sync.{op}.b32" for op in ("and", "or", "xor")),
]
VOTES = ["vote.sync.all.pred", "vote.sync.any.pred", "vote.sync.uni.pred", "vote.sync.ballot.b32"]
MATCHES = ["match.any.sync.b32", "match.any.sync.b64", "match.all.sync.b32", "match.all.sync.b64"]
LATER = ["elect.sync", "fence.proxy.tensormap::generic.acquire.gpu"]
"""Run by test_small_forms_of_sm_90.py."""
SHUFFLES = [f"shfl.sync.{mode}.b32" for mode in ("up", "down", "bfly", "idx")]
OPCODES = [*ATOMICS, *BARRIERS, *FENCES, *REDUX, *VOTES, *MATCHES, "activemask.b32", *SHUFFLES, *LATER]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(23)


# -- warp collectives --------------------------------------------------------------------------------------------


def _by_warp(values: Array) -> Array:
    return values.reshape(-1, 32)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("form", ["registers", "immediates"])
def test_shfl(mode: str, form: str, rng: np.random.Generator) -> None:
    """Every distance and every segment width, by CUDA's definition of __shfl_*_sync(value, distance, width)."""
    a = random_values("b32", N, rng)
    width = 2 ** (np.arange(N) // 32 % 6).astype(np.uint32)
    distance = (
        rng.integers(0, 32, N // 32).repeat(32).astype(np.uint32)
        if mode != "idx"
        else rng.integers(0, 64, N).astype(np.uint32)
    )
    if form == "immediates":
        width, distance = np.full(N, 8, np.uint32), np.full(N, 5, np.uint32)
    segment_start = LANE // width * width
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    operands = "5, 0x1800" if mode == "up" else "5, 0x181f"
    operands = "%b, %c" if form == "registers" else operands
    ran = check_body(
        f"shfl.sync.{mode}.b32 %d|%p, %a, {operands}, 0xffffffff; shfl.sync.{mode}.b32 %e, %a, {operands}, -1;",
        {"a": ("b32", a), "b": ("b32", distance), "c": ("b32", clamp.astype(np.uint32))},
        {"d": "b32", "e": "b32", "p": "pred"},
    )
    step = (distance & 31).astype(np.int64)
    wanted = {
        "up": LANE - step,
        "down": LANE + step,
        "bfly": LANE ^ step,
        "idx": segment_start + step % width,
    }[mode]
    if mode == "up":
        valid = wanted >= segment_start
    else:
        valid = wanted < segment_start + width
    source = WARP_START + np.where(valid, wanted, LANE)
    np.testing.assert_array_equal(ran.outputs["p"].astype(bool), valid)
    np.testing.assert_array_equal(ran.outputs["d"], a[source])
    np.testing.assert_array_equal(ran.outputs["e"], a[source])


def test_shfl_of_a_uniform_value() -> None:
    ran = check_body("mov.u32 %t0, %ctaid.x; shfl.sync.bfly.b32 %d, %t0, 1, 31, -1;", {}, {"d": "b32"}, n=N)
    np.testing.assert_array_equal(ran.outputs["d"], np.arange(N) // 128)


@pytest.mark.parametrize("members", [0xFFFFFFFF, 0x0000FFFF, 0x80000001])
def test_vote(members: int, rng: np.random.Generator) -> None:
    p = rng.integers(0, 2, N).astype(bool)
    p[:32], p[32:64] = True, False
    inside = (members >> LANE & 1).astype(bool)
    body = "\n".join(f"@%in vote.sync.{mode}.pred %{mode}, %p, {members:#x};" for mode in ("all", "any", "uni"))
    ran = check_body(
        body + f"\n@%in vote.sync.ballot.b32 %ballot, %p, {members:#x};",
        {"p": ("pred", p), "in": ("pred", inside)},
        {"all": "pred", "any": "pred", "uni": "pred", "ballot": "b32"},
    )
    for start in range(0, N, 32):
        votes = p[start : start + 32][inside[:32]]
        expected = {"all": votes.all(), "any": votes.any(), "uni": votes.all() or not votes.any()}
        for mode, answer in expected.items():
            assert (ran.outputs[mode][start : start + 32][inside[:32]] == answer).all(), (mode, start)
        ballot = sum(1 << lane for lane in range(32) if p[start + lane] and inside[lane])
        assert (ran.outputs["ballot"][start : start + 32][inside[:32]] == ballot).all()
    assert (ran.outputs["ballot"][~inside] == 0x5A5A5A5A).all()


@pytest.mark.parametrize("ptx_type", ["b32", "b64"])
def test_match(ptx_type: str, rng: np.random.Generator) -> None:
    a = rng.integers(0, 4, N).astype(f"uint{WIDTH[ptx_type]}")
    if ptx_type == "b64":
        a <<= 33  # differ in the high half only
    a[:32] = a[0]
    ran = check_body(
        f"match.any.sync.{ptx_type} %d, %a, -1; match.all.sync.{ptx_type} %e|%p, %a, -1; "
        f"match.all.sync.{ptx_type} %f, %a, -1;",
        {"a": (ptx_type, a)},
        {"d": "b32", "e": "b32", "f": "b32", "p": "pred"},
    )
    for start in range(0, N, 32):
        group = a[start : start + 32].tolist()
        expected = [sum(1 << j for j in range(32) if group[j] == mine) for mine in group]
        assert ran.outputs["d"][start : start + 32].tolist() == expected
        same = len(set(group)) == 1
        for name in "ef":
            assert (ran.outputs[name][start : start + 32] == (0xFFFFFFFF if same else 0)).all()
        assert (ran.outputs["p"][start : start + 32] == same).all()


_FOLD: dict[str, Callable[[list[int]], int]] = {
    "add": sum,
    "min": min,
    "max": max,
    "and": lambda v: int(np.bitwise_and.reduce(v)),
    "or": lambda v: int(np.bitwise_or.reduce(v)),
    "xor": lambda v: int(np.bitwise_xor.reduce(v)),
}


@pytest.mark.parametrize("opcode", REDUX)
@pytest.mark.parametrize("members", [0xFFFFFFFF, 0x00FF00FF])
def test_redux(opcode: str, members: int, rng: np.random.Generator) -> None:
    _, _, op, ptx_type = opcode.split(".")
    a = random_values(ptx_type, N, rng)
    inside = (members >> LANE & 1).astype(bool)
    ran = check_body(f"@%in {opcode} %d, %a, {members:#x};", {"a": (ptx_type, a), "in": ("pred", inside)}, {"d": "b32"})
    for start in range(0, N, 32):
        expected = _FOLD[op](a[start : start + 32][inside[:32]].tolist()) & 0xFFFFFFFF
        assert (ran.outputs["d"][start : start + 32][inside[:32]] == expected).all()


def test_activemask_and_bar_warp_sync_in_a_divergent_branch() -> None:
    body = """and.b32 %t0, %tid, 3;
      setp.ne.u32 %odd, %t0, 0;
      @%odd bra OTHER;
      activemask.b32 %d;
      bar.warp.sync 0x11111111;
      vote.sync.ballot.b32 %e, %every, 0x11111111;
      bra JOIN;
      OTHER: activemask.b32 %d;
      bar.warp.sync 0xeeeeeeee;
      vote.sync.ballot.b32 %e, %every, 0xeeeeeeee;
      JOIN: bar.warp.sync 0xffffffff;"""
    ran = check_body(
        body, {"every": ("pred", np.ones(N, bool))}, {"d": "b32", "e": "b32"}, declarations=".reg .pred %odd;"
    )
    expected = np.where(LANE % 4 == 0, 0x11111111, 0xEEEEEEEE)
    np.testing.assert_array_equal(ran.outputs["d"], expected)
    np.testing.assert_array_equal(ran.outputs["e"], expected)


def test_collectives_of_two_groups_at_one_instruction() -> None:
    """Halves of a warp with different member masks meet separately at the same shuffle."""
    body = """and.b32 %t0, %tid, 16; setp.ne.u32 %hi, %t0, 0;
      selp.b32 %t1, 0xffff0000, 0x0000ffff, %hi;
      shfl.sync.bfly.b32 %d, %tid, 1, 31, %t1;
      vote.sync.ballot.b32 %e, %hi, %t1;"""
    ran = check_body(body, {}, {"d": "b32", "e": "b32"}, declarations=".reg .pred %hi;", n=N)
    np.testing.assert_array_equal(ran.outputs["d"], np.arange(N) ^ 1)
    np.testing.assert_array_equal(ran.outputs["e"], np.where(LANE < 16, 0, 0xFFFF0000))


def test_redux_and_match_of_groups_at_one_instruction(rng: np.random.Generator) -> None:
    """Lanes with different member masks are different groups, as cg::labeled_partition makes them."""
    a = rng.integers(0, 4, N, dtype=np.uint32)
    body = """rem.u32 %t0, %tid, 5; match.any.sync.b32 %t1, %t0, 0xffffffff;
      redux.sync.add.u32 %d, %a, %t1; match.any.sync.b32 %e, %a, %t1; match.all.sync.b32 %t2|%same, %t0, %t1;
      selp.b32 %f, %t2, 0, %same;"""
    outputs = {"d": "b32", "e": "b32", "f": "b32"}
    ran = check_body(body, {"a": ("u32", a)}, outputs, declarations=".reg .pred %same;", n=N)
    for thread in range(N):
        group = [t for t in range(N) if t // 32 == thread // 32 and t % 5 == thread % 5]
        assert ran.outputs["d"][thread] == a[group].sum()
        assert ran.outputs["e"][thread] == sum(1 << t % 32 for t in group if a[t] == a[thread])
        assert ran.outputs["f"][thread] == sum(1 << t % 32 for t in group)


# -- CTA barriers ------------------------------------------------------------------------------------------------

SHARED = ".shared .align 8 .b8 box[2048];"
ADDRESS = "mov.u32 %t0, %tid.x; shl.b32 %t1, %t0, 2; mov.u32 %t2, box; add.u32 %t1, %t1, %t2;"


@pytest.mark.parametrize(
    "sync",
    [
        "bar.sync 0",
        "bar.cta.sync 3",
        "bar.sync 1, 128",
        "barrier.sync 15",
        "barrier.cta.sync.aligned 2, 128",
        "barrier.sync.aligned 0",
        "bar.sync %t9",
    ],
)
def test_barrier_orders_shared_memory(sync: str) -> None:
    """Every thread reads what the thread of the opposite warp wrote."""
    body = f"""{ADDRESS}
      mov.u32 %t9, 4;
      st.shared.b32 [%t1], %tid;
      {sync};
      xor.b32 %t3, %t0, 127; shl.b32 %t3, %t3, 2; add.u32 %t3, %t3, %t2;
      ld.shared.b32 %d, [%t3];"""
    ran = check_body(body, {}, {"d": "b32"}, module_scope=SHARED, n=N)
    np.testing.assert_array_equal(ran.outputs["d"], np.arange(N) ^ 127)
    assert not ran.findings


@pytest.mark.parametrize("cta", ["", ".cta"])
def test_bar_red(cta: str, rng: np.random.Generator) -> None:
    p = rng.integers(0, 2, N).astype(bool)
    p[:128], p[128:256] = True, False
    body = f"""bar{cta}.red.popc.u32 %d, 0, %p;
      bar{cta}.red.and.pred %a, 1, %p;
      bar{cta}.red.or.pred %o, 0, !%p;
      bar{cta}.red.or.pred %q, 0, %p;"""
    ran = check_body(body, {"p": ("pred", p)}, {"d": "b32", "a": "pred", "o": "pred", "q": "pred"})
    votes = p.reshape(-1, 128)
    np.testing.assert_array_equal(ran.outputs["d"], votes.sum(1).repeat(128))
    np.testing.assert_array_equal(ran.outputs["a"], votes.all(1).repeat(128))
    np.testing.assert_array_equal(ran.outputs["o"], (~votes).any(1).repeat(128))
    np.testing.assert_array_equal(ran.outputs["q"], votes.any(1).repeat(128))


@pytest.mark.parametrize(("bar", "aligned"), [("bar", ""), ("barrier", ""), ("barrier.cta", ".aligned")])
def test_bar_red_over_half_the_warps(bar: str, aligned: str, rng: np.random.Generator) -> None:
    """Each pair of warps has its own barrier, for 64 threads."""
    p = rng.integers(0, 2, N).astype(bool)
    p[:64], p[64:128] = True, False
    body = f"""mov.u32 %t0, %tid.x; shr.u32 %t1, %t0, 6; add.u32 %t1, %t1, 3;
      {bar}.red.popc{aligned}.u32 %d, %t1, 64, %p;
      {bar}.red.and{aligned}.pred %a, %t1, 64, %p;
      {bar}.red.or{aligned}.pred %o, %t1, 64, !%p;"""
    ran = check_body(body, {"p": ("pred", p)}, {"d": "b32", "a": "pred", "o": "pred"})
    votes = p.reshape(-1, 64)
    np.testing.assert_array_equal(ran.outputs["d"], votes.sum(1).repeat(64))
    np.testing.assert_array_equal(ran.outputs["a"], votes.all(1).repeat(64))
    np.testing.assert_array_equal(ran.outputs["o"], (~votes).any(1).repeat(64))
    assert not ran.findings


@pytest.mark.parametrize(
    ("arrive", "wait"),
    [
        ("bar.arrive", "bar.sync"),
        ("bar.cta.arrive", "bar.cta.sync"),
        ("barrier.arrive", "barrier.sync"),
        ("barrier.cta.arrive.aligned", "barrier.cta.sync.aligned"),
    ],
)
def test_producer_and_consumer_warps_over_named_barriers(arrive: str, wait: str) -> None:
    """Warps 0-1 write three rounds and only arrive at `full`; warps 2-3 wait, read, and arrive at `empty`."""
    body = f"""{ADDRESS}
      mov.b32 %d, 0; mov.b32 %t5, 0;
      setp.ge.u32 %consumer, %t0, 64;
      @%consumer bra CONSUME;
      PRODUCE: mad.lo.u32 %t6, %t5, 1000, %t0;
      st.shared.b32 [%t1], %t6;
      {arrive} 1, 128;
      {wait} 2, 128;
      add.u32 %t5, %t5, 1; setp.lt.u32 %more, %t5, 3;
      @%more bra PRODUCE;
      bra DONE;
      CONSUME: {wait} 1, 128;
      ld.shared.b32 %t6, [%t1+-256];
      add.u32 %d, %d, %t6;
      {arrive} 2, 128;
      add.u32 %t5, %t5, 1; setp.lt.u32 %more, %t5, 3;
      @%more bra CONSUME;
      DONE:"""
    ran = check_body(body, {}, {"d": "b32"}, declarations=".reg .pred %consumer, %more;", module_scope=SHARED, n=N)
    thread = np.arange(N) % 128
    np.testing.assert_array_equal(ran.outputs["d"], np.where(thread < 64, 0, 3000 + 3 * (thread - 64)))
    assert not ran.findings


def test_exited_threads_no_longer_count_at_a_barrier() -> None:
    """Entire warps and single lanes exit before the barrier; the rest pass it."""
    body = f"""{ADDRESS}
      mov.b32 %d, 7;
      rem.u32 %t3, %t0, 5;
      setp.eq.u32 %gone, %t3, 0;
      setp.ge.u32 %late, %t0, 96;
      or.pred %gone, %gone, %late;
      @%gone exit;
      st.shared.b32 [%t1], 1;
      bar.sync 0;
      ld.shared.b32 %d, [%t1];"""
    ran = check_body(body, {}, {"d": "b32"}, declarations=".reg .pred %gone, %late;", module_scope=SHARED, n=N)
    thread = np.arange(N) % 128
    np.testing.assert_array_equal(ran.outputs["d"], np.where((thread % 5 == 0) | (thread >= 96), 0, 1))
    assert not ran.findings


def test_block_that_is_no_multiple_of_a_warp() -> None:
    body = f"""{ADDRESS}
      st.shared.b32 [%t1], %t0;
      bar.sync 0;
      bar.red.popc.u32 %d, 0, %every;
      vote.sync.ballot.b32 %e, %every, -1;
      bar.sync 1, 64;"""
    ran = check_body(
        body, {"every": ("pred", np.ones(20 * 50, bool))}, {"d": "b32", "e": "b32"}, module_scope=SHARED, block=50
    )
    thread = np.arange(1000) % 50
    assert (ran.outputs["d"] == 50).all()
    np.testing.assert_array_equal(ran.outputs["e"], np.where(thread < 32, 0xFFFFFFFF, (1 << 18) - 1))
    assert not ran.findings


def test_a_barrier_that_no_other_warp_reaches_is_a_deadlock() -> None:
    body = "setp.ge.u32 %most, %tid, 32; @%most bra END; bar.sync 1, 128; END:"
    ran = check_body(body, {}, {"d": "b32"}, declarations=".reg .pred %most;", n=128)
    assert {f.code for f in ran.findings} == {"S301"}


STUCK = """and.b32 %t0, %tid, 1; setp.eq.u32 %even, %t0, 0;
  @!%even bra WAIT;
  shfl.sync.bfly.b32 %d, %tid, 1, 31, -1;
  bra END;
  WAIT: bar.sync 0;
  END:"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_collective_that_a_member_never_reaches_is_a_deadlock(engine: str) -> None:
    """Run in a separate process: an engine that misses it would block the entire session."""
    code = (
        "from tests.ptx.harness import kernel, launch\n"
        "from tests.ptx.test_sync import STUCK\n"
        "made = kernel(STUCK, {}, {'d': 'b32'}, declarations='.reg .pred %even;')\n"
        f"print(*sorted({{f.code for f in launch(made, {{}}, engine={engine!r}, n=128).findings}}))"
    )
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout.split() == ["S301"], ran.stderr


def test_fences_change_nothing() -> None:
    body = "\n".join(f"{opcode};" for opcode in FENCES)
    ran = check_body(
        f"st.shared.b32 [box], 5;\n{body}\nld.shared.b32 %d, [box];", {}, {"d": "b32"}, module_scope=SHARED, n=N
    )
    assert (ran.outputs["d"] == 5).all()


# -- atomics -----------------------------------------------------------------------------------------------------

_FLOAT = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def _dtype(ptx_type: str) -> Any:
    if ptx_type in _FLOAT:
        return _FLOAT[ptx_type]
    return f"{'int' if ptx_type[0] == 's' else 'uint'}{WIDTH[ptx_type]}"


def _apply(op: str, a: Any, b: Any, c: Any, ptx_type: str) -> Any:
    """Compute one atomic by hand, on Python numbers where they are exact."""
    if op.startswith("add"):
        if ptx_type in ("f16x2", "bf16x2"):
            pair = np.array([a, b], np.uint32).view(_FLOAT[ptx_type[:-2]]).reshape(2, 2)
            return (pair[0] + pair[1]).view(np.uint32)[0]
        return a + b
    match op:
        case "and":
            return a & b
        case "or":
            return a | b
        case "xor":
            return a ^ b
        case "exch":
            return b
        case "cas":
            return c if a == b else a
        case "inc":
            return np.uint32(0) if a >= b else a + np.uint32(1)
        case "dec":
            return b if a == 0 or a > b else a - np.uint32(1)
        case "min":
            return min(a, b)
        case _:
            return max(a, b)


@pytest.mark.parametrize("opcode", one_in(3, ATOMICS))
def test_atomics_commit_in_lane_order(opcode: str, rng: np.random.Generator) -> None:
    """Sixteen threads share a cell; each finds what its predecessor left (CTA after CTA, lane after lane)."""
    name, *rest = opcode.split(".")
    ptx_type = rest[-1]
    op = next(o for o in ("add.noftz", *TYPES) if f".{o}." in opcode)
    shared = "shared" in opcode
    values, others, start = (_operands(ptx_type, op, rng) for _ in range(3))
    c = ", %c" if op == "cas" else ""
    target = "%d, " if name == "atom" else ""
    size = WIDTH[ptx_type] // 8
    space = "shared" if shared else "global"
    scope = f".{space} .align 8 .b8 cells[{8 * (8 if shared else 64)}];"
    index = "%t0" if shared else "%tid"
    # Lanes 0, 8, 16, 24 of each warp use cell 0 of the CTA, lanes 1, 9, … cell 1: conflicts within and across warps.
    body = f"""mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; and.b32 %t2, {index}, 7; shl.b32 %t3, %t1, 3;
      {"" if shared else "add.u32 %t2, %t2, %t3;"}
      shl.b32 %t2, %t2, 3; cvt.u64.u32 %at, %t2; mov.u64 %base, cells; add.u64 %at, %at, %base;
      setp.lt.u32 %first, %t0, 8;
      @%first st.{space}.b{8 * size} [%at], %start;
      bar.sync 0;
      setp.lt.u32 %one, %t0, 32;
      @%one {opcode} {target}[%at], %b{c};
      bar.sync 0;
      ld.{space}.b{8 * size} %e, [%at];"""
    if "global" not in opcode and not shared:
        body = body.replace("mov.u64 %base, cells;", "mov.u64 %base, cells; cvta.global.u64 %base, %base;")
    bits = f"b{8 * size}"
    ran = check_body(
        body,
        {"b": (ptx_type, values), "c": (ptx_type, others), "start": (ptx_type, start)},
        {"d": bits, "e": bits},
        declarations=".reg .b64 %at, %base; .reg .pred %first, %one;",
        module_scope=scope,
    )
    found, left = ran.outputs["d"].view(_dtype(ptx_type)), ran.outputs["e"].view(_dtype(ptx_type))
    with np.errstate(all="ignore"):
        for cta in range(N // 128):
            cells = [start[cta * 128 + cell] for cell in range(8)]
            for lane in range(32):
                at = cta * 128 + lane
                if name == "atom":
                    assert _same(found[at], cells[lane % 8]), (opcode, at)
                cells[lane % 8] = _apply(op, cells[lane % 8], values[at], others[at], ptx_type)
            for thread in range(128):
                assert _same(left[cta * 128 + thread], cells[thread % 8]), (opcode, cta, thread)


def _operands(ptx_type: str, op: str, rng: np.random.Generator) -> Array:
    if op in ("inc", "dec", "cas"):
        return rng.integers(0, 4, N).astype(_dtype(ptx_type))
    if ptx_type in _FLOAT:
        return (rng.standard_normal(N) * 8).astype(_dtype(ptx_type))
    if ptx_type in ("f16x2", "bf16x2"):
        return (rng.standard_normal(2 * N) * 8).astype(_FLOAT[ptx_type[:-2]]).view(np.uint32)
    return random_values(ptx_type, N, rng)


def _same(a: Any, b: Any) -> bool:
    return bool(np.asarray(a).tobytes() == np.asarray(b, np.asarray(a).dtype).tobytes())


def test_atomic_add_of_all_threads_into_one_cell() -> None:
    """Four warps × 32 lanes get the tickets 0…127, each once."""
    body = "mov.u32 %t9, 1; atom.shared.add.u32 %d, [box+64], %t9;"
    fill = "mov.u32 %t0, %tid.x; setp.eq.u32 %first, %t0, 0; @%first st.shared.b32 [box+64], 0; bar.sync 0;"
    ran = check_body(fill + body, {}, {"d": "b32"}, declarations=".reg .pred %first;", module_scope=SHARED, n=N)
    for start in range(0, N, 128):
        assert sorted(ran.outputs["d"][start : start + 128].tolist()) == list(range(128))


def test_atomics_out_of_range_and_misaligned() -> None:
    body = "mov.u64 %at, 64; atom.global.add.u32 %d, [%at], 1; mov.u64 %at, cell; atom.global.add.u32 %e, [%at+2], 1;"
    ran = check_body(
        body,
        {},
        {"d": "b32", "e": "b32"},
        declarations=".reg .b64 %at;",
        module_scope=".global .align 8 .b8 cell[8];",
        n=128,
    )
    assert {f.code for f in ran.findings} == {"M104", "M102"}
    assert not ran.outputs["d"].any() and not ran.outputs["e"].any()
