"""CTAs that wait for each other: as many as the GPU holds make progress together, on both engines."""

import struct
import time

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, HEADER, Engine
from weft.core.chips import chip
from weft.core.records import Finding
from weft.ptx.parse import parse
from weft.ptx.passes.build_cfg import build_cfg
from weft.ptx.passes.find_waits import waits_for_others
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GlobalMemory
from weft.vm.program import compile_program
from weft.vm.residency import resident_ctas

ROOM = 58
"""CTAs of 1024 threads on an L4, the smallest GPU of sm_89: one on each SM."""


def _chain(load: str, *, block: int = 32) -> str:
    """CTA i waits for the flag of CTA i + 1 and hands on its number plus one; the last begins with 1."""
    return f"""{HEADER}.visible .entry chain(.param .u64 flags, .param .u32 none) .maxntid {block}
    {{ .reg .b32 %c, %n, %v, %t, %h<3>; .reg .b64 %a, %at; .reg .pred %p, %last;
      ld.param.u64 %a, [flags]; mov.u32 %c, %ctaid.x; mov.u32 %n, %nctaid.x; mov.u32 %t, %tid.x;
      mul.wide.u32 %at, %c, 4; add.u64 %at, %at, %a;
      setp.ne.u32 %p, %t, 0; @%p ret;
      mov.u32 %v, 0;
      add.u32 %h0, %c, 1; setp.eq.u32 %last, %h0, %n; @%last bra HAND;
      WAIT: {load} %v, [%at+4]{", 0" if load.startswith("atom") else ""};
      setp.eq.u32 %p, %v, 0; @%p bra WAIT;
      HAND: add.u32 %v, %v, 1; st.release.gpu.global.u32 [%at], %v; ret; }}"""


def _run(
    text: str, engine: str, ctas: int, *, block: int = 32, max_steps: int = 1 << 24
) -> tuple[list[int], list[Finding]]:
    module = parse(text)
    memory = GlobalMemory(1 << 16)
    flags = memory.allocate(4 * ctas)
    memory.write(flags, bytes(4 * ctas))
    spec = LaunchSpec("chain", (ctas, 1, 1), (block, 1, 1), struct.pack("<QII", flags, 0, 0), max_steps=max_steps)
    outcome = Engine(engine, module).run(spec, memory, {})
    return memory.read(flags, 4 * ctas).view(np.uint32).tolist(), list(outcome.findings)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "load", ["ld.volatile.global.u32", "ld.acquire.gpu.u32", "ld.relaxed.gpu.global.u32", "atom.global.add.u32"]
)
def test_a_cta_may_wait_for_one_that_starts_later(engine: str, load: str) -> None:
    ctas = 30 if engine == "jit" else 6
    flags, findings = _run(_chain(load), engine, ctas)
    assert flags == list(range(ctas, 0, -1))
    assert not findings


def test_as_many_ctas_as_the_gpu_holds() -> None:
    program = compile_program(parse(_chain("ld.acquire.gpu.u32", block=1024)), "chain")
    spec = LaunchSpec("chain", (1, 1, 1), (1024, 1, 1), bytes(16))
    assert resident_ctas(program.plan, spec, chip("l4")) == ROOM
    assert resident_ctas(program.plan, spec, chip("rtx4090")) == 128
    flags, findings = _run(_chain("ld.acquire.gpu.u32", block=1024), "jit", ROOM, block=1024)
    assert flags == list(range(ROOM, 0, -1)) and not findings


def test_a_grid_that_does_not_fit_and_needs_to_is_a_finding() -> None:
    began = time.perf_counter()
    _, (finding,) = _run(_chain("ld.acquire.gpu.u32", block=1024), "jit", ROOM + 3, block=1024, max_steps=1 << 20)
    assert finding.code == "S302"
    assert "3 CTAs have not started" in finding.message
    assert time.perf_counter() - began < 20


def test_ctas_beyond_the_room_start_when_others_end() -> None:
    """A chain the other way round: everybody waits for one that started before."""
    text = _chain("ld.acquire.gpu.u32", block=1024).replace("mov.u32 %c, %ctaid.x;", _BACKWARDS)
    flags, findings = _run(text, "jit", 3 * ROOM, block=1024)
    assert flags == list(range(3 * ROOM, 0, -1)) and not findings


_BACKWARDS = "mov.u32 %c, %ctaid.x; mov.u32 %n, %nctaid.x; sub.u32 %c, %n, %c; sub.u32 %c, %c, 1;"


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        ("L: ld.volatile.global.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra L;", True),
        ("L: atom.global.cas.b32 %v, [%a], 0, 1; add.u32 %w, %v, 1; setp.ne.u32 %p, %w, 1; @%p bra L;", True),
        ("L: ld.acquire.gpu.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @!%p bra M; bra L; M:", True),
        ("L: ld.global.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra L;", False),
        ("L: ld.volatile.shared.u32 %v, [%s]; setp.eq.u32 %p, %v, 0; @%p bra L;", False),
        ("L: atom.global.add.u32 %v, [%a], 1; add.u32 %w, %w, 1; setp.lt.u32 %p, %w, 9; @%p bra L;", False),
        ("L: mov.b32 %w, %v; add.u32 %s, %v, 1; atom.global.cas.b32 %v, [%a], %w, %s; setp.ne.u32 %p, %v, %w;"
         "@%p bra L;", False),
        ("ld.volatile.global.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra M; add.u32 %w, %w, 1; M:", False),
    ],
    ids=["spin", "lock", "two branches", "plain load", "shared flag", "counted loop", "retry", "no loop"],
)  # fmt: skip
def test_which_loops_wait_for_others(loop: str, waits: bool) -> None:
    text = f"{HEADER}.visible .entry k() {{ .reg .b32 %v, %w, %s; .reg .b64 %a; .reg .pred %p; {loop} ret; }}"
    assert waits_for_others(build_cfg(parse(text).functions["k"])) == waits
