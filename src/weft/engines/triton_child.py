"""Requests a Binary from the process of a Triton file, which starts at the file's first compilation."""

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.core.errors import CompileError, LaunchError, ToolMissing, Unsupported, UsageError
from weft.core.records import Binary, Diagnostic, Place
from weft.toolchain import binary_file

COMPILE_SECONDS = 600.0
"""Time limit of one answer: the import of the file and one compilation."""
MOST_BYTES = 1 << 28
"""Size limit of an answer."""
MOST_CHILDREN = 4
"""Most idle processes: one per file, the least recently used one ends first."""

_ERRORS = {kind.__name__: kind for kind in (UsageError, LaunchError, ToolMissing)}
_children: dict[tuple[object, ...], "TritonChild"] = {}
_starting = threading.Lock()


def compile_in_child(path: str, digest: str, question: Mapping[str, Any]) -> Binary:
    """Return the Binary of one launch of a file whose text has this digest. Raises what the compiler raised there."""
    key = (os.getpid(), os.getcwd(), path, digest)  # a forked process must not use its parent's children
    with _starting:
        child = _children.pop(key, None)
        if child is None or child.ended:
            child = TritonChild(path)
        _children[key] = child
        for old in list(_children)[:-MOST_CHILDREN]:
            _children.pop(old).close()
    return child.ask({**question, "path": path, "digest": digest, "sys_path": sys.path})


class TritonChild:
    """A running process of `triton_import.py`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._asking = threading.Lock()
        folders = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        # -P: no file of the working directory can shadow a library before the question sets sys.path.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "weft.engines.triton_import"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def ask(self, question: Mapping[str, Any]) -> Binary:
        """Return its answer. Raises CompileError if there is none, or an invalid one."""
        with self._asking:
            timer = threading.Timer(COMPILE_SECONDS, self._process.kill)
            timer.start()
            try:
                return self._exchange(question)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                self.close()
                ended = f"exit code {self._process.returncode}"
                message = f"the process that imports and compiles it did not answer ({ended}): {error}"
                raise CompileError(f"{self.path} does not compile: {message}") from error
            finally:
                timer.cancel()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _exchange(self, question: Mapping[str, Any]) -> Binary:
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None and answers is not None
        questions.write(json.dumps(question).encode() + b"\n")
        questions.flush()
        line = answers.readline(MOST_BYTES)
        if not line:
            raise OSError("it ended")
        head = json.loads(line)
        size = int(head["bytes"])
        if not 0 <= size <= MOST_BYTES:
            raise ValueError(f"{size} bytes")
        payload = answers.read(size)
        if len(payload) != size:
            raise OSError("it ended in the middle of its answer")
        if "error" in head:
            raise _raised(head)
        binary = binary_file.unpack(payload)
        if binary is None:
            raise ValueError("no kernel")
        return binary


def _raised(head: Mapping[str, Any]) -> Exception:
    """Rebuild the error that the child reported."""
    name, message = str(head["error"]), str(head["message"])
    if name == "Unsupported":
        return Unsupported(message.removeprefix("unsupported: "))
    if name in _ERRORS:
        return _ERRORS[name](message)
    found = [
        Diagnostic(str(each["severity"]), str(each["message"]), _place(each["place"])) for each in head["diagnostics"]
    ]
    return CompileError(message, tuple(found))


def _place(record: Mapping[str, Any] | None) -> Place | None:
    return Place(str(record["file"]), int(record["line"])) if record is not None else None


@atexit.register
def _end_children() -> None:
    for key, child in _children.items():
        if key[0] == os.getpid():
            child.close()
