"""Operations with a rounding other than to nearest even, done by the processor in that rounding mode.

Each lives in a function of its own that is never inlined, so that no other arithmetic can be scheduled into
the stretch where the mode is changed.
"""

from collections.abc import Sequence

from ..ir import Value, element, lanes_of
from .emitter import Emitter

_MODE = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
"""The numbers of llvm.set.rounding."""


def directed(e: Emitter, operation: str, rounding: str, args: Sequence[Value]) -> Value:
    """`fadd`, `fsub`, `fmul`, `fdiv`, `fma` or `sqrt` of floats or doubles, rounded by rz, rm or rp."""
    ty = args[0].ty
    scalar = {"float": "f32", "double": "f64"}[element(ty)]
    suffix = scalar if lanes_of(ty) == 1 else f"v{lanes_of(ty)}{scalar}"
    name = f"weft.{operation}.{rounding}.{suffix}"
    constrained = f"llvm.experimental.constrained.{operation}.{suffix}"
    types = ", ".join([ty] * len(args))
    params = ", ".join(f"{ty} %a{at}" for at in range(len(args)))
    declarations = e.b.declarations
    declarations.setdefault("llvm.set.rounding", "declare void @llvm.set.rounding(i32)")
    declarations.setdefault(constrained, f"declare {ty} @{constrained}({types}, metadata, metadata)")
    declarations.setdefault(
        name,
        f"define internal {ty} @{name}({params}) noinline strictfp {{\n"
        f"  call void @llvm.set.rounding(i32 {_MODE[rounding]}) strictfp\n"
        f"  %r = call {ty} @{constrained}({params}, "
        'metadata !"round.dynamic", metadata !"fpexcept.strict") strictfp\n'
        f"  call void @llvm.set.rounding(i32 {_MODE['rn']}) strictfp\n"
        f"  ret {ty} %r\n}}",
    )
    return e.b.call(name, ty, args)
