"""The kernels with which the gate is tested: wrong ones written for it, and right ones that must pass.

Every file of `gate_kernels/wrong` is a right kernel with the define `WRONG = 0`. Each other value switches on one bug,
which one line at the head of the file describes; the parts after the text may be missing:

    // wrong NUMBER NAME: TEXT [TAG] (seen at B=1 HQ=1 HKV=1 SQ=3 SKV=300 D=64 f16 none unit_normal seed 0)

The tag describes how a kernel is wrong if its numbers on a workload do not show it: `overflow` (only at sizes that no
test can run), `cheat` (it recognises the test), `bias` (within the tolerance of every element). The witness in brackets
is a workload that shows the bug.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from weft.attention.shapes import Shape
from weft.tasks.task import Workload

FOLDER = Path(__file__).parent / "gate_kernels"
TAGS = ("", "bias", "cheat", "overflow")

_LINE = re.compile(
    r"(?://|#) wrong (?P<number>\d+) (?P<name>\w+): (?P<what>.+?)"
    r"(?: \[(?P<tag>\w+)\])?(?: \(seen at (?P<witness>[^()]+)\))?"
)
_WITNESS = re.compile(
    r"B=(\d+) HQ=(\d+) HKV=(\d+) SQ=(\d+) SKV=(\d+) D=(\d+) (f16|bf16|f32) (none|top_left|bottom_right) (\w+)"
    r"(?: seed (\d+))?"
)


@dataclass(frozen=True)
class Wrong:
    """One bug of one design."""

    design: Path
    number: int
    """The value of the macro WRONG that switches it on."""
    name: str
    what: str
    tag: str
    """One of TAGS; empty: its numbers on the witness are wrong, or running it is a finding."""
    witness: Workload | None
    """A workload that shows it; a cheat or an overflow may have none."""

    @property
    def id(self) -> str:
        """Return a name that is unique in the corpus."""
        return f"{self.design.stem}.{self.name}"

    @property
    def defines(self) -> dict[str, str]:
        """Return the macros that switch it on."""
        return {"WRONG": str(self.number)}


def designs() -> list[Path]:
    """Return the files of wrong kernels; unmodified, with WRONG = 0, they are right."""
    return _kernels(FOLDER / "wrong")


def wrong_kernels() -> list[Wrong]:
    """Return every bug of every design, in a fixed order."""
    return [wrong for design in designs() for wrong in read_wrongs(design)]


def right_kernels() -> list[Path]:
    """Return the files that must pass unmodified: the right kernels, and the right twins of the wrong ones."""
    return [*_kernels(FOLDER / "right"), *designs()]


def read_wrongs(design: Path) -> list[Wrong]:
    """Return the bugs that a file's head describes. A line that starts as one but does not parse raises."""
    lines = [line for line in design.read_text().splitlines() if re.match(r"(//|#) wrong\b", line)]
    return [_read(design, line) for line in lines]


def _read(design: Path, line: str) -> Wrong:
    found = _LINE.fullmatch(line)
    if found is None or (found["tag"] or "") not in TAGS:
        raise ValueError(f"{design.name}: cannot read `{line}`")
    number, name, what, tag = int(found["number"]), found["name"], found["what"], found["tag"] or ""
    if found["witness"] is None and tag not in ("cheat", "overflow"):
        raise ValueError(f"{design.name}: `{name}` names no workload that shows it")
    witness = None if found["witness"] is None else _witness(f"{design.stem}.{name}", found["witness"])
    return Wrong(design, number, name, what, tag, witness)


def _witness(name: str, text: str) -> Workload:
    found = _WITNESS.fullmatch(text)
    if found is None:
        raise ValueError(f"{name}: cannot read the workload `{text}`")
    *sizes, dtype, mask, regime, seed = found.groups()
    b, hq, hkv, sq, skv, d = map(int, sizes)
    return Workload(Shape(name, b, hq, hkv, sq, skv, d), dtype, mask, regime, int(seed or 0))


def _kernels(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".cu", ".py", ".ptx")) if folder.is_dir() else []
