"""Right numbers in wrong places: transposed, shifted, swapped."""

from collections.abc import Iterator

import numpy as np

from weft.attention.dtypes import Array
from weft.core.records import Place
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Signature
from weft.diagnose.strays import index_of_load, row_of_access
from weft.diagnose.taps import Fact

from .evidence import EXPLAINED, best, has_fact, may_be, output_of, rank_of, remaining, score_unit
from .lines import layout_of, load_of, used

BLOCKS = (8, 16, 32, 64, 128)
SCORES = ("products", "scores", "masked")


def k_not_transposed(case: Case) -> Signature | None:
    """Q·K instead of Q·Kᵀ: K, or blocks of it, is read with rows and columns exchanged."""
    out = output_of(case)
    found, what = _scores_of_q_k(case), "the scores match"
    if found is None and out is not None and out.finite and may_be(case, "k", *SCORES):
        what = "O matches"
        found = best((out.left_over(out.attend(out.scores(k=k))), words) for k, words in _transposed(out.k))
    if found is None:
        return None
    seen = what != "O matches" or has_fact(case, "inner_mismatch", "mixed_keys")
    message = f"{what} Q·K, not Q·Kᵀ: K is {found[1]}"
    cure = "read element (d, n) of Kᵀ at K[n][d]: a column-major fragment of B, or transposed indices"
    rank = round(rank_of(found[0], seen=seen) + (0.02 if seen else 0.0), 3)
    place = layout_of(load_of(case, "K"), "row_major")
    return Signature("k_not_transposed", message, cure, rank, 1 - found[0], place=place, stage="scores")


def _scores_of_q_k(case: Case) -> tuple[float, str] | None:
    """The same by the scores, where they are observed."""
    first, problem = case.divergence, case.attention
    if first is None or problem is None or first.stage not in SCORES:
        return None
    k = np.repeat(problem.k.astype(np.float64), problem.workload.shape.group, axis=1)
    q, factor = problem.q.astype(np.float64), 1.0 if first.stage == "products" else score_unit(case)
    keys = slice(first.keys.start, first.keys.stop)
    use = first.observed & np.isfinite(first.actual) & np.isfinite(first.expected)
    if not (use & first.wrong).any():
        return None
    candidates = []
    for transposed, words in _transposed(k):
        s = q @ transposed[:, :, keys].swapaxes(2, 3) * factor
        candidates.append((remaining(first.actual[use], s[use], first.expected[use]), words))
    return best(candidates)


def _transposed(k: Array) -> Iterator[tuple[Array, str]]:
    b, h, skv, d = k.shape
    yield k.reshape(b, h, d, skv).swapaxes(2, 3), "read as [D][keys]"
    for size in BLOCKS:
        if d % size:
            continue
        padded = np.zeros((b, h, -(-skv // size) * size, d))
        padded[:, :, :skv] = k
        split = padded.reshape(b, h, -1, size, d // size, size).swapaxes(3, 5)
        yield split.reshape(padded.shape)[:, :, :skv], f"read transposed in blocks of {size} × {size}"


def mixed_rows(case: Case) -> Signature | None:
    """Values of two query rows are combined, and no stage before is wrong: an operand is in another row's place."""
    facts = case.taps.facts if case.taps is not None else ()
    fact = next((fact for fact in facts if fact.code == "mixed_rows"), None)
    earlier = fact is not None and _wrong_before(case, fact)
    strays = any(finding.code in ("M101", "M104") for finding in case.findings)  # then the index is the mistake
    if fact is None or fact.place is None or case.verdict.passed or earlier or strays:
        return None
    message = fact.message.split("; ")[0]
    cure = "check which row each lane and register of this operation holds: operands of one row belong together"
    place = _row_of_lanes(case) or fact.place
    return Signature("mixed_rows", message, cure, 0.93, place=place)


def _wrong_before(case: Case, mixed: Fact) -> bool:
    """Whether a stage before the output was observed to be wrong before the rows were combined."""
    first, taps = case.divergence, case.taps
    tap = taps.at(first.stage, first.tile) if first is not None and taps is not None else None
    if first is None or first.stage in ("o", "lse"):
        return False
    return tap is None or not 0 < mixed.event <= int(tap.event[first.index])


def _row_of_lanes(case: Case) -> Place | None:
    """Return the line that computes the rows of lanes: if no row of Q is complete, its lanes have different rows; if
    rows in shared memory are not read, lanes read wrong ones.
    """
    taps = case.taps
    if taps is None or case.attention is None:
        return None
    in_use, reads = used(taps, "q"), taps.reads["q"]
    rows = in_use.any(axis=3)
    if reads.any() and (taps.fetches["q"].any(axis=3) & ~rows).any():  # rows that arrive, and no lane reads
        return index_of_load(case, taps.events[int(reads.max())])
    if not rows.any() or in_use.all(axis=3).any():
        return None
    return row_of_access(case, taps.events[int(taps.fetches["q"].max())])


def v_transposed(case: Case) -> Signature | None:
    """V is read with rows and columns exchanged."""
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, "v", "u"):
        return None
    found = best((out.left_over(out.attend(out.scores(), v=v)), words) for v, words in _transposed(out.v))
    if found is None:
        return None
    words = found[1].replace("keys", "rows")
    message = f"O matches the right weights with V {words}"
    cure = "read V[n][d] row by row: P·V needs no transpose"
    return Signature("v_transposed", message, cure, rank_of(found[0]), 1 - found[0])


def rows_moved(case: Case) -> Signature | None:
    """Rows of O contain other rows' results: shifted, swapped, or another head's."""
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, "o"):
        return None
    b, h, s, d = out.o.shape
    wrong = np.flatnonzero(out.wrong.any(axis=3).ravel())
    if b * h * s < 2 or wrong.size < 2:
        return None
    o, right = out.o.reshape(-1, d), out.right.reshape(-1, d)
    chosen = wrong[np.unique(np.linspace(0, wrong.size - 1, 64).astype(int))]
    apart = np.linalg.norm(o[chosen, None] - right[None], axis=2)
    nearest = apart.argmin(axis=1)
    own, other = np.linalg.norm(o[chosen] - right[chosen], axis=1), apart.min(axis=1)
    spread = np.linalg.norm(np.delete(right, 0, 0) - right[:1], axis=1).min()
    if (other > EXPLAINED * own).any() or spread == 0 or np.unique(nearest).size < min(2, chosen.size):
        return None
    left = float(np.linalg.norm(other) / np.linalg.norm(own))
    heads, rows = np.divmod(chosen, s), np.divmod(nearest, s)
    if (heads[0] != rows[0]).all() and (heads[1] == rows[1]).all():
        pairs = ", ".join(
            f"{a} has head {b}'s" for a, b in sorted({*zip(heads[0].tolist(), rows[0].tolist(), strict=True)})[:4]
        )
        message = f"heads of O contain another head's result: head {pairs} (counted over the batch)"
        cure = "store each head at its own [b][h]"
        return Signature("heads_swapped", message, cure, rank_of(left), 1 - left)
    shift = np.unique((rows[1] - heads[1] + s // 2) % s - s // 2)
    form = f"row {heads[1][0]} has the result of row {rows[1][0]}, row {heads[1][-1]} of row {rows[1][-1]}"
    if shift.size == 1:
        by = abs(int(shift[0]))
        form = f"each row has the result of the row {by} {'after' if shift[0] > 0 else 'before'} it"
    message = f"O has right rows in wrong places: {form}; {wrong.size} of {b * h * s} rows"
    cure = "check the row index of the store: each row must be stored at its own index"
    return Signature("rows_moved", message, cure, rank_of(left), 1 - left)


def columns_moved(case: Case) -> Signature | None:
    """Columns of O contain other columns' results."""
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, "v", "u"):
        return None
    d = out.o.shape[3]
    o, right = out.o.reshape(-1, d).T, out.right.reshape(-1, d).T
    wrong = np.flatnonzero(out.wrong.reshape(-1, d).any(axis=0))
    if wrong.size < 2 or o.shape[1] < 2:
        return None
    apart = np.linalg.norm(o[wrong, None] - right[None], axis=2)
    nearest, own = apart.argmin(axis=1), np.linalg.norm(o[wrong] - right[wrong], axis=1)
    if (apart.min(axis=1) > EXPLAINED * own).any() or np.unique(nearest).size < 2:
        return None
    left = float(np.linalg.norm(apart.min(axis=1)) / np.linalg.norm(own))
    shift = np.unique((nearest - wrong) % d)
    form = (
        f"shifted by {int(shift[0])}" if shift.size == 1 else f"column {wrong[0]} has the result of column {nearest[0]}"
    )
    message = f"O has right columns in wrong places: {form}; columns {ranges(map(int, wrong))}"
    cure = "check the column index of V's load and of the store of O"
    return Signature("columns_moved", message, cure, rank_of(left), 1 - left)


def wrong_kv_head(case: Case) -> Signature | None:
    """A query head uses keys and values of another head, or of another batch entry."""
    out = output_of(case)
    if out is None or not out.finite:
        return None
    problem, (b, hq) = out.problem, out.o.shape[:2]
    hkv = problem.k.shape[1]
    heads = np.broadcast_to(np.arange(hq), (b, hq))
    entries, own = np.broadcast_to(np.arange(b)[:, None], (b, hq)), heads // (hq // hkv)
    maps = [
        (entries, heads % hkv, "head mod HKV"),
        (0 * entries, own, "the first batch entry"),
        (entries, 0 * own, "head 0"),
        (entries, (own + 1) % hkv, "the next head"),
        (entries, np.minimum(heads, hkv - 1), "the query head's number"),
    ]
    candidates = []
    for entry, head, words in maps:
        k, v = problem.k[entry, head].astype(np.float64), problem.v[entry, head].astype(np.float64)
        for tensors, s, values in (
            ("K and V", out.scores(k=k), v),
            ("K", out.scores(k=k), out.v),
            ("V", out.scores(), v),
        ):
            candidates.append((out.left_over(out.attend(s, v=values)), f"{tensors} of {words}"))
    found = best(candidates)
    if found is None:
        return None
    message = f"O matches {found[1]}"
    cure = "use key head h / (HQ / HKV) for query head h, in the same batch entry"
    stage = "v" if found[1].startswith("V") else "k"
    rank = rank_of(found[0], seen=has_fact(case, "head_mismatch"))
    return Signature("wrong_kv_head", message, cure, rank, 1 - found[0], stage=stage)
