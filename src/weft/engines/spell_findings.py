"""Findings with the user's lines and names: no lines of CUDA headers, demangled names, unrolled copies merged."""

import re
from collections.abc import Iterable
from dataclasses import replace

from weft.core.records import Finding, Place, inlining_chain
from weft.toolchain.cuda_headers import is_users


def user_place(place: Place | None) -> Place | None:
    """Return the innermost line that is not in a header of CUDA or Weft: the one the user can change."""
    return next((at for at in inlining_chain(place) if is_users(at.file)), place)


def plain_names(text: str) -> str:
    """Return the text with `__shared__` arrays by their source names: `_ZZ4turnPfE4tile+0x8` → `tile+0x8`."""
    return re.sub(r"_ZZ[\w$]+", lambda match: _local_name(match[0]), text)


def _local_name(mangled: str) -> str:
    """Return the name after `_ZZ <function> E`: a length, that many letters, and perhaps a discriminator."""
    for match in re.finditer(r"E(\d+)", mangled):
        end = match.end() + int(match[1])
        if re.fullmatch(r"(_\$_\d+|_\d|__\d+_)?", mangled[end:]) and end <= len(mangled):
            return mangled[match.end() : end]
    return mangled


def folded(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Merge findings with the same text at the same line into one, at the first thread, with the sum of the counts.

    A race within a warp stays separate from one between warps: `__syncwarp()` fixes only the first.
    """
    first: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        near = finding.warp == finding.other_warp
        key = (finding.code, finding.message, finding.place, finding.other, finding.severity, near)
        known = first.get(key)
        first[key] = finding if known is None else replace(known, count=known.count + finding.count)
    return tuple(first.values())
