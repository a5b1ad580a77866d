"""LLVM IR as text, one function at a time.

A builder of strings instead of llvmlite's object tree: a tensor-core kernel has ten thousand instructions, and
`weft show --as llvm` prints exactly what is written here.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LANES = 32
FENCED = 32
"""Accesses to memory between two fences for the compiler: the time of LLVM's instruction selection and scheduler grows
with the square of their number."""


class Value(NamedTuple):
    """An SSA value or a constant: its LLVM type and how it is written."""

    ty: str
    ref: str


def vec(element: str, lanes: int = LANES) -> str:
    """Return `<lanes x element>`, or `element` itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def element(ty: str) -> str:
    """Return the scalar type of a vector or scalar type."""
    return ty[ty.index("x") + 2 : -1] if ty[0] == "<" else ty


def lanes_of(ty: str) -> int:
    """Return how many lanes a type has."""
    return int(ty[1 : ty.index(" ")]) if ty[0] == "<" else 1


def bits_of(ty: str) -> int:
    """Return the width in bits of a scalar type."""
    return {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64}.get(ty) or int(ty[1:])


def const(ty: str, value: int | float) -> Value:
    """Return a constant, splat over a vector type. Floats are written by their exact bits."""
    scalar = element(ty)
    if scalar in ("float", "double"):
        text = "0x" + struct.pack(">d", float(value)).hex().upper()
    elif scalar == "half":
        text = "0xH" + struct.pack(">e", float(value)).hex().upper()
    elif scalar == "i1":
        text = "true" if value else "false"
    else:
        width = bits_of(scalar)
        wrapped = int(value) & ((1 << width) - 1)
        text = str(wrapped - (1 << width) if wrapped >> (width - 1) else wrapped)
    return Value(ty, f"splat ({scalar} {text})" if ty[0] == "<" else text)


def poison(ty: str) -> Value:
    """Return LLVM's poison, a value that must never be used."""
    return Value(ty, "poison")


def vector(scalar: str, items: Iterable[int]) -> Value:
    """Return a constant vector of integers."""
    values = list(items)
    return Value(vec(scalar, len(values)), "<" + ", ".join(f"{scalar} {item}" for item in values) + ">")


def _suffix(ty: str) -> str:
    names = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}
    scalar = names.get(element(ty), element(ty))
    return scalar if ty[0] != "<" else f"v{lanes_of(ty)}{scalar}"


class Builder:
    """Writes the body of one function; `declarations` collects the functions it calls by name."""

    def __init__(self, name: str, result: str, params: Sequence[tuple[str, str]], attributes: str = "") -> None:
        self.name, self.result, self.params, self.attributes = name, result, params, attributes
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.count = 0
        self.labels = 0
        self.block = "entry"
        self.closed = False
        self.accesses = 0

    # -- writing -------------------------------------------------------------------------------------------

    def param(self, name: str) -> Value:
        """Return a parameter by name."""
        return next(Value(ty, f"%{given}") for ty, given in self.params if given == name)

    def emit(self, ty: str, text: str) -> Value:
        """Write one instruction with a result."""
        self.count += 1
        ref = f"%v{self.count}"
        self.lines.append(f"  {ref} = {text}")
        return Value(ty, ref)

    def do(self, text: str) -> None:
        """Write one instruction without a result."""
        self.lines.append("  " + text)

    def alloca(self, ty: str, align: int = 64) -> Value:
        """Reserve stack memory, at the start of the function."""
        self.count += 1
        ref = f"%s{self.count}"
        self.entry.append(f"  {ref} = alloca {ty}, align {align}")
        return Value("ptr", ref)

    def text(self) -> str:
        """Return the function as LLVM IR."""
        params = ", ".join(f"{ty} %{name}" for ty, name in self.params)
        body = "\n".join([*self.entry, *self.lines])
        return f"define {self.result} @{self.name}({params}) {self.attributes} {{\nentry:\n{body}\n}}\n"

    # -- control --------------------------------------------------------------------------------------------

    def label(self, hint: str = "L") -> str:
        """Return a new label name."""
        self.labels += 1
        return f"{hint}.{self.labels}"

    def place(self, label: str) -> None:
        """Start block `label`; falls through from an open block."""
        if not self.closed:
            self.br(label)
        self.lines.append(f"{label}:")
        self.block, self.closed, self.accesses = label, False, 0

    def br(self, label: str) -> None:
        self.do(f"br label %{label}")
        self.closed = True

    def cbr(self, condition: Value, then: str, other: str, *, likely: bool | None = None) -> None:
        weights = "" if likely is None else ", !prof !0" if likely else ", !prof !1"
        self.do(f"br i1 {condition.ref}, label %{then}, label %{other}{weights}")
        self.closed = True

    def switch(self, value: Value, default: str, cases: Iterable[tuple[int, str]]) -> None:
        rows = " ".join(f"{value.ty} {number}, label %{label}" for number, label in cases)
        self.do(f"switch {value.ty} {value.ref}, label %{default} [ {rows} ]")
        self.closed = True

    def ret(self, value: Value | None = None) -> None:
        self.do(f"ret {value.ty} {value.ref}" if value else "ret void")
        self.closed = True

    def ret_call(self, function: "Builder") -> None:
        """Return what `function`, which has the same parameters, returns: a jump to it if they fit registers."""
        args = ", ".join(f"{ty} %{name}" for ty, name in self.params)
        call = f"tail call {self.result} @{function.name}({args})"
        if self.result == "void":
            self.do(call)
            self.ret()
        else:
            self.ret(self.emit(self.result, call))

    def phi(self, ty: str, incoming: Iterable[tuple[Value, str]]) -> Value:
        return self.emit(ty, f"phi {ty} " + ", ".join(f"[ {value.ref}, %{label} ]" for value, label in incoming))

    # -- operations -----------------------------------------------------------------------------------------

    def op(self, name: str, a: Value, b: Value) -> Value:
        """Write `add`, `fmul`, `and` or another operation on two values of one type."""
        return self.emit(a.ty, f"{name} {a.ty} {a.ref}, {b.ref}")

    def fneg(self, a: Value) -> Value:
        return self.emit(a.ty, f"fneg {a.ty} {a.ref}")

    def icmp(self, predicate: str, a: Value, b: Value) -> Value:
        return self.emit(vec("i1", lanes_of(a.ty)), f"icmp {predicate} {a.ty} {a.ref}, {b.ref}")

    def fcmp(self, predicate: str, a: Value, b: Value) -> Value:
        return self.emit(vec("i1", lanes_of(a.ty)), f"fcmp {predicate} {a.ty} {a.ref}, {b.ref}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.emit(a.ty, f"select {condition.ty} {condition.ref}, {a.ty} {a.ref}, {b.ty} {b.ref}")

    def cast(self, name: str, a: Value, ty: str) -> Value:
        """Write `zext`, `trunc`, `bitcast`, `fptosi` or another cast; nothing if the type is already right."""
        return a if a.ty == ty else self.emit(ty, f"{name} {a.ty} {a.ref} to {ty}")

    def intrinsic(
        self, name: str, result: str, args: Sequence[Value], *, overloads: Sequence[str] | None = None
    ) -> Value:
        """Call `llvm.<name>` mangled by `overloads` (default: the result type)."""
        types = overloads if overloads is not None else [result]
        mangled = f"llvm.{name}" + "".join("." + _suffix(ty) for ty in types)
        return self.call(mangled, result, args)

    def call(self, name: str, result: str, args: Sequence[Value]) -> Value:
        """Call a function by name and declare it."""
        self.declarations.setdefault(name, f"declare {result} @{name}({', '.join(a.ty for a in args)})")
        return self._call(f"@{name}", result, args)

    def call_pointer(self, pointer: Value, result: str, args: Sequence[Value]) -> Value:
        """Call through a function pointer."""
        return self._call(pointer.ref, result, args)

    def _call(self, callee: str, result: str, args: Sequence[Value]) -> Value:
        text = f"call {result} {callee}({', '.join(f'{a.ty} {a.ref}' for a in args)})"
        if result == "void":
            self.do(text)
            return Value("void", "")
        return self.emit(result, text)

    # -- memory and vectors ---------------------------------------------------------------------------------

    def load(self, ty: str, pointer: Value, *, align: int = 1) -> Value:
        self._count_access(pointer)
        return self.emit(ty, f"load {ty}, ptr {pointer.ref}, align {align}")

    def store(self, value: Value, pointer: Value, *, align: int = 1) -> None:
        self._count_access(pointer)
        self.do(f"store {value.ty} {value.ref}, ptr {pointer.ref}, align {align}")

    def _count_access(self, pointer: Value) -> None:
        """Separate groups of accesses in a long block by a fence, which is no instruction of the CPU."""
        if pointer.ref.startswith("%s"):
            return  # from alloca: becomes an SSA value
        self.accesses += 1
        if self.accesses % FENCED == 0:
            self.do('fence syncscope("singlethread") seq_cst')

    def offset(self, pointer: Value, byte_offset: int | Value) -> Value:
        """Return `pointer` moved by a number of bytes."""
        if isinstance(byte_offset, int):
            if byte_offset == 0:
                return pointer
            return self.emit("ptr", f"getelementptr i8, ptr {pointer.ref}, i64 {byte_offset}")
        result = vec("ptr", lanes_of(byte_offset.ty))
        return self.emit(result, f"getelementptr i8, ptr {pointer.ref}, {byte_offset.ty} {byte_offset.ref}")

    def extract(self, a: Value, index: int | Value) -> Value:
        where = f"i32 {index}" if isinstance(index, int) else f"{index.ty} {index.ref}"
        return self.emit(element(a.ty), f"extractelement {a.ty} {a.ref}, {where}")

    def insert(self, a: Value, item: Value, index: int | Value) -> Value:
        where = f"i32 {index}" if isinstance(index, int) else f"{index.ty} {index.ref}"
        return self.emit(a.ty, f"insertelement {a.ty} {a.ref}, {item.ty} {item.ref}, {where}")

    def shuffle(self, a: Value, b: Value | None, indices: Sequence[int]) -> Value:
        other = b.ref if b else "poison"
        mask = vector("i32", indices)
        return self.emit(
            vec(element(a.ty), len(indices)), f"shufflevector {a.ty} {a.ref}, {a.ty} {other}, {mask.ty} {mask.ref}"
        )

    def splat(self, a: Value, lanes: int = LANES) -> Value:
        """Return one scalar in every lane."""
        first = self.emit(vec(a.ty, lanes), f"insertelement {vec(a.ty, lanes)} poison, {a.ty} {a.ref}, i32 0")
        return self.shuffle(first, None, [0] * lanes)


def module_text(functions: Iterable[Builder]) -> str:
    """Return several functions as one LLVM module; a name defined here is not declared as well."""
    functions = list(functions)
    defined = {function.name for function in functions}
    declared = {
        name: text for function in functions for name, text in function.declarations.items() if name not in defined
    }
    weights = '!0 = !{!"branch_weights", i32 2000, i32 1}\n!1 = !{!"branch_weights", i32 1, i32 2000}\n'
    return "\n".join([*(function.text() for function in functions), *declared.values(), weights])
