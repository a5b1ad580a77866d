"""Mistakes before any stage: refused launches, unused macros, outputs and workspaces that were never written."""

import difflib
import math
import re

import numpy as np

from weft.attention.dtypes import Array
from weft.core.records import Place
from weft.core.status import Status
from weft.diagnose.acts import Written
from weft.diagnose.ranges import ranges
from weft.diagnose.records import STRAY, Case, Signature
from weft.diagnose.strays import row_of_access

from .lines import below, innermost_loop, stores_to


def launch_never_happened(case: Case) -> Signature | None:
    """CUDA refuses the launch; without an error check the output keeps its old contents."""
    if case.run is not None or case.verdict.status not in (Status.RESOURCE_ERROR, Status.LAUNCH_ERROR):
        return None
    line = re.match(r"(?P<file>.+?):(?P<line>\d+): ", case.verdict.message)
    place = Place(line["file"], int(line["line"])) if line else None
    reason = case.verdict.message[line.end() :] if line else case.verdict.message
    place = below(place, "shared(" if "shared memory" in reason else "grid(")
    message = f"the launch is refused, so the output keeps its old contents: {reason}"
    cure = "stay within the GPU's limits (above 48 KB of shared memory: opt in), and check the error of every launch"
    return Signature("launch_never_happened", message, cure, 1.0, place=place, stage="launch")


def define_not_compiled(case: Case) -> Signature | None:
    """A macro of the command line that no file uses."""
    if case.run is None:
        return None
    unused = [name for name, value in case.run.defines.items() if value.endswith("(unused)")]
    if not unused:
        return None
    meant = _similar(case, unused[0])
    message = f"-D {unused[0]} has no effect: no file uses this macro, so the build is the same without it"
    cure = f"spell it {meant}" if meant else "use the macro's name in the source, and compare the build's digests"
    return Signature("define_not_compiled", message, cure, 1.0 if case.verdict.passed else 0.5, stage="build")


def _similar(case: Case, name: str) -> str:
    words = dict.fromkeys(re.findall(r"\b[A-Z][A-Z0-9_]{2,}\b", case.candidate.path.read_text()))
    close = difflib.get_close_matches(name, [word for word in words if word != name], n=1, cutoff=0.6)
    return close[0] if close else ""


def _was_stopped(case: Case) -> bool:
    """Whether a launch before the one that writes O ended in a fault: then the missing O is only a consequence."""
    if case.kernel is None or case.run is None:
        return False
    return len(case.run.entries) < len(case.kernel.sequence(case.problem.arrays))


def never_written(case: Case) -> Signature | None:
    """Outputs start as 0xFF bytes; arithmetic never produces that NaN."""
    o = case.o
    if o is None or o.ndim != 4 or case.verdict.passed or _was_stopped(case):
        return None
    poison = np.frombuffer(np.ascontiguousarray(o).tobytes(), np.uint8).reshape(*o.shape, o.itemsize)
    untouched = (poison == 0xFF).all(axis=-1)
    if not untouched.any():
        return None
    rows = np.flatnonzero(untouched.any(axis=(0, 1, 3)))
    columns = np.flatnonzero(untouched.any(axis=(0, 1, 2)))
    message = (
        f"{untouched.sum()} of {o.size} elements of O are never stored: rows {ranges(map(int, rows))}, "
        f"columns {ranges(map(int, columns))}"
    )
    cure = "let the grid and the loop of the store cover every row and column: ceiling division, no early return"
    # An access outside its array has a line that computes its index, which is better evidence.
    strays = any(finding.code in STRAY for finding in case.findings)
    place = None if strays else _store_of_o(case, some_columns=bool(columns.size < o.shape[3]))
    if rows.size < o.shape[2] and columns.size < o.shape[3] and not strays:  # some lanes have the row of others
        place = next(filter(None, (row_of_access(case, each.event) for each in _written(case))), None) or place
    return Signature("never_written", message, cure, 0.9, place=place, stage="o")


def _written(case: Case) -> list[Written]:
    """Return the stores to O."""
    return [each for each in case.taps.written if each.array == "o"] if case.taps is not None else []


def _store_of_o(case: Case, *, some_columns: bool) -> Place | None:
    """Return the line that stores O, if only one does; its loop if that leaves out columns."""
    lines = stores_to(str(case.candidate.path), "o")
    if len(lines) != 1:
        return None
    store = Place(str(case.candidate.path), lines[0])
    return innermost_loop(store) if some_columns else store


def wrong_workspace(case: Case) -> Signature | None:
    """A workspace keeps its initial bytes and no line stores to it, while two lines store to another."""
    if case.taps is None or case.kernel is None or case.verdict.passed or _was_stopped(case):
        return None
    file = str(case.candidate.path)
    stores = {line.name: stores_to(file, line.name) for line in case.kernel.workspaces}
    empty = [name for name, lines in stores.items() if not lines and _is_untouched(case.arrays.get(name))]
    doubled = [(name, lines) for name, lines in stores.items() if len(lines) == 2]
    if not empty or len(doubled) != 1:
        return None
    name, lines = doubled[0]
    # The store that belongs to the array fills it; the compiler leaves out one that another overwrites.
    bytes_of = {each.event.place.line: each.stop - each.start for each in case.taps.written if each.event.place}
    place = Place(file, min(lines, key=lambda line: bytes_of.get(line, math.inf)))
    message = f"{empty[0]} is never written, while lines {lines[0]} and {lines[1]} both store to {name}"
    return Signature("wrong_workspace", message, f"store one of the two in {empty[0]}", 0.965, place=place)


def _is_untouched(array: Array | None) -> bool:
    return array is not None and set(np.ascontiguousarray(array).tobytes()) == {0xFF}
