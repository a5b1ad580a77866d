"""Replaces the last members of a vector load by `_` where no instruction reads them.

Before:  ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];      %r4 is read nowhere
After:   ld.shared.v4.b32 {%r1, %r2, %r3, _}, [%rd1];
Compilers widen loads: three neighbouring 32-bit elements become one load of 16 bytes. The fourth may be behind the end
of the array. No value depends on it, and a GPU reads it without harm: memory is allocated in units that hold entire
aligned vectors. So these bytes are no access: they are neither checked nor moved.
"""

from dataclasses import replace

from ..module import Discard, Function, Instruction, Module, Reg, Vec


def discard_unread(module: Module) -> Module:
    """Return `module` with `_` in the place of the last members of vector loads that nothing reads."""
    return replace(module, functions={name: _in_function(function) for name, function in module.functions.items()})


def unread_members(ins: Instruction) -> int:
    """Return how many of the last members of a load are `_`; 0 if all are, because then nothing tells what is read."""
    target = ins.operand("d")
    if not isinstance(target, Vec):
        return 0
    kept = max((at + 1 for at, item in enumerate(target.items) if not isinstance(item, Discard)), default=0)
    return len(target.items) - kept if kept else 0


def _in_function(function: Function) -> Function:
    if not any(isinstance(item, Instruction) and _is_vector_load(item) for item in function.body):
        return function
    read: set[str] = set()
    for item in function.body:
        if isinstance(item, Instruction):
            if item.guard is not None:
                read.add(item.guard.reg.name)
                item = replace(item, guard=None)  # a guarded write keeps the old value, which is no use of it
            read.update(reg.name for reg in item.read())
    body = tuple(
        _discarded(item, read) if isinstance(item, Instruction) and _is_vector_load(item) else item
        for item in function.body
    )
    return replace(function, body=body)


def _is_vector_load(ins: Instruction) -> bool:
    return ins.facts.is_load and ins.has("vec") and not ins.has("order") and not ins.has("volatile")


def _discarded(ins: Instruction, read: set[str]) -> Instruction:
    target = ins.operand("d")
    assert isinstance(target, Vec)
    items = list(target.items)
    at = len(items)
    while at and isinstance(last := items[at - 1], Reg) and last.name not in read:
        at -= 1
    if at in (0, len(items)):
        return ins
    operands = list(ins.operands)
    operands[ins.form.index["d"]] = Vec((*items[:at], *[Discard()] * (len(items) - at)))
    return replace(ins, operands=tuple(operands))
