"""Misread inputs: elements that an index or a loop passes by, and 8-bit codes taken for something else."""

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

from weft.attention.dtypes import Array
from weft.attention.quantise import E4M3_MAX
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Signature
from weft.diagnose.taps import Taps

from .evidence import best, has_fact, may_be, output_of, rank_of
from .lines import load_of, loop_over_keys

MOST = 0.97
"""Share of an input's rows in sight that a kernel must use for it to count as read whole."""
TENSORS = "qkv"


def misread_input(case: Case) -> Signature | None:
    """Q and K, or P and V, meet at different places, and one of the two leaves elements out: that one is misread."""
    if case.taps is None or case.attention is None:
        return None
    if has_fact(case, "inner_mismatch"):
        return _by_columns(case, case.taps)
    return _by_keys(case, case.taps) if has_fact(case, "key_mismatch") else None


def _by_columns(case: Case, taps: Taps) -> Signature | None:
    missing = {stage: _columns_left_out(taps, stage) for stage in ("q", "k")}
    # A factor that runs past the end of a row takes the other's last columns with it: who leaves out lower ones began.
    faulty = sorted((int(columns[0]), stage) for stage, columns in missing.items() if columns.size)
    if not faulty or (len(faulty) > 1 and faulty[0][0] == faulty[1][0]):
        return None
    stage = faulty[0][1]
    name, columns = stage.upper(), ranges(map(int, missing[stage]))
    message = f"columns {columns} of {name} never meet the other factor: {name} is read elsewhere"
    cure = f"check the column of {name}'s index: element d of a row of Q meets element d of a row of K"
    return Signature("misread_input", message, cure, 0.96, place=load_of(case, name), stage=stage)


def _by_keys(case: Case, taps: Taps) -> Signature | None:
    assert case.attention is not None
    needed = int(case.attention.mask.any(axis=0).sum())
    seen = {stage: int(_used(taps, stage).any(axis=(0, 1, 3)).sum()) for stage in ("k", "v")}
    faulty = [stage for stage, count in seen.items() if count < MOST * needed]
    if len(faulty) != 1:
        return None
    (stage,) = faulty
    name = stage.upper()
    message = f"{seen[stage]} of {needed} rows of {name} are used, and they meet the weights or scores of other keys"
    cure = f"check the row of {name}'s index: row n of K and row n of V belong to one key"
    return Signature("misread_input", message, cure, 0.96, place=load_of(case, name), stage=stage)


def keys_skipped(case: Case) -> Signature | None:
    """Keys in sight that nothing is made of, in a kernel that passes others in every tile: the loop leaves them out."""
    taps, problem = case.taps, case.attention
    if taps is None or problem is None or not has_fact(case, "missing_keys") or has_fact(case, "unexplained"):
        return None
    wanted = problem.mask.any(axis=0)
    used = np.zeros(wanted.shape, bool)
    seen = _used(taps, "k").any(axis=(0, 1, 3))
    used[: seen.size] = seen
    left_out = np.flatnonzero(wanted & ~used)
    if not left_out.size or not (used & wanted).any():
        return None
    message = f"keys {ranges(map(int, left_out))} are never loaded: {left_out.size} of the {int(wanted.sum())} in sight"
    cure = "let the loop over keys begin at the first, step by one tile, and end behind the last"
    return Signature("keys_skipped", message, cure, 0.9, place=loop_over_keys(case), stage="k")


def _columns_left_out(taps: Taps, stage: str) -> Array:
    """Columns that no row uses of which anything is used."""
    used = _used(taps, stage)
    return np.flatnonzero(~used.any(axis=(0, 1, 2))) if used.any() else np.empty(0, np.int64)


def _used(taps: Taps, stage: str) -> Array:
    """(b, h, rows, d): elements that were seen in use. Tiles of which nothing was seen have no tap."""
    parts = [(tile or 0, tap.observed) for (name, tile), tap in taps.taps.items() if name == stage]
    if not parts:
        return np.zeros((1, 1, 1, 1), bool)
    last, block = max(tile for tile, _ in parts), taps.algorithm.block_n
    b, h, rows, d = next(part.shape for tile, part in parts if tile == last)
    used = np.zeros((b, h, last * block + rows, d), bool)
    for tile, part in parts:
        used[:, :, tile * block : tile * block + part.shape[2]] = part
    return used


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
