"""Run work on text in a separate process: a crash or hang fails only that call, not the server."""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import TypeAdapter

from weft.core.errors import WeftError

from .calls import Progress, in_words

T = TypeVar("T")
SECONDS = 300.0
STEP_SECONDS = 2.0


def apart(work: Callable[..., T], kind: type[T], arguments: dict[str, Any], progress: Progress) -> T:
    """Run `work(**arguments)` in a child process; return its answer, sent as JSON and validated by its type."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_answer, args=(theirs, work, kind, arguments))
    process.start()
    theirs.close()
    start = time.monotonic()
    try:
        while not ours.poll(STEP_SECONDS):
            waited = time.monotonic() - start
            if waited > SECONDS:
                raise ToolError(f"no answer within {SECONDS:.0f} s: use a smaller shape, or look for an infinite loop")
            progress.tell(f"running for {waited:.0f} s")
        answer = ours.recv_bytes()
    except EOFError:
        process.join()
        raise ToolError(
            f"the process that ran this text died with exit code {process.exitcode}; the server continues. "
            "`check` judges the text under a supervisor and reports the cause"
        ) from None
    finally:
        process.kill()
        process.join()
        ours.close()
    if answer[:1] == b"!":
        raise ToolError(answer[1:].decode())
    return TypeAdapter(kind).validate_json(answer)


def _answer(pipe: Connection, work: Callable[..., T], kind: type[T], arguments: dict[str, Any]) -> None:
    try:
        answer = TypeAdapter(kind).dump_json(work(**arguments))
    except WeftError as error:
        answer = b"!" + in_words(error).encode()
    except Exception as error:
        answer = f"!internal error of Weft: {type(error).__name__}: {error}; the kernel was not judged".encode()
    pipe.send_bytes(answer)
