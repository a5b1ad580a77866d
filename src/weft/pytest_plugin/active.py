"""The virtual GPU while pytest runs: one at a time, changed where a test asks for another."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from weft.core.chips import chip
from weft.core.errors import ToolMissing, WeftError

from .settings import Settings, from_options, of_test

if TYPE_CHECKING:
    from weft.triton import Device


class Active:
    """Holds a virtual GPU from the first conftest.py to the end of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self._stack = ExitStack()
        self.settings = from_options(config)
        self.device = self._stack.enter_context(_device(self.settings))

    def switch(self, settings: Settings) -> None:
        """Make it that of the next test. One is closed before the other opens: they patch the same functions."""
        if settings == self.settings:
            return
        before = self.settings
        self._stack.close()
        try:
            self.device = self._stack.enter_context(_device(settings))
            self.settings = settings
        except WeftError:
            self.device = self._stack.enter_context(_device(before))
            raise

    def close(self) -> None:
        self._stack.close()


@contextmanager
def asked_for(item: pytest.Item, active: Active | None) -> "Iterator[Device]":
    """The one that is active, or one of the test's own."""
    if active is not None:
        yield active.device
        return
    with _device(of_test(item)) as device:
        yield device


@contextmanager
def as_pytest_says() -> Iterator[None]:
    """Misuse as pytest reports it: one line, exit code 4."""
    try:
        yield
    except WeftError as error:
        raise pytest.UsageError(f"--weft: {error}") from error


@contextmanager
def _device(settings: Settings) -> "Iterator[Device]":
    chip(settings.gpu)  # a name that does not exist is refused before seconds of imports
    try:
        import weft.triton as virtual
    except ImportError as error:
        raise ToolMissing(f"Triton and PyTorch are needed ({error}): pip install triton torch") from error
    with virtual.on(settings.gpu, tools=settings.tools, cuda=True) as device:
        yield device
