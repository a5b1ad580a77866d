"""The version of Triton in its cache's keys, from the times of its files.

Triton reads all of its files for it, of which its library alone has hundreds of MB: 2 CPU seconds in every process that
compiles.
"""

import functools
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def key_by_times(triton: Any) -> Iterator[None]:
    """Inside, Triton's keys have names, sizes and times of its files: a file that is written again changes them too."""
    cache = triton.runtime.cache
    before = cache.triton_key
    cache.triton_key = lambda: key_of(Path(triton.__file__).parent, triton.__version__)
    try:
        yield
    finally:
        cache.triton_key = before


@functools.cache
def key_of(root: Path, version: str) -> str:
    """Return the version, and a digest of what the folder lists."""
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *(root / "_C").glob("*")]):
        found = path.stat()
        digest.update(f"{path.relative_to(root)} {found.st_size} {found.st_mtime_ns}\n".encode())
    return f"{version}-{digest.hexdigest()}"
