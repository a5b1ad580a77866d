"""Copies tensors to the virtual GPU's memory and back. A storage is one buffer, so its ends are the bounds.

Tensors of cuda:0 are in the host's memory too (`cuda_memory.py`).

A kernel may also find tensors by addresses that the host wrote into another tensor (`x.data_ptr()`). Device addresses
differ from the host's, so where a 64-bit integer tensor holds the address of a tensor whose `data_ptr` was read, the
device's copy of it holds the device's address.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from weft.core.errors import LaunchError
from weft.vm.memory import GLOBAL_BASE, Bytes, GlobalMemory

POINTER_TYPES = (torch.int64, torch.uint64)
_ALIGNED = 16
"""Alignment that Triton specialises pointers for: the device's copy keeps the address modulo this."""
_MANY = 4096

host_address: Callable[[Any], int] = torch.Tensor.data_ptr
"""PyTorch's original function, which is replaced while a device is active."""


class Known:
    """Storages whose address the host has read. They are not kept alive."""

    def __init__(self) -> None:
        self._storages: dict[int, StorageWeakRef] = {}

    def note(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        if len(self._storages) >= _MANY:
            self._storages = {start: ref for start, ref in self._storages.items() if not ref.expired()}
        self._storages[storage.data_ptr()] = StorageWeakRef(storage)

    def live(self) -> list[Any]:
        """Return those that still exist, by address."""
        found = [torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in list(self._storages.values())]
        return sorted((each for each in found if each is not None), key=lambda each: int(each.data_ptr()))


@dataclass(frozen=True)
class _Copy:
    """One storage on the device."""

    storage: Any
    host: int
    size_bytes: int
    device: int


@dataclass(frozen=True)
class _Translated:
    """Words of the device that hold addresses: their positions, the host's and the device's addresses."""

    words: Any
    at: Any
    host: Any
    device: Any


def _not_accessible(name: str) -> ValueError:
    """Return an error with the words of Triton's launcher, for tests that expect them."""
    return ValueError(f"Pointer argument {name} cannot be accessed from Triton (cpu tensor?)")


class DeviceCopies:
    """The tensors of one launch."""

    def __init__(self, memory: GlobalMemory, known: Known, *, takes_host: bool = True) -> None:
        self.memory, self._known, self._takes_host = memory, known, takes_host
        self.copies: dict[int, _Copy] = {}
        self._pointers: dict[int, None] = {}
        self._translated: list[_Translated] = []

    def address(self, tensor: Any, name: str) -> int:
        """Return the device's address of a tensor; its storage is placed and copied in."""
        if type(tensor).__name__ == "TensorWrapper":  # triton.reinterpret(tensor, dtype)
            tensor = tensor.base
        if not isinstance(tensor, torch.Tensor) and hasattr(tensor, "data_ptr"):
            return self._by_address(tensor, name)
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            raise LaunchError(f"argument {name} is a {type(tensor).__name__}: give a dense torch tensor")
        if tensor.device.type not in ("cpu", "cuda"):
            raise LaunchError(f"argument {name} is on {tensor.device}: the virtual GPU takes CPU and CUDA tensors")
        if self._refuses(tensor.device) and not tensor.is_pinned():
            raise _not_accessible(name)
        copy = self._place(tensor.untyped_storage(), name)
        if tensor.dtype in POINTER_TYPES:
            self._pointers[copy.host] = None
        return copy.device + host_address(tensor) - copy.host if copy.size_bytes else copy.device

    def number(self, value: int) -> int:
        """Return an integer argument; the device's address if it is the address of a tensor that the host has read."""
        storage = self._storage_at(value)
        return value if storage is None else self._address_in(storage, value)

    def _storage_at(self, address: int) -> Any:
        """Return the storage that contains an address of the host, if the host has read it; else None."""
        for storage in self._known.live() if address >= 1 << 32 else ():
            if storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes():
                return storage
        return None

    def _address_in(self, storage: Any, host: int) -> int:
        return self._place(storage, "by address").device + host - int(storage.data_ptr())

    def _refuses(self, device: Any) -> bool:
        return not self._takes_host and bool(device.type == "cpu")

    def _by_address(self, pointer: Any, name: str) -> int:
        """Return the device's address of an object with `data_ptr` and `dtype`, which Triton takes like a tensor."""
        host = int(pointer.data_ptr())
        if host == 0:
            return 0
        storage = self._storage_at(host)
        if storage is None:
            raise LaunchError(
                f"argument {name}: {type(pointer).__name__}.data_ptr() is {host:#x}, which is in no known tensor: "
                "compute it from the data_ptr() of a tensor"
            )
        if self._refuses(storage.device):
            raise _not_accessible(name)
        return self._address_in(storage, host)

    def translate(self) -> None:
        """Write device addresses where an integer tensor holds host addresses."""
        storages = self._known.live() if self._pointers else []
        if not storages:
            return
        starts = np.array([storage.data_ptr() for storage in storages], np.uint64)
        ends = starts + np.array([storage.nbytes() for storage in storages], np.uint64)
        for host in tuple(self._pointers):
            words = self._words(self.copies[host])
            owner = np.searchsorted(starts, words, side="right") - 1
            at = np.flatnonzero((owner >= 0) & (words < ends[owner]))
            if not at.size:
                continue
            owners, values = owner[at], words[at]
            bases = np.zeros(len(storages), np.uint64)
            for number in np.unique(owners):
                bases[number] = self._place(storages[number], "by address").device
            words = self._words(self.copies[host])  # placing may have moved the arena
            words[at] = values - starts[owners] + bases[owners]
            self._translated.append(_Translated(host, at, values, words[at].copy()))

    def copy_out(self) -> None:
        """Copy results to the host; addresses that the kernel did not change stay host addresses."""
        for each in self._translated:
            words = self._words(self.copies[each.words])
            kept = words[each.at] == each.device
            words[each.at[kept]] = each.host[kept]
        arena = self.memory.arena.ctypes.data - GLOBAL_BASE
        for copy in self.copies.values():
            ctypes.memmove(copy.host, arena + copy.device, copy.size_bytes)

    def written(self, copy: _Copy) -> Bytes:
        """Return the device's flags of initialised bytes of a storage."""
        start = copy.device - GLOBAL_BASE
        return self.memory.keep_written()[start : start + copy.size_bytes]

    def _words(self, copy: _Copy) -> Any:
        start = copy.device - GLOBAL_BASE
        return self.memory.arena[start : start + copy.size_bytes // 8 * 8].view(np.uint64)

    def _place(self, storage: Any, name: str) -> _Copy:
        host, size_bytes = int(storage.data_ptr()), int(storage.nbytes())
        key = host if size_bytes else -storage._cdata
        copy = self.copies.get(key)
        if copy is not None and copy.size_bytes == size_bytes:
            return copy
        for other in self.copies.values():
            if host < other.host + other.size_bytes and other.host < host + size_bytes:
                raise LaunchError(
                    f"argument {name} shares memory with another argument without sharing its storage: "
                    "pass views of one tensor"
                )
        ahead = host % _ALIGNED
        device = self.memory.allocate(size_bytes + ahead, f"argument {name}") + ahead
        ctypes.memmove(self.memory.arena.ctypes.data + device - GLOBAL_BASE, host, size_bytes)
        copy = self.copies[key] = _Copy(storage, host, size_bytes, device)
        return copy
