"""Barriers in shared memory."""

from collections.abc import Callable

from weft.ptx.module import Instruction

from ..context import WARP_REPEATS
from ..ir import Value, const, lanes_of, vec
from ..mbarrier_word import COUNT_MASK
from ..memory import SHARED_BASE
from ..runtime.shape import put
from .kernel_contract import KernelContract


def shared_address(e: KernelContract, ins: Instruction) -> Value:
    """Return the address of an object that must be in shared memory.

    A generic address outside the shared window becomes an invalid one.
    """
    if e.space_of(ins) == "shared":
        return e.address(ins, "a", "shared")
    offset = e.b.op("sub", e.address(ins, "a", "generic"), const(vec("i64"), SHARED_BASE))
    outside = e.b.icmp("ugt", offset, const(vec("i64"), 0xFFFFFFFF))
    return e.b.select(outside, const(vec("i32"), 0xFFFFFFF0), e.b.cast("trunc", offset, vec("i32")))


def _place(e: KernelContract, ins: Instruction) -> list[Value]:
    """Return shared address, lanes and site."""
    return [shared_address(e, ins), e.active(), e.site()]


def mbarrier(e: KernelContract, ins: Instruction) -> None:
    if ins.has("init"):
        e.runtime("mbarrier.init", "void", [*_place(e, ins), e.src(ins, "count")])
    elif ins.has("inval"):
        e.runtime("mbarrier.inval", "void", _place(e, ins))
    elif ins.has("test_wait") or ins.has("try_wait"):
        _test(e, ins)
    elif ins.has("complete_tx"):
        e.runtime("mbarrier.complete_tx", "void", [*_place(e, ins), e.src(ins, "bytes")])
    elif ins.has("pending_count"):
        state = e.src(ins, "state")
        count = e.b.op("and", state, const(state.ty, COUNT_MASK))
        e.dst(ins, e.b.cast("trunc", count, vec("i32") if lanes_of(state.ty) > 1 else "i32"))
    else:
        if ins.has("expect_tx"):
            e.runtime("mbarrier.expect_tx", "void", [*_place(e, ins), e.src(ins, "bytes")])
            if not ins.form.returns:
                return
        name = "mbarrier.drop" if ins.has("arrive_drop") else "mbarrier.arrive"
        name += ".keep" if ins.has("noComplete") else ""
        count = e.src(ins, "count") if ins.find("count") is not None else const(vec("i32"), 1)
        e.dst(ins, e.runtime(name, vec("i64"), [*_place(e, ins), count]))


def _test(e: KernelContract, ins: Instruction) -> None:
    put(e.b, e.warp, WARP_REPEATS, const("i32", int(e.repeats(ins))))
    if ins.has("parity"):
        state = e.b.cast("zext", e.src(ins, "odd"), vec("i64"))
        over = e.runtime("mbarrier.test.parity", "i32", [*_place(e, ins), state])
    else:
        over = e.runtime("mbarrier.test.state", "i32", [*_place(e, ins), e.src(ins, "state")])
    e.dst(ins, e.mask_vector(over), "p")


def cp(e: KernelContract, ins: Instruction) -> None:
    """Write an arrival that depends on the copies so far; without .noinc the mbarrier expects one more for it."""
    if not ins.has("noinc"):
        e.runtime("mbarrier.expect", "void", _place(e, ins))
    e.runtime("cp.async.arrive", "void", _place(e, ins))


EMIT: dict[str, Callable[[KernelContract, Instruction], None]] = {
    "mbarrier": mbarrier,
    "cp": cp,
}
