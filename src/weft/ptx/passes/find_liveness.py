"""Finds the registers that a block needs on entry. Sets are Python integers, one bit per register."""

from collections.abc import Mapping
from dataclasses import dataclass

from .build_cfg import Cfg


@dataclass(frozen=True)
class Liveness:
    """Registers live at the start of each block."""

    names: tuple[str, ...]
    live_in: tuple[int, ...]

    def at(self, block: int) -> list[str]:
        """Return the names of the registers live on entry to `block`, in declaration order."""
        bits, found = self.live_in[block], []
        while bits:
            low = bits & -bits
            found.append(self.names[low.bit_length() - 1])
            bits ^= low
        return found


def find_liveness(cfg: Cfg) -> Liveness:
    """Return the liveness, by backward data flow to a fixed point."""
    names = tuple(cfg.function.registers)
    bit: Mapping[str, int] = {name: 1 << number for number, name in enumerate(names)}
    uses, defs = [], []
    for block in cfg.blocks:
        use = define = 0
        for ins in (*block.body, *((block.end,) if block.end else ())):
            for reg in ins.read():
                use |= bit[reg.name] & ~define
            for reg in ins.written():
                define |= bit[reg.name]
        uses.append(use)
        defs.append(define)
    live_in = list(uses)
    predecessors = cfg.predecessors()
    work = list(range(len(cfg.blocks)))
    queued = set(work)
    while work:
        number = work.pop()
        queued.discard(number)
        out = 0
        for successor in cfg.blocks[number].successors:
            out |= live_in[successor]
        updated = uses[number] | (out & ~defs[number])
        if updated != live_in[number]:
            live_in[number] = updated
            for predecessor in predecessors[number]:
                if predecessor not in queued:
                    queued.add(predecessor)
                    work.append(predecessor)
    return Liveness(names, tuple(live_in))
