"""The virtual GPU: compiled kernels on this machine's CPU, on NumPy arrays or CPU torch tensors."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.core import knobs
from weft.core.chips import Chip, chip_of, choose_gpu
from weft.core.errors import ResourceError, UsageError
from weft.core.records import Binary, Run
from weft.vm.launch import PLAIN, run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.layout import place_variables
from weft.vm.memory import GLOBAL_BASE, Bytes, GlobalMemory
from weft.vm.program import Program, compile_program
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array, pack_parameters
from .host_arrays import HostArrays, dim3
from .protocol import Capabilities
from .sample import CannotSample, Sample
from .written import EVERYTHING_WRITTEN, Written


class VirtualGPU:
    """One device: its global memory, the kernels compiled for it, and how it runs them.

    `gpu` is a GPU's name (`l4`), an architecture (`sm_89`, for its smallest GPU; `arch` is a synonym) or a Chip.
    `mode` chooses tensor-core arithmetic (`hardware` rounds as the silicon does, `ieee` accumulates in plain fp32),
    `threads` how many host threads run CTAs, `schedule` another order of CTAs and warps (0: in order).
    """

    name = "virtual"
    capabilities = Capabilities(can_watch=True, can_sample=True, exact=True)

    def __init__(
        self,
        gpu: str | Chip = "",
        *,
        arch: str = "",
        mode: str = "hardware",
        threads: int | None = None,
        schedule: int = 0,
    ) -> None:
        self.chip = gpu if isinstance(gpu, Chip) else chip_of(choose_gpu(gpu, arch))
        self.arch, self.mode, self.schedule = self.chip.architecture.target, mode, schedule
        self.threads = threads if threads is not None else knobs.threads()
        self.memory = GlobalMemory()
        self._programs: dict[tuple[str, str], Program] = {}
        self._globals: dict[str, dict[str, int]] = {}
        self._kept: _Buffers | None = None

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
        ctas: Sample | None = None,
        written: Written = EVERYTHING_WRITTEN,
    ) -> Run:
        """Launch a kernel. Arrays among `args` are copied in before and out after, so they change in place.

        `names` are what findings call the arguments; without them they are numbered. `max_steps` ends endless loops:
        backward branches that one host thread may run. `ctas` runs a part of the grid; the counter `ctas_left_out`
        then says how much is missing. Arrays named by `written` start uninitialised, for initcheck.
        """
        program = self.program(binary, entry)
        plan = program.plan
        self._check_shared(plan.layout.static_shared_bytes + shared_bytes, entry)
        if np.prod(dim3(block)) > plan.max_threads:
            raise ResourceError(f"block {block} is larger than {entry}'s launch bound of {plan.max_threads} threads")
        numbers = None
        if ctas is not None:
            self.check_sample(binary, entry)
            numbers = ctas.cta_numbers(dim3(grid))
        globals_at = self._module_globals(binary, program)
        mark = self.memory.mark()
        buffers = self._kept or _Buffers(self.memory)
        if watch.keeps_written:
            self.memory.keep_written()
        try:
            params = pack_parameters(plan.params, args, buffers.address, names)
            buffers.copy_in()
            buffers.tell(written)
            spec = LaunchSpec(plan.entry, dim3(grid), dim3(block), params, shared_bytes, self.mode, max_steps)
            outcome = run(
                program,
                spec,
                self.memory,
                globals_at=globals_at,
                threads=self.threads,
                schedule=self.schedule,
                watch=watch,
                ctas=numbers,
                chip=self.chip,
            )
            buffers.copy_out()
            buffers.ask(written, complete=numbers is None)
        finally:
            if buffers is not self._kept:
                self.memory.release(mark)
        counters = dict(outcome.counters)
        if numbers is not None:
            counters["ctas_left_out"] = math.prod(spec.grid) - len(numbers)
        return Run(
            (entry,),
            outcome.findings,
            outcome.printed,
            outcome.instructions,
            binary.source_digest,
            binary.ptx_digest,
            binary.defines,
            counters,
        )

    @property
    def shared_limit_bytes(self) -> int:
        """Most shared memory that a CTA can have, by opt-in."""
        return self.chip.architecture.shared_bytes_per_block

    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        """Shared memory that the kernel has without asking at its launch."""
        return self.program(binary, entry).plan.layout.static_shared_bytes

    def check_sample(self, binary: Binary, entry: str) -> None:
        """Raise CannotSample if CTAs may see what others did: atomics and strong loads of global memory."""
        if self.program(binary, entry).plan.ordered:
            raise CannotSample(
                f"{entry} has atomics or volatile, relaxed or acquire loads of global memory, "
                "so a CTA may depend on others: run it whole"
            )

    @contextmanager
    def sequence(self, binary: Binary, entry: str) -> Iterator[None]:
        """Launches inside find every array where the one before left it: nothing is freed between them.

        Variables of a module that is first launched inside stay at the end, as those of `binary` do.
        """
        self._module_globals(binary, self.program(binary, entry))
        mark = self.memory.mark()
        self._kept = _Buffers(self.memory)
        try:
            yield
        finally:
            self._kept = None
            variables = {address for places in self._globals.values() for address in places.values()}
            self.memory.release(mark, keep=variables)

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
            self.memory.rewind()
            self._globals[binary.ptx_digest] = place_variables(program.plan.globals, self.memory)
        return self._globals[binary.ptx_digest]

    def _check_shared(self, size_bytes: int, entry: str) -> None:
        if size_bytes > self.shared_limit_bytes:
            raise ResourceError(
                f"{entry} asks for {size_bytes} bytes of shared memory; {self.arch} has {self.shared_limit_bytes} "
                "per CTA. Smaller tiles or fewer pipeline stages help."
            )


class _Buffers(HostArrays):
    """Host arrays with places in the virtual GPU's memory, and which bytes of them were written."""

    def __init__(self, memory: GlobalMemory) -> None:
        super().__init__(lambda size_bytes, name: memory.allocate(size_bytes, f"argument {name}"))
        self.memory = memory

    def copy_in(self) -> None:
        for array, address in self.placed.values():
            self.memory.write(address, array.reshape(-1).view(np.uint8))

    def tell(self, written: Written) -> None:
        """Which bytes of the arrays were written before this launch."""
        for flags, known in self._known(written):
            known[:] = flags

    def ask(self, written: Written, *, complete: bool) -> None:
        """Which bytes are written after it; CTAs that were left out might have written any."""
        for flags, known in self._known(written):
            flags[:] = known if complete else 0xFF

    def _known(self, written: Written) -> Iterator[tuple[Bytes, Bytes]]:
        """The host's and the device's flags of each array that started uninitialised."""
        for array, address in self.placed.values():
            flags, start = written.flags(array), address - GLOBAL_BASE
            if flags is not None and self.memory.written is not None:
                yield flags, self.memory.written[start : start + array.nbytes]

    def copy_out(self) -> None:
        for array, address in self.placed.values():
            if array.flags.writeable:
                array.reshape(-1).view(np.uint8)[:] = self.memory.read(address, array.nbytes)
