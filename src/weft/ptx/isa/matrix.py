"""Warp-level matrix instructions: wmma, mma, ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14)."""

from dataclasses import replace
from functools import partial

from .facts import Access, Facts
from .form import Form, form

_TOGETHER = partial(Facts, group="warp", result="lane")
_load = partial(form, "matrix", _TOGETHER(accesses=(Access("load", "a", "tile", "d"),)), "9.7.14.4.3")
_store = partial(form, "matrix", _TOGETHER(accesses=(Access("store", "a", "tile", "b"),)), "9.7.14.4.4")
_wmma = partial(form, "matrix", _TOGETHER(numbers=("c",), multiplies="wmma"), "9.7.14.4.5")
_MMA = _TOGETHER(numbers=("c",), multiplies="mma")
_mma = partial(form, "matrix", _MMA, "9.7.14.5.14")
_mma_fp8 = partial(form, "matrix", replace(_MMA, target="sm_89"), "9.7.14.5.14")
_mma_sm90 = partial(form, "matrix", replace(_MMA, target="sm_90"), "9.7.14.5.14")
_mma_sm120a = partial(form, "matrix", replace(_MMA, target="sm_120a"), "9.7.14.5.14")
_LOADED_ROWS = (Access("load", "a", "row", "d", only="shared"),)
_rows = partial(form, "matrix", _TOGETHER(accesses=_LOADED_ROWS))
_small_rows = partial(form, "matrix", _TOGETHER(accesses=_LOADED_ROWS, target="sm_100a+"))
_STORED_ROWS = (Access("store", "a", "row", "b", only="shared"),)
_store_rows = partial(form, "matrix", _TOGETHER(accesses=_STORED_ROWS, target="sm_90"))
_transpose = partial(form, "matrix", _TOGETHER())
_WMMA = "m16n16k16 m32n8k16 m8n32k16"
_SPACE = "global shared shared::cta"
_LAYOUT = {"alayout": "row col", "blayout": "row col"}
_FP8 = "e4m3 e5m2"
_F8F6F4 = "e4m3 e5m2 e3m2 e2m3 e2m1"
_SCALED = " *d:b32, *a:b32, *b:b32, *c:b32, *scale_a:b32, *select_a:u16, *scale_b:b32, *select_b:u16"
_E2M1 = {"shape": "m16n8k64", "dtype": "f32", "atype": "e2m1", "btype": "e2m1", "ctype": "f32"}
_ABC = " *d:b32, *a:b32, *b:b32, *c:b32"
_DOUBLES = " *d:b64, *a:b64, *b:b64, *c:b64"
_F64 = {"dtype": "f64", "atype": "f64", "btype": "f64", "ctype": "f64", "rnd": "rn rz rm rp"}

ROWS: tuple[Form, ...] = (
    _load("wmma.load.which.sync.aligned.layout.shape{.space}.type *d:b32, [a]; stride:u32", which="a b",
       layout="row col", shape=_WMMA, space=_SPACE, type="f16 bf16 s8 u8"),
    _load("wmma.load.which.sync.aligned.layout.shape{.space}.tf32 *d:b32, [a]; stride:u32", which="a b",
       layout="row col", shape="m16n16k8", space=_SPACE),
    _load("wmma.load.c.sync.aligned.layout.shape{.space}.type *d:b32, [a]; stride:u32", layout="row col",
       shape=f"{_WMMA} m16n16k8", space=_SPACE, type="f16 f32 s32"),
    _store("wmma.store.d.sync.aligned.layout.shape{.space}.type [a], *b:b32; stride:u32", layout="row col",
       shape=f"{_WMMA} m16n16k8", space=_SPACE, type="f16 f32 s32"),
    _load("wmma.load.which.sync.aligned.layout.shape{.space}.type *d:b64, [a]; stride:u32", which="a b c",
       layout="row col", shape="m8n8k4", space=_SPACE, type="f64"),
    _store("wmma.store.d.sync.aligned.layout.shape{.space}.type [a], *b:b64; stride:u32", layout="row col",
       shape="m8n8k4", space=_SPACE, type="f64"),
    _wmma("wmma.mma.sync.aligned.alayout.blayout.shape.dtype.ctype" + _ABC, shape=_WMMA,
       dtype="f16 f32", ctype="f16 f32", **_LAYOUT),
    _wmma("wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype" + _ABC,
       shape=_WMMA, dtype="f32", atype="bf16", btype="bf16", ctype="f32", **_LAYOUT),
    _wmma("wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype{.satfinite}" + _ABC,
       shape=_WMMA, dtype="s32", atype="s8 u8", btype="s8 u8", ctype="s32", **_LAYOUT),
    _wmma("wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype" + _ABC,
       shape="m16n16k8", dtype="f32", atype="tf32", btype="tf32", ctype="f32", **_LAYOUT),
    _wmma("wmma.mma.sync.aligned.alayout.blayout.shape{.rnd}.dtype.atype.btype.ctype" + _DOUBLES,
       shape="m8n8k4", **_F64, **_LAYOUT),
    _mma("mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k8 m16n8k16", dtype="f16 f32", atype="f16", btype="f16", ctype="f16 f32"),
    _mma("mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k8 m16n8k16", dtype="f32", atype="bf16", btype="bf16", ctype="f32"),
    _mma("mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k4 m16n8k8", dtype="f32", atype="tf32", btype="tf32", ctype="f32"),
    _mma_fp8("mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k32", dtype="f16 f32", atype=_FP8, btype=_FP8, ctype="f16 f32"),
    _mma_sm120a("mma.sync.aligned.shape.row.col.kind.dtype.atype.btype.ctype" + _ABC, shape="m16n8k32",
       kind="kind::f8f6f4", dtype="f16 f32", atype=_F8F6F4, btype=_F8F6F4, ctype="f16 f32"),
    _mma_sm120a("mma.sync.aligned.shape.row.col.kind.block_scale{.scale_vec}.dtype.atype.btype.ctype.stype" + _SCALED,
       shape="m16n8k32", kind="kind::mxf8f6f4", scale_vec="scale_vec::1X", dtype="f32", atype=_F8F6F4, btype=_F8F6F4,
       ctype="f32", stype="ue8m0"),
    _mma_sm120a("mma.sync.aligned.shape.row.col.kind.block_scale{.scale_vec}.dtype.atype.btype.ctype.stype" + _SCALED,
       kind="kind::mxf4", scale_vec="scale_vec::2X", stype="ue8m0", **_E2M1),
    _mma_sm120a("mma.sync.aligned.shape.row.col.kind.block_scale.scale_vec.dtype.atype.btype.ctype.stype" + _SCALED,
       kind="kind::mxf4nvf4", scale_vec="scale_vec::2X scale_vec::4X", stype="ue8m0", **_E2M1),
    _mma_sm120a("mma.sync.aligned.shape.row.col.kind.block_scale.scale_vec.dtype.atype.btype.ctype.stype" + _SCALED,
       kind="kind::mxf4nvf4", scale_vec="scale_vec::4X", stype="ue4m3", **_E2M1),
    _mma("mma.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype" + _ABC,
       shape="m16n8k16 m16n8k32", dtype="s32", atype="s8 u8", btype="s8 u8", ctype="s32"),
    _mma("mma.sync.aligned.shape.row.col{.rnd}.dtype.atype.btype.ctype" + _DOUBLES, shape="m8n8k4", **_F64),
    _mma_sm90("mma.sync.aligned.shape.row.col{.rnd}.dtype.atype.btype.ctype" + _DOUBLES,
       shape="m16n8k4 m16n8k8 m16n8k16", **_F64),
    _rows("9.7.14.5.15", "ldmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 *d:b32, [a]", num="x1 x2 x4",
       space="shared shared::cta"),
    _small_rows("9.7.14.5.15", "ldmatrix.sync.aligned.m16n16.num.trans{.space}.b8 *d:b32, [a]", num="x1 x2",
       space="shared shared::cta"),
    _small_rows("9.7.14.5.15", "ldmatrix.sync.aligned.m16n16.num.trans{.space}.b8x16.source *d:b32, [a]", num="x1 x2",
       space="shared shared::cta", source="b6x16_p32 b4x16_p64"),
    _small_rows("9.7.14.5.15", "ldmatrix.sync.aligned.m8n16.num{.space}.b8x16.source *d:b32, [a]", num="x1 x2 x4",
       space="shared shared::cta", source="b6x16_p32 b4x16_p64"),
    _store_rows("9.7.14.5.16", "stmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 [a], *b:b32", num="x1 x2 x4",
       space="shared shared::cta"),
    _transpose("9.7.14.5.17", "movmatrix.sync.aligned.m8n8.trans.b16 d:b32, a:b32"),
)  # fmt: skip
