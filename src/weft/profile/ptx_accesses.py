"""The accesses to shared and global memory of a kernel's PTX, each with a base it shares with its neighbours."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.ptx.module import Imm, Instruction, Mem, Reg, Sym
from weft.ptx.passes.build_cfg import Cfg
from weft.vm.runtime.wmma_tiles import parse_tile

Root = tuple[str, int]
"""The origin of an address: a symbol or register, and the position in its block that set the register last."""


@dataclass(frozen=True)
class PtxAccess:
    """One PTX instruction that accesses shared, global or generic memory."""

    line: int
    opcode: str
    verb: str
    """`load`, `store`, `atomic`, or `copy` (cp.async)."""
    space: str
    bytes: int
    """Bytes per lane; for wmma, per lane and 8 x 8 block."""
    block: int
    root: Root
    offset: int
    """Offset of the address from its root."""
    tiles: int = 0
    """ldmatrix: its matrices; wmma: the blocks it counts one by one."""
    wmma: bool = False


def find_accesses(cfg: Cfg) -> tuple[PtxAccess, ...]:
    """Return every access, in program order."""
    once = _single_definitions(cfg)
    found: list[PtxAccess] = []
    for block in cfg.blocks:
        set_at: dict[str, int] = {}
        for place, ins in enumerate(block.body):
            access = _access(ins, block.id, once, set_at)
            if access is not None:
                found.append(access)
            for reg in ins.written():
                set_at[reg.name] = place + 1
    return tuple(found)


def _single_definitions(cfg: Cfg) -> Mapping[str, Instruction]:
    """Return register → the only instruction that writes it."""
    writers: dict[str, list[Instruction]] = {}
    for ins in _instructions(cfg):
        for reg in ins.written():
            writers.setdefault(reg.name, []).append(ins)
    return {name: found[0] for name, found in writers.items() if len(found) == 1 and found[0].guard is None}


def _instructions(cfg: Cfg) -> Iterator[Instruction]:
    for block in cfg.blocks:
        yield from block.body


def _access(
    ins: Instruction, block: int, once: Mapping[str, Instruction], set_at: Mapping[str, int]
) -> PtxAccess | None:
    what = _what(ins)
    if what is None:
        return None
    verb, space, size, tiles, address = what
    root, offset = _resolve(ins.operand(address), once, set_at)
    together = tiles > 0 and "shape" in ins.mods
    return PtxAccess(ins.line, ins.opcode, verb, space, size, block, root, offset, tiles, together)


def _what(ins: Instruction) -> tuple[str, str, int, int, str] | None:
    """Return verb, space, bytes per lane, tiles and the operand with the address."""
    if not ins.facts.uses_memory or ins.facts.is_mbarrier or ins.facts.starts == "bulk":
        return None  # no counter of accesses has mbarriers and bulk copies
    access = ins.facts.accesses[0]
    verb, space, size = access.verb, access.space(ins.mods), ins.bytes_of(access) or 0
    if space not in ("shared", "global", "generic"):
        return None
    if ins.facts.starts:
        return "copy", "global", size, 0, access.address
    if access.width == "tile":
        which = "d" if ins.has("store") else "c" if ins.has("c") else ins.mods["which"]
        kind = ins.mods.get("type", "tf32")
        tile, _ = parse_tile(f"wmma.{verb}.{which}.{ins.mods['layout']}.{ins.mods['shape']}.{space}.{kind}")
        lines, line_bytes = tile.block_lines
        return verb, space, lines * line_bytes // 32, len(tile.blocks), access.address
    return verb, space, size, int(ins.mods["num"][1:]) if access.width == "row" else 0, access.address


def _resolve(operand: object, once: Mapping[str, Instruction], set_at: Mapping[str, int]) -> tuple[Root, int]:
    """Return root and offset of an address, following constant additions and moves back."""
    if not isinstance(operand, Mem):
        return ("", 0), 0
    base, offset = operand.base, operand.offset
    while isinstance(base, Reg):
        made = once.get(base.name)
        step = _step(made) if made is not None else None
        if step is None:
            break
        base, offset = step[0], offset + step[1]
    if isinstance(base, Sym):
        return (base.name, 0), offset + base.offset
    if isinstance(base, Reg):
        return (base.name, 0 if base.name in once else set_at.get(base.name, 0)), offset
    return ("", 0), offset + base.value


def _step(ins: Instruction) -> tuple[Reg | Sym, int] | None:
    """Return the register or symbol that a register is a constant distance from, and the distance."""
    if ins.copied is not None or (ins.facts.converts and ins.has("space")):
        a = ins.operand("a")
        return (a, 0) if isinstance(a, Reg | Sym) else None
    if ins.form.name == "add" and not ins.has("cc"):
        a, b = ins.operand("a"), ins.operand("b")
        if isinstance(a, Reg) and isinstance(b, Imm):
            return a, b.value
    return None
