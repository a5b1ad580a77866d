"""Warp-level matrix instructions: wmma, mma, ldmatrix, movmatrix (PTX ISA 9.7.14)."""

from functools import partial

from .form import Form, form

_f = partial(form, "matrix")
_WMMA = "m16n16k16 m32n8k16 m8n32k16"
_SPACE = "global shared shared::cta"
_LAYOUT = {"alayout": "row col", "blayout": "row col"}
_FP8 = "e4m3 e5m2"
_ABC = " *d:b32, *a:b32, *b:b32, *c:b32"

ROWS: tuple[Form, ...] = (
    _f("9.7.14.4.3", "wmma.load.which.sync.aligned.layout.shape{.space}.type *d:b32, [a]; stride:u32", which="a b",
       layout="row col", shape=_WMMA, space=_SPACE, type="f16 bf16 s8 u8"),
    _f("9.7.14.4.3", "wmma.load.which.sync.aligned.layout.shape{.space}.tf32 *d:b32, [a]; stride:u32", which="a b",
       layout="row col", shape="m16n16k8", space=_SPACE),
    _f("9.7.14.4.3", "wmma.load.c.sync.aligned.layout.shape{.space}.type *d:b32, [a]; stride:u32", layout="row col",
       shape=f"{_WMMA} m16n16k8", space=_SPACE, type="f16 f32 s32"),
    _f("9.7.14.4.4", "wmma.store.d.sync.aligned.layout.shape{.space}.type [a], *b:b32; stride:u32", layout="row col",
       shape=f"{_WMMA} m16n16k8", space=_SPACE, type="f16 f32 s32"),
    _f("9.7.14.4.5", "wmma.mma.sync.aligned.alayout.blayout.shape.dtype.ctype" + _ABC, shape=_WMMA,
       dtype="f16 f32", ctype="f16 f32", **_LAYOUT),
    _f("9.7.14.4.5", "wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype" + _ABC,
       shape=_WMMA, dtype="f32", atype="bf16", btype="bf16", ctype="f32", **_LAYOUT),
    _f("9.7.14.4.5", "wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype{.satfinite}" + _ABC,
       shape=_WMMA, dtype="s32", atype="s8 u8", btype="s8 u8", ctype="s32", **_LAYOUT),
    _f("9.7.14.4.5", "wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype" + _ABC,
       shape="m16n16k8", dtype="f32", atype="tf32", btype="tf32", ctype="f32", **_LAYOUT),
    _f("9.7.14.5.14", "mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k8 m16n8k16", dtype="f16 f32", atype="f16", btype="f16", ctype="f16 f32"),
    _f("9.7.14.5.14", "mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k8 m16n8k16", dtype="f32", atype="bf16", btype="bf16", ctype="f32"),
    _f("9.7.14.5.14", "mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k4 m16n8k8", dtype="f32", atype="tf32", btype="tf32", ctype="f32"),
    _f("9.7.14.5.14", "mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k32", dtype="f16 f32", atype=_FP8, btype=_FP8, ctype="f16 f32"),
    _f("9.7.14.5.14", "mma.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k16 m16n8k32", dtype="s32", atype="s8 u8", btype="s8 u8", ctype="s32"),
    _f("9.7.14.5.14", "mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype *d:b64, *a:b64, *b:b64, *c:b64",
       shape="m8n8k4", dtype="f64", atype="f64", btype="f64", ctype="f64"),
    _f("9.7.14.5.15", "ldmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 *d:b32, [a]", num="x1 x2 x4",
       space="shared shared::cta"),
    # Not the manual's order, but ptxas accepts it: FlashInfer's headers write the first, CUTLASS' the second.
    _f("9.7.14.5.15", "ldmatrix.sync.aligned.trans.m8n8.num{.space}.b16 *d:b32, [a]", num="x1 x2 x4",
       space="shared shared::cta"),
    _f("9.7.14.5.15", "ldmatrix.sync.aligned.num{.trans}.m8n8{.space}.b16 *d:b32, [a]", num="x1 x2 x4",
       space="shared shared::cta"),
    _f("9.7.14.5.17", "movmatrix.sync.aligned.m8n8.trans.b16 d:b32, a:b32"),
)  # fmt: skip
