"""Runs kernels with tensor maps on both engines: buffers by name, a parameter for each map and each buffer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.ptx.harness import ENGINES
from weft.core.records import Finding
from weft.ptx.parse import parse
from weft.vm import launch as jit
from weft.vm.launch_spec import LaunchSpec
from weft.vm.layout import lay_out, place_globals
from weft.vm.memory import GlobalMemory
from weft.vm.program import compile_program
from weft.vm.reference import interpreter
from weft.vm.tensor_map import TensorMap

Array = npt.NDArray[Any]
MapOf = Callable[[Mapping[str, int]], TensorMap | bytes]
"""Address of each buffer → a tensor map, or its bytes."""
THREADS = 64
AREA = 8192
"""Bytes of shared memory that a kernel may fill; the mbarriers follow."""
DECLARATIONS = f"""
.shared .align 1024 .b8 area[{AREA}];
.shared .align 8 .b64 bars[4];
.shared .align 128 .b8 made[128];
"""
PROLOGUE = """
  .reg .pred %first, %done, %more; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .b16 %h<4>; .reg .b32 %area, %bar, %tid;
  mov.u32 %tid, %tid.x; setp.eq.u32 %first, %tid, 0; mov.u32 %area, area; mov.u32 %bar, bars;
"""
WAIT = """
  WAIT{n}: mbarrier.try_wait.parity.shared::cta.b64 %done, [{bar}], {parity};
  @!%done bra WAIT{n};
"""
DUMP = f"""
  bar.sync 0;
  ld.param.u64 %rd18, [out]; mov.u32 %r38, %tid;
  DUMP: shl.b32 %r39, %r38, 2; cvt.u64.u32 %rd19, %r39; add.u64 %rd19, %rd18, %rd19;
  add.u32 %r39, %area, %r39; ld.shared.b32 %r39, [%r39]; st.global.b32 [%rd19], %r39;
  add.u32 %r38, %r38, {THREADS}; setp.lt.u32 %more, %r38, {AREA // 4}; @%more bra DUMP;
"""
"""Copies the area to the buffer `out`."""
FILL = f"""
  mov.u32 %r38, %tid;
  FILL: shl.b32 %r39, %r38, 2; cvt.u64.u32 %rd19, %r39; ld.param.u64 %rd18, [area_in]; add.u64 %rd19, %rd18, %rd19;
  ld.global.b32 %r37, [%rd19]; add.u32 %r39, %area, %r39; st.shared.b32 [%r39], %r37;
  add.u32 %r38, %r38, {THREADS}; setp.lt.u32 %more, %r38, {AREA // 4}; @%more bra FILL;
  bar.sync 0;
"""
"""Fills the area from the buffer `area_in`."""


@dataclass(frozen=True)
class Ran:
    """The buffers after a launch, and its findings."""

    buffers: Mapping[str, Array]
    findings: tuple[Finding, ...]

    @property
    def codes(self) -> set[str]:
        return {finding.code for finding in self.findings}


def text_of(body: str, maps: Sequence[str], buffers: Sequence[str], target: str) -> str:
    """Return a module whose kernel `k` has these parameters."""
    params = [f".param .align 64 .b8 {name}[128]" for name in maps] + [f".param .u64 {name}" for name in buffers]
    addresses = "\n".join(
        f"  mov.b64 %rd{number}, {name}; cvta.param.u64 %rd{number}, %rd{number};" for number, name in enumerate(maps)
    )
    head = f".version 8.7\n.target {target}\n.address_size 64\n{DECLARATIONS}"
    return f"{head}.visible .entry k({', '.join(params)})\n{{{PROLOGUE}{addresses}\n{body}\n  ret;\n}}\n"


def run(
    body: str,
    buffers: Mapping[str, Array],
    maps: Mapping[str, MapOf] | None = None,
    *,
    target: str = "sm_90a",
    threads: int = THREADS,
    schedules: Sequence[int] = (0,),
) -> Ran:
    """Run `body` on every engine and, compiled, in every schedule; assert that all agree; return the first result.

    %rd0, %rd1 … are the generic addresses of the maps, %area and %bar those of shared memory, %first is thread 0.
    """
    maps = maps or {}
    module = parse(text_of(body, list(maps), list(buffers), target))
    module.functions["k"].check_supported()
    runs = [_launch(module, engine, buffers, maps, threads, 0) for engine in ENGINES]
    runs += [_launch(module, "jit", buffers, maps, threads, schedule) for schedule in schedules if schedule]
    for other in runs[1:]:
        assert other.codes == runs[0].codes, (other.findings, runs[0].findings)
        for name in buffers:
            np.testing.assert_array_equal(other.buffers[name], runs[0].buffers[name], name)
    return runs[0]


def run_one(body: str, buffers: Mapping[str, Array], maps: Mapping[str, MapOf], *, schedule: int) -> Ran:
    """Run `body` compiled, in one schedule."""
    module = parse(text_of(body, list(maps), list(buffers), "sm_90a"))
    return _launch(module, "jit", buffers, maps, THREADS, schedule)


def _launch(
    module: Any, engine: str, buffers: Mapping[str, Array], maps: Mapping[str, MapOf], threads: int, schedule: int
) -> Ran:
    memory = GlobalMemory(1 << 20)
    globals_at = place_globals(module, memory)
    places = {}
    for name, data in buffers.items():
        places[name] = memory.allocate(data.nbytes, f"argument {name}")
        memory.write(places[name], np.ascontiguousarray(data).reshape(-1).view(np.uint8))
    layout = lay_out(module, module.functions["k"])
    block = bytearray(128 * len(maps) + 8 * len(buffers))
    for name, make in maps.items():
        made = make(places)
        at = layout.symbols[name].address
        block[at : at + 128] = made if isinstance(made, bytes) else made.encode()
    for name, place in places.items():
        at = layout.symbols[name].address
        block[at : at + 8] = place.to_bytes(8, "little")
    spec = LaunchSpec("k", (1, 1, 1), (threads, 1, 1), bytes(block), 0, max_steps=10_000_000)
    if engine == "reference":
        outcome = interpreter.run(module, spec, memory, layout=layout, globals_at=globals_at, arch="sm_90")
    else:
        program = compile_program(module, "k", mode="ieee")
        outcome = jit.run(program, spec, memory, globals_at=globals_at, schedule=schedule)
    found = {
        name: memory.read(places[name], data.nbytes).copy().view(data.dtype).reshape(data.shape)
        for name, data in buffers.items()
    }
    return Ran(found, outcome.findings)
