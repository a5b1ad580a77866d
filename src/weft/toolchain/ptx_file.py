"""A PTX file of any origin → Binary. Nothing is compiled: there is no cubin, and no resource usage from ptxas."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from weft.core.errors import UsageError
from weft.core.records import Binary

from .cuda import ENTRY, plain_names

_TARGET = re.compile(r"^\s*\.target\s+(sm_(\d+)([af]?))", re.MULTILINE)


def is_ptx(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is already compiled, by its name."""
    return os.fspath(path).endswith(".ptx")


def read_ptx(path: str | os.PathLike[str], *, arch: str = "sm_89", entries: Sequence[str] = ()) -> Binary:
    """Return the file as a Binary for `arch`. `entries` are kernels it must have: mangled, or as C++ spells them."""
    spelled = os.fspath(path)
    try:
        text = Path(spelled).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {spelled}: {error}") from error
    return ptx_binary(text, spelled, arch=arch, entries=entries)


def ptx_binary(text: str, spelled: str, *, arch: str, entries: Sequence[str]) -> Binary:
    """Return the text of a file as a Binary; `spelled` is the user's name of the file."""
    _require_target(text, spelled, arch)
    kernels = list(dict.fromkeys(ENTRY.findall(text)))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Binary(
        source_name=spelled,
        arch=arch,
        compiler="PTX as given",
        flags=(),
        ptx=text,
        entries=_chosen(kernels, entries, spelled),
        source_digest=digest,
        ptx_digest=digest,
    )


def _chosen(kernels: Sequence[str], entries: Sequence[str], spelled: str) -> dict[str, str]:
    """Return name as written → name in the PTX. Spaces do not matter: `attn<64, true>`."""
    readable = plain_names(kernels)
    if not entries:
        return readable
    known = {**{"".join(name.split()): kernel for name, kernel in readable.items()}, **{k: k for k in kernels}}
    for entry in entries:
        if "".join(entry.split()) not in known:
            listed = ", ".join(readable) or "none"
            raise UsageError(f"no kernel {entry!r} in {spelled}; it has {listed}")
    return {entry: known["".join(entry.split())] for entry in entries}


def _require_target(text: str, spelled: str, arch: str) -> None:
    """Refuse other targets: PTX runs on its target and on later chips; PTX for `sm_90a` only there."""
    match = _TARGET.search(text)
    chip = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if chip is None:
        raise UsageError(f"arch {arch!r} is not of the form sm_89")
    if match is None:
        return
    if int(match[2]) > int(chip[1]) or (match[3] and match[2] != chip[1]):
        raise UsageError(f"{spelled} is made for {match[1]} and does not run on {arch}: choose --arch {match[1]}")
