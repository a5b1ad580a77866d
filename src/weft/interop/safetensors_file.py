"""Tensors of a safetensors file: a length, a JSON header, and the bytes of each tensor one after the other."""

import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np

from weft.attention.dtypes import Array
from weft.core.errors import UsageError

_DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
}


def read_tensor(path: Path, key: str) -> Array:
    """One tensor of the file, by its key."""
    try:
        raw = path.read_bytes()
        (length,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + length])
        entry = header[key]
        dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        data = raw[8 + length + start : 8 + length + end]
    except KeyError as error:
        raise UsageError(f"{path} has no tensor {key!r}") from error
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise UsageError(f"{path} cannot be read as safetensors: {error}") from error
    if dtype not in _DTYPES:
        raise UsageError(f"{path}: {key} is {dtype}; Weft takes {', '.join(_DTYPES)}")
    if len(data) != int(np.prod(shape, dtype=np.int64)) * _DTYPES[dtype].itemsize:
        raise UsageError(f"{path}: {key} is cut off")
    return np.frombuffer(data, _DTYPES[dtype]).reshape(shape).copy()
