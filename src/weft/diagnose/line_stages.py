"""The stages that are computed from a line: what an edit of this line can correct."""

from collections.abc import Iterable, Iterator, Set

import numpy as np

from weft.core.records import Place, inlining_chain
from weft.core.statements import statements_of
from weft.ptx.module import Function, Instruction

from .origins import Sources, body
from .records import Case
from .spelling import own_place
from .tags import INPUTS
from .taps import TAPPED, Taps


def stages_from(case: Case, place: Place) -> tuple[str, ...]:
    """Return the observed stages that depend on a line, in the order a kernel computes them.

    Their values or indices are computed from the line, or, where it is the head of a loop, by a line in it. Conditions
    of other branches are left out: nearly every stage depends on them.
    """
    if case.taps is None:
        return ()
    text = statements_of(place.file)
    looped = {at for at in range(1, len(text.lines) + 1) if place.line in text.loops(at)}
    found = []
    for stage in TAPPED:
        made = [(function, ins) for function in case.functions for ins in _makers(function, stage, case.taps)]
        if looped & _lines(case, (ins for _, ins in made), place) or place.line in _lines(case, _sources(made), place):
            found.append("scores" if stage == "products" else stage)
    return tuple(dict.fromkeys(found))


def is_followed(case: Case, stage: str) -> bool:
    """Whether values of a stage were seen in the run: of another it is not known from which lines it is computed."""
    taps = case.taps
    return taps is not None and any(_makers(function, stage, taps) for function in case.functions)


def _makers(function: Function, stage: str, taps: Taps) -> list[Instruction]:
    """Return the instructions of a kernel that load an input, or compute the values of a stage."""
    if stage in INPUTS:
        used = [taps.fetches[stage], taps.reads[stage]]
    else:
        used = [tap.made[tap.observed] for (name, _), tap in taps.taps.items() if name == stage]
    events = (taps.events[at] for numbers in used for at in np.unique(numbers) if at)
    makers = {(event.ptx_line, event.opcode) for event in events}
    return [ins for ins in body(function) if (ins.line, ins.opcode) in makers]


def _sources(made: Iterable[tuple[Function, Instruction]]) -> Iterator[Instruction]:
    """Yield instructions and those that their operands and addresses are computed by."""
    by_function: dict[str, tuple[Function, list[Instruction]]] = {}
    for function, ins in made:
        by_function.setdefault(function.name, (function, []))[1].append(ins)
    for function, seeds in by_function.values():
        yield from seeds
        yield from Sources(function, None).back(seeds, branches=False)


def _lines(case: Case, instructions: Iterable[Instruction], place: Place) -> Set[int]:
    """Return the lines of instructions in the file of a place."""
    assert case.kernel is not None
    chains = (inlining_chain(own_place(ins.place, case.kernel)) for ins in instructions)
    return {at.line for chain in chains for at in chain if at.file == place.file}
