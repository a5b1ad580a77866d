"""Wrong ways of reading 8-bit codes: right attention on inputs decoded with one thing changed."""

from dataclasses import replace

import ml_dtypes
import numpy as np

from weft.attention.dtypes import Array
from weft.attention.quantise import E4M3_MAX
from weft.attention.reference import Attended
from weft.kernels.ladder import ELEMENTS

from .mutant import Mutant
from .numpy_attention import finish, per_query_head, plain, scores
from .problem import Problem

ONLY_FP8 = ("fp8_sdpa",)


def _codes(problem: Problem, name: str) -> Array:
    return problem.arrays[f"{name}_code"].astype(np.float64)


def _scale(problem: Problem, name: str) -> Array:
    return problem.arrays[f"{name}_scale"].astype(np.float64)


def _linear(codes: Array, scale: Array, *, middle: float = 128, steps: float = 127, top: float = E4M3_MAX) -> Array:
    return np.asarray((codes - middle) / steps * top * scale[..., None, None])


def _with(problem: Problem, **changed: Array) -> Attended:
    """Attention on inputs of which some were decoded wrongly."""
    q, k, v = (changed.get(name, meant) for name, meant in zip("qkv", (problem.q, problem.k, problem.v), strict=True))
    return plain(replace(problem, q=q, k=k, v=v))


def _all(problem: Problem, **constants: float) -> Attended:
    return _with(problem, **{x: _linear(_codes(problem, x), _scale(problem, x), **constants) for x in "qkv"})


def _rescaled(problem: Problem, name: str, scale: Array) -> Attended:
    return _with(problem, **{name: _linear(_codes(problem, name), scale)})


def half_lsb(problem: Problem) -> Attended:
    return _all(problem, middle=127.5)


def half_lsb_q(problem: Problem) -> Attended:
    return _with(problem, q=_linear(_codes(problem, "q"), _scale(problem, "q"), middle=127.5))


def half_lsb_v(problem: Problem) -> Attended:
    return _with(problem, v=_linear(_codes(problem, "v"), _scale(problem, "v"), middle=127.5))


def half_lsb_k(problem: Problem) -> Attended:
    return _with(problem, k=_linear(_codes(problem, "k"), _scale(problem, "k"), middle=127.5))


def middle_127(problem: Problem) -> Attended:
    return _all(problem, middle=127)


def steps_128(problem: Problem) -> Attended:
    return _all(problem, steps=128)


def top_240(problem: Problem) -> Attended:
    return _all(problem, top=240)


def top_forgotten(problem: Problem) -> Attended:
    return _all(problem, top=1)


def per_tensor_scale(problem: Problem) -> Attended:
    largest = {x: np.full_like(_scale(problem, x), _scale(problem, x).max()) for x in "qkv"}
    return _with(problem, **{x: _linear(_codes(problem, x), largest[x]) for x in "qkv"})


def head_0_scale(problem: Problem) -> Attended:
    first = {x: np.broadcast_to(_scale(problem, x)[:, :1], _scale(problem, x).shape) for x in "qkv"}
    return _with(problem, **{x: _linear(_codes(problem, x), first[x]) for x in "qkv"})


def batch_0_scale(problem: Problem) -> Attended:
    first = {x: np.broadcast_to(_scale(problem, x)[:1], _scale(problem, x).shape) for x in "qkv"}
    return _with(problem, **{x: _linear(_codes(problem, x), first[x]) for x in "qkv"})


def v_scale_forgotten(problem: Problem) -> Attended:
    return _rescaled(problem, "v", np.ones_like(_scale(problem, "v")))


def q_scale_forgotten(problem: Problem) -> Attended:
    return _rescaled(problem, "q", np.ones_like(_scale(problem, "q")))


def k_scale_forgotten(problem: Problem) -> Attended:
    return _rescaled(problem, "k", np.ones_like(_scale(problem, "k")))


def k_scale_for_q(problem: Problem) -> Attended:
    return _rescaled(problem, "q", per_query_head(_scale(problem, "k"), problem))


def k_scale_for_v(problem: Problem) -> Attended:
    return _rescaled(problem, "v", _scale(problem, "k"))


def v_scale_twice(problem: Problem) -> Attended:
    return _rescaled(problem, "v", _scale(problem, "v") ** 2)


def codes_signed(problem: Problem) -> Attended:
    signed = {x: problem.arrays[f"{x}_code"].view(np.int8).astype(np.float64) for x in "qkv"}
    return _with(problem, **{x: _linear(signed[x], _scale(problem, x), middle=0) for x in "qkv"})


def codes_as_e4m3(problem: Problem) -> Attended:
    values = {x: problem.arrays[f"{x}_code"].view(ml_dtypes.float8_e4m3fn).astype(np.float64) for x in "qkv"}
    return _with(problem, **{x: values[x] * _scale(problem, x)[..., None, None] for x in "qkv"})


def midpoint_forgotten(problem: Problem) -> Attended:
    return _all(problem, middle=0)


def table_end_wrong(problem: Problem) -> Attended:
    """The last entry of the table for V was overwritten."""
    codes = _codes(problem, "v")
    return _with(problem, v=np.where(codes == 255, 1.0, problem.v))


def v_in_4_bits(problem: Problem) -> Attended:
    return _with(problem, v=_linear(_codes(problem, "v") // 16 * 16, _scale(problem, "v")))


def lse_of_codes(problem: Problem) -> Attended:
    s = scores(problem, q=_codes(problem, "q") - 128, k=per_query_head(_codes(problem, "k") - 128, problem))
    return finish(problem, plain(problem).o, plain(problem, s=s).lse)


FP8_MUTANTS = (
    Mutant("half_lsb", "zero is code 127.5: half an LSB of bias", half_lsb, ONLY_FP8),
    Mutant("half_lsb_q", "half an LSB of bias in Q alone", half_lsb_q, ONLY_FP8),
    Mutant("half_lsb_v", "half an LSB of bias in V alone", half_lsb_v, ONLY_FP8),
    Mutant("middle_127", "zero is code 127", middle_127, ONLY_FP8),
    Mutant("steps_128", "128 steps instead of 127", steps_128, ONLY_FP8),
    Mutant("top_240", "largest value 240 instead of 448", top_240, ONLY_FP8),
    Mutant("top_forgotten", "448 left out", top_forgotten, ONLY_FP8),
    Mutant("midpoint_forgotten", "128 is not subtracted", midpoint_forgotten, ONLY_FP8),
    Mutant("per_tensor_scale", "one scale per tensor instead of per head", per_tensor_scale, ONLY_FP8),
    Mutant("head_0_scale", "every head uses the first head's scale", head_0_scale, ONLY_FP8),
    Mutant("batch_0_scale", "every batch entry uses the first one's scales", batch_0_scale, ONLY_FP8),
    Mutant("q_scale_forgotten", "the scale of Q is left out", q_scale_forgotten, ONLY_FP8),
    Mutant("k_scale_forgotten", "the scale of K is left out", k_scale_forgotten, ONLY_FP8),
    Mutant("v_scale_forgotten", "the scale of V is left out", v_scale_forgotten, ONLY_FP8),
    Mutant("v_scale_twice", "the scale of V is applied twice", v_scale_twice, ONLY_FP8),
    Mutant("k_scale_for_q", "the scale of K is used for Q", k_scale_for_q, ONLY_FP8),
    Mutant("k_scale_for_v", "the scale of K is used for V", k_scale_for_v, ONLY_FP8),
    Mutant("codes_signed", "codes read as signed bytes", codes_signed, ONLY_FP8),
    Mutant("codes_as_e4m3", "linear codes read as e4m3 bits", codes_as_e4m3, ONLY_FP8),
    Mutant("table_end_wrong", "the table's last entry reads 1", table_end_wrong, ONLY_FP8),
    Mutant("v_in_4_bits", "the lower half of V's codes is lost", v_in_4_bits, ONLY_FP8),
    Mutant("half_lsb_k", "half an LSB of bias in K alone", half_lsb_k, ONLY_FP8, breaks="lse"),
    Mutant(
        "half_lsb_k_no_lse",
        "half an LSB of bias in K alone, no LSE returned",
        half_lsb_k,
        ONLY_FP8,
        excluded=dict.fromkeys(ELEMENTS, "adds the same to every score of a row, which softmax takes away: O is right"),
    ),
    Mutant("lse_of_codes", "LSE of the codes' scores", lse_of_codes, ONLY_FP8, breaks="lse"),
)
