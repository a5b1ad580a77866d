"""What a `.pragma "weft.…"` in front of an instruction means: the marks of `weft.h`.

    .pragma "weft.region scores";  mad.lo.u32 d, bytes, 0, address;
In plain PTX d is the address. Here the host gives the region a place of its own (`vm/regions.py`) and d is that.
"""

from weft.core.errors import Unsupported
from weft.ptx.module import Instruction

from ..context import WARP_WORKER, WORKER_CALL_HOST, WORKER_REGION_BYTES, WORKER_REGION_PLACES
from ..ir import LANES, const, lanes_of, vec
from ..runtime.shape import get
from .kernel_contract import KernelContract


def mark(e: KernelContract, ins: Instruction) -> None:
    """The instruction with its mark."""
    if ins.pragma.split()[0] not in ("weft.region", "weft.reuse") or ins.form.name != "mad":
        raise Unsupported(f'.pragma "{ins.pragma}" before {ins.opcode}', ins.line)
    b = e.b
    worker = get(b, e.warp, WARP_WORKER)
    for name, field in (("c", WORKER_REGION_PLACES), ("a", WORKER_REGION_BYTES)):
        value = e.src(ins, name)
        lanes = value if lanes_of(value.ty) == LANES else b.splat(value)
        b.store(lanes, b.offset(worker, field.at), align=64)
    pointer = get(b, worker, WORKER_CALL_HOST)
    b.call_pointer(pointer, "void", [worker, e.warp, const("i32", e.position(ins)), e.active()])
    places = b.load(vec("i32"), b.offset(worker, WORKER_REGION_PLACES.at), align=64)
    e.dst(ins, places if e.lanes == LANES else b.extract(places, 0))
