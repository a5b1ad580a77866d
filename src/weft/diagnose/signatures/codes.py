"""8-bit codes taken for something else than they are."""

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

from weft.attention.dtypes import Array
from weft.attention.quantise import E4M3_MAX
from weft.diagnose.records import Case, Signature

from .evidence import best, may_be, output_of, rank_of

TENSORS = "qkv"


def misread_codes(case: Case) -> Signature | None:
    """O is that of codes read as another type, or without their zero."""
    out = output_of(case)
    if out is None or not out.finite or out.problem.scales is None or not may_be(case, *TENSORS):
        return None
    scales = [scale.astype(np.float64)[..., None, None] for scale in out.problem.scales]
    if not all((scale > 0).all() for scale in scales):
        return None
    candidates = []
    for words, read in _readings(out.problem.workload.encoding):
        read_so = {name: read(out.problem.arrays[f"{name}_code"]) for name in TENSORS}
        q, k, v = (
            np.repeat(read_so[name] * scale, out.q.shape[1] // scale.shape[1], axis=1)
            for name, scale in zip(TENSORS, scales, strict=True)
        )
        if not all(np.isfinite(x).all() for x in (q, k, v)):
            continue
        for tensors, a, b, c in (("Q, K and V", q, k, v), ("Q and K", q, k, out.v), ("V", out.q, out.k, v)):
            candidates.append((out.left_over(out.attend(out.scores(q=a, k=b), v=c)), f"{tensors} {words}"))
    found = best(candidates)
    if found is None:
        return None
    message = f"O is that of the codes of {found[1]}"
    return Signature("misread_codes", message, "decode as the task's encoding says", rank_of(found[0]), 1 - found[0])


def _readings(encoding: str) -> Iterator[tuple[str, Callable[[Array], Array]]]:
    step = E4M3_MAX / 127
    if encoding == "sim_fp8":
        yield "read as signed bytes", lambda codes: codes.view(np.int8) * step
        yield "read without subtracting 128", lambda codes: codes * step
        yield "read as E4M3 bits", lambda codes: codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    else:
        yield "read as linear codes", lambda codes: (codes.astype(np.float64) - 128) * step
        yield "read as E5M2 bits", lambda codes: codes.view(ml_dtypes.float8_e5m2).astype(np.float64)
        yield "read with an exponent bias of 8", lambda codes: codes.view(ml_dtypes.float8_e4m3fn).astype(float) / 2
        yield "read without their sign", lambda codes: (codes & 0x7F).view(ml_dtypes.float8_e4m3fn).astype(float)
