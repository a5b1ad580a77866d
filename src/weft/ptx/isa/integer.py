"""Integer arithmetic, with and without carry (PTX ISA 9.7.1 and 9.7.2)."""

from functools import partial

from .facts import Facts
from .form import Form, form

_f = partial(form, "integer", Facts(computes="integer"))
_sm_90 = partial(form, "integer", Facts(computes="integer", target="sm_90"))
_carried = partial(form, "integer", Facts(computes="integer", reads_carry=True))
_extract = partial(form, "integer", Facts(computes="extract", converts=("a",)))
_insert = partial(form, "integer", Facts(computes="insert"))
_ALL = "u16 u32 u64 s16 s32 s64"
_WORDS = "u32 s32 u64 s64"
_SIGNED = "s16 s32 s64"
_NARROW = "u16 u32 s16 s32"
_DOT = {"atype": "u32 s32", "btype": "u32 s32"}

ROWS: tuple[Form, ...] = (
    _f("9.7.1.1", "add.type d, a, b", type=_ALL),
    _sm_90("9.7.1.1", "add.type d, a, b", type="u16x2 s16x2"),
    _f("9.7.1.1", "add.sat.s32 d, a, b"),
    _f("9.7.1.2", "sub.type d, a, b", type=_ALL),
    _f("9.7.1.2", "sub.sat.s32 d, a, b"),
    _f("9.7.1.3", "mul.mode.type d, a, b", mode="lo hi", type=_ALL),
    _f("9.7.1.3", "mul.wide.type d:wide, a, b", type=_NARROW),
    _f("9.7.1.4", "mad.mode.type d, a, b, c", mode="lo hi", type=_ALL),
    _f("9.7.1.4", "mad.wide.type d:wide, a, b, c:wide", type=_NARROW),
    _f("9.7.1.4", "mad.hi.sat.s32 d, a, b, c"),
    _f("9.7.1.5", "mul24.mode.type d, a, b", mode="lo hi", type="u32 s32"),
    _f("9.7.1.6", "mad24.mode.type d, a, b, c", mode="lo hi", type="u32 s32"),
    _f("9.7.1.6", "mad24.hi.sat.s32 d, a, b, c"),
    _f("9.7.1.7", "sad.type d, a, b, c", type=_ALL),
    _f("9.7.1.8", "div.type d, a, b", type=_ALL),
    _f("9.7.1.9", "rem.type d, a, b", type=_ALL),
    _f("9.7.1.10", "abs.type d, a", type=_SIGNED),
    _f("9.7.1.11", "neg.type d, a", type=_SIGNED),
    _f("9.7.1.12", "min.type d, a, b", type=_ALL),
    _sm_90("9.7.1.12", "min.type d, a, b", type="u16x2 s16x2"),
    _sm_90("9.7.1.12", "min.relu.type d, a, b", type="s32 s16x2"),
    _sm_90("9.7.1.12", "min.type.relu d, a, b", type="s32 s16x2"),
    _f("9.7.1.13", "max.type d, a, b", type=_ALL),
    _sm_90("9.7.1.13", "max.type d, a, b", type="u16x2 s16x2"),
    _sm_90("9.7.1.13", "max.relu.type d, a, b", type="s32 s16x2"),
    _sm_90("9.7.1.13", "max.type.relu d, a, b", type="s32 s16x2"),
    _f("9.7.1.14", "popc.type d:u32, a", type="b32 b64"),
    _f("9.7.1.15", "clz.type d:u32, a", type="b32 b64"),
    _f("9.7.1.16", "bfind{.shiftamt}.type d:u32, a", type=_WORDS),
    _f("9.7.1.18", "brev.type d, a", type="b32 b64"),
    _extract("9.7.1.19", "bfe.type d, a, b:u32, c:u32", type=_WORDS),
    # The manual calls the destination f and the length d; here only destinations start with d.
    _insert("9.7.1.20", "bfi.type d, a, b, c:u32, e:u32", type="b32 b64"),
    _f("9.7.1.21", "szext.mode.type d, a, b:u32", mode="clamp wrap", type="u32 s32"),
    _f("9.7.1.22", "bmsk.mode.b32 d, a:u32, b:u32", mode="clamp wrap"),
    _f("9.7.1.23", "dp4a.atype.btype d:b32, a:atype, b:btype, c:b32", **_DOT),
    _f("9.7.1.24", "dp2a.mode.atype.btype d:b32, a:atype, b:btype, c:b32", mode="lo hi", **_DOT),
    _f("9.7.2.1", "add.cc.type d, a, b", type=_WORDS),
    _carried("9.7.2.2", "addc{.cc}.type d, a, b", type=_WORDS),
    _f("9.7.2.3", "sub.cc.type d, a, b", type=_WORDS),
    _carried("9.7.2.4", "subc{.cc}.type d, a, b", type=_WORDS),
    _f("9.7.2.5", "mad.mode.cc.type d, a, b, c", mode="lo hi", type=_WORDS),
    _carried("9.7.2.6", "madc.mode{.cc}.type d, a, b, c", mode="lo hi", type=_WORDS),
)
