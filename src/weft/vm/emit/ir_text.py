"""A very small writer of LLVM IR text: numbered values, vector constants, shuffles."""

from collections.abc import Iterable, Sequence


class IrText:
    """Collects the body of one function. Every method that computes returns the name of the value."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}  # intrinsic -> its `declare` line
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def value(self, text: str) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self.line(f"{name} = {text}")
        return name

    def op(self, name: str, ty: str, left: str, right: str) -> str:
        return self.value(f"{name} {ty} {left}, {right}")

    def cast(self, name: str, source: str, value: str, target: str) -> str:
        return value if source == target else self.value(f"{name} {source} {value} to {target}")

    def call(self, ty: str, name: str, *arguments: str) -> str:
        """Call an intrinsic on values of one type; the type's suffix is appended to the name.

        `llvm.abs` and `llvm.ctlz` take a flag besides: it is false, so no input gives poison.
        """
        suffix = ty.strip("<>").replace(" x ", "").replace("float", "f32").replace("double", "f64")
        full = f"{name}.v{suffix}" if ty.startswith("<") else f"{name}.{suffix}"
        flag = name in ("llvm.abs", "llvm.ctlz")
        types = [ty] * len(arguments) + ["i1"] * flag
        self.declarations[full] = f"declare {ty} @{full}({', '.join(types)})"
        given = [f"{ty} {x}" for x in arguments] + ["i1 false"] * flag
        return self.value(f"call {ty} @{full}({', '.join(given)})")

    def select(self, ty: str, condition: str, then: str, otherwise: str) -> str:
        lanes = ty[1 : ty.index(" x ")] if ty.startswith("<") else ""
        condition_type = f"<{lanes} x i1>" if lanes else "i1"
        return self.value(f"select {condition_type} {condition}, {ty} {then}, {ty} {otherwise}")

    def address(self, base: str, byte_offset: int | str) -> str:
        if byte_offset == 0:
            return base
        return self.value(f"getelementptr i8, ptr {base}, i64 {byte_offset}")

    def load(self, ty: str, base: str, byte_offset: int | str = 0, *, align: int) -> str:
        return self.value(f"load {ty}, ptr {self.address(base, byte_offset)}, align {align}")

    def store(self, ty: str, value: str, base: str, byte_offset: int | str = 0, *, align: int) -> None:
        self.line(f"store {ty} {value}, ptr {self.address(base, byte_offset)}, align {align}")

    def alloca(self, byte_count: int) -> str:
        return self.value(f"alloca [{byte_count} x i8], align 64")

    def shuffle(self, source: str, left: str, right: str, indices: Iterable[int]) -> str:
        mask = list(indices)
        lanes = ", ".join(f"i32 {i}" for i in mask)
        return self.value(f"shufflevector {source} {left}, {source} {right}, <{len(mask)} x i32> <{lanes}>")

    def pick(self, source: str, value: str, indices: Iterable[int]) -> str:
        """A shuffle of one vector."""
        return self.shuffle(source, value, "poison", indices)

    def broadcast(self, element: str, value: str, lanes: int) -> str:
        single = self.value(f"insertelement <{lanes} x {element}> poison, {element} {value}, i64 0")
        return self.pick(f"<{lanes} x {element}>", single, [0] * lanes)


def splat(element: str, value: int | str) -> str:
    """A vector constant with equal lanes."""
    return f"splat ({element} {value})"


def f32_constant(power_of_two: int) -> str:
    """2^power_of_two as LLVM writes a float constant (the bits of the double)."""
    return f"0x{(power_of_two + 1023) << 52:016X}"


def function(signature: str, body: Sequence[str], *, attributes: str) -> str:
    """`signature` is what stands between `define` and the attributes."""
    return "\n".join([f"define {signature} {attributes} {{", *body, "}", ""])


__all__ = ["IrText", "f32_constant", "function", "splat"]
