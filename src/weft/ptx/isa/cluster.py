"""Clusters: addresses of other CTAs (PTX ISA 9.7.9.23, 9.7.9.24), their barrier (9.7.13.3), asynchronous stores."""

from functools import partial

from .facts import Access, Facts
from .form import Form, form

_map = partial(form, "cluster", Facts(maps=True, result="lane", target="sm_90"), "9.7.9.23")
_rank = partial(form, "cluster", Facts(result="lane", target="sm_90"), "9.7.9.24")
_ARRIVES = Facts(group="cluster", order="release", result="lane", target="sm_90")
_WAITS = Facts(group="cluster", order="acquire", result="lane", target="sm_90")
_barrier = partial(form, "cluster", _WAITS, "9.7.13.3")
_BYTES = Access("atomic", "mbar", 8, only="shared", holds="bytes")
_SENDS = Facts(accesses=(Access("store", "a", "type", "b", only="shared"), _BYTES), target="sm_90")
_send = partial(form, "cluster", _SENDS, "9.7.9.12")
_COMBINES = Facts(accesses=(Access("atomic", "a", "type", only="shared"), _BYTES), target="sm_90")
_combine = partial(form, "cluster", _COMBINES, "9.7.13.8")
_OPS = {"and": "b32", "or": "b32", "xor": "b32", "inc": "u32", "dec": "u32", "add": "u32 s32 u64", "min": "u32 s32",
        "max": "u32 s32"}  # fmt: skip
_SIGNAL = "space.mbarrier::complete_tx::bytes"
_PEER = "shared::cluster"
_WORDS = "b32 b64 u32 u64 s32 s64 f32 f64"

OVER = _barrier("barrier.cluster.wait{.acquire}{.aligned} p:pred")
"""Not in the manual: it returns whether the phase is over (`passes/give_way.py`)."""

ROWS: tuple[Form, ...] = (
    _map("mapa{.space}.type d, a, rank:u32", space=_PEER, type="u32 u64"),
    _rank("getctarank{.space}.type d:u32, a", space=_PEER, type="u32 u64"),
    form("cluster", _ARRIVES, "9.7.13.3", "barrier.cluster.arrive{.order}{.aligned}", order="release relaxed"),
    _barrier("barrier.cluster.wait{.acquire}{.aligned}"),
    _send(f"st.async{{.weak}}.{_SIGNAL}{{.vec}}.type [a], *b, [mbar]", space=_PEER, vec="v2 v4", type=_WORDS),
    *(_combine(f"red.async{{.relaxed}}{{.cluster}}.{_SIGNAL}.{op}.type [a], b, [mbar]", space=_PEER, type=types)
      for op, types in _OPS.items()),
)  # fmt: skip
