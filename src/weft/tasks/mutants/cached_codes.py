"""Wrong attention over a cache of codes: a scale of another head or place, bytes read as something else."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np

from weft.attention.dtypes import Array, rounded
from weft.attention.quantise import E4M3_MAX, E4M3PerHead
from weft.attention.reference import Attended, default_scale
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.numpy_attention import per_query_head, plain, scores
from weft.tasks.task import Mutant

from .lengths import right_reading
from .quantised import CODE_MUTANTS, codes_of, read_as, rescaled, scale_of, with_scales, with_values
from .wrong import wrong

Run = Callable[[AttentionProblem], Attended]


def _scales(change: Callable[[AttentionProblem, Array], Array], names: str = "kv") -> Run:
    """Return a mutant with other scales, given those of K or V (b, hkv)."""
    return lambda problem: with_scales(problem, partial(change, problem), names)


def _read_as(value: Callable[[Array], Array], names: str = "kv") -> Run:
    """Return a mutant that makes other numbers of the codes of K or V."""
    return lambda problem: read_as(problem, value, names)


def _e5m2(codes: Array) -> Array:
    return codes.view(ml_dtypes.float8_e5m2)


def _e4m3(codes: Array) -> Array:
    return codes.view(ml_dtypes.float8_e4m3fn)


def _moved(codes: Array, order: tuple[int, ...]) -> Array:
    """Return E4M3 numbers whose columns are in another order within each group."""
    groups = codes.reshape(*codes.shape[:-1], -1, len(order))
    return _e4m3(np.ascontiguousarray(groups[..., list(order)]).reshape(codes.shape))


def _of_query_head(names: str) -> Run:
    """Return a mutant in which the scale of query head h is that of key head h % HKV."""

    def run(problem: AttentionProblem) -> Attended:
        right = np.arange(problem.workload.shape.hq) // problem.workload.shape.group
        heads = np.arange(problem.workload.shape.hq) % problem.workload.shape.hkv
        k, v = (
            per_query_head(_e4m3(codes_of(problem, x)).astype(np.float64), problem)
            * scale_of(problem, x)[:, heads if x in names else right, None, None]
            for x in "kv"
        )
        return plain(problem, s=scores(problem, k=k), v=v)

    return run


def _first_head(_: AttentionProblem, scale: Array) -> Array:
    return np.broadcast_to(scale[:, :1], scale.shape)


def _half_of_keys(problem: AttentionProblem) -> Attended:
    """The first of two splits leaves V's scale out."""
    early = np.arange(problem.workload.shape.skv) < problem.workload.shape.skv // 2
    factor = np.where(early, 1.0, scale_of(problem, "v")[..., None])[..., None]
    return with_values(problem, v=_e4m3(codes_of(problem, "v")).astype(np.float64) * factor)


def _k_scale_twice(problem: AttentionProblem) -> Attended:
    """K's scale is in the decoded numbers and in the softmax scale."""
    k = per_query_head(problem.k.astype(np.float64) * scale_of(problem, "k")[..., None, None], problem)
    return plain(problem, s=scores(problem, k=k))


def _only_softmax_scale(problem: AttentionProblem) -> Attended:
    """K's scale replaces 1/√D, with which it should be multiplied."""
    return plain(problem, s=scores(problem) / default_scale(problem.workload.shape.d))


def _one_cache(name: str) -> Run:
    """Return a mutant that reads K and V from one cache, each with its own scale."""

    return lambda problem: read_as(problem, lambda _: _e4m3(codes_of(problem, name)))


def _rows_of_two_bytes(problem: AttentionProblem) -> Attended:
    """Rows are as far apart as numbers of 16 bits would be."""
    right = right_reading(problem)
    return replace(right, k_index=right.k_index * 2, v_index=right.v_index * 2).attend()


def _garbage_without_weight(problem: AttentionProblem) -> Attended:
    """V's page is read to its end, and multiplied by weights of 0."""
    page, right = problem.contract.page, right_reading(problem)
    return with_values(problem, v=replace(right, lk=-(-right.lk // page) * page).values("v"))


def _q_in_e4m3(problem: AttentionProblem) -> Attended:
    return with_values(problem, q=E4M3PerHead().decode(*E4M3PerHead().encode(problem.q.astype(np.float32))))


def _lse(change: Callable[[AttentionProblem, Array], Array]) -> Run:
    """Return a mutant with another LSE, given the right one (b, hq, sq)."""

    def run(problem: AttentionProblem) -> Attended:
        o, lse = plain(problem)
        return Attended(o, change(problem, lse).astype(np.float32))

    return run


def _of_k(name: str, what: str, run: Run) -> Mutant:
    return wrong(name, what, run, stage="k")


def _of_v(name: str, what: str, run: Run) -> Mutant:
    return wrong(name, what, run, stage="v")


_DECODES_V = ("v_scale_forgotten", "v_scale_twice", "k_scale_for_v", "table_end_wrong", "v_in_4_bits")

CACHED_CODE_MUTANTS = (
    *(replace(each, stage="v" if each.name in _DECODES_V else "k") for each in CODE_MUTANTS),
    _of_k("scales_exchanged", "the scales of K and V are exchanged", lambda p: rescaled(
        p, k=scale_of(p, "v"), v=scale_of(p, "k"))),
    _of_k("v_scale_for_k", "the scale of V is used for K", lambda p: rescaled(p, k=scale_of(p, "v"))),
    _of_k("scale_of_next_head", "the next head's scales", _scales(lambda _, s: np.roll(s, -1, axis=1))),
    _of_k("k_scale_of_head_0", "every head uses the first head's scale of K", _scales(_first_head, "k")),
    _of_v("v_scale_of_head_0", "every head uses the first head's scale of V", _scales(_first_head, "v")),
    _of_k("scale_of_query_head", "the scales of head h % HKV, not h / group", _of_query_head("kv")),
    _of_k("k_scale_of_query_head", "the scale of K is that of head h % HKV, not h / group", _of_query_head("k")),
    _of_v("v_scale_of_query_head", "the scale of V is that of head h % HKV, not h / group", _of_query_head("v")),
    _of_k("scale_of_sequence", "sequence b has the scales of head b", _scales(
        lambda p, s: np.broadcast_to(s[:, np.arange(len(s)) % s.shape[1]].diagonal()[:, None], s.shape))),
    _of_k("scales_inverted", "codes are divided by the scales", _scales(lambda _, s: 1 / s)),
    _of_k("scale_of_448", "the scales are divided by 448 again", _scales(lambda _, s: s / E4M3_MAX)),
    _of_k("scale_is_largest", "the scales are taken for the largest magnitudes", _scales(lambda _, s: s * E4M3_MAX)),
    _of_k("k_scale_in_bf16", "the scale of K is rounded to bf16", _scales(lambda _, s: rounded(s, "bf16"), "k")),
    _of_v("v_scale_in_bf16", "the scale of V is rounded to bf16", _scales(lambda _, s: rounded(s, "bf16"), "v")),
    _of_k("k_scale_twice", "the scale of K is applied twice", _k_scale_twice),
    _of_k("only_k_scale", "the scale of K replaces 1/√D", _only_softmax_scale),
    _of_v("v_scale_in_one_split", "the scale of V is left out in the first of two splits", _half_of_keys),
    _of_k("k_in_e5m2", "codes of K read as E5M2 bits", _read_as(_e5m2, "k")),
    _of_v("v_in_e5m2", "codes of V read as E5M2 bits", _read_as(_e5m2, "v")),
    _of_k("codes_as_integers", "codes read as integers 0 to 255", _read_as(lambda codes: codes)),
    _of_k("codes_as_signed_integers", "codes read as integers -128 to 127", _read_as(lambda c: c.view(np.int8))),
    _of_k("minus_zero_nan", "code 0x80 is NaN, as in E4M3FNUZ", _read_as(
        lambda codes: np.where(codes == 0x80, np.nan, _e4m3(codes).astype(np.float64)))),
    _of_k("largest_nan", "codes of ±448 are NaN", _read_as(
        lambda codes: np.where(codes & 0x7F == 0x7E, np.nan, _e4m3(codes).astype(np.float64)))),
    _of_k("pairs_of_k_exchanged", "two neighbouring columns of K are exchanged", _read_as(
        lambda codes: _moved(codes, (1, 0)), "k")),
    _of_v("pairs_of_v_exchanged", "two neighbouring columns of V are exchanged", _read_as(
        lambda codes: _moved(codes, (1, 0)), "v")),
    _of_v("words_reversed", "the four bytes of a word of V are reversed", _read_as(
        lambda codes: _moved(codes, (3, 2, 1, 0)), "v")),
    _of_k("rows_of_two_bytes", "rows of the caches are D numbers of 16 bits apart", _rows_of_two_bytes),
    _of_v("v_from_k_cache", "V is read from the cache of K", _one_cache("k")),
    _of_k("k_from_v_cache", "K is read from the cache of V", _one_cache("v")),
    _of_v("garbage_without_weight", "V behind the end is multiplied by 0, and NaN stays", _garbage_without_weight),
    wrong("q_in_e4m3", "Q is rounded to E4M3 too", _q_in_e4m3, stage="q"),
    wrong("lse_without_k_scale", "the LSE lacks the scale of K", _lse(lambda p, _: rescaled(
        p, k=np.ones_like(scale_of(p, "k"))).lse), breaks="lse", stage="lse"),
    wrong("lse_with_v_scale", "the scale of V is in l", _lse(lambda p, lse: lse - np.log(per_query_head(
        scale_of(p, "v"), p))[..., None]), breaks="lse", stage="lse"),
)  # fmt: skip
