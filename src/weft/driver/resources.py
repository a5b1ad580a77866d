"""Registers and local memory of a kernel: from its cubin, or for PTX alone from ptxas, when something asks for them."""

from weft.core.errors import CompileError, ToolMissing
from weft.ptx.cut import index_of
from weft.toolchain.assemble import assemble
from weft.toolchain.cubin_facts import CubinFacts, cubin_facts
from weft.toolchain.elf import CubinError


class Unknown(Exception):
    """There is no ptxas, or it does not take the PTX."""


def resources_of_ptx(ptx: str, entry: str, target: str) -> CubinFacts:
    """Compile one kernel of a PTX text and return what it needs. Raises Unknown."""
    try:
        return cubin_facts(cubin_of_ptx(ptx, entry, target), entry)
    except CubinError as error:
        raise Unknown(str(error)) from error


def cubin_of_ptx(ptx: str, entry: str, target: str) -> bytes:
    """Return the machine code of one kernel. Raises Unknown."""
    try:
        return assemble(kernel_alone(ptx, entry), target)
    except (ToolMissing, CompileError) as error:
        raise Unknown(str(error)) from error


def kernel_alone(ptx: str, entry: str) -> str:
    """Return the PTX without functions that the kernel cannot call, on the same lines: a library has hundreds."""
    index = index_of(ptx)
    reached = {piece.name for piece in index.reach(entry)}
    parts, at = [], 0
    for piece in index.pieces:
        if piece.name not in reached:
            parts += [ptx[at : piece.start], "\n" * ptx.count("\n", piece.start, piece.end)]
            at = piece.end
    return "".join([*parts, ptx[at:]])
