"""Errors of Weft. Misuse raises an error; findings are values; Unsupported is a separate kind."""

import contextlib
from collections.abc import Iterator


class WeftError(Exception):
    """Base of every error that Weft raises on purpose. The message says what to do next."""


class UsageError(WeftError):
    """The call or the command line is wrong."""


class CompileError(WeftError):
    """A compiler refused the source. `diagnostics` holds one entry per message, in the user's file and line."""

    def __init__(self, message: str, diagnostics: "tuple[Diagnostic, ...]" = ()) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics


class ParseError(WeftError):
    """The text is not valid PTX. The error always has the line."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"PTX line {line}: {message}")
        self.line = line


class Unsupported(WeftError):
    """Valid PTX that the virtual GPU does not support: neither pass nor fail."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(f"unsupported at PTX line {line}: {what}" if line is not None else f"unsupported: {what}")
        self.what = what
        self.line = line


class LaunchError(WeftError):
    """The launch was refused before it started (shared memory over the limit, bad block size, wrong arguments)."""


class ResourceError(LaunchError):
    """The launch requires more shared memory or threads than the GPU has."""


class DeviceMemoryError(ResourceError):
    """The GPU's memory is full."""


class ToolMissing(WeftError):
    """An optional package or program is not installed; the message names the install command."""


@contextlib.contextmanager
def at_line(file: str, line: int) -> Iterator[None]:
    """Add the file and the line to errors about a call or a launch that are raised inside."""
    try:
        yield
    except (UsageError, LaunchError) as error:
        raise type(error)(f"{file}:{line}: {error}") from error


from .records import Diagnostic  # noqa: E402  (a type only; records imports nothing of ours)

__all__ = [
    "CompileError",
    "DeviceMemoryError",
    "Diagnostic",
    "LaunchError",
    "ParseError",
    "ResourceError",
    "ToolMissing",
    "Unsupported",
    "UsageError",
    "WeftError",
]
