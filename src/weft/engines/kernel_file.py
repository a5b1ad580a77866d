"""A kernel is one file: CUDA C++ whose `// weft:` lines say how it is launched.

kernel = load("attention.cu")
run, arrays = kernel.run(VirtualGPU(), {"q": q, "k": k, "v": v})
arrays["o"]
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.core.errors import CompileError, LaunchError, ResourceError, UsageError
from weft.core.finding_codes import FINDING_CODES
from weft.core.records import Binary, Diagnostic, Dim3, Finding, Place, Run
from weft.toolchain.cuda import compile_cuda
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array
from .bind import Bound, bind_arrays, bind_numbers, infer_sizes, take_arrays
from .expressions import Expression
from .launch_lines import at_line, parse_lines
from .launch_records import ArrayLine, LaunchLine, LaunchLines, ScalarLine
from .pass_arguments import pass_arguments
from .propose_lines import propose_lines
from .protocol import Engine, require_watch
from .ptx_parameters import parameters
from .sample import Sample, require_one_plane
from .spell_findings import folded, plain_names, user_place
from .suppress import Allow, parse_allows, sift, unused
from .written import Written

PLAIN_SHARED_BYTES = 48 * 1024
"""Shared memory that a launch may have without opting in."""

MAX_STEPS = 1 << 28
"""Backward branches that one host thread may run in a launch: some seconds of an endless loop, and several times what
attention over 2048 keys needs."""

_NAME_MAP = "__nv_name_map"
"""The file to which NVRTC ascribes errors in name expressions."""


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
    arch: str
    lines: LaunchLines
    defines: Mapping[str, str]
    """The caller's macros, which override the file's."""
    include_dirs: tuple[str, ...] = ()
    allows: tuple[Allow, ...] = ()
    """The file's own allow lines."""
    debug: bool = False
    """Compile as with -G: nothing optimised away, locals in memory."""

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
        taken = take_arrays(self.lines, arrays)
        return self._compile(self._numbers(infer_sizes(self.lines, taken, sizes)))

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
        placed = bind_arrays(self.lines, self.path, taken, bound.names, seed=seed)
        for name, contents in prepared.items():
            placed[name][...] = contents
        binary = self._compile(bound)
        if ctas is not None:
            require_one_plane(self._grids(bound), self.path)
            for launch in self.launches:
                gpu.check_sample(binary, self._entry(launch, bound))
        self._initialise(gpu, binary, bound, placed)
        before = {line.name: placed[line.name].tobytes() for line in self._with_role("in")}
        empty = [line.name for line in self._with_role("out", "workspace") if line.name not in prepared]
        written = Written(placed[name] for name in empty)
        runs: list[Run] = []
        found: list[Finding] = []
        with gpu.sequence(binary, self._entry(self.launches[0], bound)):
            for launch in self.launches if only is None else (self.launches[only],):
                with at_line(self.path, launch.line):
                    given = self._launch(gpu, binary, launch, bound, placed)
                    runs.append(
                        gpu.launch(binary, **given, watch=watch, ctas=ctas, written=written, max_steps=max_steps)
                    )
                found += [self._spelled(finding) for finding in runs[-1].findings]
                if not replace(runs[-1], findings=sift(found, self.allows).kept).clean:
                    break
        return FileRun(self._sifted(runs, [*found, *self._changed_inputs(before, placed)], watch), placed)

    def _sifted(self, runs: Sequence[Run], found: Sequence[Finding], watch: Instrumentation) -> Run:
        """One run of several, without what the source allows; with the allow lines that a complete one did not need."""
        sifted = sift(folded(found), self.allows)
        run = replace(_merged(runs, sifted.kept), suppressed=sifted.suppressed)
        if not run.clean or len(runs) < len(self.launches) or run.counters.get("ctas_left_out"):
            return run
        tools = {FINDING_CODES[code].tool for code, _ in watch.codes.values()}
        return replace(run, findings=run.findings + unused(self.allows, sifted.used, tools))

    def grids(self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}) -> tuple[Dim3, ...]:
        """The grid of every launch, as `run` would launch it."""
        return self._grids(self._numbers(infer_sizes(self.lines, take_arrays(self.lines, arrays), sizes)))

    def _grids(self, bound: Bound) -> tuple[Dim3, ...]:
        grids = []
        for launch in self.launches:
            with at_line(self.path, launch.line):
                x, y, z = (*(size.integer(bound.names, "grid") for size in launch.grid), 1, 1)[:3]
                grids.append((x, y, z))
        return tuple(grids)

    def _with_role(self, *roles: str) -> tuple[ArrayLine, ...]:
        return tuple(line for line in self.lines.arrays if line.role in roles)

    def _numbers(self, sizes: Mapping[str, int]) -> Bound:
        return bind_numbers(self.lines, self.path, sizes=sizes, defines=self.defines)

    def _compile(self, bound: Bound) -> Binary:
        entries = list(dict.fromkeys(self._entry(launch, bound) for launch in self.launches))
        try:
            return compile_cuda(
                self.path, arch=self.arch, defines=bound.defines, include_dirs=self.include_dirs, entries=entries,
                debug=self.debug,
            )  # fmt: skip
        except CompileError as error:
            raise self._at_launch_lines(error, bound) from error

    def _entry(self, launch: LaunchLine, bound: Bound) -> str:
        """The name expression: `attn<{D}, {causal}>` → `attn<64, true>`."""
        pieces = []
        with at_line(self.path, launch.line):
            for piece in launch.callee:
                pieces.append(piece if isinstance(piece, str) else _template_argument(piece, bound))
        return "".join(pieces).strip()

    def _at_launch_lines(self, error: CompileError, bound: Bound) -> CompileError:
        """A kernel that a launch line names but nobody can instantiate: the error belongs to that line."""
        names = [item.message for item in error.diagnostics if item.place and item.place.file == _NAME_MAP]
        for launch in self.launches:
            entry = self._entry(launch, bound)
            if any("".join(entry.split()) in "".join(message.split()) for message in names):
                message = f"{entry}: {names[0]}"
                place = Place(self.path, launch.line)
                return CompileError(f"{place}: {message}", (Diagnostic("error", message, place),))
        return error

    def _initialise(self, gpu: Engine, binary: Binary, bound: Bound, placed: Mapping[str, Array]) -> None:
        entry = self._entry(self.launches[0], bound)
        for line in self.constants:
            with at_line(self.path, line.line):
                gpu.set_symbol(binary, entry, line.name, placed[line.name])

    def _launch(
        self, gpu: Engine, binary: Binary, launch: LaunchLine, bound: Bound, placed: Mapping[str, Array]
    ) -> dict[str, Any]:
        """The arguments of `gpu.launch`."""
        entry = self._entry(launch, bound)
        grid = [size.integer(bound.names, "grid") for size in launch.grid]
        block = [size.integer(bound.names, "block") for size in launch.block]
        shared_bytes = launch.shared.integer(bound.names, "shared") if launch.shared else 0
        if shared_bytes < 0:
            raise LaunchError(f"shared({launch.shared.text if launch.shared else ''}) is {shared_bytes}")
        if not launch.opt_in_shared:
            _require_plain_shared(entry, gpu.static_shared_bytes(binary, entry), shared_bytes, gpu)
        params = parameters(binary.ptx, binary.entries[entry])
        args = pass_arguments(launch.arguments, params, bound, placed)
        names = [argument.text if isinstance(argument, Expression) else "struct" for argument in launch.arguments]
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
                changed.append(Finding("K501", message, place=Place(self.path, line.line)))
        return tuple(changed)


def load(
    path: str | os.PathLike[str],
    *,
    arch: str = "sm_89",
    defines: Mapping[str, str] = {},
    include_dirs: Sequence[str | os.PathLike[str]] = (),
) -> KernelFile:
    """Read a CUDA file's launch lines. Raises NoLaunchLines, with a draft of them, if there are none."""
    spelled = os.fspath(path)
    try:
        text = Path(spelled).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {spelled}: {error}") from error
    macros = {name: str(value) for name, value in defines.items()}
    lines = parse_lines(text, spelled, defines=macros)
    folders = tuple(os.fspath(directory) for directory in include_dirs)
    if not lines.launches:
        binary = compile_cuda(spelled, arch=arch, defines=macros, include_dirs=folders)
        raise NoLaunchLines(spelled, propose_lines(text, binary))
    return KernelFile(spelled, arch, lines, macros, folders, parse_allows(text, spelled))


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
