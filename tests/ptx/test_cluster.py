"""Clusters of several CTAs: addresses of peers, accesses, mbarriers, bulk copies to several, the barrier, findings."""

import struct
from dataclasses import dataclass

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, Array
from weft.core.errors import LaunchError
from weft.core.records import Dim3, Finding, Severity
from weft.probes import InitCheck, Probes, RaceCheck
from weft.ptx.parse import parse
from weft.vm import launch as jit
from weft.vm.launch_spec import LaunchSpec
from weft.vm.layout import lay_out, place_globals
from weft.vm.memory import GlobalMemory
from weft.vm.program import compile_program
from weft.vm.reference import interpreter

SIGNAL = "shared::cluster.mbarrier::complete_tx::bytes"
REDUCTIONS = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "add": np.add, "min": np.minimum,
    "max": np.maximum, "inc": lambda old, limit: np.where(old >= limit, 0, old + 1),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1),
}  # fmt: skip
TYPES = {"and": "b32", "or": "b32", "xor": "b32"}
OPCODES = [
    "mapa.u64",
    "mapa.shared::cluster.u32",
    "getctarank.shared::cluster.u32",
    "getctarank.u64",
    "barrier.cluster.arrive.release.aligned",
    "barrier.cluster.wait.acquire.aligned",
    f"st.async.{SIGNAL}.u32",
    *(f"red.async.relaxed.cluster.{SIGNAL}.{op}.{TYPES.get(op, 'u32')}" for op in REDUCTIONS),
]
_PEER = "release.cluster.shared::cluster.b64"
_DONE = "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r5], 16;"
ARRIVALS = [
    (f"mbarrier.arrive.{_PEER}", "_, [%r5];", 1),
    (f"mbarrier.arrive.{_PEER}", "_, [%r5], 2;", 2),
    (f"mbarrier.arrive_drop.{_PEER}", "_, [%r5];", 1),
    (f"mbarrier.arrive.expect_tx.{_PEER}", f"_, [%r5], 16; {_DONE}", 1),
    (f"mbarrier.arrive_drop.expect_tx.{_PEER}", f"_, [%r5], 16; {_DONE}", 1),
]
"""Arrivals at the mbarrier of a peer: opcode, the rest of the statement, how many a thread makes."""
BLOCK = 64
WORDS = BLOCK
"""Words of the output that a CTA writes."""
HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.shared .align 16 .b8 box[1024];
.shared .align 8 .b64 bar;
"""
PROLOGUE = """
  .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<8>; .reg .f32 %f<4>; .reg .b16 %h<2>;
  .reg .b32 %tid, %rank, %cta, %box, %mine, %bar, %v;
  mov.u32 %tid, %tid.x; mov.u32 %rank, %cluster_ctarank;
  mov.u32 %box, box; mov.u32 %bar, bar; shl.b32 %mine, %tid, 2; add.u32 %mine, %mine, %box;
  mov.u32 %r30, %ctaid.y; mov.u32 %r31, %nctaid.x; mov.u32 %r32, %ctaid.x; mad.lo.u32 %cta, %r30, %r31, %r32;
"""
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
STORE = """
  mov.u32 %r30, %ntid.x; mad.lo.u32 %r30, %cta, %r30, %tid; mul.wide.u32 %rd18, %r30, 4;
  ld.param.u64 %rd19, [out]; add.u64 %rd19, %rd19, %rd18; st.global.b32 [%rd19], %v;
"""


@dataclass(frozen=True)
class Ran:
    out: Array
    """The words that each CTA stored, (CTAs, threads)."""
    found: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the errors and warnings."""
        return tuple(finding for finding in self.found if finding.level is not Severity.INFO)

    @property
    def codes(self) -> set[str]:
        return {finding.code for finding in self.findings}


def launch(
    text: str, engine: str, grid: Dim3, cluster: Dim3, inputs: Array, *, threads: int, schedule: int, checked: bool
) -> Ran:
    module = parse(text)
    memory = GlobalMemory(1 << 20)
    globals_at = place_globals(module, memory)
    count = int(np.prod(grid))
    out, given = memory.allocate(4 * count * WORDS, "out"), memory.allocate(inputs.nbytes, "in")
    memory.write(out, np.zeros(4 * count * WORDS, np.uint8))
    memory.write(given, inputs.view(np.uint8).ravel())
    spec = LaunchSpec("k", grid, (BLOCK, 1, 1), struct.pack("<QQ", out, given), cluster=cluster, max_steps=10_000_000)
    if engine == "reference":
        layout = lay_out(module, module.functions["k"])
        outcome = interpreter.run(module, spec, memory, layout=layout, globals_at=globals_at, arch="sm_90")
    else:
        watch = Probes(InitCheck(), RaceCheck()) if checked else jit.PLAIN
        program = compile_program(text, "k")
        outcome = jit.run(program, spec, memory, globals_at=globals_at, threads=threads, schedule=schedule, watch=watch)
    words = memory.read(out, 4 * count * WORDS).view(np.uint32).reshape(count, WORDS)
    return Ran(words.copy(), outcome.findings)


def kernel(body: str, directive: str = "") -> str:
    text = f"{HEAD}.visible .entry k(.param .u64 out, .param .u64 in) {directive} {{ {PROLOGUE} {body} ret; }}"
    return text.replace(";", ";\n")  # a line is the place of one instruction


def run(
    body: str,
    *,
    grid: Dim3 = (4, 1, 1),
    cluster: Dim3 = (2, 1, 1),
    inputs: Array | None = None,
    directive: str = "",
    checked: bool = True,
) -> Ran:
    """Run a body on both engines, compiled code with several threads and schedules too; assert that they agree."""
    given = np.zeros(4, np.uint32) if inputs is None else inputs
    text = kernel(body, directive)
    assert ENGINES == ("reference", "jit")
    first = launch(text, "reference", grid, cluster, given, threads=1, schedule=0, checked=False)
    compiled = [
        launch(text, "jit", grid, cluster, given, threads=threads, schedule=schedule, checked=checked)
        for threads, schedule in ((1, 0), (2, 1), (2, 2))
    ]
    for other in compiled:
        np.testing.assert_array_equal(other.out, first.out)
        assert other.codes >= first.codes
    return compiled[0]


def in_cluster(of: Array) -> Array:
    """Return what each CTA of clusters of two finds in the other one."""
    return of.reshape(-1, 2, *of.shape[1:])[:, ::-1].reshape(of.shape)


def own_values(ctas: int) -> Array:
    return (np.arange(ctas)[:, None] * 100 + np.arange(BLOCK)).astype(np.uint32)


WRITE_OWN = "mad.lo.u32 %v, %cta, 100, %tid; st.shared.u32 [%mine], %v;"
OTHER = "xor.b32 %r1, %rank, 1;"


# -- ranks and addresses ------------------------------------------------------------------------------------------


def test_special_registers_of_a_cluster_in_two_dimensions() -> None:
    names = "clusterid.x clusterid.y nclusterid.x nclusterid.y cluster_ctaid.x cluster_ctaid.y cluster_nctaid.x".split()
    names += ["cluster_nctaid.y", "cluster_ctarank", "cluster_nctarank"]
    reads = " ".join(
        f"setp.eq.u32 %p1, %tid, {number}; mov.u32 %r1, %{name}; selp.b32 %v, %r1, %v, %p1;"
        for number, name in enumerate(names)
    )
    ran = run(f"mov.u32 %v, 0; {reads} {STORE}", grid=(6, 4, 1), cluster=(3, 2, 1))
    for cta, row in enumerate(ran.out[:, : len(names)]):
        x, y = cta % 6, cta // 6
        assert row.tolist() == [x // 3, y // 2, 2, 2, x % 3, y % 2, 3, 2, x % 3 + 3 * (y % 2), 6]
    assert ran.findings == ()


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_word_of_each_neighbour(size: int) -> None:
    body = f"""
      {WRITE_OWN} {SYNC}
      add.u32 %r1, %rank, 1; rem.u32 %r1, %r1, {size};
      mapa.shared::cluster.u32 %r2, %mine, %r1; ld.shared::cluster.u32 %r3, [%r2];
      getctarank.shared::cluster.u32 %r4, %r2; mad.lo.u32 %v, %r4, 100000, %r3; {STORE} {SYNC}"""
    ran = run(body, grid=(2 * size, 1, 1), cluster=(size, 1, 1))
    ctas = np.arange(2 * size)
    rank = (ctas % size + 1) % size
    expected = own_values(2 * size)[ctas // size * size + rank] + rank[:, None] * 100000
    np.testing.assert_array_equal(ran.out, expected)
    assert ran.findings == ()


def test_lanes_of_a_warp_access_different_ctas() -> None:
    """Lane i reads from rank i modulo 4, also from its own CTA, by a generic address."""
    body = f"""
      {WRITE_OWN} {SYNC}
      and.b32 %r1, %tid, 3; cvt.u64.u32 %rd1, %mine; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd2, %rd1, %r1;
      ld.u32 %r3, [%rd2]; getctarank.u64 %r4, %rd2; mad.lo.u32 %v, %r4, 100000, %r3; {STORE} {SYNC}"""
    ran = run(body, grid=(8, 1, 1), cluster=(4, 1, 1))
    values, threads = own_values(8), np.arange(BLOCK)
    for cta in range(8):
        expected = values[cta // 4 * 4 + threads % 4, threads] + threads % 4 * 100000
        np.testing.assert_array_equal(ran.out[cta], expected)
    assert ran.findings == ()


@pytest.mark.parametrize("kind", ["shared", "generic"])
def test_all_lanes_load_one_word_of_a_peer(kind: str) -> None:
    loads = {
        "shared": "mapa.shared::cluster.u32 %r2, %box, %r1; ld.shared::cluster.v2.u32 {%r3, %r4}, [%r2+8];",
        "generic": "cvt.u64.u32 %rd1, %box; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd2, %rd1, %r1; "
        "ld.v2.u32 {%r3, %r4}, [%rd2+8];",
    }
    ran = run(f"{WRITE_OWN} {SYNC} {OTHER} {loads[kind]} add.u32 %v, %r3, %r4; {STORE} {SYNC}")
    expected = in_cluster(own_values(4)[:, 2] + own_values(4)[:, 3])
    np.testing.assert_array_equal(ran.out, np.repeat(expected[:, None], BLOCK, axis=1))
    assert ran.findings == ()


@pytest.mark.parametrize(("vector", "opcode"), [(2, "v2.u32"), (4, "v4.u32"), (2, "v2.b64"), (1, "u16"), (1, "b64")])
def test_stores_to_and_loads_from_a_peer(vector: int, opcode: str) -> None:
    """Each thread copies its part of a table to the peer, which the peer's threads then read."""
    bits = int(opcode[-2:])
    size = vector * bits // 8
    kind = {16: "%h1", 32: "%r{}", 64: "%rd{}"}[bits]
    names = [kind.format(5 + k) for k in range(vector)]
    registers = names[0] if vector == 1 else "{" + ", ".join(names) + "}"
    body = f"""
      {OTHER} mul.lo.u32 %r2, %tid, {size}; add.u32 %r3, %box, %r2; mapa.shared::cluster.u32 %r4, %r3, %r1;
      ld.param.u64 %rd1, [in]; mul.lo.u32 %r20, %cta, {BLOCK * size}; add.u32 %r20, %r20, %r2;
      cvt.u64.u32 %rd2, %r20; add.u64 %rd1, %rd1, %rd2;
      ld.global.{opcode} {registers}, [%rd1]; {SYNC} st.shared::cluster.{opcode} [%r4], {registers}; {SYNC}
      ld.shared.u32 %v, [%mine]; {STORE}"""
    inputs = np.random.default_rng(size).integers(0, 1 << 32, 4 * BLOCK * size // 4, np.uint32)
    ran = run(body, inputs=inputs)
    held = inputs.reshape(4, -1).view(np.uint8)
    wanted = np.zeros((4, 4 * BLOCK), np.uint8)
    wanted[:, :] = 0xFF
    filled = min(4 * BLOCK, BLOCK * size)
    wanted[:, :filled] = in_cluster(held)[:, :filled]
    np.testing.assert_array_equal(ran.out, wanted.view(np.uint32))


def test_atomics_at_a_peer() -> None:
    body = f"""
      mov.u32 %v, 1000; st.shared.u32 [%mine], %v; {SYNC}
      {OTHER} mapa.shared::cluster.u32 %r2, %box, %r1;
      atom.shared::cluster.add.u32 %r3, [%r2], 3; red.shared::cluster.max.u32 [%r2+4], %tid;
      {SYNC} ld.shared.u32 %v, [%mine]; {STORE}"""
    ran = run(body)
    np.testing.assert_array_equal(ran.out[:, :3], [[1000 + 3 * BLOCK, 1000, 1000]] * 4)
    assert ran.findings == ()


# -- asynchronous ---------------------------------------------------------------------------------------------------

WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%bar], 0; @!%p2 bra W;"
INIT = """
  setp.eq.u32 %p1, %tid, 0; @%p1 mbarrier.init.shared::cta.b64 [%bar], {count};
  fence.mbarrier_init.release.cluster;
"""


@pytest.mark.parametrize(("opcode", "rest", "count"), ARRIVALS)
def test_arrivals_at_the_mbarrier_of_another_cta(opcode: str, rest: str, count: int) -> None:
    """All threads of both CTAs arrive at the mbarrier of rank 0, whose threads then read what rank 1 wrote there."""
    body = f"""
      {INIT.format(count=2 * BLOCK * count)} {SYNC}
      mov.u32 %r3, 0; mapa.shared::cluster.u32 %r4, %mine, %r3; mapa.shared::cluster.u32 %r5, %bar, %r3;
      setp.eq.u32 %p3, %rank, 0; mad.lo.u32 %v, %cta, 100, %tid;
      @!%p3 st.shared::cluster.u32 [%r4], %v;
      {opcode} {rest}
      @!%p3 bra DONE;
      {WAIT} ld.shared.u32 %v, [%mine]; DONE: {STORE} {SYNC}"""
    ran = run(body)
    values = own_values(4)
    np.testing.assert_array_equal(ran.out, values[[1, 1, 3, 3]])


def test_asynchronous_stores_signal_the_mbarrier_of_the_peer() -> None:
    body = f"""
      {INIT.format(count=1)} {SYNC}
      @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%bar], {BLOCK * 4};
      {OTHER} mapa.shared::cluster.u32 %r4, %mine, %r1; mapa.shared::cluster.u32 %r5, %bar, %r1;
      mad.lo.u32 %v, %cta, 100, %tid;
      st.async.{SIGNAL}.u32 [%r4], %v, [%r5];
      {WAIT} ld.shared.u32 %v, [%mine]; {STORE} {SYNC}"""
    ran = run(body)
    np.testing.assert_array_equal(ran.out, in_cluster(own_values(4)))


@pytest.mark.parametrize("op", REDUCTIONS)
def test_asynchronous_reductions_signal_the_mbarrier_of_the_peer(op: str) -> None:
    body = f"""
      mov.u32 %v, 7; st.shared.u32 [%mine], %v; {INIT.format(count=1)} {SYNC}
      @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%bar], {BLOCK * 4};
      {OTHER} mapa.shared::cluster.u32 %r4, %mine, %r1; mapa.shared::cluster.u32 %r5, %bar, %r1;
      add.u32 %r6, %cta, 6;
      red.async.relaxed.cluster.{SIGNAL}.{op}.{TYPES.get(op, "u32")} [%r4], %r6, [%r5];
      {WAIT} ld.shared.u32 %v, [%mine]; {STORE} {SYNC}"""
    ran = run(body)
    expected = REDUCTIONS[op](np.full(4, 7, np.uint32), np.array([7, 6, 9, 8], np.uint32))
    np.testing.assert_array_equal(ran.out, np.repeat(expected[:, None], BLOCK, axis=1))


@pytest.mark.parametrize("mask", [0b01, 0b10, 0b11])
def test_a_multicast_reaches_the_ctas_of_its_mask(mask: int) -> None:
    """Rank 0 copies; CTAs outside the mask expect nothing and keep their own values."""
    body = f"""
      {WRITE_OWN} {INIT.format(count=1)} {SYNC}
      mov.u32 %r6, {mask}; shr.u32 %r7, %r6, %rank; and.b32 %r7, %r7, 1; mul.lo.u32 %r7, %r7, {BLOCK * 4};
      @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%bar], %r7;
      {SYNC}
      setp.eq.u32 %p3, %rank, 0; and.pred %p3, %p3, %p1; ld.param.u64 %rd3, [in]; mov.u16 %h1, {mask};
      @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%box], [%rd3], {BLOCK * 4}, [%bar], %h1;
      {WAIT} ld.shared.u32 %v, [%mine]; {STORE} {SYNC}"""
    inputs = np.arange(5000, 5000 + BLOCK, dtype=np.uint32)
    ran = run(body, inputs=inputs)
    for cta, row in enumerate(ran.out):
        expected = inputs if mask >> cta % 2 & 1 else own_values(4)[cta]
        np.testing.assert_array_equal(row, expected)


# -- barrier --------------------------------------------------------------------------------------------------------


def test_phases_of_the_barrier() -> None:
    """A value travels around a cluster of four, a step in each phase; arriving and waiting are apart."""
    body = f"""
      {WRITE_OWN} mov.u32 %r8, 0; {SYNC}
      add.u32 %r1, %rank, 1; and.b32 %r1, %r1, 3; mapa.shared::cluster.u32 %r2, %mine, %r1;
      LOOP: ld.shared::cluster.u32 %v, [%r2]; {SYNC}
      st.shared.u32 [%mine], %v;
      barrier.cluster.arrive.release; add.u32 %r8, %r8, 1; setp.lt.u32 %p4, %r8, 5; barrier.cluster.wait.acquire;
      @%p4 bra LOOP;
      {STORE}"""
    ran = run(body, grid=(8, 1, 1), cluster=(4, 1, 1))
    ctas = np.arange(8)
    np.testing.assert_array_equal(ran.out, own_values(8)[ctas // 4 * 4 + (ctas % 4 + 5) % 4])
    assert ran.findings == ()


def test_threads_that_have_exited_are_not_awaited() -> None:
    body = f"""
      mov.u32 %v, 5; {STORE} setp.gt.u32 %p3, %tid, 40; @%p3 exit;
      barrier.cluster.arrive.release; barrier.cluster.wait.acquire; mov.u32 %v, 6; {STORE}"""
    ran = run(body)
    np.testing.assert_array_equal(ran.out, np.tile(np.where(np.arange(BLOCK) > 40, 5, 6), (4, 1)))
    assert ran.findings == ()


def test_it_orders_the_accesses_of_a_cta() -> None:
    """A relaxed arrival orders nothing: the threads of a CTA race."""
    read = "xor.b32 %r9, %mine, 128; ld.shared.u32 %v, [%r9];"
    ran = run(f"{WRITE_OWN} {SYNC} {read} {STORE}")
    assert ran.findings == ()
    relaxed = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
    ran = run(f"{WRITE_OWN} {relaxed} {read} {STORE}")
    assert ran.codes == {"R102"}


def test_a_relaxed_barrier_publishes_initialised_mbarriers() -> None:
    """With the fence for them it orders their initialisation, and nothing else."""
    relaxed = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
    use = f"mbarrier.arrive.shared::cta.b64 %rd1, [%bar]; {WAIT} mov.u32 %v, 1; {STORE}"
    init = INIT.format(count=BLOCK)
    assert run(f"{init} {relaxed} {use}").findings == ()
    without = init.replace("fence.mbarrier_init.release.cluster;", "")
    codes = run(f"{without} {relaxed} {use}").codes
    assert codes and codes <= {"R101", "R102", "R103"}
    written = f"{WRITE_OWN} {init} {relaxed} xor.b32 %r9, %mine, 128; ld.shared.u32 %v, [%r9]; {use}"
    assert "R102" in run(written).codes


@pytest.mark.parametrize(("order", "codes"), [("release", set()), ("relaxed", {"R102"})])
def test_a_relaxed_arrival_at_an_mbarrier_orders_nothing(order: str, codes: set[str]) -> None:
    """The own CTA's mbarrier, by an address of the cluster: threads read what others wrote before they arrived."""
    arrive = f"mbarrier.arrive.{order}.cluster.shared::cluster.b64 _, [%r5];"
    body = f"""
      {INIT.format(count=BLOCK)} {SYNC}
      mapa.shared::cluster.u32 %r5, %bar, %rank; {WRITE_OWN} {arrive}
      {WAIT} xor.b32 %r9, %mine, 128; ld.shared.u32 %v, [%r9]; {STORE}"""
    assert run(body).codes == codes


READ_OTHER = f"{OTHER} mapa.shared::cluster.u32 %r2, %mine, %r1; ld.shared::cluster.u32 %v, [%r2];"


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        (SYNC, SYNC, set()),
        ("barrier.cluster.arrive.relaxed; barrier.cluster.wait;", SYNC, {"R102"}),
        ("bar.sync 0;", SYNC, {"R102", "S316"}),
        (SYNC, "", {"S312"}),
        (SYNC, f"bar.sync 0; {WRITE_OWN} {SYNC}", {"R103"}),
    ],
    ids=["ordered", "relaxed barrier", "barrier of the CTA", "exit at once", "overwritten"],
)
def test_races_with_another_cta_of_the_cluster(before: str, after: str, codes: set[str]) -> None:
    """Threads write to their CTA's memory, and read that of the other one: the same findings in every schedule."""
    body = f"{WRITE_OWN} {before} {READ_OTHER} {after} {STORE}"
    for schedule in range(3):
        ran = launch(
            kernel(body),
            "jit",
            (4, 1, 1),
            (2, 1, 1),
            np.zeros(4, np.uint32),
            threads=2,
            schedule=schedule,
            checked=True,
        )
        assert ran.codes == codes


def test_a_race_with_another_cta_names_both() -> None:
    (found,) = run(f"{WRITE_OWN} {SYNC} {READ_OTHER} bar.sync 0; {WRITE_OWN} {SYNC} {STORE}").findings
    assert "write-after-read race with CTA" in found.message and "cluster.sync()" in found.cure
    assert found.cta[0] // 2 == 0 and f"CTA ({found.cta[0] ^ 1}, 0, 0)" in found.message


def test_wrong_uses_are_found() -> None:
    assert run("barrier.cluster.wait.acquire;").codes == {"S315"}
    assert run("barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;").codes == {"S315"}


def test_a_cta_that_never_arrives_is_a_deadlock() -> None:
    body = f"""
      {INIT.format(count=1)} setp.eq.u32 %p3, %rank, 0; @%p3 bra ARRIVES;
      {WAIT} bra DONE;
      ARRIVES: barrier.cluster.arrive; barrier.cluster.wait;
      DONE: bar.sync 0;"""
    ran = run(body)
    assert ran.codes == {"S301"}
    assert any(f"{BLOCK} of its {2 * BLOCK} threads" in finding.message for finding in ran.findings)


def test_a_peer_that_has_ended_is_found() -> None:
    """Rank 1 arrives and exits; rank 0 waits, and then reads its memory."""
    body = f"""
      {WRITE_OWN} barrier.cluster.arrive; setp.eq.u32 %p3, %rank, 1; @%p3 exit;
      barrier.cluster.wait; {OTHER} mapa.shared::cluster.u32 %r2, %mine, %r1; ld.shared::cluster.u32 %v, [%r2];"""
    assert run(body).codes == {"S312"}


def test_addresses_outside_are_found() -> None:
    load = "mapa.shared::cluster.u32 %r2, {at}, %r1; ld.shared::cluster.u32 %v, [%r2];"
    beyond = f"{SYNC} {OTHER} add.u32 %r3, %box, 65536; {load.format(at='%r3')} {SYNC}"
    assert run(beyond).codes == {"M101"}
    assert run(f"{SYNC} mov.u32 %r1, 5; {load.format(at='%mine')} {SYNC}").codes == {"M101"}


# -- launch ---------------------------------------------------------------------------------------------------------


def test_the_kernel_may_require_its_cluster() -> None:
    body = f"mov.u32 %v, %cluster_nctarank; {STORE}"
    ran = run(body, cluster=(0, 0, 0), directive=".reqnctapercluster 4, 1, 1")
    assert (ran.out == 4).all()


@pytest.mark.parametrize(
    ("grid", "cluster", "directive", "message"),
    [
        ((6, 1, 1), (4, 1, 1), "", "cannot be divided"),
        ((32, 1, 1), (32, 1, 1), "", "1 to 16"),
        ((4, 1, 1), (4, 1, 1), ".reqnctapercluster 2, 1, 1", "requires clusters of"),
        ((4, 1, 1), (0, 0, 0), ".explicitcluster", "must be launched with a cluster"),
    ],
)
def test_launches_that_no_gpu_accepts(grid: Dim3, cluster: Dim3, directive: str, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        run("", grid=grid, cluster=cluster, directive=directive)
