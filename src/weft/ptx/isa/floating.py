"""Floating-point instructions on f32 and f64 (PTX ISA 9.7.3), and on f32 with a 16-bit operand (9.7.5)."""

from .facts import COMPUTES, Facts
from .form import Form, computing

_f = computing("floating", Facts(numbers=("a", "b", "c")))
# These show bits of a NaN operand in the result.
_bits = computing("floating", COMPUTES)
_sm_86 = computing("floating", Facts(target="sm_86"))
_sm_100 = computing("floating", Facts(target="sm_100"))
# On sm_80 there are two sources, from sm_100 on there may be three.
_extreme = computing("floating", Facts(numbers=("a", "b", "c"), target_of_all="sm_100"))
_mixed = computing("floating", Facts(numbers=("b", "c"), target="sm_100"))
_RND = "rn rz rm rp"
_HALF = "f16 bf16"

ROWS: tuple[Form, ...] = (
    _bits("", "9.7.3.1", "testp.op.type p:pred, a", op="finite infinite number notanumber normal subnormal",
       type="f32 f64"),
    _bits("", "9.7.3.2", "copysign.type d, a, b", type="f32 f64"),
    _f("sum", "9.7.3.3", "add{.rnd}{.ftz}{.sat}.f32 d, a, b", rnd=_RND),
    _f("sum", "9.7.3.3", "add{.rnd}.f64 d, a, b", rnd=_RND),
    _sm_100("sum", "9.7.3.3", "add{.rnd}{.ftz}.f32x2 d, a, b", rnd=_RND),
    _f("difference", "9.7.3.4", "sub{.rnd}{.ftz}{.sat}.f32 d, a, b", rnd=_RND),
    _f("difference", "9.7.3.4", "sub{.rnd}.f64 d, a, b", rnd=_RND),
    _sm_100("difference", "9.7.3.4", "sub{.rnd}{.ftz}.f32x2 d, a, b", rnd=_RND),
    _f("product", "9.7.3.5", "mul{.rnd}{.ftz}{.sat}.f32 d, a, b", rnd=_RND),
    _f("product", "9.7.3.5", "mul{.rnd}.f64 d, a, b", rnd=_RND),
    _sm_100("product", "9.7.3.5", "mul{.rnd}{.ftz}.f32x2 d, a, b", rnd=_RND),
    _f("product and sum", "9.7.3.6", "fma.rnd{.ftz}{.sat}.f32 d, a, b, c", rnd=_RND),
    _f("product and sum", "9.7.3.6", "fma.rnd.f64 d, a, b, c", rnd=_RND),
    _sm_100("product and sum", "9.7.3.6", "fma.rnd{.ftz}.f32x2 d, a, b, c", rnd=_RND),
    # From sm_20 on, mad is fma.
    _f("product and sum", "9.7.3.7", "mad.rnd{.ftz}{.sat}.f32 d, a, b, c", rnd=_RND),
    _f("product and sum", "9.7.3.7", "mad.rnd.f64 d, a, b, c", rnd=_RND),
    # Hardware: 2 ulp for |b| in [2^-126, 2^126] (approx), 2 ulp everywhere (full). Ours: correctly rounded.
    _f("quotient", "9.7.3.8", "div.accuracy{.ftz}.f32 d, a, b", accuracy="approx full"),
    _f("quotient", "9.7.3.8", "div.rnd{.ftz}.f32 d, a, b", rnd=_RND),
    _f("quotient", "9.7.3.8", "div.rnd.f64 d, a, b", rnd=_RND),
    _bits("sign", "9.7.3.9", "abs{.ftz}.f32 d, a"),
    _bits("sign", "9.7.3.9", "abs.f64 d, a"),
    _bits("sign", "9.7.3.10", "neg{.ftz}.f32 d, a"),
    _bits("sign", "9.7.3.10", "neg.f64 d, a"),
    _extreme("smaller", "9.7.3.11", "min{.ftz}{.NaN}.f32 d, a, b; c"),
    _sm_86("smaller", "9.7.3.11", "min{.ftz}{.NaN}.xorsign.abs.f32 d, a, b"),
    _f("smaller", "9.7.3.11", "min.f64 d, a, b"),
    _extreme("larger", "9.7.3.12", "max{.ftz}{.NaN}.f32 d, a, b; c"),
    _sm_86("larger", "9.7.3.12", "max{.ftz}{.NaN}.xorsign.abs.f32 d, a, b"),
    _f("larger", "9.7.3.12", "max.f64 d, a, b"),
    # Hardware: 1 ulp. Ours: correctly rounded.
    _f("reciprocal", "9.7.3.13", "rcp.approx{.ftz}.f32 d, a"),
    _f("reciprocal", "9.7.3.13", "rcp.rnd{.ftz}.f32 d, a", rnd=_RND),
    _f("reciprocal", "9.7.3.13", "rcp.rnd.f64 d, a", rnd=_RND),
    # Uses the upper 32 bits alone, as a start for Newton's method. Hardware: relative error about 2^-20.
    _f("reciprocal", "9.7.3.14", "rcp.approx.ftz.f64 d, a"),
    # Hardware: relative error 2^-23. Ours: correctly rounded.
    _f("function", "9.7.3.15", "sqrt.approx{.ftz}.f32 d, a"),
    _f("function", "9.7.3.15", "sqrt.rnd{.ftz}.f32 d, a", rnd=_RND),
    _f("function", "9.7.3.15", "sqrt.rnd.f64 d, a", rnd=_RND),
    # Evaluated in double and rounded once: within 0.5001 ulp of the true value.
    # Hardware: relative error 2^-22.9 (rsqrt), absolute 2^-20.5 in [-2 pi, 2 pi] (sin, cos), 2^-22 (lg2),
    # 2 ulp (ex2), relative 2^-11 (tanh).
    _f("function", "9.7.3.16", "rsqrt.approx{.ftz}.f32 d, a"),
    _f("function", "9.7.3.16", "rsqrt.approx.f64 d, a"),
    _f("function", "9.7.3.17", "rsqrt.approx.ftz.f64 d, a"),
    _f("function", "9.7.3.18", "sin.approx{.ftz}.f32 d, a"),
    _f("function", "9.7.3.19", "cos.approx{.ftz}.f32 d, a"),
    _f("logarithm", "9.7.3.20", "lg2.approx{.ftz}.f32 d, a"),
    _f("exponential", "9.7.3.21", "ex2.approx{.ftz}.f32 d, a"),
    _f("function", "9.7.3.22", "tanh.approx.f32 d, a"),
    # The 16-bit operand is converted to f32, exactly; the manual calls the second one c.
    _mixed("sum", "9.7.5.1", "add{.rnd}{.sat}.f32.atype d, a:atype, b", rnd=_RND, atype=_HALF),
    _mixed("difference", "9.7.5.2", "sub{.rnd}{.sat}.f32.atype d, a:atype, b", rnd=_RND, atype=_HALF),
    _mixed("product and sum", "9.7.5.3", "fma.rnd{.sat}.f32.atype d, a:atype, b:atype, c", rnd=_RND, atype=_HALF),
)  # fmt: skip
