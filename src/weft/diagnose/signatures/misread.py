"""Misread inputs: elements that an index or a loop skips, and 8-bit codes decoded as another type."""

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

from weft.attention.dtypes import Array
from weft.attention.quantise import E4M3_MAX
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Signature
from weft.diagnose.tags import Kind
from weft.diagnose.taps import Taps

from .evidence import best, has_fact, keys_in_sight, may_be, output_of, rank_of
from .lines import acts, bound_of_loop, line_of, load_of, loop_over_keys, used

MOST = 0.97
"""Share of an input's visible rows that a kernel must use for the input to count as read completely."""
TENSORS = "qkv"
STAGE_KINDS = {
    "q": Kind.Q, "k": Kind.K, "v": Kind.V, "products": Kind.S, "scores": Kind.S, "m": Kind.M, "p": Kind.P, "l": Kind.L,
    "u": Kind.U, "o": Kind.O,
}  # fmt: skip
INTEGERS = (np.trunc, np.rint, np.floor)


def misread_input(case: Case) -> Signature | None:
    """Q and K, or P and V, are paired at different indices, and one of the two leaves elements out: it is misread."""
    if case.taps is None or case.staged is None:
        return None
    if has_fact(case, "inner_mismatch"):
        return _by_columns(case, case.taps)
    if has_fact(case, "other_column"):
        return _columns_of_v(case, case.taps)
    return _by_keys(case, case.taps) if has_fact(case, "key_mismatch") else None


def _columns_of_v(case: Case, taps: Taps) -> Signature | None:
    """By columns that arrive in shared memory and are not read. Of columns that do not arrive the store of O may be the
    cause: what is not stored is not computed.
    """
    missing = _columns_left_out(taps, "v")
    if not missing.size or not np.asarray(taps.fetches["v"].any(axis=(0, 1, 2)))[missing].all():
        return None
    message = f"column {ranges(map(int, missing))} of V is never used, and others are in the wrong column of O"
    cure = "check the column index of V: column d of V belongs to column d of O"
    return Signature("misread_input", message, cure, 0.96, place=load_of(case, "V"), stage="v")


def _by_columns(case: Case, taps: Taps) -> Signature | None:
    missing = {stage: _columns_left_out(taps, stage) for stage in ("q", "k")}
    # A factor that runs past the end of a row also skips the other's last columns: the cause skips lower columns.
    faulty = sorted((int(columns[0]), stage) for stage, columns in missing.items() if columns.size)
    if not faulty or (len(faulty) > 1 and faulty[0][0] == faulty[1][0]):
        return None
    stage = faulty[0][1]
    name, columns = stage.upper(), ranges(map(int, missing[stage]))
    message = f"columns {columns} of {name} are never multiplied: {name} is read at wrong columns"
    cure = f"check the column index of {name}: element d of a row of Q belongs to element d of a row of K"
    return Signature("misread_input", message, cure, 0.96, place=load_of(case, name), stage=stage)


def _by_keys(case: Case, taps: Taps) -> Signature | None:
    assert case.staged is not None
    needed = int(keys_in_sight(case.staged).sum())
    seen = {stage: int(used(taps, stage).any(axis=(0, 1, 3)).sum()) for stage in ("k", "v")}
    faulty = [stage for stage, count in seen.items() if count < MOST * needed]
    if len(faulty) != 1:
        return None
    (stage,) = faulty
    name = stage.upper()
    message = f"only {seen[stage]} of {needed} rows of {name} are used, and with the weights or scores of other keys"
    cure = f"check the row index of {name}: row n of K and row n of V belong to one key"
    return Signature("misread_input", message, cure, 0.96, place=load_of(case, name), stage=stage)


def keys_skipped(case: Case) -> Signature | None:
    """Visible keys that nothing is computed from, in a kernel that uses others in every tile: the loop skips them."""
    taps, problem = case.taps, case.staged
    if taps is None or problem is None or not has_fact(case, "missing_keys") or has_fact(case, "unexplained"):
        return None
    wanted = keys_in_sight(problem)
    seen = used(taps, "k").any(axis=(0, 1, 3))
    loaded = np.asarray(taps.fetches["k"].any(axis=(0, 1, 3)))
    left_out = np.flatnonzero(wanted & ~seen & ~loaded)
    if not left_out.size or not (seen & wanted).any():
        return None
    message = f"keys {ranges(map(int, left_out))} are never loaded: {left_out.size} of {int(wanted.sum())} visible keys"
    cure = "start the loop over keys at the first key, step by one tile, and end after the last key"
    place = bound_of_loop(loop_over_keys(case), last=bool(left_out[-1] == np.flatnonzero(wanted)[-1]))
    return Signature("keys_skipped", message, cure, 0.9, place=place, stage="k")


def cut_to_integer(case: Case) -> Signature | None:
    """The first wrong stage is converted to an integer: an input anywhere, a later stage if its values show it."""
    first = case.divergence
    if first is None or first.stage not in STAGE_KINDS:
        return None
    found = next(acts(case, "cut", STAGE_KINDS[first.stage]), None)
    if found is None:
        return None
    wrong = first.wrong & first.observed
    actual, expected = first.actual[wrong].astype(np.float64), first.expected[wrong].astype(np.float64)
    if first.stage not in TENSORS and not any((np.abs(actual - cut(expected)) < 1e-3).all() for cut in INTEGERS):
        return None
    message = f"{first.name} is converted to an integer: {actual[0]:.6g} instead of {expected[0]:.6g}"
    cure = "convert with float(...), and declare what holds the value as float"
    return Signature("cut_to_integer", message, cure, 0.965, place=line_of(case, found), stage=first.stage)


def _columns_left_out(taps: Taps, stage: str) -> Array:
    """Return the columns that no used row uses."""
    found = used(taps, stage)
    return np.flatnonzero(~found.any(axis=(0, 1, 2))) if found.any() else np.empty(0, np.int64)


def misread_codes(case: Case) -> Signature | None:
    """O matches codes decoded as another type, or without their zero point."""
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
    message = f"O matches the codes of {found[1]}"
    return Signature("misread_codes", message, "decode with the task's encoding", rank_of(found[0]), 1 - found[0])


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
