"""What an instruction is: the facts that each row carries, for every pass, engine, checker and page.

A row without facts cannot be written. `tests/ptx/test_facts.py` compares the facts of each row with its text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Control = Literal["", "jump", "table", "call", "return", "exit", "trap"]
"""Where control goes: to a label, to one of a table, into a function and back, out of it, out of the kernel."""
Group = Literal["", "warp", "cta", "cluster"]
Result = Literal["operands", "lane", "members", "executing"]
Verb = Literal["load", "store", "atomic", "prefetch"]
Queue = Literal["", "cp.async", "bulk"]
Computation = Literal[
    "", "integer", "and", "or", "bitwise", "shift left", "shift right", "extract", "insert", "permute", "select",
    "sum", "difference", "product", "quotient", "product and sum", "larger", "smaller",
    "exponential", "reciprocal", "logarithm", "sign", "function",
]  # fmt: skip
"""What is computed, for everything that follows values. On bits: they stay in place (`bitwise`), move, or are left out.
On floating-point numbers: the quantity; `sign` changes at most the sign, `function` is any other. `integer` is
arithmetic on integers. If it is empty, no more is known than that the result depends on the operands."""


@dataclass(frozen=True)
class Access:
    """One access of memory by an instruction."""

    verb: Verb
    address: str
    """The operand with the address."""
    width: str | int
    """Bytes per lane: a number, `type` (the instruction type times the vector), or the operand that has the number.
    `row`: each address is one of 16 bytes. `tile`: the lanes access a matrix together."""
    data: str = ""
    """The operand whose registers are loaded or stored, if there is one."""
    only: str = ""
    """The state space, if the instruction can access no other."""
    holds: Literal["", "mbarrier", "bytes", "tensor map"] = ""
    """What the bytes are, if they are not data; `bytes`: the count of bytes of an mbarrier."""
    read_only: bool = False
    """Whether the kernel may not write the bytes while it runs: the load may go through a cache that misses it."""

    @property
    def reads(self) -> bool:
        return self.verb in ("load", "atomic")

    @property
    def writes(self) -> bool:
        return self.verb in ("store", "atomic")

    def space(self, mods: Mapping[str, str]) -> str:
        """Return the state space of the bytes, `generic` if only the address tells."""
        return self.only or named_space(mods)


def named_space(mods: Mapping[str, str]) -> str:
    """Return the state space of addresses that an opcode names, `generic` if none: `shared::cta` is `shared`."""
    return mods.get("space", "global" if "global" in mods else "generic").partition("::")[0]


@dataclass(frozen=True)
class Facts:
    """What an instruction is. The default is a computation of each lane from its operands, without effects."""

    control: Control = ""
    group: Group = ""
    """The threads that execute it together."""
    waits: bool = False
    """Whether a thread waits in it for the others of the group."""
    aligned: bool = False
    """Whether a warp must execute it as a whole, although no modifier `.aligned` says so."""
    result: Result = "operands"
    """What the result depends on: only the operands; also the lane; or it is the same for all lanes of the member
    mask, or for all lanes that execute it."""
    accesses: tuple[Access, ...] = ()
    order: Literal["", "acquire", "release", "relaxed"] = ""
    """How its access orders others if no modifier `.order` says so."""
    fences: bool = False
    """Whether it orders the accesses before it and after it: a fence or a barrier."""
    fences_inits: bool = False
    """Whether a relaxed arrival at the barrier of the cluster publishes the mbarriers that were initialised before."""
    fences_async: bool = False
    """Whether it orders accesses of shared memory by threads before those of bulk copies and products of a warpgroup:
    fence.proxy.async, unless it is only for global memory."""
    fences_map: Literal["", "release", "acquire"] = ""
    """What it does for tensor maps that the kernel changes: it releases what was written, or acquires one map."""
    starts: Queue = ""
    """The kind of asynchronous operation that it starts: its accesses happen later."""
    settles: Queue = ""
    """The kind of asynchronous operation that it groups, waits for, or makes an mbarrier wait for."""
    computes: Computation = ""
    copies: tuple[str, ...] = ()
    """The operands one of which the result is, bit by bit."""
    converts: tuple[str, ...] = ()
    """The operands one of which the result is in another form: another type, another state space, a part."""
    numbers: tuple[str, ...] = ()
    """The operands of which, if f32, only the number counts: the bits of a NaN do not show in the result."""
    compares: bool = False
    """Whether the result is the truth of a comparison of a and b."""
    multiplies: Literal["", "mma", "wmma", "wgmma"] = ""
    """The kind of matrix fragments that it multiplies."""
    orders: Literal["", "fence", "commit", "wait"] = ""
    """What it does for products of a warpgroup, which go on after their instruction: it orders registers before them,
    closes a group of them, or waits for groups."""
    registers: bool = False
    """Whether it changes the number of registers of its warps."""
    maps: bool = False
    """Whether it makes the address of a place in another CTA of the cluster."""
    updates: tuple[str, ...] = ()
    """The written operands that are read, too."""
    reads_carry: bool = False
    target: str = "sm_80"
    """The first architecture that has the form; `sm_80` is the first that Weft runs. `sm_90a`: only this one has it;
    `sm_90a+`: this one and the architecture-specific targets after it."""
    target_of_all: str = ""
    """The same for the form with all of its optional operands, if that differs."""

    @property
    def uses_memory(self) -> bool:
        """Whether it reads or writes memory; a prefetch does neither."""
        return any(access.reads or access.writes for access in self.accesses)

    @property
    def writes_memory(self) -> bool:
        return any(access.writes for access in self.accesses)

    @property
    def is_load(self) -> bool:
        """Whether each lane loads registers of the instruction's type for itself, and nothing else happens."""
        return [(access.verb, access.width) for access in self.accesses] == [("load", "type")]

    @property
    def is_barrier(self) -> bool:
        """Whether it is a CTA barrier at which the warp must wait."""
        return self.group == "cta" and self.waits

    @property
    def is_warp_barrier(self) -> bool:
        """Whether lanes of a warp wait for each other and exchange nothing."""
        return self.group == "warp" and self.waits

    @property
    def is_atomic(self) -> bool:
        return any(access.verb == "atomic" and not access.holds for access in self.accesses)

    @property
    def is_mbarrier(self) -> bool:
        """Whether it accesses an mbarrier."""
        return any(access.holds == "mbarrier" for access in self.accesses)

    @property
    def signals(self) -> bool:
        """Whether a thread stores by it, and an mbarrier counts the bytes: st.async and red.async."""
        return not self.starts and any(access.holds == "bytes" for access in self.accesses)

    @property
    def counts(self) -> bool:
        """Whether threads arrive by it, or wait for arrivals: at an mbarrier, or at the barrier of a cluster."""
        return self.is_mbarrier or self.group == "cluster"

    @property
    def for_each_lane(self) -> bool:
        """Whether each lane must execute it, although all operands may be the same: it has effects, or the result
        depends on the lane."""
        effects = self.writes_memory or self.starts or self.settles or self.fences_map or self.control == "call"
        return self.result == "lane" or bool(effects)

    def first_target(self, mods: Mapping[str, str], *, complete: bool = False) -> str:
        """Return the first architecture that has the form with these modifiers; all with clusters have sm_90.

        `complete`: the instruction has all optional operands of its row.
        """
        target = (complete and self.target_of_all) or self.target
        clusters = mods.get("scope") == "cluster" or mods.get("space") == "shared::cluster"
        return "sm_90" if clusters and _number(target) < 90 else target


_OLDEST = 80


@lru_cache
def is_later(needed: str, target: str) -> bool:
    """Return whether code for `target` cannot contain a form of the architecture `needed`.

    The rows do not say which architectures before sm_80 have them: code for those is read as code for sm_80.
    """
    if needed.endswith("a"):
        return target != needed
    later = max(_number(target), _OLDEST) < _number(needed)
    return later or (needed.endswith("+") and not target.endswith("a"))


def _number(target: str) -> int:
    """Return 90 of `sm_90a`; of a number that is too long for Python's `int`, its first digits."""
    return int("".join(digit for digit in target if digit.isdecimal())[:9] or 0)


COMPUTES = Facts()
