"""The virtual GPU: compiled kernels on this machine's CPU, on NumPy arrays or CPU torch tensors."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from weft.core import knobs
from weft.core.chips import Chip, chip_of, choose_gpu
from weft.core.errors import ResourceError, UsageError
from weft.core.records import Binary, Run, merge_runs
from weft.core.register_file import require_registers
from weft.vm.launch import run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.layout import place_variables
from weft.vm.memory import GlobalMemory
from weft.vm.program import Program, compile_program
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array, HostArrays, as_array, pack_parameters
from .assembler_notes import fixes_registers, note_findings
from .launch import Launch
from .protocol import DEFAULTS, Capabilities, Engine, RunOptions, require_possible
from .sample import CannotSample


class VirtualGPU(Engine):
    """One device: its global memory, the kernels compiled for it, and how it runs them.

    `gpu` is a GPU's name (`l4`), an architecture (`sm_89`, for its smallest GPU; `arch` is a synonym) or a Chip.
    `mode` chooses tensor-core arithmetic (`hardware` rounds as the silicon does, `ieee` accumulates in plain fp32),
    `threads` the number of host threads that run CTAs, `schedule` another order of CTAs and warps (0: in order).
    `most_programs` limits how many compiled kernels stay in memory (some megabytes each); one that was dropped is read
    from the cache again.
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
        most_programs: int | None = None,
    ) -> None:
        self.chip = gpu if isinstance(gpu, Chip) else chip_of(choose_gpu(gpu, arch))
        self.arch, self.mode, self.schedule = self.chip.architecture.target, mode, schedule
        self.threads = threads if threads is not None else knobs.threads()
        self.memory = GlobalMemory()
        self._most_programs = most_programs
        self._programs: dict[tuple[str, str], Program] = {}
        """The last used at the end."""
        self._globals: dict[str, dict[str, int]] = {}
        self._scratches = 0
        """Number of open `scratch` blocks."""

    def run(self, launches: Sequence[Launch], options: RunOptions = DEFAULTS) -> Run:
        """Run kernels in order on this device; see `Engine.run`."""
        return merge_runs(tuple(self.each(launches, options)))

    def each(
        self, launches: Sequence[Launch], options: RunOptions, watches: Sequence[Instrumentation] = ()
    ) -> Iterator[Run]:
        """Run like `run`, but return a Run for every launch; `watches` has one per launch, replacing options.watch."""
        require_possible(self, launches, options)
        watches = watches or (options.watch,) * len(launches)
        for launch in launches:
            with launch.located():
                self._check(launch, options)
        with self.scratch(launches):
            if any(watch.keeps_written for watch in watches):
                self.memory.keep_written()
            arrays = Buffers(self.memory)
            blocks = []
            for launch in launches:
                with launch.located():
                    params = self.program(launch.binary, launch.entry).plan.params
                    blocks.append(pack_parameters(params, launch.args, arrays.address, launch.names))
            arrays.copy_in(options.uninitialised)
            for launch, block, watch in zip(launches, blocks, watches, strict=True):
                with launch.located():
                    chosen = options if watch is options.watch else replace(options, watch=watch)
                    done = self._run_one(launch, block, chosen, arrays)
                if options.ctas is not None:  # CTAs that did not run might have written any byte
                    arrays.count_as_written(options.uninitialised)
                yield done
                if not options.goes_on(done):
                    break
            arrays.copy_out()

    def _run_one(self, launch: Launch, params: bytes, options: RunOptions, arrays: "Buffers") -> Run:
        """Run one launch. `params` holds the addresses of `arrays`, which were copied in before."""
        binary, program = launch.binary, self.program(launch.binary, launch.entry)
        numbers = options.ctas.cta_numbers(launch.grid) if options.ctas is not None else None
        spec = LaunchSpec(
            program.plan.entry,
            launch.grid,
            launch.block,
            params,
            launch.shared_bytes,
            self.mode,
            options.max_steps,
            registers=_registers(launch),
            fixed_registers=fixes_registers(binary),
            sms=self.chip.sms,
            cluster=launch.cluster,
        )
        outcome = run(
            program,
            spec,
            self.memory,
            globals_at=self._module_globals(binary, program),
            threads=self.threads,
            schedule=self.schedule,
            watch=options.watch,
            ctas=numbers,
            chip=self.chip,
        )
        counters = dict(outcome.counters)
        if numbers is not None:
            counters["ctas_left_out"] = math.prod(spec.grid) - len(numbers)
        return Run(
            (launch.entry,),
            (*outcome.findings, *note_findings(binary, launch.symbol, program)) if binary.notes else outcome.findings,
            outcome.printed,
            outcome.instructions,
            binary.source_digest,
            binary.ptx_digest,
            binary.defines,
            counters,
            visits=(outcome.visits,) if outcome.visits is not None else (),
        )

    def _check(self, launch: Launch, options: RunOptions) -> None:
        """Raise for a launch that cannot run here."""
        plan = self.program(launch.binary, launch.entry).plan
        self.check_shared(launch)
        if math.prod(launch.block) > plan.max_threads:
            raise ResourceError(
                f"block {launch.block} is larger than {launch.entry}'s launch bound of {plan.max_threads} threads"
            )
        if registers := _registers(launch):
            require_registers(self.chip.architecture, math.prod(launch.block), registers)
        if options.ctas is None:
            return
        if plan.ordered:
            raise CannotSample(
                f"{launch.entry} has atomics or volatile, relaxed or acquire loads of global memory, "
                "so a CTA may depend on others: run all CTAs"
            )
        options.ctas.cta_numbers(launch.grid)

    @property
    def shared_limit_bytes(self) -> int:
        """Bytes of shared memory that a CTA can have with opt-in."""
        return self.chip.architecture.shared_bytes_per_block

    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        """Return the bytes of static shared memory of the kernel."""
        return self.program(binary, entry).plan.layout.static_shared_bytes

    @contextmanager
    def scratch(self, launches: Sequence[Launch]) -> Iterator[None]:
        """Free at the end what is allocated inside, for these launches.

        The variables of every module are placed before and stay for later launches.
        """
        for launch in launches:
            self._module_globals(launch.binary, self.program(launch.binary, launch.entry))
        mark = self.memory.mark()
        self._scratches += 1
        try:
            yield
        finally:
            self._scratches -= 1
            self.memory.release(mark)

    def reset(self) -> None:
        """Free memory and variables, as cudaDeviceReset does. Kernels stay compiled."""
        self.memory = GlobalMemory()
        self._globals = {}

    def program(self, binary: Binary, entry: str) -> Program:
        """Return the kernel compiled for this host; `entry` as the user writes it or as in the PTX."""
        name = binary.entries.get(entry, entry)
        key = (binary.ptx_digest, name)
        program = self._programs.pop(key, None)
        if program is None:
            cubin = binary.shared.get(name, ())
            program = compile_program(binary.ptx, name, mode=self.mode, arch=self.arch, cubin=cubin)
            while self._most_programs is not None and len(self._programs) >= self._most_programs:
                del self._programs[next(iter(self._programs))]
        self._programs[key] = program
        return program

    def program_of(self, ptx_digest: str, entry: str) -> Program:
        """Return a kernel that ran here, by the PTX digest of its Visits."""
        return self._programs[ptx_digest, entry]

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
            raise UsageError(f"the value for {name} has {len(data)} bytes; the variable has {size}")
        self.memory.write(places[name], data)

    def _module_globals(self, binary: Binary, program: Program) -> dict[str, int]:
        placed = self._globals.get(binary.ptx_digest, {})
        if binary.ptx_digest not in self._globals or any(v.name not in placed for v in program.plan.globals):
            if self._scratches:  # its variables would be freed with the scratch memory
                raise UsageError(f"{program.plan.entry} is not one of the launches of this `scratch` block")
            self.memory.rewind()
            self._globals[binary.ptx_digest] = place_variables(program.plan.globals, self.memory, placed)
        return self._globals[binary.ptx_digest]


def _registers(launch: Launch) -> int:
    """Return registers per thread; 0 where unknown, as for a -G build, whose registers are not the final kernel's."""
    resources = launch.binary.resources.get(launch.symbol)
    return resources.registers if resources is not None and "-G" not in launch.binary.flags else 0


class Buffers(HostArrays):
    """Host arrays with addresses in the virtual GPU's memory, and which of their bytes count as written."""

    def __init__(self, memory: GlobalMemory) -> None:
        super().__init__(lambda size_bytes, name: memory.allocate(size_bytes, f"argument {name}"))
        self.memory = memory

    def copy_in(self, uninitialised: Sequence[Array]) -> None:
        for array, address in self.placed.values():
            self.memory.write(address, array.reshape(-1).view(np.uint8))
        self._set_written(uninitialised, written=False)

    def count_as_written(self, uninitialised: Sequence[Array]) -> None:
        """Mark arrays that started uninitialised as written."""
        self._set_written(uninitialised, written=True)

    def _set_written(self, arrays: Sequence[Array], *, written: bool) -> None:
        """Set whether the bytes of these arrays count as written, where a checker tracks it."""
        if self.memory.written is None:
            return
        for view in map(as_array, arrays):
            key = (view.ctypes.data, view.nbytes) if view is not None else None
            if key in self.placed:
                self.memory.mark_written(self.placed[key][1], key[1], written=written)

    def copy_out(self) -> None:
        for array, address in self.placed.values():
            if array.flags.writeable:
                array.reshape(-1).view(np.uint8)[:] = self.memory.read(address, array.nbytes)
