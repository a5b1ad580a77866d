"""The host arrays of a launch and where they stand on the device. Memory that is passed twice is one buffer."""

from collections.abc import Callable, Sequence

from weft.core.errors import LaunchError
from weft.core.records import Dim3

from .arguments import Array, as_array


class HostArrays:
    """Places arrays one by one with `allocate(size in bytes, name)`, which returns a device address."""

    def __init__(self, allocate: Callable[[int, str], int]) -> None:
        self._allocate = allocate
        self.placed: dict[tuple[int, int], tuple[Array, int]] = {}

    def address(self, value: Array, name: str) -> int:
        """The device address of an array; a new one is placed."""
        array = as_array(value)
        assert array is not None
        if not array.flags.c_contiguous:
            raise LaunchError("an array that is not C-contiguous: pass np.ascontiguousarray(array)")
        key = (array.ctypes.data, array.nbytes)
        if key not in self.placed:
            for start, size in self.placed:
                if start < key[0] + key[1] and key[0] < start + size:
                    raise LaunchError(
                        f"argument {name} overlaps another array in part; pass copies, or one array twice"
                    )
            self.placed[key] = (array, self._allocate(array.nbytes, name))
        return self.placed[key][1]


def dim3(size: int | Sequence[int]) -> Dim3:
    """A grid's or block's size in all three axes."""
    sizes = (size,) if isinstance(size, int) else tuple(int(n) for n in size)
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(f"a size of {len(sizes)} dimensions: give one to three")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
