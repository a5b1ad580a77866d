"""Replaces registers that only ever hold one literal by the literal where they are read.

Before:  mov.b32 %r5, 16;  shfl.sync.bfly.b32 %r6|%p1, %r4, %r5, 31, -1;
After:   mov.b32 %r5, 16;  shfl.sync.bfly.b32 %r6|%p1, %r4, 16, 31, -1;
"""

from dataclasses import replace

from ..module import Args, FloatImm, Function, Imm, Instruction, Operand, Pair, Reg, Vec

_FLOATS = frozenset(["f16", "bf16", "f32", "f64"])


def fold_constants(function: Function) -> Function:
    """Return the function with single-literal registers folded into their readers."""
    constants = _constants(function)
    if not constants:
        return function
    body = tuple(_fold(item, constants) if isinstance(item, Instruction) else item for item in function.body)
    return replace(function, body=body)


def _constants(function: Function) -> dict[str, Imm | FloatImm]:
    """Return the registers with one definition, a literal, that precedes every reader in the text."""
    found: dict[str, Imm | FloatImm] = {}
    seen: set[str] = set()
    for item in function.body:
        if not isinstance(item, Instruction):
            continue
        seen.update(reg.name for reg in item.read() if reg.name not in found)
        for reg in item.written():
            found.pop(reg.name, None)
            if reg.name not in seen and item.copied is not None and item.guard is None and item.type != "pred":
                source, target = item.copied, item.operand("d")
                if isinstance(source, Imm | FloatImm) and isinstance(target, Reg):
                    found[reg.name] = source
            seen.add(reg.name)
    return found


def _fold(ins: Instruction, constants: dict[str, Imm | FloatImm]) -> Instruction:
    operands = []
    for spec, operand in zip(ins.form.operands, ins.operands, strict=False):
        if not spec.written and spec.kind in ("value", "vector"):
            operand = _value(operand, ins.form.operand_type(spec.name, ins.mods), constants)
        operands.append(operand)
    changed = tuple(operands) + ins.operands[len(operands) :]
    return ins if changed == ins.operands else replace(ins, operands=changed)


def _value(operand: Operand, ptx_type: str, constants: dict[str, Imm | FloatImm]) -> Operand:
    if isinstance(operand, Vec):
        return Vec(tuple(_value(item, ptx_type, constants) for item in operand.items))
    if isinstance(operand, Args | Pair) or not isinstance(operand, Reg):
        return operand
    literal = constants.get(operand.name)
    if literal is None or (isinstance(literal, Imm) and ptx_type in _FLOATS):
        return operand
    if isinstance(literal, FloatImm) and (ptx_type not in _FLOATS or ptx_type != f"f{literal.width}"):
        return operand
    return literal
