"""Parallel synchronisation, communication and atomics (PTX ISA 9.7.13) and warp shuffles (9.7.9.6)."""

from functools import partial

from .form import Form, form

_f = partial(form, "sync")
_ATOM = {
    "order": "relaxed acquire release acq_rel",
    "scope": "cta cluster gpu sys",
    "space": "global shared shared::cta",
}
_OPS = {
    "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64", "exch": "b32 b64",
    "add": "u32 s32 u64 f32 f64", "inc": "u32", "dec": "u32",
    "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64",
}  # fmt: skip

ROWS: tuple[Form, ...] = (
    _f("9.7.13.1", "bar{.cta}.sync a:u32; b:u32"),
    _f("9.7.13.1", "bar{.cta}.arrive a:u32, b:u32"),
    # With four operands, c is the number of threads and e the predicate.
    _f("9.7.13.1", "bar{.cta}.red.popc.u32 d, a:u32, c:pred; e:pred"),
    _f("9.7.13.1", "bar{.cta}.red.op.pred d, a:u32, c:pred; e:pred", op="and or"),
    _f("9.7.13.1", "barrier{.cta}.sync{.aligned} a:u32; b:u32"),
    _f("9.7.13.1", "barrier{.cta}.arrive{.aligned} a:u32, b:u32"),
    _f("9.7.13.1", "barrier{.cta}.red.popc{.aligned}.u32 d, a:u32, c:pred; e:pred"),
    _f("9.7.13.1", "barrier{.cta}.red.op{.aligned}.pred d, a:u32, c:pred; e:pred", op="and or"),
    _f("9.7.13.2", "bar.warp.sync mask:u32"),
    _f("9.7.13.4", "membar.level", level="cta gl sys"),
    _f("9.7.13.4", "fence{.order}.scope", order="sc acq_rel", scope="cta cluster gpu sys"),
    *(_f("9.7.13.5", f"atom{{.order}}{{.scope}}{{.space}}.{op}.type d, [a], b", type=types, **_ATOM)
      for op, types in _OPS.items()),
    _f("9.7.13.5", "atom{.order}{.scope}{.space}.cas.type d, [a], b, c", type="b16 b32 b64", **_ATOM),
    _f("9.7.13.5", "atom{.order}{.scope}{.space}.add.noftz.type d, [a], b", type="f16 f16x2 bf16 bf16x2", **_ATOM),
    *(_f("9.7.13.7", f"red{{.order}}{{.scope}}{{.space}}.{op}.type [a], b", type=types, **_ATOM)
      for op, types in _OPS.items() if op != "exch"),
    _f("9.7.13.7", "red{.order}{.scope}{.space}.add.noftz.type [a], b", type="f16 f16x2 bf16 bf16x2", **_ATOM),
    _f("9.7.13.9", "vote.sync.mode.pred d, a:pred, mask:u32", mode="all any uni"),
    _f("9.7.13.9", "vote.sync.ballot.b32 d, a:pred, mask:u32"),
    _f("9.7.13.10", "match.any.sync.type d:b32, a, mask:u32", type="b32 b64"),
    _f("9.7.13.10", "match.all.sync.type d|p:b32, a, mask:u32", type="b32 b64"),
    _f("9.7.13.11", "activemask.b32 d"),
    _f("9.7.13.12", "redux.sync.op.type d, a, mask:u32", op="add min max", type="u32 s32"),
    _f("9.7.13.12", "redux.sync.op.b32 d, a, mask:u32", op="and or xor"),
    _f("9.7.9.6", "shfl.sync.mode.b32 d|p, a, b:u32, c:u32, mask:u32", mode="up down bfly idx"),
)  # fmt: skip
