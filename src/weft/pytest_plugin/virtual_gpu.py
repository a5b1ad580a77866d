"""The virtual GPU of a test: its options and markers, Triton on it, and kernel files on it."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.chips import chip
from weft.core.distribution import install_command
from weft.core.errors import ToolMissing, UsageError, WeftError
from weft.core.finding_codes import Severity
from weft.core.records import Finding, worst_first

from .children import Children

if TYPE_CHECKING:
    from weft.engines.arguments import Array
    from weft.engines.kernel_file import KernelFile
    from weft.engines.virtual import VirtualGPU
    from weft.triton import Device

MARKER = "weft"
ALL = ("all",)


@dataclass(frozen=True)
class Settings:
    """A chip and the checkers in addition to those that are always on."""

    gpu: str
    tools: tuple[str, ...]

    def __str__(self) -> str:
        tools = "all checkers" if self.tools == ALL else ", ".join(self.tools) or "no additional checkers"
        return f"virtual {self.gpu}, {tools}"


def from_options(config: pytest.Config) -> Settings:
    """Return the settings of the run: all checkers, unless options name some or none."""
    options = config.known_args_namespace
    named = tuple(name for names in options.weft_tool or () for name in names.split(","))
    if named and options.weft_plain:
        raise UsageError("--weft-plain runs without checkers, --weft-tool names some: give only one of them")
    return Settings(options.weft_gpu, () if options.weft_plain else named or ALL)


def of_test(item: pytest.Item) -> Settings:
    """Return the settings of one test; its marker takes precedence over those of its class and module."""
    settings = from_options(item.config)
    for mark in reversed(list(item.iter_markers(MARKER))):
        settings = _with(settings, mark.args, mark.kwargs)
    return settings


def _with(settings: Settings, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Settings:
    unknown = sorted(set(kwargs) - {"gpu", "check"})
    if args or unknown:
        raise UsageError(f"@pytest.mark.weft takes gpu=… and check=…, not {', '.join([*map(repr, args), *unknown])}")
    return replace(
        settings,
        gpu=kwargs.get("gpu", settings.gpu),
        tools=_tools(kwargs["check"]) if "check" in kwargs else settings.tools,
    )


def _tools(check: Any) -> tuple[str, ...]:
    if isinstance(check, bool):
        return ALL if check else ()
    if isinstance(check, str):
        return tuple(check.split(","))
    if isinstance(check, Sequence) and all(isinstance(name, str) for name in check):
        return tuple(check)
    raise UsageError(f"check={check!r}: give True, False or names such as 'racecheck'")


class Active:
    """Holds a virtual GPU from the first conftest.py to the end of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self._stack = ExitStack()
        self.settings = from_options(config)
        self._devices: list[Device] = []
        self.files: list[str] = []
        """Kernel files that ran, one entry for each run."""
        self._children = Children()
        self._start(self.settings)

    def _start(self, settings: Settings) -> None:
        self.device = self._stack.enter_context(_device(settings))
        self._children.tell(settings.gpu, settings.tools)

    def counts(self) -> dict[str, Any]:
        """Return what ran until now, as plain data: launches, refused launches, names of kernels, checkers."""
        devices, children = [*self._devices, self.device], self._children.counts()
        launches = [*(device.launches for device in devices), *(each["launches"] for each in children)]
        refused = [*(device.refused for device in devices), *(each["refused"] for each in children)]
        kernels = [*(device.kernels for device in devices), *(each["kernels"] for each in children)]
        return {
            "launches": sum(launches) + len(self.files),
            "refused": sum(refused),
            "kernels": sorted(set(self.files).union(*kernels)),
        }

    def switch(self, settings: Settings) -> None:
        """Switch to the settings of the next test. The old device is closed first: both patch the same functions."""
        if settings == self.settings:
            return
        before = self.settings
        self._devices.append(self.device)
        self._stack.close()
        try:
            self._start(settings)
            self.settings = settings
        except WeftError:
            self._start(before)
            raise

    def close(self) -> None:
        self._stack.close()
        self._children.close()


@contextmanager
def asked_for(item: pytest.Item, active: Active | None) -> "Iterator[Device]":
    """Yield the active device, or a separate one for the test."""
    if active is not None:
        yield active.device
        return
    with _device(of_test(item)) as device:
        yield device


@contextmanager
def as_pytest_says() -> Iterator[None]:
    """Report usage errors as pytest does: one line, exit code 4."""
    try:
        yield
    except WeftError as error:
        raise pytest.UsageError(f"--weft: {error}") from error


@contextmanager
def _device(settings: Settings) -> "Iterator[Device]":
    chip(settings.gpu)  # refuses an unknown name before imports that take seconds
    try:
        import weft.triton as virtual
    except ImportError as error:
        raise ToolMissing(f"Triton and PyTorch are needed ({error}): {install_command('triton', 'torch')}") from error
    with virtual.on(settings.gpu, tools=settings.tools, cuda=True) as device:
        yield device


class FileFindings(WeftError):
    """The kernel of a file ran and has errors."""

    def __init__(self, kernel: str, findings: tuple[Finding, ...]) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.kernel = kernel
        self.findings = findings


@dataclass(frozen=True)
class KernelUnderTest:
    """A kernel file and the virtual GPU it runs on."""

    kernel: "KernelFile"
    gpu: "VirtualGPU"
    tools: tuple[str, ...]
    files: list[str]

    def run(
        self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}, seed: int = 0
    ) -> "Mapping[str, Array]":
        """Return every array of the file after its launches. Errors raise FileFindings; warnings are Python's."""
        from weft.probes.tools import watch_for

        ran = self.kernel.run(self.gpu, arrays, sizes=sizes, seed=seed, watch=watch_for(self.tools))
        self.files.append(str(self.kernel.path))
        found = worst_first(ran.run.findings)
        for finding in found:
            if finding.level is Severity.WARNING:
                warnings.warn(f"{self.kernel.path}: {finding}", RuntimeWarning, stacklevel=2)
        errors = tuple(finding for finding in found if finding.level is Severity.ERROR)
        if errors:
            raise FileFindings(self.kernel.path, errors)
        return ran.arrays


Loader = Callable[..., KernelUnderTest]


def loader(item: pytest.Item, active: Active | None) -> Loader:
    """Return a loader for one test: paths are relative to the test's file; chip and checkers are the test's."""
    files = active.files if active is not None else []
    from weft.engines.virtual import VirtualGPU
    from weft.interop.open_kernel import load  # imports NumPy and LLVM: not for a pytest that only reads its settings

    settings = of_test(item)
    gpu = chip(settings.gpu)

    def kernel(path: str | os.PathLike[str], *, defines: Mapping[str, str] = {}) -> KernelUnderTest:
        """Return the kernel file; `defines` are its macros."""
        file = item.path.parent / path
        return KernelUnderTest(load(file, gpu=gpu.name, defines=defines), VirtualGPU(gpu), settings.tools, files)

    return kernel
