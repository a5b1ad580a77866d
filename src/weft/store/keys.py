"""Content hashes of artefacts, of candidates, and of everything that a verdict depends on."""

import hashlib
from collections.abc import Iterable

KEY_VERSION = "1"
"""Part of every verdict's key: raise it when the meaning of the key's parts changes."""


def content_digest(content: bytes | str) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def parts_digest(parts: Iterable[str]) -> str:
    """Return the SHA-256 of the parts, each with its length, so that ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def verdict_key(
    *, source: str, launch: str, compiler: str, flags: str, arch: str, task: str, judge: str, policy: str
) -> str:
    """Return the key of a verdict. `judge` is the judge's version, `policy` are workloads and tolerances."""
    return parts_digest((KEY_VERSION, source, launch, compiler, flags, arch, task, judge, policy))
