"""A thousand random divergent programs: the compiled engine must equal the interpreter in every register.

Every run of the tests has 100 of them, `scripts/test -m sweep` the others.
"""

import struct

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, Array, Engine, check_body
from tests.vm.divergent_programs import VALUES, kernel
from weft.ptx.parse import parse
from weft.vm.launch_spec import DeviceRun, LaunchSpec
from weft.vm.layout import place_globals
from weft.vm.memory import GlobalMemory

BATCHES, PROGRAMS = 50, 20
IN_EVERY_RUN = 5
BLOCKS = (64, 32, 64, 40, 64)


def _run(text: str, engine: str, block: int) -> tuple[Array, DeviceRun]:
    module = parse(text)
    memory = GlobalMemory(1 << 20)
    globals_at = place_globals(module, memory)
    size = PROGRAMS * block * VALUES * 4
    out = memory.allocate(size)
    memory.write(out, bytes(size))
    spec = LaunchSpec("k", (PROGRAMS, 1, 1), (block, 1, 1), struct.pack("<Q", out), max_steps=5_000_000)
    outcome = Engine(engine, module).run(spec, memory, globals_at)
    return memory.read(out, size).view(np.uint32).reshape(PROGRAMS, block, VALUES), outcome


@pytest.mark.parametrize(
    "seed",
    [*range(IN_EVERY_RUN), *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(IN_EVERY_RUN, BATCHES))],
)
def test_random_divergent_programs(seed: int) -> None:
    block = BLOCKS[seed % len(BLOCKS)]
    text = kernel(seed, PROGRAMS)
    reference, outcome = _run(text, "reference", block)
    assert not outcome.findings
    assert len(np.unique(reference)) > PROGRAMS, "the programs compute something"
    for engine in ENGINES[1:]:
        got, other = _run(text, engine, block)
        assert not other.findings
        wrong = [number for number in range(PROGRAMS) if (got[number] != reference[number]).any()]
        assert not wrong, f"programs {wrong} of seed {seed} differ on {engine}"


def test_the_generator_makes_divergent_programs() -> None:
    """The text is not trivial: loops, breaks, exits, collectives and barriers all occur."""
    text = "".join(kernel(seed, PROGRAMS) for seed in range(5))
    for piece in (
        "HEAD",
        "ELSE",
        "exit;",
        "bra OUT;",
        "shfl.sync",
        "vote.sync",
        "redux.sync",
        "bar.warp.sync",
        "bar.sync",
        "red.shared",
    ):
        assert text.count(piece) >= 5, piece


@pytest.mark.parametrize("again", ["", "@%q bra.uni AGAIN;"])
def test_registers_of_all_lanes_survive_a_barrier_and_then_divergence(again: str) -> None:
    """They are stored once when the warp waits; lanes that go separate ways after it all read them."""
    body = f"""
        mov.u32 %u, %ntid.x; mul.lo.u32 %u, %u, 7; cvt.u64.u32 %w, %u; shl.b64 %w, %w, 33; mov.u32 %i, 0; mov.u32 %d, 0;
        setp.gt.u32 %large, %u, 100;
        AGAIN: bar.sync 0; add.u32 %i, %i, 1; and.b32 %n, %x, 7;
        TURN: add.u32 %d, %d, %u; @%large add.u32 %d, %d, 3; shr.u64 %v, %w, 33; cvt.u32.u64 %e, %v; xor.b32 %d, %d, %e;
        sub.u32 %n, %n, 1; setp.lt.s32 %p, %n, 0; @%p bra DONE; and.b32 %e, %n, 1; setp.eq.u32 %p, %e, 0; @%p bra TURN;
        add.u32 %d, %d, %i; bra TURN;
        DONE: setp.lt.u32 %q, %i, 3; {again}
    """
    declarations = ".reg .b32 %u, %i, %n, %e; .reg .b64 %w, %v; .reg .pred %p, %q, %large;"
    x = np.random.default_rng(1).integers(0, 1 << 30, 256).astype(np.uint32)
    ran = check_body(body, {"x": ("b32", x)}, {"d": "b32"}, declarations=declarations)
    assert len(np.unique(ran.outputs["d"])) == 8
