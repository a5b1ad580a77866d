"""Bulk copies, tensor copies and tensor maps (PTX ISA 9.7.9.25.4 to 9.7.9.28): runs of bytes, and tiles.

`*coordinates` is inside the brackets of the address before it: `[map, {c0, c1}]`.
"""

from functools import partial

from .facts import Access, Facts
from .form import Form, form

_TO_SHARED = Access("store", "dst", "size", only="shared")
_FROM_SHARED = Access("load", "src", "size", only="shared")
_MAP = Access("load", "map", "tile", holds="tensor map")
_BYTES = Access("atomic", "mbar", 8, only="shared", holds="bytes")
_LOADS = Facts(
    accesses=(_TO_SHARED, Access("load", "src", "size", only="global"), _BYTES), starts="bulk", target="sm_90"
)
_STORES = Facts(accesses=(Access("store", "dst", "size", only="global"), _FROM_SHARED), starts="bulk", target="sm_90")
_TILE_LOADS = Facts(
    accesses=(Access("store", "dst", "tile", only="shared"), _MAP, _BYTES), starts="bulk", target="sm_90"
)
_TILE_STORES = Facts(accesses=(_MAP, Access("load", "src", "tile", only="shared")), starts="bulk", target="sm_90")
_REDUCES = Facts(accesses=(Access("atomic", "dst", "size", only="global"), _FROM_SHARED), starts="bulk", target="sm_90")
_load = partial(form, "bulk", _LOADS, "9.7.9.25.4.1")
_store = partial(form, "bulk", _STORES, "9.7.9.25.4.1")
_reduce = partial(form, "bulk", _REDUCES, "9.7.9.25.4.2")
_prefetch = partial(
    form, "bulk", Facts(accesses=(Access("prefetch", "src", 0),), starts="bulk", target="sm_90"), "9.7.9.25.4.3"
)
_tile_load = partial(form, "bulk", _TILE_LOADS, "9.7.9.25.5.2")
# The manual has gather4 from sm_100 on; ptxas 13.4 refuses it for sm_90.
_GATHERS = Facts(accesses=_TILE_LOADS.accesses, starts="bulk", target="sm_100")
_tile_store = partial(form, "bulk", _TILE_STORES, "9.7.9.25.5.2")
_TILE_REDUCES = Facts(
    accesses=(Access("atomic", "map", "tile", only="global"), Access("load", "src", "tile", only="shared")),
    starts="bulk",
    target="sm_90",
)
_tile_reduce = partial(form, "bulk", _TILE_REDUCES, "9.7.9.25.5.3")
_tile_prefetch = partial(
    form, "bulk", Facts(accesses=(Access("prefetch", "map", 0),), starts="bulk", target="sm_90"), "9.7.9.25.5.4"
)
_settle = partial(form, "bulk", Facts(settles="bulk", target="sm_90"))
# ptxas has it for sm_90a and, from sm_100 on, for the targets that are specific to an architecture.
_FIELD = Facts(accesses=(Access("store", "a", "tile", holds="tensor map"),), target="sm_90a+")
_replace = partial(form, "bulk", _FIELD, "9.7.9.28")
_HANDS_OVER = (Access("store", "dst", 128, holds="tensor map"), Access("load", "src", 128, holds="tensor map"))
_hand_over = partial(form, "bulk", Facts(accesses=_HANDS_OVER, fences_map="release", target="sm_90"), "9.7.13.15.18")

_NEAR = "shared::cta shared::cluster"
_DIMS = "1d 2d 3d 4d 5d"
_OPS = {"and": "b32 b64", "or": "b32 b64", "xor": "b32 b64", "inc": "u32", "dec": "u32", "add": "u32 s32 u64 f32 f64",
        "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64"}  # fmt: skip
_HINT = "{.L2::cache_hint}"
_SIGNAL = "mbarrier::complete_tx::bytes"
_TO_ALL = "multicast::cluster"
_TILES = "tensor.dim.space.global"
_AWAY = "tensor.dim.global.shared::cta"
_PLACE = {"space": "global shared::cta"}

ROWS: tuple[Form, ...] = (
    _load(f"cp.async.bulk.space.global.{_SIGNAL}{_HINT} [dst], [src], size:u32, [mbar]; cache:b64", space=_NEAR),
    _load(f"cp.async.bulk.space.global.{_SIGNAL}.{_TO_ALL}{_HINT} [dst], [src], size:u32, [mbar], ctas:u16; cache:b64",
       space="shared::cluster"),
    _store(f"cp.async.bulk.global.shared::cta.bulk_group{_HINT} [dst], [src], size:u32; cache:b64"),
    _prefetch(f"cp.async.bulk.prefetch.L2.global{_HINT} [src], size:u32; cache:b64"),
    *(_reduce(f"cp.reduce.async.bulk.global.shared::cta.bulk_group{_HINT}.{op}.type [dst], [src], size:u32; cache:b64",
       type=types) for op, types in _OPS.items()),
    _reduce(f"cp.reduce.async.bulk.global.shared::cta.bulk_group{_HINT}.add.noftz.type [dst], [src], size:u32; "
       "cache:b64", type="f16 bf16"),
    _tile_load(f"cp.async.bulk.{_TILES}{{.tile}}.{_SIGNAL}{_HINT} [dst], [map], *coordinates:s32, [mbar]; cache:b64",
       space=_NEAR, dim=_DIMS),
    _tile_load(f"cp.async.bulk.{_TILES}{{.tile}}.{_SIGNAL}.{_TO_ALL}{_HINT} [dst], [map], *coordinates:s32, [mbar], "
       "ctas:u16; cache:b64", space="shared::cluster", dim=_DIMS),
    form("bulk", _GATHERS, "9.7.9.25.5.2", f"cp.async.bulk.tensor.2d.space.global.tile::gather4.{_SIGNAL}{_HINT} "
       "[dst], [map], *coordinates:s32, [mbar]; cache:b64", space=_NEAR),
    _tile_store(f"cp.async.bulk.{_AWAY}{{.tile}}.bulk_group{_HINT} [map], *coordinates:s32, [src]; cache:b64",
       dim=_DIMS),
    _tile_reduce(f"cp.reduce.async.bulk.{_AWAY}.op{{.tile}}.bulk_group{_HINT} [map], *coordinates:s32, [src]; "
       "cache:b64", dim=_DIMS, op=" ".join(_OPS)),
    _tile_prefetch(f"cp.async.bulk.prefetch.tensor.dim.L2.global{{.tile}}{_HINT} [map], *coordinates:s32; cache:b64",
       dim=_DIMS),
    _settle("9.7.9.25.4.4", "cp.async.bulk.commit_group"),
    _settle("9.7.9.25.4.5", "cp.async.bulk.wait_group{.read} count:u32"),
    _replace("tensormap.replace.tile.field{.space}.b1024.b64 [a], value:b64", field="global_address", **_PLACE),
    _replace("tensormap.replace.tile.field{.space}.b1024.b64 [a], ordinal:u32, value:b64", field="global_stride",
       **_PLACE),
    _replace("tensormap.replace.tile.field{.space}.b1024.b32 [a], value:b32",
       field="rank elemtype interleave_layout swizzle_mode fill_mode", **_PLACE),
    _replace("tensormap.replace.tile.field{.space}.b1024.b32 [a], ordinal:u32, value:b32",
       field="box_dim global_dim element_stride", **_PLACE),
    _hand_over("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned "
       "[dst], [src], size:u32", scope="cta cluster gpu sys"),
)  # fmt: skip
