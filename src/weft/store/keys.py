"""Content hashes: of artefacts, of candidates, and of everything that decides a verdict."""

import hashlib
from collections.abc import Iterable

KEY_VERSION = "1"
"""Part of every verdict's key: raise it when the parts of the key mean something else."""


def content_digest(content: bytes | str) -> str:
    """sha256 in hex."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def parts_digest(parts: Iterable[str]) -> str:
    """sha256 of the parts, each with its length, so that ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def verdict_key(
    *, source: str, launch: str, compiler: str, flags: str, arch: str, task: str, judge: str, policy: str
) -> str:
    """The key of a verdict: all that decides it. `judge` is the judge's version, `policy` workloads and tolerances."""
    return parts_digest((KEY_VERSION, source, launch, compiler, flags, arch, task, judge, policy))
