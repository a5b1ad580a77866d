"""A virtual GPU that also records: some CTAs of every launch run again, on the reference interpreter."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from weft.core.errors import Unsupported, UsageError
from weft.core.records import Binary, Dim3, Run
from weft.engines.arguments import Array, as_array, pack_parameters
from weft.engines.launch import Launch
from weft.engines.protocol import RunOptions
from weft.engines.virtual import Buffers, VirtualGPU
from weft.ptx.module import Function, Module
from weft.ptx.parse import parse
from weft.ptx.passes.inline_calls import inline_calls
from weft.vm.launch_spec import DeviceRun, LaunchSpec
from weft.vm.layout import Layout, lay_out, module_globals, place_globals
from weft.vm.memory import Bytes, GlobalMemory
from weft.vm.reference import interpreter
from weft.vm.runtime.watch import Instrumentation

from .provenance import Provenance

Position = tuple[int, int]
"""blockIdx.x and blockIdx.y; all z are recorded."""


MOST_INSTRUCTIONS = 300_000
"""Warp instructions after which a recording ends: about a minute, even if the kernel never ends."""


class RecordingGPU(VirtualGPU):
    """Launches as a VirtualGPU does; before that, the CTAs at `position` are followed from the same memory.

    Without `whole`, only the recorded CTAs run, and nothing is compiled for the host.
    """

    def __init__(self, gpu: str, provenance: Provenance, position: Position, *, whole: bool = True) -> None:
        super().__init__(gpu)
        self.provenance, self.position, self.whole = provenance, position, whole
        self.recorded_instructions = 0
        self.cut_short = False
        self._modules: dict[str, Module] = {}
        self._variables: dict[str, Bytes] = {}
        """Contents of the module's variables that were set, or changed by recorded CTAs."""

    def each(
        self, launches: Sequence[Launch], options: RunOptions, watches: Sequence[Instrumentation] = ()
    ) -> Iterator[Run]:
        """Run as a VirtualGPU does, or only the recorded CTAs; the provenance keeps the recording."""
        if self.whole:
            yield from super().each(launches, options, watches)
            return
        for launch in launches:
            with launch.located():
                self.check_shared(launch)
                outcome, binary = self._follow(launch), launch.binary
            run = Run(
                (launch.entry,),
                outcome.findings,
                outcome.printed,
                outcome.instructions,
                binary.source_digest,
                binary.ptx_digest,
                binary.defines,
            )
            yield run
            if not options.goes_on(run):
                break

    def _run_one(self, launch: Launch, params: bytes, options: RunOptions, arrays: Buffers) -> Run:
        arrays.copy_out()  # the recording starts from the host's arrays, with the results of earlier launches
        self._follow(launch)
        return super()._run_one(launch, params, options, arrays)

    def _follow(self, launch: Launch) -> DeviceRun:
        """Record the chosen CTAs of a launch."""
        most = max(MOST_INSTRUCTIONS - self.recorded_instructions, 1)
        spec = LaunchSpec(
            launch.symbol,
            launch.grid,
            launch.block,
            b"",
            launch.shared_bytes,
            self.mode,
            most,
            sms=self.chip.sms,
            cluster=launch.cluster,
        )
        outcome = self._record(launch, spec)
        self.recorded_instructions += outcome.instructions
        self.cut_short |= any(finding.code == "S302" for finding in outcome.findings)
        return outcome

    def _record(self, launch: Launch, spec: LaunchSpec) -> DeviceRun:
        binary = launch.binary
        module, layout = self._module(binary), self._layout(binary, spec.entry)
        called = {array.ctypes.data: name for name, array in launch.arrays.items()}
        memory = GlobalMemory()
        globals_at = self._place_globals(binary, spec.entry, memory)
        arrays: dict[str, Array] = {}
        placed: dict[int, int] = {}

        def address(value: Array, argument: str) -> int:
            array = as_array(value)
            assert array is not None
            if array.ctypes.data not in placed:
                placed[array.ctypes.data] = memory.allocate(array.nbytes, f"argument {argument}")
                memory.write(placed[array.ctypes.data], array.reshape(-1).view(np.uint8))
                arrays[called.get(array.ctypes.data, argument)] = array
            return placed[array.ctypes.data]

        params = [layout.symbols[variable.name] for variable in module.functions[spec.entry].params]
        block = pack_parameters([(p.name, p.address, p.size_bytes) for p in params], launch.args, address, launch.names)
        self.provenance.arrays = arrays
        outcome = interpreter.run(
            module,
            replace(spec, params=block),
            memory,
            layout=layout,
            globals_at=globals_at,
            arch=self.arch,
            ctas=self._linear(spec.grid),
            observer=self.provenance.transport,
        )
        self.provenance.end()
        if not self.whole:
            for variable in module_globals(module):
                self._variables[variable.name] = memory.read(globals_at[variable.name], variable.size_bytes)
            for array in arrays.values():
                if array.flags.writeable:
                    array.reshape(-1).view(np.uint8)[:] = memory.read(placed[array.ctypes.data], array.nbytes)
        return outcome

    def _place_globals(self, binary: Binary, entry: str, memory: GlobalMemory) -> dict[str, int]:
        """Place the module's variables with the contents that were set or that earlier launches wrote."""
        module = self._module(binary)
        places = place_globals(module, memory)
        if self.whole:
            held = self._module_globals(binary, self.program(binary, entry))
            for variable in module_globals(module):
                if variable.name in held:  # others belong to kernels that were not compiled
                    self._variables[variable.name] = self.memory.read(held[variable.name], variable.size_bytes)
        for variable in module_globals(module):
            if variable.name in self._variables and not variable.relocations:  # those are addresses of this memory
                memory.write(places[variable.name], self._variables[variable.name])
        return places

    def _module(self, binary: Binary) -> Module:
        if binary.ptx_digest not in self._modules:
            module = parse(binary.ptx)
            # Nodes are followed through registers and memory, not through the interpreter's own calls.
            kernels: dict[str, Function] = {}
            for name in module.entries():
                with contextlib.suppress(Unsupported):  # a launch of it raises this again
                    kernels[name] = inline_calls(module, module.functions[name])
            self._modules[binary.ptx_digest] = replace(module, functions={**module.functions, **kernels})
        return self._modules[binary.ptx_digest]

    def _layout(self, binary: Binary, name: str) -> Layout:
        module = self._module(binary)
        return lay_out(module, module.functions[name], binary.shared.get(name, ()))

    # -- what a kernel file needs from a GPU, without compiling for the host--------------------------------------

    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        return self._layout(binary, binary.entries.get(entry, entry)).static_shared_bytes

    def set_symbol(self, binary: Binary, entry: str, name: str, value: Array) -> None:
        if self.whole:
            super().set_symbol(binary, entry, name, value)
            return
        size = next((v.size_bytes for v in module_globals(self._module(binary)) if v.name == name), None)
        data = np.ascontiguousarray(value).view(np.uint8).reshape(-1)
        if size is None or len(data) > size:
            raise UsageError(f"{len(data)} bytes for the variable {name!r}, which has {size or 'none'}")
        self._variables[name] = data.copy()

    def _linear(self, grid: Dim3) -> list[int]:
        x, y = (min(at, size - 1) for at, size in zip(self.position, grid, strict=False))
        return [(z * grid[1] + y) * grid[0] + x for z in range(grid[2])]
