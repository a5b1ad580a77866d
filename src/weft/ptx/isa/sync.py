"""Parallel synchronisation, communication and atomics (PTX ISA 9.7.13) and warp shuffles (9.7.9.6)."""

from functools import partial

from .facts import Access, Facts
from .form import Form, form

_CTA = partial(Facts, group="cta", result="executing", fences=True)
_bar = partial(form, "sync", _CTA(waits=True, aligned=True), "9.7.13.1")
_bar_arrive = partial(form, "sync", _CTA(aligned=True), "9.7.13.1")
_barrier = partial(form, "sync", _CTA(waits=True), "9.7.13.1")
_barrier_arrive = partial(form, "sync", _CTA(), "9.7.13.1")
_WARP_SYNC = Facts(group="warp", waits=True, result="executing", fences=True)
_fence = partial(form, "sync", Facts(fences=True), "9.7.13.4")
# Between proxies (generic, asynchronous, of tensor maps), and for initialised mbarriers. They order no accesses of the
# generic proxy, so the race checkers do not count them as fences.
_proxy = partial(form, "sync", Facts(target="sm_90"), "9.7.13.4")
_async_proxy = partial(form, "sync", Facts(fences_async=True, target="sm_90"), "9.7.13.4")
_map_release = partial(form, "sync", Facts(fences_map="release", target="sm_90"), "9.7.13.4")
_ACQUIRE = Facts(accesses=(Access("prefetch", "a", 0),), fences_map="acquire", target="sm_90")
_map_acquire = partial(form, "sync", _ACQUIRE, "9.7.13.4")
_UPDATE = (Access("atomic", "a", "type"),)
_atom = partial(form, "sync", Facts(result="lane", accesses=_UPDATE), "9.7.13.5")
_atom_sm_90 = partial(form, "sync", Facts(result="lane", accesses=_UPDATE, target="sm_90"), "9.7.13.5")
_red = partial(form, "sync", Facts(accesses=_UPDATE), "9.7.13.7")
_red_sm_90 = partial(form, "sync", Facts(accesses=_UPDATE, target="sm_90"), "9.7.13.7")
_together = partial(form, "sync", Facts(group="warp", result="members"))
_each = partial(form, "sync", Facts(group="warp", result="lane"))
_shuffle = partial(form, "sync", Facts(group="warp", result="lane", copies=("a",)))
_ATOM = {
    "order": "relaxed acquire release acq_rel",
    "scope": "cta cluster gpu sys",
    "space": "global shared shared::cta shared::cluster",
}
_OPS = {
    "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64", "exch": "b32 b64",
    "add": "u32 s32 u64 f32 f64", "inc": "u32", "dec": "u32",
    "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64",
}  # fmt: skip

ROWS: tuple[Form, ...] = (
    _bar("bar{.cta}.sync a:u32; b:u32"),
    _bar_arrive("bar{.cta}.arrive a:u32, b:u32"),
    # With four operands, c is the number of threads and e the predicate.
    _bar("bar{.cta}.red.popc.u32 d, a:u32, c:pred; e:pred"),
    _bar("bar{.cta}.red.op.pred d, a:u32, c:pred; e:pred", op="and or"),
    _barrier("barrier{.cta}.sync{.aligned} a:u32; b:u32"),
    _barrier_arrive("barrier{.cta}.arrive{.aligned} a:u32, b:u32"),
    _barrier("barrier{.cta}.red.popc{.aligned}.u32 d, a:u32, c:pred; e:pred"),
    _barrier("barrier{.cta}.red.op{.aligned}.pred d, a:u32, c:pred; e:pred", op="and or"),
    form("sync", _WARP_SYNC, "9.7.13.2", "bar.warp.sync mask:u32"),
    _fence("membar.level", level="cta gl sys"),
    _fence("fence{.order}.scope", order="sc acq_rel", scope="cta cluster gpu sys"),
    _proxy("fence.proxy.alias"),
    _async_proxy("fence.proxy.async"),
    _async_proxy("fence.proxy.async.space", space="shared::cta shared::cluster"),
    _proxy("fence.proxy.async.global"),
    _map_release("fence.proxy.tensormap::generic.release.scope", scope="cta cluster gpu sys"),
    _map_acquire("fence.proxy.tensormap::generic.acquire.scope [a], size:u32", scope="cta cluster gpu sys"),
    form("sync", Facts(fences_inits=True, target="sm_90"), "9.7.13.4", "fence.mbarrier_init.release.cluster"),
    *(_atom(f"atom{{.order}}{{.scope}}{{.space}}.{op}.type d, [a], b", type=types, **_ATOM)
      for op, types in _OPS.items()),
    _atom("atom{.order}{.scope}{.space}.cas.type d, [a], b, c", type="b16 b32 b64", **_ATOM),
    _atom("atom{.order}{.scope}{.space}.add.noftz.type d, [a], b", type="f16 f16x2", **_ATOM),
    _atom_sm_90("atom{.order}{.scope}{.space}.add.noftz.type d, [a], b", type="bf16 bf16x2", **_ATOM),
    *(_red(f"red{{.order}}{{.scope}}{{.space}}.{op}.type [a], b", type=types, **_ATOM)
      for op, types in _OPS.items() if op != "exch"),
    _red("red{.order}{.scope}{.space}.add.noftz.type [a], b", type="f16 f16x2", **_ATOM),
    _red_sm_90("red{.order}{.scope}{.space}.add.noftz.type [a], b", type="bf16 bf16x2", **_ATOM),
    _together("9.7.13.9", "vote.sync.mode.pred d, a:pred, mask:u32", mode="all any uni"),
    _together("9.7.13.9", "vote.sync.ballot.b32 d, a:pred, mask:u32"),
    _each("9.7.13.10", "match.any.sync.type d:b32, a, mask:u32", type="b32 b64"),
    _each("9.7.13.10", "match.all.sync.type d|p:b32, a, mask:u32", type="b32 b64"),
    form("sync", Facts(result="executing"), "9.7.13.11", "activemask.b32 d"),
    _together("9.7.13.12", "redux.sync.op.type d, a, mask:u32", op="add min max", type="u32 s32"),
    _together("9.7.13.12", "redux.sync.op.b32 d, a, mask:u32", op="and or xor"),
    form("sync", Facts(group="warp", result="lane", target="sm_90"), "9.7.13.14", "elect.sync d|p:b32, mask:u32"),
    _shuffle("9.7.9.6", "shfl.sync.mode.b32 d|p, a, b:u32, c:u32, mask:u32", mode="up down bfly idx"),
)  # fmt: skip
