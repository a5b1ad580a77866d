"""Control flow inside a block's body. Branches end blocks; `in_step` and `divergent` write them."""

from collections.abc import Callable

from weft.core.errors import Unsupported
from weft.ptx.module import Instruction, Sym

from ..context import TRAPPED, WARP_WORKER, WORKER_CALL_HOST
from ..device_functions import ASSERT, DEVICE_FUNCTIONS
from ..ir import const
from ..runtime.shape import get
from ..wgmma_kind import register_count, registers_key
from .kernel_contract import KernelContract


def call(e: KernelContract, ins: Instruction) -> None:
    """Call a function of the device runtime; calls of the kernel's own functions are inlined before."""
    target = ins.operand("func")
    if not isinstance(target, Sym) or target.name not in DEVICE_FUNCTIONS:
        if not isinstance(target, Sym):
            raise Unsupported(f"call of {target}", ins.line)
        where = "if a file of yours defines it, name that file in a link line"
        raise Unsupported(f"call of {target.name}, which this PTX does not define: {where}", ins.line)
    b, lanes = e.b, e.active()
    fatal = target.name == ASSERT
    failed, after = b.label("failed"), b.label("after")
    if fatal:
        b.cbr(b.icmp("ne", lanes, const("i32", 0)), failed, after, likely=False)
        b.place(failed)
    worker = get(b, e.warp, WARP_WORKER)
    pointer = get(b, worker, WORKER_CALL_HOST)
    b.call_pointer(pointer, "void", [worker, e.warp, const("i32", e.position(ins)), lanes])
    if fatal:  # a failed assertion ends the launch, as trap does
        b.ret(const("i32", TRAPPED))
        b.place(after)


def nothing(e: KernelContract, ins: Instruction) -> None:
    """Do nothing: brkpt without a debugger, nanosleep and pmevent have no effect that a program can see.

    griddepcontrol has none either, because launches run one after another: the grids that it waits for have ended.
    """


def setmaxnreg(e: KernelContract, ins: Instruction) -> None:
    """Take registers from the CTA's pool or return them; `inc` returns whether there were enough."""
    args = [const("i32", register_count(ins)), const("i64", registers_key(ins)), e.active(), e.site()]
    if ins.mods["action"] == "dec":
        e.runtime("registers.dec", "void", args)
    else:
        e.dst(ins, e.mask_vector(e.runtime("registers.inc", "i32", args)), "p")


EMIT: dict[str, Callable[[KernelContract, Instruction], None]] = {
    "brkpt": nothing,
    "call": call,
    "griddepcontrol": nothing,
    "nanosleep": nothing,
    "pmevent": nothing,
    "setmaxnreg": setmaxnreg,
}
