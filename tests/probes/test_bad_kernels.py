"""Every kernel of `tests/bad`: `bad` shows the finding its source marks, on that line; `twin` shows nothing."""

from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.records import Finding, Run
from weft.probes import InitCheck, Probes, RaceCheck

BAD = Path(__file__).parent.parent / "bad"
FILES = sorted(BAD.glob("*/*.cu"))
THREADS = 64


def launch(path: Path, entry: str, *, threads: int = THREADS, schedule: int = 0) -> Run:
    binary = weft.compile_cuda(path, entries=["bad", "twin"])
    watch = Probes(InitCheck(), RaceCheck())
    gpu = weft.VirtualGPU(threads=1, schedule=schedule)
    return gpu.launch(binary, entry, 1, threads, [np.zeros(256, np.float32)], watch=watch)


def marked(path: Path) -> tuple[str, int]:
    """Return code and line of the source's `// finds` comment."""
    lines = path.read_text().splitlines()
    marks = [(line.split("// finds ")[1].strip(), number) for number, line in enumerate(lines, 1) if "// finds" in line]
    assert len(marks) == 1, path
    return marks[0]


def line_in(path: Path, finding: Finding) -> int:
    """Return the line of a finding in the kernel's own file, not in a header that was inlined."""
    place = finding.place
    while place is not None and Path(place.file).name != path.name:
        place = place.inlined_at
    return place.line if place is not None else 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bad_kernel_is_found(path: Path) -> None:
    run = launch(path, "bad")
    code, line = marked(path)
    found = {(f.code, line_in(path, f)) for f in run.findings}
    assert (code, line) in found, [str(f) for f in run.findings]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_twin_is_clean(path: Path) -> None:
    for schedule in (0, 1, 2):
        run = launch(path, "twin", schedule=schedule)
        assert not run.findings, [str(f) for f in run.findings]


def test_lanes_and_address_of_an_uninitialised_read() -> None:
    # Thread t reads float 63 - t, and floats 60 to 63 are missing: threads 0 to 3 of warp 0; lane 0 reads float 63.
    (found,) = launch(BAD / "initialised/skipped_rows.cu", "bad").findings
    assert (found.code, found.warp, found.lanes, found.address % 256) == ("I201", 0, 0b1111, 4 * 63)


def test_lanes_of_an_uninitialised_ldmatrix_row() -> None:
    found, *_ = launch(BAD / "initialised/short_tile_ldmatrix.cu", "bad").findings
    assert (found.code, found.lanes, found.address % 512) == ("I201", 1 << 31, 16 * 31)


def test_lanes_and_address_of_a_race() -> None:
    # Warps run in order: warp 1 is the second to write, all its lanes, the first of them at the array's start.
    (found,) = launch(BAD / "race_free/write_write.cu", "bad").findings
    assert (found.code, found.warp, found.lanes, found.address % 128) == ("R101", 1, 0xFFFFFFFF, 0)


def test_one_warp_does_not_race_with_itself() -> None:
    for path in FILES:
        if path.parent.name == "race_free" and "bar." not in path.read_text():
            codes = {f.code for f in launch(path, "bad", threads=32).findings} - {"I201", "R104"}
            assert not codes, path
