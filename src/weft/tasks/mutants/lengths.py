"""Wrong packed and paged attention: keys read from another place, or another number of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.layouts import offsets
from weft.attention.reference import Attended
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.numpy_attention import plain
from weft.tasks.task import Mutant

from .wrong import wrong


@dataclass(frozen=True)
class Reading:
    """Where a kernel reads its keys: rows of K and of V (n, hkv, d) by an index (b, skv), and how many it counts."""

    problem: AttentionProblem
    k_index: Array
    v_index: Array
    lq: Array
    lk: Array

    def attend(self) -> Attended:
        """Return attention of the keys that were read."""
        problem, shape = self.problem, self.problem.workload.shape
        mask = problem.contract.mask(shape, problem.causal, lengths=(self.lq, np.clip(self.lk, 0, shape.skv)))
        return plain(replace(problem, k=self.values("k"), v=self.values("v")), mask=mask)

    def values(self, name: str) -> Array:
        """Return K or V as numbers (b, hkv, skv, d)."""
        problem, rows = self.problem, self.rows(name)
        if name not in problem.contract.coded or problem.scales is None:
            return rows
        return problem.quantiser.decode(rows, problem.scales["qkv".index(name)])

    def rows(self, name: str) -> Array:
        """Return rows of K or V (b, hkv, skv, d), numbers or codes: 0 behind the end, the last row beyond the array."""
        contract, index = self.problem.contract, {"k": self.k_index, "v": self.v_index}[name]
        held = self.problem.arrays[contract.input_of(name)]
        held = held.reshape(-1, *held.shape[2:]) if contract.layout == "paged" else held
        rows = held[np.clip(index, 0, len(held) - 1)]
        rows[np.arange(index.shape[1]) >= self.lk[:, None]] = 0
        return np.ascontiguousarray(rows.swapaxes(1, 2))


def right_reading(problem: AttentionProblem) -> Reading:
    """Return the right places and lengths."""
    shape, contract, arrays = problem.workload.shape, problem.contract, problem.arrays
    lengths = contract.lengths(shape)
    assert lengths is not None
    keys = np.arange(shape.skv)
    if contract.layout == "varlen":
        index = offsets(lengths[1])[:-1, None] + keys
    else:
        index = arrays["block_table"][:, keys // contract.page] * contract.page + keys % contract.page
    return Reading(problem, index, index, *lengths)


def _read(name: str, what: str, change: Callable[[Reading], Reading], *, stage: str = "k") -> Mutant:
    return wrong(name, what, lambda problem: change(right_reading(problem)).attend(), stage=stage)


_count = partial(_read, stage="masked")


def _both(reading: Reading, index: Array) -> Reading:
    return replace(reading, k_index=index, v_index=index)


def _keys(reading: Reading) -> Array:
    return np.arange(reading.problem.workload.shape.skv)


def _packed_at(reading: Reading, starts: Array) -> Reading:
    return _both(reading, np.asarray(starts)[:, None] + _keys(reading))


def _paged_at(
    reading: Reading, table: Array, slot: Callable[[Array, int], Array] = lambda keys, page: keys % page
) -> Reading:
    page, keys = reading.problem.contract.page, _keys(reading)
    return _both(reading, table[:, np.minimum(keys // page, table.shape[1] - 1)] * page + slot(keys, page))


def _table(reading: Reading) -> Array:
    return reading.problem.arrays["block_table"]


def _by_heads(problem: AttentionProblem) -> Attended:
    """Pages are read as (heads, keys) instead of (keys, heads)."""
    caches = {name: problem.arrays[name] for name in map(problem.contract.input_of, "kv")}
    moved = {
        name: np.ascontiguousarray(x.reshape(len(x), x.shape[2], x.shape[1], x.shape[3]).swapaxes(1, 2))
        for name, x in caches.items()
    }
    return right_reading(replace(problem, arrays={**problem.arrays, **moved})).attend()


def _empty_nan(problem: AttentionProblem) -> Attended:
    o, lse = plain(problem)
    lengths = problem.contract.lengths(problem.workload.shape)
    assert lengths is not None
    return Attended(np.where((lengths[1] == 0)[:, None, None, None], o.dtype.type(np.nan), o), lse)


def _aligned_to_longest(problem: AttentionProblem) -> Attended:
    """The diagonal is aligned to the longest sequence, whatever a sequence's own length is."""
    shape, contract = problem.workload.shape, problem.contract
    lengths = contract.lengths(shape)
    assert lengths is not None
    most = np.full_like(lengths[0], shape.sq), np.full_like(lengths[1], shape.skv)
    mask = contract.mask(shape, problem.causal, lengths=most)
    inside = np.arange(shape.skv) < lengths[1][:, None, None, None]
    rows = np.arange(shape.sq)[:, None] < lengths[0][:, None, None, None]
    return plain(problem, mask=mask & inside & rows)


def _last_sequence_zero(problem: AttentionProblem) -> Attended:
    o, lse = plain(problem)
    o = o.copy()
    o[-1] = 0
    return Attended(o, lse)


LENGTH_MUTANTS = (
    _count("one_key_more", "one key behind the end counts", lambda r: replace(r, lk=r.lk + 1)),
    _count("one_key_less", "the last key is left out", lambda r: replace(r, lk=r.lk - 1)),
    _count("longest_for_all", "all sequences have the longest one's keys", lambda r: replace(
        r, lk=np.full_like(r.lk, r.lk.max()))),
    _count("first_length_for_all", "all sequences are as long as the shortest", lambda r: replace(
        r, lk=np.full_like(r.lk, r.lk[r.lk > 0].min()))),
    _count("length_of_neighbour", "the length of the next sequence", lambda r: replace(r, lk=np.roll(r.lk, -1))),
    _count("length_to_16", "lengths are rounded up to 16", lambda r: replace(r, lk=-(-r.lk // 16) * 16)),
    _count("length_down_to_16", "keys behind the last full 16 are left out", lambda r: replace(r, lk=r.lk // 16 * 16)),
    wrong("empty_sequence_nan", "NaN for a sequence without keys", _empty_nan, stage="o"),
    wrong("aligned_to_longest", "the causal diagonal belongs to the longest sequence", _aligned_to_longest,
          stage="masked"),
    wrong("last_sequence_zero", "the last sequence is not computed", _last_sequence_zero, stage="o"),
)  # fmt: skip

VARLEN_MUTANTS = (
    *LENGTH_MUTANTS,
    _read("offsets_ignored", "every sequence reads the first one's keys", lambda r: _packed_at(r, 0 * r.lk)),
    _read("padded_offsets", "sequences begin at multiples of the longest length", lambda r: _packed_at(
        r, np.arange(len(r.lk)) * r.lk.max())),
    _read("offsets_of_queries", "keys begin at the offsets of the queries", lambda r: _packed_at(
        r, offsets(r.lq)[:-1])),
    _read("offset_one_late", "keys begin one row late", lambda r: _packed_at(r, offsets(r.lk)[:-1] + 1)),
    _read("offset_one_early", "keys begin one row early", lambda r: _packed_at(r, offsets(r.lk)[:-1] - 1)),
    _read("offset_of_next", "keys begin at the next sequence", lambda r: _packed_at(r, offsets(r.lk)[1:])),
    _read("values_of_first", "V is read from the first sequence", lambda r: replace(
        r, v_index=np.broadcast_to(_keys(r), r.v_index.shape)), stage="v"),
)  # fmt: skip

PAGED_MUTANTS = (
    *LENGTH_MUTANTS,
    _read("table_ignored", "page j of a sequence is page j of the cache", lambda r: _paged_at(
        r, np.broadcast_to(np.arange(_table(r).shape[1]), _table(r).shape))),
    _read("table_of_first", "every sequence uses the first row of the table", lambda r: _paged_at(
        r, np.broadcast_to(_table(r)[:1], _table(r).shape))),
    _read("table_of_next", "the next sequence's row of the table", lambda r: _paged_at(
        r, np.roll(_table(r), -1, axis=0))),
    _read("first_page_only", "every page is the first one", lambda r: _paged_at(
        r, np.broadcast_to(_table(r)[:, :1], _table(r).shape))),
    _read("page_one_late", "page j + 1 of the table", lambda r: _paged_at(r, np.roll(_table(r), -1, axis=1))),
    _read("pages_reversed", "pages in reverse order", lambda r: _paged_at(r, _table(r)[:, ::-1])),
    _read("page_number_one_more", "the page after the table's", lambda r: _paged_at(r, _table(r) + 1)),
    _read("slots_reversed", "keys of a page in reverse order", lambda r: _paged_at(
        r, _table(r), lambda keys, page: page - 1 - keys % page)),
    _read("slot_one_late", "keys of a page are read one slot late", lambda r: _paged_at(
        r, _table(r), lambda keys, page: (keys + 1) % page)),
    _read("slot_is_0", "the first key of each page", lambda r: _paged_at(r, _table(r), lambda keys, page: 0 * keys)),
    _read("values_unpaged", "V is read without the table", lambda r: replace(
        r, v_index=np.broadcast_to(_keys(r), r.v_index.shape)), stage="v"),
    _read("keys_unpaged", "K is read without the table", lambda r: replace(
        r, k_index=np.broadcast_to(_keys(r), r.k_index.shape))),
    wrong("pages_by_heads", "a page is read as heads × keys", _by_heads, stage="k"),
)  # fmt: skip
