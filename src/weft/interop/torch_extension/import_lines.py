"""The launches of a host function → launch lines. What could not be followed stays a visible `???`, with a sentence."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft.core.errors import UsageError
from weft.core.records import Binary
from weft.engines.element_types import ELEMENT_TYPES, is_float
from weft.engines.expressions import Expression
from weft.engines.propose_lines import parameter_uses
from weft.ptx.parse import parse

from .attention_lines import Said
from .device_part import TYPES
from .host_expressions import type_element
from .host_statements import HostRun
from .host_values import Dim3, Hole, HostLaunch, Number, Pointer, Tensor, Value, elements
from .signatures import KernelSignature, Parameter
from .size_names import choose_names, default_sizes, join_equal, rename

HOLE = "???"
ELEMENT = "ELEMENT"
_VECTORS = {
    **dict.fromkeys(("float2", "float3", "float4"), "float"),
    **dict.fromkeys(("half2", "__half2"), "half"),
    **dict.fromkeys(("__nv_bfloat162", "nv_bfloat162"), "__nv_bfloat16"),
}
"""Types of a vectorised load, which are several elements of an array."""
_FORMULA = re.compile(r"\{(.*?)\}")


@dataclass(frozen=True)
class Problem:
    """What the user must complete, and the line of the original that asks for it."""

    line: int
    text: str


@dataclass
class ImportSettings:
    """What the caller gives by hand, and what the file's text says beside the host function."""

    shapes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Types of the file by another name."""
    constants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """`__constant__` variable → element type and shape."""


class Draft:
    """Launch lines of one followed host function."""

    def __init__(self, run: HostRun, scalars: Mapping[str, Parameter], settings: ImportSettings) -> None:
        self.run, self.scalars, self.settings = run, scalars, settings
        self.problems: dict[Problem, None] = {}
        self.elements: dict[str, str] = {}
        self.passed: dict[str, Tensor] = {}
        self.number_types: dict[str, str] = {}
        for launch in run.launches:
            self._pair(launch)
        leaders = join_equal(run.facts, run.facts.ranks)
        found = dict.fromkeys(leaders.get(size, size) for size in self._sizes())
        names = choose_names(found, run.facts.spoken, (*self.passed, *scalars, *run.used_defines))
        self.names = {**names, **{size: names[leader] for size, leader in leaders.items() if leader in names}}
        self.sizes = self._defaults([names[size] for size in found])

    def ask(self, line: int, text: str) -> str:
        self.problems[Problem(line, text)] = None
        return HOLE

    # What is passed where.
    def _pair(self, launch: HostLaunch) -> None:
        signature = self.run.kernels[launch.kernel]
        types = self.types(launch, signature)
        for parameter, value in zip(signature.parameters, launch.arguments, strict=False):
            if isinstance(value, Pointer):
                memory = value.tensor.memory
                self.passed.setdefault(memory.name, memory)
                element = self.element(parameter.type, types) or self.element(value.type, {}) or memory.element
                element = element or ("u8" if memory.in_bytes else "")
                if element and not self.elements.get(memory.name):
                    self.elements[memory.name] = element
            elif isinstance(value, Number) and value.name in self.scalars:
                self.number_types.setdefault(value.name, self.element(parameter.type, types))

    def types(self, launch: HostLaunch, signature: KernelSignature) -> dict[str, str]:
        """Template parameter → what the launch gives for it, or what the arguments imply."""
        given = dict(zip((each.name for each in signature.template), launch.template, strict=False))
        for parameter, value in zip(signature.parameters, launch.arguments, strict=False):
            base = re.sub(r"\bconst\b|__restrict__|\*|&", "", parameter.type).strip()
            known = [each.name for each in signature.template]
            if base in known and base not in given and isinstance(value, Pointer) and value.type:
                plain = re.sub(r"\bconst\b|\*", "", value.type).strip()
                given[base] = f"{{{ELEMENT}}}" if plain == ELEMENT else TYPES.get(plain.rpartition("::")[2], plain)
        return given

    def element(self, text: str, types: Mapping[str, str]) -> str:
        base = re.sub(r"\bconst\b|\bvolatile\b|__restrict__|\*|&", "", text).strip()
        base = types.get(base, base)
        base = _VECTORS.get(base, base)
        if base in (ELEMENT, f"{{{ELEMENT}}}") and self.run.element == ELEMENT:
            return ELEMENT
        return type_element(base) or type_element(self.settings.aliases.get(base, ""))

    def _sizes(self) -> Iterator[str]:
        for tensor in self.passed.values():
            for size in self._shape(tensor) or ():
                yield from _placeholders(size)
        for launch in self.run.launches:
            for value in (launch.grid, launch.block, launch.shared, *launch.arguments):
                for number in value.sizes if isinstance(value, Dim3) else (value,):
                    if isinstance(number, Number):
                        yield from _placeholders(number.text)
            for argument in launch.template:
                for formula in re.findall(r"\{(.*?)\}", argument):
                    yield from _placeholders(formula)

    def _shape(self, tensor: Tensor) -> list[str] | None:
        if tensor.name in self.settings.shapes:
            return list(self.settings.shapes[tensor.name])
        shape = self.run.facts.shape(tensor)
        if shape is not None and tensor.in_bytes:
            element = self.elements.get(tensor.name) or "u8"
            shape = tuple(elements(size, ELEMENT_TYPES.get(element, ELEMENT_TYPES["f32"]).itemsize) for size in shape)
        return None if shape is None else [size.text for size in shape]

    def _defaults(self, names: Sequence[str]) -> dict[str, int]:
        """A size as tensors of the kind have it, changed where a check of the host asks for another."""
        first, told = dict.fromkeys(names, 64), set[str]()
        for tensor in self.passed.values():
            shape = self._shape(tensor) or []
            for axis, size in enumerate(shape):
                name = self.names.get(size)
                if name is not None and name not in told:
                    told.add(name)
                    last = axis == len(shape) - 1
                    first[name] = 1000 if len(shape) == 1 else 64 if last else 2 if axis < len(shape) - 2 else 33
        known: dict[str, int | float] = {**self._numbers(), **self.run.used_defines}
        found = default_sizes(first, self.run.facts.required, self.names, known)
        if found is None:
            self.ask(1, "no sizes found that all checks of the host accept; set them in the line `sizes`")
        return found or first

    def _numbers(self) -> dict[str, float]:
        """Host parameters whose value is known."""
        return {name: float(v) for name, v in self.settings.values.items() if re.fullmatch(r"-?[\d.]+(e-?\d+)?", v)}

    @property
    def defines(self) -> dict[str, int]:
        """Macros that the lines read, and their values."""
        read = {name for formula in self._formulas() for name in Expression.parse(formula).names}
        return {name: value for name, value in self.run.used_defines.items() if name in read}

    def said(self, constants: Mapping[str, str]) -> Said:
        """What the host function says, for names of attention to complete; `constants` are the file's numbers."""
        found = {name: self._shape(tensor) for name, tensor in self.passed.items()}
        shapes = {
            name: None if shape is None else [rename(size, self.names) for size in shape]
            for name, shape in found.items()
        }
        floating = {name: bool(re.search(r"\b(float|double)\b", each.type)) for name, each in self.scalars.items()}
        read = {name for formula in self._passed_formulas() for name in Expression.parse(formula).names}
        spelled = {name: name if name in self.defines else value for name, value in constants.items()}
        read = {rename(name, self.names) for name in read}
        return Said(shapes, floating, self.settings.values, spelled, frozenset(read))

    # The lines.
    def lines(self, binary: Binary | None) -> list[str]:
        """All lines, without their `// weft:`."""
        roles = self._roles(binary)
        arrays = [self._array(tensor, roles) for tensor in self.passed.values()]
        launches = [line for launch in self.run.launches for line in self._launch(launch)]
        counts = [self._count(name) for name in self.scalars if self._is_count(name)]
        head = " ".join([*(f"{name}={value}" for name, value in self.sizes.items()), *counts])
        rows = [f"sizes     {head}"] if head else []
        if self.run.dispatched and any(ELEMENT in row for row in (*arrays, *launches)):
            rows.append(f'define    {ELEMENT} = "float"')
        rows += [f"define    {name} = {value}" for name, value in self.defines.items()]
        rows += arrays
        rows += [self._constant(name, line, binary) for name, line in self.run.facts.copied.items()]
        rows += [self._scalar(name) for name in self.scalars if self._used(name) and not self._is_count(name)]
        return [*rows, *launches]

    def requires(self) -> list[str]:
        """What the host function checks before it launches, as `require` lines."""
        known = {*self.sizes, *self.defines, *(name for name in self.scalars if self._used(name))}
        found = dict[str, None]()
        for each in self.run.facts.required:
            text = rename(each.text, self.names)
            for name, value in self.run.used_defines.items():
                if name not in self.defines:
                    text = re.sub(rf"\b{name}\b", str(value), text)
            try:
                names = Expression.parse(text).names
            except UsageError:
                continue
            if names and names <= known and not re.fullmatch(r"(\w+) == \1", text):
                found[f"require   {text} : the host function asks for it"] = None
        return list(found)

    def _constant(self, spelled: str, line: int, binary: Binary | None) -> str:
        """A constant by its name in the PTX, where namespaces mangle it."""
        name = spelled.rpartition("::")[2]
        element, shape = self.settings.constants.get(name, ("f32", ""))
        if not shape:
            shape = self.ask(line, f"the shape of the constant {name}")
        variables = [variable.name for variable in parse(binary.ptx).variables] if binary is not None else []
        symbol = next((each for each in variables if each == name or each.endswith(f"{len(name)}{name}E")), name)
        self.run.facts.notes[f"{name} is filled by the host: here it is random unless --input {symbol}=FILE.npy"] = line
        return f"constant  {symbol} : {element}[{shape}] = normal"

    def _used(self, name: str) -> bool:
        return any(name in Expression.parse(formula).names for formula in self._formulas())

    def _formulas(self) -> Iterator[str]:
        yield from self._passed_formulas()
        for tensor in self.passed.values():
            yield from self._shape(tensor) or []

    def _passed_formulas(self) -> Iterator[str]:
        for launch in self.run.launches:
            for value in (launch.grid, launch.block, launch.shared, *launch.arguments):
                for number in value.sizes if isinstance(value, Dim3) else (value,):
                    if isinstance(number, Number):
                        yield number.text
            for argument in launch.template:
                yield from re.findall(r"\{(.*?)\}", argument)

    def _is_count(self, name: str) -> bool:
        """An integer of the host is set like a size."""
        return self._used(name) and not re.search(r"\b(float|double)\b", self.scalars[name].type)

    def _count(self, name: str) -> str:
        value = self.settings.values.get(name, "")
        value = {"true": "1", "false": "0"}.get(value, value)
        if not value.isdigit():
            cure = f"give it, as in --value {name}=4"
            value = self.ask(self.run.facts.line, f"{name} is a parameter of the host function: {cure}")
        return f"{name}={value}"

    def _scalar(self, name: str) -> str:
        value = self.settings.values.get(name) or self.ask(
            self.run.facts.line, f"{name} is a parameter of the host function: give it, as in --value {name}=0.5"
        )
        return f"scalar    {name} : {self.number_types.get(name) or 'f32'} = {value.rstrip('fF')}"

    def _array(self, tensor: Tensor, roles: Mapping[str, str]) -> str:
        role, name = roles[tensor.name], tensor.name
        element = self.elements.get(name) or self.ask(tensor.line, f"the element type of {name}")
        shape = self._shape(tensor)
        if shape is None:
            cure = f"give it, as in --shape {name}={next(iter(self.sizes), 'N')}"
            sizes = self.ask(tensor.line, f"the host never reads the shape of {name}: {cure}")
        else:
            sizes = ", ".join(rename(size, self.names) for size in shape)
        if role in ("out", "workspace"):
            return f"{role:<9} {name} : {element}[{sizes}]"
        start = tensor.origin if tensor.origin in ("zeros", "ones") else _start(element)
        if tensor.origin == "computed":
            note = f"{name} is computed by PyTorch: here it is an input, random unless --input {name}=FILE.npy"
            self.run.facts.notes[note] = tensor.line
        return f"{role:<9} {name} : {element}[{sizes}] = {start}"

    def _launch(self, launch: HostLaunch) -> Iterator[str]:
        signature = self.run.kernels[launch.kernel]
        callee = self.callee(launch) + self._doubt(launch)
        if len(launch.arguments) != len(signature.parameters) and not any(p.default for p in signature.parameters):
            self.ask(launch.line, f"{launch.kernel} takes {len(signature.parameters)} arguments")
        arguments = ", ".join(self._argument(value, launch.line) for value in launch.arguments)
        yield f"launch    {callee}({arguments})"
        shared = ""
        if launch.shared is not None:
            shared = f" shared({self._number(launch.shared, launch.line, 'the bytes of shared memory')})"
        opted = " opt_in_shared" if launch.kernel in self.run.facts.opted_in and shared else ""
        grid, block = self._dim3(launch.grid, launch.line, "grid"), self._dim3(launch.block, launch.line, "block")
        yield f"          grid({grid}) block({block}){shared}{opted}"

    def _doubt(self, launch: HostLaunch) -> str:
        if launch.doubt is None:
            return ""
        return " " + self.ask(launch.doubt.line, f"{launch.kernel}: {launch.doubt.why}; then remove the {HOLE}")

    def callee(self, launch: HostLaunch) -> str:
        """The name expression with its template arguments, deduced ones included."""
        signature = self.run.kernels[launch.kernel]
        types = self.types(launch, signature)
        arguments = []
        for parameter in signature.template:
            if parameter.name in types:
                arguments.append(types[parameter.name])
            elif parameter.default is not None:
                break
            else:
                arguments.append(self.ask(launch.line, f"the template argument {parameter.name} of {launch.kernel}"))
        spelled = [_FORMULA.sub(lambda match: f"{{{rename(match[1], self.names)}}}", each) for each in arguments]
        return signature.qualified + (f"<{', '.join(spelled)}>" if spelled else "")

    def _argument(self, value: Value, line: int) -> str:
        if isinstance(value, Pointer):
            return value.tensor.memory.name
        return self._number(value, line, "an argument")

    def _number(self, value: Value | None, line: int, what: str) -> str:
        match value:
            case Number():
                return rename(value.text, self.names)
            case Hole(why=why, line=at):
                return self.ask(at, f"{what} of a launch: {why}")
        return self.ask(line, f"{what} of this launch is no number and no array")

    def _dim3(self, value: Value, line: int, what: str) -> str:
        if isinstance(value, Dim3):
            sizes = [self._number(size, line, f"the {what}") for size in value.sizes]
            while sizes[1:] and sizes[-1] == "1":
                sizes.pop()
            return ", ".join(sizes)
        return self._number(value, line, f"the {what}")

    # Roles.
    def entry(self, launch: HostLaunch) -> str | None:
        """The kernel with numbers for its formulas, as it is compiled for the default sizes."""
        names: dict[str, int | float | str] = {
            **self.sizes,
            **self._numbers(),
            **self.run.used_defines,
            ELEMENT: "float",
        }

        def value(match: re.Match[str]) -> str:
            known = names.get(match[1])
            return known if isinstance(known, str) else str(Expression.parse(match[1]).value(names)).lower()

        try:
            callee = re.sub(r"\{(.*?)\}", value, self.callee(launch))
        except UsageError:
            return None
        return None if HOLE in callee else callee

    def _roles(self, binary: Binary | None) -> dict[str, str]:
        """By what the compiled kernels do with each pointer."""
        loads, stores = set[str](), set[str]()
        functions = parse(binary.ptx).functions if binary is not None else {}
        for launch in self.run.launches:
            entry = self.entry(launch)
            compiled = functions.get(binary.entries.get(entry, "")) if binary is not None and entry else None
            uses = list(parameter_uses(compiled).values()) if compiled is not None else []
            for number, value in enumerate(launch.arguments):
                if not isinstance(value, Pointer):
                    continue
                name = value.tensor.memory.name
                if number < len(uses):
                    loads |= {name} if uses[number].loads else set()
                    stores |= {name} if uses[number].stores else set()
                elif "const" not in self.run.kernels[launch.kernel].parameters[number].type:
                    loads.add(name)
                    stores.add(name)
        return {name: _role(tensor, name in loads, name in stores) for name, tensor in self.passed.items()}


def _role(tensor: Tensor, loaded: bool, stored: bool) -> str:
    if tensor.origin == "empty":
        return "out" if tensor.returned else "workspace"
    if tensor.origin in ("zeros", "ones"):
        return "inout"
    if not stored:
        return "in"
    return "inout" if loaded else "out"


def _placeholders(text: str) -> list[str]:
    return re.findall(r"\b\w+?__m?\d+\b", text)


def _start(element: str) -> str:
    if element == ELEMENT or is_float(element):
        return "normal"
    return {"bool": "uniform", "u8": "uniform(0, 256)"}.get(element, "uniform(0, 2)")
