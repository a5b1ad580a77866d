"""Special registers that the virtual GPU supports (PTX ISA 10), with their types. Any other name is unsupported."""

CLUSTERS = {
    **{f"%{name}id.{axis}": "u32" for name in ("cluster", "ncluster", "cluster_cta", "cluster_ncta") for axis in "xyz"},
    "%cluster_ctarank": "u32",
    "%cluster_nctarank": "u32",
}
"""Special registers that sm_90 and later have."""
SPECIALS = {
    **CLUSTERS,
    **{f"%{name}.{axis}": "u32" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"},
    "%laneid": "u32",
    "%warpid": "u32",
    "%nwarpid": "u32",
    "%smid": "u32",
    "%nsmid": "u32",
    "%gridid": "u64",
    **{f"%lanemask_{name}": "u32" for name in ("eq", "le", "lt", "ge", "gt")},
    "%clock": "u32",
    "%clock_hi": "u32",
    "%clock64": "u64",
    "%globaltimer": "u64",
    "%globaltimer_lo": "u32",
    "%globaltimer_hi": "u32",
    "%dynamic_smem_size": "u32",
    "%total_smem_size": "u32",
    # The system's part of shared memory, where cooperative groups of several warps synchronise. Debug builds read its
    # address whenever they make a group.
    **{f"%reserved_smem_offset_{name}": "u32" for name in ("begin", "end", "cap", "0", "1")},
    # Address of the workspace of a cooperative launch, high and low half, as cooperative groups use them.
    "%envreg1": "u32",
    "%envreg2": "u32",
}
