"""The addresses of a kernel's variables: shared arrays between red zones, locals, parameters, module globals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from weft.core.errors import LaunchError, Unsupported
from weft.core.records import SharedSymbol
from weft.ptx.isa.facts import is_later
from weft.ptx.module import Function, Instruction, LabelDef, Module, Special, Sym, Variable

from .memory import LOCAL_START, SHARED_START, GlobalMemory

BANK_ROW = 128
"""All banks once: a shared array keeps its hardware offset modulo this, so that bank conflicts do not change."""

SWIZZLE_PERIOD = 1024
"""The swizzles of descriptors and tensor maps repeat after it."""

MOST_GAP = 2048
"""Limit of a gap: all its bytes are cleared with the rest when a CTA starts."""


@dataclass(frozen=True)
class Placed:
    """A variable with its address in its own state space. `size_bytes` 0 = dynamic shared memory."""

    name: str
    space: str
    address: int
    size_bytes: int


@dataclass(frozen=True)
class Layout:
    """Addresses of one kernel's variables, apart from module globals."""

    symbols: Mapping[str, Placed]
    shared_bytes: int
    """Extent of static shared memory in the virtual address space, with red zones; dynamic memory starts here."""
    static_shared_bytes: int
    """The size that the hardware would count."""
    local_bytes: int
    param_bytes: int

    @property
    def reserved(self) -> range:
        """Return the shared addresses that belong to the system; empty if the kernel does not ask where they are."""
        placed = self.symbols.get(RESERVED.name)
        return range(placed.address, placed.address + placed.size_bytes) if placed else range(0)


def shared_arrays(layout: Layout, dynamic_bytes: int) -> list[Placed]:
    """Return every shared array, with the dynamic block."""
    fixed = [s for s in layout.symbols.values() if s.space == "shared" and s.size_bytes]
    block = Placed("the dynamic shared block", "shared", layout.shared_bytes, dynamic_bytes)
    return [*fixed, block] if dynamic_bytes else fixed


def shared_objects(layout: Layout, dynamic_bytes: int) -> list[tuple[int, int]]:
    """Return address and size of every shared array, with the dynamic block."""
    return [(array.address, array.size_bytes) for array in shared_arrays(layout, dynamic_bytes)]


def gap_behind(size_bytes: int) -> int:
    """Return the bytes without an owner behind a shared array: its own size, so that the usual overruns end there."""
    return _align(min(max(size_bytes, BANK_ROW), MOST_GAP), BANK_ROW)


def _period(target: str) -> int:
    """Return the bytes modulo which a shared array is where the hardware has it.

    Bank conflicts repeat after a row of banks; the swizzles of sm_90 use bits 7 to 9 of an address.
    """
    return BANK_ROW if is_later("sm_90", target) else SWIZZLE_PERIOD


def lay_out(module: Module, function: Function, cubin: Iterable[SharedSymbol] = ()) -> Layout:
    """Place every variable that `function` can name. `cubin` gives the hardware's shared offsets if they are known."""
    hardware = {symbol.name: symbol.offset for symbol in cubin}
    symbols: dict[str, Placed] = {}
    param = 0
    for variable in function.params:
        param = _align(param, variable.align)
        symbols[variable.name] = Placed(variable.name, "param", param, variable.size_bytes)
        param += variable.size_bytes
    period = _period(module.target)
    shared, local, packed = SHARED_START, LOCAL_START, 0
    dynamic: list[Variable] = []
    for variable in (*module.variables, *function.variables):
        if variable.space == "shared" and variable.count == 0:
            dynamic.append(variable)
        elif variable.space == "shared":
            packed = _align(packed, variable.align)
            wanted = hardware.get(variable.name, packed)
            shared += (wanted - shared) % period
            symbols[variable.name] = Placed(variable.name, "shared", shared, variable.size_bytes)
            shared += variable.size_bytes + gap_behind(variable.size_bytes)
            packed += variable.size_bytes
        elif variable.space in ("local", "param"):
            local = _align(local, max(variable.align, 4))
            symbols[variable.name] = Placed(variable.name, "local", local, variable.size_bytes)
            local += variable.size_bytes
    if _reads(module, "%reserved_smem_offset_"):
        shared = _align(shared, BANK_ROW)
        symbols[RESERVED.name] = Placed(RESERVED.name, "shared", shared, RESERVED.size_bytes)
        shared += RESERVED.size_bytes + gap_behind(RESERVED.size_bytes)
    if any(_is_cluster_barrier(item) for function in module.functions.values() for item in function.body):
        shared = _align(shared, 8)
        symbols[CLUSTER_BARRIER.name] = Placed(CLUSTER_BARRIER.name, "shared", shared, 0)
        shared += CLUSTER_BARRIER.size_bytes
    aligned = max([16, *(variable.align for variable in dynamic)])
    shared += (_align(packed, aligned) - shared) % period
    for variable in dynamic:
        symbols[variable.name] = Placed(variable.name, "shared", shared, 0)
    return Layout(symbols, shared, packed, local, max(_align(param, 8), 8))


GRID_WORKSPACE = Variable("%grid_workspace", "global", "b64", 8, 1)
"""The memory that cooperative groups need for grid.sync(): a size and a barrier. Every launch here is cooperative."""


RESERVED = Variable("the shared memory of cooperative groups", "shared", "b8", BANK_ROW, 1024)
"""The part of shared memory that the driver reserves in front of the kernel's; groups of several warps synchronise and
communicate there. Here it follows the kernel's arrays, and exists only in modules that ask where it is. It is zero when
a CTA begins, and the size of the kernel's shared memory does not include it."""


CLUSTER_BARRIER = Variable("the barrier of the cluster", "shared", "b64", 8, 1)
"""A word at which watchers see arrivals and waits (`runtime/cluster.py`). Kernels with such a barrier have it, and no
access may touch it."""


def _is_cluster_barrier(item: Instruction | LabelDef) -> bool:
    return isinstance(item, Instruction) and item.facts.group == "cluster"


def place_globals(module: Module, memory: GlobalMemory) -> dict[str, int]:
    """Allocate and initialise a module's `.global` and `.const` variables; return name → device address."""
    return place_variables(module_globals(module), memory)


def module_globals(module: Module) -> list[Variable]:
    """Return every `.global` and `.const` variable, module level first, and grid.sync()'s workspace if it is used."""
    inner = [v for f in module.functions.values() for v in f.variables]
    found = [v for v in (*module.variables, *inner) if v.space in ("global", "const")]
    return [*found, GRID_WORKSPACE] if _reads(module, "%envreg") else found


def _reads(module: Module, special: str) -> bool:
    """Return whether any function reads a special register whose name starts with `special`."""
    moves = (item for f in module.functions.values() for item in f.body if isinstance(item, Instruction))
    return any(
        isinstance(operand, Special) and operand.name.startswith(special)
        for ins in moves
        if ins.copied is not None
        for operand in ins.operands
    )


def place_variables(
    variables: Sequence[Variable], memory: GlobalMemory, placed: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """Allocate and initialise the variables that are not among `placed`; return name → device address of all."""
    places = dict(placed)
    fresh = [variable for variable in variables if variable.name not in placed]
    for variable in fresh:
        if variable.extern:
            raise Unsupported(
                f"extern .{variable.space} variable {variable.name}: name the file that defines it in a link line"
            )
        places[variable.name] = memory.allocate(variable.size_bytes, variable.name, align=max(variable.align, 256))
    for variable in fresh:
        data = bytearray(variable.init.ljust(variable.size_bytes, b"\0"))
        for at, sym in variable.relocations:
            data[at : at + 8] = _target(sym, places, variable).to_bytes(8, "little")
        memory.write(places[variable.name], bytes(data))
    return places


def _target(sym: Sym, placed: Mapping[str, int], variable: Variable) -> int:
    if sym.name not in placed:
        raise LaunchError(f"{variable.name} is initialised with the address of {sym.name}, which has no address")
    return placed[sym.name] + sym.offset


def _align(value: int, to: int) -> int:
    return -(-value // to) * to
