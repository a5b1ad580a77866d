"""The supervisor's side of zygote and child: start, ask with a time limit, end reliably, report how it ended."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import weft
from weft.core.errors import WeftError
from weft.core.status import Status

from .frames import BrokenFrame, Closed, Frame, Late, receive, send
from .isolation import Isolation
from .records import Limits

START_SECONDS = 120.0
ANSWER_SECONDS = 30.0
"""Time limit of a zygote for a fork or for the end of a child."""
PATIENCE_SECONDS = 2.0
"""Time for a child that closed its connection to end by itself, so that its signal is seen."""
SHOWN_STDERR_BYTES = 4000
PROGRAM = "a program"
"""Name for a child that becomes a program: it has no candidate's folder."""
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "WEFT_CACHE", "WEFT_CPU")
"""Environment variables that candidates receive. All others, such as keys of services, do not reach them."""
_NO_MEMORY = ("bad_alloc", "out of memory", "cannot allocate memory", "memoryerror")


T = TypeVar("T")


class ZygoteLost(WeftError):
    """The fork server ended or does not answer. The next evaluation starts another."""


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    status: Status
    message: str
    signal: int = 0
    stderr: str = ""
    code: int = 0
    """Its exit code; not 0 if a signal ended it."""


class ChildEnded(Exception):
    """The child ended before it answered."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.message)
        self.ended = ended


class Zygote:
    """A running fork server."""

    program: Sequence[str] = ("-m", "weft.supervise.zygote")

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="weft-", ignore_cleanup_errors=True)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the zygote)
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        # Threads of a BLAS would make forking unsafe. -P: do not import from the current folder.
        environment |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment["PYTHONPATH"] = str(Path(weft.__file__).parents[1])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", *self.program, str(theirs.fileno()), self._scratch.name],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,
            )
        self._control.settimeout(START_SECONDS)
        try:
            ready = self._read()
        except ZygoteLost as error:
            said = self._said()
            self.close()
            raise ZygoteLost(f"the fork server did not start: {said or error}") from error
        self._control.settimeout(ANSWER_SECONDS)
        self.pid, self.threads = int(ready["ready"]), int(ready["threads"])
        self.isolation = Isolation(ready["missing"])

    @property
    def alive(self) -> bool:
        """Return whether its end of the connection is open; the process that waits for it outside may live longer."""
        line = select.poll()
        line.register(self._control, 0)
        return not line.poll(0) and self._process.poll() is None

    def close(self) -> None:
        """End it and every child."""
        self._control.close()
        try:
            self._process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        self._scratch.cleanup()

    def kill(self) -> None:
        """End it at once, from any thread; its children die with it."""
        self._process.kill()

    def fork(self, limits: Limits, candidate: str, *, keep: bool = True, program: bool = False) -> "Child":
        """Return a new child for a candidate, given by its digest; `program`: a child that becomes a program.

        `keep` what it compiled for the next child of the same candidate, if it ends normally.
        """
        return Child(self, limits, candidate, keep=keep, program=program)

    def started(self, descriptors: list[int], settings: dict[str, Any]) -> int:
        """Return the process number of a child that was just forked."""
        try:
            socket.send_fds(self._control, [json.dumps({"fork": settings}).encode()], descriptors)
        except OSError as error:
            raise ZygoteLost(f"the fork server is gone: {error}") from error
        return int(self._read()["pid"])

    def reap(self, child: int, patience: float, *, keep: bool) -> int:
        """Return the wait status of a child that has ended or is ended now, with everything it started.

        `keep` its candidate's folder: the child was in order when it was no longer needed.
        """
        try:
            self._control.send(json.dumps({"reap": child, "patience": patience, "keep": keep}).encode())
        except OSError as error:
            raise ZygoteLost(f"the fork server is gone: {error}") from error
        return int(self._read()["status"])

    def _read(self) -> Any:
        try:
            message = self._control.recv(1 << 16)
        except OSError as error:
            raise ZygoteLost(f"the fork server does not answer: {error}") from error
        if not message:
            raise ZygoteLost("the fork server is gone")
        return json.loads(message)

    def _said(self) -> str:
        return _tail(self._errors.fileno())


class Child:
    """A child that answers questions. Its context manager always ends it."""

    def __init__(self, zygote: Zygote, limits: Limits, candidate: str, *, keep: bool, program: bool) -> None:
        self._zygote, self._limits, self._keep = zygote, limits, keep
        self._left_seconds = limits.wall_seconds
        self._errors = os.memfd_create("stderr")
        self._talk, theirs = socket.socketpair()
        with theirs:
            settings = {**asdict(limits), "candidate": candidate, "program": program}
            self._number = zygote.started([theirs.fileno(), self._errors], settings)
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._over:
            with contextlib.suppress(ZygoteLost):
                self._end(0.0, keep=self._keep)
        self._talk.close()
        os.close(self._errors)

    def ask(self, question: Frame) -> Frame:
        """Return its answer. Raises ChildEnded."""
        self.post(question)
        return self.answer()

    def post(self, question: Frame) -> None:
        """Ask without waiting for the answer."""
        self._timed(lambda seconds: send(self._talk, question, seconds=seconds))

    def answer(self) -> Frame:
        """Return the answer to the oldest open question. Raises ChildEnded."""
        return self._timed(lambda seconds: receive(self._talk, seconds=seconds))

    def become(self, asked: Frame) -> Frame:
        """Run the program that this child requests in another child; return its output. Raises ChildEnded."""
        limits = replace(self._limits, wall_seconds=max(0.0, self._left_seconds))
        start = time.monotonic()
        try:
            with self._zygote.fork(limits, PROGRAM, program=True) as other:
                other.post(asked)
                return other.printed()
        finally:
            self._left_seconds -= time.monotonic() - start

    def printed(self) -> Frame:
        """Return all that it printed, after it has ended by itself. Raises ChildEnded."""
        try:
            self.answer()
        except ChildEnded as error:
            if error.ended.status is not Status.CRASHED:
                raise
            if error.ended.code:
                return Frame({"error": f"{error.ended.message}: {error.ended.stderr}"})
        size = os.fstat(self._errors).st_size
        return Frame({"text": os.pread(self._errors, size, 0).decode(errors="replace")})

    def _timed(self, act: "Callable[[float], T]") -> T:
        """Call `act` with the remaining time. Only the time that the supervisor waits for the child counts."""
        start = time.monotonic()
        try:
            return act(self._left_seconds)
        except Late:
            self._end(0.0)
            seconds = self._limits.wall_seconds
            ended = Ended(Status.TIMEOUT, f"killed after {seconds:g} s of wall clock", signal.SIGKILL, self._said())
        except Closed:
            ended = self._explained(self._end(PATIENCE_SECONDS))
        except BrokenFrame as error:
            self._end(0.0)
            message = f"the child's answer is invalid: {error}"
            ended = Ended(Status.CRASHED, message, 0, self._said(), code=1)
        finally:
            self._left_seconds -= time.monotonic() - start
        raise ChildEnded(ended)

    def _end(self, patience: float, *, keep: bool = False) -> int | None:
        """Return the wait status; None if the fork server ended first, and the child with it.

        Only the fork server may end it: the child's number in a namespace is another process here.
        """
        self._over = True
        try:
            return self._zygote.reap(self._number, patience, keep=keep)
        except ZygoteLost:
            return None

    def _explained(self, status: int | None) -> Ended:
        said = self._said()
        if status is None:
            return Ended(Status.LOST, "the fork server ended, and the child with it", 0, said)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if any(sign in said.lower() for sign in _NO_MEMORY):
            most = f"{self._limits.memory_bytes >> 20} MiB"
            return Ended(Status.OUT_OF_MEMORY, f"the kernel needs more than {most} of address space", number, said)
        if number == signal.SIGXCPU:
            return Ended(Status.TIMEOUT, f"the CPU time limit of {self._limits.cpu_seconds} s is used up", number, said)
        if number == signal.SIGKILL:
            message = "another process killed the child, possibly the operating system for lack of memory"
            return Ended(Status.LOST, message, number, said)
        if number:
            return Ended(
                Status.CRASHED, f"the child was killed by {signal.Signals(number).name}", number, said, code=-number
            )
        code = os.WEXITSTATUS(status)
        return Ended(Status.CRASHED, f"the child ended with exit code {code}", 0, said, code=code)

    def _said(self) -> str:
        return _tail(self._errors)


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, SHOWN_STDERR_BYTES, max(0, size - SHOWN_STDERR_BYTES)).decode(errors="replace").strip()
