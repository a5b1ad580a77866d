"""Which rung of the ladder computes a call, and the call."""

import math
from dataclasses import dataclass
from functools import cache

import torch

from weft.attention.contract import DENSE, Contract
from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.engines.kernel_file import load
from weft.kernels.ladder import RUNGS, Rung
from weft.tasks.registry import TASKS

from .kernel_call import Chosen, run_kernel

DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
INDICES = (torch.int32, torch.int64)
"""Types of ends, lengths and tables of pages."""
ENCODED = ("fp8_sdpa", "quantised_sdpa")
"""Tasks of rungs that compute on 8-bit codes, which are inputs or made by the kernel."""
TASKS_OF = {"dense": ("sdpa", "softcap_sinks"), "varlen": ("sdpa_varlen",), "paged": ("paged_decode",)}
"""Layout → tasks of rungs that take its arrays."""
SELF_QUANTISED = "e4m3"
"""The encoding of rungs that quantise by themselves."""
BACKWARD = ("backward_mma", "backward")
"""The rungs that compute gradients, the fastest first; the last supports every call that a forward rung does."""
TILE = 128
"""A rung that takes only full tiles gets sequences that are a multiple of this."""


@dataclass(frozen=True)
class Wanted:
    """The properties of a call that decide which kernels support it."""

    dtype: str
    mask: str
    d: int
    sq: int
    skv: int
    group: int
    """Query heads per key head."""
    encoding: str = ""
    """The encoding of 8-bit codes; empty where Q, K and V are numbers."""
    contract: Contract = DENSE
    """The layout of the arrays, window, soft cap and sinks."""


def choose_rung(wanted: Wanted, name: str = "") -> Rung:
    """Return the named rung, or the highest of the ladder that supports the call; raises with all reasons otherwise."""
    if name:
        if name not in RUNGS:
            raise UsageError(f"rung {name!r}{did_you_mean(name, RUNGS)}: the ladder has {', '.join(RUNGS)}")
        why = why_not(RUNGS[name], wanted)
        if why:
            raise UsageError(f"rung {name} does not support this call: {why}")
        return RUNGS[name]
    reasons = []
    for rung in reversed(list(RUNGS.values())):
        why = why_not(rung, wanted) or _must_be_named(rung)
        if not why:
            return rung
        reasons.append(f"{rung.name}: {why}")
    raise UsageError(f"no rung of the ladder supports this call. {'; '.join(reasons)}")


def backward_rung(wanted: Wanted) -> str:
    """Return the rung that computes the gradients of a call."""
    return next((name for name in BACKWARD if not _lacks(RUNGS[name], wanted)), BACKWARD[-1])


def _must_be_named(rung: Rung) -> str:
    """Return why a rung is not chosen where the caller names none; empty if it is."""
    if rung.gpu:
        return f"rungs for one GPU ({rung.gpu}) must be named"
    alone = not any(other.task == rung.task and other.language == "CUDA" for other in RUNGS.values())
    return "" if rung.language == "CUDA" or alone else "rungs of other compilers must be named"


def why_not(rung: Rung, wanted: Wanted) -> str:
    """Return the first reason why the rung does not support the call; empty if it does."""
    served = _served(wanted)
    if rung.task not in served:
        return f"it computes {rung.task}, not {served[0]}"
    encodings = (SELF_QUANTISED,) if rung.task == "quantised_sdpa" else rung.encodings
    if wanted.encoding and wanted.encoding not in encodings:
        return f"its codes are {' or '.join(encodings)}, not {wanted.encoding}"
    lacking = [name for name in wanted.contract.defines() if name not in macros_of(rung.name)]
    if lacking:
        return f"it has no macro {' or '.join(lacking)}"
    return _lacks(rung, wanted)


def _served(wanted: Wanted) -> tuple[str, ...]:
    """Return the tasks of rungs that take the arrays of a call."""
    if wanted.encoding:
        return ENCODED
    tasks = TASKS_OF[wanted.contract.layout]
    if wanted.contract.sinks:
        return tasks[1:]
    # A rung with sinks computes attention without them too (-inf), but plain attention has faster ones.
    return tasks[:1] if wanted.contract == DENSE else tasks


def compute(
    wanted: Wanted,
    tensors: dict[str, torch.Tensor],
    outputs: tuple[torch.Tensor, torch.Tensor],
    scale: float,
    rung: str = "",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fill O and LSE by the rung that computes the call. Kernels take contiguous arrays and 32-bit indices."""
    chosen = choose_rung(wanted, rung)
    if "sinks" in TASKS[chosen.task].inputs and "sinks" not in tensors:
        q = tensors["q"]
        tensors = {**tensors, "sinks": q.new_full((q.size(1),), -math.inf, dtype=torch.float32)}  # without weight
    given = {name: (x.to(torch.int32) if x.dtype in INDICES else x).contiguous() for name, x in tensors.items()}
    call = Chosen(chosen.name, wanted.dtype, wanted.mask, scale, wanted.encoding, wanted.contract)
    run_kernel(call, given, dict(zip(("o", "lse"), outputs, strict=True)))
    return outputs


@cache
def macros_of(name: str) -> frozenset[str]:
    """Return the macros that a rung's file declares."""
    return frozenset(line.name for line in load(RUNGS[name].path).lines.defines)


def _lacks(rung: Rung, wanted: Wanted) -> str:
    """Return the type, mask or size of the call that the rung does not take; empty if it takes all."""
    dtypes = rung.outputs if rung.task == "fp8_sdpa" else rung.dtypes
    if wanted.dtype not in dtypes:
        return f"it takes {' or '.join(dtypes)}, not {wanted.dtype}"
    if wanted.mask not in rung.masks:
        return f"it has the masks {', '.join(rung.masks)}, not {wanted.mask}"
    if rung.largest_d is not None and wanted.d > rung.largest_d:
        return f"its largest head dimension is {rung.largest_d}, not {wanted.d}"
    if wanted.d % rung.multiple_d:
        return f"its head dimensions are multiples of {rung.multiple_d}, {wanted.d} is not"
    if wanted.group > 1 and not rung.gqa:
        return "it does not support GQA (several query heads per key head)"
    if not rung.ragged and (wanted.sq % TILE or wanted.skv % TILE):
        return f"it takes only sequences that are a multiple of {TILE}"
    return ""
