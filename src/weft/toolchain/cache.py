"""A content-addressed store of bytes on disk, safe under concurrent processes.

One file per value: a JSON line (kind, key, length, sha256), a line feed, the payload. A file is written under a
temporary name and renamed, so a reader sees all or nothing; a file that does not match its header is a miss.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from weft.core import knobs
from weft.core.errors import UsageError

TOOLCHAIN_VERSION = "1"
"""Part of every key: raise it when the meaning of a cached value changes."""

_KIND = re.compile(r"[a-z][a-z0-9_]*")


def cache_key(parts: Iterable[str | bytes]) -> str:
    """Return the sha256 of the parts, each with its length, so that ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in (TOOLCHAIN_VERSION, *parts):
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """The values of one kind (`cuda`, `triton`, `object` and others) under `knobs.cache_dir()`."""

    def __init__(self, kind: str, *, root: Path | None = None) -> None:
        if not _KIND.fullmatch(kind):
            raise UsageError(f"cache kind {kind!r} must be a lower-case word")
        self.kind = kind
        self.root = root if root is not None else knobs.cache_dir()
        self.behind = knobs.cache_behind() if root is None else None

    def path(self, key: str) -> Path:
        """Return the file of a key's value; the first two digits distribute files over folders."""
        return self._in(self.root, key)

    def get(self, key: str) -> bytes | None:
        """Return the stored bytes, or None if there are none or the file is damaged."""
        for root in (self.root, self.behind):
            try:
                blob = self._in(root, key).read_bytes() if root is not None else b""
            except OSError:
                continue
            head, separator, payload = blob.partition(b"\n")
            if separator and head == self._header(key, payload):
                return payload
        return None

    def put(self, key: str, value: bytes) -> None:
        """Store bytes. If the folder cannot be written, only time is lost later; the result stays valid."""
        path = self.path(key)
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._header(key, value) + b"\n" + value)
            os.replace(temporary, path)
        except OSError:
            if temporary:
                Path(temporary).unlink(missing_ok=True)

    def _in(self, root: Path, key: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{64}", key):
            raise UsageError(f"cache key {key!r} is not a sha256 in hex; make it with cache_key()")
        return root / self.kind / key[:2] / key[2:]

    def _header(self, key: str, payload: bytes) -> bytes:
        fields = {
            "kind": self.kind,
            "key": key,
            "length": len(payload),
            "sha256": hashlib.sha256(payload).hexdigest(),
        }
        return json.dumps(fields, sort_keys=True).encode()
