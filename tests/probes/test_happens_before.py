"""racecheck, second pass, on `tests/bad/race_free/launched`: codes, lines, warps and lanes; twins are clean.

And on the ladder: its rungs are clean, and a race is found when one barrier of a rung is removed.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from tests.probes.marked import mark_of
from weft.core.finding_codes import Severity
from weft.core.records import Run
from weft.engines.kernel_file import load
from weft.kernels import RUNGS
from weft.probes import InitCheck, Probes, RaceCheck, race_review

FOLDER = Path(__file__).parent.parent / "bad" / "race_free" / "launched"
FILES = sorted(FOLDER.glob("*.cu"))
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def run(path: Path, bug: int, *, schedule: int = 0) -> Run:
    gpu = weft.VirtualGPU(threads=1, schedule=schedule)
    return load(path, defines={"BUG": str(bug)}).run(gpu, watch=Probes(InitCheck(), RaceCheck())).run


@every_file
def test_bad_kernel_is_found(path: Path) -> None:
    mark, findings = mark_of(path), run(path, 1).findings
    assert any(mark.fits(finding, path) for finding in findings), [str(finding) for finding in findings]


@every_file
def test_found_under_every_schedule(path: Path) -> None:
    for schedule in (1, 2):
        assert any(finding.code.startswith("R10") for finding in run(path, 1, schedule=schedule).findings)


@every_file
def test_twin_is_clean(path: Path) -> None:
    for schedule in (0, 1, 2):
        assert run(path, 0, schedule=schedule).findings == ()


# -- limits -----------------------------------------------------------------------------------------------------------


def three_locks() -> Run:
    """Run the correct kernel with a lock, which the first pass does not model, on three CTAs."""
    binary = weft.compile_cuda(FOLDER / "lock_without_fence.cu", defines={"BUG": "0"}, entries=["kernel"])
    args = [np.ones(64, np.float32), np.zeros(3 * 64, np.float32)]
    return weft.VirtualGPU(threads=1).launch(binary, "kernel", 3, 64, args, watch=RaceCheck())


def test_the_log_grows_until_a_cta_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_review, "FIRST_LOG", 4)
    assert three_locks().findings == ()


def test_ctas_judged_by_an_example_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_review, "RECORDS_AT_MOST", 0)
    run = three_locks()
    assert [(f.level, f.count) for f in run.findings] == [(Severity.INFO, 2)] and run.clean


def test_a_note_about_equal_values_does_not_hide_what_was_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_review, "RECORDS_AT_MOST", 0)
    source = """extern "C" __global__ void kernel(unsigned* out) {
    __shared__ unsigned x;
    const unsigned at = __cvta_generic_to_shared(&x);
    if (threadIdx.x < 32) asm volatile("// one\\n st.shared.u32 [%0], 7;" :: "r"(at) : "memory");
    else asm volatile("// other\\n st.shared.u32 [%0], 7;" :: "r"(at) : "memory");
    __syncthreads();
    out[64 * blockIdx.x + threadIdx.x] = x;
}
"""
    binary = weft.compile_cuda(source, name="k.cu")
    run = weft.VirtualGPU(threads=1).launch(binary, "kernel", 3, 64, [np.zeros(192, np.uint32)], watch=RaceCheck())
    assert [(f.code, f.level, f.count) for f in run.findings] == [
        ("R101", Severity.INFO, 1),
        ("R102", Severity.INFO, 2),
    ]


def test_what_cannot_be_judged_stays_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_review, "FIRST_LOG", 4)
    monkeypatch.setattr(race_review, "LOG_AT_MOST", 4)
    run = three_locks()
    assert [(f.level, f.count) for f in run.findings] == [(Severity.WARNING, 3)] and not run.passes(strict=True)


def test_of_a_long_log_the_first_records_are_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(
        'extern "C" __global__ void kernel(int* out) {\n'
        "    __shared__ int x[64];\n"
        "    x[threadIdx.x] = 1;\n"
        "    int sum = x[63 - threadIdx.x];\n"
        "    for (int i = 0; i < 100; ++i) {\n"
        "        __syncthreads(); x[threadIdx.x] = sum + i; __syncthreads(); sum += x[i % 64];\n"
        "    }\n"
        "    out[threadIdx.x] = sum;\n"
        "}\n"
    )
    monkeypatch.setattr(race_review, "FIRST_LOG", 8)
    monkeypatch.setattr(race_review, "LOG_AT_MOST", 16)
    out = np.zeros(64, np.int32)
    run = weft.VirtualGPU(threads=1).launch(weft.compile_cuda(str(source)), "kernel", 1, 64, [out], watch=RaceCheck())
    assert {finding.place.line for finding in run.findings if finding.level is Severity.ERROR} == {3, 4}
    assert [finding.code for finding in run.findings if finding.level is Severity.WARNING] == ["R102"]


# -- every barrier of a rung, removed one at a time -------------------------------------------------------------------

RUNG = RUNGS["wmma"].path
BARRIERS = [match.start() for match in re.finditer(r"__sync(threads|warp)\(\)", RUNG.read_text())]
NOT_NEEDED = {
    "needed by a CTA that saw no tile": "the barrier that ends the loop has ordered everything if there was a tile",
    "every lane has read sM[row]": "true without it: a shuffle of all lanes that needs what they read is in between",
}
"""A barrier whose line contains this may be removed where every CTA sees a key, as here."""
SIZES = {"B": 1, "HQ": 1, "HKV": 1, "SQ": 40, "SKV": 70, "D": 48}


@pytest.mark.parametrize("at", BARRIERS, ids=[f"barrier{number}" for number in range(len(BARRIERS))])
def test_rung_without_one_barrier(at: int, tmp_path: Path) -> None:
    text = RUNG.read_text()
    path = tmp_path / RUNG.name
    path.write_text(text[:at] + "((void)0)" + text[text.index(")", at) + 1 :])
    found = load(path).run(weft.VirtualGPU(threads=1), sizes=SIZES, watch=RaceCheck()).run.findings
    line = text[at : text.index("\n", at)]
    needed = not any(words in line for words in NOT_NEEDED)
    assert {finding.code for finding in found} <= {"R101", "R102", "R103"}
    assert bool(found) == needed, [str(finding) for finding in found]
    assert all(finding.other is not None and finding.place is not None for finding in found)


def test_there_are_barriers_of_both_kinds() -> None:
    kinds = {RUNG.read_text()[at : at + 10] for at in BARRIERS}
    assert kinds == {"__syncthre", "__syncwarp"} and len(BARRIERS) >= 6


@pytest.mark.parametrize(
    ("rung", "schedule"),
    one_in(3, [(name, (at + turn) % 3) for at, name in enumerate(RUNGS) for turn in range(3)], several=True),
)
def test_unchanged_rungs_are_clean(rung: str, schedule: int) -> None:
    kernel = load(RUNGS[rung].path)
    gpu = weft.VirtualGPU(kernel.gpu, threads=1, schedule=schedule)
    sizes = {name: size for name, size in SIZES.items() if name in kernel.lines.sizes}  # a paged cache has no SKV
    assert kernel.run(gpu, sizes=sizes, watch=RaceCheck()).run.findings == ()
