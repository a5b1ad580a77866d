"""A kernel is one file: CUDA C++, PTX or Triton, whose `weft:` comment lines say how it is launched.

kernel = load("attention.cu")
run, arrays = kernel.run(VirtualGPU(), {"q": q, "k": k, "v": v})
arrays["o"]
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.core.chips import choose_gpu, target_of
from weft.core.errors import LaunchError, ResourceError, UsageError
from weft.core.finding_codes import FINDING_CODES
from weft.core.records import Binary, Dim3, Finding, Place, Run
from weft.toolchain.cuda import compile_cuda
from weft.toolchain.ptx_file import is_ptx
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array
from .bind import Bound, bind_arrays, bind_numbers, infer_sizes, take_arrays
from .compile_file import compile_launches
from .expressions import Expression
from .launch_file import ptx_lines
from .launch_lines import at_line, parse_lines
from .launch_records import ArrayLine, LaunchLine, LaunchLines, ScalarLine
from .pass_arguments import pass_arguments
from .propose_lines import propose_lines
from .propose_ptx_lines import propose_ptx_lines
from .protocol import Engine, require_watch
from .ptx_parameters import parameters
from .sample import Sample, require_one_plane
from .spell_findings import folded, plain_names, user_place
from .suppress import Allow, parse_allows, sift, unused
from .triton_file import is_triton
from .written import Written

PLAIN_SHARED_BYTES = 48 * 1024
"""Shared memory that a launch may have without opting in."""

MAX_STEPS = 1 << 28
"""Backward branches that one host thread may run in a launch: some seconds of an endless loop, and several times what
attention over 2048 keys needs."""


class NoLaunchLines(UsageError):
    """The file does not say how it is launched; `draft` holds lines to start from."""

    def __init__(self, file: str, draft: str) -> None:
        super().__init__(f"{file} has no `// weft: launch` line. Put lines like these at its head:\n{draft}")
        self.draft = draft


class FileRun(NamedTuple):
    """What a kernel file's run left: findings and figures, and every array it declares."""

    run: Run
    arrays: dict[str, Array]


@dataclass(frozen=True)
class KernelFile:
    """A CUDA file and what its lines declare. Nothing is compiled before `compile` or `run`."""

    path: str
    gpu: str
    """A GPU's name, or an architecture for its smallest GPU."""
    lines: LaunchLines
    defines: Mapping[str, str]
    """The caller's macros, which override the file's."""
    include_dirs: tuple[str, ...] = ()
    allows: tuple[Allow, ...] = ()
    """The file's own allow lines."""
    debug: bool = False
    """Compile as with -G: nothing optimised away, locals in memory."""
    compiler: str = "nvrtc"
    """Or `nvcc`, which reads host code too."""
    launch_path: str = ""
    """The file of the launch lines, where they stand beside the kernel; empty: in it."""

    @property
    def arch(self) -> str:
        """The architecture it is compiled for."""
        return target_of(self.gpu)

    @property
    def lines_path(self) -> str:
        """The file to which errors about launch lines belong."""
        return self.launch_path or self.path

    @property
    def compiled(self) -> bool:
        """Whether the file is PTX: its macros are settled."""
        return is_ptx(self.path)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Default sizes."""
        return self.lines.sizes

    @property
    def arrays(self) -> tuple[ArrayLine, ...]:
        """Arrays that are passed, workspaces excepted."""
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
        """The sequence."""
        return self.lines.launches

    def compile(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> Binary:
        """The file as `run` would compile it: sizes choose template arguments and macros."""
        binaries = self.binaries(arrays, sizes=sizes)
        if len({binary.ptx_digest for binary in binaries.values()}) > 1:
            names = ", ".join(binaries)
            raise UsageError(f"{self.path} launches {names}, which Triton compiles one by one: see `binaries`")
        return next(iter(binaries.values()))

    def binaries(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> dict[str, Binary]:
        """What `run` would launch: entry → its binary, one and the same for all but of Triton."""
        return self._compile(self._numbers(infer_sizes(self.lines, take_arrays(self.lines, arrays), sizes)))

    def run(
        self,
        gpu: Engine,
        arrays: Mapping[str, Any] = {},
        *,
        sizes: Mapping[str, int] = {},
        seed: int = 0,
        watch: Instrumentation = PLAIN,
        ctas: Sample | None = None,
        max_steps: int = MAX_STEPS,
        only: int | None = None,
        prepared: Mapping[str, Array] = {},
    ) -> FileRun:
        """Run every launch in order, on the given arrays; the others are generated from `seed`.

        Sizes follow from the shapes of the given arrays. Given `out` and `inout` arrays change in place.
        A launch with findings is the last one: on hardware nothing would run after a fault. Findings that the source
        allows, and those of severity INFO, do not count.

        `ctas` runs a part of every launch; what the others would have written stays poisoned. Raises CannotSample,
        before anything runs, where the launches' grids do not agree in x and y or CTAs may depend on each other.
        `max_steps` ends endless loops: backward branches that one host thread may run in a launch.

        `only` runs one launch of the sequence; `prepared` holds what the others would have left in workspaces.
        """
        if gpu.arch != self.arch.rstrip("af"):
            raise UsageError(f"{self.path} was loaded for {self.arch}; this GPU is {gpu.arch}")
        require_watch(gpu, watch)
        taken = take_arrays(self.lines, arrays)
        bound = self._numbers(infer_sizes(self.lines, taken, sizes))
        placed = bind_arrays(self.lines, self.lines_path, taken, bound.names, seed=seed)
        for name, contents in prepared.items():
            placed[name][...] = contents
        binaries = self._compile(bound)
        sequence = self._sequence(bound) if only is None else (self.launches[only],)
        if ctas is not None:
            require_one_plane(self._grids(bound), self.path)
            for entry, binary in binaries.items():
                gpu.check_sample(binary, entry)
        self._initialise(gpu, binaries, placed)
        before = {line.name: placed[line.name].tobytes() for line in self._with_role("in")}
        empty = [line.name for line in self._with_role("out", "workspace") if line.name not in prepared]
        written = Written(placed[name] for name in empty)
        runs: list[Run] = []
        found: list[Finding] = []
        first = self._entry(sequence[0], bound)
        with gpu.sequence(binaries[first], first):
            for launch in sequence:
                with at_line(self.lines_path, launch.line):
                    binary = binaries[self._entry(launch, bound)]
                    given = self._launch(gpu, binary, launch, bound, placed)
                    runs.append(
                        gpu.launch(binary, **given, watch=watch, ctas=ctas, written=written, max_steps=max_steps)
                    )
                found += [self._spelled(finding) for finding in runs[-1].findings]
                if not replace(runs[-1], findings=sift(found, self.allows).kept).clean:
                    break
        complete = only is None and len(runs) == len(sequence)
        found += self._changed_inputs(before, placed)
        return FileRun(self._sifted(runs, found, watch, complete=complete), placed)

    def _sifted(self, runs: Sequence[Run], found: Sequence[Finding], watch: Instrumentation, *, complete: bool) -> Run:
        """One run of several, without what the source allows; with the allow lines that a complete one did not need."""
        sifted = sift(folded(found), self.allows)
        run = replace(_merged(runs, sifted.kept), suppressed=sifted.suppressed)
        if not run.clean or not complete or run.counters.get("ctas_left_out"):
            return run
        tools = {FINDING_CODES[code].tool for code, _ in watch.codes.values()}
        return replace(run, findings=run.findings + unused(self.allows, sifted.used, tools))

    def grids(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> tuple[Dim3, ...]:
        """The grid of every launch, as `run` would launch it."""
        return self._grids(self._numbers(infer_sizes(self.lines, take_arrays(self.lines, arrays), sizes)))

    def sequence(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> tuple[LaunchLine, ...]:
        """The launches that `run` would make: all but those whose `when` says no."""
        return self._sequence(self._numbers(infer_sizes(self.lines, take_arrays(self.lines, arrays), sizes)))

    def numbers(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> dict[str, str]:
        """The macros and scalars of a call, as text."""
        bound = self._numbers(infer_sizes(self.lines, take_arrays(self.lines, arrays), sizes))
        return {**{name: str(value) for name, value in bound.scalars.items()}, **bound.defines}

    def _sequence(self, bound: Bound) -> tuple[LaunchLine, ...]:
        found = []
        for launch in self.launches:
            with at_line(self.lines_path, launch.line):
                if launch.when is None or launch.when.value(bound.names):
                    found.append(launch)
        if not found:
            raise UsageError(f"{self.lines_path}: no launch is left: every `when` says no for these sizes")
        return tuple(found)

    def _grids(self, bound: Bound) -> tuple[Dim3, ...]:
        grids = []
        for launch in self._sequence(bound):
            with at_line(self.lines_path, launch.line):
                x, y, z = (*(size.integer(bound.names, "grid") for size in launch.grid), 1, 1)[:3]
                grids.append((x, y, z))
        return tuple(grids)

    def _with_role(self, *roles: str) -> tuple[ArrayLine, ...]:
        return tuple(line for line in self.lines.arrays if line.role in roles)

    def _numbers(self, sizes: Mapping[str, int]) -> Bound:
        return bind_numbers(self.lines, self.lines_path, sizes=sizes, defines=self.defines)

    def _compile(self, bound: Bound) -> dict[str, Binary]:
        return compile_launches(self, {self._entry(launch, bound): launch for launch in self._sequence(bound)}, bound)

    def _entry(self, launch: LaunchLine, bound: Bound) -> str:
        """The name expression: `attn<{D}, {causal}>` → `attn<64, true>`."""
        pieces = []
        with at_line(self.lines_path, launch.line):
            for piece in launch.callee:
                pieces.append(piece if isinstance(piece, str) else _template_argument(piece, bound))
        return "".join(pieces).strip()

    def _initialise(self, gpu: Engine, binaries: Mapping[str, Binary], placed: Mapping[str, Array]) -> None:
        entry, binary = next(iter(binaries.items()))
        for line in self.constants:
            with at_line(self.lines_path, line.line):
                gpu.set_symbol(binary, entry, line.name, placed[line.name])

    def _launch(
        self, gpu: Engine, binary: Binary, launch: LaunchLine, bound: Bound, placed: Mapping[str, Array]
    ) -> dict[str, Any]:
        """The arguments of `gpu.launch`."""
        entry = self._entry(launch, bound)
        grid = [size.integer(bound.names, "grid") for size in launch.grid]
        block = [size.integer(bound.names, "block") for size in launch.block]
        triton = is_triton(self.path)
        shared_bytes = launch.shared.integer(bound.names, "shared") if launch.shared else binary.dynamic_shared_bytes
        if shared_bytes < 0:
            raise LaunchError(f"shared({launch.shared.text if launch.shared else ''}) is {shared_bytes}")
        if triton and math.prod(block) != 32 * binary.num_warps:
            threads = ", ".join(map(str, block))
            raise LaunchError(f"block({threads}): Triton compiled {entry} for {binary.num_warps} warps")
        if not (launch.opt_in_shared or triton):  # Triton's own launcher opts in
            _require_plain_shared(entry, gpu.static_shared_bytes(binary, entry), shared_bytes, gpu)
        params = parameters(binary.ptx, binary.entries[entry])
        given = len(launch.arguments) if triton else len(params)  # Triton adds pointers to scratch memory
        args = [*pass_arguments(launch.arguments, params[:given], bound, placed), *[0] * (len(params) - given)]
        names = [argument.text if isinstance(argument, Expression) else "struct" for argument in launch.arguments]
        names += ["scratch"] * (len(params) - given)
        return {
            "entry": entry,
            "grid": grid,
            "block": block,
            "args": args,
            "shared_bytes": shared_bytes,
            "names": names,
        }

    def _spelled(self, finding: Finding) -> Finding:
        """In the user's words: line, names, and the file as it was given; the compiler was told its absolute path."""
        absolute = os.path.abspath(self.path)
        place, other = (_respelled(user_place(at), absolute, self.path) for at in (finding.place, finding.other))
        if place is None and self.compiled and finding.ptx_line:
            place = Place(self.path, finding.ptx_line)
        message, name = plain_names(finding.message), plain_names(finding.name)
        return replace(finding, message=message, name=name, place=place, other=other)

    def _changed_inputs(self, before: Mapping[str, bytes], placed: Mapping[str, Array]) -> tuple[Finding, ...]:
        changed = []
        for line in self._with_role("in"):
            array = placed[line.name]
            now = array.reshape(-1).view(np.uint8)
            different = np.flatnonzero(np.frombuffer(before[line.name], np.uint8) != now)
            if different.size:
                first = int(different[0]) // array.dtype.itemsize
                message = f"the kernel changed {line.name}, which is declared `in`, first at element {first}"
                changed.append(Finding("K501", message, place=Place(self.lines_path, line.line)))
        return tuple(changed)


def load(
    path: str | os.PathLike[str],
    *,
    gpu: str = "",
    arch: str = "",
    defines: Mapping[str, str] = {},
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    launch: str | os.PathLike[str] | None = None,
    compiler: str = "nvrtc",
) -> KernelFile:
    """Read the launch lines of a CUDA or PTX file. Raises NoLaunchLines, with a draft of them, if there are none.

    `gpu` is the GPU it is compiled for (default: l4); `arch` (`sm_89`) chooses the smallest GPU of an architecture.
    `launch` is the file of a PTX file's lines, where it is not the one beside it. `compiler` is `nvrtc` or `nvcc`.
    """
    spelled, chosen = os.fspath(path), choose_gpu(gpu, arch)
    try:
        text = Path(spelled).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {spelled}: {error}") from error
    macros = {name: str(value) for name, value in defines.items()}
    if is_ptx(spelled):
        if compiler != "nvrtc":
            raise UsageError(f"--compiler {compiler}: {spelled} is compiled already")
        return _load_ptx(text, spelled, chosen, macros, launch)
    if launch is not None:
        raise UsageError(f"{spelled} has its launch lines in itself; --launch is for PTX")
    lines = parse_lines(text, spelled, defines=macros)
    folders = tuple(os.fspath(directory) for directory in include_dirs)
    if is_triton(spelled):
        if not lines.launches:
            raise UsageError(f"{spelled} has no `# weft: launch` line; docs/reference/launch_lines.md shows one")
        return KernelFile(spelled, chosen, lines, macros, allows=parse_allows(text, spelled))
    if not lines.launches:
        binary = compile_cuda(
            spelled,
            arch=target_of(chosen),
            defines=macros,
            include_dirs=folders,
            options=lines.options,
            compiler=compiler,
        )
        raise NoLaunchLines(spelled, propose_lines(text, binary))
    return KernelFile(spelled, chosen, lines, macros, folders, parse_allows(text, spelled), compiler=compiler)


def _load_ptx(
    text: str, path: str, gpu: str, macros: Mapping[str, str], launch: str | os.PathLike[str] | None
) -> KernelFile:
    """What was a macro of the source is settled: a `define` line only says what it was."""
    found = ptx_lines(text, path, launch)
    if found is None:
        raise NoLaunchLines(path, propose_ptx_lines(text))
    if found.lines.options:
        raise UsageError(f"{found.path}: option {' '.join(found.lines.options)}: {path} is compiled already")
    kernel = KernelFile(path, gpu, found.lines, {}, allows=parse_allows(text, path), launch_path=found.path)
    settled = bind_numbers(found.lines, found.path, sizes={}, defines={}).defines
    for name, value in macros.items():
        if settled.get(name) != value:
            was = f"compiled with {settled[name]}" if name in settled else "not named in its launch lines"
            raise UsageError(f"-D {name}={value}: {path} is compiled already, {name} is {was}")
    return kernel


def _template_argument(piece: Expression, bound: Bound) -> str:
    text = bound.names.get(piece.name)
    if isinstance(text, str):
        return text
    value = piece.value(bound.names)
    if isinstance(value, float):
        raise UsageError(f"{{{piece.text}}} is {value}; a template argument is an integer")
    return str(value).lower()


def _require_plain_shared(entry: str, static_bytes: int, dynamic_bytes: int, gpu: Engine) -> None:
    total = static_bytes + dynamic_bytes
    if total > PLAIN_SHARED_BYTES:
        raise ResourceError(
            f"{entry} asks for {total} bytes of shared memory, {static_bytes} of them static; "
            f"above {PLAIN_SHARED_BYTES} a launch must opt in: add opt_in_shared to its line "
            f"({gpu.arch} then gives a CTA up to {gpu.shared_limit_bytes})"
        )


def _respelled(place: Place | None, absolute: str, spelled: str) -> Place | None:
    if place is None:
        return None
    file = spelled if place.file == absolute else place.file
    return replace(place, file=file, inlined_at=_respelled(place.inlined_at, absolute, spelled))


def _merged(runs: Sequence[Run], findings: tuple[Finding, ...]) -> Run:
    counters: dict[str, int] = {}
    for run in runs:
        for name, count in run.counters.items():
            counters[name] = counters.get(name, 0) + count
    return Run(
        entries=tuple(entry for run in runs for entry in run.entries),
        findings=findings,
        printed="".join(run.printed for run in runs),
        instructions=sum(run.instructions for run in runs),
        source_digest=runs[0].source_digest,
        ptx_digest=runs[0].ptx_digest,
        defines=runs[0].defines,
        counters=counters,
    )
