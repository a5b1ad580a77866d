"""Wrong windows, soft caps, sinks, lengths and pages: one change of a problem's contract, mask, logits or arrays."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from weft.attention.contract import Contract
from weft.attention.dtypes import Array
from weft.attention.logits import Logits
from weft.attention.merge import Partial
from weft.attention.reference import Attended
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.numpy_attention import finish, mask_of, online, per_query_head, plain, right_step, scores

from .wrong import wrong

Run = Callable[[AttentionProblem], Attended]


def _mask(problem: AttentionProblem, **changed: int | None) -> Attended:
    """Return attention with another window."""
    contract = replace(problem.contract, **changed)  # type: ignore[arg-type]
    return plain(problem, mask=contract.mask(problem.workload.shape, problem.causal))


def _window(change: Callable[[int, int | None], dict[str, int | None]]) -> Run:
    """Return a mutant from a change of the window's two sides."""
    return lambda problem: _mask(problem, **change(problem.contract.left or 0, problem.contract.right))


def _causal_right(problem: AttentionProblem, right: int | None) -> Attended:
    """Return attention that gives causal windows a right side."""
    if problem.causal is None:
        return plain(problem)
    shape, left = problem.workload.shape, problem.contract.left
    off = 0 if problem.causal == "bottom_right" else shape.sq - shape.skv
    return plain(problem, mask=Contract(left=left, right=right).mask(shape, None, off=off))


def _rounded_to_tiles(problem: AttentionProblem, *, first: bool) -> Attended:
    """Return attention whose window begins, or ends, at a tile of 32 keys instead of a key."""
    mask = mask_of(problem)
    shape = problem.workload.shape
    keys = np.arange(shape.skv)
    seen = mask.any(axis=-1, keepdims=True)
    begin, end = mask.argmax(axis=-1), shape.skv - mask[..., ::-1].argmax(axis=-1)
    begin = begin // 32 * 32 if first else begin
    end = end if first else -(-end // 32) * 32
    return plain(problem, mask=(keys >= begin[..., None]) & (keys < end[..., None]) & seen)


def _first_tile_always(problem: AttentionProblem) -> Attended:
    """Return attention whose loop starts at key 0 and masks only the diagonal's tile."""
    return plain(problem, mask=mask_of(problem) | (np.arange(problem.workload.shape.skv) < 4))


_of_mask = partial(wrong, stage="masked")

WINDOW_MUTANTS = (
    _of_mask("window_ignored", "no window", _window(lambda left, right: {"left": None, "right": None})),
    _of_mask("left_ignored", "the window has no left side", _window(lambda left, right: {"left": None})),
    _of_mask("left_short", "the window misses its first key", _window(lambda left, right: {"left": left - 1})),
    _of_mask(
        "left_long", "the window has one key too many on the left", _window(lambda left, right: {"left": left + 1})
    ),
    _of_mask("right_ignored", "the window has no right side", _window(lambda left, right: {"right": None})),
    _of_mask("right_long", "one key too many on the right", _window(lambda left, right: {"right": (right or 0) + 1})),
    _of_mask("right_short", "the window misses its last key", _window(lambda left, right: {"right": (right or 0) - 1})),
    _of_mask(
        "sides_exchanged", "left and right exchanged", _window(lambda left, right: {"left": right, "right": left})
    ),
    _of_mask("window_halved", "half of the window", _window(lambda left, right: {"left": left // 2})),
    _of_mask("causal_right", "a causal window has its right side", lambda p: _causal_right(p, p.contract.right)),
    _of_mask("window_from_tile", "the window begins at a tile", lambda p: _rounded_to_tiles(p, first=True)),
    _of_mask("window_to_tile", "the window ends at a tile", lambda p: _rounded_to_tiles(p, first=False)),
    _of_mask("first_keys_kept", "the first keys are always visible", _first_tile_always),
)


def _logits(problem: AttentionProblem, logits: Logits) -> Attended:
    """Return attention with other logits, on the same inputs."""
    changed = replace(problem)
    changed.__dict__["logits"] = logits
    return plain(changed)


def _capped(change: Callable[[float], float | None]) -> Run:
    def run(problem: AttentionProblem) -> Attended:
        logits = problem.logits
        return _logits(problem, replace(logits, soft_cap=change(logits.soft_cap or 1.0)))

    return run


def _of_scores(form: Callable[[Array, float], Array]) -> Run:
    """Return a mutant that caps scaled scores (given with the cap) in another form."""

    def run(problem: AttentionProblem) -> Attended:
        bare = replace(problem)
        bare.__dict__["logits"] = replace(problem.logits, soft_cap=None)
        return plain(problem, s=form(scores(bare), problem.logits.soft_cap or 1.0))

    return run


def _before_scale(problem: AttentionProblem) -> Attended:
    """The cap is applied to Q·Kᵀ, the scale after it."""
    d, cap = problem.workload.shape.d, problem.logits.soft_cap or 1.0
    bare = replace(problem)
    bare.__dict__["logits"] = replace(problem.logits, soft_cap=None)
    return plain(problem, s=cap * np.tanh(scores(bare, scale=1.0) / cap) / np.sqrt(d))


def _masked_then_capped(problem: AttentionProblem) -> Attended:
    """A masked score of -inf becomes -cap, which has a weight."""
    cap = problem.logits.soft_cap or 1.0
    s = np.where(mask_of(problem), scores(problem), -cap)
    return plain(problem, s=s, mask=np.ones_like(mask_of(problem)))


def _sinks(change: Callable[[AttentionProblem, Array], Array | None]) -> Run:
    def run(problem: AttentionProblem) -> Attended:
        sinks = problem.logits.sinks
        assert sinks is not None
        return _logits(problem, replace(problem.logits, sinks=change(problem, sinks)))

    return run


def _sink_in_lse_only(problem: AttentionProblem) -> Attended:
    without = _sinks(lambda _, sinks: None)(problem)
    return Attended(without.o, plain(problem).lse)


def _sink_not_in_lse(problem: AttentionProblem) -> Attended:
    return Attended(plain(problem).o, _sinks(lambda _, sinks: None)(problem).lse)


def _sink_per_tile(problem: AttentionProblem) -> Attended:
    """The sink is added once for every tile."""
    sinks = problem.logits.sinks
    assert sinks is not None

    def step(state: Partial, s: Array, v: Array) -> Partial:
        new = right_step(state, s, v)
        safe = np.where(np.isneginf(new.m), 0, new.m)
        return new._replace(l=new.l + np.exp(sinks[:, None] - safe))

    return online(problem, step=step)


def _sink_without_max(problem: AttentionProblem) -> Attended:
    """exp(sink) is added to l, not exp(sink - m)."""
    sinks = problem.logits.sinks
    assert sinks is not None
    s = np.where(mask_of(problem), scores(problem), -np.inf)
    m = s.max(axis=-1, keepdims=True)
    p = np.exp(s - np.where(np.isneginf(m), 0, m))
    l = p.sum(axis=-1, keepdims=True) + np.exp(sinks.astype(np.float64))[:, None, None]
    return finish(problem, p / l @ per_query_head(problem.v, problem).astype(np.float64), plain(problem).lse)


_of_cap, _of_sink = partial(wrong, stage="scores"), partial(wrong, stage="l")

LOGIT_MUTANTS = (
    _of_cap("cap_ignored", "no soft cap", _capped(lambda cap: None)),
    _of_cap("cap_twice", "the cap is twice as large", _capped(lambda cap: 2 * cap)),
    _of_cap("cap_098", "cap × 0.98", _capped(lambda cap: 0.98 * cap)),
    _of_cap("cap_not_multiplied", "tanh(s / cap) is not multiplied by the cap", _of_scores(
        lambda s, c: np.tanh(s / c))),
    _of_cap("cap_not_divided", "cap · tanh(s)", _of_scores(lambda s, cap: cap * np.tanh(s))),
    _of_cap("cap_clips", "scores are clipped at ±cap", _of_scores(lambda s, cap: np.clip(s, -cap, cap))),
    _of_cap("cap_one_side", "only positive scores are capped", _of_scores(
        lambda s, c: np.minimum(s, c * np.tanh(s / c)))),
    _of_cap("cap_twice_applied", "the cap is applied twice", _of_scores(
        lambda s, c: c * np.tanh(np.tanh(s / c)))),
    _of_cap("cap_before_scale", "the cap is applied before the scale", _before_scale),
    _of_cap("masked_then_capped", "the cap turns masked scores into -cap", _masked_then_capped),
    _of_sink("sink_ignored", "no sink", _sinks(lambda _, sinks: None)),
    _of_sink("sink_zero", "the sink is 0 for every head", _sinks(lambda _, sinks: 0 * sinks)),
    _of_sink("sink_of_head_0", "every head has the first head's sink", _sinks(lambda _, s: np.full_like(s, s[0]))),
    _of_sink("sink_of_kv_head", "the sink of the key head", _sinks(
        lambda p, s: s[np.arange(len(s)) // p.workload.shape.group])),
    _of_sink("sink_scaled", "the sink is multiplied by the scale", _sinks(
        lambda p, s: s / np.sqrt(p.workload.shape.d))),
    _of_sink("sink_negated", "the sign of the sink", _sinks(lambda _, s: -s)),
    _of_sink("sink_base_2", "the sink is taken for an exponent of 2", _sinks(lambda _, s: s * np.float32(np.log(2)))),
    _of_sink("sink_capped", "the sink is capped too", _sinks(
        lambda p, s: np.float32(p.logits.soft_cap or 1) / 8 * np.tanh(s * 8 / np.float32(p.logits.soft_cap or 1)))),
    _of_sink("sink_per_tile", "the sink counts once for every tile", _sink_per_tile),
    _of_sink("sink_without_max", "exp(sink) is added to l, not exp(sink - m)", _sink_without_max),
    _of_sink("sink_in_lse_only", "O is divided by l without the sink", _sink_in_lse_only),
    wrong("lse_without_sink", "LSE lacks the sink", _sink_not_in_lse, breaks="lse", stage="lse"),
)  # fmt: skip
