"""Wrong scores of quantised Q and K."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.quantise import QUANTISERS
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.numpy_attention import per_query_head, scores
from weft.tasks.task import Mutant, Outputs


def _keys(problem: AttentionProblem) -> Array:
    return per_query_head(problem.k, problem)


def k_not_transposed(problem: AttentionProblem) -> Array:
    b, h, skv, d = _keys(problem).shape
    return scores(problem, k=_keys(problem).reshape(b, h, d, skv).swapaxes(2, 3))


def half_d(problem: AttentionProblem) -> Array:
    half = problem.workload.shape.d // 2
    return scores(problem, q=problem.q[..., :half], k=_keys(problem)[..., :half])


def last_channel(problem: AttentionProblem) -> Array:
    return scores(problem, q=problem.q[..., :-1], k=_keys(problem)[..., :-1])


def lane_owns_row(problem: AttentionProblem) -> Array:
    """Give each lane a separate row before the reduction, which then adds up 32 different scores."""
    s = scores(problem)
    whole = np.pad(s, [(0, 0), (0, 0), (0, -s.shape[2] % 32), (0, 0)])
    b, h, rows, n = whole.shape
    sums = whole.reshape(b, h, rows // 32, 32, n).sum(axis=3).repeat(32, axis=2)
    return np.asarray(sums[:, :, : s.shape[2]])


def gqa_interleaved(problem: AttentionProblem) -> Array:
    shape = problem.workload.shape
    return scores(problem, k=problem.k[:, np.arange(shape.hq) % shape.hkv])


def batch_0_keys(problem: AttentionProblem) -> Array:
    k = np.broadcast_to(problem.k[:1], problem.k.shape)
    return scores(problem, k=per_query_head(k, problem))


def head_0_scale(problem: AttentionProblem) -> Array:
    scale = problem.arrays["q_scale"]
    first = np.broadcast_to(scale[:, :1], scale.shape)
    return scores(problem, q=problem.quantiser.decode(problem.arrays["q_code"], first))


def other_encoding(problem: AttentionProblem) -> Array:
    other = QUANTISERS["e4m3" if problem.workload.encoding == "sim_fp8" else "sim_fp8"]
    return scores(problem, q=other.decode(problem.arrays["q_code"], problem.arrays["q_scale"]))


def half_lsb(problem: AttentionProblem) -> Array:
    """Add half a step of bias to linear codes; for E4M3, to the last bit of the code."""
    scale = problem.arrays["q_scale"].astype(np.float64)[..., None, None]
    if problem.workload.encoding == "sim_fp8":
        return scores(problem, q=problem.q + 0.5 * 448 / 127 * scale)
    return scores(problem, q=problem.q * (1 + 2.0**-5))


def _row(name: str, what: str, run: Callable[[AttentionProblem], Array]) -> Mutant:
    def outputs(problem: AttentionProblem) -> Outputs:
        return {"s": run(problem).astype(np.float32)}

    return Mutant(name, what, outputs)


SCORE_MUTANTS = (
    _row("zeros", "S is all zeros", lambda problem: 0 * scores(problem)),
    _row("nan", "S is all NaN", lambda problem: np.nan * scores(problem)),
    _row("no_scale", "no 1/sqrt(D)", lambda problem: scores(problem, scale=1.0)),
    _row("scale_twice", "1/sqrt(D) applied twice", lambda problem: scores(problem, scale=1 / problem.q.shape[-1])),
    _row("scale_098", "scale × 0.98", lambda problem: 0.98 * scores(problem)),
    _row("k_not_transposed", "Q·K instead of Q·Kᵀ", k_not_transposed),
    _row("half_d", "half of D is left out", half_d),
    _row("last_channel", "the last channel is left out", last_channel),
    _row("lane_owns_row", "32 rows are added up", lane_owns_row),
    _row("gqa_interleaved", "KV head is head mod Hkv, not head / group", gqa_interleaved),
    _row("batch_0_keys", "K of the first batch entry", batch_0_keys),
    _row("head_0_scale", "every head uses the first head's scale of Q", head_0_scale),
    _row("other_encoding", "Q's linear codes read as E4M3 bits, or the other way round", other_encoding),
    _row("half_lsb", "half a step of bias in Q", half_lsb),
    _row("rows_shifted", "each row holds its neighbour's scores", lambda problem: np.roll(scores(problem), 1, axis=2)),
)


def _in_float32(problem: AttentionProblem) -> Array:
    q, k = problem.q.astype(np.float32), _keys(problem).astype(np.float32)
    return np.asarray(q @ k.swapaxes(2, 3) * np.float32(1 / np.sqrt(q.shape[-1])))


def _halves(problem: AttentionProblem) -> Array:
    """Summed as two halves of D in float32."""
    half = problem.workload.shape.d // 2
    parts = [
        _in_float32(replace(problem, q=problem.q[..., part], k=problem.k[..., part]))
        * np.float32(np.sqrt(len(range(*part.indices(problem.workload.shape.d))) / problem.workload.shape.d))
        for part in (slice(0, half), slice(half, None))
    ]
    return np.asarray(parts[0] + parts[1])


RIGHT_SCORES: Mapping[str, Callable[[AttentionProblem], Outputs]] = {
    "float64": lambda problem: {"s": scores(problem).astype(np.float32)},
    "float32": lambda problem: {"s": _in_float32(problem)},
    "halves": lambda problem: {"s": _halves(problem)},
}
"""Right implementations: a gate that rejects one of them is wrong."""
