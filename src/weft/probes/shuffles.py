"""Reads that have returned before another lane of the warp writes: a collective that needs their values is in between.

    ld.shared.f32       %f1, [sM];             every lane reads
    sub.f32             %f2, %f9, %f1;
    shfl.sync.bfly.b32  %r2, %f2, …, -1;       needs what this lane has read, and waits for all lanes
    @%p st.shared.f32   [sM], %f7;             lane 0 writes

A lane takes part in the shuffle when its operand is there, so its read has returned; the writer continues when all
lanes have taken part. docs/decisions/0016-shuffles-and-races.md explains why that orders a write after a read, and
nothing else.
"""

from weft.ptx.module import Imm, Instruction
from weft.ptx.passes.build_cfg import Block, Cfg
from weft.shadow.marks import sources_of

ALL_LANES = 0xFFFFFFFF


class Exchanges:
    """The collectives of a kernel that all lanes take part in, and what their operands are made of."""

    def __init__(self, cfg: Cfg) -> None:
        self._cfg = cfg
        writers: dict[str, list[Instruction]] = {}
        for block in cfg.blocks:
            for ins in block.body:
                for reg in ins.written():
                    writers.setdefault(reg.name, []).append(ins)
        self._made_by = {name: each[0] for name, each in writers.items() if len(each) == 1 and each[0].guard is None}
        """Register → its only definition: a use then reads the result of that instruction's last execution."""
        self._answers: dict[tuple[int, int], bool] = {}

    def between(self, read: int, write: int) -> bool:
        """Whether a collective of all lanes that needs what the load at PTX line `read` fetched is on every path to
        the store at line `write`, and to the kernel's end: a collective does not wait for a lane that has exited.
        """
        if (read, write) not in self._answers:
            self._answers[read, write] = self._between(read, write)
        return self._answers[read, write]

    def _between(self, read: int, write: int) -> bool:
        loads = [(block, ins) for block in self._cfg.blocks for ins in block.body if ins.line == read]
        if len(loads) != 1 or not loads[0][1].facts.is_load or loads[0][1].guard is not None:
            return False
        start, load = loads[0]
        meets = {block.id for block in self._cfg.blocks if self._needs(block, load)}
        after = start.body[start.body.index(load) + 1 :]
        if not meets or any(ins.line == write for ins in after):
            return False
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            block = waiting.pop()
            if not block.successors:  # the end
                return False
            for number in set(block.successors) - meets - seen:
                seen.add(number)
                if any(ins.line == write for ins in self._cfg.blocks[number].body):
                    return False
                waiting.append(self._cfg.blocks[number])
        return True

    def _needs(self, block: Block, load: Instruction) -> bool:
        """Whether the block begins with a collective of all lanes whose operands are made of what `load` fetched."""
        if not block.collective or not _takes_all(block.body[0]):
            return False
        seen: set[str] = set()
        waiting = list(sources_of(block.body[0]))
        while waiting:
            name = waiting.pop()
            made = self._made_by.get(name)
            if made is load:
                return True
            if made is not None and name not in seen:
                seen.add(name)
                waiting += sources_of(made)
        return False


def _takes_all(ins: Instruction) -> bool:
    """Whether it is a collective of all 32 lanes, by a constant mask."""
    mask = ins.find("mask") if ins.facts.group == "warp" and ins.form.returns and ins.guard is None else None
    return isinstance(mask, Imm) and mask.value & ALL_LANES == ALL_LANES
