"""nvdisasm's text → the instructions of one kernel, in blocks, each with the PTX line it comes from.

        //## File ".nv_debug_ptx_txt", line 104
            /*0280*/                   LDS.128 R12, [R7] ;
    .L_x_1:
ptxas records the PTX line (`-lineinfo`): where several PTX instructions became one, it is the line of one of them.
"""

import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass

from weft.core.errors import UsageError

_SECTION = re.compile(r"\s*\.section\s+\.text\.([\w$.]+)")
_LABEL = re.compile(r"(\.L_x_\d+|[\w$.]+):\s*$")
_LINE = re.compile(r'\s*//## File "\.nv_debug_ptx_txt", line (\d+)')
_OTHER_LINE = re.compile(r"\s*//## File ")
_CODE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(?:@(!?U?P[0-9T]+)\s+)?([A-Z][A-Z0-9_.x]*)\s*(.*?)\s*;")
_ENDS = frozenset(["BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "CALL", "BREAK", "WARPSYNC", "BSYNC", "YIELD", "KILL"])
_FALLS_ON = frozenset(["CALL", "WARPSYNC", "BSYNC", "YIELD", "BREAK"])
_TARGET = re.compile(r"`\((\.L_x_\d+|[\w$.]+)\)")


@dataclass(frozen=True)
class SassInstruction:
    """One instruction of the cubin."""

    address: int
    opcode: str
    """With its modifiers: `LDS.U.128`."""
    operands: str
    predicate: str
    """`P0`, `!P1`; empty where it always executes."""
    ptx_line: int
    """0: ptxas does not record it."""

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(self.opcode.split(".")[1:])


@dataclass(frozen=True)
class SassBlock:
    """Instructions that a warp runs in sequence."""

    id: int
    instructions: tuple[SassInstruction, ...]
    successors: tuple[int, ...]


def read_blocks(text: str, entry: str) -> tuple[SassBlock, ...]:
    """Return the blocks of kernel `entry` (its mangled name); raises UsageError if the text does not contain it."""
    pieces: list[list[SassInstruction]] = [[]]
    starts: dict[str, int] = {}
    inside, line = False, 0
    for row in text.splitlines():
        if section := _SECTION.match(row):
            inside, line = section[1] == entry, 0
        if not inside:
            continue
        if found := _LINE.match(row):
            line = int(found[1])
        elif _OTHER_LINE.match(row):
            continue
        elif label := _LABEL.match(row.strip()):
            if pieces[-1]:
                pieces.append([])
            starts[label[1]] = len(pieces) - 1
            if not label[1].startswith(".L_x_"):
                line = 0  # a function begins: its instructions have no PTX line until one is given
        elif code := _CODE.match(row):
            ins = SassInstruction(int(code[1], 16), code[3], code[4], code[2] or "", line)
            pieces[-1].append(ins)
            if ins.name in _ENDS:
                pieces.append([])
    if not pieces[-1]:
        pieces.pop()
    if not pieces:
        raise UsageError(f"the disassembly has no kernel {entry}")
    return tuple(
        SassBlock(number, tuple(piece), tuple(_successors(piece, number, len(pieces), starts)))
        for number, piece in enumerate(pieces)
    )


def _successors(piece: list[SassInstruction], number: int, count: int, starts: dict[str, int]) -> Iterator[int]:
    last = piece[-1]
    target = _TARGET.search(last.operands)
    # A CALL of a subroutine of ptxas is the slow path of a division; others are functions, or an exit of a loop.
    jumps = last.name in ("BRA", "JMP") or (last.name == "CALL" and target and "__internal_" not in target[1])
    if jumps and target and target[1] in starts:
        yield starts[target[1]]
    falls = last.name not in _ENDS or last.name in _FALLS_ON or last.predicate or _conditional(last)
    if falls and number + 1 < count:
        yield number + 1


def _conditional(ins: SassInstruction) -> bool:
    """`BRA P0, target`, `BRA.DIV`: whether the condition is one of the operands."""
    return ins.name == "BRA" and ("," in ins.operands or len(ins.modifiers) > 0)


def repeat_of(block: SassBlock, lines: Container[int] | None = None) -> int:
    """Return how many copies of most PTX instructions the block holds: the factor of an unrolled loop.

    `lines` are those of one PTX block, where a SASS block holds a fully unrolled loop and the code around it.
    """
    counts = Counter(
        (ins.ptx_line, ins.opcode, ins.predicate)
        for ins in block.instructions
        if ins.ptx_line and (lines is None or ins.ptx_line in lines)
    )
    if not counts:
        return 1
    most = Counter(counts.values()).most_common(1)[0]
    return most[0] if most[1] > len(counts) // 2 else 1
