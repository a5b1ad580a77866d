"""Lines that a given line depends on: indices, bounds and constants, nearest first.

They are found in the compiled kernel: backwards through registers, from a load of shared memory to the stores of the
same kind of values, and to the conditions of branches. The way back ends at stages that were observed to be right.
Where a stage was lost, floating-point lines are not listed: they compute stages, which are compared one by one.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from weft.core.errors import WeftError
from weft.core.records import Place, inlining_chain
from weft.ptx.module import FloatImm, Function, Imm, Instruction, Label, LabelDef, Mem, Reg
from weft.ptx.parse import parse

from .acts import Act
from .records import Case
from .spelling import own_place
from .taps import Maker, Taps

MOST = 2
NEARBY = 3
"""Lines this close are seen together with the line itself."""
_BRANCHES_AFTER = 3
"""Steps back, after which the conditions of branches are followed too."""
_OF_INDICES = ("integer", "extract", "insert", "select", "shift left", "shift right", "and", "or")
"""What is computed of indices, bounds and conditions."""


def origins(case: Case, place: Place | None, known: Sequence[Place] = ()) -> tuple[Place, ...]:
    """Return a few lines of the user's file that `place` depends on, none of them close to it or to each other.

    Lines that are already `known` come first.
    """
    kernel = case.kernel
    if kernel is None or place is None:
        return ()
    found: list[Place] = []
    for at in known:
        if len(found) < MOST and all(abs(at.line - other.line) > NEARBY for other in (place, *found)):
            found.append(Place(at.file, at.line))
    if len(found) == MOST:
        return tuple(found)
    right = _made_right(case)
    for function in case.functions:
        seeds = [ins for ins in body(function) if is_at(ins, place)]
        heads = {place.line, function_line(function)}
        sources = Sources(function, case.taps, right)
        for ins in sources.back(seeds):
            if not sources.is_index(ins) and not (right and ins.facts.computes):
                continue
            line = own_place(ins.place, kernel)
            if line is None or line.file != place.file or not 0 < line.line < place.line or line.line in heads:
                continue
            if all(abs(line.line - other.line) > NEARBY for other in (place, *found)):
                found.append(Place(line.file, line.line))
            if len(found) == MOST:
                return tuple(found)
    if not found and place.inlined_at is not None:  # a function of a few lines: what its call is computed from
        return origins(case, place.inlined_at)
    return tuple(found)


def slice_lines(case: Case, place: Place | None) -> tuple[int, ...]:
    """Return all lines of the user's file that `place` depends on, nearest first: its data, indices and conditions.

    Behind them come the lines on which the results of earlier launches depend, the last launch first; these alone if no
    place is known, or no instruction is there, as at a launch line.
    """
    kernel = case.kernel
    if kernel is None:
        return ()
    found: dict[int, None] = {}
    file = place.file if place is not None else kernel.path
    seeds_of = [
        [ins for ins in body(function) if place is not None and is_at(ins, place)] for function in case.functions
    ]
    reached = not any(seeds_of)
    for function, seeds in zip(reversed(case.functions), reversed(seeds_of), strict=True):
        reached = reached or bool(seeds)
        if reached and not seeds:
            seeds = [ins for ins in body(function) if ins.facts.writes_memory and ins.space == "global"]
        for right in dict.fromkeys((_made_right(case), frozenset[Maker]())):  # behind them what they are made of
            # Seeds are also the instructions of functions that are inlined at the place.
            for ins in (*seeds, *Sources(function, case.taps, right).back(seeds)):
                for at in inlining_chain(own_place(ins.place, kernel)):
                    if at.file == file and at.line > 0:
                        found[at.line] = None
    return tuple(found)


def _made_right(case: Case) -> frozenset[Maker]:
    """Return what made right stages; nothing where a stage before the wrong one is lost."""
    return case.made_right if case.lost is None else frozenset()


def with_functions(case: Case) -> Case:
    """Returns the case with the functions of its kernel in the order of launches, or the reason why there are none."""
    if case.kernel is None:
        return case
    try:
        binaries = case.kernel.binaries(case.problem.arrays)
        modules = [parse(text) for text in sorted({binary.ptx for binary in binaries.values()})]
    except WeftError as error:
        return replace(case, not_parsed=str(error))
    functions = [function for module in modules for function in module.functions.values()]
    order = {binary.entries.get(entry, entry): number for number, (entry, binary) in enumerate(binaries.items())}
    return replace(case, functions=tuple(sorted(functions, key=lambda each: order.get(each.name, len(order)))))


def function_line(function: Function) -> int:
    """Return the line where its parameters are read: the head of the kernel, on which everything depends."""
    loads = [ins for ins in body(function) if ins.facts.accesses and ins.space == "param"]
    return loads[0].place.line if loads and loads[0].place is not None else 0


class Sources:
    """The instructions that write what a kernel's instructions read; the way back ends at those that are `right`."""

    def __init__(self, function: Function, taps: Taps | None, right: frozenset[Maker] = frozenset()) -> None:
        self.right = right
        self.by_line = {ins.line: ins for ins in body(function)}
        self.writers: defaultdict[str, list[Instruction]] = defaultdict(list)
        for ins in self.by_line.values():
            for reg in ins.written():
                self.writers[reg.name].append(ins)
        self.branches = [ins for ins in self.by_line.values() if ins.facts.control and ins.guard is not None]
        self.loops = _loops(function)
        acts = taps.acts if taps is not None else ()
        self.stores: defaultdict[int, set[int]] = defaultdict(set)
        shared = [act for act in acts if act.space == "shared"]
        for load in (act for act in shared if act.what == "load"):
            for store in (act for act in shared if act.what == "store"):
                if load.kinds == store.kinds and load.event.launch == store.event.launch:
                    self.stores[load.event.ptx_line].add(store.event.ptx_line)

    def is_index(self, ins: Instruction) -> bool:
        """Whether it computes an integer, a condition or a starting value; a constant that stays the same is none."""
        if isinstance(ins.copied, Imm | FloatImm):
            return any(len(self.writers[reg.name]) > 1 for reg in ins.written())
        return ins.facts.compares or ins.facts.computes in _OF_INDICES

    def back(self, seeds: Sequence[Instruction], *, branches: bool = True) -> Iterator[Instruction]:
        """Yield instructions step by step, the later ones first; those that compute addresses come before others."""
        others: list[Instruction] = []
        seen = {ins.line for ins in seeds}
        step = [(ins, False) for ins in seeds]
        count = 0
        while step:
            count += 1
            lines: dict[int, bool] = {}
            for ins, of_address in step:
                for made, in_address in self.makers(ins):
                    lines[made] = lines.get(made, False) or of_address or in_address
            if branches and count == _BRANCHES_AFTER:
                lines |= {ins.line: False for ins in self.branches if ins.line not in lines}
            fresh = sorted((line for line in lines if line not in seen and self.is_open(line)), reverse=True)
            step = [(self.by_line[line], lines[line]) for line in fresh]
            seen |= set(fresh)
            yield from (ins for ins, of_address in step if of_address)
            others += [ins for ins, of_address in step if not of_address]
        yield from others

    def is_open(self, line: int) -> bool:
        """Whether what a PTX line computes may be wrong."""
        ins = self.by_line.get(line)
        if ins is None:
            return False
        return ins.place is None or Maker.of(ins.place, ins.opcode) not in self.right

    def makers(self, ins: Instruction) -> Iterator[tuple[int, bool]]:
        """Yield the lines that compute what an instruction reads, and whether it is an address."""
        addresses = {
            operand.base.name for operand in ins.operands if isinstance(operand, Mem) and isinstance(operand.base, Reg)
        }
        for reg in ins.read():
            for made in self.writers[reg.name]:
                if made.line < ins.line or self._share_loop(made, ins):
                    yield made.line, reg.name in addresses
        for store in self.stores[ins.line]:
            yield store, False

    def _share_loop(self, a: Instruction, b: Instruction) -> bool:
        """Whether a loop contains both: only then the later one writes what the earlier one reads."""
        return any(first <= min(a.line, b.line) and max(a.line, b.line) <= last for first, last in self.loops)


def factor_line(case: Case, act: Act) -> Place | None:
    """Return the line that computes the constant factor of a product, without followed values, if it is another line
    than that of the product.
    """
    acts = case.taps.acts if case.taps is not None else ()
    followed = {each.event.ptx_line for each in acts if each.what == "load" and each.event.launch == act.event.launch}
    for function in case.functions if case.kernel is not None else ():
        sources = Sources(function, None)
        product = sources.by_line.get(act.event.ptx_line)
        if product is None or (product.opcode, product.place) != (act.event.opcode, act.event.place):
            continue
        for reg in product.read():
            made = sources.writers[reg.name]
            closure = [*made, *sources.back(made, branches=False)]
            given = [ins for ins in made if ins.facts.computes or (ins.facts.accesses and ins.space != "param")]
            if len(made) != 1 or not given or any(ins.line in followed for ins in closure):
                continue
            line = own_place(made[0].place, case.kernel) if case.kernel is not None else None
            if line is not None and all(line.line != at.line for at in inlining_chain(act.event.place)):
                return line
    return None


def _loops(function: Function) -> list[tuple[int, int]]:
    """Return the lines of each loop: from a label to a branch behind it that goes there."""
    labels = {item.name: item.line for item in function.body if isinstance(item, LabelDef)}
    jumps = ((labels[op.name], ins.line) for ins in body(function) for op in ins.operands if isinstance(op, Label))
    return [(first, last) for first, last in jumps if first < last]


def body(function: Function) -> list[Instruction]:
    """Return its instructions, without labels."""
    return [item for item in function.body if isinstance(item, Instruction)]


def is_at(ins: Instruction, place: Place) -> bool:
    """Whether it is on a line, or in a function that was inlined there."""
    name = place.file.rpartition("/")[2]
    return any(at.line == place.line and at.file.rpartition("/")[2] == name for at in inlining_chain(ins.place))
