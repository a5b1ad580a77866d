"""Every environment variable Weft reads, typed, in one place."""

import os
from pathlib import Path

CHILD_OF_TEST = "_WEFT_CHILD_OF_TEST"


def cache_dir() -> Path:
    """Return WEFT_CACHE: the folder of compiled files (default: the user's cache folder)."""
    explicit = os.environ.get("WEFT_CACHE")
    if explicit:
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft"


def cache_behind() -> Path | None:
    """Return WEFT_CACHE_BEHIND: a second, read-only cache for what WEFT_CACHE does not have."""
    explicit = os.environ.get("WEFT_CACHE_BEHIND")
    return Path(explicit) if explicit else None


def store() -> str:
    """Return WEFT_STORE: the database of searches and journal, a path or URL (default: in the user's data folder)."""
    explicit = os.environ.get("WEFT_STORE")
    if explicit:
        return explicit
    data = Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share"))
    return str(data / "weft" / "weft.db")


def api_key(variable: str) -> str:
    """Return the key of a language model's endpoint, from OPENAI_API_KEY or the named variable; empty if not set."""
    return os.environ.get(variable, "")


def host_cpu() -> str:
    """Return WEFT_CPU: LLVM's name of the CPU to compile for, e.g. `x86-64-v3` for AVX2 (default: this machine's)."""
    return os.environ.get("WEFT_CPU", "")


def threads() -> int:
    """Return WEFT_THREADS: the number of host threads that run CTAs (default: all cores)."""
    return int(os.environ.get("WEFT_THREADS", "0")) or len(os.sched_getaffinity(0))


def jobs() -> int:
    """Return WEFT_JOBS: the number of processes that judge workloads at once (default: all cores)."""
    return int(os.environ.get("WEFT_JOBS", "0")) or len(os.sched_getaffinity(0))


def autotuned() -> int:
    """Return WEFT_AUTOTUNE: of how many accepted configurations a Triton autotuner chooses (default: 0, of all)."""
    return int(os.environ.get("WEFT_AUTOTUNE", "0"))


def debug() -> int:
    """Return WEFT_DEBUG: 1 prints compile times, 2 also the LLVM IR."""
    return int(os.environ.get("WEFT_DEBUG", "0"))


def no_color() -> bool:
    """Return whether NO_COLOR is set to any value (https://no-color.org) or TERM is `dumb`: no colours and styles."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def force_color() -> bool:
    """Return whether FORCE_COLOR is set to any value: styles also without a terminal; NO_COLOR takes precedence."""
    return bool(os.environ.get("FORCE_COLOR"))


def progress_in_pipes() -> bool:
    """Return WEFT_PROGRESS: 0 prints no progress to standard error if that is not a terminal (default: 1)."""
    return os.environ.get("WEFT_PROGRESS", "1") != "0"


def completing() -> bool:
    """Return whether _WEFT_COMPLETE is set: a shell requests completions, as `weft completion` sets it up."""
    return "_WEFT_COMPLETE" in os.environ


def child_of_test() -> str:
    """Return the virtual GPU of the test that started this process, as `pytest --weft` wrote it; empty: none did."""
    return os.environ.get(CHILD_OF_TEST, "")
