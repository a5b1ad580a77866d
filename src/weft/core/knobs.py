"""Every environment variable Weft reads, typed, in one place."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """WEFT_CACHE: where compiled things live (default: the user's cache folder)."""
    explicit = os.environ.get("WEFT_CACHE")
    if explicit:
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft"


def cache_behind() -> Path | None:
    """WEFT_CACHE_BEHIND: another cache that is read where WEFT_CACHE has nothing, and never written."""
    explicit = os.environ.get("WEFT_CACHE_BEHIND")
    return Path(explicit) if explicit else None


def store() -> str:
    """WEFT_STORE: the database of searches and of the journal, a path or a URL (default: the user's data folder)."""
    explicit = os.environ.get("WEFT_STORE")
    if explicit:
        return explicit
    data = Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share"))
    return str(data / "weft" / "weft.db")


def api_key(variable: str) -> str:
    """OPENAI_API_KEY, or the variable that is named: the key of a language model's endpoint; empty if it is not set."""
    return os.environ.get(variable, "")


def host_cpu() -> str:
    """WEFT_CPU: LLVM's name of the CPU to compile for, e.g. `x86-64-v3` to force AVX2 (default: this machine's)."""
    return os.environ.get("WEFT_CPU", "")


def threads() -> int:
    """WEFT_THREADS: host threads that run CTAs (default: all cores)."""
    return int(os.environ.get("WEFT_THREADS", "0")) or len(os.sched_getaffinity(0))


def debug() -> int:
    """WEFT_DEBUG: 1 prints compile times, 2 also the LLVM IR."""
    return int(os.environ.get("WEFT_DEBUG", "0"))


def no_color() -> bool:
    """NO_COLOR: if set to anything, no style anywhere (https://no-color.org); so does TERM=dumb."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def force_color() -> bool:
    """FORCE_COLOR: if set to anything, styles also where no terminal is; NO_COLOR wins."""
    return bool(os.environ.get("FORCE_COLOR"))


def progress_in_pipes() -> bool:
    """WEFT_PROGRESS: 0 keeps lines of progress out of standard error where it is no terminal (default: 1)."""
    return os.environ.get("WEFT_PROGRESS", "1") != "0"


def completing() -> bool:
    """_WEFT_COMPLETE: a shell asks what may stand at the cursor, as `weft completion` makes it do."""
    return "_WEFT_COMPLETE" in os.environ
