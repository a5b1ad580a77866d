"""Memory of one of several devices: a part of the file that they share, and what the host allocated for all of them."""

from collections.abc import Callable

from weft.vm.memory import ALIGN, GLOBAL_BASE, RED_ZONE, Allocation, Bytes, GlobalMemory, _Placed


class DeviceMemory(GlobalMemory):
    """A window of the arena. A kernel reaches its own window and adopted buffers: another address is a finding."""

    def __init__(self, arena: Bytes, start: int, discard: Callable[[int, int], None]) -> None:
        super().__init__(arena=arena, discard=discard)
        if start:
            self.used = start + RED_ZONE
            self.arena[start : self.used] = 0xFF

    def adopt(self, buffer: Allocation) -> None:
        """Let kernels reach a buffer of an earlier window."""
        start, number = buffer.address - GLOBAL_BASE, self._number()
        # The place is empty: it is not this window's to use again.
        self._live[number] = _Placed(buffer, start, start, self._made)
        self._starts[buffer.address] = number
        self._made += 1
        self.extents[number] = start, buffer.size_bytes
        self.owners[start // ALIGN : -(-(start + buffer.size_bytes) // ALIGN)] = number

    def disown(self, address: int) -> None:
        """End that kernels can reach an adopted buffer."""
        number = self._starts.pop(address, None)
        if number is None:
            return
        start, size_bytes = (int(value) for value in self.extents[number])
        del self._live[number]
        self.owners[start // ALIGN : -(-(start + size_bytes) // ALIGN)] = 0
        self.extents[number] = 0
        self._unused_numbers.append(number)
