"""A process that has loaded everything and forks the drivers and workers that the fault benchmarks kill.

A worker takes more than a second of CPU time to import and to warm up, which would be most of the time of a thousand
kills. Here it is forked from a process that did this once, and so is its fork server; the rest is the code of
`weft worker` and `weft evolve`. `Mother` starts such a process and communicates with it in lines of JSON.
"""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, NoReturn, Self

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fault_lives import LIVES, warm_up  # noqa: E402


class Mother:
    """The client of this process. It kills the children, because only a parent can wait for the end of a process."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"mother_{os.getpid()}_{time.monotonic_ns()}"
        (folder / "tmp").mkdir()
        environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
        # Threads of a BLAS would make forking unsafe.
        environment |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, __file__, self.mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self._ask({"ready": True})

    def start(self, life: str, *arguments: str | int | float) -> int:
        """Fork a process that runs a function of fault_lives; return its number."""
        return int(self._ask({"start": life, "arguments": arguments})["pid"])

    def kill(self, process: int) -> bool:
        """Kill it with SIGKILL and wait for its end. Return False if it had already ended."""
        return bool(self._ask({"kill": process})["killed"])

    def ended(self, process: int) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        status = self._ask({"poll": process})["status"]
        return None if status is None else int(status)

    def close(self) -> int:
        """End the process; return how many processes are left after a few seconds."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        end = time.monotonic() + 10
        while (left := self.strays()) and time.monotonic() < end:
            time.sleep(0.2)
        return left

    def strays(self) -> int:
        """Return its descendants, whatever their parent is now: all have its command line."""
        found = 0
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                found += process.name.isdecimal() and self.mark.encode() in (process / "cmdline").read_bytes()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.close()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


class ForkedZygote:
    """The interface of `subprocess.Popen` for a fork server that starts without a new Python."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int],
        env: object,
        stdin: int,
        stdout: Any,
        stderr: Any,
        start_new_session: bool,
    ) -> None:
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _live(lambda: _serve(command, pass_fds, stdout.fileno()))

    def poll(self) -> int | None:
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if ended else None
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout if timeout is not None else 1e9)
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("the fork server", timeout or 0)
            time.sleep(0.005)
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _serve(command: Sequence[str], kept: Sequence[int], errors: int) -> int:
    from weft.supervise import zygote

    os.setsid()
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    # The pipe to the supervisor closes with the supervisor only if no other process keeps it open, nor this one.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    return zygote.main(int(command[-2]), Path(command[-1]))


def _live(life: Callable[[], int | None]) -> NoReturn:
    code = 1
    try:
        code = life() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serve until standard input ends."""
    from weft.supervise import child, children, zygote

    with tempfile.TemporaryDirectory() as scratch:
        room = child.preload(Path(scratch))
        warm_up(Path(scratch))
        held = zygote.probe(room)
    child.WARM_UP = ()
    zygote.probe = lambda room: held  # the machine stays the same
    children.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedZygote})  # type: ignore[assignment]
    gc.collect()
    gc.freeze()
    codes: dict[int, int | None] = {}
    """Return the exit code of a child; None while it runs."""
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line), codes)), flush=True)
    for process, code in codes.items():
        if code is None:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _answer(question: dict[str, Any], codes: dict[int, int | None]) -> dict[str, Any]:
    if "start" in question:
        process = os.fork()
        if process == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(2, 1)
            _live(lambda: LIVES[question["start"]](*question["arguments"]))
        codes[process] = None
        return {"pid": process}
    if "poll" in question:
        return {"status": _code(question["poll"], codes, os.WNOHANG)}
    if "kill" in question:
        process = question["kill"]
        if _code(process, codes, os.WNOHANG) is not None:
            return {"killed": False}
        os.kill(process, signal.SIGKILL)
        return {"killed": _code(process, codes, 0) == -signal.SIGKILL}
    return {"ready": True}


def _code(process: int, codes: dict[int, int | None], options: int) -> int | None:
    if codes[process] is None:
        ended, status = os.waitpid(process, options)
        codes[process] = os.waitstatus_to_exitcode(status) if ended else None
    return codes[process]


if __name__ == "__main__":
    main()
