"""Replaces a call through a register by a choice between the functions that it can name.

Before:  mov.b64 %rd1, f;                  call (r), %rd1, (a), prototype;
After:   mov.b64 %rd1, 0x1000000000000010;  setp.eq.u64 %c, %rd1, 0x1000000000000010;  @%c call (r), f, (a);
         @%c bra DONE;  …the next function…  trap;  DONE:
Functions that a register can name: those of `.calltargets`, or all whose address the module takes somewhere and whose
parameters and results have the sizes of the `.callprototype`. A pointer to anything else, such as one that is only
loaded from memory and names no function of this file, stops the launch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from .. import isa
from ..module import (
    Function,
    Guard,
    Imm,
    Instruction,
    LabelDef,
    Module,
    Operand,
    Prototype,
    Reg,
    Sym,
    Variable,
)
from .build_cfg import branch_to

FIRST_ADDRESS = 1 << 60
"""First address of code: no data is there, so loading from a function's address is as wrong as on a GPU."""
SPACING = 16


def resolve_calls(module: Module) -> Module:
    """Return `module` without calls through registers and without function names as values, where that is possible."""
    taken = _taken(module)
    if not taken and not any(_indirect(item) for function in module.functions.values() for item in function.body):
        return module
    functions = [name for name, function in module.functions.items() if not function.entry]
    numbers = {name: number + 1 for number, name in enumerate(functions)}  # the same for each kernel of a file
    addresses = {name: FIRST_ADDRESS + SPACING * numbers[name] for name in taken}
    resolved = {name: _resolved(module, function, addresses) for name, function in module.functions.items()}
    variables = tuple(_with_addresses(variable, addresses) for variable in module.variables)
    return replace(module, functions=resolved, variables=variables)


def _taken(module: Module) -> list[str]:
    """Return the functions whose address is used as a value, in the order of the file."""
    named = {sym.name for variable in module.variables for _, sym in variable.relocations}
    for function in module.functions.values():
        for item in function.body:
            if isinstance(item, Instruction):
                named.update(_named(item))
    return [name for name, function in module.functions.items() if name in named and not function.entry]


def _named(ins: Instruction) -> Iterator[str]:
    for operand in ins.operands:
        if isinstance(operand, Prototype):
            yield from operand.targets
        elif isinstance(operand, Sym) and ins.facts.control != "call":
            yield operand.name


def _indirect(item: Instruction | LabelDef) -> bool:
    return isinstance(item, Instruction) and item.facts.control == "call" and isinstance(item.operand("func"), Reg)


def _resolved(module: Module, function: Function, addresses: Mapping[str, int]) -> Function:
    body: list[Instruction | LabelDef] = []
    registers = dict(function.registers)
    for item in function.body:
        if isinstance(item, LabelDef):
            body.append(item)
        elif item.facts.control != "call":
            body.append(replace(item, operands=tuple(_as_number(operand, addresses) for operand in item.operands)))
        elif _indirect(item):
            names = _candidates(module, item, addresses)
            number = len(body)  # a line may contain several calls, a place in the body only one
            chosen = f"$chosen{number}"
            registers[chosen] = "pred"
            body += _choice(item, Reg(chosen), {name: addresses[name] for name in names}, f"$called{number}")
        else:
            body.append(item)
    return replace(function, body=tuple(body), registers=registers)


def _as_number(operand: Operand, addresses: Mapping[str, int]) -> Operand:
    if isinstance(operand, Sym) and operand.name in addresses:
        return Imm(addresses[operand.name] + operand.offset)
    return operand


def _candidates(module: Module, call: Instruction, addresses: Iterable[str]) -> list[str]:
    prototype = call.find("prototype")
    if not isinstance(prototype, Prototype):
        return []
    if prototype.targets:
        return [name for name in addresses if name in prototype.targets]
    return [name for name in addresses if _fits(module.functions[name], prototype)]


def _fits(function: Function, prototype: Prototype) -> bool:
    params = tuple(variable.size_bytes for variable in function.params)
    returns = tuple(variable.size_bytes for variable in function.returns)
    return (params, returns) == (prototype.param_bytes, prototype.return_bytes)


def _choice(call: Instruction, chosen: Reg, targets: Mapping[str, int], done: str) -> list[Instruction | LabelDef]:
    """Compare, call and branch to `done`, for one function after the other; a lane without a match stops the launch."""
    made: list[Instruction | LabelDef] = []
    if call.guard is not None:
        made.append(branch_to(done, call, Guard(call.guard.reg, not call.guard.negated)))
    returns, pointer, args = call.operands[:3]
    only = Guard(chosen, negated=False)
    for name, address in targets.items():
        made.append(_made("setp.eq.u64", (chosen, pointer, Imm(address)), call))
        made.append(replace(call, operands=(returns, Sym(name), args), guard=only))
        made.append(branch_to(done, call, only))
    return [*made, replace(_made("trap", (), call), opcode=call.opcode), LabelDef(done, call.line)]


def _made(opcode: str, operands: tuple[Operand, ...], at: Instruction) -> Instruction:
    found = isa.lookup(opcode)
    assert found is not None
    return Instruction(opcode, found[0], found[1], operands, None, at.line, at.place)


def _with_addresses(variable: Variable, addresses: Mapping[str, int]) -> Variable:
    """Replace initial values that are addresses of functions by numbers."""
    data = bytearray(variable.init)
    for at, sym in variable.relocations:
        if sym.name in addresses:
            data[at : at + 8] = (addresses[sym.name] + sym.offset).to_bytes(8, "little")
    rest = tuple((at, sym) for at, sym in variable.relocations if sym.name not in addresses)
    return replace(variable, init=bytes(data), relocations=rest)
