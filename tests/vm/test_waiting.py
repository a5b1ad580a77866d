"""Threads that wait for each other: programs without a deadlock end with the right sums; deadlocks are found."""

import struct

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, HEADER, Engine
from tests.vm.waiting_programs import FAULTS, STEPS, WORDS, kernel
from weft.core.records import Finding
from weft.ptx.parse import parse
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GlobalMemory

KERNELS, PROGRAMS = 6, 6
GRIDS = (2, 3, 5)


def run(engine: Engine, program: int, ctas: int, *, max_steps: int = 1 << 26) -> tuple[list[int], list[Finding]]:
    """Return the sums of all threads, and the findings."""
    memory = GlobalMemory(1 << 16)
    words, out = memory.allocate(4 * WORDS), memory.allocate(4 * 64 * ctas)
    memory.write(words, bytes(4 * WORDS))
    memory.write(out, bytes(4 * 64 * ctas))
    params = struct.pack("<QQII", words, out, program, 0)
    outcome = engine.run(LaunchSpec("k", (ctas, 1, 1), (64, 1, 1), params, max_steps=max_steps), memory, {})
    return memory.read(out, 4 * 64 * ctas).view(np.uint32).tolist(), list(outcome.findings)


@pytest.mark.parametrize("seed", range(KERNELS))
def test_programs_without_a_deadlock_end(seed: int) -> None:
    text, sums = kernel(seed, PROGRAMS)
    engine = Engine("jit", parse(text))
    for program, expected in enumerate(sums):
        ctas = GRIDS[(seed + program) % len(GRIDS)]
        assert run(engine, program, ctas) == ([expected] * (64 * ctas), []), f"program {program} of seed {seed}"


def test_the_reference_agrees() -> None:
    text, sums = kernel(100, 3)
    engine = Engine("reference", parse(text))
    for program, expected in enumerate(sums):
        assert run(engine, program, 2) == ([expected] * 128, [])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_deadlock_is_found(fault: str) -> None:
    text, sums = kernel(200, PROGRAMS, fault=fault)
    engine = Engine("jit", parse(text))
    for program in range(len(sums)):
        out, findings = run(engine, program, 2, max_steps=1 << 20)
        assert FAULTS[fault] in {finding.code for finding in findings}, f"program {program}"
        assert 0 in out  # some thread did not finish


def test_every_step_occurs() -> None:
    """Each kind of step is in the programs of some seed: its text differs from that of all others."""
    texts = "".join(kernel(seed, PROGRAMS)[0] for seed in range(KERNELS))
    for piece in ("bar.warp.sync %m;", "bar.arrive", "rem.u32", "atom.shared.cas", "%threads;", "exch.b32 %v, [%rd0"):
        assert piece in texts
    assert len(STEPS) == 13


_ONE_WARP = """.visible .entry k(.param .u64 words, .param .u64 out, .param .u32 program)
{{ .reg .b32 %t, %l, %v; .reg .b64 %a; .reg .pred %p; .shared .align 4 .b8 flags[64];
   ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; and.b32 %l, %t, 31; mul.wide.u32 %a, %t, 4;
   {body}
   ld.param.u64 %a, [out]; cvta.to.global.u64 %a, %a; ret; }}"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("body", "code"),
    [
        # Lanes that do not execute a collective in whose mask they are never reach it.
        ("setp.ne.u32 %p, %l, 3; @%p bar.warp.sync 0xffffffff; bar.sync 0;", "S301"),
        ("setp.ne.u32 %p, %l, 3; @%p shfl.sync.idx.b32 %v, %l, 0, 31, 0xffffffff; bar.sync 0;", "S301"),
        ("setp.ne.u32 %p, %l, 3; @%p bar.warp.sync 0xfffffff7; bar.sync 0;", None),
        # They may reach another bar.warp.sync, but not with another mask.
        ("setp.ne.u32 %p, %l, 3; @%p bra A; bar.warp.sync 0xffffffff; bra B; A: bar.warp.sync 0xffffffff; B:", None),
        ("setp.ne.u32 %p, %l, 3; @%p bra A; bar.warp.sync 0x7fffffff; bra B; A: bar.warp.sync 0xffffffff; B:", "S301"),
        # One meeting does not count for two.
        ("setp.ne.u32 %p, %l, 3; @%p bra A; bar.warp.sync 0xffffffff; bar.sync 0; bra B;"
         "A: bar.warp.sync 0xffffffff; bar.warp.sync 0xffffffff; bar.sync 0; B:", "S301"),
        ("setp.ne.u32 %p, %l, 3; @%p bra A; bar.warp.sync 0xffffffff; bar.warp.sync 0xffffffff; bra B;"
         "A: bar.warp.sync 0xffffffff; B: bar.warp.sync 0xffffffff; bar.sync 0;", "S301"),
    ],
)  # fmt: skip
def test_lanes_that_reach_a_warp_collective(engine: str, body: str, code: str | None) -> None:
    module = parse(f"{HEADER}{_ONE_WARP.format(body=body)}")
    _, findings = run(Engine(engine, module), 0, 1, max_steps=1 << 16)
    assert {finding.code for finding in findings} == ({code} if code else set())
