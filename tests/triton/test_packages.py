"""Kernels of PyPI packages, unmodified, on CPU tensors; benchmarks/triton_packages.py runs the complete table."""

from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import weft.triton
from tests.triton.package_kernels import KERNELS, PackageKernel

REQUIREMENTS = Path(__file__).parents[2] / "requirements-packages.txt"


@pytest.fixture(scope="module", autouse=True)
def _device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMS_VENDOR", "nvidia")  # it would call nvidia-smi
        patch.setenv("FLAGGEMS_CACHE_DIR", str(tmp_path_factory.mktemp("flag_gems")))
        with weft.triton.on("l4", cuda=True):
            yield


@pytest.mark.parametrize(
    "kernel", [pytest.param(each, id=f"{each.package}-{each.name}") for each in KERNELS if each.in_ci]
)
def test_equals_its_reference(kernel: PackageKernel) -> None:
    assert kernel.wrong() == ""


def test_every_package_has_two_kernels() -> None:
    lines = REQUIREMENTS.read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    for pin in pins:
        assert pin.specifier.contains(version(pin.name)) and str(pin.specifier).startswith("==")
    in_ci = Counter(kernel.package for kernel in KERNELS if kernel.in_ci)
    assert set(in_ci) == {pin.name for pin in pins} - {"einops", "flashinfer-bench", "safetensors"}
    assert min(in_ci.values()) >= 2 and len(KERNELS) >= 20
