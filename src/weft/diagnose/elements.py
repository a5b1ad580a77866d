"""The elements of registers and of matrix fragments: their nodes and their numbers."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from weft.ptx.module import Operand
from weft.vm.mma_kind import FORMATS
from weft.vm.reference.fragments import Fragment
from weft.vm.reference.machine import RunningWarp
from weft.vm.reference.tensorcore import to_float64

from .nodes import Numbers, single
from .tags import Ids

_PACKED = {
    "f16x2": np.dtype(np.float16),
    "bf16x2": np.dtype(ml_dtypes.bfloat16),
    "f32x2": np.dtype(np.float32),
}


def elements(ids: Ids, ptx_type: str) -> Ids:
    """Convert (32, bytes) to (32, elements) of a float type."""
    return single(ids.reshape(32, 2 if ptx_type in _PACKED else 1, -1))


def spread(ids: Ids, size: int) -> Ids:
    """Convert (32, elements) to (32, size) bytes."""
    return np.repeat(ids, size // ids.shape[1], axis=1)


def numbers(w: RunningWarp, operand: Operand, ptx_type: str, line: int) -> Numbers:
    """Return (32, elements) of an operand as float64."""
    raw = w.read(operand, ptx_type, line)
    if ptx_type in _PACKED:
        raw = np.ascontiguousarray(raw).view(_PACKED[ptx_type]).reshape(32, 2)
    with np.errstate(invalid="ignore"):
        values: Numbers = raw.reshape(32, -1).astype(np.float64)
    return values


def matrix_numbers(bits: npt.NDArray[Any], element: str) -> Numbers:
    """Return the elements of a matrix as float64, given their bits."""
    if bits.itemsize == 8:
        return bits.view(np.float64)
    if element in FORMATS:
        return to_float64(bits, FORMATS[element])
    signed = bits.view(f"int{8 * bits.itemsize}") if element.startswith("s") else bits
    values: Numbers = signed.astype(np.float64)
    return values


def holders(fragment: Fragment) -> npt.NDArray[np.int64]:
    """Return the lane that holds each element."""
    lanes = np.zeros(fragment.shape, np.int64)
    lanes[fragment.rows, fragment.columns] = np.arange(32)[None, :, None]
    return lanes
