"""Host memory of the virtual GPU."""

import ctypes
import mmap
import sys

import numpy as np
import numpy.typing as npt

SPARSE_BYTES = 1 << 30
"""Host memory this large is mapped without a reservation."""
NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which Python's mmap does not name: the mapping may be larger than this machine's memory."""

Bytes = npt.NDArray[np.uint8]


def aligned_bytes(size: int) -> Bytes:
    """Return host memory at a 64-byte boundary, with arbitrary contents."""
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def sparse_zeros(size: int) -> Bytes:
    """Return zeroed host memory that is committed where it is touched, also if it is larger than this machine's."""
    if size < SPARSE_BYTES:
        return np.zeros(size, np.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    return np.frombuffer(pages, np.uint8)


def give_back(data: Bytes) -> None:
    """Return the whole pages of private memory to the system; their contents are arbitrary afterwards."""
    first = -(-data.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (data.ctypes.data + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if sys.platform == "linux" and size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
