"""Makes the wait of `setmaxnreg.inc` a loop, so that a warp can give way while other warps release registers.

Before:  setmaxnreg.inc.sync.aligned.u32 232;
After:   L: setmaxnreg.inc.sync.aligned.u32 %granted, 232;  @!%granted bra L;
"""

from dataclasses import replace

from ..isa.control import GRANTED
from ..module import Function, Guard, Instruction, LabelDef, Reg
from .build_cfg import branch_to

_RESULT = Reg("%granted")


def wait_for_registers(function: Function) -> Function:
    """Return the function with a loop for each request of registers."""
    if not any(_asks(item) for item in function.body):
        return function
    body: list[Instruction | LabelDef] = []
    for number, item in enumerate(function.body):
        if not isinstance(item, Instruction) or not _asks(item):
            body.append(item)
            continue
        again, after = f"$registers{number}", f"$granted{number}"
        if item.guard is not None:
            body.append(branch_to(after, item, Guard(item.guard.reg, not item.guard.negated)))
        asks = replace(item, form=GRANTED, operands=(_RESULT, *item.operands), guard=None)
        body += [LabelDef(again, item.line), asks, branch_to(again, item, Guard(_RESULT, negated=True))]
        body.append(LabelDef(after, item.line))
    return replace(function, body=tuple(body), registers={**function.registers, _RESULT.name: "pred"})


def _asks(item: Instruction | LabelDef) -> bool:
    return isinstance(item, Instruction) and item.facts.registers and item.mods["action"] == "inc"
