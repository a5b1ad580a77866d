"""Runs the Python code of another system's task, with PyTorch, as the trusted reference."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft.attention.dtypes import Array
from weft.core.distribution import install_command
from weft.core.errors import ToolMissing, UsageError


def require_torch() -> Any:
    """Return the torch module, which references need."""
    try:
        import torch
    except ImportError as error:
        raise ToolMissing(f"this task's reference is PyTorch code: {install_command('torch')}") from error
    return torch


def run_source(source: str, name: str) -> dict[str, Any]:
    """Run the source and return the names it defines. It is a program: run only code that you trust."""
    require_torch()
    found: dict[str, Any] = {"__name__": "weft_reference", "__file__": name}
    try:
        exec(compile(source, name, "exec"), found)
    except Exception as error:
        raise UsageError(f"{name} cannot be run: {type(error).__name__}: {error}") from error
    return found


def to_torch(array: Array) -> Any:
    """Return a copy as a CPU tensor; bfloat16 and float8 are passed to PyTorch as bits."""
    torch = require_torch()
    array = np.ascontiguousarray(array)
    for kind, bits, name in (
        (ml_dtypes.bfloat16, np.int16, "bfloat16"),
        (ml_dtypes.float8_e4m3fn, np.uint8, "float8_e4m3fn"),
    ):
        if array.dtype == kind:
            return torch.from_numpy(array.view(bits).copy()).view(getattr(torch, name))
    return torch.from_numpy(array.copy())


def to_numpy(tensor: Any) -> Array:
    """Return a copy as an array of the same type."""
    torch = require_torch()
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().copy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.numpy().copy())


def result_arrays(result: Any, names: Sequence[str], where: str) -> dict[str, Array]:
    """Return the reference's results by name: from a tensor, a tuple in order, or a dictionary."""
    torch = require_torch()
    if isinstance(result, dict):
        missing = [name for name in names if name not in result]
        if missing:
            raise UsageError(f"{where} returns no {missing[0]!r}")
        values = [result[name] for name in names]
    else:
        values = list(result) if isinstance(result, tuple | list) else [result]
    if len(values) != len(names):
        raise UsageError(f"{where} returns {len(values)} results, not {len(names)}: {', '.join(names)}")
    if not all(isinstance(value, torch.Tensor) for value in values):
        raise UsageError(f"{where} must return tensors")
    return {name: to_numpy(value) for name, value in zip(names, values, strict=True)}
