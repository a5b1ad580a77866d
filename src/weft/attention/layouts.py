"""Packed and paged arrays from dense ones and back: the judge computes on dense arrays, a kernel on its own layout."""

import math
from collections.abc import Mapping

import numpy as np

from .contract import Contract
from .dtypes import Array
from .errors import ContractError
from .shapes import Shape

GARBAGE = 2.0**10
"""What unused slots of a page contain, times ±1: finite, and wrong wherever it has a weight."""
GARBAGE_CODES = (0x7E, 0xFE, 0x7F, 0xFF)
"""The same for codes: in E4M3 ±448 and two NaN, which a weight of 0 does not remove. Unused memory has any byte."""


def packed_shape(contract: Contract, shape: Shape, name: str) -> tuple[int, ...]:
    """Return the shape of an output (o, lse) in the contract's layout."""
    lengths = contract.lengths(shape)
    if contract.layout != "varlen" or lengths is None:
        return shape.lse if name == "lse" else shape.q
    total = int(lengths[0].sum())
    return (shape.hq, total) if name == "lse" else (total, shape.hq, shape.d)


def pack(contract: Contract, shape: Shape, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return dense arrays by name (q, o: query rows; k, v: key rows; lse: (b, hq, sq)) in the contract's layout."""
    lengths = contract.lengths(shape)
    if contract.layout != "varlen" or lengths is None:
        return dict(arrays)
    packed = {}
    for name, dense in arrays.items():
        ends = lengths[1] if name in ("k", "v") else lengths[0]
        rows = np.concatenate([dense[batch, :, :end] for batch, end in enumerate(ends)], axis=1)  # (h, total, …)
        packed[name] = np.ascontiguousarray(rows if name == "lse" else rows.swapaxes(0, 1))
    return packed


def unpack(
    contract: Contract, shape: Shape, outputs: Mapping[str, Array], like: Mapping[str, Array]
) -> dict[str, Array]:
    """Return outputs of a kernel as dense arrays; rows that no sequence has are those of `like`."""
    lengths = contract.lengths(shape)
    if contract.layout != "varlen" or lengths is None:
        return dict(outputs)
    dense = {}
    for name, packed in outputs.items():
        if packed.shape != packed_shape(contract, shape, name):
            raise ContractError(f"{name} has shape {packed.shape}, expected {packed_shape(contract, shape, name)}")
        rows = packed if name == "lse" else packed.swapaxes(0, 1)
        full = like[name].astype(rows.dtype)
        for batch, (begin, end) in enumerate(zip(offsets(lengths[0]), lengths[0], strict=False)):
            full[batch, :, :end] = rows[:, begin : begin + end]
        dense[name] = full
    return dense


def element_numbers(contract: Contract, shape: Shape, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return, for a kernel's q, k, v, o and lse by the names of its arrays, which element of the dense array each of
    their elements is; -1 in unused slots. `arrays` are the kernel's inputs.
    """
    sizes = {"q": shape.q, "k": shape.kv, "v": shape.kv, "o": shape.q, "lse": shape.lse}
    numbers = {name: np.arange(math.prod(size)).reshape(size) for name, size in sizes.items()}
    if contract.layout == "paged":
        for name in ("k", "v"):
            cache = np.full(arrays[contract.input_of(name)].shape, -1)
            numbers[name] = _filled(contract, cache, numbers[name], arrays["block_table"], arrays["seq_lens"])
    packed = pack(contract, shape, numbers)
    return {contract.input_of(name) if name in ("q", "k", "v") else name: x for name, x in packed.items()}


def offsets(lengths: Array) -> Array:
    """Return the first row of each sequence in a packed array, and their total."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def arranged(contract: Contract, shape: Shape, arrays: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Return a kernel's inputs from dense q, k and v: numbers, or their codes."""
    lengths = contract.lengths(shape)
    if lengths is None:
        return {contract.input_of(name): x for name, x in arrays.items()}
    if contract.layout == "varlen":
        ends = {"cu_seqlens_q": offsets(lengths[0]), "cu_seqlens_k": offsets(lengths[1])}
        return pack(contract, shape, arrays) | ends
    rng = np.random.default_rng([seed, shape.b, shape.skv])
    pages = -(-lengths[1] // contract.page)
    count = int(pages.sum()) + 1  # one page belongs to no sequence
    order = rng.permutation(count)
    table = np.zeros((shape.b, -(-shape.skv // contract.page)), np.int32)
    caches = {name: _cache(rng, count, contract.page, arrays[name]) for name in ("k", "v")}
    for batch, (first, used) in enumerate(zip(offsets(pages), pages, strict=False)):
        table[batch, :used] = order[first : first + used]
    for name, cache in caches.items():
        _filled(contract, cache, arrays[name], table, lengths[1])
    named = {contract.input_of(name): caches.get(name, x) for name, x in arrays.items()}
    return {**named, "block_table": table, "seq_lens": lengths[1]}


def _filled(contract: Contract, cache: Array, dense: Array, table: Array, lengths: Array) -> Array:
    """Write the keys of every sequence into its slots of a cache (count, page, hkv, d), and return it."""
    for batch, length in enumerate(lengths):
        for key in range(int(length)):
            cache[table[batch, key // contract.page], key % contract.page] = dense[batch, :, key]
    return cache


def _cache(rng: np.random.Generator, count: int, page: int, like: Array) -> Array:
    """Return pages (count, page, hkv, d) of garbage."""
    anything = GARBAGE_CODES if like.dtype == np.uint8 else (-GARBAGE, GARBAGE)
    return np.asarray(rng.choice(anything, (count, page, like.shape[1], like.shape[3])).astype(like.dtype))
