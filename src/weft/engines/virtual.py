"""The virtual GPU: compiled kernels on this machine's CPU, on NumPy arrays or CPU torch tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core import knobs
from weft.core.errors import LaunchError, UsageError
from weft.core.records import Binary, Dim3, Run
from weft.vm.launch import PLAIN, run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.layout import place_variables
from weft.vm.memory import GlobalMemory
from weft.vm.program import Program, compile_program
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array, as_array, pack_parameters

SHARED_LIMIT_BYTES = {"sm_80": 163 * 1024, "sm_86": 99 * 1024, "sm_89": 99 * 1024, "sm_90": 227 * 1024}
"""Most shared memory one CTA can have, by opt-in."""


class VirtualGPU:
    """One device: its global memory, the kernels compiled for it, and how it runs them.

    `mode` chooses tensor-core arithmetic (`hardware` rounds as the silicon does, `ieee` accumulates in plain fp32),
    `threads` how many host threads run CTAs, `schedule` another order of CTAs and warps (0: in order).
    """

    def __init__(
        self, arch: str = "sm_89", *, mode: str = "hardware", threads: int | None = None, schedule: int = 0
    ) -> None:
        if arch not in SHARED_LIMIT_BYTES:
            raise UsageError(f"arch {arch!r}: the virtual GPU knows {', '.join(SHARED_LIMIT_BYTES)}")
        self.arch, self.mode, self.schedule = arch, mode, schedule
        self.threads = threads if threads is not None else knobs.threads()
        self.memory = GlobalMemory()
        self._programs: dict[tuple[str, str], Program] = {}
        self._globals: dict[str, dict[str, int]] = {}

    def launch(
        self,
        binary: Binary,
        entry: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        names: Sequence[str] = (),
        max_steps: int = 1 << 32,
        watch: Instrumentation = PLAIN,
    ) -> Run:
        """Launch a kernel. Arrays among `args` are copied in before and out after, so they change in place.

        `names` are what findings call the arguments; without them they are numbered. `max_steps` ends endless loops:
        backward branches that one host thread may run.
        """
        program = self.program(binary, entry)
        plan = program.plan
        self._check_shared(plan.layout.static_shared_bytes + shared_bytes, entry)
        if np.prod(_dim3(block)) > plan.max_threads:
            raise LaunchError(f"block {block} is larger than {entry}'s launch bound of {plan.max_threads} threads")
        globals_at = self._module_globals(binary, program)
        mark = self.memory.mark()
        try:
            buffers = _Buffers(self.memory)
            params = pack_parameters(plan.params, args, buffers.address, names)
            buffers.copy_in()
            spec = LaunchSpec(plan.entry, _dim3(grid), _dim3(block), params, shared_bytes, self.mode, max_steps)
            outcome = run(
                program, spec, self.memory, globals_at=globals_at, threads=self.threads, schedule=self.schedule,
                watch=watch,
            )  # fmt: skip
            buffers.copy_out()
        finally:
            self.memory.release(mark)
        return Run(
            (entry,), outcome.findings, outcome.printed, outcome.instructions, binary.source_digest,
            binary.ptx_digest, binary.defines, outcome.counters,
        )  # fmt: skip

    def program(self, binary: Binary, entry: str) -> Program:
        """The kernel compiled for this host; `entry` as the user writes it or as it stands in the PTX."""
        name = binary.entries.get(entry, entry)
        key = (binary.ptx_digest, name)
        if key not in self._programs:
            cubin = binary.shared.get(name, ())
            self._programs[key] = compile_program(binary.ptx, name, mode=self.mode, arch=self.arch, cubin=cubin)
        return self._programs[key]

    def set_symbol(self, binary: Binary, entry: str, name: str, value: Array) -> None:
        """Initialise a `__constant__` or `__device__` variable, as cudaMemcpyToSymbol does."""
        program = self.program(binary, entry)
        places = self._module_globals(binary, program)
        size = next((v.size_bytes for v in program.plan.globals if v.name == name), None)
        if size is None:
            known = ", ".join(places) or "none"
            raise UsageError(f"no variable {name!r} in this module; it has: {known}")
        data = np.ascontiguousarray(value).view(np.uint8).reshape(-1)
        if len(data) > size:
            raise UsageError(f"{len(data)} bytes for {name}, which has {size}")
        self.memory.write(places[name], data)

    def _module_globals(self, binary: Binary, program: Program) -> dict[str, int]:
        if binary.ptx_digest not in self._globals:
            self._globals[binary.ptx_digest] = place_variables(program.plan.globals, self.memory)
        return self._globals[binary.ptx_digest]

    def _check_shared(self, size_bytes: int, entry: str) -> None:
        limit = SHARED_LIMIT_BYTES[self.arch]
        if size_bytes > limit:
            raise LaunchError(
                f"{entry} asks for {size_bytes} bytes of shared memory; {self.arch} has {limit} per CTA. "
                "Smaller tiles or fewer pipeline stages help."
            )


class _Buffers:
    """Host arrays of one launch and their places on the device; the same memory twice is one buffer."""

    def __init__(self, memory: GlobalMemory) -> None:
        self.memory = memory
        self.placed: dict[tuple[int, int], tuple[Array, int]] = {}

    def address(self, value: Array, name: str) -> int:
        array = as_array(value)
        assert array is not None
        if not array.flags.c_contiguous:
            raise LaunchError("an array that is not C-contiguous: pass np.ascontiguousarray(array)")
        key = (array.ctypes.data, array.nbytes)
        if key not in self.placed:
            for start, size in self.placed:
                if start < key[0] + key[1] and key[0] < start + size:
                    raise LaunchError(
                        f"argument {name} overlaps another array in part; pass copies, or one array twice"
                    )
            self.placed[key] = (array, self.memory.allocate(array.nbytes, f"argument {name}"))
        return self.placed[key][1]

    def copy_in(self) -> None:
        for array, address in self.placed.values():
            self.memory.write(address, array.reshape(-1).view(np.uint8))

    def copy_out(self) -> None:
        for array, address in self.placed.values():
            if array.flags.writeable:
                array.reshape(-1).view(np.uint8)[:] = self.memory.read(address, array.nbytes)


def _dim3(size: int | Sequence[int]) -> Dim3:
    sizes = (size,) if isinstance(size, int) else tuple(int(n) for n in size)
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(f"a size of {len(sizes)} dimensions: give one to three")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
