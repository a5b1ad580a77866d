"""The fixture `weft_kernel`: a CUDA, PTX or Triton file with launch lines, run and checked from a test."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from weft.core.chips import chip
from weft.core.errors import WeftError
from weft.core.finding_codes import Severity
from weft.core.records import Finding, worst_first
from weft.engines.arguments import Array
from weft.engines.kernel_file import KernelFile, load
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for

from .settings import of_test


class FileFindings(WeftError):
    """The kernel of a file ran and was found wrong."""

    def __init__(self, kernel: str, findings: tuple[Finding, ...]) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.kernel = kernel
        self.findings = findings


@dataclass(frozen=True)
class KernelUnderTest:
    """A kernel file and the virtual GPU it runs on."""

    kernel: KernelFile
    gpu: VirtualGPU
    tools: tuple[str, ...]

    def run(
        self, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}, seed: int = 0
    ) -> Mapping[str, Array]:
        """Every array the file declares, after its launches. Findings that are errors raise; warnings are Python's."""
        ran = self.kernel.run(self.gpu, arrays, sizes=sizes, seed=seed, watch=watch_for(self.tools))
        found = worst_first(ran.run.findings)
        for finding in found:
            if finding.level is Severity.WARNING:
                warnings.warn(f"{self.kernel.path}: {finding}", RuntimeWarning, stacklevel=2)
        errors = tuple(finding for finding in found if finding.level is Severity.ERROR)
        if errors:
            raise FileFindings(self.kernel.path, errors)
        return ran.arrays


Loader = Callable[..., KernelUnderTest]


def loader(item: pytest.Item) -> Loader:
    """Loads files for one test: paths are relative to the test's own file, the chip and the checkers are the test's."""
    settings = of_test(item)
    gpu = chip(settings.gpu)

    def kernel(path: str | os.PathLike[str], *, defines: Mapping[str, str] = {}) -> KernelUnderTest:
        """The kernel file; `defines` are its macros."""
        file = item.path.parent / path
        return KernelUnderTest(load(file, gpu=gpu.name, defines=defines), VirtualGPU(gpu), settings.tools)

    return kernel
