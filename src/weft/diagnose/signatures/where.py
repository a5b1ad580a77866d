"""Where the error is, if it is only in a part of O: tails, last columns, one head, every n-th row."""

from collections.abc import Iterator

import numpy as np

from weft.attention.dtypes import Array
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Signature

from .evidence import Bools, output_of

BLOCKS = (8, 16, 32, 64)


def part_of_output(case: Case) -> Signature | None:
    """Describe the part of O that is wrong: it names no cause, but where to look for one."""
    out = output_of(case)
    if out is None:
        return None
    for name, words, cure in _parts(out.wrong):
        message = f"{int(out.wrong.sum())} of {out.wrong.size} elements of O are wrong, all of them in {words}"
        return Signature(name, message, cure, 0.4)
    return None


def _parts(wrong: Bools) -> Iterator[tuple[str, str, str]]:
    heads, rows, columns = wrong.any(axis=(2, 3)), wrong.any(axis=(0, 1, 3)), wrong.any(axis=(0, 1, 2))
    sq, d = rows.size, columns.size
    if columns.sum() < d:
        at = np.flatnonzero(columns)
        if at[0] > 0 and at.size == d - at[0]:
            yield (
                "last_columns",
                f"the last {at.size} of {d} columns",
                "let the loop over D, and its store, reach the end",
            )
        yield (
            "some_columns",
            f"columns {ranges(map(int, at))}",
            "check code that only one lane runs, or that handles every n-th column",
        )
    if rows.sum() < sq:
        at = np.flatnonzero(rows)
        if at[0] > 0 and at.size == sq - at[0]:
            yield "tail_rows", f"the last {at.size} of {sq} rows", "guard the last tile of queries: its rows end at SQ"
        block = next((size for size in BLOCKS if size < sq and _last_rows(at, size)), None)
        if block is not None:
            yield "some_rows", f"the last row of each {block}", "check the last row of a tile, and the memory after it"
        yield "some_rows", f"rows {ranges(map(int, at))}", "check which warp, or which lane, computes these rows"
    if heads.sum() < heads.size:
        at = np.flatnonzero(heads.ravel())
        yield (
            "some_heads",
            f"heads {ranges(map(int, at))} (counted over the batch)",
            "check strides and scales per head",
        )


def _last_rows(at: Array, size: int) -> bool:
    return bool((at % size == size - 1).all())
