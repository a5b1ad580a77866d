"""Wrong decoding of 8-bit codes: right attention on inputs decoded with one change."""

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np

from weft.attention.dtypes import Array
from weft.attention.quantise import E4M3_MAX, QUANTISERS
from weft.attention.reference import Attended
from weft.kernels.ladder import ELEMENTS
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.numpy_attention import finish, per_query_head, plain, scores

from .lengths import right_reading
from .wrong import wrong


def codes_of(problem: AttentionProblem, name: str) -> Array:
    """Return the codes of q, k or v (b, h, s, d)."""
    if problem.contract.layout == "paged":
        return right_reading(problem).rows(name)
    return problem.arrays[problem.contract.input_of(name)]


def scale_of(problem: AttentionProblem, name: str) -> Array:
    """Return its scales (b, h)."""
    assert problem.scales is not None
    return problem.scales["qkv".index(name)].astype(np.float64)


def with_values(problem: AttentionProblem, **changed: Array) -> Attended:
    """Return attention on inputs of which some were decoded wrongly."""
    q, k, v = (changed.get(name, meant) for name, meant in zip("qkv", (problem.q, problem.k, problem.v), strict=True))
    return plain(replace(problem, q=q, k=k, v=v))


def rescaled(problem: AttentionProblem, **scales: Array) -> Attended:
    """Return the right values of the codes with other scales."""
    unit = {x: problem.quantiser.decode(codes_of(problem, x), np.ones_like(scales[x])) for x in scales}
    return with_values(problem, **{x: unit[x].astype(np.float64) * scales[x][..., None, None] for x in scales})


def with_scales(problem: AttentionProblem, change: Callable[[Array], Array], names: str = "") -> Attended:
    """Return attention with changed scales (b, h) of some inputs; by default of all that are coded."""
    return rescaled(problem, **{x: change(scale_of(problem, x)) for x in names or problem.contract.coded})


def read_as(problem: AttentionProblem, value: Callable[[Array], Array], names: str = "") -> Attended:
    """Return attention on other numbers made of the codes of some inputs; by default of all that are coded."""
    numbers = {x: value(codes_of(problem, x)).astype(np.float64) for x in names or problem.contract.coded}
    return with_values(problem, **{x: numbers[x] * scale_of(problem, x)[..., None, None] for x in numbers})


def _linear(
    problem: AttentionProblem, inputs: str = "", *, middle: float = 128, steps: float = 127, top: float = E4M3_MAX
) -> Attended:
    """Decode linear codes with other constants; other encodings are decoded right."""
    if problem.workload.encoding != "sim_fp8":
        return plain(problem)
    return read_as(problem, lambda codes: (codes.astype(np.float64) - middle) / steps * top, inputs)


def _bits(problem: AttentionProblem, value: Callable[[Array], Array]) -> Attended:
    """Decode E4M3 codes in another way; linear codes are decoded right."""
    if problem.workload.encoding != "e4m3":
        return plain(problem)
    return read_as(problem, value)


def half_lsb(problem: AttentionProblem) -> Attended:
    return _linear(problem, middle=127.5)


def half_lsb_q(problem: AttentionProblem) -> Attended:
    return _linear(problem, "q", middle=127.5)


def half_lsb_v(problem: AttentionProblem) -> Attended:
    return _linear(problem, "v", middle=127.5)


def half_lsb_k(problem: AttentionProblem) -> Attended:
    return _linear(problem, "k", middle=127.5)


def middle_127(problem: AttentionProblem) -> Attended:
    return _linear(problem, middle=127)


def steps_128(problem: AttentionProblem) -> Attended:
    return _linear(problem, steps=128)


def top_240(problem: AttentionProblem) -> Attended:
    return _linear(problem, top=240)


def top_forgotten(problem: AttentionProblem) -> Attended:
    return _linear(problem, top=1)


def per_tensor_scale(problem: AttentionProblem) -> Attended:
    return with_scales(problem, lambda scale: np.full_like(scale, scale.max()))


def head_0_scale(problem: AttentionProblem) -> Attended:
    return with_scales(problem, lambda scale: np.broadcast_to(scale[:, :1], scale.shape))


def batch_0_scale(problem: AttentionProblem) -> Attended:
    return with_scales(problem, lambda scale: np.broadcast_to(scale[:1], scale.shape))


def v_scale_forgotten(problem: AttentionProblem) -> Attended:
    return rescaled(problem, v=np.ones_like(scale_of(problem, "v")))


def q_scale_forgotten(problem: AttentionProblem) -> Attended:
    return rescaled(problem, q=np.ones_like(scale_of(problem, "q")))


def k_scale_forgotten(problem: AttentionProblem) -> Attended:
    return rescaled(problem, k=np.ones_like(scale_of(problem, "k")))


def k_scale_for_q(problem: AttentionProblem) -> Attended:
    return rescaled(problem, q=per_query_head(scale_of(problem, "k"), problem))


def k_scale_for_v(problem: AttentionProblem) -> Attended:
    return rescaled(problem, v=scale_of(problem, "k"))


def v_scale_twice(problem: AttentionProblem) -> Attended:
    return rescaled(problem, v=scale_of(problem, "v") ** 2)


def codes_signed(problem: AttentionProblem) -> Attended:
    """Read a linear code as a signed byte: (u ^ 128) - 128 steps instead of u - 128."""
    if problem.workload.encoding != "sim_fp8":
        return plain(problem)
    return read_as(problem, lambda codes: codes.view(np.int8).astype(np.float64) / 127 * E4M3_MAX)


def other_encoding(problem: AttentionProblem) -> Attended:
    """Linear codes read as E4M3 bits, and the other way round."""
    other = QUANTISERS["e4m3" if problem.workload.encoding == "sim_fp8" else "sim_fp8"]
    decoded = {x: other.decode(codes_of(problem, x), scale_of(problem, x)) for x in problem.contract.coded}
    return with_values(problem, **decoded)


def e5m2_bits(problem: AttentionProblem) -> Attended:
    return _bits(problem, lambda codes: codes.view(ml_dtypes.float8_e5m2).astype(np.float64))


def exponent_bias_8(problem: AttentionProblem) -> Attended:
    return _bits(problem, lambda codes: codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64) / 2)


def denormals_flushed(problem: AttentionProblem) -> Attended:
    return _bits(
        problem, lambda codes: np.where(codes & 0x78, codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64), 0.0)
    )


def mantissa_bit_lost(problem: AttentionProblem) -> Attended:
    return _bits(problem, lambda codes: (codes & 0xFE).view(ml_dtypes.float8_e4m3fn).astype(np.float64))


def sign_lost(problem: AttentionProblem) -> Attended:
    return _bits(problem, lambda codes: (codes & 0x7F).view(ml_dtypes.float8_e4m3fn).astype(np.float64))


def clipped_at_240(problem: AttentionProblem) -> Attended:
    """Clip at the largest value of another E4M3, which has infinities."""
    return _bits(problem, lambda codes: np.clip(codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64), -240, 240))


def midpoint_forgotten(problem: AttentionProblem) -> Attended:
    return _linear(problem, middle=0)


def table_end_wrong(problem: AttentionProblem) -> Attended:
    """Overwrite the table's entry for V's largest code."""
    codes = codes_of(problem, "v")
    largest = 255 if problem.workload.encoding == "sim_fp8" else 0x7E
    return with_values(problem, v=np.where(codes == largest, 1.0, problem.v))


def v_in_4_bits(problem: AttentionProblem) -> Attended:
    return with_values(problem, v=problem.quantiser.decode(codes_of(problem, "v") & 0xF0, scale_of(problem, "v")))


def lse_of_codes(problem: AttentionProblem) -> Attended:
    q, k = (codes_of(problem, x).astype(np.float64) - 128 for x in "qk")
    s = scores(problem, q=q, k=per_query_head(k, problem))
    return finish(problem, plain(problem).o, plain(problem, s=s).lse)


CODE_MUTANTS = (
    wrong("per_tensor_scale", "one scale per tensor instead of per head", per_tensor_scale),
    wrong("head_0_scale", "every head uses the first head's scale", head_0_scale),
    wrong("k_scale_forgotten", "the scale of K is left out", k_scale_forgotten),
    wrong("v_scale_forgotten", "the scale of V is left out", v_scale_forgotten),
    wrong("v_scale_twice", "the scale of V is applied twice", v_scale_twice),
    wrong("k_scale_for_v", "the scale of K is used for V", k_scale_for_v),
    wrong("other_encoding", "linear codes read as E4M3 bits, or the other way round", other_encoding),
    wrong("e5m2_bits", "E4M3 codes read as E5M2 bits", e5m2_bits),
    wrong("exponent_bias_8", "E4M3 with an exponent bias of 8", exponent_bias_8),
    wrong("denormals_flushed", "E4M3 denormals read as zero", denormals_flushed),
    wrong("mantissa_bit_lost", "the last bit of E4M3 is lost", mantissa_bit_lost),
    wrong("sign_lost", "the sign of E4M3 is lost", sign_lost),
    wrong("clipped_at_240", "E4M3 values end at 240 instead of 448", clipped_at_240),
    wrong("table_end_wrong", "the table's last entry reads 1", table_end_wrong),
    wrong("v_in_4_bits", "the lower half of V's codes is lost", v_in_4_bits),
)
"""Of E4M3 codes of K and V, whatever their layout."""

QUANTISED_MUTANTS = (
    *CODE_MUTANTS,
    wrong("half_lsb", "zero is code 127.5: half an LSB of bias", half_lsb),
    wrong("half_lsb_q", "half an LSB of bias in Q only", half_lsb_q),
    wrong("half_lsb_v", "half an LSB of bias in V only", half_lsb_v),
    wrong("middle_127", "zero is code 127", middle_127),
    wrong("steps_128", "128 steps instead of 127", steps_128),
    wrong("top_240", "largest value 240 instead of 448", top_240),
    wrong("top_forgotten", "448 left out", top_forgotten),
    wrong("midpoint_forgotten", "128 is not subtracted", midpoint_forgotten),
    wrong("batch_0_scale", "every batch entry uses the first one's scales", batch_0_scale),
    wrong("q_scale_forgotten", "the scale of Q is left out", q_scale_forgotten),
    wrong("k_scale_for_q", "the scale of K is used for Q", k_scale_for_q),
    wrong("codes_signed", "codes read as signed bytes", codes_signed),
    wrong("half_lsb_k", "half an LSB of bias in K only", half_lsb_k, breaks="lse"),
    wrong(
        "half_lsb_k_no_lse",
        "half an LSB of bias in K only, no LSE returned",
        half_lsb_k,
        excluded=dict.fromkeys(ELEMENTS, "adds the same to every score of a row, which softmax cancels: O is right"),
    ),
    wrong("lse_of_codes", "LSE of the codes' scores", lse_of_codes, breaks="lse"),
)
