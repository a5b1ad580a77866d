"""Tensors that `torch.empty` made and that were not written yet: initcheck starts from them.

A TorchDispatchMode sees every operator. It records uninitialised tensors; a tensor that is passed to another operator
that may write it counts as completely written from then on. So no written tensor is reported.
"""

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from weft.vm.memory import Bytes

from .tensors import DeviceCopies

_MAKERS = (
    "empty.memory_format",
    "empty_like.default",
    "empty_strided.default",
    "new_empty.default",
    "new_empty_strided.default",
)


_RECORD_BYTES = 512
"""About what a record takes in addition to its flags."""
_FEW_BYTES = 1 << 25


class Fresh:
    """Address of a storage → which of its bytes kernels have written. Storages are not kept alive."""

    def __init__(self) -> None:
        self._flags: dict[int, tuple[Any, Bytes]] = {}
        self._noted_bytes, self._most_bytes = 0, _FEW_BYTES
        """Of the records made since those of freed storages were removed, and when they are removed again."""

    def note(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        if storage.nbytes():
            ref = torch.multiprocessing.reductions.StorageWeakRef(storage)
            self._noted_bytes += storage.nbytes() + _RECORD_BYTES
            if self._noted_bytes > self._most_bytes:
                self._remove_freed()
            self._flags[storage.data_ptr()] = ref, np.zeros(storage.nbytes(), np.uint8)

    def _remove_freed(self) -> None:
        """Forget freed storages; next time when as much has been noted as is left, so that the work is bounded."""
        self._flags = {start: found for start, found in self._flags.items() if not found[0].expired()}
        left = sum(len(flags) + _RECORD_BYTES for _, flags in self._flags.values())
        self._noted_bytes, self._most_bytes = 0, max(left, _FEW_BYTES)

    def forget(self, tensor: Any) -> None:
        """Remove a tensor that the host has written, or may have written."""
        if self._flags and tensor.layout is torch.strided:
            self._flags.pop(tensor.untyped_storage().data_ptr(), None)

    def tell(self, copies: DeviceCopies) -> None:
        """Mark the unwritten bytes on the device."""
        for copy in copies.copies.values():
            flags = self._flags_of(copy.host, copy.size_bytes)
            if flags is not None:
                copies.written(copy)[:] = flags

    def ask(self, copies: DeviceCopies, *, known: bool) -> None:
        """Read from the device which bytes were written; a run without initcheck may have written all."""
        for copy in copies.copies.values():
            flags = self._flags_of(copy.host, copy.size_bytes)
            if flags is not None:
                flags[:] = copies.written(copy) if known else 0xFF
                if flags.all():
                    del self._flags[copy.host]

    def _flags_of(self, host: int, size_bytes: int) -> Bytes | None:
        found = self._flags.get(host)
        if found is None:
            return None
        ref, flags = found
        if ref.expired() or len(flags) != size_bytes:
            del self._flags[host]
            return None
        return flags


class Watching(TorchDispatchMode):  # type: ignore[misc]
    """Reports every operator that creates or writes tensors to Fresh."""

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let torch.compile compile, which it refuses under other modes."""
        return True

    def __init__(self, fresh: Fresh) -> None:
        super().__init__()
        self.fresh = fresh

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(func, torch._ops.HigherOrderOperator):  # calls others, which are not seen: it may write anything
            for each in tree_leaves((args, kwargs, result)):
                if isinstance(each, torch.Tensor):
                    self.fresh.forget(each)
            return result
        schema = func._schema
        if func.__name__ in _MAKERS:
            self.fresh.note(result)
        elif schema.is_mutable:
            for each in tree_leaves((args, kwargs)):
                if isinstance(each, torch.Tensor):
                    self.fresh.forget(each)
        else:
            # A new storage may be at the address of a freed one.
            for each in tree_leaves(result):
                if isinstance(each, torch.Tensor) and not _is_view(schema):
                    self.fresh.forget(each)
        return result


def _is_view(schema: Any) -> bool:
    return any(each.alias_info is not None for each in schema.returns)
