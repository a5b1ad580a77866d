"""Makes a wait in an instruction a loop, so that a warp can give way to those it waits for.

Before:  setmaxnreg.inc.sync.aligned.u32 232;
After:   L: setmaxnreg.inc.sync.aligned.u32 %granted, 232;  @!%granted bra L;
Before:  barrier.cluster.wait.acquire.aligned;
After:   L: barrier.cluster.wait.acquire.aligned %granted;  @!%granted bra L;
Before:  wgmma.wait_group.sync.aligned 0;
After:   L: wgmma.wait_group.sync.aligned %granted, 0;  @!%granted bra L;
"""

from dataclasses import replace

from ..isa.cluster import OVER
from ..isa.control import GRANTED
from ..isa.form import Form
from ..isa.wgmma import COMPLETE
from ..module import Function, Guard, Instruction, LabelDef, Reg
from .build_cfg import branch_to

_RESULT = Reg("%granted")


def give_way(function: Function) -> Function:
    """Return the function with a loop for each request of registers and each wait for a cluster or a warpgroup."""
    if not any(_asking(item) for item in function.body):
        return function
    body: list[Instruction | LabelDef] = []
    for number, item in enumerate(function.body):
        form = _asking(item)
        if form is None or not isinstance(item, Instruction):
            body.append(item)
            continue
        again, after = f"$again{number}", f"$granted{number}"
        if item.guard is not None:
            body.append(branch_to(after, item, Guard(item.guard.reg, not item.guard.negated)))
        asks = replace(item, form=form, operands=(_RESULT, *item.operands), guard=None)
        body += [LabelDef(again, item.line), asks, branch_to(again, item, Guard(_RESULT, negated=True))]
        body.append(LabelDef(after, item.line))
    return replace(function, body=tuple(body), registers={**function.registers, _RESULT.name: "pred"})


def _asking(item: Instruction | LabelDef) -> Form | None:
    """Return the form that asks instead of waiting; None if the item does not wait in this way."""
    if not isinstance(item, Instruction):
        return None
    if item.facts.registers and item.mods["action"] == "inc":
        return GRANTED
    if item.facts.orders == "wait":
        return COMPLETE
    return OVER if item.facts.group == "cluster" and item.facts.order == "acquire" else None
