"""Wrong offsets of whole arrays: K and V read from the rows of another head."""

import numpy as np

from weft.diagnose.nodes import Event
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Signature
from weft.diagnose.strays import base_line
from weft.diagnose.taps import Taps

from .evidence import Bools, has_fact
from .lines import load_of

ROWS = {
    "dense": "(b · HKV + h) · SKV + n",
    "varlen": "(cu_seqlens_k[b] + n) · HKV + h",
    "paged": "(block_table[b][n / PAGE] · PAGE + n % PAGE) · HKV + h",
}
"""Where a kernel's K and V have a row, by the layout."""


def wrong_base(case: Case) -> Signature | None:
    """The recorded CTAs load rows of K or V of other heads than those of their queries, and not all rows of these."""
    taps, problem = case.taps, case.staged
    q = taps.at("q") if taps is not None else None
    if taps is None or problem is None or q is None or case.verdict.passed:
        return None
    shape = problem.workload.shape
    queries = np.asarray(q.observed.any(axis=(2, 3)))
    heads = np.asarray(queries.reshape(shape.b, shape.hkv, shape.group).any(axis=2))
    loaded = {stage: np.asarray(taps.fetches[stage].any(axis=3)) for stage in ("k", "v")}
    faulty = [stage for stage, rows in loaded.items() if _is_misread(case, rows, heads)]
    if not faulty:
        return None
    stage, name = faulty[0], faulty[0].upper()
    right = {at.ptx_line for other in loaded if other not in faulty for at in _fetches(taps, other)}
    strange = np.nonzero(loaded[stage] & ~heads[:, :, None])[2]
    by_heads = not (loaded[stage] & heads[:, :, None]).any() and strange.min() == 0
    missing = np.unique(np.nonzero(heads[:, :, None] & ~loaded[stage])[2])
    message = (
        f"{name} is read from another head: rows {ranges(map(int, missing))} of head "
        f"{ranges(map(int, np.flatnonzero(heads)))} are not read for query head "
        f"{ranges(map(int, np.flatnonzero(queries)))} (counted over the batch)"
    )
    cure = f"row n of head h in batch entry b of {name} begins at ({ROWS[problem.contract.layout]}) · D"
    places = (base_line(case, at, right, heads=bool(by_heads)) for at in _fetches(taps, stage))
    place = next(filter(None, places), None) or load_of(case, name)
    return Signature("wrong_base", message, cure, 0.945, place=place, stage=stage)


def _is_misread(case: Case, loaded: Bools, heads: Bools) -> bool:
    """Whether rows of these heads are missing, and others are loaded or known to be used instead."""
    own = np.asarray(heads[:, :, None])
    instead = bool((loaded & ~own).any()) or has_fact(case, "head_mismatch")
    return instead and bool(loaded.any() and (own & ~loaded).any())


def _fetches(taps: Taps, stage: str) -> list[Event]:
    """Return who loads an input from global memory, the CTAs with the highest numbers first."""
    found = [taps.events[at] for at in np.unique(taps.fetches[stage]).tolist() if at]
    return sorted(found, key=lambda event: event.cta[::-1], reverse=True)
