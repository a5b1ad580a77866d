"""A kernel, its launch and the addresses of its arrays → indices that overflow 32 bits.

Threads at the corners of the grid are followed: an index is largest in the last CTA, or in the first if the order is
reversed. Of the last CTA these are the first thread (which may store a row's sum alone), the last one, and the first
thread of the last warp (which may have another role).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.core.records import Dim3

from ..module import Function, Instruction, Module
from ..passes.build_cfg import build_cfg
from ..passes.fold_constants import fold_constants
from ..passes.inline_calls import inline_calls
from .follow import FollowedThread
from .numbers import Value, known
from .steps import Parameter, Steps, make_steps

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class ArrayPlace:
    """An array of a launch: only its addresses are computed, there is no memory."""

    name: str
    address: int
    size_bytes: int


@dataclass(frozen=True)
class IndexLaunch:
    """A launch of which only the index arithmetic is followed."""

    grid: Dim3
    block: Dim3
    parameters: bytes
    arrays: tuple[ArrayPlace, ...]


@dataclass(frozen=True)
class Overflow:
    """An instruction whose result does not fit 32 bits, and the wrong access or comparison that follows."""

    maker: Instruction
    value: int
    """The exact result."""
    site: Instruction
    """The wrong access or comparison."""
    array: str
    """The array that the access misses; empty for a comparison."""
    cta: Dim3
    thread: int


def index_steps(module: Module, entry: str) -> tuple[Steps, ...]:
    """Return a kernel's index arithmetic, made once for all its launches."""
    return make_steps(build_cfg(fold_constants(inline_calls(module, module.functions[entry]))))


def find_overflows(kernel: Function, steps: Sequence[Steps], launch: IndexLaunch) -> tuple[Overflow, ...]:
    """Return the overflows of a launch, one for each instruction that overflows."""
    found: dict[int, Overflow] = {}
    parameters = _parameters(kernel, launch.parameters)
    for cta, thread in _corners(launch):
        followed = FollowedThread(_specials(launch, cta, thread), parameters)
        followed.follow(steps)
        for access in followed.found.values():
            array = _array_at(launch.arrays, access.exact)
            if array is None or access.bits == access.exact & _MASK:
                continue  # an address outside every array: its guard was not followed
            maker, value = access.origin or (access.site, access.exact - array.address)
            found.setdefault(id(maker), Overflow(maker, value, access.site, array.name, cta, thread))
        for comparison in followed.compared.values():
            maker, value = comparison.origin
            found.setdefault(id(maker), Overflow(maker, value, comparison.site, "", cta, thread))
    return tuple(found.values())


def _corners(launch: IndexLaunch) -> Iterator[tuple[Dim3, int]]:
    """Yield CTAs and threads: three of the last CTA, then one of each of three other corners."""
    last = (launch.grid[0] - 1, launch.grid[1] - 1, launch.grid[2] - 1)
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    chosen = [(last, thread) for thread in (0, threads - 1, (threads - 1) // 32 * 32)]
    chosen += [((0, last[1], last[2]), 0), ((last[0], 0, 0), 0), ((0, 0, 0), 0)]
    yield from dict.fromkeys(chosen)


def _specials(launch: IndexLaunch, cta: Dim3, thread: int) -> dict[str, Value]:
    width, height, _ = launch.block
    place = (thread % width, thread // width % height, thread // (width * height))
    found = {"%laneid": thread % 32, "%warpid": thread // 32}
    for name, sizes in (("tid", place), ("ntid", launch.block), ("ctaid", cta), ("nctaid", launch.grid)):
        found |= {f"%{name}.{axis}": size for axis, size in zip("xyz", sizes, strict=True)}
    return {name: known(value, "u32") for name, value in found.items()}


def parameter_layout(kernel: Function) -> tuple[tuple[str, int, int], ...]:
    """Return name, offset and size of each parameter."""
    found, end = [], 0
    for variable in kernel.params:
        start = end + -end % variable.align
        end = start + variable.size_bytes
        found.append((variable.name, start, variable.size_bytes))
    return tuple(found)


def _parameters(kernel: Function, block: bytes) -> Mapping[Parameter, Value]:
    """Return the integers that may be read from the parameter block, by the parameter's name and the byte inside it."""
    found: dict[Parameter, Value] = {}
    for name, start, whole in parameter_layout(kernel):
        for size in (8, 4):  # members of a struct, and a 64-bit number, may be read in either size
            for at in range(0, whole - size + 1, size):
                value = int.from_bytes(block[start + at : start + at + size], "little", signed=True)
                found[name, at, size] = known(value, f"s{8 * size}")
    return found


def _array_at(arrays: Sequence[ArrayPlace], address: int) -> ArrayPlace | None:
    return next((each for each in arrays if 0 <= address - each.address < each.size_bytes), None)
