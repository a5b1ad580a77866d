"""A kernel file: CUDA C++, PTX or Triton, whose `weft:` comment lines state how it is launched.

kernel = load("attention.cu")
run, arrays = kernel.run(VirtualGPU(), {"q": q, "k": k, "v": v})
arrays["o"]

The stages are values, each made once: the file's text and lines (`KernelSource`), the lines with the types that macros
choose (`KernelFile`), sizes, arrays and compiled launches (`BoundKernel`), and the run.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weft.core.chips import choose_gpu, target_of
from weft.core.errors import LaunchError, UsageError, at_line
from weft.core.records import Binary, Diagnostic, Dim3, Place
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .adapt_lines import Wanted, adapt_lines
from .arguments import Array
from .bind import Bound, NotTaken, bind_arrays, bind_numbers, infer_sizes, outline_arrays, take_arrays
from .bound_kernel import BoundKernel, FileRun
from .compile_file import Build, compile_launches, compile_source
from .element_types import ELEMENT_TYPES
from .expressions import Expression
from .kernel_source import KernelSource, read_source
from .launch import Launch
from .launch_lines import choose_types
from .launch_records import Argument, ArrayLine, LaunchLine, LaunchLines, MapArgument, ScalarLine
from .parameter_types import require_types
from .pass_arguments import Parameter, parameters, pass_arguments
from .propose_lines import propose_lines, propose_ptx_lines
from .protocol import Engine
from .sample import CtaSample
from .suppress import Allow

MAX_STEPS = 1 << 28
"""Backward branches that one host thread may run in a launch: an infinite loop ends after some seconds, and attention
over 2048 keys needs several times fewer."""


ReadHostCode = Callable[[KernelSource, str, Sequence[str]], KernelSource]
"""Source, architecture, include folders → the source with its device code separated."""


class NoLaunchLines(UsageError):
    """The file has no launch lines; `draft` holds lines to start from."""

    def __init__(self, file: str, draft: str) -> None:
        super().__init__(f"{file} has no `// weft: launch` line. Add lines like these at the top of the file:\n{draft}")
        self.draft = draft


@dataclass(frozen=True)
class KernelFile:
    """A kernel file and what its lines declare. Nothing is compiled before `compile`, `bind` or `run`.

    What is compiled stays with the value: calls with the same macros and template arguments share it.
    """

    source: KernelSource
    gpu: str
    """A GPU's name, or an architecture for its smallest GPU."""
    lines: LaunchLines
    """The source's, with the types that macros choose."""
    defines: Mapping[str, str]
    """The caller's macros, which override the file's."""
    include_dirs: tuple[str, ...] = ()
    allows: tuple[Allow, ...] = ()
    """The file's own allow lines."""
    debug: bool = False
    """Compile as with -G: nothing optimised away, locals in memory."""
    compiler: str = "nvrtc"
    """`nvrtc`, or `nvcc`, which compiles host code too."""
    _with_macros: dict[tuple[tuple[str, str], ...], "KernelFile"] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _bound: dict[tuple[tuple[str, int], ...], Bound] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _binaries: dict[tuple[object, ...], dict[str, Binary]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _parameters: dict[tuple[str, str], tuple[Parameter, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def path(self) -> str:
        """The file's path, as the caller gives it."""
        return self.source.path

    @property
    def arch(self) -> str:
        """The architecture it is compiled for."""
        return target_of(self.gpu)

    @property
    def lines_path(self) -> str:
        """The file that errors about launch lines name."""
        return self.source.lines_path

    @property
    def compiled(self) -> bool:
        """Whether the file is PTX, whose macros are fixed."""
        return self.source.compiled

    @property
    def sizes(self) -> Mapping[str, int]:
        """Default sizes."""
        return self.lines.sizes

    @property
    def arrays(self) -> tuple[ArrayLine, ...]:
        """Arrays that are passed, except workspaces."""
        return self._with_role("in", "out", "inout")

    @property
    def outputs(self) -> tuple[ArrayLine, ...]:
        """Arrays that carry a result."""
        return self._with_role("out", "inout")

    @property
    def workspaces(self) -> tuple[ArrayLine, ...]:
        """Scratch memory between launches."""
        return self._with_role("workspace")

    @property
    def constants(self) -> tuple[ArrayLine, ...]:
        """`__constant__` and `__device__` variables to initialise."""
        return self._with_role("constant")

    @property
    def scalars(self) -> tuple[ScalarLine, ...]:
        """Numbers with a type."""
        return self.lines.scalars

    @property
    def launches(self) -> tuple[LaunchLine, ...]:
        """The launch lines, in order."""
        return self.lines.launches

    def with_macros(self, defines: Mapping[str, str]) -> "KernelFile":
        """Return the file with these macros instead of its defaults; equal macros return the same value.

        The file is neither read nor parsed again, and each of these values compiles its kernels once.
        """
        macros = {name: str(value) for name, value in defines.items()}
        key = tuple(sorted(macros.items()))
        if key not in self._with_macros:
            self._with_macros[key] = replace(
                self,
                lines=choose_types(self.source.lines, self.lines_path, macros),
                defines=_require_settled(self.source, macros) if self.compiled else macros,
            )
        return self._with_macros[key]

    def adapted(self, wanted: tuple[Wanted, ...]) -> "KernelFile":
        """Return the file with arrays named and shaped as the caller has them; see `adapt_lines.py`."""
        source = replace(self.source, lines=adapt_lines(self.source.lines, wanted, self.lines_path))
        return replace(self, source=source, lines=choose_types(source.lines, self.lines_path, self.defines))

    def compile(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> Binary:
        """Compile the file as `run` does: sizes choose template arguments and macros."""
        binaries = self.binaries(arrays, sizes=sizes)
        if len({binary.ptx_digest for binary in binaries.values()}) > 1:
            names = ", ".join(binaries)
            raise UsageError(f"{self.path} launches {names}, which Triton compiles one by one: see `binaries`")
        return next(iter(binaries.values()))

    def binaries(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> dict[str, Binary]:
        """Return entry → its binary, for everything `run` would launch; one binary for all, except with Triton."""
        return dict(self._compile(self._numbers(take_arrays(self.lines, arrays), sizes)))

    def diagnostics(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> tuple[Diagnostic, ...]:
        """Return the compiler's messages about everything `run` would launch, each once."""
        binaries = self.binaries(arrays, sizes=sizes).values()
        return tuple(dict.fromkeys(each for binary in binaries for each in binary.diagnostics))

    def bind(
        self,
        arrays: Mapping[str, Any] = {},
        *,
        sizes: Mapping[str, int] = {},
        seed: int = 0,
        only: int | None = None,
        prepared: Mapping[str, Array] = {},
    ) -> BoundKernel:
        """Return the launches of a call on these arrays, compiled and ready to run; the other arrays are generated.

        `only` is the number of one launch line; `prepared` holds the workspaces that the others would have written.
        """
        taken = take_arrays(self.lines, arrays)
        bound = self._numbers(taken, sizes)
        placed = bind_arrays(self.lines, self.lines_path, taken, bound.names, seed=seed)
        for name, contents in prepared.items():
            placed[name][...] = contents
        return self._bound_kernel(bound, placed, only=only, prepared=tuple(prepared))

    def outline(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
        """Return every array of a call on inputs of these shapes, only type and shape. Raises for refused sizes."""
        return outline_arrays(self.lines, self.lines_path, self._outlined(shapes).names)

    def sizes_of(self, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, int]:
        """Return the sizes of a call on arrays of these shapes."""
        return self._outlined(shapes).sizes

    def bind_outline(self, shapes: Mapping[str, tuple[int, ...]]) -> BoundKernel:
        """Return the compiled launches of a call on inputs of these shapes; without arrays, so they cannot run."""
        bound = self._outlined(shapes)
        return self._bound_kernel(bound, outline_arrays(self.lines, self.lines_path, bound.names))

    def run(
        self,
        gpu: Engine,
        arrays: Mapping[str, Any] = {},
        *,
        sizes: Mapping[str, int] = {},
        seed: int = 0,
        watch: Instrumentation = PLAIN,
        ctas: CtaSample | None = None,
        max_steps: int = MAX_STEPS,
        only: int | None = None,
        prepared: Mapping[str, Array] = {},
    ) -> FileRun:
        """Run every launch in order, on the given arrays; the others are generated from `seed`.

        Sizes follow from the shapes of the given arrays. Given `out` and `inout` arrays change in place.
        A launch with findings ends the run: on hardware nothing would run after a fault. Findings that the source
        allows, and those of severity INFO, do not count.

        `ctas` runs a part of every launch; what the other CTAs would have written stays poisoned. Raises CannotSample,
        before anything runs, where the launches' grids do not agree in x and y or CTAs may depend on each other.
        `max_steps` ends infinite loops: backward branches that one host thread may run in a launch.

        `only` runs one launch of the sequence; `prepared` holds the workspaces that the others would have written.
        """
        bound = self.bind(arrays, sizes=sizes, seed=seed, only=only, prepared=prepared)
        return bound.run(gpu, watch=watch, ctas=ctas, max_steps=max_steps)

    def grids(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> tuple[Dim3, ...]:
        """Return the grid of every launch, as `run` would launch it."""
        return tuple(launch.grid for launch in self._planned(self._numbers(take_arrays(self.lines, arrays), sizes)))

    def sequence(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> tuple[LaunchLine, ...]:
        """Return the launches that `run` would make: all except those whose `when` condition is false."""
        return self._sequence(self._numbers(take_arrays(self.lines, arrays), sizes))

    def launches_at(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple["PlannedLaunch", ...]:
        """Return what a call on inputs of these shapes would launch. Nothing is compiled. Raises for refused sizes."""
        return self._planned(self._outlined(shapes))

    def _planned(self, bound: Bound) -> tuple["PlannedLaunch", ...]:
        planned = []
        for line in self._sequence(bound):
            with at_line(self.lines_path, line.line):
                grid, block = _dim3(line.grid, bound, "grid"), _dim3(line.block, bound, "block")
            planned.append(PlannedLaunch(line, self._entry(line, bound), grid, block, bound))
        return tuple(planned)

    def numbers(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> dict[str, str]:
        """Return the macros and scalars of a call, as text."""
        bound = self._numbers(take_arrays(self.lines, arrays), sizes)
        return {**{name: str(value) for name, value in bound.scalars.items()}, **bound.defines}

    @property
    def may_refuse(self) -> bool:
        """Whether its launch lines can exclude a call by its sizes or macros."""
        return bool(self.lines.requires) or any(
            size.name not in self.sizes for line in self.arrays for size in line.shape
        )

    def refusal(self, arrays: Mapping[str, Any]) -> str:
        """Return why the lines exclude a call on these arrays (a `require`, an array of another shape, one size for
        two); empty if they do not."""
        taken = take_arrays(self.lines, arrays)
        try:
            names = self._numbers(taken, {}).names
        except NotTaken as error:
            return error.why
        for line in (each for each in self.lines.arrays if each.name in taken):
            if tuple(size.integer(names, line.name) for size in line.shape) != taken[line.name].shape:
                return line.text
        return ""

    def _sequence(self, bound: Bound) -> tuple[LaunchLine, ...]:
        found = []
        for launch in self.launches:
            with at_line(self.lines_path, launch.line):
                if launch.when is None or launch.when.value(bound.names):
                    found.append(launch)
        if not found:
            raise UsageError(f"{self.lines_path}: nothing to launch: every `when` condition is false for these sizes")
        return tuple(found)

    def _outlined(self, shapes: Mapping[str, tuple[int, ...]]) -> Bound:
        """Return the numbers of a call on arrays of these shapes."""
        elements = {line.name: line.element for line in self.lines.arrays}
        stand_ins = {
            name: np.broadcast_to(np.zeros((), ELEMENT_TYPES[elements[name]]), shape)
            for name, shape in shapes.items()
            if name in elements
        }
        return self._numbers(stand_ins, {})

    def _bound_kernel(
        self, bound: Bound, placed: dict[str, Array], *, only: int | None = None, prepared: tuple[str, ...] = ()
    ) -> BoundKernel:
        binaries = self._compile(bound)
        sequence = self._sequence(bound) if only is None else (self.launches[only],)
        return BoundKernel(
            source=self.source,
            arch=self.arch,
            declared=self.lines.arrays,
            arrays=placed,
            launches=tuple(self._launch(line, binaries, bound, placed) for line in sequence),
            uninitialised=tuple(line.name for line in self._with_role("out", "workspace") if line.name not in prepared),
            allows=self.allows,
            complete=only is None,
        )

    def _with_role(self, *roles: str) -> tuple[ArrayLine, ...]:
        return tuple(line for line in self.lines.arrays if line.role in roles)

    def _numbers(self, taken: Mapping[str, Array], sizes: Mapping[str, int]) -> Bound:
        """Return the numbers of a call; calls of the same sizes share one value."""
        inferred = infer_sizes(self.lines, taken, sizes)
        key = tuple(inferred.items())
        if key not in self._bound:
            self._bound[key] = bind_numbers(self.lines, self.lines_path, sizes=inferred, defines=self.defines)
        return self._bound[key]

    def _compile(self, bound: Bound) -> dict[str, Binary]:
        """Return entry → its binary. Only sizes that choose macros or template arguments matter; with Triton all do."""
        launches = {self._entry(launch, bound): launch for launch in self._sequence(bound)}
        numbers = bound.names if self.source.is_triton else bound.defines
        key = (tuple(launches), tuple(numbers.items()))
        if key not in self._binaries:
            build = Build(self.arch, self.include_dirs, self.debug, self.compiler)
            self._binaries[key] = compile_launches(self.source, self.lines, build, launches, bound)
        return self._binaries[key]

    def _entry(self, launch: LaunchLine, bound: Bound) -> str:
        """Return the name expression: `attn<{D}, {causal}>` → `attn<64, true>`."""
        pieces = []
        with at_line(self.lines_path, launch.line):
            for piece in launch.callee:
                pieces.append(piece if isinstance(piece, str) else _template_argument(piece, bound))
        return "".join(pieces).strip()

    def _launch(
        self, line: LaunchLine, binaries: Mapping[str, Binary], bound: Bound, placed: Mapping[str, Array]
    ) -> Launch:
        """Return the launch of a line."""
        entry, triton = self._entry(line, bound), self.source.is_triton
        binary = binaries[entry]
        with at_line(self.lines_path, line.line):
            grid = [size.integer(bound.names, "grid") for size in line.grid]
            block = [size.integer(bound.names, "block") for size in line.block]
            cluster = [size.integer(bound.names, "cluster") for size in line.cluster]
            shared_bytes = line.shared.integer(bound.names, "shared") if line.shared else binary.dynamic_shared_bytes
            if shared_bytes < 0:
                raise LaunchError(f"shared({line.shared.text if line.shared else ''}) is {shared_bytes}")
            if triton and math.prod(block) != 32 * binary.num_warps:
                threads = ", ".join(map(str, block))
                raise LaunchError(f"block({threads}): Triton compiled {entry} for {binary.num_warps} warps")
            params = self._params(binary, entry)
            given = len(line.arguments) if triton else len(params)  # Triton adds pointers to scratch memory
            args = [*pass_arguments(line.arguments, params[:given], bound, placed), *[0] * (len(params) - given)]
            if not triton:  # Triton compiles for the types of the lines
                require_types(line.arguments, self.lines.arrays, binary, entry, self.source.text)
            names = [_called(argument) for argument in line.arguments]
            return Launch(
                binary,
                entry,
                grid,
                block,
                args,
                shared_bytes=shared_bytes,
                cluster=cluster,
                names=[*names, *["scratch"] * (len(params) - given)],
                arrays=placed,
                opt_in_shared=line.opt_in_shared or triton,  # Triton's own launcher opts in
                place=Place(self.lines_path, line.line),
            )

    def _params(self, binary: Binary, entry: str) -> tuple[Parameter, ...]:
        key = (binary.ptx_digest, binary.entries[entry])
        if key not in self._parameters:
            self._parameters[key] = parameters(binary.ptx, binary.entries[entry])
        return self._parameters[key]


@dataclass(frozen=True)
class PlannedLaunch:
    """A launch line evaluated for some sizes."""

    line: LaunchLine
    entry: str
    """The name expression: `attn<64, true>`."""
    grid: Dim3
    block: Dim3
    bound: Bound

    def arguments(self, binary: Binary, arrays: Mapping[str, Array]) -> list[object]:
        """Return one value per parameter of the compiled kernel, which may have been compiled for other sizes."""
        params = parameters(binary.ptx, binary.entries[self.entry])
        given = len(self.line.arguments)  # Triton adds pointers to scratch memory
        passed = pass_arguments(self.line.arguments, params[:given], self.bound, arrays)
        return [*passed, *[0] * (len(params) - given)]


def load(
    path: str | os.PathLike[str],
    *,
    gpu: str = "",
    arch: str = "",
    defines: Mapping[str, str] = {},
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    launch: str | os.PathLike[str] | None = None,
    compiler: str = "nvrtc",
    host_code: ReadHostCode | None = None,
) -> KernelFile:
    """Read the launch lines of a CUDA, PTX or Triton file. Raises NoLaunchLines, with a draft, if there are none.

    `gpu` is the GPU it is compiled for (default: that of the file's `gpu` line, else l4); `arch` (`sm_89`) chooses the
    smallest GPU of an architecture. `launch` is the launch-line file of a PTX file (default: the `.launch` file next
    to it), `compiler` `nvrtc` or `nvcc`. `host_code` separates a file's host code, and reads launch lines from it
    where the file has none.
    """
    folders = tuple(os.fspath(directory) for directory in include_dirs)
    source = read_source(path, launch, folders)
    chosen = choose_gpu(gpu, arch, source.lines.gpu)
    source.lines.require_gpu(chosen, source.lines_path)
    macros = {name: str(value) for name, value in defines.items()}
    if source.compiled and compiler != "nvrtc":
        raise UsageError(f"--compiler {compiler}: {source.path} is already compiled PTX")
    if host_code is not None:
        source = read_host_code(source, host_code, target_of(chosen), folders)
    if not source.lines.launches:
        raise _no_launch_lines(source, Build(target_of(chosen), folders, False, compiler), macros)
    if source.compiled:
        if source.lines.options:
            options = " ".join(source.lines.options)
            raise UsageError(f"{source.lines_path}: option {options}: {source.path} is already compiled PTX")
        macros, folders = _require_settled(source, macros), ()
    lines = choose_types(source.lines, source.lines_path, macros)
    return KernelFile(source, chosen, lines, macros, folders, source.allows, compiler=compiler)


def _called(argument: Argument) -> str:
    """Return the name of an argument in findings; a tensor map has the name of its array."""
    if isinstance(argument, MapArgument):
        return argument.array
    return argument.text if isinstance(argument, Expression) else "struct"


def read_host_code(
    source: KernelSource, host_code: ReadHostCode, arch: str, include_dirs: Sequence[str]
) -> KernelSource:
    """Return the source with the host code of its CUDA files separated."""
    if source.is_triton:
        return source

    def opened(file: KernelSource) -> KernelSource:
        return file if file.compiled else host_code(file, arch, include_dirs)

    first = opened(source)
    return replace(first, linked=tuple(opened(replace(file, lines=first.lines)) for file in source.linked))


def _no_launch_lines(source: KernelSource, build: Build, macros: Mapping[str, str]) -> UsageError:
    path = source.path
    if source.is_triton:
        return UsageError(f"{path} has no `# weft: launch` line; see docs/reference/launch_lines.md")
    if source.compiled:
        return NoLaunchLines(path, propose_ptx_lines(source.text))
    return NoLaunchLines(path, propose_lines(source.code, compile_source(source, build, defines=macros)))


def _require_settled(source: KernelSource, macros: Mapping[str, str]) -> dict[str, str]:
    """Refuse macros for PTX: those of its source are fixed, and a `define` line only records their values."""
    lines = choose_types(source.lines, source.lines_path, {})
    settled = bind_numbers(lines, source.lines_path, sizes={}, defines={}).defines
    for name, value in macros.items():
        if settled.get(name) != value:
            was = f"compiled with {settled[name]}" if name in settled else "not named in its launch lines"
            raise UsageError(f"-D {name}={value}: {source.path} is already compiled PTX, {name} is {was}")
    return {}


def _dim3(sizes: Sequence[Expression], bound: Bound, what: str) -> Dim3:
    x, y, z = (*(size.integer(bound.names, what) for size in sizes), 1, 1)[:3]
    return x, y, z


def _template_argument(piece: Expression, bound: Bound) -> str:
    text = bound.names.get(piece.name)
    if isinstance(text, str):
        return text
    value = piece.value(bound.names)
    if isinstance(value, float):
        raise UsageError(f"{{{piece.text}}} is {value}; a template argument is an integer")
    return str(value).lower()
