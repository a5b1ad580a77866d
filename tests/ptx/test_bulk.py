"""Bulk and tensor copies on both engines: boxes, swizzles, borders, reductions, groups, maps made by kernels, misuse.

Expected boxes are cut out of a padded NumPy array. A swizzle is written as a permutation of the 16-byte pieces of a
row: piece j of row r of 128 bytes is at piece j ^ (r % 8), and so on.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.ptx.bulk_kernels import AREA, DUMP, FILL, WAIT, MapOf, Ran, run, run_one
from weft.core.errors import LaunchError, Unsupported, WeftError
from weft.ptx.parse import parse
from weft.vm.tensor_map import TYPES, TensorMap, decode, of_array

Array = npt.NDArray[Any]
SIGNAL = "mbarrier::complete_tx::bytes"
DTYPES: dict[str, Any] = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
}  # fmt: skip
SIZES = {"add": "u32 s32 u64 f32 f64", "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64", "inc": "u32", "dec": "u32",
         "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64"}  # fmt: skip
LINEAR = [(op, kind) for op, kinds in SIZES.items() for kind in kinds.split()] + [
    ("add.noftz", "f16"),
    ("add.noftz", "bf16"),
]
OPCODES = [
    *(f"cp.async.bulk.{space}.global.{SIGNAL}" for space in ("shared::cta", "shared::cluster")),
    "cp.async.bulk.global.shared::cta.bulk_group",
    "cp.async.bulk.prefetch.L2.global",
    *(f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{kind}" for op, kind in LINEAR),
    *(f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.{SIGNAL}.L2::cache_hint" for rank in range(1, 6)),
    f"cp.async.bulk.shared::cluster.global.{SIGNAL}.multicast::cluster",
    f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.{SIGNAL}.multicast::cluster",
    f"cp.async.bulk.tensor.2d.tile::gather4.shared::cta.global.{SIGNAL}",
    *(f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group" for rank in range(1, 6)),
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group",
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "cp.async.bulk.wait_group.read",
    *(f"tensormap.replace.tile.{field}.shared::cta.b1024.b64" for field in ("global_address", "global_stride")),
    *(f"tensormap.replace.tile.{field}.shared::cta.b1024.b32" for field in ("rank", "box_dim")),
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned",
]
NOTHING = np.zeros(AREA, np.uint8)
READY = """
  @%first mbarrier.init.shared::cta.b64 [%bar], 1;
  bar.sync 0;
"""


def _coordinates(at: tuple[int, ...]) -> str:
    return "{" + ", ".join(str(c) for c in at) + "}"


def _load(at: tuple[int, ...], size: int) -> str:
    """Return a load by thread 0 and a wait by all."""
    rank = len(at)
    return f"""{READY}
      @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {size};
      @%first cp.async.bulk.tensor.{rank}d.shared::cta.global.{SIGNAL}
        [%area], [%rd0, {_coordinates(at)}], [%bar];
      {WAIT.format(n=0, bar="%bar", parity=0)}"""


def _swizzled(box: Array, width: int) -> Array:
    """Return the bytes of a box as a swizzle of `width` bytes places them in shared memory."""
    flat = np.ascontiguousarray(box).reshape(-1).view(np.uint8)
    if not width:
        return flat
    rows = flat.reshape(-1, width // 16, 16)
    per_line = 128 // width
    turn = np.arange(len(rows)) // per_line % (width // 16)
    out = np.empty_like(rows)
    for piece in range(width // 16):
        out[np.arange(len(rows)), piece ^ turn] = rows[:, piece]
    return out.reshape(-1)


def _cut(tensor: Array, at: tuple[int, ...], counts: tuple[int, ...], steps: tuple[int, ...], fill: Any) -> Array:
    """Return the box at coordinates that may be outside; `at` begins with the innermost dimension."""
    margin = 600
    out = tensor
    for axis, (first, count, step) in enumerate(zip(at[::-1], counts[::-1], steps[::-1], strict=True)):
        padding = [(0, 0)] * out.ndim
        padding[axis] = (margin, margin)
        out = np.pad(out, padding, constant_values=fill)
        start = int(np.clip(first, -margin, tensor.shape[axis])) + margin
        out = np.take(out, range(start, start + count * step, step), axis=axis, mode="clip")
    return out


@dataclass(frozen=True)
class Box:
    """A tensor, and a box of it."""

    shape: tuple[int, ...]
    """Outermost dimension first."""
    box: tuple[int, ...]
    at: tuple[int, ...]
    """Coordinates, the innermost first."""
    type: str = "f16"
    width: int = 0
    steps: tuple[int, ...] = ()
    nan: bool = False
    pitch: int = 0
    """Elements of a row of memory, if more than the tensor's."""

    @property
    def tensor(self) -> Array:
        rng = np.random.default_rng(5)
        whole = (*self.shape[:-1], max(self.pitch, self.shape[-1]))
        return rng.integers(1, 100, whole).astype(DTYPES[self.type])

    def map(self, address: int) -> TensorMap:
        whole = self.tensor
        strides = [stride // whole.itemsize for stride in whole.strides]
        made = of_array(
            address, self.shape, strides, self.box, TYPES.index(self.type),
            swizzle={0: 0, 32: 1, 64: 2, 128: 3}[self.width], fill=int(self.nan),
        )  # fmt: skip
        return made if not self.steps else TensorMap(**{**made.__dict__, "steps": self.steps})

    def expected(self, tensor: Array) -> Array:
        counts = tuple(-(-size // step) for size, step in zip(self.box[::-1], self._steps, strict=True))
        fill = np.nan if self.nan else 0
        inside = tensor[..., : self.shape[-1]]
        found = _cut(inside, self.at, counts, self._steps, fill)
        if self.nan:
            bits = f"u{found.itemsize}"
            outside = np.isnan(found.astype(np.float64))
            found = found.copy()
            found.view(bits)[outside] = (1 << 8 * found.itemsize - 1) - 1
        return found

    @property
    def _steps(self) -> tuple[int, ...]:
        return (1, *self.steps[1:]) if self.steps else (1,) * len(self.box)


BOXES = [
    Box((4096,), (256,), (128,), "u8"),
    Box((100,), (64,), (72,), "f32"),
    Box((100,), (64,), (-8,), "u16"),
    Box((64, 64), (64, 64), (0, 0), "f16", 128),
    Box((40, 100), (16, 64), (56, 30), "bf16", 128, pitch=104),
    Box((40, 96), (32, 32), (-5, -3), "f16", 64),
    Box((40, 96), (24, 16), (88, 20), "f16", 32),
    Box((33, 44), (8, 32), (20, 27), "f32", 128, nan=True, pitch=48),
    Box((20, 24), (8, 8), (17, 15), "f16", nan=True),
    Box((10, 8), (4, 2), (7, 8), "f64", 0, nan=True),
    Box((6, 20, 40), (3, 8, 32), (16, -4, 4), "f16", 64),
    Box((3, 4, 10, 32), (2, 2, 4, 16), (24, 7, 3, 2), "u32"),
    Box((2, 3, 4, 5, 32), (2, 2, 2, 2, 32), (8, 4, 3, 2, 1), "u8", 32),
    Box((30, 30, 16), (9, 10, 16), (0, 3, 1), "s32", 0, steps=(1, 3, 2)),
    Box((20, 64), (8, 64), (0, 100), "f16", 128),
    Box((20, 64), (8, 64), (-64, 0), "f16", 128),
    Box((8, 32), (4, 16), (2_000_000_000, -2_000_000_000), "s64", 0),
]


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_a_load_moves_a_box_and_fills_what_is_outside(box: Box) -> None:
    tensor = box.tensor
    expected = _swizzled(box.expected(tensor), box.width)
    body = _load(box.at, expected.nbytes) + DUMP
    ran = run(body, {"x": tensor, "out": NOTHING}, {"m": lambda at: box.map(at["x"])}, schedules=(1, 2))
    assert not ran.findings
    np.testing.assert_array_equal(ran.buffers["out"][: expected.nbytes], expected)
    assert (ran.buffers["out"][expected.nbytes :] == 0xFF).all(), "nothing else is written"


@pytest.mark.parametrize("box", [box for box in BOXES if not box.nan], ids=str)
def test_a_store_writes_only_inside_the_tensor(box: Box) -> None:
    tensor = box.tensor
    counts = box.expected(tensor).shape
    given = np.random.default_rng(6).integers(100, 120, counts).astype(tensor.dtype)
    area = np.zeros(AREA, np.uint8)
    bytes_ = _swizzled(given, box.width)
    area[: bytes_.nbytes] = bytes_
    body = f"""{FILL} fence.proxy.async.shared::cta;
      @%first cp.async.bulk.tensor.{len(box.at)}d.global.shared::cta.bulk_group [%rd0, {_coordinates(box.at)}], [%area];
      cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    ran = run(body, {"x": tensor, "area_in": area}, {"m": lambda at: box.map(at["x"])}, schedules=(1, 2))
    assert not ran.findings
    expected = tensor.copy()
    for index in np.ndindex(*counts):
        place = tuple(first + j * step for first, j, step in zip(box.at[::-1], index, box._steps[::-1], strict=True))
        if all(0 <= c < size for c, size in zip(place, box.shape, strict=True)):
            expected[place] = given[index]
    np.testing.assert_array_equal(ran.buffers["x"], expected)


def _reduced(op: str, kind: str, old: Array, new: Array) -> Array:
    match op.partition(".")[0]:
        case "add" if kind == "f32":  # subnormals are flushed
            tiny = np.finfo(np.float32).tiny

            def flushed(value: Array) -> Array:
                return np.where(np.abs(value) < tiny, np.copysign(np.float32(0), value), value).astype(np.float32)

            return flushed(flushed(old) + flushed(new))
        case "add":
            return old + new
        case "min":
            return np.minimum(old, new)
        case "max":
            return np.maximum(old, new)
        case "inc":
            return np.where(old >= new, 0, old + 1).astype(old.dtype)
        case "dec":
            return np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype)
        case "and":
            return old & new
        case "or":
            return old | new
    return old ^ new


def _numbers(kind: str, count: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    dtype = DTYPES[kind.replace("b32", "u32").replace("b64", "u64")]
    if "f" in kind:
        values = (rng.standard_normal(count) * 2.0 ** rng.integers(-4, 4, count)).astype(dtype)
        if kind == "f32":
            values[:8] = np.array([1e-40, -1e-40, 1e-38, -1.1e-38, 0, -0.0, np.inf, 1e38], np.float32)
        return values
    return rng.integers(0, 50, count).astype(dtype)


@pytest.mark.parametrize(("op", "kind"), LINEAR)
def test_reductions_of_runs_and_boxes(op: str, kind: str) -> None:
    old, new = _numbers(kind, 64, 1), _numbers(kind, 64, 2)
    area = np.zeros(AREA, np.uint8)
    area[: new.nbytes] = new.view(np.uint8)
    run_of_bytes = f"""ld.param.u64 %rd5, [x];
      @%first cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{kind} [%rd5], [%area], {new.nbytes};"""
    element = kind.replace("b32", "u32").replace("b64", "u64")
    box = Box((5, 16), (4, 16), (3, 1), element)
    of_boxes = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op.partition('.')[0]}.bulk_group"
    tile = f"@%first {of_boxes} [%rd0, {{3, 1}}], [%area];"
    body = f"""{FILL} {run_of_bytes} {tile}
      cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"""
    tensor = _numbers(kind, 80, 3).reshape(5, 16)
    buffers = {"x": old, "y": tensor, "area_in": area}
    ran = run(body, buffers, {"m": lambda at: box.map(at["y"])})
    assert not ran.findings
    bits = f"u{old.itemsize}"
    np.testing.assert_array_equal(ran.buffers["x"].view(bits), _reduced(op, kind, old, new).view(bits))
    expected = tensor.copy()
    expected[1:5, 3:16] = _reduced(op, kind, tensor[1:5, 3:16], new.reshape(4, 16)[:, :13])
    np.testing.assert_array_equal(ran.buffers["y"].view(bits), expected.view(bits))


def test_runs_of_bytes_prefetches_and_cache_policies() -> None:
    x = np.arange(1024, dtype=np.uint8)
    body = f"""{READY} ld.param.u64 %rd5, [x]; ld.param.u64 %rd6, [y]; mov.u64 %rd7, 0;
      @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;
      cp.async.bulk.prefetch.L2.global [%rd5], 1024; cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd0, {{0, 0}}];
      @%first cp.async.bulk.shared::cluster.global.{SIGNAL} [%area], [%rd5], 512, [%bar];
      @%first cp.async.bulk.shared::cta.global.{SIGNAL}.L2::cache_hint [%area+512], [%rd5+512], 512, [%bar], %rd7;
      @%first cp.async.bulk.shared::cta.global.{SIGNAL} [%area+1024], [%rd5], 0, [%bar];
      {WAIT.format(n=0, bar="%bar", parity=0)} fence.proxy.async.shared::cta;
      @%first cp.async.bulk.global.shared::cta.bulk_group [%rd6+16], [%area], 1008;
      cp.async.bulk.commit_group; {DUMP}"""
    y = np.zeros(1024, np.uint8)
    maps: dict[str, MapOf] = {"m": lambda at: of_array(at["x"], (16, 64), (64, 1), (8, 64), 0)}
    ran = run(body, {"x": x, "y": y, "out": NOTHING}, maps, schedules=(1, 2))
    assert not ran.findings
    np.testing.assert_array_equal(ran.buffers["out"][:1024], x)
    np.testing.assert_array_equal(ran.buffers["y"], np.concatenate([y[:16], x[:1008]]), "the end of the CTA waits")


def test_a_multicast_to_the_own_cta() -> None:
    """Without a cluster each CTA is one: `tests/ptx/test_cluster.py` has larger ones."""
    x = np.arange(16 * 64, dtype=np.float16).reshape(16, 64)
    body = f"""{READY} @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 2048;
      ld.param.u64 %rd5, [x]; mov.u16 %h1, 1;
      @%first cp.async.bulk.tensor.2d.shared::cluster.global.tile.{SIGNAL}.multicast::cluster
        [%area], [%rd0, {{0, 8}}], [%bar], %h1;
      @%first cp.async.bulk.shared::cluster.global.{SIGNAL}.multicast::cluster [%area+1024], [%rd5], 1024, [%bar], %h1;
      {WAIT.format(n=0, bar="%bar", parity=0)} {DUMP}"""
    maps: dict[str, MapOf] = {"m": lambda at: of_array(at["x"], (16, 64), (64, 1), (8, 64), 6)}
    ran = run(body, {"x": x, "out": NOTHING}, maps, schedules=(1, 2))
    assert not ran.findings
    np.testing.assert_array_equal(ran.buffers["out"][:2048].view(np.float16), np.concatenate([x[8:], x[:8]]).ravel())


def test_gather4_takes_rows_in_any_order() -> None:
    x = np.arange(20 * 64, dtype=np.float16).reshape(20, 64)
    body = f"""{READY} @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;
      @%first cp.async.bulk.tensor.2d.tile::gather4.shared::cta.global.{SIGNAL}
        [%area], [%rd0, {{0, 7, 19, 20, 3}}], [%bar];
      {WAIT.format(n=0, bar="%bar", parity=0)} {DUMP}"""
    maps: dict[str, MapOf] = {"m": lambda at: of_array(at["x"], (20, 64), (64, 1), (1, 64), 6, swizzle=3)}
    ran = run(body, {"x": x, "out": NOTHING}, maps, target="sm_120a")
    rows = np.concatenate([x[[7, 19]], np.zeros((1, 64), np.float16), x[[3]]])
    assert not ran.findings
    np.testing.assert_array_equal(ran.buffers["out"][:512], _swizzled(rows, 128))


def test_a_map_made_by_the_kernel() -> None:
    """All fields that Triton writes into a zeroed map, in shared memory; then it is handed over to global memory."""
    x = np.random.default_rng(1).integers(0, 99, (20, 64)).astype(np.float16)
    fields = [
        ("global_address", "b64", "%rd8"), ("rank", "b32", "1"),
        ("box_dim", "b32", "0, 32"), ("box_dim", "b32", "1, 8"),
        ("global_dim", "b32", "0, 64"), ("global_dim", "b32", "1, 20"), ("global_stride", "b64", "0, 128"),
        ("element_stride", "b32", "0, 1"), ("element_stride", "b32", "1, 1"), ("elemtype", "b32", "6"),
        ("interleave_layout", "b32", "0"), ("swizzle_mode", "b32", "2"), ("fill_mode", "b32", "0"),
    ]  # fmt: skip
    replaced = "\n".join(
        f"@%first tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [%r1], {value};"
        for name, kind, value in fields
    )
    body = f"""mov.u32 %r1, made; shl.b32 %r2, %tid, 2; add.u32 %r2, %r1, %r2; mov.u32 %r3, 0;
      setp.lt.u32 %more, %tid, 32; @%more st.shared.b32 [%r2], %r3;
      ld.param.u64 %rd8, [x]; ld.param.u64 %rd0, [scratch];
      {READY} {replaced} bar.sync 0;
      @%more tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd0], [%r1], 128;
      fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128; bar.sync 0;
      {_load((32, 14), 512).replace(READY, "")} {DUMP}"""
    ran = run(body, {"x": x, "scratch": np.zeros(256, np.uint8), "out": NOTHING})
    assert not ran.findings
    rows = np.concatenate([x[14:, 32:], np.zeros((2, 32), np.float16)])
    np.testing.assert_array_equal(ran.buffers["out"][:512], _swizzled(rows, 64))
    made = decode(ran.buffers["scratch"][:128].tobytes())
    assert (made.dims, made.strides, made.box, made.swizzle) == ((64, 20), (128,), (32, 8), 2)


LATE = f"""{FILL} fence.proxy.async.shared::cta; mov.u32 %r9, 7;
  @%first cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd0, {{0}}], [%area];
  @%first cp.async.bulk.commit_group;
  @%first cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd0, {{4}}], [%area];
  @%first cp.async.bulk.commit_group;
  @%first cp.async.bulk.wait_group.read 1;
  @%first st.shared.b32 [%area], %r9;
  @%first cp.async.bulk.wait_group 0;"""


def test_a_copy_is_late_or_at_once() -> None:
    """Overwriting the source of the second store before its wait shows in the late schedule, not at issue."""
    area = np.zeros(AREA, np.uint8)
    buffers = {"x": np.zeros(8, np.uint32), "area_in": area}
    maps: dict[str, MapOf] = {"m": lambda at: of_array(at["x"], (8,), (1,), (4,), 2)}
    late = run_one(LATE, buffers, maps, schedule=0)
    now = run_one(LATE, buffers, maps, schedule=1)
    assert late.buffers["x"].tolist() == [0, 0, 0, 0, 7, 0, 0, 0]
    assert now.buffers["x"].tolist() == [0] * 8


# -- misuse ---------------------------------------------------------------------------------------------------------

MAP: MapOf = lambda at: of_array(at["x"], (16, 64), (64, 1), (8, 64), 6, swizzle=3)  # noqa: E731
X = np.arange(16 * 64, dtype=np.float16).reshape(16, 64)


RUN = f"""{READY} ld.param.u64 %rd5, [x];
  @%first cp.async.bulk.shared::cta.global.{SIGNAL} [%area], [{{at}}], {{bytes}}, [%bar];"""


def _misuse(body: str, make: MapOf = MAP) -> Ran:
    return run(body, {"x": X, "out": NOTHING}, {"m": make})


@pytest.mark.parametrize(
    ("what", "body", "make", "code"),
    [
        ("a box at 64 bytes", _load((0, 0), 1024).replace("[%area]", "[%area+64]"), MAP, "M102"),
        ("a box beyond shared memory", _load((0, 0), 1024).replace("[%area]", f"[%area+{AREA - 512}]"), MAP, "M101"),
        ("rank 1 in a 2d copy", _load((0, 0), 1024), lambda at: of_array(at["x"], (64,), (1,), (64,), 6), "M107"),
        ("a map of zeros", _load((0, 0), 1024), lambda at: bytes(128), "M107"),
        (
            "a map with more rows than the buffer",
            _load((0, 12), 1024),
            lambda at: of_array(at["x"], (17, 64), (64, 1), (8, 64), 6, swizzle=3),
            "M101",
        ),
        (
            "a run of 24 bytes",
            RUN.format(at="%rd5", bytes=24),
            MAP,
            "M107",
        ),
        (
            "a run from an odd address",
            RUN.format(at="%rd5+8", bytes=32),
            MAP,
            "M102",
        ),
        (
            "a run across the end of the buffer",
            "ld.param.u64 %rd5, [x]; @%first cp.async.bulk.global.shared::cta.bulk_group [%rd5+2032], [%area], 32;",
            MAP,
            "M101",
        ),
    ],
)
def test_wrong_addresses_and_maps_are_reported(what: str, body: str, make: MapOf, code: str) -> None:
    body = body.partition("WAIT0")[0]  # the copy is not issued, so a wait would never end
    assert _misuse(body, make).codes == {code}, what


def test_the_last_row_of_a_tensor_may_end_its_buffer() -> None:
    """The twin of the case above: the box reaches beyond the tensor, which ends with its buffer."""
    assert not _misuse(_load((0, 12), 1024) + DUMP).findings


TWO = f"""{READY} @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {{bytes}};
  @%first cp.async.bulk.tensor.2d.shared::cta.global.{SIGNAL} [%area], [%rd0, {{{{0, 0}}}}], [%bar];
  @%first cp.async.bulk.tensor.2d.shared::cta.global.{SIGNAL} [%area+1024], [%rd0, {{{{0, 8}}}}], [%bar];
  {{wait}}"""


@pytest.mark.parametrize(
    ("expected", "waits", "codes"),
    [(2048, True, set()), (1024, True, {"S309"}), (4096, True, {"S301"}), (2048, False, {"S309"})],
)
def test_bytes_of_a_phase(expected: int, waits: bool, codes: set[str]) -> None:
    wait = WAIT.format(n=0, bar="%bar", parity=0) if waits else ""
    ran = _misuse(TWO.format(bytes=expected, wait=wait))
    assert ran.codes == codes
    if "S301" in codes:
        assert all("2048 bytes" in finding.message for finding in ran.findings)


def test_an_mbarrier_is_not_given_up_while_bytes_are_missing() -> None:
    body = f"""{READY} @%first mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 64;
      @%first mbarrier.inval.shared::cta.b64 [%bar];"""
    assert _misuse(body).codes == {"S309"}
    assert not _misuse(f"{READY} @%first mbarrier.inval.shared::cta.b64 [%bar];").codes


# -- encoding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"address": 8}, "multiple of 16"),
        ({"strides": (120,)}, "multiple of 16"),
        ({"box": (64, 257)}, "1 to 256"),
        ({"box": (4, 8), "swizzle": 0}, "multiple of 16"),
        ({"box": (128, 8)}, "more than its swizzle"),
        ({"dims": (0, 16)}, "1 to 2^32"),
        ({"elemtype": 2, "box": (32, 8), "fill": 1}, "NaN needs a floating-point type"),
        ({"steps": (1, 9)}, "from 1 to 8"),
        ({"elemtype": 40}, "no element type"),
    ],
)
def test_the_encoder_refuses_what_the_driver_refuses(changes: dict[str, Any], words: str) -> None:
    good = TensorMap(0x1000, (64, 16), (128,), (64, 8), 6, 3)
    assert decode(good.encode()) == TensorMap(**{**good.__dict__, "steps": (1, 1)})
    with pytest.raises(LaunchError, match=words.replace("^", "\\^")):
        TensorMap(**{**good.__dict__, **changes}).encode()


@pytest.mark.parametrize("changes", [{"interleave": 1}, {"box": (32, 8)}, {"elemtype": 8, "box": (32, 8)}])
def test_what_no_source_settles_is_refused(changes: dict[str, Any]) -> None:
    good = TensorMap(0x1000, (64, 16), (128,), (64, 8), 6, 3)
    with pytest.raises(Unsupported):
        TensorMap(**{**good.__dict__, **changes}).encode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"cp.async.bulk.tensor.3d.shared::cta.global.im2col.{SIGNAL} [%r1], [%rd0, {{0, 0, 0}}], [%r1];", "im2col"),
        (f"cp.async.bulk.tensor.2d.shared::cta.global.{SIGNAL} [%r1], [%rd0, {{0}}], [%r1];", "1 coordinates"),
    ],
)
def test_other_forms_are_refused_by_name(text: str, words: str) -> None:
    head = ".version 8.7\n.target sm_90a\n.address_size 64\n"
    source = f"{head}.visible .entry k() {{ .reg .b32 %r<3>; .reg .b64 %rd<3>;\n{text} ret; }}"
    with pytest.raises(WeftError, match=words):
        parse(source).functions["k"].check_supported()
