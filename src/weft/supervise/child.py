"""The child of one evaluation: limits first, then it answers what it is asked until it is killed.

It is given source, launch lines and input arrays. It never sees what should come out, nor a seed.
"""

import ctypes
import os
import resource
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from weft.core.errors import CompileError, LaunchError, ParseError, ResourceError, Unsupported, UsageError, WeftError
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.kernels.ladder import RUNGS
from weft.probes.tools import watch_for
from weft.toolchain import cuda_headers, nvrtc
from weft.vm.launch import PLAIN

from .frames import BrokenFrame, Closed, Frame, receive, send
from .records import Outcome
from .screen import Rejected
from .work import Work

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
WARM_UP = ("wmma", "pipelined")
GRACE_SECONDS = 5
"""Between the signal that says the CPU time is over and the one that cannot be caught."""


def preload() -> None:
    """In the zygote: load NVRTC, and run two kernels of ours, so that the code they share with candidates is there.

    Their inputs are generated and nothing is judged: no expected value is in this process or in those forked from it.
    """
    for name in WARM_UP:
        kernel = load(RUNGS[name].path)
        for watch in (PLAIN, watch_for(("all",))):
            kernel.run(VirtualGPU(threads=1), sizes={"SQ": 32, "SKV": 32}, watch=watch)
    nvrtc.version()
    cuda_headers.fingerprint()


def serve(talk: int, errors: int, settings: Mapping[str, Any]) -> NoReturn:
    """The life of the child, from the fork to its end."""
    code = 1
    try:
        _restrict(talk, errors, settings)
        with socket.socket(fileno=talk) as connection:
            _answer(connection, Work())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _restrict(talk: int, errors: int, settings: Mapping[str, Any]) -> None:
    os.setsid()
    library = ctypes.CDLL(None)
    library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    for descriptor in (int(name) for name in os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor != talk:
            try:
                os.close(descriptor)
            except OSError:
                continue  # the listing's own
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # a machine without memory ends this process, not its supervisor
    cpu = int(settings["cpu_seconds"])
    for limit, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, cpu, cpu + GRACE_SECONDS),
        (resource.RLIMIT_FSIZE, settings["file_bytes"], settings["file_bytes"]),
        (resource.RLIMIT_NOFILE, settings["open_files"], settings["open_files"]),
        (resource.RLIMIT_AS, settings["memory_bytes"], settings["memory_bytes"]),
    ):
        _, most = resource.getrlimit(limit)
        lowered = [bound if most == resource.RLIM_INFINITY else min(bound, most) for bound in (soft, hard)]
        resource.setrlimit(limit, (lowered[0], lowered[1]))
    os.environ["WEFT_THREADS"] = str(settings["threads"])
    tempfile.tempdir = settings["scratch"]


def _answer(connection: socket.socket, work: Work) -> None:
    while True:
        try:
            question = receive(connection)
        except (Closed, BrokenFrame):
            return
        try:
            reply = work.do(question)
        except Exception as error:  # whatever a candidate brings about is an answer
            reply = Frame({"error": _outcome(error).value, "message": _message(error)})
        try:
            send(connection, reply)
        except Closed:
            return


def _outcome(error: Exception) -> Outcome:
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower().replace("_", " "):
        return Outcome.OUT_OF_MEMORY
    for kind, outcome in (
        (Rejected, Outcome.REJECTED),
        (CompileError, Outcome.COMPILE_ERROR),
        (Unsupported, Outcome.UNSUPPORTED),
        (ParseError, Outcome.UNSUPPORTED),
        (ResourceError, Outcome.RESOURCE_ERROR),
        (LaunchError, Outcome.LAUNCH_ERROR),
        (UsageError, Outcome.LAUNCH_ERROR),
    ):
        if isinstance(error, kind):
            return outcome
    return Outcome.CRASHED


def _message(error: Exception) -> str:
    if isinstance(error, WeftError):
        return str(error)
    if isinstance(error, MemoryError):
        return str(error) or "no memory left within the limit"
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}"
