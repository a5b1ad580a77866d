"""Tensor maps: 128 bytes that say how a tensor lies in global memory and which box of it a copy moves.

The bytes are opaque in CUDA: a driver makes them, and kernels change them only by `tensormap.replace`. So the layout is
Weft's own, fields of 4 and 8 bytes. A map of zeros is no valid map, but the fields that `tensormap.replace` can
write make it one. Dimension 0 is the innermost; its elements are contiguous.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft.core.errors import LaunchError, Unsupported
from weft.ptx.module import Imm, Instruction

BYTES = 128
MAP_ALIGN = 64
MOST_DIMS = 5
ADDRESS_ALIGN = 16
BOX_ALIGN = 128
"""Alignment of a box in shared memory (CUDA C++ Programming Guide)."""
MOST_BOX = 256
MOST_STEP = 8
STRIDE_BITS = 40

FIELDS = {
    "global_address": (0, 8), "global_stride": (8, 8), "global_dim": (40, 4), "box_dim": (60, 4),
    "element_stride": (80, 4), "elemtype": (100, 4), "rank": (104, 4), "swizzle_mode": (108, 4),
    "interleave_layout": (112, 4), "fill_mode": (116, 4),
}  # fmt: skip
"""The field of `tensormap.replace` → byte offset, and the size of a value; members of arrays follow each other."""
ORDINALS = {"global_stride": MOST_DIMS - 1, "global_dim": MOST_DIMS, "box_dim": MOST_DIMS, "element_stride": MOST_DIMS}
_LAYOUT = struct.Struct("<Q4Q5I5I5IIIIII8x")
assert _LAYOUT.size == BYTES

TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16")
"""By the number of `tensormap.replace.elemtype`; those after these (tf32, packed 4 and 6 bits) are not supported."""
ELEMENT_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2)
DRIVER_TYPES = (*range(8), 9, 10, 8)
"""The driver's number of a type (CUtensorMapDataType) → the number of `tensormap.replace`."""
REFUSED_TYPES = ("f32.ftz",)
FLOATS = tuple(number for number, name in enumerate(TYPES) if "f" in name)
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""Bytes of a swizzle → its number."""
FILL_ZERO, FILL_NAN = 0, 1
REDUCTIONS = {
    "add": "u32 s32 u64 f16 bf16 f32 f64", "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64", "inc": "u32",
    "dec": "u32", "and": "u32 s32 u64 s64", "or": "u32 s32 u64 s64", "xor": "u32 s32 u64 s64",
}  # fmt: skip
"""Operation of a bulk reduction → the types of elements that it takes."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and a box of it; all sequences begin with the innermost dimension."""

    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes from an element to the next, of the dimensions from 1 on."""
    box: tuple[int, ...]
    elemtype: int
    swizzle: int = 0
    """The number: 0 none, 1 to 3 for 32, 64 and 128 bytes."""
    steps: tuple[int, ...] = ()
    """Distances of the elements that are moved (`elementStrides`); empty: 1 each."""
    fill: int = FILL_ZERO
    interleave: int = 0

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def item_bytes(self) -> int:
        return ELEMENT_BYTES[self.elemtype]

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the elements that a copy moves in each dimension; dimension 0 has no steps."""
        steps = (1, *self.steps[1:]) if self.steps else (1,) * self.rank
        return tuple(-(-size // step) for size, step in zip(self.box, steps, strict=True))

    def problem(self) -> str:
        """Return why it is not a valid map, in the driver's terms; empty if it is one."""
        return next(_problems(self), "")

    def encode(self) -> bytes:
        """Return the 128 bytes; LaunchError if the driver would refuse the map."""
        problem = self.problem()
        if problem:
            raise LaunchError(f"tensor map: {problem}")
        refuse(self)

        def padded(values: Sequence[int], count: int) -> list[int]:
            return [*values, *[0] * (count - len(values))]

        strides = padded(self.strides, MOST_DIMS - 1)
        arrays = [padded(each, MOST_DIMS) for each in (self.dims, self.box, self.steps or (1,) * self.rank)]
        head = (self.address, *strides, *(value for array in arrays for value in array))
        return _LAYOUT.pack(*head, self.elemtype, self.rank - 1, self.swizzle, self.interleave, self.fill)


def _problems(of: TensorMap) -> Iterator[str]:
    if not 1 <= of.rank <= MOST_DIMS or len(of.box) != of.rank or len(of.strides) != of.rank - 1:
        yield f"{of.rank} dimensions, {len(of.box)} of the box and {len(of.strides)} strides: 1 to 5, as many, one less"
        return
    if not 0 <= of.elemtype < len(TYPES):
        yield f"no element type has the number {of.elemtype}"
        return
    if of.address % ADDRESS_ALIGN:
        yield f"address {of.address:#x} is not a multiple of {ADDRESS_ALIGN}"
    for size in of.dims:
        if not 1 <= size <= 1 << 32:
            yield f"a dimension of {size} elements; 1 to 2^32 are possible"
    for stride in of.strides:
        if stride % 16 or not 0 <= stride < 1 << STRIDE_BITS:
            yield f"a stride of {stride} bytes; it must be a multiple of 16 below 2^{STRIDE_BITS}"
    for size in of.box:
        if not 1 <= size <= MOST_BOX:
            yield f"a box of {size} elements in one dimension; 1 to {MOST_BOX} are possible"
    if any(not 1 <= step <= MOST_STEP for step in of.steps) or len(of.steps) not in (0, of.rank):
        yield f"element strides {of.steps}; one from 1 to {MOST_STEP} for each dimension"
    inner = of.box[0] * of.item_bytes
    if inner % 16:
        yield f"the box has {inner} bytes in dimension 0; it must be a multiple of 16"
    if not 0 <= of.swizzle <= 3 or not 0 <= of.interleave <= 2 or of.fill not in (FILL_ZERO, FILL_NAN):
        yield f"swizzle {of.swizzle}, interleave {of.interleave} or fill {of.fill} does not exist"
    elif of.swizzle and inner > 16 << of.swizzle:
        yield f"the box has {inner} bytes in dimension 0, more than its swizzle of {16 << of.swizzle} bytes"
    if of.fill == FILL_NAN and of.elemtype not in FLOATS:
        yield f"fill with NaN needs a floating-point type, not {TYPES[of.elemtype]}"


def refuse(of: TensorMap) -> None:
    """Raise Unsupported for valid maps whose meaning no source settles, or that Weft does not model."""
    if of.interleave:
        raise Unsupported("a tensor map with interleaved layout is not supported; use interleave none")
    if TYPES[of.elemtype] in REFUSED_TYPES:
        raise Unsupported(f"a tensor map of {TYPES[of.elemtype]} is not supported; use f32")
    if of.swizzle and of.box[0] * of.item_bytes < 16 << of.swizzle:
        raise Unsupported("a box narrower than its swizzle is not supported: no source says where its rows begin")
    if any(size == 1 << 32 for size in of.dims):
        raise Unsupported("a tensor map with a dimension of 2^32 elements is not supported")


def decode(data: bytes) -> TensorMap:
    """Return the fields of 128 bytes; the map may be invalid (`problem`)."""
    address, *rest = _LAYOUT.unpack(data)
    strides, dims, box, steps = rest[:4], rest[4:9], rest[9:14], rest[14:19]
    elemtype, rank, swizzle, interleave, fill = rest[19:]
    count = min(rank + 1, MOST_DIMS + 1)
    return TensorMap(
        address, tuple(dims[:count]), tuple(strides[: max(count - 1, 0)]), tuple(box[:count]), elemtype, swizzle,
        tuple(steps[:count]), fill, interleave,
    )  # fmt: skip


def of_array(
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    elemtype: int,
    *,
    swizzle: int = 0,
    fill: int = FILL_ZERO,
) -> TensorMap:
    """Return the map of an array as NumPy and PyTorch describe it: outermost dimension first, strides in elements."""
    size = ELEMENT_BYTES[elemtype] if 0 <= elemtype < len(TYPES) else 1
    if strides and strides[-1] != 1:
        raise LaunchError(f"tensor map: the innermost stride is {strides[-1]}, it must be 1")
    lengths = tuple(stride * size for stride in reversed(strides[:-1]))
    return TensorMap(address, tuple(reversed(shape)), lengths, tuple(reversed(box)), elemtype, swizzle, fill=fill)


def field_offset(ins: Instruction) -> int:
    """Return the byte of a map that a `tensormap.replace` writes."""
    offset, size = FIELDS[ins.mods["field"]]
    ordinal = ins.find("ordinal")
    if ordinal is None:
        return offset
    if not isinstance(ordinal, Imm) or not 0 <= ordinal.value < ORDINALS[ins.mods["field"]]:
        raise Unsupported(f"{ins.opcode} of member {ordinal}", ins.line)
    return offset + size * ordinal.value


def swizzled(address: int, swizzle: int) -> int:
    """Return where the byte at an address of shared memory really is: bits 4 to 6 are mixed with bits 7 to 9."""
    return address ^ ((address >> 7 & (1 << swizzle) - 1) << 4)
