"""Replaces calls of functions in the same module by their bodies.

Before:  st.param.b32 [param0], %r1;  call (retval0), f, (param0);  ld.param.b32 %r2, [retval0];
After:   st.param.b32 [param0], %r1;  …f's body, its parameter being param0 and its result retval0…  L: ld.param …
A callee's registers, labels and variables get a suffix per call. Functions of the device runtime (vprintf,
__assertfail) stay calls. Recursion cannot be inlined and is unsupported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.core.errors import ParseError, Unsupported
from weft.core.records import Place

from ..module import (
    Args,
    BranchTable,
    Function,
    Guard,
    Instruction,
    Label,
    LabelDef,
    Mem,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Sym,
    Variable,
    Vec,
)
from .build_cfg import branch_to

MOST_INSTRUCTIONS = 200_000


@dataclass
class _Inlined:
    """A function under construction."""

    registers: dict[str, str]
    variables: list[Variable]
    body: list[Instruction | LabelDef] = field(default_factory=list)
    tables: dict[str, BranchTable] = field(default_factory=dict)
    calls: int = 0


def inline_calls(module: Module, function: Function) -> Function:
    """Return `function` with every call of a function that the module defines replaced by its body.

    Raises Unsupported if the body of the function, or of one that it calls, could not be read.
    """
    function.check_supported()
    if not any(isinstance(item, Instruction) and _callee(module, item) for item in function.body):
        return function
    made = _Inlined(dict(function.registers), list(function.variables), tables=dict(function.tables))
    for item in function.body:
        _add(module, made, item, (function.name,))
    return replace(
        function, registers=made.registers, variables=tuple(made.variables), body=tuple(made.body), tables=made.tables
    )


def _callee(module: Module, ins: Instruction) -> Function | None:
    if ins.facts.control != "call":
        return None
    target = ins.operand("func")
    found = module.functions.get(target.name) if isinstance(target, Sym) else None
    return None if found is None or found.extern else found


def _add(module: Module, made: _Inlined, item: Instruction | LabelDef, stack: tuple[str, ...]) -> None:
    callee = _callee(module, item) if isinstance(item, Instruction) else None
    if callee is None:
        made.body.append(item)
        return
    assert isinstance(item, Instruction)
    if callee.name in stack:
        chain = " → ".join([*stack, callee.name])
        raise Unsupported(f"recursion: {chain} (calls are inlined: rewrite it as a loop)", item.line)
    callee.check_supported()
    made.calls += 1
    suffix = f"#{made.calls}"
    end = f"$return{suffix}"
    names = _arguments(item, callee)
    names.update({variable.name: variable.name + suffix for variable in callee.variables})
    made.registers.update({name + suffix: kind for name, kind in callee.registers.items()})
    made.variables += [replace(variable, name=variable.name + suffix) for variable in callee.variables]
    for table in callee.tables.values():
        targets = tuple(target + suffix for target in table.targets)
        made.tables[table.name + suffix] = BranchTable(table.name + suffix, targets)
    if item.guard is not None:
        skipped = Guard(item.guard.reg, not item.guard.negated)
        made.body.append(branch_to(end, item, skipped))
    for inner in callee.body:
        if isinstance(inner, LabelDef):
            made.body.append(LabelDef(inner.name + suffix, inner.line))
        elif inner.facts.control == "return":
            made.body.append(branch_to(end, inner, _guard(inner.guard, suffix)))
        else:
            moved = _rename(inner, suffix, names)
            moved = replace(moved, place=_called_from(inner.place, item.place))
            _add(module, made, moved, (*stack, callee.name))
    made.body.append(LabelDef(end, item.line))
    if len(made.body) > MOST_INSTRUCTIONS:
        raise Unsupported(f"more than {MOST_INSTRUCTIONS} instructions after inlining", item.line)


def _arguments(call: Instruction, callee: Function) -> dict[str, str]:
    """Return the callee's parameters and results → the caller's variables that replace them."""
    names: dict[str, str] = {}
    for slot, declared in (("ret", callee.returns), ("args", callee.params)):
        given = call.operand(slot)
        assert isinstance(given, Args)
        if len(given.items) != len(declared):
            raise ParseError(f"call of {callee.name} has {len(given.items)} {slot}, not {len(declared)}", call.line)
        for variable, item in zip(declared, given.items, strict=True):
            if not isinstance(item, Sym):
                raise Unsupported(f"call of {callee.name} with {item}", call.line)
            names[variable.name] = item.name
    return names


def _called_from(place: Place | None, call: Place | None) -> Place | None:
    """Return the place, with the place of the call at the end of its chain."""
    if place is None:
        return call
    return replace(place, inlined_at=_called_from(place.inlined_at, call))


def _guard(guard: Guard | None, suffix: str) -> Guard | None:
    return None if guard is None else Guard(Reg(guard.reg.name + suffix), guard.negated)


def _rename(ins: Instruction, suffix: str, names: Mapping[str, str]) -> Instruction:
    def moved(operand: Operand) -> Operand:
        match operand:
            case Reg(name=name):
                return Reg(name + suffix)
            case Not(reg=reg):
                return Not(Reg(reg.name + suffix))
            case Sym(name=name, offset=offset):
                return Sym(names.get(name, name), offset)
            case Mem(base=Reg(name=name), offset=offset):
                return Mem(Reg(name + suffix), offset)
            case Mem(base=Sym(name=name, offset=inner), offset=offset):
                return Mem(Sym(names.get(name, name), inner), offset)
            case Vec(items=items):
                return Vec(tuple(moved(item) for item in items))
            case Args(items=items):
                return Args(tuple(moved(item) for item in items))
            case Pair(first=first, second=second):
                return Pair(moved(first), moved(second))
            case Label(name=name):
                return Label(name + suffix)
        return operand

    operands = tuple(moved(operand) for operand in ins.operands)
    return replace(ins, operands=operands, guard=_guard(ins.guard, suffix))
