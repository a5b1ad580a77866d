"""Which rung of the ladder takes a call: the one that was named, or the highest that supports it."""

from dataclasses import dataclass

from weft.core.errors import UsageError
from weft.kernels.ladder import RUNGS, Rung

ENCODED = ("fp8_sdpa", "quantised_sdpa")
"""Tasks of rungs that compute on 8-bit codes: they are given them, or make them."""
SELF_QUANTISED = "e4m3"
"""What the codes of a rung stand for that makes them itself."""
TILE = 128
"""A rung that takes whole tiles only gets sequences of multiples of this."""


@dataclass(frozen=True)
class Wanted:
    """A call, as far as it decides which kernels can serve it."""

    dtype: str
    mask: str
    d: int
    sq: int
    skv: int
    group: int
    """Query heads per key head."""
    encoding: str = ""
    """What 8-bit codes stand for; empty where Q, K and V are numbers."""


def choose_rung(wanted: Wanted, name: str = "") -> Rung:
    """The named rung if it can, else the highest of the ladder that can; raises with every reason otherwise."""
    if name:
        if name not in RUNGS:
            raise UsageError(f"rung {name!r}: the ladder has {', '.join(RUNGS)}")
        why = why_not(RUNGS[name], wanted)
        if why:
            raise UsageError(f"rung {name} cannot serve this call: {why}")
        return RUNGS[name]
    reasons = []
    for rung in reversed(list(RUNGS.values())):
        why = why_not(rung, wanted) if rung.language == "CUDA" else "other compilers only by name"
        if not why:
            return rung
        reasons.append(f"{rung.name}: {why}")
    raise UsageError(f"no rung of the ladder can serve this call. {'; '.join(reasons)}")


def why_not(rung: Rung, wanted: Wanted) -> str:
    """Empty if the rung can serve the call, else the first reason why it cannot."""
    served = ENCODED if wanted.encoding else ("sdpa",)
    if rung.task not in served:
        return f"it computes {rung.task}, not {served[0]}"
    encodings = (SELF_QUANTISED,) if rung.task == "quantised_sdpa" else rung.encodings
    if wanted.encoding and wanted.encoding not in encodings:
        return f"its codes are {' or '.join(encodings)}, not {wanted.encoding}"
    dtypes = rung.outputs if rung.task == "fp8_sdpa" else rung.dtypes
    if wanted.dtype not in dtypes:
        return f"it takes {' or '.join(dtypes)}, not {wanted.dtype}"
    if wanted.mask not in rung.masks:
        return f"it has the masks {', '.join(rung.masks)}, not {wanted.mask}"
    if rung.largest_d is not None and wanted.d > rung.largest_d:
        return f"its largest head dimension is {rung.largest_d}, not {wanted.d}"
    if wanted.group > 1 and not rung.gqa:
        return "several query heads may not share a key head"
    if not rung.ragged and (wanted.sq % TILE or wanted.skv % TILE):
        return f"it takes sequences of whole tiles of {TILE}"
    return ""
