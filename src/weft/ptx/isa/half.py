"""Half-precision instructions on f16, f16x2, bf16 and bf16x2 (PTX ISA 9.7.4)."""

from .facts import COMPUTES, Facts
from .form import Form, computing

_f = computing("half", COMPUTES)
_sm_86 = computing("half", Facts(target="sm_86"))
_sm_90 = computing("half", Facts(target="sm_90"))
_F16 = "f16 f16x2"
_BF16 = "bf16 bf16x2"

ROWS: tuple[Form, ...] = (
    _f("sum", "9.7.4.1", "add{.rn}{.ftz}{.sat}.type d, a, b", type=_F16),
    _sm_90("sum", "9.7.4.1", "add{.rn}.type d, a, b", type=_BF16),
    _f("difference", "9.7.4.2", "sub{.rn}{.ftz}{.sat}.type d, a, b", type=_F16),
    _sm_90("difference", "9.7.4.2", "sub{.rn}.type d, a, b", type=_BF16),
    _f("product", "9.7.4.3", "mul{.rn}{.ftz}{.sat}.type d, a, b", type=_F16),
    _sm_90("product", "9.7.4.3", "mul{.rn}.type d, a, b", type=_BF16),
    _f("product and sum", "9.7.4.4", "fma.rn{.ftz}{.sat}.type d, a, b, c", type=_F16),
    _f("product and sum", "9.7.4.4", "fma.rn{.ftz}.relu.type d, a, b, c", type=_F16),
    _f("product and sum", "9.7.4.4", "fma.rn{.relu}.type d, a, b, c", type=_BF16),
    _f("sign", "9.7.4.5", "neg{.ftz}.type d, a", type=_F16),
    _f("sign", "9.7.4.5", "neg.type d, a", type=_BF16),
    _f("sign", "9.7.4.6", "abs{.ftz}.type d, a", type=_F16),
    _f("sign", "9.7.4.6", "abs.type d, a", type=_BF16),
    _f("smaller", "9.7.4.7", "min{.ftz}{.NaN}.type d, a, b", type=_F16),
    _sm_86("smaller", "9.7.4.7", "min{.ftz}{.NaN}.xorsign.abs.type d, a, b", type=_F16),
    _f("smaller", "9.7.4.7", "min{.NaN}.type d, a, b", type=_BF16),
    _sm_86("smaller", "9.7.4.7", "min{.NaN}.xorsign.abs.type d, a, b", type=_BF16),
    _f("larger", "9.7.4.8", "max{.ftz}{.NaN}.type d, a, b", type=_F16),
    _sm_86("larger", "9.7.4.8", "max{.ftz}{.NaN}.xorsign.abs.type d, a, b", type=_F16),
    _f("larger", "9.7.4.8", "max{.NaN}.type d, a, b", type=_BF16),
    _sm_86("larger", "9.7.4.8", "max{.NaN}.xorsign.abs.type d, a, b", type=_BF16),
    # Evaluated in double and rounded once. Hardware: absolute error 2^-10.987 (f16), 2^-8 (bf16).
    _f("function", "9.7.4.9", "tanh.approx.type d, a", type=_F16),
    _sm_90("function", "9.7.4.9", "tanh.approx.type d, a", type=_BF16),
    # Hardware: relative error 2^-9.9 (f16), 2^-7 (bf16).
    _f("exponential", "9.7.4.10", "ex2.approx.type d, a", type=_F16),
    _sm_90("exponential", "9.7.4.10", "ex2.approx.ftz.type d, a", type=_BF16),
)  # fmt: skip
