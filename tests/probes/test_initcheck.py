"""initcheck on `tests/bad/initialised/launched`: each file is bad with BUG=1 and its correct twin with BUG=0.

The `// finds` comment has the code, on the line of the finding, and what else is certain: the buffer or variable
(`name`), `warp`, `lanes` of the first report, what the value `reaches`; `debug=v` says that the -G build shows the same
on the variable v, `only=debug` that no other build does.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.records import Finding, Run
from weft.engines.kernel_file import load
from weft.engines.launch import Launch
from weft.engines.protocol import RunOptions
from weft.engines.virtual import VirtualGPU
from weft.judge.local_runs import check_debug_build
from weft.probes import InitCheck, Probes, RaceCheck, initcheck_review

FOLDER = Path(__file__).parent.parent / "bad" / "initialised" / "launched"
FILES = sorted(FOLDER.glob("*.cu"))
KERNELS = Path(str(files("weft.kernels")))
REACHES = {"output": "an output", "address": "an address", "branch": "a branch"}


@dataclass(frozen=True)
class Mark:
    code: str
    line: int
    facts: dict[str, str]


def mark_of(path: Path) -> Mark:
    lines = path.read_text().splitlines()
    (found,) = [(number, line.split("// finds ")[1]) for number, line in enumerate(lines, 1) if "// finds " in line]
    code, *facts = found[1].split()
    return Mark(code, found[0], dict(fact.split("=") for fact in facts))


def run(path: Path, bug: int, **gpu: int) -> Run:
    return load(path, defines={"BUG": str(bug)}).run(VirtualGPU(**gpu), watch=Probes(InitCheck(), RaceCheck())).run


def line_of(finding: Finding, path: Path) -> int:
    """Return the finding's line in the kernel's own file, not in a header that was inlined."""
    place = finding.place
    while place is not None and Path(place.file).name != path.name:
        place = place.inlined_at
    return place.line if place is not None else 0


@pytest.mark.parametrize("path", [p for p in FILES if "only=debug" not in p.read_text()], ids=lambda path: path.stem)
def test_bad_kernel_is_found(path: Path) -> None:
    mark = mark_of(path)
    findings = run(path, 1).findings
    assert {(finding.code, line_of(finding, path)) for finding in findings} == {(mark.code, mark.line)}
    first = findings[0]
    assert first.level == "error"
    if "name" in mark.facts:
        assert mark.facts["name"] in first.name and first.name in first.message
    if "warp" in mark.facts:
        assert first.warp == int(mark.facts["warp"])
    if "lanes" in mark.facts:
        assert first.lanes == int(mark.facts["lanes"], 16)
    assert f"its value reaches {REACHES[mark.facts.get('reaches', 'output')]}" in first.message


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_twin_is_clean(path: Path) -> None:
    for schedule in (0, 1, 2):
        assert run(path, 0, schedule=schedule).findings == ()


@pytest.mark.parametrize("path", [path for path in FILES if "debug=" in path.read_text()], ids=lambda path: path.stem)
def test_debug_build_names_the_variable(path: Path) -> None:
    mark = mark_of(path)
    findings = check_debug_build(load(path, defines={"BUG": "1"})).findings
    assert {(f.code, line_of(f, path), f.name) for f in findings} == {(mark.code, mark.line, mark.facts["debug"])}
    assert check_debug_build(load(path, defines={"BUG": "0"})).findings == ()


def test_debug_build_shows_an_unset_scalar() -> None:
    path = FOLDER / "conditional_scalar.cu"
    (found,) = check_debug_build(load(path, defines={"BUG": "1"})).findings
    assert (found.code, line_of(found, path)) == ("I203", mark_of(path).line)
    assert check_debug_build(load(path, defines={"BUG": "0"})).findings == ()


# -- the ladder -----------------------------------------------------------------------------------------------------

RAGGED = {"B": 1, "HQ": 1, "HKV": 1, "SQ": 33, "SKV": 65}


RUNGS = sorted(path.stem for path in KERNELS.glob("*.cu"))


@pytest.mark.parametrize(
    ("rung", "head"), [*((rung, 8 if "hopper" in rung else 4) for rung in RUNGS), ("fa1", 20), ("wmma", 20)]
)
def test_rungs_are_clean(rung: str, head: int) -> None:
    kernel = load(KERNELS / f"{rung}.cu")
    sizes = {name: size for name, size in {**RAGGED, "D": head}.items() if name in kernel.lines.sizes}
    assert kernel.run(VirtualGPU(kernel.gpu), sizes=sizes, watch=InitCheck()).run.findings == ()


def test_debug_build_of_a_rung_is_clean() -> None:
    assert check_debug_build(load(KERNELS / "scalar.cu"), sizes={**TINY, "SQ": 3, "SKV": 5}).findings == ()


FA1_TILE = "        tile[i] = row < end && d < D ? float(head[static_cast<size_t>(row) * D + d]) : 0.0f;\n"
TINY = {"B": 1, "HQ": 1, "HKV": 1, "SQ": 5, "SKV": 20, "D": 16}
LEFT_OUT = (
    ("wmma", "sU[i / H::COLUMNS][i % H::COLUMNS] = 0.0f;", ";", "I201", "sU"),
    ("wmma", "        sL[i] = 0.0f;\n", "", "I201", "sL"),
    # Keys beyond the end have P = 0, and 0 times an unwritten value is not 0.
    ("fa1", FA1_TILE, FA1_TILE.replace("tile[i] =", "if (row < end) tile[i] ="), "I201", "tiles"),
    ("split_k", "        part_l[part] = l;\n", "", "I202", "part_l"),
    ("split_k", "        part_m[part] = m;\n", "", "I202", "part_m"),
    ("split_k", "if (d < D) part_u", "if (d + 1 < D) part_u", "I202", "part_u"),
)


def changed_rung(rung: str, old: str, new: str, folder: Path) -> Path:
    text = (KERNELS / f"{rung}.cu").read_text()
    assert text.count(old) == 1
    path = folder / f"{rung}.cu"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(("rung", "old", "new", "code", "name"), LEFT_OUT, ids=[f"{r[0]}-{r[4]}" for r in LEFT_OUT])
def test_rung_without_an_initialisation(rung: str, old: str, new: str, code: str, name: str, tmp_path: Path) -> None:
    kernel = load(changed_rung(rung, old, new, tmp_path))
    findings = kernel.run(VirtualGPU(), sizes=TINY, watch=InitCheck()).run.findings
    assert findings and {finding.code for finding in findings} == {code}
    assert any(name in finding.name and finding.level == "error" for finding in findings), [str(f) for f in findings]


def test_padding_that_is_loaded_with_its_neighbours_is_no_finding(tmp_path: Path) -> None:
    """At D = 4 the compiler loads fa1's unwritten padding with its neighbours, without an effect."""
    path = changed_rung("fa1", FA1_TILE, FA1_TILE.replace("tile[i] =", "if (d < D) tile[i] ="), tmp_path)
    assert load(path).run(VirtualGPU(), sizes={**RAGGED, "D": 4}, watch=InitCheck()).run.findings == ()


def test_debug_build_of_a_rung_without_an_initialisation(tmp_path: Path) -> None:
    path = changed_rung("scalar", "u[i] = 0.0f;", ";", tmp_path)
    findings = check_debug_build(load(path), sizes={**TINY, "SQ": 3, "SKV": 5}).findings
    assert {(finding.code, finding.name) for finding in findings} == {("I203", "u")}


# -- launches with arrays -------------------------------------------------------------------------------------------

SEQUENCE = """
extern "C" __global__ void put(unsigned char* bytes, int skipped) {
    // Neighbouring bytes belong to different CTAs.
    const int i = threadIdx.x * gridDim.x + blockIdx.x;
    if (i != skipped) bytes[i] = i;
}
extern "C" __global__ void get(const unsigned char* bytes, int* o) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    o[i] = bytes[i];
}
"""


def put_and_get(skipped: int, *, declared: bool = True) -> tuple[Finding, ...]:
    binary = weft.compile_cuda(SEQUENCE, name="sequence.cu")
    gpu = VirtualGPU(threads=4)
    between, o = np.zeros(64 * 128, np.uint8), np.zeros(64 * 128, np.int32)
    launches = [
        Launch(binary, "put", 64, 128, [between, skipped], names=["bytes", "skipped"]),
        Launch(binary, "get", 64, 128, [between, o], names=["bytes", "o"]),
    ]
    return gpu.run(launches, RunOptions(watch=InitCheck(), uninitialised=(between, o) if declared else ())).findings


def test_bytes_written_by_several_threads_stay_written() -> None:
    for _ in range(3):
        assert put_and_get(-1) == ()


def test_the_one_byte_that_is_missing() -> None:
    missing = 37 * 128 + 77
    (found,) = put_and_get(missing)
    assert (found.code, found.name, found.cta, found.warp, found.lanes) == ("I202", "bytes", (37, 0, 0), 2, 1 << 13)
    assert found.message.startswith(f"read of uninitialised global memory at bytes+{missing:#x}")


def test_arrays_count_as_initialised_unless_declared_otherwise() -> None:
    assert put_and_get(5, declared=False) == ()


PADDED = """
extern "C" __global__ void padded(const float* x, float* o, int use) {
    __shared__ float rows[32 * 5], copy[32 * 5];
    const int t = threadIdx.x;
    for (int c = 0; c < 4; ++c) rows[5 * t + c] = x[t];
    __syncthreads();
    for (int i = t; i < 160; i += 32) copy[i] = rows[i];
    __syncthreads();
    const int last = use >= 0 && blockIdx.x == use ? 4 : 3;
    o[blockIdx.x * 32 + t] = copy[5 * t] + copy[5 * t + last];
}
"""


def padded(ctas: int, use: int) -> tuple[Finding, ...]:
    binary = weft.compile_cuda(PADDED, name="padded.cu")
    x, o = np.ones(32, np.float32), np.zeros(32 * ctas, np.float32)
    return VirtualGPU(threads=1).launch(binary, "padded", ctas, 32, [x, o, use], watch=InitCheck()).findings


def test_a_read_with_an_effect_in_one_cta_only() -> None:
    assert padded(4, -1) == ()
    found = padded(4, 3)
    assert found and all(f.code == "I201" and f.level == "error" and "reaches an output" in f.message for f in found)


def test_more_ctas_than_are_followed_are_run_with_other_contents() -> None:
    ctas = initcheck_review.MOST_CTAS + 1
    assert padded(ctas, -1) == ()
    found = padded(ctas, ctas - 1)
    assert found and all(f.code == "I201" and f.level == "error" for f in found), "an unfollowed CTA decides"
    assert all("are different" in f.message for f in found)


def test_a_read_is_followed_once_in_all_launches_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once among launches that depend on their contents, and once among launches that do not."""
    followed = []
    follow = initcheck_review.follow
    monkeypatch.setattr(initcheck_review, "follow", lambda *args: followed.append(args[1]) or follow(*args))
    binary = weft.compile_cuda(PADDED.replace("padded", "padded_again"), name="padded_again.cu")
    gpu, x = VirtualGPU(threads=1), np.ones(32, np.float32)
    for use in (-1, 0, -1, 0):
        args = [x, np.zeros(64, np.float32), use]
        found = gpu.launch(binary, "padded_again", 2, 32, args, watch=InitCheck()).findings
        assert [f.level for f in found] == ([] if use < 0 else ["error"] * len(found)) and bool(found) == (use == 0)
        assert all("reaches an output" in f.message for f in found)
    assert [list(ctas) for ctas in followed] == [[0], [1], [0]]


PADDED_ROWS = """
extern "C" __global__ void padded_rows(const float* x, float* o, int rows, int stored) {
    __shared__ float tile[32][9];
    const int t = threadIdx.x;
    for (int c = 0; c < 8 && t < rows; ++c) tile[t][c] = x[8 * t + c];
    __syncthreads();
    float best = tile[t][0], sum = 0.0f;
    for (int c = 1; c < 8; ++c) best = fmaxf(best, tile[t][c]);
    if (best > 1.0f) {
#pragma unroll 1
        for (int c = 0; c < 8; ++c) sum += tanhf(tile[t][c] - best) / (1.0f + sum * sum);
    }
    if (t < stored) o[t] = sum;
}
"""
"""A tile with rows beyond those that are filled; what a branch decides there is stored for the first rows only."""


@pytest.mark.parametrize("stored", [20, 21])
def test_rows_that_are_never_stored_may_decide_a_branch(stored: int) -> None:
    binary = weft.compile_cuda(PADDED_ROWS, name="padded_rows.cu")
    x, o = np.ones((32, 8), np.float32), np.zeros(32, np.float32)
    found = VirtualGPU().launch(binary, "padded_rows", 1, 32, [x, o, 20, stored], watch=InitCheck()).findings
    assert found and all(f.code == "I201" and "reaches a branch" in f.message for f in found[:1])
    assert {f.level for f in found} == ({"warning"} if stored == 20 else {"error"}), [str(f) for f in found]


def test_a_read_that_is_not_followed_is_an_error_if_it_has_an_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initcheck_review, "MOST_STEPS", 20)
    monkeypatch.setattr(initcheck_review, "MOST_STEPS_TO_NAME", 20)
    found = padded(1, 0)
    assert found and all(f.level == "error" and "is not known" in f.message for f in found)
    found = padded(1, -1)
    assert found and all(f.level == "info" and "are the same" in f.message for f in found)


WIDENED = """
extern "C" __global__ void widened(float* o) {
    __shared__ float4 tile[32];
    const int t = threadIdx.x;
    tile[t].x = tile[t].y = tile[t].z = t;
    __syncthreads();
    float x, y, z, w;
    const unsigned from = (unsigned)__cvta_generic_to_shared(tile + (t ^ 1));
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "r"(from));
    o[blockIdx.x * 32 + t] = x + y + z;
}
"""


def test_unused_registers_are_harmless_in_any_number_of_ctas() -> None:
    binary = weft.compile_cuda(WIDENED, name="widened.cu")
    assert VirtualGPU().launch(binary, "widened", 300, 32, [np.zeros(9600, np.float32)], watch=InitCheck()).clean


def test_a_launch_without_reports_reads_no_code() -> None:
    """What initcheck needs of the code is parsed where something is reported."""
    kernel, gpu = load(KERNELS / "scalar.cu"), VirtualGPU()
    kernel.run(VirtualGPU())  # its machine code is in the cache
    assert kernel.run(gpu, watch=InitCheck()).run.clean
    assert not any("module" in vars(program.source) for program in gpu._programs.values())
