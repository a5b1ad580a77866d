"""The functions of the device runtime that the virtual GPU provides: calls of them stay calls in the PTX."""

from collections.abc import Mapping

from weft.ptx.module import Instruction, Sym

PRINT, ASSERT, FREE, SET_CONDITION = "vprintf", "__assertfail", "free", "cudaGraphSetConditional"
ALLOCATORS: Mapping[str, int] = {"malloc": 1, "__cuda_syscall_aligned_malloc": 2}
"""Functions that return a block of the heap → the number of their arguments: its size, and its alignment."""
DEVICE_FUNCTIONS = frozenset([PRINT, ASSERT, FREE, SET_CONDITION, *ALLOCATORS])


def called(ins: Instruction) -> str:
    """Return the name of the function that an instruction calls; empty if it calls none by name."""
    target = ins.operand("func") if ins.facts.control == "call" else None
    return target.name if isinstance(target, Sym) else ""


def uses_heap(ins: Instruction) -> bool:
    """Return whether an instruction allocates or frees."""
    name = called(ins)
    return name == FREE or name in ALLOCATORS


def order_shows(ins: Instruction) -> bool:
    """Return whether a call shows in which order CTAs ran: by an address of the heap, or by the last condition set."""
    return uses_heap(ins) or called(ins) == SET_CONDITION
