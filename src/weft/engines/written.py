"""Which bytes of host arrays the kernels of a sequence have written, for initcheck."""

from collections.abc import Iterable

import numpy as np

from weft.vm.memory import Bytes

from .arguments import Array, as_array


class Written:
    """Arrays that start uninitialised, whatever bytes they hold. Give the same one to every launch of a sequence."""

    def __init__(self, arrays: Iterable[object]) -> None:
        views = [view for view in map(as_array, arrays) if view is not None]
        self._flags = {_key(view): np.zeros(view.nbytes, np.uint8) for view in views}

    def flags(self, array: Array) -> Bytes | None:
        """A byte per byte of `array`: 255 where a kernel has written, 0 elsewhere; None if it counts as written."""
        return self._flags.get(_key(array))


EVERYTHING_WRITTEN = Written(())
"""No array starts uninitialised."""


def _key(array: Array) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes
