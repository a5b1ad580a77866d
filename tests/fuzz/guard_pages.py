"""Host memory between pages without access rights: an access one byte too far ends the process.

`install` does this for all buffers of the virtual GPU that compiled code can reach: the arena, shared and local
memory, parameters, records, queues, the shadows of probes, and the maps of the owners of bytes.
"""

import ctypes
import mmap
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.vm import launch, memory, regions

PAGE = mmap.PAGESIZE
FILL = 0xA5
"""The initial value of memory."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Guarded:
    """Allocates memory; `at_end` puts it against the guard behind it, else against the one in front."""

    def __init__(self, *, at_end: bool) -> None:
        self.at_end = at_end

    def bytes(self, size: int) -> npt.NDArray[np.uint8]:
        """Replace `aligned_bytes`: at a 64-byte boundary, so up to 63 bytes may be left before the guard."""
        room = max(-(-size // PAGE), 1) * PAGE
        whole = room + 2 * PAGE
        base = _libc.mmap(None, whole, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"mmap of {whole} bytes")
        for guard in (base, base + PAGE + room):
            if _libc.mprotect(guard, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        start = base + PAGE + ((room - size) & -64 if self.at_end else 0)
        block = (ctypes.c_uint8 * size).from_address(start)
        weakref.finalize(block, _libc.munmap, base, whole)
        array = np.frombuffer(block, np.uint8)
        array[:] = FILL
        return array


class _Numpy:
    """NumPy whose new arrays are between guard pages."""

    def __init__(self, guarded: Guarded) -> None:
        self.guarded = guarded

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def zeros(self, shape: Any, dtype: Any = float) -> npt.NDArray[Any]:
        return self._placed(np.zeros(shape, dtype))

    def array(self, values: Any, dtype: Any = None) -> npt.NDArray[Any]:
        return self._placed(np.array(values, dtype))

    def concatenate(self, parts: Any) -> npt.NDArray[Any]:
        return self._placed(np.concatenate(parts))

    def _placed(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not values.nbytes:
            return values
        place = self.guarded.bytes(values.nbytes).view(values.dtype).reshape(values.shape)
        place[...] = values
        return place


def install(*, at_end: bool) -> None:
    """Use guard pages from now on, in this process."""
    guarded = Guarded(at_end=at_end)
    for module in (memory, launch, regions):
        vars(module)["np"] = _Numpy(guarded)
    vars(memory)["aligned_bytes"] = vars(launch)["aligned_bytes"] = guarded.bytes
