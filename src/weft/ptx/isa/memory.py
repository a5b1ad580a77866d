"""Data movement: mov, ld, ldu, st, cvta, prefetch, asynchronous copies (PTX ISA 9.7.9)."""

from functools import partial

from .facts import COMPUTES, Access, Facts
from .form import Form, form

_f = partial(form, "memory", COMPUTES)
_ld = partial(form, "memory", Facts(accesses=(Access("load", "a", "type", "d"),)), "9.7.9.8")
_READ_ONLY = Facts(accesses=(Access("load", "a", "type", "d", only="global", read_only=True),))
_nc = partial(form, "memory", _READ_ONLY, "9.7.9.9")
_ldu = partial(form, "memory", _READ_ONLY, "9.7.9.10")
_st = partial(form, "memory", Facts(accesses=(Access("store", "a", "type", "b"),)), "9.7.9.11")
_COPY = Facts(
    accesses=(Access("store", "dst", "size", only="shared"), Access("load", "src", "size", only="global")),
    starts="cp.async",
)
_copy = partial(form, "memory", _COPY)
_settle = partial(form, "memory", Facts(settles="cp.async"))
_mov = partial(form, "memory", Facts(copies=("a",)))
_cvta = partial(form, "memory", Facts(converts=("a",)))
_prefetch = partial(form, "memory", Facts(accesses=(Access("prefetch", "a", 0),)))
_tensor_map = partial(form, "memory", Facts(accesses=(Access("prefetch", "a", 0),), target="sm_90"))
_INTS = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64"
_ALL = f"{_INTS} f16 f32 f64"
_SPACE = "const global local param shared shared::cta shared::cluster param::entry param::func"
_CACHE = {
    "cop": "ca cg cs lu cv",
    "evict": "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate",
    "prefetch": "L2::64B L2::128B L2::256B",
}
_ORDER = {"order": "relaxed acquire", "scope": "cta cluster gpu sys"}

GUESS = _ld("ld.order.scope{.space}.type *d, [a]", space=_SPACE, type=_ALL, **_ORDER)
"""In the manual it is `ld.relaxed`; here its value is what a compare-and-swap expects (`passes/relax_guesses.py`)."""

ROWS: tuple[Form, ...] = (
    _mov("9.7.9.3", "mov.type *d, *a", type="pred b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"),
    _ld("ld{.weak}{.space}{.cop}{.evict}{.prefetch}{.vec}.type *d, [a]; cache:b64", space=_SPACE, vec="v2 v4",
       type=_ALL, **_CACHE),
    _ld("ld{.weak}{.space}{.evict}{.L2::cache_hint}{.prefetch}{.vec}.type *d, [a], cache:b64", space=_SPACE,
       vec="v2 v4", type=_ALL, evict=_CACHE["evict"], prefetch=_CACHE["prefetch"]),
    _ld("ld.volatile{.space}{.vec}.type *d, [a]", space=_SPACE, vec="v2 v4", type=_ALL),
    _ld("ld.order.scope{.space}{.evict}{.prefetch}{.vec}.type *d, [a]", space=_SPACE, vec="v2 v4", type=_ALL,
       evict=_CACHE["evict"], prefetch=_CACHE["prefetch"], **_ORDER),
    _nc("ld.global{.cop}.nc{.evict}{.L2::cache_hint}{.prefetch}{.vec}.type *d, [a]; cache:b64", vec="v2 v4",
       type=_ALL, cop="ca cg cs", evict=_CACHE["evict"], prefetch=_CACHE["prefetch"]),
    # Its address must be the same in all lanes of a warp; lanes with different addresses load each their own.
    _ldu("ldu{.space}{.vec}.type *d, [a]", space="global", vec="v2 v4", type=f"{_INTS} f32 f64"),
    _st("st{.weak}{.space}{.cop}{.evict}{.L2::cache_hint}{.vec}.type [a], *b; cache:b64", space=_SPACE,
       vec="v2 v4", type=_ALL, cop="wb cg cs wt", evict=_CACHE["evict"]),
    _st("st.volatile{.space}{.vec}.type [a], *b", space=_SPACE, vec="v2 v4", type=_ALL),
    _st("st.order.scope{.space}{.evict}{.vec}.type [a], *b", space=_SPACE, vec="v2 v4", type=_ALL,
       order="relaxed release", scope=_ORDER["scope"], evict=_CACHE["evict"]),
    _prefetch("9.7.9.17", "prefetch{.space}.level [a]", space="global local", level="L1 L2"),
    # Names a tensor map; a prefetch of it has no effect that a program can see.
    _tensor_map("9.7.9.17", "prefetch{.space}.tensormap [a]", space="const param"),
    _cvta("9.7.9.20", "cvta.space.type d, a", space="const global local shared param", type="u32 u64"),
    _cvta("9.7.9.20", "cvta.to.space.type d, a", space="const global local shared param", type="u32 u64"),
    _f("9.7.9.19", "isspacep.space d:pred, a:b64", space="const global local shared param"),
    # A cache policy is opaque; caches change no value here, so it is 0.
    _f("9.7.9.18", "createpolicy.fractional.primary{.secondary}.b64 d; fraction:f32",
       primary="L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged",
       secondary="L2::evict_first L2::evict_unchanged"),
    _copy("9.7.9.25.3.1", "cp.async.cop.space.global{.prefetch} [dst], [src], size:u32; extra:u32", cop="ca cg",
       space="shared shared::cta", prefetch=_CACHE["prefetch"]),
    _copy("9.7.9.25.3.1",
       "cp.async.cop.space.global.L2::cache_hint{.prefetch} [dst], [src], size:u32, extra:b64; cache:b64",
       cop="ca cg", space="shared shared::cta", prefetch=_CACHE["prefetch"]),
    _settle("9.7.9.25.3.2", "cp.async.commit_group"),
    _settle("9.7.9.25.3.3", "cp.async.wait_group count:u32"),
    _settle("9.7.9.25.3.3", "cp.async.wait_all"),
)  # fmt: skip
