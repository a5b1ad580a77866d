"""How a tool call runs: one at a time, with progress messages, stopped when cancelled, errors as messages."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import anyio.from_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from weft.core.errors import CompileError, WeftError
from weft.profile.kernel_profile import NotClean

AnyContext = Context[Any, Any]
SHOWN = 8
"""Limit of compiler messages, or of findings of a run that could not be profiled."""
_ONE_AT_A_TIME = threading.Lock()


class Progress:
    """Sends notifications to the client from the thread of a tool. Raises if the client cancelled the call."""

    def __init__(self, context: AnyContext) -> None:
        self._context = context
        self._steps = 0

    def tell(self, message: str, total: int | None = None) -> None:
        """Send one progress message."""
        anyio.from_thread.check_cancelled()
        self._steps += 1
        anyio.from_thread.run(self._context.report_progress, self._steps, total, message)


@contextlib.contextmanager
def carried_out() -> Iterator[None]:
    """In this context an error of Weft becomes an error of the tool, which the model reads."""
    try:
        with _ONE_AT_A_TIME:
            yield
    except WeftError as error:
        raise ToolError(in_words(error)) from error
    except ToolError:
        raise
    except Exception as error:
        raise ToolError(
            f"internal error of Weft: {type(error).__name__}: {error}. The kernel was not judged: report this "
            "with its source, and try a smaller shape"
        ) from error


def in_words(error: WeftError) -> str:
    """Return the message with the compiler's messages and the findings."""
    rows = [str(error)]
    if isinstance(error, CompileError):
        rows += [str(each) for each in error.diagnostics[:SHOWN] if str(each) not in rows[0]]
    if isinstance(error, NotClean):
        rows += [str(each) for each in error.findings[:SHOWN]]
        rows.append("fix these first: `check` or `diagnose` shows more")
    return "\n".join(rows)
