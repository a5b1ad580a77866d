"""A private PostgreSQL server: a cluster in a temporary folder, on loopback, that can be stopped and restarted.

    with PostgresServer() as server:
        url = server.new_database()

Commits are as durable as on any other server (`fsync` and `synchronous_commit` are on). PostgreSQL refuses to run as
root, so root starts it as the user `postgres`, or `nobody`.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

PASSWORD = "not a secret"  # of a server that runs for one test and listens on loopback only


def binaries() -> Path:
    """Return the folder of initdb and postgres: Debian does not put it on the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not installed:
        raise FileNotFoundError("PostgreSQL is not installed: apt-get install -y --no-install-recommends postgresql")
    return installed[-1].parent


class PostgresServer:
    """One cluster. `stop(crash=True)` simulates a power cut as far as a process can."""

    host = "127.0.0.1"

    def __init__(self, folder: Path | None = None, *, max_connections: int = 100) -> None:
        self._own = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="weft_postgres_", dir=_roomy()))
        self._data = self._folder / "data"
        self._log = self._folder / "server.log"
        self._user = _server_user()
        self._max_connections = max_connections
        self.port = _free_port()
        self._folder.mkdir(exist_ok=True)
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            "initdb",
            "-D",
            self._data,
            "-U",
            "weft",
            "-E",
            "UTF8",
            "--locale=C",
            "--auth-host=scram-sha-256",
            "--auth-local=trust",
            f"--pwfile={password}",
            "--no-sync",
            "--no-instructions",
        )
        self.start()

    def start(self) -> None:
        """Start it, on the same port as before, and wait until it answers."""
        options = (
            f"-c listen_addresses={self.host} -c port={self.port} -c unix_socket_directories={self._folder} "
            f"-c max_connections={self._max_connections} -c shared_buffers=16MB"
        )
        self._run("pg_ctl", "-D", self._data, "-l", self._log, "-o", options, "-w", "-t", "60", "start")

    def stop(self, *, crash: bool = False) -> None:
        """Stop it: at once with every connection, or as if it had crashed, so that it must recover."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate" if crash else "fast", "-w", "-t", "60", "stop")

    def new_database(self, encoding: str = "UTF8") -> str:
        """Return the URL of an empty database."""
        name = f"weft_{uuid.uuid4().hex[:12]}"
        place = ("-h", self._folder, "-p", str(self.port), "-U", "weft")
        self._run("createdb", *place, "-E", encoding, "-T", "template0", name)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database, also while clients are connected."""
        name = url.rpartition("/")[2]
        self._run("dropdb", "-f", "-h", self._folder, "-p", str(self.port), "-U", "weft", name)

    def url(self, database: str, *, password: str = PASSWORD) -> str:
        """Return the URL of a database, as the store takes it."""
        return f"postgresql://weft:{password.replace(' ', '%20')}@{self.host}:{self.port}/{database}"

    def close(self) -> None:
        """Stop it and remove what it wrote."""
        if (self._data / "postmaster.pid").exists():
            self.stop(crash=self._own)  # the data is deleted: no checkpoint is needed
        if self._own:
            shutil.rmtree(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, tool: str, *arguments: str | Path) -> None:
        command = [str(binaries() / tool), *map(str, arguments)]
        if self._user is not None:
            identity = [f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]
            command = ["setpriv", *identity, *command]
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self._folder)}
        # The server inherits what it is started with: a pipe would never be closed.
        with (self._folder / "tools.log").open("a") as log:
            done = subprocess.run(
                command, cwd=self._folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if done.returncode != 0:
            told = [path.read_text()[-2000:] for path in (self._folder / "tools.log", self._log) if path.exists()]
            raise RuntimeError(f"{tool} ended with {done.returncode}:\n" + "\n".join(told))


def _server_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")


def _roomy() -> str:
    """Return where to put the cluster: in memory if there is space, because a sync to a busy disk takes tens of ms.

    The path is short, because paths of sockets are limited.
    """
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30 else "/tmp"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
