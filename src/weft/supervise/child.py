"""The child process of one evaluation: it sets its limits, then answers questions until it is killed.

It receives source, launch lines and input arrays. It never receives expected outputs or a seed.
"""

import contextlib
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from weft.core import knobs
from weft.core.errors import WeftError
from weft.core.status import Status
from weft.engines.virtual import VirtualGPU
from weft.interop.open_kernel import load
from weft.judge.runs import status_of
from weft.kernels.ladder import RUNGS
from weft.probes.tools import watch_for
from weft.profile.site_probe import SiteProbe
from weft.toolchain import cuda_headers, nvrtc
from weft.toolchain.sass import use_disassembler
from weft.vm.launch import PLAIN
from weft.vm.runtime.library import load_for_all

from .disassembler import ask_disassembler, disassemblers, run_disassembler
from .frames import BrokenFrame, Closed, Frame, receive, send
from .isolation import Isolation, Room, confine, limit, room_for
from .records import Limits
from .work import Work

WARM_UP = ("scalar", "fa1", "wmma", "pipelined")
"""Rungs that use most functions of the runtime. What a child still has to load or to compile, every child repeats."""
SIZES = {"SQ": 32, "SKV": 32}
COMMON = (
    *(
        f"{act}.{space}.{size}"
        for act in ("ld", "st")
        for space in ("global", "shared")
        for size in ("b16.v1", "b32.v1")
    ),
    "ldu.global.b32.v1",
    "mma.m16n8k16.f32.f16.f16.f32.hardware.sm_89.x4",
)
"""Functions of the runtime that these rungs lack and many candidates need."""


def preload(scratch: Path) -> Room:
    """In the zygote: load NVRTC, run and profile kernels of Weft, so that code they share with candidates is loaded.

    Their inputs are generated and nothing is judged: no expected value is in this process or in those forked from it.
    Return the paths that children need.
    """
    for name in WARM_UP:
        kernel = load(RUNGS[name].path)
        counting = SiteProbe(kernel.compile(sizes=SIZES).ptx.count("\n") + 1)
        for watch in (PLAIN, watch_for(("all",)), counting):
            kernel.run(VirtualGPU(threads=1), sizes=SIZES, watch=watch)
    load_for_all(COMMON)
    nvrtc.version()
    cuda_headers.fingerprint()
    # From the user's cache only compiled objects, which contain no text: a candidate must not read other sources.
    objects = knobs.cache_dir().absolute() / "object"
    return room_for(scratch, objects, *cuda_headers.include_dirs(), programs=disassemblers())


def serve(
    talk: int,
    errors: int,
    settings: Mapping[str, Any],
    held: Isolation,
    room: Room,
    folders: tuple[Path, Path],
    processes: int,
) -> NoReturn:
    """Run the child from the fork to its end. `folders`: for temporary files, and for the candidate."""
    code = 1
    try:
        _restrict(talk, errors, settings, held, room, folders, processes)
        with socket.socket(fileno=talk) as connection:
            if settings["program"]:
                run_disassembler(connection, folders[0], room.programs)
            if room.programs:
                use_disassembler(lambda cubin, options: ask_disassembler(connection, cubin, options))
            _answer(connection, Work(folders[1]))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _restrict(
    talk: int,
    errors: int,
    settings: Mapping[str, Any],
    held: Isolation,
    room: Room,
    folders: tuple[Path, Path],
    processes: int,
) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, descriptor in ((nothing, 0), (errors, 1), (errors, 2)):
        os.dup2(source, descriptor)
    with contextlib.suppress(OSError):  # without free memory the kernel ends this process, not its supervisor
        score = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=processes)
        os.write(score, b"1000")
    os.closerange(3, talk)
    os.closerange(talk + 1, os.sysconf("SC_OPEN_MAX"))
    os.environ["WEFT_THREADS"] = str(settings["threads"])
    os.environ["WEFT_CACHE_BEHIND"] = str(knobs.cache_dir().absolute())
    os.environ["WEFT_CACHE"] = str(folders[1])
    tempfile.tempdir = str(folders[0])
    limits = Limits(**{name: settings[name] for name in Limits.__dataclass_fields__})
    limit(limits)
    confine(held, room, folders, threads=limits.threads, program=settings["program"])


def _answer(connection: socket.socket, work: Work) -> None:
    while True:
        try:
            question = receive(connection)
        except (Closed, BrokenFrame):
            return
        try:
            reply = work.do(question)
        except Exception as error:  # any error that a candidate causes is an answer
            reply = Frame({"error": _status(error).value, "message": _message(error)})
        try:
            send(connection, reply)
        except Closed:
            return


def _status(error: Exception) -> Status:
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower().replace("_", " "):
        return Status.OUT_OF_MEMORY
    return status_of(error)


def _message(error: Exception) -> str:
    if isinstance(error, WeftError):
        return str(error)
    if isinstance(error, MemoryError):
        return str(error) or "no memory left within the limit"
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}"
