"""The modules of one process: images → PTX → compiled kernels, and the variables in device memory."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from weft.core.errors import CompileError, DeviceMemoryError, ParseError, Unsupported, UsageError, WeftError
from weft.core.records import SharedSymbol
from weft.engines.protocol import PLAIN_SHARED_BYTES
from weft.ptx.link import Unit, link
from weft.ptx.module import Variable
from weft.ptx.parse import parse_declarations
from weft.toolchain.cubin_facts import CubinFacts, cubin_facts
from weft.toolchain.demangle import demangle
from weft.toolchain.elf import CubinError
from weft.toolchain.shared_layout import shared_symbols
from weft.vm.layout import module_globals, place_variables
from weft.vm.memory import LOCAL_START, GlobalMemory
from weft.vm.program import Program, compile_program

from .images import InvalidImage, NoCode, NoPtx, read_image
from .noted import noted_ptx
from .protocol import Answer, Code, Request
from .records import Function, KernelCode, Module, Options, Refused
from .report import Report
from .resources import Unknown, cubin_of_ptx, resources_of_ptx

_GAP = "if ptxas accepts this PTX, it is a gap of Weft's parser: please report it"

_LINKED = struct.Struct("=QQ")
_LIBRARY, _LTO_IR = 4, 5
"""CUjitInputType."""
_PAGE = 4096
_DEVICE_RUNTIME = "cuda_device_runtime_cu"
"""In the names of cudadevrt, which nvcc links into programs of several files; kernels that launch kernels use it."""

DEVICE_SHIFT = 32
"""Numbers of modules and functions have their device above these bits."""


class Modules:
    """What a process loaded, by number."""

    def __init__(self, options: Options, report: Report, memory: GlobalMemory, device: int = 0) -> None:
        self.options, self.report, self.memory = options, report, memory
        self.modules: dict[int, Module] = {}
        self.functions: dict[int, Function] = {}
        self._twins: dict[int, int] = {}
        """Number of a module of another device → number of the same image here."""
        self._made = device << DEVICE_SHIFT
        self._noted = partial(noted_ptx, options.notes)

    def load(self, request: Request) -> Answer:
        """Return the module's number and its kernels' names."""
        return self._load(request.blob)

    def twin(self, number: int, module: Module) -> Module | None:
        """Return the module of another device as it is loaded here; None if it cannot be."""
        if number not in self._twins:
            answer = self._load(module.blob)
            if answer.code:
                return None
            self._twins[number] = answer.values[0]
        return self.modules[self._twins[number]]

    def twin_function(self, number: int, module: Module, name: str) -> Function | None:
        """Return a kernel of another device's module as it is compiled here."""
        here = self.twin(number, module)
        if here is None:
            return None
        known = next((one for one in self.functions.values() if one.module is here and one.name == name), None)
        if known is None:
            known = self.functions[self._number()] = self._function(here, name)
        return known

    def drop_twin(self, number: int) -> tuple[int, ...]:
        """Unload what `twin` loaded; return the addresses of its variables."""
        here = self._twins.pop(number, None)
        return self._unload(here) if here is not None else ()

    def _load(self, blob: bytes) -> Answer:
        try:
            image = read_image(blob, self.options.sm, self._noted)
        except InvalidImage as error:
            return Answer(Code.INVALID_IMAGE, blob=str(error).encode())
        except NoCode as error:
            self.report.say(str(error))
            return Answer(Code.NO_BINARY_FOR_GPU, blob=str(error).encode())
        except NoPtx as error:
            raise Refused("a module", str(error), Code.NO_BINARY_FOR_GPU) from error
        if image.note:
            self.report.note(image.note)
        try:
            declared = parse_declarations(image.ptx)
            globals_ = [_on_pages(variable) for variable in module_globals(declared)]
            variables = place_variables(globals_, self.memory)
        except ParseError as error:
            raise Refused("a module", f"{error}; {_GAP}", Code.INVALID_PTX) from error
        except Unsupported as error:
            raise Refused("a module", str(error)) from error
        except DeviceMemoryError:
            return Answer(Code.OUT_OF_MEMORY)
        names = tuple(declared.entries())
        number = self._number()
        sizes = {one.name: one.size_bytes for one in globals_}
        managed = frozenset(one.name for one in globals_ if one.managed)
        self.modules[number] = Module(image, names, blob, variables, sizes, managed)
        return Answer(values=(number, len(names)), blob=b"".join(name.encode() + b"\0" for name in names))

    def unload(self, request: Request) -> Answer:
        """Free the module's variables; return their addresses."""
        if request.arguments[0] not in self.modules:
            return Answer(Code.INVALID_HANDLE)
        gone = self._unload(request.arguments[0])
        return Answer(blob=struct.pack(f"={len(gone)}Q", *gone))

    def _unload(self, number: int) -> tuple[int, ...]:
        module = self.modules.pop(number)
        self.functions = {number: one for number, one in self.functions.items() if one.module is not module}
        for address in module.variables.values():
            self.memory.free(address)
        return tuple(module.variables.values())

    def find_function(self, request: Request) -> Answer:
        """Return the function's number, attributes and the layout of its parameters."""
        module, name = self.modules.get(request.arguments[0]), request.blob.decode(errors="replace")
        if module is None:
            return Answer(Code.INVALID_HANDLE)
        if name not in module.names:
            return Answer(Code.NOT_FOUND)
        function = self._function(module, name)
        number = self._number()
        self.functions[number] = function
        plan = function.program.plan
        layout = [word for _, at, size in plan.params for word in (at, size)]
        facts = struct.pack(f"=I16i{len(layout)}I", len(plan.params), *self._attributes(function), *layout)
        return Answer(values=(number,), blob=facts)

    def _function(self, module: Module, name: str) -> Function:
        image = module.image
        facts: CubinFacts | None = None
        shared: tuple[SharedSymbol, ...] = ()
        if image.cubin:
            try:
                facts = cubin_facts(image.cubin, name)
                shared = shared_symbols(image.ptx, image.cubin, [name]).get(name, ())
            except CubinError as error:
                raise Refused(f"kernel {demangle(name)}", str(error), Code.INVALID_IMAGE) from error
        target = self.options.chip.architecture.target
        program = self._compiled(image.ptx, name, target, shared)
        placed = place_variables(program.plan.globals, self.memory, module.variables)
        module.variables = dict(placed)
        module.sizes.update({variable.name: variable.size_bytes for variable in program.plan.globals})
        title = demangle(name)
        if facts is None:
            local_bytes = program.plan.layout.local_bytes - LOCAL_START
            return Function(name, title, module, program, 0, local_bytes, shared=shared)
        return Function(name, title, module, program, facts.registers, facts.local_bytes, asked=True, shared=shared)

    def code_of(self, function: Function) -> KernelCode:
        """Return PTX and machine code of a kernel, which an estimate needs."""
        if function.code is None:
            image, target = function.module.image, self.options.chip.architecture.target
            try:
                cubin = image.cubin or cubin_of_ptx(image.ptx, function.name, target)
            except Unknown as error:
                raise Refused(f"kernel {function.title}", f"--clock model needs its machine code: {error}") from error
            function.code = KernelCode(image.ptx, function.name, cubin, function.shared)
        return function.code

    def find_resources(self, function: Function) -> None:
        """Find out registers and local memory of a kernel that came as PTX, once; a note at the end if it fails."""
        if function.asked:
            return
        function.asked = True
        image = function.module.image
        # PTX that stands in for machine code may be made for a later GPU: ptxas takes it for no earlier one.
        target = f"sm_{image.target}" if image.target > self.options.sm else self.options.chip.architecture.target
        try:
            facts = resources_of_ptx(image.ptx, function.name, target)
        except Unknown as error:
            self.report.note(
                f"registers of {function.title} are unknown ({error}): limits and occupancy are those of 1 register"
            )
            return
        function.registers, function.local_bytes = facts.registers, facts.local_bytes

    def _compiled(self, ptx: str, name: str, target: str, shared: tuple[SharedSymbol, ...]) -> Program:
        try:
            return compile_program(ptx, name, mode=self.options.mode, arch=target, cubin=shared)
        except ParseError as error:
            raise Refused(f"kernel {demangle(name)}", f"{error}; {_GAP}", Code.INVALID_PTX) from error
        except (Unsupported, UsageError) as error:
            raise Refused(f"kernel {demangle(name)}", str(error)) from error

    def _attributes(self, function: Function) -> tuple[int, ...]:
        """Return CUfunction_attribute, by number."""
        plan, image = function.program.plan, function.module.image
        static = plan.layout.static_shared_bytes
        constant = sum(v.size_bytes for v in plan.globals if v.space == "const")
        capability = self.options.sm
        made = image.target or capability
        code = made if image.note else capability
        dynamic = max(0, PLAIN_SHARED_BYTES - static)
        local = function.local_bytes
        return (plan.max_threads, static, constant, local, function.registers, made, code, 0, dynamic, -1, *[0] * 6)

    def find_symbol(self, request: Request) -> Answer:
        """Return address and size of a variable."""
        module, name = self.modules.get(request.arguments[0]), request.blob.decode(errors="replace")
        if module is None:
            return Answer(Code.INVALID_HANDLE)
        return symbol_of(module, name)

    def link_images(self, request: Request) -> Answer:
        """Return one PTX text for the images that cuLink* collected."""
        units: list[Unit] = []
        device_runtime = False
        for number, (kind, data) in enumerate(_linked_images(request.blob), 1):
            if kind == _LIBRARY:
                device_runtime = True
                continue
            if kind == _LTO_IR:
                raise Refused("cuLinkAddData", "LTO-IR: compile to PTX instead (without -dlto)")
            try:
                ptx = read_image(data, self.options.sm, self._noted).ptx
            except NoPtx as error:
                raise Refused("cuLinkAddData", str(error), Code.NO_BINARY_FOR_GPU) from error
            except WeftError as error:
                return Answer(Code.INVALID_IMAGE, blob=str(error).encode())
            if _DEVICE_RUNTIME in ptx:
                device_runtime = True
            else:
                units.append(Unit(f"input {number}", ptx))
        try:
            linked = link(units) if len(units) > 1 else units[0].text if units else ""
        except CompileError as error:
            if device_runtime:
                raise Refused("cuLinkComplete", f"{error}; the device runtime (dynamic parallelism)") from error
            return Answer(Code.INVALID_PTX, blob=str(error).encode())
        except Unsupported as error:
            raise Refused("cuLinkComplete", str(error)) from error
        return Answer(blob=linked.encode()) if linked else Answer(Code.INVALID_IMAGE)

    def _number(self) -> int:
        self._made += 1
        return self._made


def _on_pages(variable: Variable) -> Variable:
    """Return a managed variable with the alignment of a page, which the program maps."""
    return replace(variable, align=max(variable.align, _PAGE)) if variable.managed else variable


def symbol_of(module: Module, name: str) -> Answer:
    """Return address and size of a variable of a module, and whether it is managed."""
    if name not in module.variables:
        return Answer(Code.NOT_FOUND)
    return Answer(values=(module.variables[name], module.sizes[name], int(name in module.managed)))


def _linked_images(blob: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield kind and bytes of the images that cuLinkAddData collected."""
    at = 0
    while at + _LINKED.size <= len(blob):
        kind, size_bytes = _LINKED.unpack_from(blob, at)
        at += _LINKED.size
        yield kind, blob[at : at + size_bytes]
        at += size_bytes
