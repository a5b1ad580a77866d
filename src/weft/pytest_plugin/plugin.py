"""Options, marker, fixtures and hooks. Every pytest on the machine imports this file: it loads nothing of weight."""

import os
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .summary import FINDINGS, Summary

if TYPE_CHECKING:
    from weft.triton import Device

    from .active import Active  # noqa: F401  (named in a stash key)
    from .kernel_files import Loader

_MARKER = "weft(gpu=…, check=…): the virtual GPU's chip and checkers (True, False or names) of a test under --weft"
_ACTIVE = pytest.StashKey["Active"]()
_FIXTURES = frozenset({"weft_gpu", "weft_kernel"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("weft", "GPU kernels on a virtual GPU")
    group.addoption("--weft", action="store_true", help="Run Triton kernels on Weft's virtual GPU, checkers on.")
    group.addoption("--weft-gpu", metavar="CHIP", default="l4", help="The chip to compile for: a100, rtx3090, l4 …")
    group.addoption(
        "--weft-tool", metavar="T,T", action="append", help="Only these checkers: initcheck, racecheck (default: all)."
    )
    group.addoption("--weft-plain", action="store_true", help="No checkers but those that are always on.")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Before a conftest.py or a test file asks whether there is CUDA."""
    if early_config.known_args_namespace.weft and _runs_tests(early_config):
        from .active import Active, as_pytest_says

        with as_pytest_says():
            early_config.stash[_ACTIVE] = Active(early_config)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    config.pluginmanager.register(Summary(), "weft-summary")


def pytest_unconfigure(config: pytest.Config) -> None:
    active = config.stash.get(_ACTIVE, None)
    if active is not None:
        active.close()


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.option.weft:
        return None
    from .settings import from_options

    return f"weft: {from_options(config)}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    active = item.config.stash.get(_ACTIVE, None)
    if active is not None:
        from .settings import of_test

        active.switch(of_test(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not _asked(item):
        return report
    setattr(report, FINDINGS, [])
    if call.excinfo is not None and "weft.core.records" in sys.modules:  # otherwise nothing of ours has run
        from .failures import findings_behind, retell

        raised = findings_behind(call.excinfo.value)
        if raised is not None:
            setattr(report, FINDINGS, retell(report, item, call.excinfo, raised))
    return report


@pytest.fixture
def weft_gpu(request: pytest.FixtureRequest) -> "Iterator[Device]":
    """The virtual GPU that Triton launches on; asked for by name it is there without --weft too."""
    from .active import asked_for

    with asked_for(request.node, request.config.stash.get(_ACTIVE, None)) as device:
        yield device


@pytest.fixture
def weft_kernel(request: pytest.FixtureRequest) -> "Loader":
    """`weft_kernel("k.cu")` is the kernel file beside the test, ready to run with the checkers on."""
    from .kernel_files import loader

    return loader(request.node)


def _asked(item: pytest.Item) -> bool:
    """Whether a test is Weft's business: a project's own use of weft.triton is the project's."""
    return bool(item.config.option.weft) or not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def _runs_tests(config: pytest.Config) -> bool:
    """Not the process that only hands tests to pytest-xdist's workers."""
    distributes = bool(getattr(config.known_args_namespace, "numprocesses", None))
    return not distributes or "PYTEST_XDIST_WORKER" in os.environ
