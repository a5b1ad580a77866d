"""Code that broke out of the virtual GPU has no network, no files and no other processes. Tested, not assumed."""

import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from weft.cli.main import main
from weft.core.status import Status
from weft.supervise import isolation, isolation_namespaces, isolation_probe
from weft.supervise.children import ChildEnded, Zygote
from weft.supervise.frames import Frame
from weft.supervise.isolation import HIGHEST, Isolation, NotIsolated, Room, room_for
from weft.supervise.isolation_probe import probe, probe_here
from weft.supervise.records import Limits
from weft.supervise.supervisor import Supervisor
from weft.supervise.zygote import Folders

from .conftest import children_of, parent_of

Run = Callable[..., dict[str, Any]]
PAYLOAD = str(Path(__file__).with_name("payload.py"))
LIMITS = Limits(wall_seconds=20, memory_bytes=4 << 30)
ARM = platform.machine() == "aarch64"
NUMBERS = {
    # name → number on x86-64, on aarch64: system calls that no Python library function makes
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "process_vm_readv": (310, 270),
    "pidfd_open": (434, 434),
    "keyctl": (250, 219),
    "shmget": (29, 194),
    "setns": (308, 268),
    "mount_setattr": (442, 442),
    "kexec_load": (246, 104),
    "memfd_create": (319, 279),
    "clone3": (435, 435),
    "personality": (135, 92),
    "socketpair": (53, 199),
}


class PayloadZygote(Zygote):
    program: Sequence[str] = (PAYLOAD, "")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    server = PayloadZygote()
    yield server
    assert children_of(server.pid) == []
    server.close()
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


@pytest.fixture
def run(zygote: Zygote) -> Run:
    def inside(code: str, given: object = None, candidate: str = "one") -> dict[str, Any]:
        with zygote.fork(LIMITS, candidate) as child:
            return dict(child.ask(Frame({"code": code, "given": given})).fields)

    return inside


def test_every_layer_works_here(zygote: Zygote) -> None:
    """On Linux from 6.1 with Landlock, as root or as a user with user namespaces: where CI runs."""
    assert zygote.isolation == Isolation({})
    assert zygote.isolation.level == HIGHEST == 3
    assert zygote.threads == 1
    assert children_of(parent_of(zygote.pid)) == [zygote.pid]  # no process of the tests is left


OUT = {
    "a socket": "import socket; socket.socket()",
    "a local socket": "import socket; socket.socket(socket.AF_UNIX)",
    "a packet socket": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "the network": "import socket; socket.create_connection(('127.0.0.1', given), 1)",
    "the file of users": "open('/etc/passwd').read()",
    "the home folder": "import os; os.listdir(os.path.expanduser('~'))",
    "the root folder": "import os; os.listdir('/')",
    "its own memory as a file": "open('/proc/self/mem', 'r+b')",
    "processes": "import os; os.listdir('/proc')",
    "the machine's memory": "open('/dev/mem', 'rb')",
    "writing to /tmp": "open('/tmp/stray', 'w')",
    "writing next to its folder": "(folder.parent / 'stray').write_text('x')",
    "writing into the package": "import weft, pathlib; pathlib.Path(weft.__file__).write_text('x')",
    "writing into the shared cache": "import os; open(os.environ['WEFT_CACHE_BEHIND'] + '/object/stray', 'w')",
    "reading others' sources": "import os; os.listdir(os.environ['WEFT_CACHE_BEHIND'] + '/cuda')",
    "a way out by a link": "import os; os.symlink('/etc', folder / 'etc'); os.listdir(folder / 'etc')",
    "a device": "import os; os.mknod(folder / 'disk', 0o60600, os.makedev(254, 0))",
    "a pipe with a name": "import os; os.mkfifo(folder / 'pipe')",
    "a new process": "import os; os.fork()",
    "a program": "import os; os.execv('/bin/sh', ['sh', '-c', 'true'])",
    "a second program": "import subprocess; subprocess.run(['true'])",
    "posix_spawn": "import os; os.posix_spawn('/bin/true', ['true'], {})",
    "the fork server": "import os; os.kill(1, 9)",
    "everybody": "import os; os.kill(-1, 9)",
    "the supervisor": "import os; os.kill(given, 9)",
    "root": "import os; os.setuid(0)",
    "a higher limit": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))",
    "a higher priority": "import os; os.nice(-5)",
    "another root": "import os; os.chroot(folder)",
    "emptying what it may read": "import os, weft; os.open(weft.__file__, os.O_RDONLY | os.O_TRUNC)",
    "rights of a file": "import os; os.chmod(folder, 0o4777)",
}


@pytest.mark.parametrize("what", OUT)
def test_there_is_no_way_to(run: Run, what: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        given = os.getpid() if what == "the supervisor" else server.getsockname()[1]
        answer = run(OUT[what], given)
    refused = answer.get("refused") or answer.get("message", "")
    assert refused in ("EPERM", "EACCES", "ENOENT", "EROFS") or "not allowed to raise" in refused, answer
    assert not Path("/tmp/stray").exists()


@pytest.mark.parametrize("what", ["a thread", "ptrace", "unshare", "mount", *NUMBERS])
def test_the_kernel_refuses(run: Run, what: str) -> None:
    if what == "a thread":
        answer = run("import threading; threading.Thread(target=print).start()")
        assert "can't start new thread" in answer["message"]
        return
    call = {
        "ptrace": "ptrace(16, 1, 0, 0)",
        "unshare": "unshare(0x10000000)",
        "mount": "mount(b'x', b'/', b'tmpfs', 0, 0)",
    }
    made = call.get(what) or f"syscall({NUMBERS.get(what, (0, 0))[ARM]}, 0, 0, 0, 0, 0)"
    answer = run(
        f"import ctypes\nlibrary = ctypes.CDLL(None, use_errno=True)\nresult = library.{made}, ctypes.get_errno()"
    )
    assert answer["result"] in ([-1, 1], [-1, 38]), answer  # EPERM or ENOSYS


def test_normal_work_is_possible(run: Run) -> None:
    code = """
import os, tempfile, pathlib
import weft.toolchain.cuda_headers as headers
result = [os.getuid(), os.getpid() > 1, (folder / "mine").write_text("x"),
          len(tempfile.TemporaryDirectory().name) > 0, all(path.is_dir() for path in headers.include_dirs())]
"""
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    assert run(code)["result"] == [user, True, 1, True, True]


def test_threads_may_be_allowed_and_processes_still_not(zygote: Zygote) -> None:
    with zygote.fork(Limits(wall_seconds=20, threads=2), "six") as child:
        code = "import threading; t = threading.Thread(target=list); t.start(); t.join(); result = 1"
        assert child.ask(Frame({"code": code})).fields["result"] == 1
        assert child.ask(Frame({"code": OUT["a new process"]})).fields["refused"] == "EPERM"


def test_a_candidate_keeps_its_folder_and_sees_no_other(run: Run) -> None:
    mine = run("(folder / 'mine').write_text('x'); result = str(folder)", candidate="two")["result"]
    assert run("result = (folder / 'mine').read_text()", candidate="two")["result"] == "x"
    assert run("open(given + '/mine')", given=mine, candidate="three")["refused"] == "EACCES"
    assert not Path(mine).exists()  # it is in memory, in the fork server's mounts


def test_fewer_folders_are_kept_if_there_is_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = Folders(tmp_path, Isolation({"namespaces": "not here"}))
    monkeypatch.setattr("weft.supervise.zygote.MOST_KEPT", 3)
    first = folders.make("a")[1]
    assert folders.make("b")[1] != first == folders.make("a")[1]
    for name in "cd":
        folders.make(name)
    assert first.exists()  # b was unused for a longer time
    assert len(list(tmp_path.glob("c*"))) == 3
    monkeypatch.setattr("weft.supervise.zygote.LEAST_FREE_BYTES", 1 << 62)
    last = folders.make("e")[1]
    assert list(tmp_path.glob("c*")) == [last]


def test_no_folder_of_a_running_child_is_removed_if_there_is_little_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that requests the disassembler has two children: the second must not remove the first's folder."""
    folders = Folders(tmp_path, Isolation({"namespaces": "not here"}))
    monkeypatch.setattr("weft.supervise.zygote.LEAST_FREE_BYTES", 1 << 62)
    idle = folders.make("judged before")[1]
    temporary, running = folders.make("candidate")
    folders.belong(1, temporary, "candidate")
    (running / "compiled").write_text("PTX")
    assert not idle.exists()

    program_temporary, program = folders.make("")
    folders.belong(2, program_temporary, "")
    assert (running / "compiled").read_text() == "PTX"
    folders.clean(2, keep=True)
    assert folders.make("candidate")[1] == running

    folders.clean(1, keep=True)
    last = folders.make("next")[1]
    assert [last] == list(tmp_path.glob("c*")), f"{program} and {running} are idle now"


def test_the_folder_of_a_child_that_dies_is_not_used_again(zygote: Zygote, run: Run) -> None:
    with pytest.raises(ChildEnded) as died, zygote.fork(LIMITS, "four") as child:
        child.ask(Frame({"code": "import os; (folder / 'mine').write_text('x'); os.abort()"}))
    assert (died.value.ended.status, died.value.ended.signal) == (Status.CRASHED, 6)
    assert run("result = (folder / 'mine').exists()", candidate="four")["result"] is False


NONSENSE = """
import os
for descriptor in range(3, 256):
    try:
        os.write(descriptor, b"x" * 64)
    except OSError:
        continue
os._exit(0)
"""


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("while True: pass", Status.TIMEOUT),
        ("import ctypes; ctypes.string_at(0)", Status.CRASHED),
        ("import os; os._exit(0)", Status.CRASHED),
        (NONSENSE, Status.CRASHED),
    ],
)
def test_it_can_only_end_itself(zygote: Zygote, run: Run, code: str, outcome: Status) -> None:
    limits = Limits(wall_seconds=1.0, memory_bytes=4 << 30)
    with pytest.raises(ChildEnded) as ended, zygote.fork(limits, "five") as child:
        child.ask(Frame({"code": code}))
    assert ended.value.ended.status is outcome, ended.value.ended
    assert run("result = 1 + 1")["result"] == 2


# The probe must detect a layer that does nothing.


@pytest.mark.parametrize(
    ("module", "name", "layer", "level"),
    [
        (isolation, "restrict_files", "files", 1),
        (isolation, "restrict_calls", "calls", 1),
        (isolation_namespaces, "_furnish", "namespaces", 2),
        (isolation, "drop_root", "namespaces", 2 if os.geteuid() == 0 else 3),
        (isolation_probe, "limit", "limits", 0),
    ],
)
def test_a_layer_that_does_nothing_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: Any, name: str, layer: str, level: int
) -> None:
    monkeypatch.setattr(module, name, lambda *arguments, **options: None)
    found = probe(_small_room(tmp_path))
    assert found.level == level
    assert set(found.missing) == ({layer} if level < HIGHEST else set())
    assert not list(tmp_path.parent.glob("stray"))


def test_a_socket_of_another_probe_is_no_obstacle(tmp_path: Path) -> None:
    """A child of an earlier probe of this process may hold it a little longer."""
    with isolation_probe._bait():
        assert probe(_small_room(tmp_path)).missing == probe_here().missing


@pytest.mark.parametrize(
    ("module", "name", "level"),
    [(isolation_namespaces, "unshare", 2), (isolation, "restrict_files", 1), (isolation, "restrict_calls", 1)],
)
def test_a_kernel_that_refuses_a_layer_gives_a_lower_level(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: Any, name: str, level: int
) -> None:
    def refuses(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "not here")

    monkeypatch.setattr(module, name, refuses)
    found = probe(_small_room(tmp_path))
    assert found.level == level
    assert ["not here" in why for why in found.missing.values()] == [True]
    found.require(level)
    with pytest.raises(
        NotIsolated, match=f"this machine provides {level}.*not here.*cure: .*--require-isolation {level}"
    ):
        found.require(3)


AS_A_USER = """
import ctypes, os, sys
from pathlib import Path
from tempfile import TemporaryDirectory
from weft.supervise.isolation import Room
from weft.supervise.isolation_probe import probe
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a process of such a user is from its start
os.chdir("/")
with TemporaryDirectory(dir="/tmp") as scratch:
    print(probe(Room(Path(scratch), tuple(Path(path) for path in ("/usr/lib", "/lib", "/lib64")))))
"""


def test_an_ordinary_user_gets_the_same() -> None:
    environment = {**os.environ, "TMPDIR": "/tmp"}
    done = subprocess.run(
        [sys.executable, "-c", AS_A_USER if os.geteuid() == 0 else "print('Isolation(missing={})')"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert done.stdout.strip() == "Isolation(missing={})", done.stdout + done.stderr


@pytest.mark.parametrize(("without", "level"), [("namespaces", 2), ("namespaces,files,calls", 1)])
def test_a_kernel_is_judged_with_the_available_isolation(
    monkeypatch: pytest.MonkeyPatch, request_of: Any, without: str, level: int
) -> None:
    monkeypatch.setattr(Zygote, "program", (PAYLOAD, without))
    with Supervisor(Limits(wall_seconds=60)) as supervisor:
        found = supervisor.evaluate(request_of())
        assert (found.status, found.isolation) == (Status.PASSED, level), found.message
        with pytest.raises(NotIsolated, match="not here"):
            supervisor.evaluate(request_of(isolation=level + 1))
        with pytest.raises(NotIsolated):
            supervisor.canonical_ptx(request_of(isolation=3))


def test_weft_evolve_refuses_to_begin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("weft.cli.evolve.probe_here", lambda: Isolation({"files": "no Landlock"}))
    store = tmp_path / "weft.db"
    assert main(["evolve", "--require-isolation", "2", "--store", str(store)]) == 2
    said = capsys.readouterr().err
    assert "isolation level 2 is required, but this machine provides 1" in said
    assert "no Landlock (cure: " in said
    assert main(["runs", "--store", str(store)]) == 0
    assert "`weft evolve` starts one" in capsys.readouterr().out  # there is none


def test_the_isolation_can_be_probed_without_a_fork_server() -> None:
    assert probe_here() == Isolation({})


def test_packages_that_are_links_may_be_read_and_other_links_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, private = tmp_path / "kept" / "nvidia", tmp_path / "private"
    packages, work = tmp_path / "site-packages", tmp_path / "work"
    for folder in (kept, private, packages, work):
        folder.mkdir(parents=True)
    (packages / "nvidia").symlink_to(kept)
    (work / "data").symlink_to(private)
    monkeypatch.setattr(sys, "path", [str(packages), str(work), str(tmp_path / "gone-packages")])
    reads = room_for(tmp_path / "scratch").reads
    assert kept in reads
    assert private not in reads


def _small_room(scratch: Path) -> Room:
    os.chmod(scratch, 0o755)
    return room_for(scratch)
