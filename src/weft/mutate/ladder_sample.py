"""The mutants of the ladder that test a gate and a diagnosis. Seed, size and what is held out are defined here.

Held-out rungs: `fp8_wmma`, a tensor-core kernel that decodes its inputs while loading, whose closest relatives
(`wmma`, `fp8_scalar`) are not held out; and `fa_triton`, whose language is covered by `fp8_triton`. So their score
shows whether a diagnosis generalises to a kernel it was not tuned with, not whether it supports a task or a compiler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from weft.attention.stages import STAGES
from weft.core.errors import UsageError
from weft.kernels.ladder import RUNGS

from .generate import generate
from .records import Language, Mutant
from .sample import Balance, sample
from .source import read_lines

SEED = 9
PER_RUNG = 42
HELD_OUT_RUNGS = ("fp8_wmma", "fa_triton")
LEFT_OUT = (
    "qk_dot", "backward", "backward_mma", "backward_triton", "softcap_sinks", "varlen_triton", "paged_decode",
    "paged_decode_fp8",
    "hopper_tma", "fp8_hopper",
)  # fmt: skip
"""`qk_dot` computes only scores: there is no other stage to distinguish them from. The backward pass has other stages.
The others came after the sample was drawn and labelled; their bugs are in tests/zoo and tests/diagnose."""
NO_STAGE = "-"


@dataclass(frozen=True)
class Label:
    """One row of a handwritten table next to the kernel, in the kernel's order: which stage a line computes.

    k scores | if (d < D) products += q_lane[i] * float(k[row + d]);

    Left: the stages that the line computes directly, in the kernel's order, or `-` where it affects all of them at once
    (the number of a lane, the size of a tile). Right: every line an operator can change. Lines are matched by their
    text and order, so a table stays valid when other lines of the file change, and an error lists unknown lines.
    """

    stages: tuple[str, ...]
    """Empty: no single stage."""
    code: str


@dataclass(frozen=True)
class Labelled:
    """A mutant of a rung with the stages that may be named for it."""

    rung: str
    mutant: Mutant
    stages: tuple[str, ...]
    held_out: bool
    """Whether its operator or its rung is held out."""


def all_of(rung: str, labels: Path) -> tuple[Labelled, ...]:
    """Return every mutant of a rung whose line computes some stage; `labels` is the folder of tables."""
    row = RUNGS[rung]
    source = row.path.read_text()
    lines = stages_of_lines(source, row.language, row.file, read_labels(labels / f"{rung}.txt"))
    found = ((mutant, stages_of(mutant, lines)) for mutant in generate(source, row.language, row.file))
    return tuple(
        Labelled(rung, mutant, stages, mutant.held_out or rung in HELD_OUT_RUNGS) for mutant, stages in found if stages
    )


def ladder_sample(labels: Path, per_rung: int = PER_RUNG, seed: int = SEED) -> tuple[Labelled, ...]:
    """Return the sample, rung by rung."""
    balance = Balance()
    chosen: list[Labelled] = []
    for rung in (name for name in RUNGS if name not in LEFT_OUT):
        possible = {each.mutant.id: each for each in all_of(rung, labels)}
        drawn = sample([each.mutant for each in possible.values()], per_rung, seed, balance)
        chosen += [possible[mutant.id] for mutant in drawn]
    return tuple(chosen)


def read_labels(path: Path) -> tuple[Label, ...]:
    """Return the rows of a file; lines that begin with # are comments."""
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
    """Return the number and code of every line that some mutant changes."""
    mutants = generate(source, language, path)
    touched = {mutant.line + more for mutant in mutants for more in range(mutant.before.count("\n") + 1)}
    return tuple((line.number, line.code) for line in read_lines(source, language, path) if line.number in touched)


def stages_of_lines(
    source: str, language: Language, path: str, labels: Sequence[Label]
) -> Mapping[int, tuple[str, ...]]:
    """Return line → stages. Raises UsageError with the lines without a label and the labels without a line."""
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
            found += [f"  label without a line: {code}" for code in known[first:end]]
            found += [f"  line {number} has no label: {code}" for number, code in lines[other:behind]]
    return found


def stages_of(mutant: Mutant, lines: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the stages a mutant may break first: those its line computes, or for two exchanged lines either's."""
    pair = range(mutant.line, mutant.line + mutant.before.count("\n") + 1)
    either = {stage for line in pair for stage in lines[line]}
    return tuple(stage for stage in STAGES if stage in either)
