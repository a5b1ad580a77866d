"""Conversions: cvt and cvt.pack (PTX ISA 9.7.9.21, 9.7.9.22)."""

from dataclasses import replace
from functools import partial

from .facts import Facts
from .form import Form, form

_CONVERTS = Facts(converts=("a",), numbers=("a", "b"))
_f = partial(form, "convert", _CONVERTS)
_cvt = partial(_f, "9.7.9.21")
_sm_89 = partial(form, "convert", replace(_CONVERTS, target="sm_89"), "9.7.9.21")
_sm_90 = partial(form, "convert", replace(_CONVERTS, target="sm_90"), "9.7.9.21")
# Conversions of an f32 that keep bits of a NaN.
_keeps = partial(form, "convert", Facts(converts=("a",)), "9.7.9.21")
_keeps_sm_90 = partial(form, "convert", Facts(converts=("a",), target="sm_90"), "9.7.9.21")
_sm_100 = partial(form, "convert", replace(_CONVERTS, target="sm_100"), "9.7.9.21")
_small = partial(form, "convert", replace(_CONVERTS, target="sm_100a+"), "9.7.9.21")
_keeps_sm_100 = partial(form, "convert", Facts(converts=("a",), target="sm_100"), "9.7.9.21")
_INTS = "u8 u16 u32 u64 s8 s16 s32 s64"
_RND = "rn rz rm rp"
_INTEGRAL = "rni rzi rmi rpi"
_SMALL = "e3m2x2 e2m3x2 e2m1x2"

ROWS: tuple[Form, ...] = (
    _cvt("cvt{.sat}.dtype.atype d:dtype, a:atype", dtype=_INTS, atype=_INTS),
    # Float to integer; .sat changes nothing, because the result is always clamped.
    _cvt("cvt.irnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype", irnd=_INTEGRAL, dtype=_INTS, atype="f32"),
    _cvt("cvt.irnd{.sat}.dtype.atype d:dtype, a:atype", irnd=_INTEGRAL, dtype=_INTS, atype="f16 f64"),
    _sm_90("cvt.irnd{.sat}.dtype.atype d:dtype, a:atype", irnd=_INTEGRAL, dtype=_INTS, atype="bf16"),
    # Integer to float.
    _cvt("cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype", rnd=_RND, dtype="f32", atype=_INTS),
    _cvt("cvt.rnd{.sat}.dtype.atype d:dtype, a:atype", rnd=_RND, dtype="f16 f64", atype=_INTS),
    _sm_90("cvt.rnd{.sat}.dtype.atype d:dtype, a:atype", rnd=_RND, dtype="bf16", atype=_INTS),
    # Float to a wider float.
    _cvt("cvt{.ftz}{.sat}.dtype.atype d:dtype, a:atype", dtype="f32", atype="f16"),
    _cvt("cvt.dtype.atype d:dtype, a:atype", dtype="f32", atype="bf16"),
    _sm_90("cvt{.ftz}{.sat}.dtype.atype d:dtype, a:atype", dtype="f32", atype="bf16"),
    _keeps("cvt{.ftz}{.sat}.dtype.atype d:dtype, a:atype", dtype="f64", atype="f32"),
    _cvt("cvt{.sat}.dtype.atype d:dtype, a:atype", dtype="f64", atype="f16"),
    _sm_90("cvt{.sat}.dtype.atype d:dtype, a:atype", dtype="f64", atype="bf16"),
    # Float to a narrower float.
    _cvt("cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype", rnd=_RND, dtype="f32", atype="f64"),
    _cvt("cvt.rnd{.ftz}{.sat}.dtype.atype d:dtype, a:atype", rnd=_RND, dtype="f16 bf16", atype="f32"),
    _cvt("cvt.rnd{.relu}{.satfinite}.dtype.atype d:dtype, a:atype", rnd="rn rz", dtype="f16 bf16", atype="f32"),
    _cvt("cvt.rnd{.sat}.dtype.atype d:dtype, a:atype", rnd=_RND, dtype="f16", atype="f64"),
    _sm_90("cvt.rnd{.sat}.dtype.atype d:dtype, a:atype", rnd=_RND, dtype="bf16", atype="f64"),
    # Without a rounding it is to nearest even: ptxas 13 writes the same machine code.
    _sm_90("cvt{.rnd}{.sat}.dtype.atype d:dtype, a:atype", rnd=_RND, dtype="bf16", atype="f16"),
    _sm_90("cvt.rnd{.sat}.dtype.atype d:dtype, a:atype", rnd=_RND, dtype="f16", atype="bf16"),
    # To the same type, with or without rounding to an integral value.
    _cvt("cvt{.irnd}{.ftz}{.sat}.dtype.atype d:dtype, a:atype", irnd=_INTEGRAL, dtype="f32", atype="f32"),
    _cvt("cvt{.irnd}{.sat}.dtype.atype d:dtype, a:atype", irnd=_INTEGRAL, dtype="f16", atype="f16"),
    _sm_90("cvt{.irnd}{.sat}.dtype.atype d:dtype, a:atype", irnd=_INTEGRAL, dtype="bf16", atype="bf16"),
    _cvt("cvt{.irnd}{.sat}.dtype.atype d:dtype, a:atype", irnd=_INTEGRAL, dtype="f64", atype="f64"),
    # Two values in one register; the first source is the upper half.
    _cvt("cvt.rnd{.relu}{.satfinite}.dtype.atype d:dtype, a:atype, b:atype", rnd="rn rz",
         dtype="f16x2 bf16x2", atype="f32"),
    _sm_89("cvt.rn.satfinite{.relu}.dtype.atype d:dtype, a:atype, b:atype", dtype="e4m3x2 e5m2x2", atype="f32"),
    _sm_89("cvt.rn.satfinite{.relu}.dtype.atype d:dtype, a:atype", dtype="e4m3x2 e5m2x2", atype="f16x2"),
    _sm_89("cvt.rn{.relu}.dtype.atype d:dtype, a:atype", dtype="f16x2", atype="e4m3x2 e5m2x2"),
    _sm_100("cvt.rn{.relu}.dtype.atype d:dtype, a:atype", dtype="bf16x2", atype="e4m3x2 e5m2x2"),
    _small("cvt.rn.satfinite{.relu}.dtype.atype d:dtype, a:atype, b:atype", dtype=_SMALL, atype="f32"),
    _small("cvt.rn.satfinite{.relu}.dtype.atype d:dtype, a:atype", dtype=_SMALL, atype="f16x2 bf16x2"),
    _small("cvt.rn.satfinite{.relu}.dtype.atype d:dtype, a:atype", dtype="e4m3x2 e5m2x2", atype="bf16x2"),
    _small("cvt.rn{.relu}.dtype.atype d:dtype, a:atype", dtype="f16x2 bf16x2", atype=_SMALL),
    _small("cvt.rnd{.satfinite}.dtype.atype d:dtype, a:atype, b:atype", rnd="rz rp", dtype="ue8m0x2", atype="f32"),
    _small("cvt.rnd{.satfinite}.dtype.atype d:dtype, a:atype", rnd="rz rp", dtype="ue8m0x2", atype="bf16x2"),
    _small("cvt.rn.dtype.atype d:dtype, a:atype", dtype="bf16x2", atype="ue8m0x2"),
    _keeps("cvt.rnd{.satfinite}.dtype.atype d:dtype, a:atype", rnd="rna", dtype="tf32", atype="f32"),
    _keeps_sm_90("cvt.rnd{.relu}.dtype.atype d:dtype, a:atype", rnd="rn rz", dtype="tf32", atype="f32"),
    _keeps_sm_100("cvt.rnd.satfinite{.relu}.dtype.atype d:dtype, a:atype", rnd="rn rz", dtype="tf32", atype="f32"),
    _f("9.7.9.22", "cvt.pack.sat.ctype.atype d:b32, a:atype, b:atype", ctype="u16 s16", atype="s32"),
    _f("9.7.9.22", "cvt.pack.sat.ctype.atype.b32 d:b32, a:atype, b:atype, c:b32", ctype="u2 s2 u4 s4 u8 s8",
       atype="s32"),
)  # fmt: skip
