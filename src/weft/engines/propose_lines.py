"""A first draft of launch lines for a file that has none.

CUDA: the number and kind of the parameters come from the PTX; their names and element types from the source, where
its declaration agrees. PTX: from its parameters and how the code uses them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft.attention.named_shapes import Said, complete
from weft.attention.size_roles import size_role
from weft.core.records import Binary
from weft.ptx.module import Function, Instruction, Mem, Module, Reg, Sym
from weft.ptx.parse import parse
from weft.toolchain.demangle import demangle

from .element_types import CPP_TYPES
from .expressions import HOLE
from .kernel_declarations import columns_of, declarations
from .pass_arguments import Parameter, parameters

_COUNTS = ("i32", "u32", "i64", "u64")
"""Types of parameters that are most likely sizes."""
_GRID_AXIS = re.compile(r"%ctaid\.([xyz])")


_ELEMENTS = {
    "f16": "f16", "f32": "f32", "f64": "f64", "b8": "u8", "u8": "u8", "s8": "i8", "b16": "f16", "u16": "u16",
    "s16": "i16", "b32": "f32", "u32": "i32", "s32": "i32", "b64": "f64", "u64": "i64", "s64": "i64",
}  # fmt: skip
"""Type of an access → the likely type of the array. A .b32 of LLVM is most often a float."""

_NUMBERS = {"f32": "f32", "f64": "f64", "u64": "i64", "s64": "i64", "b64": "i64"}


@dataclass
class ParameterUses:
    """How a kernel uses one parameter."""

    read: bool = False
    loads: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)

    @property
    def is_pointer(self) -> bool:
        return bool(self.loads or self.stores)


def propose_lines(source: str, binary: Binary) -> str:
    """Return lines for the top of the file, to be completed by hand."""
    declared = {match["name"]: match for match in declarations(source)}
    sizes: dict[str, str] = {}
    arrays: dict[str, str] = {}
    scalars: dict[str, str] = {}
    launches = []
    axes = sorted(set(_GRID_AXIS.findall(binary.ptx)))
    for name, compiled in _kernels(binary, declared).items():
        match = declared.get(name)
        columns = list(columns_of(match)) if match else []
        if compiled is not None and len(columns) != len(compiled):
            columns = [_c_type(param, number) for number, param in enumerate(compiled)]
        typed = [_declaration(column) for column in columns]
        passed = [argument for _, argument in typed]
        numbers = [a for type_text, a in typed if "*" not in type_text and _element(type_text) in _COUNTS]
        usual = _of_attention(typed, numbers, axes)
        length = numbers[0] if numbers else "N"
        sizes |= usual.sizes if usual else dict.fromkeys(numbers or ["N"], "1024")
        for type_text, argument in typed:
            if "*" in type_text:
                role = "in" if "const" in type_text.split("*")[0] else "out"
                start = " = normal" if role == "in" else ""
                shape = usual.shapes.get(argument, length) if usual else length
                arrays.setdefault(argument, f"{role:<9} {argument} : {_element(type_text)}[{shape}]{start}")
            elif argument not in sizes:
                value = usual.values.get(argument, "1") if usual else "1"
                scalars.setdefault(argument, f"scalar    {argument} : {_element(type_text)} = {value}")
        arguments = "<...>" if match and match["template"] else ""
        call = f"{name}{arguments}({', '.join(passed)})"
        grid = usual.launch if usual else f"grid(cdiv({length}, 128)) block(128)"
        launches.append(f"launch    {call} {grid}")
    first = "sizes     " + " ".join(f"{name}={value}" for name, value in (sizes or {"N": "1024"}).items())
    return "\n".join(f"// weft: {row}" for row in (first, *arrays.values(), *scalars.values(), *launches))


@dataclass(frozen=True)
class _Usual:
    """What the names of a kernel's parameters say about attention."""

    sizes: Mapping[str, str]
    shapes: Mapping[str, str]
    values: Mapping[str, str]
    launch: str


def _of_attention(typed: Sequence[tuple[str, str]], numbers: Sequence[str], axes: Sequence[str]) -> _Usual | None:
    """Return shapes, sizes and a launch to complete for a kernel with q, k and v; None for another kernel.

    A kernel that has one axis of the grid for rows and others for heads and batch needs no parameter for these.
    """
    own = {role: name for name in numbers if (role := size_role(name))}
    from_the_grid = [role for role in ("B", "H") if len(axes) > 1 and not {role, "BH"} & own.keys()]
    given = [*from_the_grid, *numbers]
    pointers = [name for type_text, name in typed if "*" in type_text]
    is_float = dict.fromkeys(given, False)
    is_float |= {name: _element(kind).startswith("f") for kind, name in typed if name not in (*pointers, *numbers)}
    found = complete(Said(dict.fromkeys(pointers), is_float, values={}, constants={}, read=frozenset()))
    if not found.shapes:
        return None
    batch, heads = (own.get(role, role) for role in ("B", "H"))
    rows = f"cdiv({own.get('SQ', own.get('S', HOLE))}, {HOLE})"
    grids = {2: f"{rows}, {own.get('BH', f'{batch} * {heads}')}", 3: f"{rows}, {heads}, {batch}"}
    shapes = {name: ", ".join(shape) for name, shape in found.shapes.items()}
    sizes = {name: found.values.get(name, HOLE) for name in given}
    return _Usual(sizes, shapes, found.values, f"grid({grids.get(len(axes), HOLE)}) block({HOLE})")


def _kernels(binary: Binary, declared: Mapping[str, re.Match[str]]) -> dict[str, tuple[Parameter, ...] | None]:
    """Return kernel → its parameters in the PTX; None for a template without an instance in the PTX."""
    compiled = {name: parameters(binary.ptx, mangled) for name, mangled in binary.entries.items()}
    return {**dict.fromkeys((name for name in declared if name not in compiled), None), **compiled}


def _declaration(column: str) -> tuple[str, str]:
    """`const float* __restrict__ q` → its type and its name."""
    plain = re.sub(r"__restrict__|__grid_constant__|=.*", "", column).strip()
    match = re.fullmatch(r"(.*?[\s*&])(\w+)", plain, re.DOTALL)
    return (match[1], match[2]) if match else (plain, "value")


def _element(type_text: str) -> str:
    words = (word for word in re.split(r"[\s*&]+", type_text) if word not in ("const", "volatile", ""))
    return CPP_TYPES.get(" ".join(words), "f32")


def _c_type(param: Parameter, number: int) -> str:
    if param.type == "u64":
        return f"float* p{number}"
    return f"{'float' if param.type.startswith('f') else 'int'} p{number}"


def propose_ptx_lines(text: str) -> str:
    """Return lines for a launch file, to be completed by hand. Raises ParseError and Unsupported as the parser does."""
    module = parse(text)
    kernels = [module.functions[name] for name in module.entries()]
    kernels = [kernel for kernel in kernels if kernel.refused is None] or kernels
    head = ["sizes     N=1024"]
    launches = [row for number, kernel in enumerate(kernels) for row in _kernel(module, kernel, number)]
    declared = [row for row in launches if not row.startswith(("launch", "note"))]
    calls = [row for row in launches if row.startswith("launch")]
    notes = [row.removeprefix("note ") for row in launches if row.startswith("note")]
    lines = [f"// weft: {row}" for row in (*head, *declared, *calls)]
    return "\n".join([*lines, *(f"// {note}" for note in notes)])


def _kernel(module: Module, kernel: Function, number: int) -> Iterator[str]:
    uses = parameter_uses(kernel)
    passed, suffix = [], f"_{number}" if number else ""
    unread = []
    for at, param in enumerate(kernel.params):
        name, use = f"p{at}{suffix}", uses[param.name]
        if param.size_bytes == 2:
            yield f"scalar    {name} : f16 = 1"
        elif param.count != 1:
            name = "{MEMBERS}"
            yield f"note parameter {at} is a struct of {param.size_bytes} bytes: write its members between the braces"
        elif use.is_pointer:
            element = _ELEMENTS.get((use.stores or use.loads)[0], "f32")
            role = "in" if not use.stores else "inout" if use.loads else "out"
            start = "" if role == "out" else " = zeros" if role == "inout" else _start(element)
            yield f"{role:<9} {name} : {element}[N]{start}"
        elif not use.read:
            name = "0"
            unread.append(at)
        else:
            yield f"scalar    {name} : {_NUMBERS.get(param.type, 'i32')} = {'1' if param.type[0] == 'f' else 'N'}"
        passed.append(name)
    if unread:
        yield f"note {_listed(unread)} never read by the kernel, so 0 is passed (Triton adds such pointers)"
    block = next((kernel.directives[key] for key in ("reqntid", "maxntid") if key in kernel.directives), (128,))
    threads = ", ".join(str(size) for size in block[: 1 + max(i for i, n in enumerate(block) if n > 1 or not i)])
    total = 1
    for size in block:
        total *= size
    shared = ""
    if any(v.space == "shared" and v.extern and v.name in _symbols(kernel) for v in module.variables):
        shared = " shared(BYTES)"
        yield "note replace BYTES by the dynamic shared memory that host code passes (Triton: metadata.shared)"
    yield f"launch    {demangle(kernel.name)}({', '.join(passed)}) grid(cdiv(N, {total})) block({threads}){shared}"


def _start(element: str) -> str:
    return " = normal" if element in ("f16", "f32", "f64") else " = uniform(0, 100)"


def _listed(positions: list[int]) -> str:
    text = ", ".join(map(str, positions))
    return f"parameters {text} are" if positions[1:] else f"parameter {text} is"


def _instructions(kernel: Function) -> Iterable[Instruction]:
    return (item for item in kernel.body if isinstance(item, Instruction))


def _symbols(kernel: Function) -> set[str]:
    names: set[str] = set()
    for instruction in _instructions(kernel):
        for operand in instruction.operands:
            if isinstance(operand, Sym):
                names.add(operand.name)
            elif isinstance(operand, Mem) and isinstance(operand.base, Sym):
                names.add(operand.base.name)
    return names


def parameter_uses(kernel: Function) -> Mapping[str, ParameterUses]:
    """Find which registers come from which pointer, to a fixed point; then the accesses through them.

    Raises Unsupported if the kernel's body could not be read.
    """
    kernel.check_supported()
    uses = {param.name: ParameterUses() for param in kernel.params}
    wide = {param.name for param in kernel.params if param.type in ("u64", "s64", "b64") and param.count == 1}
    origin: dict[Reg, set[str]] = {}
    changed = True
    while changed:
        changed = False
        for instruction in _instructions(kernel):
            known: set[str] = set()
            for operand in instruction.operands:
                if isinstance(operand, Mem) and isinstance(operand.base, Sym) and operand.base.name in uses:
                    uses[operand.base.name].read = True
                    known |= {operand.base.name} & wide
            facts = instruction.facts
            if not (facts.uses_memory or facts.compares or len(facts.copies) > 1) or known:
                for register in instruction.read():
                    known |= origin.get(register, set())
            for register in instruction.written():
                if not known <= origin.get(register, set()):
                    origin[register] = origin.get(register, set()) | known
                    changed = True
    for instruction in _instructions(kernel):
        for access in instruction.facts.accesses:
            operand = instruction.operand(access.address)
            if isinstance(operand, Mem) and isinstance(operand.base, Reg):
                for param in origin.get(operand.base, ()):
                    if access.reads:
                        uses[param].loads.append(instruction.mods.get("type", "b32"))
                    if access.writes:
                        uses[param].stores.append(instruction.mods.get("type", "b32"))
    return uses
