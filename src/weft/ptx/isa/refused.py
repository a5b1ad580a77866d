"""Instructions that Weft recognises but does not run: which architecture they need, and what to do instead."""

_ELSEWHERE = 'compile with arch="sm_89": the compiler then does not use it'
_NEEDS: tuple[tuple[str, str], ...] = (
    ("wgmma.", "this form of the warpgroup tensor cores needs sm_90a"),
    ("tcgen05.", "fifth-generation tensor cores need sm_100a"),
    ("cp.async.bulk", "this form of bulk and tensor copies (TMA: im2col, scatter4, between CTAs) needs sm_90"),
    ("cp.reduce.async", "this form of bulk reductions (TMA) needs sm_90"),
    ("tensormap.", "this form of tensor maps (TMA) needs sm_90"),
    ("mbarrier.", "this form of mbarrier needs sm_90"),
    ("%cluster", "clusters need sm_90"),
    ("%ncluster", "clusters need sm_90"),
    ("%is_explicit_cluster", "clusters need sm_90"),
    ("st.async", "this form of asynchronous stores needs sm_90"),
    ("red.async", "this form of asynchronous reductions needs sm_90"),
    ("multimem.", "multicast memory needs sm_90 and several GPUs"),
    ("fence.proxy", "the asynchronous proxy needs sm_90"),
    ("stmatrix.", "stmatrix of bytes needs sm_100a"),
)


def refusal(opcode: str) -> str:
    """Return the message for an opcode or special register that has no row in the ISA table."""
    for start, needs in _NEEDS:
        if opcode.startswith(start):
            return f"{opcode}: {needs}, and Weft does not run it; {_ELSEWHERE}"
    if "shared::cluster" in opcode:
        return f"{opcode}: this form of shared::cluster needs sm_90, and Weft does not run it; {_ELSEWHERE}"
    return opcode
