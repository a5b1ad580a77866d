"""8-bit inputs: what the quantiser produced, and the scale and zero point with which the kernel decodes it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.quantise import E4M3_MAX, SimFp8
from weft.core.records import Place
from weft.diagnose.origins import factor_line
from weft.diagnose.records import Case, Signature
from weft.diagnose.tags import INPUTS, Kind
from weft.tasks.attention_problem import AttentionProblem

from .evidence import Output, best, may_be, output_of, rank_of
from .lines import acts

TENSORS = "qkv"
MANY = 64
"""With fewer values in a tensor, a mean is no evidence of a bias."""
BIASED = 0.25
"""A mean error in LSB that rounding does not cause."""


def zero_scale(case: Case) -> Signature | None:
    """A scale is 0 or not finite: codes divided by it mean nothing."""
    problem = case.attention
    if problem is None:
        return None
    for name in TENSORS:
        scale = problem.arrays.get(f"{name}_scale")
        if scale is not None and not (np.isfinite(scale) & (scale > 0)).all():
            count = int((~(np.isfinite(scale) & (scale > 0))).sum())
            message = (
                f"{count} of {scale.size} scales of {name.upper()} are 0 or not finite: the quantiser divides by them"
            )
            cure = "give a head whose absmax is below 1e-6 the scale 1 and the code of exact zero everywhere"
            return Signature("zero_scale", message, cure, 1.0, stage="quantiser")
    return None


def half_lsb(case: Case) -> Signature | None:
    """All codes are shifted: by the quantiser (the codes themselves show it), or where the kernel decodes them."""
    problem = case.attention
    if problem is None or problem.original is None or problem.scales is None or case.verdict.passed:
        return None
    return _encoder(problem) or _decoder(case)


def _encoder(problem: AttentionProblem) -> Signature | None:
    assert problem.original is not None and problem.scales is not None
    quantiser = problem.quantiser
    if not isinstance(quantiser, SimFp8) or zero_scales(problem):
        return None
    biases = []
    for name, x, scale in zip(TENSORS, problem.original, problem.scales, strict=True):
        codes = problem.arrays[f"{name}_code"]
        # Rounding may cause a bias where there are few different values: the quantiser's own codes decide.
        if x.size < MANY or np.array_equal(quantiser.encode(x.astype(np.float32)).codes, codes):
            continue
        bias = quantiser.bias(x, codes, scale)
        if (np.abs(bias) > BIASED).all() and np.ptp(bias) < BIASED:
            biases.append((name.upper(), float(bias.mean())))
    if not biases:
        return None
    shown = ", ".join(f"{name} {bias:+.2f}" for name, bias in biases)
    message = f"the codes are biased by half a step before the kernel reads them: mean error in LSB {shown}"
    cure = "encode with round(x / (448 · scale) · 127 + 128), the inverse of the decoder, and test the round trip"
    return Signature("half_lsb", message, cure, 0.98, stage="quantiser")


def zero_scales(problem: AttentionProblem) -> bool:
    """Whether a scale is not positive, so that nothing can be divided by it."""
    return problem.scales is not None and any(not (scale > 0).all() for scale in problem.scales)


def _decoder(case: Case) -> Signature | None:
    """The kernel's zero point is another code than the quantiser's."""
    out = output_of(case)
    if out is None or not out.finite or case.task.name != "fp8_sdpa" or not may_be(case, *TENSORS):
        return None
    if not isinstance(out.problem.quantiser, SimFp8) or zero_scales(out.problem):
        return None
    scales = out.problem.scales
    assert scales is not None
    lsb = [SimFp8().lsb(scale)[..., None, None] for scale in scales]
    lsb = [np.repeat(x, out.q.shape[1] // x.shape[1], axis=1) for x in lsb]
    candidates = []
    for shift in (0.5, -0.5, 1.0, -1.0):
        for tensors in ("qkv", "q", "k", "v", "qk", "kv"):
            q, k, v = (
                x + shift * step if name in tensors else x
                for name, x, step in zip(TENSORS, (out.q, out.k, out.v), lsb, strict=True)
            )
            zero = f"with the zero point at code {128 - shift:g}"
            words = f"{', '.join(tensors.upper())} decoded {shift:+.1f} LSB too high, {zero}"
            candidates.append((out.left_over(out.attend(out.scores(q=q, k=k), v=v)), words))
    found = best(candidates)
    if found is None:
        return None
    message = f"O matches {found[1]}"
    return Signature("half_lsb", message, "decode with (u - 128) / 127 · 448 · scale", rank_of(found[0]), 1 - found[0])


@dataclass(frozen=True)
class _Misread:
    """One way of using the wrong scale: extra factors of tensors, (b, heads) each."""

    name: str
    words: str
    cure: str
    factors: Mapping[str, Array]


def wrong_scale(case: Case) -> Signature | None:
    """A tensor is decoded with the scale of another head or tensor, with its scale twice, or without a scale."""
    out = output_of(case)
    if out is None or not out.finite or out.problem.scales is None or zero_scales(out.problem):
        return None
    if not may_be(case, *TENSORS, "products", "scores", "masked", "u"):
        return None
    misread = list(_misreadings(out.problem))
    found = best((out.left_over(_decoded_so(out, each)), str(i)) for i, each in enumerate(misread))
    if found is None:
        return None
    mistake = misread[int(found[1])]
    sizes = np.concatenate([factor.ravel() for factor in mistake.factors.values()])
    sizes = sizes[np.abs(sizes - 1) > 1e-6]
    message = (
        f"O matches {', '.join(mistake.factors).upper()} decoded with {mistake.words}: an extra factor of "
        f"{sizes.min():.4g}" + (f" to {sizes.max():.4g}" if np.ptp(sizes) > 1e-6 else "")
    )
    place = next(filter(None, (_scale_line(case, name) for name in mistake.factors)), None)
    return Signature(mistake.name, message, mistake.cure, rank_of(found[0]), 1 - found[0], place=place)


def _scale_line(case: Case, tensor: str) -> Place | None:
    """Return where the factor of a tensor's elements is computed."""
    products = acts(case, "multiply", Kind.CONST, INPUTS[tensor])
    return next(filter(None, (factor_line(case, act) for act in products)), None)


def _decoded_so(out: Output, mistake: _Misread) -> Array:
    q, k, v = (
        np.repeat(factor, out.q.shape[1] // factor.shape[1], axis=1)[..., None, None]
        for factor in (mistake.factors.get(name, np.ones((1, 1))) for name in TENSORS)
    )
    return out.attend(out.scores() * q * k, v=out.v * v)


def _misreadings(problem: AttentionProblem) -> Iterator[_Misread]:
    assert problem.scales is not None
    scales = {name: scale.astype(np.float64) for name, scale in zip(TENSORS, problem.scales, strict=True)}
    for name, scale in scales.items():
        upper = name.upper()
        yield _Misread("scale_forgotten", "no scale", f"multiply {upper} by its scale", {name: 1 / scale})
        yield _Misread("tensor_scale_twice", "its scale twice", f"apply the scale of {upper} once", {name: scale})
        for other, theirs in scales.items():
            if other != name:
                heads = np.arange(scale.shape[1]) * theirs.shape[1] // scale.shape[1]
                words, cure = f"the scale of {other.upper()}", f"pass {name}_scale for {upper}"
                yield _Misread("other_tensors_scale", words, cure, {name: theirs[:, heads] / scale})
    own = "index the scales by batch and head: scale[b · H + h], with the key head for K and V"
    for tensors in ("q", "k", "v", "qk", "kv", "qkv"):
        chosen = {name: scales[name] for name in tensors}
        for size, words in ((1 / E4M3_MAX, "no 448"), (127 / 128, "128 steps"), (240 / 448, "a range of 240")):
            cure = "decode with (u - 128) / 127 · 448 · scale"
            yield _Misread("wrong_range", words, cure, {x: np.full_like(s, size) for x, s in chosen.items()})
        for words, pick in _OTHERS.items():
            factors = {x: np.broadcast_to(pick(s), s.shape) / s for x, s in chosen.items()}
            if all((np.abs(factor - 1) > 1e-6).any() for factor in factors.values()):
                yield _Misread("other_heads_scale", words, own, factors)


_OTHERS: Mapping[str, Callable[[Array], Array]] = {
    "the first head's scale": lambda s: s[:, :1],
    "the first batch entry's scales": lambda s: s[:1],
    "one scale for the tensor": lambda s: s.max(keepdims=True),
    "the next head's scale": lambda s: np.roll(s.ravel(), -1).reshape(s.shape),
}
