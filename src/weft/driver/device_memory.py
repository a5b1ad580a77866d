"""Memory of one of several devices: a part of the file that they share."""

from collections.abc import Callable

from weft.vm.memory import RED_ZONE, Bytes, GlobalMemory


class DeviceMemory(GlobalMemory):
    """A window of the arena. A kernel reaches its own window and adopted buffers: another address is a finding."""

    def __init__(self, arena: Bytes, start: int, discard: Callable[[int, int], None]) -> None:
        super().__init__(arena=arena, discard=discard)
        if start:
            self.used = start + RED_ZONE
            self.arena[start : self.used] = 0xFF
