"""The inputs of an attention: a regime's q, k and v, as numbers or as codes with scales, in the contract's layout."""

import numpy as np

from weft.attention.contract import Contract
from weft.attention.dtypes import Array
from weft.attention.layouts import arranged
from weft.attention.quantise import QUANTISERS, Quantised, encode_shared
from weft.attention.regimes import make
from weft.attention.shapes import Shape

from .attention_problem import AttentionProblem
from .task import Workload


def draw_attention(contract: Contract, workload: Workload) -> AttentionProblem:
    """Return the regime's q, k and v and the contract's other inputs; O and numbers have the workload's type."""
    shape, seed = workload.shape, workload.seed
    original = _without_padding(contract, shape, make(workload.regime, shape, workload.dtype, seed))
    held = dict(zip("qkv", original, strict=True))
    coded = {name: _encoded(contract, workload, held[name]) for name in contract.coded}
    arrays = arranged(contract, shape, held | {name: each.codes for name, each in coded.items()}, seed)
    arrays |= {f"{name}_scale": each.scale for name, each in coded.items()} | contract.draw_terms(shape, seed)
    if not coded:
        return AttentionProblem(workload, arrays, *original, contract=contract)
    scales = {name: np.zeros(x.shape[:2]) for name, x in held.items()}
    for name, each in coded.items():
        scales[name] = np.broadcast_to(each.scale, scales[name].shape)
        held[name] = QUANTISERS[workload.encoding].decode(each.codes, scales[name])
    q, k, v = (held[name] for name in "qkv")
    of_q, of_k, of_v = (scales[name] for name in "qkv")
    return AttentionProblem(workload, arrays, q, k, v, original, (of_q, of_k, of_v), contract=contract)


def _without_padding(contract: Contract, shape: Shape, qkv: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """Return q, k and v with zeros in rows that no sequence has."""
    lengths = contract.lengths(shape)
    if lengths is None:
        return qkv
    for x, ends in zip(qkv, (lengths[0], lengths[1], lengths[1]), strict=True):
        for batch, end in enumerate(ends):
            x[batch, :, end:] = 0
    return qkv


def _encoded(contract: Contract, workload: Workload, x: Array) -> Quantised:
    """Return codes, and scales of a batch entry's heads (b, h), or of heads of a cache that all entries share (h,)."""
    quantiser, numbers = QUANTISERS[workload.encoding], x.astype(np.float32)
    return encode_shared(quantiser, numbers) if contract.layout == "paged" else quantiser.encode(numbers)
