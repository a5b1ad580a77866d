"""Comparison and selection, half precision included (PTX ISA 9.7.6 and 9.7.7)."""

from dataclasses import replace
from functools import partial

from .facts import Facts
from .form import Form, form

_COMPARES = Facts(compares=True, numbers=("a", "b"))
_select = partial(form, "compare", Facts(computes="select", copies=("a", "b")))
_by_sign = partial(form, "compare", Facts(copies=("a", "b")))
_BITS = "b16 b32 b64"
_UNSIGNED = "u16 u32 u64"
_SIGNED = "s16 s32 s64"
_EQUALITY = "eq ne"
_ORDER = f"{_EQUALITY} lt le gt ge"
_UNSIGNED_ORDER = f"{_ORDER} lo ls hi hs"
_FLUSHED = ("f32", "f16", "f16x2")
_FLOAT_ORDER = f"{_ORDER} equ neu ltu leu gtu geu num nan"


def _compare(section: str, name: str, result: str, ftz: str, **choices: str) -> tuple[Form, Form]:
    """Return the row without and the row with a boolean operator. `result`: type slot, blank, destination."""
    dtype, destination = result.split(" ")
    later = any("bf16" in choices.get(slot, "") for slot in ("type", "dtype"))
    compare = partial(form, "compare", replace(_COMPARES, target="sm_90" if later else "sm_80"))
    return (
        compare(section, f"{name}.cmp{ftz}{dtype}.type {destination}, a, b", **choices),
        compare(
            section,
            f"{name}.cmp.bool{ftz}{dtype}.type {destination}, a, b, c:pred",
            bool="and or xor",
            **choices,
        ),
    )


def _integers(name: str, section: str, result: str, **choices: str) -> tuple[Form, ...]:
    return (
        *_compare(section, name, result, "", cmp=_EQUALITY, type=_BITS, **choices),
        *_compare(section, name, result, "", cmp=_UNSIGNED_ORDER, type=_UNSIGNED, **choices),
        *_compare(section, name, result, "", cmp=_ORDER, type=_SIGNED, **choices),
    )


def _floats(name: str, section: str, result: str, types: str, **choices: str) -> tuple[Form, ...]:
    """Return rows per source type: only some can flush subnormals, and none does so into a bf16."""
    rows: list[Form] = []
    for source in types.split():
        ftz = "{.ftz}" if source in _FLUSHED and choices.get("dtype") != "bf16" else ""
        rows += _compare(section, name, result, ftz, cmp=_FLOAT_ORDER, type=source, **choices)
    return tuple(rows)


_SETP = " p|q:pred"
_SET = ".dtype d:dtype"
_MOVED = f"{_BITS} {_UNSIGNED} {_SIGNED} f32 f64"

ROWS: tuple[Form, ...] = (
    *_integers("set", "9.7.6.1", _SET, dtype="u32 s32 f32"),
    *_floats("set", "9.7.6.1", _SET, "f32 f64", dtype="u32 s32 f32"),
    *_integers("setp", "9.7.6.2", _SETP),
    *_floats("setp", "9.7.6.2", _SETP, "f32 f64"),
    _select("9.7.6.3", "selp.type d, a, b, c:pred", type=_MOVED),
    _by_sign("9.7.6.4", "slct.dtype.s32 d:dtype, a:dtype, b:dtype, c:s32", dtype=_MOVED),
    _by_sign("9.7.6.4", "slct{.ftz}.dtype.f32 d:dtype, a:dtype, b:dtype, c:f32", dtype=_MOVED),
    *_integers("set", "9.7.7.1", _SET, dtype="f16"),
    *_integers("set", "9.7.7.1", _SET, dtype="bf16"),
    *_floats("set", "9.7.7.1", _SET, "f32 f64 f16", dtype="f16"),
    *_floats("set", "9.7.7.1", _SET, "f32 f64 f16 bf16", dtype="bf16"),
    *_floats("set", "9.7.7.1", _SET, "f16 bf16", dtype="u16 s16 u32 s32"),
    *_floats("set", "9.7.7.1", _SET, "f16x2", dtype="f16x2 u32 s32"),
    *_floats("set", "9.7.7.1", _SET, "bf16x2", dtype="bf16x2 u32 s32"),
    *_floats("setp", "9.7.7.2", " p:pred", "f16 bf16"),
    *_floats("setp", "9.7.7.2", _SETP, "f16x2 bf16x2"),
)
