"""Barriers in shared memory on every engine: phases, counts, asynchronous copies, misuse."""

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, Ran, check_body, kernel, launch
from tests.ptx.test_cluster import ARRIVALS

N = 512
BLOCK = 128
SPACES = ["", ".shared", ".shared::cta"]
OPCODES = [
    *(f"mbarrier.init{space}.b64" for space in SPACES),
    *(f"mbarrier.inval{space}.b64" for space in SPACES),
    *(f"mbarrier.{verb}{keep}{space}.b64"
      for verb in ("arrive", "arrive_drop") for keep in ("", ".noComplete") for space in SPACES),
    *(f"mbarrier.{verb}{keep}.release.cta.shared.b64"
      for verb in ("arrive", "arrive_drop") for keep in ("", ".noComplete")),
    *(f"mbarrier.test_wait{parity}{order}{space}.b64"
      for parity in ("", ".parity") for order in ("", ".acquire.cta") for space in SPACES),
    *(f"cp.async.mbarrier.arrive{noinc}{space}.b64" for noinc in ("", ".noinc") for space in SPACES),
    "mbarrier.pending_count.b64",
    *(f"mbarrier.try_wait{parity}{space}.b64" for parity in ("", ".parity") for space in SPACES),
    "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64",
    "mbarrier.expect_tx.relaxed.cta.shared.b64",
    "mbarrier.complete_tx.shared.b64",
    "mbarrier.arrive.expect_tx.shared.b64",
    "mbarrier.arrive_drop.expect_tx.release.cta.shared.b64",
    *(opcode for opcode, _, _ in ARRIVALS),
]  # fmt: skip
SHARED = ".shared .align 8 .b64 bar[4]; .shared .align 16 .b8 box[2048];"
DECLARATIONS = ".reg .pred %first, %done, %more, %low; .reg .b64 %state, %g, %src;"
THREAD = """mov.u32 %t0, %tid.x; shl.b32 %t1, %t0, 2; mov.u32 %t2, box; add.u32 %t1, %t1, %t2;
  mov.u32 %t3, bar; setp.eq.u32 %first, %t0, 0;"""


def _run(body: str, outputs: dict[str, str], *, n: int = N, declarations: str = "") -> Ran:
    return check_body(
        THREAD + body, {}, outputs, declarations=DECLARATIONS + declarations, module_scope=SHARED, n=n, block=BLOCK
    )


def _generic(space: str) -> tuple[str, str]:
    """Return the code for the mbarrier's address in a space, and the operand."""
    if space:
        return "", "%t3"
    return "cvt.u64.u32 %g, %t3; cvta.shared.u64 %g, %g;", "%g"


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("order", ["", ".acquire.cta"])
def test_threads_meet_and_see_what_the_others_wrote(space: str, order: str) -> None:
    make, at = _generic(space)
    release = order.replace("acquire", "release")
    body = f"""{make}
      @%first mbarrier.init{space}.b64 [{at}], {BLOCK};
      bar.sync 0;
      st.shared.b32 [%t1], %tid;
      mbarrier.arrive{release}{space}.b64 %state, [{at}];
      WAIT: mbarrier.test_wait{order}{space}.b64 %done, [{at}], %state;
      @!%done bra WAIT;
      xor.b32 %t4, %t0, {BLOCK - 1}; shl.b32 %t4, %t4, 2; add.u32 %t4, %t4, %t2;
      ld.shared.b32 %d, [%t4];
      bar.sync 0;
      @%first mbarrier.inval{space}.b64 [{at}];"""
    ran = _run(body, {"d": "b32"})
    np.testing.assert_array_equal(ran.outputs["d"], np.arange(N) ^ (BLOCK - 1))
    assert not ran.findings


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("order", ["", ".acquire.cta"])
def test_producers_and_consumers_by_parity(space: str, order: str) -> None:
    """Warps 0-1 fill the box in five rounds; warps 2-3 read it. bar[0]: full, bar[1]: empty; both expect 64."""
    make, at = _generic(space)
    body = f"""{make}
      @%first mbarrier.init{space}.b64 [{at}], 64;
      @%first mbarrier.init{space}.b64 [{at}+8], 64;
      bar.sync 0;
      mov.b32 %d, 0; mov.b32 %t5, 0;
      setp.lt.u32 %low, %t0, 64;
      @!%low bra CONSUME;
      PRODUCE: xor.b32 %t6, %t5, 1; and.b32 %t6, %t6, 1;
      EMPTY: mbarrier.test_wait.parity{order}{space}.b64 %done, [{at}+8], %t6;
      @!%done bra EMPTY;
      mad.lo.u32 %t7, %t5, 1000, %t0;
      st.shared.b32 [%t1], %t7;
      mbarrier.arrive{space}.b64 _, [{at}];
      add.u32 %t5, %t5, 1; setp.lt.u32 %more, %t5, 5;
      @%more bra PRODUCE;
      bra DONE;
      CONSUME: and.b32 %t6, %t5, 1;
      FULL: mbarrier.test_wait.parity{order}{space}.b64 %done, [{at}], %t6;
      @!%done bra FULL;
      ld.shared.b32 %t7, [%t1+-256];
      add.u32 %d, %d, %t7;
      mbarrier.arrive{space}.b64 _, [{at}+8];
      add.u32 %t5, %t5, 1; setp.lt.u32 %more, %t5, 5;
      @%more bra CONSUME;
      DONE:"""
    ran = _run(body, {"d": "b32"})
    thread = np.arange(N) % BLOCK
    np.testing.assert_array_equal(ran.outputs["d"], np.where(thread < 64, 0, 10000 + 5 * (thread - 64)))
    assert not ran.findings


@pytest.mark.parametrize("space", [*SPACES, ".release.cta.shared"])
def test_states_show_how_many_arrivals_were_missing(space: str) -> None:
    """One warp arrives lane by lane, three at a time; a last single arrival ends the phase."""
    make, at = _generic(space)
    body = f"""{make}
      @%first mbarrier.init.shared.b64 [%t3], 97;
      bar.sync 0;
      setp.lt.u32 %low, %t0, 32;
      mov.b32 %d, 0; mov.b32 %e, 0; setp.ne.u32 %over, %t0, %t0;
      @!%low bra SKIP;
      mbarrier.arrive.noComplete{space}.b64 %state, [{at}], 3;
      mbarrier.pending_count.b64 %d, %state;
      mbarrier.test_wait.shared.b64 %over, [%t3], %state;
      bar.warp.sync -1;
      @%first mbarrier.arrive{space}.b64 %state, [{at}];
      @%first mbarrier.pending_count.b64 %e, %state;
      @%first mbarrier.test_wait.shared.b64 %over, [%t3], %state;
      SKIP:"""
    ran = _run(body, {"d": "b32", "e": "b32", "over": "pred"})
    thread = np.arange(N) % BLOCK
    np.testing.assert_array_equal(ran.outputs["d"], np.where(thread < 32, 97 - 3 * thread, 0))
    np.testing.assert_array_equal(ran.outputs["e"], np.where(thread == 0, 1, 0))
    np.testing.assert_array_equal(ran.outputs["over"].astype(bool), thread == 0)
    assert not ran.findings


@pytest.mark.parametrize("space", [*SPACES, ".release.cta.shared"])
@pytest.mark.parametrize("keep", ["", ".noComplete"])
def test_dropped_threads_are_not_expected_again(space: str, keep: str) -> None:
    """Phase 0 takes 128 arrivals of which 32 drop out; phase 1 ends with the 96 of the others."""
    make, at = _generic(space)
    count = ", 1" if keep else ""
    body = f"""{make}
      @%first mbarrier.init.shared.b64 [%t3], {BLOCK};
      bar.sync 0;
      setp.lt.u32 %low, %t0, 32;
      @%low mbarrier.arrive_drop{keep}{space}.b64 %state, [{at}]{count};
      bar.sync 0;
      @!%low mbarrier.arrive.shared.b64 %state, [%t3];
      bar.sync 0;
      mbarrier.test_wait.parity.shared.b64 %zero, [%t3], 0;
      @!%low mbarrier.arrive.shared.b64 %state, [%t3];
      bar.sync 0;
      mbarrier.test_wait.parity.shared.b64 %one, [%t3], 1;
      @%first mbarrier.arrive.shared.b64 %state, [%t3];
      @%first mbarrier.pending_count.b64 %left, %state;"""
    ran = _run(body, {"zero": "pred", "one": "pred", "left": "b32"})
    assert ran.outputs["zero"].all() and ran.outputs["one"].all()
    assert (ran.outputs["left"][::BLOCK] == 96).all()
    assert not ran.findings


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("noinc", ["", ".noinc"])
@pytest.mark.parametrize("wait", ["", "cp.async.wait_all;"])
def test_copies_arrive_with_the_phase(space: str, noinc: str, wait: str) -> None:
    """Every thread copies 16 bytes and reads what another copied; without .noinc the thread arrives as well."""
    make, at = _generic(space)
    own = "" if noinc else f"mbarrier.arrive{space}.b64 _, [{at}];"
    body = f"""{make}
      @%first mbarrier.init.shared.b64 [%t3], {BLOCK};
      bar.sync 0;
      mov.u64 %src, table; mul.wide.u32 %state, %t0, 16; add.u64 %src, %src, %state;
      shl.b32 %t4, %t0, 4; add.u32 %t4, %t4, %t2;
      cp.async.ca.shared.global [%t4], [%src], 16;
      cp.async.mbarrier.arrive{noinc}{space}.b64 [{at}];
      {wait}
      {own}
      WAIT: mbarrier.test_wait.parity.shared.b64 %done, [%t3], 0;
      @!%done bra WAIT;
      xor.b32 %t5, %t0, {BLOCK - 1}; shl.b32 %t5, %t5, 4; add.u32 %t5, %t5, %t2;
      ld.shared.b32 %d, [%t5+4];"""
    words = ", ".join(str(7 * i) for i in range(4 * BLOCK))
    ran = check_body(
        THREAD + body,
        {},
        {"d": "b32"},
        declarations=DECLARATIONS,
        n=N,
        block=BLOCK,
        module_scope=SHARED + f".global .align 16 .b32 table[{4 * BLOCK}] = {{{words}}};",
    )
    thread = np.arange(N) % BLOCK
    np.testing.assert_array_equal(ran.outputs["d"], 7 * (4 * (BLOCK - 1 - thread) + 1))
    assert not ran.findings


def test_a_phase_waits_for_its_bytes() -> None:
    """Thread 0 does every step and tests the phase after each; bytes may be complete before they are expected."""
    steps = [
        ("mbarrier.init.shared.b64 [%t3], 2", 0, False),
        ("mbarrier.arrive.expect_tx.shared.b64 %state, [%t3], 100", 0, False),
        ("mbarrier.complete_tx.shared.b64 [%t3], 100", 0, False),  # one arrival is missing
        ("mbarrier.expect_tx.relaxed.cta.shared.b64 [%t3], 48", 0, False),
        ("mbarrier.arrive.shared.b64 %state, [%t3]", 0, False),  # 48 bytes are pending
        ("mbarrier.complete_tx.relaxed.cluster.shared.b64 [%t3], 16", 0, False),
        ("mbarrier.complete_tx.shared.b64 [%t3], 32", 0, True),
        ("mbarrier.complete_tx.shared.b64 [%t3], 64", 1, False),  # of the next phase, before it expects them
        ("mbarrier.arrive.shared.b64 %state, [%t3]", 1, False),
        ("mbarrier.arrive_drop.expect_tx.shared.b64 %state, [%t3], 64", 1, True),
        ("mbarrier.arrive.shared.b64 %state, [%t3]", 0, True),  # the next phase expects one arrival
    ]
    lines = ["@!%first bra SKIP;"]
    for number, (step, parity, _) in enumerate(steps):
        form = f"mbarrier.try_wait.parity.shared.b64 %p{number}, [%t3], {parity}"
        lines.append(f"{step}; {form}{', 1000' if number % 2 else ''};")
    lines.append("mbarrier.try_wait.shared.b64 %last, [%t3], %state; SKIP:")
    outputs = {f"p{number}": "pred" for number in range(len(steps))}
    ran = _run("\n".join(lines), {**outputs, "last": "pred"}, n=BLOCK)
    assert not ran.findings
    assert [bool(ran.outputs[f"p{number}"][0]) for number in range(len(steps))] == [over for _, _, over in steps]
    assert ran.outputs["last"][0]


def test_consumers_wait_for_bytes_of_a_producer() -> None:
    """Three warps spin at the mbarrier until the last one, which runs after them, completes the bytes in two pieces."""
    body = """@%first mbarrier.init.shared.b64 [%t3], 1;
      bar.sync 0;
      setp.lt.u32 %low, %t0, 96; @%low bra WAIT;
      setp.eq.u32 %more, %t0, 96; @!%more bra WAIT;
      mbarrier.arrive.expect_tx.shared.b64 _, [%t3], 512;
      st.shared.b32 [box], 77;
      mbarrier.complete_tx.shared.b64 [%t3], 256; mbarrier.complete_tx.shared.b64 [%t3], 256;
      WAIT:
      mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%t3], 0;
      @!%done bra WAIT;
      ld.shared.b32 %d, [box];"""
    ran = _run(body, {"d": "b32"})
    assert not ran.findings
    assert (ran.outputs["d"] == 77).all()


@pytest.mark.parametrize(
    ("late", "words"),
    [
        ("mbarrier.arrive.shared.b64 _, [%t3];", "misses 1 arrival"),
        ("mbarrier.arrive.expect_tx.shared.b64 _, [%t3], 48; mbarrier.complete_tx.shared.b64 [%t3], 16;",
         "misses 1 arrival and 32 bytes"),
        ("mbarrier.arrive.shared.b64 _, [%t3]; mbarrier.arrive.expect_tx.shared.b64 _, [%t3], 16;",
         "misses 0 arrivals and 16 bytes"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ENGINES)
def test_a_phase_that_never_ends_is_a_deadlock(late: str, words: str, engine: str) -> None:
    """One warp arrives too rarely, then all warps wait: three at the mbarrier, one at a barrier of the CTA."""
    body = f"""@%first mbarrier.init.shared.b64 [%t3], 2;
      bar.sync 0;
      setp.ge.u32 %low, %t0, 96; @%low bra BARRIER;
      @!%first bra WAIT;
      {late}
      WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %done, [%t3], 0;
      @!%done bra WAIT;
      BARRIER:
      bar.sync 0;
      mov.b32 %d, 1;"""
    made = kernel(THREAD + body, {}, {"d": "b32"}, declarations=DECLARATIONS, module_scope=SHARED)
    ran = launch(made, {}, engine=engine, n=BLOCK, block=BLOCK)
    assert {finding.code for finding in ran.findings} == {"S301"}
    assert any(finding.message.endswith(words) for finding in ran.findings)


@pytest.mark.parametrize(
    "body",
    [
        "@%first mbarrier.init.shared.b64 [%t3], 1; @%first mbarrier.expect_tx.shared.b64 [%t3], 0x100000;",
        "@%first mbarrier.init.shared.b64 [%t3], 1; @%first mbarrier.complete_tx.shared.b64 [%t3], 0xfffff;"
        "@%first mbarrier.complete_tx.shared.b64 [%t3], 1;",
        "mbarrier.arrive.expect_tx.shared.b64 _, [%t3], 16;",
        "mbarrier.arrive.shared.b64 %state, [%t3];",
        "@%first mbarrier.init.shared.b64 [%t3], 0;",
        "@%first mbarrier.init.shared.b64 [%t3], 2; @%first mbarrier.arrive.noComplete.shared.b64 _, [%t3], 2;",
        "@%first mbarrier.init.shared.b64 [%t3], 2; @%first mbarrier.arrive.shared.b64 _, [%t3], 3;",
        "@%first mbarrier.init.shared.b64 [%t3], 1; @%first mbarrier.inval.shared.b64 [%t3]; bar.sync 0;"
        "mbarrier.test_wait.parity.shared.b64 %done, [%t3], 0;",
        "cp.async.mbarrier.arrive.shared.b64 [%t3];",
    ],
    ids=[
        "too many bytes",
        "too many complete",
        "bytes without init",
        "no init",
        "count 0",
        "noComplete that completes",
        "too many",
        "after inval",
        "copies without init",
    ],
)
def test_misuse_is_reported(body: str) -> None:
    ran = _run(body + "mov.b32 %d, 1;", {"d": "b32"}, n=BLOCK)
    assert {finding.code for finding in ran.findings} == {"S308"}


def test_an_mbarrier_must_lie_in_shared_memory_and_be_aligned() -> None:
    ran = _run("mov.u64 %g, 0x700000000000; mbarrier.init.b64 [%g], 1;", {"d": "b32"}, n=BLOCK)
    assert {finding.code for finding in ran.findings} == {"M101"}
    ran = _run("mbarrier.init.shared.b64 [%t3+4], 1;", {"d": "b32"}, n=BLOCK)
    assert {finding.code for finding in ran.findings} == {"M102"}
