"""Usual names of the sizes of attention."""

import re

_SIZES = {
    "B": "b|bs|bsz|nb|batch|batches|batch_?size|num_?batch(es)?|n_?batch",
    "BH": "bh|b_?h|batch_?heads?|num_?bh|heads_total|total_?heads",
    "HKV": "h_?kv|h_?k|kv_?heads|n(um)?_?kv_?heads|n(um)?_?heads?_?kv?|heads_?kv?",
    "H": "h|h_?q|nh|heads?|n(um)?_?(q_?)?heads?(_?q)?|heads_?q|head_?num|q_?heads",
    "SKV": "s_?kv|s_?k|n_?kv|n_?k|l_?kv|l_?k|t_?kv|t_?k|kv_?len|len_?kv?|seq_?(len)?_?kv?|seqlens?_?kv?",
    "SQ": "s_?q|n_?q|l_?q|t_?q|q_?len|len_?q|seq_?(len)?_?q|seqlens?_?q",
    "S": "n|s|l|t|seq|seq_?len|seq_?length|sequence_?length|n_?ctx|ctx|length|tokens|n(um)?_?tokens|context(_?len)?",
    "D": "d|dim|hd|dh|d_?k|d_?h|head_?dim|d_?head|head_?size|dim_?head|head_?dimension|hdim|c",
}
_ORDER = ("B", "BH", "H", "D", "S", "SQ", "HKV", "SKV")
"""The most frequent meaning of a name is matched first: `num_heads` is H before it is a spelling of HKV."""
SCALES = re.compile(r"(softmax_?|sm_?|attn_?|qk_?)?scale|scaling|scale_factor|inv_sqrt_d|softmax_temp", re.IGNORECASE)
CAUSAL = re.compile(r"(is_?|use_?)?causal(_?mask)?(_?flag)?", re.IGNORECASE)


def size_role(name: str) -> str:
    """Return the size that a name means: `seq_len` → S, `num_kv_heads` → HKV; empty: not a size of attention."""
    for role in _ORDER:
        if re.fullmatch(_SIZES[role], name, re.IGNORECASE):
            return role
    return ""
