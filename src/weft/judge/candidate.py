"""A kernel to judge, as a value: its file, how it is compiled, and what it declares about its arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from weft.core.chips import DEFAULT_GPU, target_of
from weft.core.errors import UsageError
from weft.engines.adapt_lines import Wanted
from weft.engines.kernel_file import MAX_STEPS, KernelFile
from weft.interop.open_kernel import load
from weft.tasks.task import Declared, Problem


@dataclass(frozen=True)
class Candidate:
    """A kernel to judge: its file, and its rung of the ladder, if it is one."""

    path: Path
    rung: str | None = None
    gpu: str = DEFAULT_GPU
    """A GPU's name, or an architecture for its smallest GPU."""
    max_steps: int = MAX_STEPS
    """Loop iterations that a host thread may run in a launch; the default is reduced for small workloads."""
    defines: Mapping[str, str] = field(default_factory=dict)
    """Macros of the command line. Those that select a workload's type and mask take precedence."""
    launch: Path | None = None
    """The launch-line file of a PTX file; None: the `.launch` file next to it."""
    include_dirs: tuple[str, ...] = ()
    compiler: str = "nvrtc"
    wanted: tuple[Wanted, ...] = ()
    """The task's names and shapes of the file's arrays, where they differ from the file's."""
    allows: bool = True
    """Whether the source's `allow` lines excuse findings. Those of untrusted code excuse nothing."""

    @property
    def arch(self) -> str:
        """The architecture it is compiled for."""
        return target_of(self.gpu)

    @cached_property
    def kernel(self) -> KernelFile:
        """The file, read and parsed once."""
        kernel = load(
            self.path,
            gpu=self.gpu,
            launch=self.launch,
            include_dirs=self.include_dirs,
            compiler=self.compiler,
        )
        kernel = kernel.adapted(self.wanted) if self.wanted else kernel
        return kernel if self.allows else replace(kernel, allows=())

    def load(self, problem: Problem) -> KernelFile:
        """Return the file with the macros that select the problem's type and mask, as far as it has them."""
        return self.load_with(problem.defines())

    def refusal(self, problem: Problem) -> str:
        """Return the launch line that excludes a problem; empty if none does."""
        try:
            return self.load(problem).refusal(problem.arrays)
        except UsageError:  # the arrays do not fit for another reason, which the verdict reports
            return ""

    def load_with(self, selected: Mapping[str, str]) -> KernelFile:
        """Return the file with these macros, as far as it has them; what it compiles is shared by equal macros."""
        known = {name: value for name, value in selected.items() if name in self.declared.macros}
        return self.kernel.with_macros({**self.defines, **known})

    @cached_property
    def declared(self) -> Declared:
        """What the file declares about its arithmetic."""
        lines = self.kernel.source.lines.defines
        macros = {line.name: line.value if isinstance(line.value, str) else line.value.text for line in lines}
        stated = (name for line in self.kernel.source.lines.nondeterministic for name in line.names)
        return Declared(self.rung, {**macros, **self.defines}, tuple(stated))

    def declared_at(self, kernel: KernelFile, problem: Problem) -> Declared:
        """Return the same with the numbers of one call: the number of splits may depend on the sizes."""
        return replace(self.declared, macros={**self.declared.macros, **kernel.numbers(problem.arrays)})
