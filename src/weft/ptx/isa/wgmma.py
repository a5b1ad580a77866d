"""Matrix products of a warpgroup, four warps (PTX ISA 9.7.15). B, and A if it is no list of registers, are descriptors.

The manual's imm-trans-a is `trans` if A is a descriptor; otherwise `trans` is its imm-trans-b.
"""

from dataclasses import replace
from functools import partial

from .facts import Facts
from .form import Form, form

_MULTIPLY = Facts(group="warp", result="lane", multiplies="wgmma", updates=("d",), target="sm_90a")
_wgmma = partial(form, "wgmma", _MULTIPLY, "9.7.15.5.2")
_FENCE, _COMMIT = Facts(orders="fence", target="sm_90a"), Facts(orders="commit", target="sm_90a")
_WAIT = Facts(orders="wait", target="sm_90a")
_OPCODE = "wgmma.mma_async.sync.aligned.shape.dtype.atype.btype"
_D_A_B = " *d:b32, *a:b64, b:b64, go:pred"


def _shapes(k: int) -> str:
    return " ".join(f"m64n{n}k{k}" for n in range(8, 257, 8))


_INTEGER_SHAPES = " ".join(f"m64n{n}k32" for n in (8, 16, 24, *range(32, 257, 16)))

COMPLETE = form("wgmma", replace(_WAIT, result="lane"), "9.7.15.7.3", "wgmma.wait_group.sync.aligned p:pred, count:u32")
"""Not in the manual: it returns whether all warps of the group have issued their products (`passes/give_way.py`)."""

ROWS: tuple[Form, ...] = (
    _wgmma(f"{_OPCODE}{_D_A_B}, scale_a:s32, scale_b:s32, trans:s32; trans_b:s32", shape=_shapes(16),
       dtype="f16 f32", atype="f16", btype="f16"),
    _wgmma(f"{_OPCODE}{_D_A_B}, scale_a:s32, scale_b:s32, trans:s32; trans_b:s32", shape=_shapes(16),
       dtype="f32", atype="bf16", btype="bf16"),
    _wgmma(f"{_OPCODE}{_D_A_B}, scale_a:s32, scale_b:s32", shape=_shapes(8), dtype="f32", atype="tf32", btype="tf32"),
    _wgmma(f"{_OPCODE}{_D_A_B}, scale_a:s32, scale_b:s32", shape=_shapes(32), dtype="f16 f32", atype="e4m3 e5m2",
       btype="e4m3 e5m2"),
    _wgmma(f"wgmma.mma_async.sync.aligned.shape{{.satfinite}}.dtype.atype.btype{_D_A_B}", shape=_INTEGER_SHAPES,
       dtype="s32", atype="s8 u8", btype="s8 u8"),
    form("wgmma", _FENCE, "9.7.15.7.1", "wgmma.fence.sync.aligned"),
    form("wgmma", _COMMIT, "9.7.15.7.2", "wgmma.commit_group.sync.aligned"),
    form("wgmma", _WAIT, "9.7.15.7.3", "wgmma.wait_group.sync.aligned count:u32"),
)  # fmt: skip
