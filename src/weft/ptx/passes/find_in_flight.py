"""Finds registers of `wgmma.mma_async` that code touches while the product may still use them (PTX ISA 9.7.15.7).

    wgmma.mma_async … {%d0, …}, …;  wgmma.commit_group;  add.f32 %f1, %d0, %d0;  wgmma.wait_group 0;    too early
    mov.b32 %d0, 0;  wgmma.mma_async … {%d0, …}, …;                                                     no wgmma.fence

A product uses its accumulator D, and A if that is in registers, until a `wait_group` completes its group. An access of
such a register and a later product that uses it need a `wgmma.fence` between them; products of one shape on the same
accumulator do not, nor do two reads of A. The state in front of a block is the union over all ways that lead there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..module import Imm, Instruction, Reg, Vec
from .build_cfg import Block, Cfg


@dataclass(frozen=True)
class InFlight:
    """Registers of a product that are touched too early, or a product without its fence."""

    line: int
    """PTX line of the first instruction that touches them, or of the product."""
    other: int
    """PTX line of the product in flight, or of the access that needs a fence after it; 0: the start of the kernel."""
    register: str
    """The first of the registers."""
    count: int
    early: bool
    """Whether the registers are in flight; otherwise a `wgmma.fence` is missing."""


@dataclass(frozen=True)
class _State:
    """What is known about registers at a point of the kernel: sets, one bit per register."""

    results: tuple[int, ...]
    """By the number of groups committed since: registers that an open product writes; the last is for more groups."""
    sources: tuple[int, ...]
    """The same for registers that an open product only reads."""
    read: int
    written: int
    """Registers that other instructions read or wrote since the last fence."""
    shaped: tuple[int, ...]
    """By shape: accumulators of products since the last fence."""

    def join(self, other: "_State") -> "_State":
        def both(a: Iterable[int], b: Iterable[int]) -> tuple[int, ...]:
            return tuple(x | y for x, y in zip(a, b, strict=True))

        return _State(
            both(self.results, other.results),
            both(self.sources, other.sources),
            self.read | other.read,
            self.written | other.written,
            both(self.shaped, other.shaped),
        )


def find_in_flight(cfg: Cfg) -> tuple[InFlight, ...]:
    """Return what is touched too early, in the order of the PTX lines."""
    products = [ins for block in cfg.blocks for ins in block.body if is_product(ins)]
    return _Search(cfg, products).run() if products else ()


def is_product(ins: Instruction) -> bool:
    """Return whether it is a product that goes on after its instruction."""
    return ins.facts.multiplies == "wgmma"


class _Search:
    def __init__(self, cfg: Cfg, products: list[Instruction]) -> None:
        self.cfg, self.products = cfg, products
        names = dict.fromkeys(reg for ins in products for name in "da" for reg in _names(ins, name))
        self.names = tuple(names)
        self.bit = {name: 1 << number for number, name in enumerate(names)}
        self.shapes = tuple(dict.fromkeys(_shape(ins) for ins in products))
        waits = [ins for block in cfg.blocks for ins in block.body if ins.facts.orders == "wait"]
        self.oldest = 1 + max((_pending(ins) for ins in waits), default=0)
        """Groups committed after a product from which on every wait completes it."""
        self.found: dict[tuple[int, bool], tuple[int, int]] = {}
        """Line of the product or access before, whether early → the first line that touches, and the registers."""

    def run(self) -> tuple[InFlight, ...]:
        nothing = _State((0,) * (self.oldest + 1), (0,) * (self.oldest + 1), 0, 0, (0,) * len(self.shapes))
        before: dict[int, _State] = {0: replace(nothing, written=(1 << len(self.names)) - 1)}
        work = [0]
        while work:
            number = work.pop()
            after = self._pass(self.cfg.blocks[number], before[number], report=False)
            for successor in self.cfg.blocks[number].successors:
                known = before.get(successor)
                joined = after if known is None else known.join(after)
                if joined != known:
                    before[successor] = joined
                    work.append(successor)
        for number, state in sorted(before.items()):
            self._pass(self.cfg.blocks[number], state, report=True)
        found = [
            InFlight(line, other, self._first(bits), bits.bit_count(), early)
            for (other, early), (line, bits) in self.found.items()
        ]
        return tuple(sorted(found, key=lambda each: (each.line, each.other)))

    def _pass(self, block: Block, state: _State, *, report: bool) -> _State:
        """Return the state after a block."""
        for ins in (*block.body, *((block.end,) if block.end else ())):
            if is_product(ins):
                state = self._multiply(ins, state, report=report)
            elif ins.facts.orders:
                state = self._order(ins, state)
            else:
                state = self._touch(ins, state, report=report)
        return state

    def _touch(self, ins: Instruction, state: _State, *, report: bool) -> _State:
        read, written = self._set(reg.name for reg in ins.read()), self._set(reg.name for reg in ins.written())
        if not read | written:
            return state
        if report:
            writes, reads = _union(state.results), _union(state.sources)
            self._report(ins, ((read | written) & writes) | (written & reads), early=True)
        return replace(state, read=state.read | read, written=state.written | written)

    def _multiply(self, ins: Instruction, state: _State, *, report: bool) -> _State:
        d, a = self._set(_names(ins, "d")), self._set(_names(ins, "a"))
        shape = self.shapes.index(_shape(ins))
        if report:
            self._report(ins, (d & _union(state.sources)) | (a & _union(state.results)), early=True)
            others = _union(bits for number, bits in enumerate(state.shaped) if number != shape)
            self._report(ins, (d & (state.read | state.written | others)) | (a & state.written), early=False)
        (results, *older), (sources, *earlier) = state.results, state.sources
        shaped = tuple(bits | (d if number == shape else 0) for number, bits in enumerate(state.shaped))
        return replace(state, results=(results | d, *older), sources=(sources | a, *earlier), shaped=shaped)

    def _order(self, ins: Instruction, state: _State) -> _State:
        if ins.facts.orders == "fence":
            return state if ins.guard else replace(state, read=0, written=0, shaped=(0,) * len(self.shapes))
        if ins.facts.orders == "wait":
            if ins.guard:
                return state
            kept = _pending(ins) + 1

            def waited(ages: tuple[int, ...]) -> tuple[int, ...]:
                return tuple(bits if age < kept else 0 for age, bits in enumerate(ages))

            return replace(state, results=waited(state.results), sources=waited(state.sources))
        after = replace(state, results=_committed(state.results), sources=_committed(state.sources))
        return state.join(after) if ins.guard else after

    def _set(self, names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= self.bit.get(name, 0)
        return found

    def _report(self, ins: Instruction, bits: int, *, early: bool) -> None:
        """Add to what is found: one entry for a product, at the first line that touches its registers."""
        if bits:
            key = (self._other(ins, self._first(bits), early=early), early)
            line, known = self.found.get(key, (ins.line, 0))
            self.found[key] = (min(line, ins.line), known | bits)

    def _first(self, bits: int) -> str:
        return self.names[(bits & -bits).bit_length() - 1]

    def _other(self, ins: Instruction, register: str, *, early: bool) -> int:
        """Return the nearest line that uses the register before `ins`, or else the last one: of a product if `early`,
        otherwise of another instruction."""
        lines = [line for line, is_one in self._uses(register) if is_one == early and line != ins.line]
        return max([line for line in lines if line < ins.line] or lines, default=0)

    def _uses(self, register: str) -> Iterator[tuple[int, bool]]:
        for block in self.cfg.blocks:
            for ins in block.body:
                if any(reg.name == register for reg in (*ins.read(), *ins.written())):
                    yield ins.line, is_product(ins)


def _names(ins: Instruction, name: str) -> list[str]:
    """Return the registers of D or A; A may be a descriptor, which is read when the product is issued."""
    operand = ins.operand(name)
    return [item.name for item in operand.items if isinstance(item, Reg)] if isinstance(operand, Vec) else []


def _shape(ins: Instruction) -> str:
    return ins.mods["shape"]


def _pending(ins: Instruction) -> int:
    """Return how many groups may be open after a wait."""
    count = ins.operand("count")
    return count.value if isinstance(count, Imm) else 0


def _committed(ages: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sets after a group is closed; the last is for all that are older."""
    *young, last, oldest = (0, *ages)
    return (*young, last | oldest)


def _union(sets: Iterable[int]) -> int:
    found = 0
    for bits in sets:
        found |= bits
    return found
