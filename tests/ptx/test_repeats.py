"""Waits for mbarriers that never end: a loop that only repeats its test is a deadlock at once, others after a while."""

import pytest

from tests.ptx.harness import HEADER
from weft.core.records import Finding
from weft.ptx.parse import parse
from weft.ptx.passes.kernel_passes import KernelPasses
from weft.vm.launch import run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GlobalMemory
from weft.vm.program import compile_program

START = """mov.u32 %a, bar; mov.u32 %n, 0; mov.u32 %t, %tid.x; setp.ne.u32 %q, %t, 0;
@%q bra S; mbarrier.init.shared.b64 [%a], 2; S: bar.sync 0;"""
TRY = "mbarrier.try_wait.parity.shared.b64 %p, [%a], 0;"


def kernel(body: str) -> str:
    registers = ".reg .b32 %a, %n, %t, %r; .reg .b64 %s; .reg .pred %p, %q;"
    scope = ".shared .align 8 .b8 bar[8];"
    return f"{HEADER.replace('sm_89', 'sm_90a')}{scope}\n.visible .entry k()\n{{ {registers}\n{START}\n{body}\nret; }}"


REPEATED = {
    "a branch back": f"L:\n{TRY}\n@!%p bra L;",
    "a branch out": f"L:\n{TRY}\n@%p bra E;\nbra L;\nE:",
    "as a compiler writes it": f"L:\n{TRY}\nselp.b32 %r, 1, 0, %p;\nsetp.eq.s32 %q, %r, 0;\n@%q bra L;",
    "with a pause": f"L:\n{TRY}\n@%p bra E;\nnanosleep.u32 20;\nbra L;\nE:",
    "operands computed again": f"L:\nmov.u32 %r, bar;\n{TRY.replace('%a', '%r')}\n@!%p bra L;",
}
LIMITED = {
    "a counter": f"L:\n{TRY}\n@%p bra E;\nadd.u32 %n, %n, 1;\nsetp.lt.u32 %q, %n, 9;\n@%q bra L;\nE:",
    "a clock": f"L:\n{TRY}\n@%p bra E;\nmov.u32 %r, %clock;\nsetp.gt.s32 %q, %r, 0;\n@%q bra L;\nE:",
    "memory": f"L:\n{TRY}\n@%p bra E;\nld.volatile.shared.u32 %r, [%a];\nsetp.ne.u32 %q, %r, 7;\n@%q bra L;\nE:",
    "another address each time": f"L:\n{TRY}\n@%p bra E;\nxor.b32 %a, %a, 8;\nbra L;\nE:",
    "a loop while it succeeds": f"L:\n{TRY}\n@%p bra L;\nadd.u32 %n, %n, 1;\nsetp.lt.u32 %q, %n, 9;\n@%q bra L;",
    "no loop": TRY,
}


def repeats(body: str) -> bool:
    module = parse(kernel(body))
    found = KernelPasses(module, module.functions["k"], warps_are_rows=True).repeats
    assert len(found) <= 1
    return bool(found)


@pytest.mark.parametrize("name", [*REPEATED, *LIMITED])
def test_which_loops_only_repeat_their_test(name: str) -> None:
    assert repeats({**REPEATED, **LIMITED}[name]) == (name in REPEATED)


def launched(body: str, max_steps: int) -> tuple[Finding, ...]:
    launch = LaunchSpec("k", (1, 1, 1), (64, 1, 1), b"", max_steps=max_steps)
    return run(compile_program(kernel(body), "k"), launch, GlobalMemory(1 << 16), globals_at={}).findings


def test_a_repeated_test_is_a_deadlock_at_once() -> None:
    findings = launched(REPEATED["as a compiler writes it"], max_steps=2000)
    assert {finding.code for finding in findings} == {"S301"}
    assert "misses 2 arrivals" in findings[0].message


def test_a_limited_number_of_tests_is_no_deadlock() -> None:
    assert launched(LIMITED["a counter"], max_steps=100_000) == ()


def test_an_arrival_of_a_slow_warp_ends_the_wait() -> None:
    slow = "setp.lt.u32 %q, %t, 32;\n@%q bra L;\nW: add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 30000;\n@%q bra W;\n"
    slow += "and.b32 %r, %t, 31; setp.gt.u32 %q, %r, 1;\n@%q bra L;\nmbarrier.arrive.shared.b64 %s, [%a];\n"
    assert launched(slow + REPEATED["a branch back"], max_steps=1 << 24) == ()
