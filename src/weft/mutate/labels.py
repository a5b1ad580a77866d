"""Which stage a line of a kernel makes: a table written by hand, beside the kernel, in the kernel's own order.

k scores | if (d < D) products += q_lane[i] * float(k[row + d]);

Left the stages that the line makes directly, first in a kernel's order first, or `-` where it makes all of them at once
(the number of a lane, the size of a tile). Right every line an operator can touch. Lines are matched by their text and
order, so a table survives what changes elsewhere in the file, and names what it does not know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from weft.attention.stages import STAGES
from weft.core.errors import UsageError

from .generate import generate
from .records import Language, Mutant
from .source import read_lines

NO_STAGE = "-"


@dataclass(frozen=True)
class Label:
    """One row of the table."""

    stages: tuple[str, ...]
    """Empty: no single one."""
    code: str


def read_labels(path: Path) -> tuple[Label, ...]:
    """The rows of a file; lines that begin with # are remarks."""
    rows = []
    for number, row in enumerate(path.read_text().splitlines(), 1):
        if row.startswith("#") or not row.strip():
            continue
        named, bar, code = row.partition(" | ")
        stages = tuple(named.split())
        if not bar or not stages or (stages != (NO_STAGE,) and not set(stages) <= set(STAGES)):
            raise UsageError(f"{path}:{number}: write `stages | code` with stages of {', '.join(STAGES)}, or -")
        rows.append(Label(() if stages == (NO_STAGE,) else stages, code.strip()))
    return tuple(rows)


def touched_lines(source: str, language: Language, path: str) -> tuple[tuple[int, str], ...]:
    """Number and code of every line that some mutant changes."""
    mutants = generate(source, language, path)
    touched = {mutant.line + more for mutant in mutants for more in range(mutant.before.count("\n") + 1)}
    return tuple((line.number, line.code) for line in read_lines(source, language, path) if line.number in touched)


def stages_of_lines(
    source: str, language: Language, path: str, labels: Sequence[Label]
) -> Mapping[int, tuple[str, ...]]:
    """Line → stages. Raises UsageError that names lines without a label and labels without a line."""
    lines = touched_lines(source, language, path)
    codes, known = [code for _, code in lines], [label.code for label in labels]
    if codes != known:
        raise UsageError(f"{path} and its labels differ:\n" + "\n".join(_differences(lines, known)))
    return {number: label.stages for (number, _), label in zip(lines, labels, strict=True)}


def _differences(lines: Sequence[tuple[int, str]], known: Sequence[str]) -> list[str]:
    codes = [code for _, code in lines]
    found = []
    for what, first, end, other, behind in SequenceMatcher(None, known, codes, autojunk=False).get_opcodes():
        if what != "equal":
            found += [f"  no such line any more: {code}" for code in known[first:end]]
            found += [f"  line {number} has no label: {code}" for number, code in lines[other:behind]]
    return found


def stages_of(mutant: Mutant, lines: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """What a mutant may break first: what its line makes, and for two exchanged lines what either makes."""
    pair = range(mutant.line, mutant.line + mutant.before.count("\n") + 1)
    either = {stage for line in pair for stage in lines[line]}
    return tuple(stage for stage in STAGES if stage in either)
