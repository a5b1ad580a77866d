"""A separate program: random PTX at wild addresses, with every buffer of the virtual GPU between guard pages.

    python -m tests.fuzz.wild_addresses --first SEED --kernels N [--programs P] [--place end|start] [--watch]
    python -m tests.fuzz.wild_addresses --prove

prints one JSON object. An access outside the buffers ends it by a signal; a changed byte of the arena outside all
allocations ends it by an assertion. `--prove` makes such an access, so that a test can check the guards.
"""

import argparse
import ctypes
import json
import random
import sys
from collections import Counter

import numpy as np

import weft
from tests.fuzz import guard_pages
from tests.fuzz.wild_programs import ADDRESSES, address, kernel
from weft.core.errors import Unsupported
from weft.core.records import Binary
from weft.probes import InitCheck, Probes, RaceCheck
from weft.vm.memory import ALIGN, GLOBAL_BASE, RED_ZONE, GlobalMemory
from weft.vm.runtime.watch import Instrumentation

BLOCK = 64
MAX_STEPS = 1 << 12
"""Backward branches of one host thread; infinite programs reach it."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kernels", type=int, default=1)
    parser.add_argument("--programs", type=int, default=16)
    parser.add_argument("--place", choices=("end", "start"), default="end")
    parser.add_argument("--watch", action="store_true", help="with initcheck and racecheck")
    parser.add_argument("--prove", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    guard_pages.install(at_end=options.place == "end")
    if options.prove:
        arena = GlobalMemory(1 << 16).arena
        outside = arena.ctypes.data + (len(arena) if options.place == "end" else -1)
        ctypes.c_uint8.from_address(outside).value = 1
    watch = Probes(InitCheck(), RaceCheck()) if options.watch else Instrumentation()
    codes: Counter[str] = Counter()
    programs = refused = 0
    for seed in range(options.first, options.first + options.kernels):
        print(f"kernel {seed}", file=sys.stderr, flush=True)  # the last one is at fault if this ends by a signal
        try:
            codes.update(_run(seed, options.programs, watch))
            programs += options.programs
        except Unsupported as error:
            print(error, file=sys.stderr)
            refused += options.programs
    print(json.dumps({"programs": programs, "refused": refused, "codes": dict(sorted(codes.items()))}))


def _run(seed: int, programs: int, watch: Instrumentation) -> list[str]:
    """Launch one kernel; return the codes of its findings."""
    draw = random.Random(seed)
    gpu = weft.VirtualGPU(threads=1 + seed % 2)
    gpu.memory = GlobalMemory(1 << 16)  # small buffers, so that the guard is near
    text = kernel(seed, programs)
    table = np.array([address(draw) for _ in range(programs * ADDRESSES * BLOCK)], np.uint64)
    out = np.zeros(64, np.uint32)
    binary = Binary("wild.ptx", "sm_89", "by hand", (), text, ptx_digest=f"wild {seed} {programs}")
    block = BLOCK if seed % 3 else 40  # complete warps, or one with lanes missing
    allocations = _allocations(gpu.memory)
    run = gpu.launch(binary, "wild", programs, block, [table, out], max_steps=MAX_STEPS, watch=watch)
    _check_gaps(gpu.memory, allocations)
    return [finding.code for finding in run.findings]


def _allocations(memory: GlobalMemory) -> list[tuple[int, int]]:
    """Return start and size of everything that will be allocated."""
    made: list[tuple[int, int]] = []
    allocate = memory.allocate

    def recorded(size_bytes: int, name: str = "", *, align: int = ALIGN) -> int:
        place = allocate(size_bytes, name, align=align)
        made.append((place - GLOBAL_BASE, size_bytes))
        return place

    vars(memory)["allocate"] = recorded
    return made


def _check_gaps(memory: GlobalMemory, allocations: list[tuple[int, int]]) -> None:
    """Check that the arena did not change outside allocations."""
    untouched = np.ones(len(memory.arena), bool)
    untouched[:RED_ZONE] = False
    for start, size in allocations:
        untouched[start : start + size + RED_ZONE] = False
        red_zone = memory.arena[start + size : start + size + RED_ZONE]
        assert (red_zone == 0xFF).all(), f"written behind the allocation at {start:#x}"
    assert (memory.arena[untouched] == guard_pages.FILL).all(), "written between allocations"


if __name__ == "__main__":
    main()
