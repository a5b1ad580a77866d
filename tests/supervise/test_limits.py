"""A hang, a crash or too much memory fails only that candidate: the supervisor judges the next one."""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from weft.core.status import Status
from weft.supervise.records import Limits
from weft.supervise.supervisor import Supervisor

from .conftest import SECRET, children_of

ENDLESS = ("    const int end = visible_keys", "    while (SQ) if (l > 1.0f) break;\n    const int end = visible_keys")


@pytest.mark.usefixtures("no_strays")
def test_a_hanging_kernel_is_killed_at_the_wall_clock(supervisor: Supervisor, request_of: Any) -> None:
    assert supervisor.evaluate(request_of()).passed
    limits, supervisor.limits = supervisor.limits, Limits(wall_seconds=3.0)
    start = time.monotonic()
    try:
        found = supervisor.evaluate(request_of(ENDLESS, max_steps=1 << 60))
    finally:
        supervisor.limits = limits
    assert (found.status, found.signal) == (Status.TIMEOUT, signal.SIGKILL)
    assert time.monotonic() - start < 20
    assert not found.status.cacheable
    assert supervisor.evaluate(request_of()).passed


@pytest.mark.usefixtures("no_strays")
def test_an_endless_loop_is_named_by_its_line_where_steps_are_counted(supervisor: Supervisor, request_of: Any) -> None:
    found = supervisor.evaluate(request_of(ENDLESS, max_steps=20_000))
    assert found.status is Status.TIMEOUT
    assert "S302" in found.message
    assert "kernel.cu:" in found.message


@pytest.mark.usefixtures("no_strays")
def test_cpu_time_is_limited_too(supervisor: Supervisor, request_of: Any) -> None:
    limits, supervisor.limits = supervisor.limits, Limits(cpu_seconds=1)
    try:
        found = supervisor.evaluate(request_of(ENDLESS, max_steps=1 << 60))
    finally:
        supervisor.limits = limits
    assert (found.status, found.signal) == (Status.TIMEOUT, signal.SIGXCPU)


@pytest.mark.usefixtures("no_strays")
def test_memory_is_limited(supervisor: Supervisor, request_of: Any) -> None:
    hog = ("// weft: scalar  scale", "// weft: workspace hog : f32[4294967296]\n// weft: scalar  scale")
    found = supervisor.evaluate(request_of(hog))
    assert found.status is Status.OUT_OF_MEMORY
    assert not found.status.cacheable
    assert supervisor.evaluate(request_of()).passed


@pytest.mark.usefixtures("no_strays")
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGSEGV, Status.CRASHED), (signal.SIGABRT, Status.CRASHED), (signal.SIGKILL, Status.LOST)],
)
def test_a_child_that_dies_fails_only_its_candidate(
    supervisor: Supervisor, request_of: Any, number: signal.Signals, status: Status
) -> None:
    zygote = supervisor.zygote.pid

    def strike() -> None:
        while not children_of(zygote):
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(children_of(zygote)[0], number)

    striker = threading.Thread(target=strike)
    striker.start()
    found = supervisor.evaluate(request_of(ENDLESS, max_steps=1 << 60))
    striker.join()
    assert (found.status, found.signal) == (status, number)
    assert not found.status.cacheable
    assert supervisor.evaluate(request_of()).passed


def test_a_fork_server_that_dies_is_replaced(supervisor: Supervisor, request_of: Any) -> None:
    before = supervisor.zygote.pid
    striker = threading.Timer(0.5, os.kill, (before, signal.SIGKILL))
    striker.start()
    found = supervisor.evaluate(request_of(ENDLESS, max_steps=1 << 60))
    striker.join()
    assert found.status is Status.LOST
    assert supervisor.evaluate(request_of()).passed
    assert supervisor.zygote.pid != before
    assert children_of(before) == []


DRIVER = """
import sys, threading
from pathlib import Path
from weft.supervise.supervisor import Supervisor
from weft.supervise.records import CandidateSource, Request
from weft.judge.select import Choice
supervisor = Supervisor()
print(supervisor.zygote.pid, flush=True)
choice = Choice(("split_65",), ("unit_normal",), ("none",), ("f16",), seeds=(0,))
source = CandidateSource(Path(sys.argv[1]).read_text())
supervisor.evaluate(Request(source, choice=choice, score=None, max_steps=1 << 60))
"""


def test_a_driver_that_is_killed_leaves_no_process(tmp_path: Any, request_of: Any) -> None:
    kernel = tmp_path / "endless.cu"
    kernel.write_text(request_of(ENDLESS).source.text)
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(kernel)], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        zygote = int(driver.stdout.readline())
        deadline = time.monotonic() + 30
        while not (working := children_of(zygote)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        driver.kill()
    for process in (zygote, *working):
        while _lives(process):
            assert time.monotonic() < deadline, process
            time.sleep(0.02)


def _lives(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


STRAY = """
import ctypes, os, sys, time
from weft.supervise import zygote
ctypes.CDLL(None).prctl(zygote.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
child = os.fork()
if child == 0:
    if os.fork() == 0:
        os.setsid()  # out of reach of a kill of the group
        time.sleep(60)
    os._exit(0)
status = zygote._reap(child, 5.0)
while not zygote._children():
    time.sleep(0.01)
print(zygote._end_strays(alone=False), len(zygote._children()))
"""


def test_what_leaves_its_process_group_is_ended_too() -> None:
    done = subprocess.run([sys.executable, "-c", STRAY], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["1", "0"]


def test_the_fork_server_has_one_thread(supervisor: Supervisor) -> None:
    assert supervisor.zygote.threads == 1
    assert len(os.listdir(f"/proc/{supervisor.zygote.pid}/task")) == 1


def test_secrets_of_the_environment_stay_here(supervisor: Supervisor) -> None:
    assert SECRET in os.environ.values()
    with open(f"/proc/{supervisor.zygote.pid}/environ", "rb") as file:
        assert SECRET.encode() not in file.read()
