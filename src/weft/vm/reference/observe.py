"""The contract between the reference interpreter and whoever watches every instruction."""

from weft.ptx.module import Instruction

from .machine import RunningWarp
from .warp import Lanes


class Observer:
    """Watches nothing. `w.mask` has the lanes that execute `ins`; registers and memory are as the warp sees them."""

    def guard(self, w: RunningWarp, ins: Instruction, group: Lanes) -> None:
        """The lanes of `group` have come to an instruction with a guard, which may keep some or all from it."""

    def before(self, w: RunningWarp, ins: Instruction) -> None:
        """The lanes are about to execute `ins`: its sources still hold what it will read."""

    def after(self, w: RunningWarp, ins: Instruction) -> None:
        """They have executed it: its destinations hold the result (those of a barrier's reduction do not yet)."""


__all__ = ["Observer"]
