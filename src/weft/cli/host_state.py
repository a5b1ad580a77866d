"""The state of this machine: CPU, GPU, isolation, caches and the store. Nothing is created or changed."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from weft.core import knobs
from weft.core.errors import WeftError

MOST_FILES = 4_000
"""Limit of files counted in a cache, so that `weft doctor` stays fast."""

_JOURNAL = "SELECT count(*) FROM journal_entries"


@dataclass(frozen=True)
class Cpu:
    """The CPU that kernels are compiled for."""

    model: str
    threads: int
    """Host threads that run CTAs."""
    llvm: str
    """LLVM's name of the CPU, or WEFT_CPU."""
    llvm_version: str
    vectors: str
    """The widest vector extension."""


@dataclass(frozen=True)
class Gpu:
    """The GPUs that the driver's files list; no CUDA library is loaded."""

    present: bool
    names: tuple[str, ...]
    driver: str


@dataclass(frozen=True)
class Folder:
    """A cache."""

    path: str
    files: int
    size_bytes: int
    complete: bool
    """False: there are more files than were counted."""


@dataclass(frozen=True)
class StoreState:
    """The database of searches and of the journal."""

    where: str
    exists: bool
    size_bytes: int = 0
    schema: int | None = None
    runs: int | None = None
    journal_entries: int | None = None
    """None: there is no journal yet."""
    problem: str = ""


def cpu(info: Path = Path("/proc/cpuinfo")) -> Cpu:
    """Return this machine's CPU."""
    fields: dict[str, str] = {}
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", "").split()
    vectors = next((name for flag, name in _VECTORS.items() if flag in flags), "SSE2")
    name, version = _llvm()
    return Cpu(fields.get("model name", "unknown"), knobs.threads(), knobs.host_cpu() or name, version, vectors)


_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sse4_2": "SSE4.2"}


def _llvm() -> tuple[str, str]:
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError):
        return "unknown", ""
    return str(llvm.get_host_cpu_name()), ".".join(map(str, llvm.llvm_version_info))


def gpu(root: Path = Path("/")) -> Gpu:
    """Return the GPUs that the NVIDIA driver shows."""
    names = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        rows = dict(line.partition(":")[::2] for line in file.read_text(errors="replace").splitlines())
        names.append(rows.get("Model", "unknown").strip())
    version = root / "proc/driver/nvidia/version"
    driver = version.read_text(errors="replace").splitlines()[0].strip() if version.is_file() else ""
    # Windows shows the GPU to its Linux subsystem as /dev/dxg.
    device = any((root / "dev" / name).exists() for name in ("nvidiactl", "dxg"))
    return Gpu(bool(names) or device, tuple(names), driver)


def isolation(root: Path = Path("/")) -> dict[str, bool]:
    """Return the isolation layers that the Linux kernel offers. Only `--try` tests them."""
    from weft.supervise.isolation_filter import landlock_version

    spaces = root / "proc/sys/user/max_user_namespaces"
    try:
        landlock = landlock_version() > 0
    except (OSError, WeftError):
        landlock = False
    return {
        "seccomp": (root / "proc/sys/kernel/seccomp/actions_avail").exists(),
        "Landlock": landlock,
        "user namespaces": spaces.is_file() and spaces.read_text().strip() not in ("", "0"),
    }


def cache() -> Folder:
    """Return the cache of compiled code, with its size."""
    root = knobs.cache_dir()
    files = size = 0
    for folder, _, names in os.walk(root):
        for name in names:
            if files >= MOST_FILES:
                return Folder(str(root), files, size, False)
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except OSError:  # another process removed it
                continue
            files += 1
    return Folder(str(root), files, size, True)


def store() -> StoreState:
    """Return the state of the database, without creating it."""
    where = knobs.store()
    if "://" in where and not where.startswith("sqlite:///"):
        return StoreState(_without_password(where), True, problem="a server: use weft runs to query it")
    path = Path(where.removeprefix("sqlite:///")).expanduser()
    if not path.exists():
        return StoreState(str(path), False)
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.1)
    except sqlite3.Error as error:
        return StoreState(str(path), True, path.stat().st_size, problem=str(error))
    try:
        schema = _count(connection, "SELECT version FROM schema_version")
        runs = _count(connection, "SELECT count(*) FROM runs")
        return StoreState(str(path), True, path.stat().st_size, schema, runs, _count(connection, _JOURNAL))
    except sqlite3.DatabaseError as error:
        return StoreState(str(path), True, path.stat().st_size, problem=str(error))
    finally:
        connection.close()


def _count(connection: sqlite3.Connection, query: str) -> int | None:
    try:
        row = connection.execute(query).fetchone()
    except sqlite3.OperationalError:  # no such table: this part was never used
        return None
    return int(row[0]) if row else None


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, host = parts.username or "", parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:…@{host}"))
