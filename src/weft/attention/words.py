"""Common names of the arrays, sizes and masks of attention: the table of synonyms of our names."""

from collections.abc import Mapping
from types import MappingProxyType

ARRAY_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "q": ("query", "queries"),
        "k": ("key", "keys"),
        "v": ("value", "values"),
        "o": ("out", "output", "outputs", "attn_out"),
        "lse": ("softmax_lse", "logsumexp"),
    }
)
"""An array of a task → its synonyms, in upper or lower case."""

ARRAY_PREFIXES, ARRAY_SUFFIXES = ("d_", "dev_", "ptr_", "p_"), ("_ptr", "_d", "_dev", "_device", "_gpu")
"""Prefixes and suffixes of device arrays in host code: `d_q`, `Q_ptr`."""

HEAD_WORDS = frozenset(("h", "hq", "hkv", "hk", "nh", "nhead", "nheads", "n_head", "n_heads", "num_heads", "heads"))
LENGTH_WORDS = frozenset(
    ("n", "s", "t", "l", "sq", "skv", "sk", "nq", "nk", "seq", "seqlen", "seq_len", "seqlen_q", "seqlen_k", "n_ctx",
     "ctx", "length", "len", "tokens", "q_len", "kv_len", "len_q", "len_kv")
)  # fmt: skip
"""Names of sizes, in lower case: they distinguish [batch, heads, length, D] from [batch, length, heads, D]."""

MASK_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "causal": ("top_left", "bottom_right"),
        "full": ("none",),
        "no": ("none",),
        "noncausal": ("none",),
        "non_causal": ("none",),
        "unmasked": ("none",),
    }
)
"""A synonym of masks → their names."""


def array_named(name: str, known: tuple[str, ...]) -> str:
    """Return which of the known arrays a name stands for; empty if none."""
    plain = name.lower()
    if plain in known:
        return plain
    for prefix in ARRAY_PREFIXES:
        plain = plain.removeprefix(prefix)
    for suffix in ARRAY_SUFFIXES:
        plain = plain.removesuffix(suffix)
    return next((each for each in known if plain == each.lower() or plain in ARRAY_WORDS.get(each, ())), "")
