"""The launches of a host function → launch lines. A part that could not be followed becomes `???`, with a message."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.attention.named_shapes import Said
from weft.core.errors import UsageError
from weft.core.records import Binary
from weft.engines.element_types import is_float
from weft.engines.expressions import HOLE, Expression
from weft.engines.propose_lines import parameter_uses
from weft.ptx.parse import parse

from .cuda_calls import settle_shape
from .device_part import TYPES
from .host_statements import HostRun
from .host_values import Dim3, Hole, HostLaunch, Number, Other, Pointer, Record, Tensor, Value, both, either
from .signatures import KernelSignature, Parameter
from .size_names import choose_names, default_sizes, join_equal, rename

ELEMENT = "ELEMENT"
_VECTORS = {
    **dict.fromkeys(("float2", "float3", "float4"), "float"),
    **dict.fromkeys(("half2", "__half2"), "half"),
    **dict.fromkeys(("__nv_bfloat162", "nv_bfloat162"), "__nv_bfloat16"),
}
"""Types of vectorised loads, which hold several elements of an array."""
_PER_COLUMN = re.compile(r"(?i)gamma|beta|weights?|bias|scales?|mask|w|eps|indices|idx|index")
"""Arrays that seldom have the shape of the arrays they are passed with."""
_FORMULA = re.compile(r"\{(.*?)\}")


@dataclass(frozen=True)
class Problem:
    """What the user must complete, and the line of the original file that needs it."""

    line: int
    text: str


@dataclass
class ImportSettings:
    """What the caller gives by hand, and what the file's text states outside the host function."""

    shapes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    guess: bool = True
    """Whether an array of unknown shape gets the shape of the arrays it is passed with."""


class Draft:
    """Launch lines of one followed host function."""

    def __init__(
        self, run: HostRun, scalars: Mapping[str, Parameter], settings: ImportSettings, kernel: str | None = None
    ) -> None:
        self.run, self.scalars, self.settings = run, scalars, settings
        self.launches = _first_round(run, kernel)
        if run.caveats and self.launches and all(launch.caveat is None for launch in self.launches):
            self.launches[-1] = replace(self.launches[-1], caveat=run.caveats[-1])
        self.problems: dict[Problem, None] = {}
        self.elements: dict[str, str] = {}
        self.passed: dict[str, Tensor] = {}
        self.number_types: dict[str, str] = {}
        self.filled: dict[str, list[str]] = {}
        """Array → its shape, where the host reads only a part of it."""
        self.passed_with: dict[str, set[str]] = {}
        """Array → the arrays that are passed to a kernel together with it."""
        for launch in self.launches:
            self._pair(launch)
        if settings.guess:
            self._guess_shapes()
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
        for parameter, value in self._parameters(launch):
            if isinstance(value, Pointer):
                memory = value.tensor.memory
                self.passed.setdefault(memory.name, memory)
                element = self.element(parameter.type, types) or self.element(value.type, {}) or memory.element
                if element and not self.elements.get(memory.name):
                    self.elements[memory.name] = element
                settle_shape(memory, self.elements.get(memory.name, ""))
                self.passed_with.setdefault(memory.name, set()).update(
                    other.tensor.memory.name for _, other in self._parameters(launch) if isinstance(other, Pointer)
                )
            elif isinstance(value, Number) and value.name in self.scalars:
                self.number_types.setdefault(value.name, self.element(parameter.type, types))

    def _parameters(self, launch: HostLaunch) -> list[tuple[Parameter, Value]]:
        """Return the parameters and values of a launch, members of structs separately."""
        found: list[tuple[Parameter, Value]] = []
        for parameter, value in zip(self.run.kernels[launch.kernel].parameters, launch.arguments, strict=False):
            if isinstance(value, Record):
                members = self.run.view.structs.get(value.type, ())
                found += [(member, value.get(member.name) or Other()) for member in members]
            else:
                found.append((parameter, value))
        return found

    def types(self, launch: HostLaunch, signature: KernelSignature) -> dict[str, str]:
        """Return template parameter → the launch's argument for it, or what the arguments imply."""
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
        return self.run.view.element(base)

    def _guess_shapes(self) -> None:
        """Give an array whose shape the host never reads the shape of the arrays it is passed with, and add a note."""
        self._fill_ranks()
        for name, tensor in self.passed.items():
            if self._shape(tensor) is not None or tensor.bytes is not None or _PER_COLUMN.fullmatch(name):
                continue
            others = [self.passed[other] for other in self.passed if other in self.passed_with.get(name, ())]
            given = [other for other in others if other.origin == "argument"]
            others = given if any(self._shape(other) is not None for other in given) else others
            known = {tuple(shape): other for other in reversed(others) if (shape := self._shape(other)) is not None}
            if len(known) == 1 or (known and tensor.like is None and name.lower() in ("k", "v", "o", "out", "output")):
                like = next(reversed(known.values()))
                if name.lower() in ("v", "value", "values"):  # as many rows as there are keys
                    like = next((each for each in known.values() if each.name.lower() in ("k", "key", "keys")), like)
                tensor.like = like
                if like.name in self.filled:
                    self.filled[name] = self.filled[like.name]
                note = f"the host never reads the shape of {name}: it is assumed to have the shape of {like.name}"
                self.run.facts.notes[f"{note}; give another, as in --shape {name}=N,D"] = tensor.line

    def _fill_ranks(self) -> None:
        """Complete partly read shapes: if only `k.size(2)` is read and q has four dimensions, k gets q's others."""
        facts = self.run.facts
        sure = facts.checked | facts.counted | set(self.settings.shapes)
        sure |= {tensor.name for pair in facts.alike for tensor in pair}
        for name, axes in facts.axes.items():
            rank = facts.ranks.get(name, 0)
            fuller = [
                other
                for other in self.passed
                if other in self.passed_with.get(name, ())
                and len(self._shape(self.passed[other]) or ()) == rank + 1
                and self.elements.get(other) == self.elements.get(name)
            ]
            if name in sure or name not in self.passed or rank < 2 or min(axes) < 0 or not fuller:
                continue
            shape = self._shape(self.passed[fuller[0]]) or []
            self.filled[name] = [f"{name}__{axis}" if axis in axes else size for axis, size in enumerate(shape)]
            note = f"the host reads a part of the shape of {name}: the rest is assumed to be as in {fuller[0]}"
            facts.notes[note] = self.passed[name].line
            facts.notes.pop(f"{name} is assumed to have {rank} dimensions: the host reads no more of its shape", None)

    def _sizes(self) -> Iterator[str]:
        for tensor in self.passed.values():
            for size in self._shape(tensor) or ():
                yield from _placeholders(size)
        for launch in self.launches:
            for formula in _launch_formulas(launch):
                yield from _placeholders(formula)

    def _shape(self, tensor: Tensor) -> list[str] | None:
        if tensor.name in self.settings.shapes:
            return list(self.settings.shapes[tensor.name])
        if tensor.name in self.filled:
            return self.filled[tensor.name]
        shape = self.run.facts.shape(tensor)
        return None if shape is None else [size.text for size in shape]

    def _defaults(self, names: Sequence[str]) -> dict[str, int]:
        """Return typical sizes, changed where a check of the host requires another value."""
        first, reported = dict.fromkeys(names, 64), set[str]()
        for tensor in self.passed.values():
            shape = self._shape(tensor) or []
            for axis, size in enumerate(shape):
                name = self.names.get(size)
                if name is not None and name not in reported:
                    reported.add(name)
                    last = axis == len(shape) - 1
                    first[name] = 1000 if len(shape) == 1 else 64 if last else 2 if axis < len(shape) - 2 else 33
        counts = {name for name in self.scalars if self._is_count(name)}
        known = {name: value for name, value in self._numbers().items() if name not in counts}
        given = {name: int(value) for name, value in self._numbers().items() if name in counts}
        self.counts = {name: given.get(name, 1) for name in counts}
        fixed = {**known, **self.run.used_defines, **self.run.sizes, **given}
        tried = {**first, **{name: 1 for name in counts if name not in given}}
        found = default_sizes(tried, [*self.run.facts.required, *self._some_launch()], self.names, fixed)
        if found is not None:
            self.counts |= {name: found.pop(name) for name in counts if name in found}
        if found is None:
            self.ask(1, "found no sizes that all checks of the host accept; set them in the `sizes` line")
        return found or first

    def _some_launch(self) -> Iterator[Number]:
        """Yield conditions for sizes that launch something; others would be useless defaults."""
        conditions = [all_of(launch.when) for launch in self.launches]
        if all(condition is not None for condition in conditions):
            chosen = conditions[0]
            for condition in conditions[1:]:
                assert chosen is not None and condition is not None
                chosen = either(chosen, condition)
            assert chosen is not None
            yield chosen

    def _numbers(self) -> dict[str, float]:
        """Host parameters whose value is known."""
        return {name: float(v) for name, v in self.settings.values.items() if re.fullmatch(r"-?[\d.]+(e-?\d+)?", v)}

    @property
    def defines(self) -> dict[str, int]:
        """Return the macros that the lines read, and their values."""
        read = {name for formula in self._formulas() for name in Expression.parse(formula).names}
        return {name: value for name, value in self.run.used_defines.items() if name in read}

    # The lines.
    def lines(self, binary: Binary | None) -> list[tuple[int, str]]:
        """Return all lines, without `// weft:`, each with the line of the user's file it comes from."""
        roles = self._roles(binary)
        host = self.run.facts.line
        arrays = [(tensor.line, self._array(tensor, roles)) for tensor in self.passed.values()]
        launches = [(launch.line, row) for launch in self.launches for row in self._launch(launch)]
        counts = [self._count(name) for name in self.scalars if self._is_count(name)]
        read = self._read()
        program = [f"{name}={value}" for name, value in self.run.sizes.items() if name in read]
        head = " ".join([*(f"{name}={value}" for name, value in self.sizes.items()), *program, *counts])
        rows = [(host, f"sizes     {head}")] if head else []
        if self.run.dispatched and any(ELEMENT in row for _, row in (*arrays, *launches)):
            rows.append((host, f'define    {ELEMENT} = "float"'))
        rows += [(host, f"define    {name} = {value}") for name, value in self.defines.items()]
        rows += arrays
        rows += [(line, self._constant(name, line, binary)) for name, line in self.run.facts.copied.items()]
        scalars = [name for name in self.scalars if self._used(name) and not self._is_count(name)]
        rows += [(host, self._scalar(name)) for name in scalars]
        return [*rows, *((host, row) for row in self._requires()), *launches]

    def _read(self) -> set[str]:
        """Return every name that the lines read."""
        formulas = [rename(formula, self.names) for formula in self._formulas()]
        return {name for formula in formulas for name in Expression.parse(formula).names}

    def _requires(self) -> Iterator[str]:
        """Yield the host's checks of the sizes as `require` lines."""
        known = {*self.sizes, *self.counts, *self.defines, *(set(self.run.sizes) & self._read())}
        folded = {name: value for name, value in self.run.used_defines.items() if name not in self.defines}
        folded |= {name: value for name, value in self.run.sizes.items() if name not in known}
        found = dict[str, None]()
        for each in self.run.facts.required:
            text = rename(each.text, self.names)
            for name, value in folded.items():
                text = re.sub(rf"\b{name}\b", str(value), text)
            try:
                names = Expression.parse(text).names
            except UsageError:
                continue
            if names and names <= known and not re.fullmatch(r"(\w+) == \1", text):
                found[f"require   {text} : required by the host function"] = None
        yield from found

    def said(self, constants: Mapping[str, str]) -> Said:
        """Return what the host function states, to be completed by names; `constants` are the file's numbers."""
        found = {name: self._shape(tensor) for name, tensor in self.passed.items()}
        shapes = {
            name: None if shape is None else [rename(size, self.names) for size in shape]
            for name, shape in found.items()
        }
        floating = {name: bool(re.search(r"\b(float|double)\b", each.type)) for name, each in self.scalars.items()}
        formulas = [formula for launch in self.launches for formula in _launch_formulas(launch)]
        read = {name for formula in formulas for name in Expression.parse(formula).names}
        spelled = {name: name if name in self.defines else value for name, value in constants.items()}
        read = {rename(name, self.names) for name in read}
        return Said(shapes, floating, self.settings.values, spelled, frozenset(read))

    def _constant(self, spelled: str, line: int, binary: Binary | None) -> str:
        """Return the line of a constant, by its name in the PTX, where namespaces mangle it."""
        name = spelled.rpartition("::")[2]
        element, shape = self.run.view.constant_arrays.get(name, ("f32", ""))
        if not shape:
            shape = self.ask(line, f"the shape of the constant {name}")
        variables = [variable.name for variable in parse(binary.ptx).variables] if binary is not None else []
        symbol = next((each for each in variables if each == name or each.endswith(f"{len(name)}{name}E")), name)
        self.run.facts.notes[f"{name} is filled by the host: here it is random, or --input {symbol}=FILE.npy"] = line
        return f"constant  {symbol} : {element}[{shape}] = normal"

    def _used(self, name: str) -> bool:
        return any(name in Expression.parse(formula).names for formula in self._formulas())

    def _formulas(self) -> Iterator[str]:
        for launch in self.launches:
            yield from _launch_formulas(launch)
        for tensor in self.passed.values():
            yield from self._shape(tensor) or []

    def _is_count(self, name: str) -> bool:
        """Whether an integer parameter of the host is set like a size."""
        return self._used(name) and not re.search(r"\b(float|double)\b", self.scalars[name].type)

    def _count(self, name: str) -> str:
        value = self.settings.values.get(name, "")
        value = {"true": "1", "false": "0"}.get(value, value)
        if not value.isdigit():
            value = str(self.counts.get(name, 1))
            note = f"{name} is a parameter of the host function: it is {value}; set it with --size {name}=4"
            self.run.facts.notes[note] = self.run.facts.line
        return f"{name}={value}"

    def _scalar(self, name: str) -> str:
        value = self.settings.values.get(name)
        if value is None:
            value = "1e-05" if re.fullmatch(r"(?i)eps(ilon)?", name) else "1.0"
            note = f"{name} is a parameter of the host function: it is {value}; set it with --value {name}=0.5"
            self.run.facts.notes[note] = self.run.facts.line
        return f"scalar    {name} : {self.number_types.get(name) or 'f32'} = {value.rstrip('fF')}"

    def _array(self, tensor: Tensor, roles: Mapping[str, str]) -> str:
        role, name = roles[tensor.name], tensor.name
        element = self.elements.get(name) or self.ask(tensor.line, f"the element type of {name}")
        shape = self._shape(tensor)
        if shape is None:
            cure = f"give it with --shape {name}={next(iter(self.sizes), 'N')}"
            sizes = self.ask(tensor.line, f"the host never reads the shape of {name}: {cure}")
        else:
            sizes = ", ".join(rename(size, self.names) for size in shape)
        if role in ("out", "workspace"):
            return f"{role:<9} {name} : {element}[{sizes}]"
        start = tensor.origin if tensor.origin in ("zeros", "ones") else _start(element)
        if tensor.origin == "full":
            note = f"{name} is filled with one value by the host: here it is random, or --input {name}=FILE.npy"
            self.run.facts.notes[note] = tensor.line
        if tensor.origin == "computed":
            note = f"{name} is computed by PyTorch: here it is a random input, or --input {name}=FILE.npy"
            self.run.facts.notes[note] = tensor.line
        return f"{role:<9} {name} : {element}[{sizes}] = {start}"

    def _launch(self, launch: HostLaunch) -> Iterator[str]:
        signature = self.run.kernels[launch.kernel]
        callee = self.callee(launch) + self._caveat(launch)
        if len(launch.arguments) != len(signature.parameters) and not any(p.default for p in signature.parameters):
            self.ask(launch.line, f"{launch.kernel} takes {len(signature.parameters)} arguments")
        arguments = ", ".join(self._argument(value, launch.line) for value in launch.arguments)
        yield f"launch    {callee}({arguments})"
        shared = ""
        if launch.shared is not None:
            shared = f" shared({self._number(launch.shared, launch.line, 'the bytes of shared memory')})"
        opted = " opt_in_shared" if launch.kernel in self.run.facts.opted_in and shared else ""
        grid, block = self._dim3(launch.grid, launch.line, "grid"), self._dim3(launch.block, launch.line, "block")
        condition = all_of(launch.when)
        when = f" when({rename(condition.text, self.names)})" if condition is not None else ""
        yield f"          grid({grid}) block({block}){shared}{opted}{when}"

    def _caveat(self, launch: HostLaunch) -> str:
        if launch.caveat is None:
            return ""
        return " " + self.ask(launch.caveat.line, f"{launch.kernel}: {launch.caveat.why}; then remove the {HOLE}")

    def callee(self, launch: HostLaunch) -> str:
        """Return the name expression with its template arguments, deduced ones included."""
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
        if isinstance(value, Record):
            members = self.run.view.structs.get(value.type)
            if not members:
                return self.ask(line, f"the members of {value.type or 'a struct'} that is passed here")
            return f"{{{', '.join(self._argument(value.get(each.name) or Other(), line) for each in members)}}}"
        return self._number(value, line, "an argument")

    def _number(self, value: Value | None, line: int, what: str) -> str:
        match value:
            case Number():
                return rename(value.text, self.names)
            case Hole(why=why, line=at):
                return self.ask(at, f"{what} of a launch: {why}")
        return self.ask(line, f"{what} of this launch is neither a number nor an array")

    def _dim3(self, value: Value, line: int, what: str) -> str:
        if isinstance(value, Dim3):
            sizes = [self._number(size, line, f"the {what}") for size in value.sizes]
            while sizes[1:] and sizes[-1] == "1":
                sizes.pop()
            return ", ".join(sizes)
        return self._number(value, line, f"the {what}")

    # Roles.
    def _stored_members(self, launch: HostLaunch, record: Record) -> set[str]:
        """Return the arrays of a struct whose members are not pointers to const."""
        found = set()
        for member in self.run.view.structs.get(record.type, ()):
            value = record.get(member.name)
            if isinstance(value, Pointer) and "const" not in member.type.split():
                found.add(value.tensor.memory.name)
        return found

    def entry(self, launch: HostLaunch) -> str | None:
        """Return the kernel with numbers for its formulas, as it is compiled for the default sizes."""
        names: dict[str, int | float | str] = {
            **self.sizes,
            **self.counts,
            **self._numbers(),
            **self.run.used_defines,
            **self.run.sizes,
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

    def entries(self) -> dict[str, str]:
        """Return kernel → the instance to inspect: one that the default sizes launch. NVRTC takes seconds for each."""
        names: dict[str, int | float] = {**self.sizes, **self.counts, **self.run.used_defines, **self.run.sizes}
        found: dict[str, str] = {}
        taken: set[str] = set()
        for launch in self.launches:
            condition, entry = all_of(launch.when), self.entry(launch)
            holds = condition is None or _holds(rename(condition.text, self.names), names)
            if entry is not None and (launch.kernel not in found or (holds and launch.kernel not in taken)):
                found[launch.kernel] = entry
            taken |= {launch.kernel} if holds else set()
        return found

    def _roles(self, binary: Binary | None) -> dict[str, str]:
        """Return the role of each array by how the compiled kernels use its pointer."""
        loads, stores = set[str](), set[str]()
        functions = parse(binary.ptx).functions if binary is not None else {}
        compiled = {
            kernel: functions.get(binary.entries.get(entry, "")) if binary is not None else None
            for kernel, entry in self.entries().items()
        }
        for launch in self.launches:
            function = compiled.get(launch.kernel)
            uses = list(parameter_uses(function).values()) if function is not None else []
            for number, value in enumerate(launch.arguments):
                if isinstance(value, Record):  # its uses of the members cannot be separated
                    for _, member in value.members:
                        if isinstance(member, Pointer):
                            loads.add(member.tensor.memory.name)
                            stores |= self._stored_members(launch, value)
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


def _first_round(run: HostRun, kernel: str | None) -> list[HostLaunch]:
    """Return a program's launches until it first copies results back (or until `kernel` is launched)."""
    if not run.program and kernel is None:
        return list(run.launches)
    rounds = [launch.round for launch in run.launches if kernel in (None, launch.kernel)]
    first = min(rounds) if rounds else 0
    return [launch for launch in run.launches if launch.round == first]


def _holds(formula: str, names: Mapping[str, int | float]) -> bool:
    try:
        return bool(Expression.parse(formula).value(names))
    except UsageError:
        return False


def all_of(conditions: Sequence[Number]) -> Number | None:
    """Return the conjunction of the conditions, each once; None if there are none."""
    found: Number | None = None
    for condition in {each.text: each for each in conditions}.values():
        found = condition if found is None else both(found, condition)
    return found


def _launch_formulas(launch: HostLaunch) -> Iterator[str]:
    for value in (launch.grid, launch.block, launch.shared, *launch.arguments, *launch.when):
        numbers: Sequence[object] = (value,)
        if isinstance(value, Dim3):
            numbers = value.sizes
        elif isinstance(value, Record):
            numbers = [member for _, member in value.members]
        for number in numbers:
            if isinstance(number, Number):
                yield number.text
    for argument in launch.template:
        yield from re.findall(r"\{(.*?)\}", argument)


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
