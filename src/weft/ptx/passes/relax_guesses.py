"""Makes the load of a value that a compare-and-swap compares with a relaxed one.

Before:  ld.global.b64 %old, [%p];              L: …  atom.global.cas.b64 %found, [%p], %old, %new;
After:   ld.relaxed.gpu.global.b64 %old, [%p];  L: …  atom.global.cas.b64 %found, [%p], %old, %new;
CUDA's guide builds atomics in this way, and compilers those of 8 and 16 bits. The first value is a guess: if another
thread has changed the word meanwhile, the exchange fails and returns the value that is there. So it races with no
other atomic; a race with a plain store is still one.
"""

from collections.abc import Iterable
from dataclasses import replace

from ..isa.memory import GUESS
from ..module import Function, Instruction, Module, Operand, Reg, Vec

_PLAIN = frozenset(("space", "type", "cop"))
"""Modifiers of a load that may be a guess; `cop` only chooses a cache."""


def relax_guesses(module: Module) -> Module:
    """Return `module` with relaxed loads of the values that compare-and-swaps compare with."""
    return replace(module, functions={name: _in_function(function) for name, function in module.functions.items()})


def _in_function(function: Function) -> Function:
    body = [item for item in function.body if isinstance(item, Instruction)]
    swaps = [ins for ins in body if ins.facts.is_atomic and ins.has("cas")]
    if not swaps:
        return function
    guessed = {(name, swap.operand("a")) for swap in swaps for name in _sources(swap.operand("b"), body)}
    return replace(
        function,
        body=tuple(_relaxed(item, guessed) if isinstance(item, Instruction) else item for item in function.body),
    )


def _sources(compared: Operand, body: Iterable[Instruction]) -> set[str]:
    """Return the registers whose value reaches the operand unchanged."""
    found = {compared.name} if isinstance(compared, Reg) else set[str]()
    known = -1
    while known != len(found):
        known = len(found)
        for ins in body:
            if isinstance(ins.copied, Reg) and any(reg.name in found for reg in ins.written()):
                found.add(ins.copied.name)
    return found


def _relaxed(ins: Instruction, guessed: set[tuple[str, Operand]]) -> Instruction:
    constant = any(access.read_only for access in ins.facts.accesses)
    if not ins.facts.is_load or constant or ins.mods.keys() - _PLAIN:
        return ins
    target = ins.operand("d")
    if isinstance(target, Vec) and len(target.items) == 1:  # `{ %r1 }`, as Triton writes it
        target = target.items[0]
    if not isinstance(target, Reg) or (target.name, ins.operand("a")) not in guessed:
        return ins
    kept = {slot: word for slot, word in ins.mods.items() if slot != "cop"}
    mods = {"order": "relaxed", "scope": "gpu", **kept}
    return replace(ins, form=GUESS, mods=mods, operands=(target, ins.operand("a")))
