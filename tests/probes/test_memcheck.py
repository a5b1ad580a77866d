"""memcheck, which is on in every run: `tests/bad/memory`, and cases that a single kernel file cannot show.

Each file of `launched` is bad with BUG=1 and its correct twin with BUG=0. Its `// finds` comment has the code, on
the line of the finding, and the facts `cta`, `warp`, `lanes`, the buffer's `name`, a word that the message `says`.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.bad.mutations import Mutation, line_of, mutations
from weft.core.errors import LaunchError
from weft.core.records import Finding, Run
from weft.engines.kernel_file import load
from weft.engines.launch import Launch
from weft.probes import InitCheck, Probes, RaceCheck
from weft.vm.buffers import LEAST_GAP, MOST_GAP
from weft.vm.launch import PLAIN
from weft.vm.memory import FREED_BYTES, GLOBAL_BASE, GlobalMemory

FOLDER = Path(__file__).parent.parent / "bad" / "memory" / "launched"
FILES = sorted(FOLDER.glob("*.cu"))
MUTATIONS = mutations("memory")


@dataclass(frozen=True)
class Mark:
    code: str
    line: str
    facts: dict[str, str]

    def fits(self, finding: Finding, path: Path) -> bool:
        cta = tuple(int(n) for n in self.facts["cta"].split(","))
        return (
            (finding.code, finding.cta, finding.warp) == (self.code, cta, int(self.facts["warp"]))
            and finding.lanes == int(self.facts["lanes"], 16)
            and line_of(finding, path) == self.line
            and self.facts.get("name", "") in finding.name
            and self.facts.get("says", "") in finding.message
        )


def mark_of(path: Path) -> Mark:
    (line,) = [line for line in path.read_text().splitlines() if "// finds " in line]
    code, *facts = line.split("// finds ")[1].split()
    return Mark(code, line, dict(fact.split("=") for fact in facts))


def run(path: Path, bug: int, *, schedule: int = 0, watched: bool = False) -> Run:
    watch = Probes(InitCheck(), RaceCheck()) if watched else PLAIN
    gpu = weft.VirtualGPU(threads=1, schedule=schedule)
    return load(path, defines={"BUG": str(bug)}).run(gpu, watch=watch).run


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bad_kernel_is_found(path: Path) -> None:
    mark, findings = mark_of(path), run(path, 1).findings
    assert any(mark.fits(finding, path) for finding in findings), [str(finding) for finding in findings]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_twin_is_clean(path: Path) -> None:
    assert run(path, 0, watched=True).findings == ()
    assert run(path, 0, schedule=1).findings == ()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_changed_rung_is_found(mutation: Mutation, tmp_path: Path) -> None:
    kernel = mutation.bad(tmp_path)
    findings = kernel.run(weft.VirtualGPU(threads=1), sizes=mutation.sizes).run.findings
    assert any(mutation.explains(finding, kernel) for finding in findings), [str(finding) for finding in findings]


@pytest.mark.parametrize(
    "mutation", {(m.rung, m.common, str(m.sizes)): m for m in MUTATIONS}.values(), ids=lambda mutation: mutation.id
)
def test_unchanged_rung_is_clean(mutation: Mutation, tmp_path: Path) -> None:
    assert mutation.twin(tmp_path).run(weft.VirtualGPU(threads=1), sizes=mutation.sizes).run.findings == ()


# -- what a file cannot show -----------------------------------------------------------------------------------------

KEEP = """
__device__ float* kept;
extern "C" __global__ void keep(float* scratch) { kept = scratch; }
extern "C" __global__ void use(float* o) { o[threadIdx.x] = kept[threadIdx.x]; }
"""


def test_a_pointer_of_an_earlier_launch_leads_to_freed_memory() -> None:
    gpu, binary = weft.VirtualGPU(), weft.compile_cuda(KEEP, name="keep.cu")
    scratch, o = np.ones(64, np.float32), np.full(32, 7, np.float32)
    assert gpu.launch(binary, "keep", 1, 1, [scratch], names=["scratch"]).clean
    (found,) = gpu.launch(binary, "use", 1, 32, [o]).findings
    assert (found.code, found.name, found.lanes) == ("M104", "scratch", 0xFFFFFFFF)
    assert "read of freed memory: offset 0 in scratch" in found.message
    assert not o.any(), "lanes that may not read get 0"


def test_memory_stays_where_it_is_within_one_run() -> None:
    gpu, binary = weft.VirtualGPU(), weft.compile_cuda(KEEP, name="keep.cu")
    scratch, o = np.arange(64, dtype=np.float32), np.zeros(32, np.float32)
    assert gpu.run([Launch(binary, "keep", 1, 1, [scratch]), Launch(binary, "use", 1, 32, [o])]).clean
    assert (o == np.arange(32)).all()


COUNTED = """
__device__ int %(name)s_rounds = %(start)d;
extern "C" __global__ void %(name)s(int* o) { o[threadIdx.x] = ++%(name)s_rounds; }
"""


def test_variables_of_every_binary_of_a_run_stay_after_it() -> None:
    gpu = weft.VirtualGPU(threads=1)
    tens, hundreds = (
        weft.compile_cuda(COUNTED % {"name": name, "start": start}, name=f"{name}.cu")
        for name, start in (("tens", 10), ("hundreds", 100))
    )
    scratch = np.zeros(300, np.int32)
    for number in range(3):
        o, p = np.zeros(1, np.int32), np.zeros(1, np.int32)
        found = gpu.run([Launch(tens, "tens", 1, 1, [o]), Launch(hundreds, "hundreds", 1, 1, [p])]).findings
        assert not found, "M104: the variable of the second binary was freed with the first round's arrays"
        assert (o[0], p[0]) == (11 + number, 101 + number)
        assert gpu.launch(tens, "tens", 1, 1, [scratch]).clean, "arrays in between do not overwrite a variable"
        gpu.set_symbol(tens, "tens", "tens_rounds", np.array([11 + number], np.int32))
    assert [each.name for each in gpu.memory.allocations] == ["tens_rounds", "hundreds_rounds"]


def test_arrays_of_a_run_of_two_binaries_are_freed() -> None:
    gpu, keep = weft.VirtualGPU(threads=1), weft.compile_cuda(KEEP, name="keep.cu")
    other = weft.compile_cuda(COUNTED % {"name": "tens", "start": 10}, name="tens.cu")
    scratch, o = np.ones(64, np.float32), np.zeros(64, np.int32)
    assert gpu.run([Launch(other, "tens", 1, 1, [o]), Launch(keep, "keep", 1, 1, [scratch], names=["scratch"])]).clean
    (found,) = gpu.launch(keep, "use", 1, 32, [np.zeros(32, np.float32)]).findings
    assert (found.code, found.name) == ("M104", "scratch")


def test_two_bugs_in_one_kernel_are_two_findings_and_the_rest_runs() -> None:
    source = """extern "C" __global__ void two(const float* x, float* o, char* bytes) {
        const int t = threadIdx.x;
        o[t] = x[t + 8];
        *reinterpret_cast<int*>(bytes + 4 * t + 2) = 1;
        o[t] += 1.0f;
    }"""
    x, o, data = np.arange(32, dtype=np.float32), np.zeros(32, np.float32), np.zeros(256, np.int8)
    found = weft.VirtualGPU().launch(weft.compile_cuda(source, name="two.cu"), "two", 1, 32, [x, o, data]).findings
    places = {(f.code, f.place.line if f.place else 0, f.lanes) for f in found}
    assert places == {("M101", 3, 0xFF000000), ("M102", 4, 0xFFFFFFFF)}
    assert (o == np.where(np.arange(32) < 24, np.arange(32) + 9, 1)).all()
    assert not data.any()


SEQUENCE = """
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  first(x, o) grid(1) block(64)
// weft: launch  second(x, o) grid(1) block(64) shared(BYTES) opt_in_shared
extern "C" __global__ void first(const float* x, float* o) { o[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void second(const float* x, float* o) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    o[threadIdx.x] = 2.0f * tile[threadIdx.x];
}
"""


def test_a_refused_launch_ends_the_sequence_without_a_result(tmp_path: Path) -> None:
    """Z11: the first launch has written the output, which must not be taken for the second launch's result."""
    path = tmp_path / "sequence.cu"
    path.write_text(SEQUENCE.replace("BYTES", "256"))
    result = load(path).run(weft.VirtualGPU())
    assert (result.arrays["o"] == 2 * result.arrays["x"]).all()
    path.write_text(SEQUENCE.replace("BYTES", "200000"))
    with pytest.raises(LaunchError, match=r"sequence\.cu:5: second needs 200000 bytes of shared memory"):
        load(path).run(weft.VirtualGPU())


PATHS = r"""
struct Table { int at[8]; };
__device__ int sum(int2 v) { return v.x + v.y; }
__device__ int sum(int4 v) { return v.x + v.y + v.z + v.w; }
template <typename T> __device__ T* hidden(T* p) { asm volatile("" : "+l"(p)); return p; }
extern "C" __global__ void paths(int* o, int which, int at, const __grid_constant__ Table table) {
    __shared__ __align__(16) int tile[64];
    __align__(16) char own[64];
    const int t = threadIdx.x;
    for (int i = 0; i < 64; ++i) own[(i + o[0]) & 63] = i;
    tile[t] = tile[t + 32] = t;
    __syncthreads();
    int value = 0;
    switch (which) {
        case 0: value = *reinterpret_cast<int*>(own + at); break;
        case 1: value = *hidden(reinterpret_cast<int*>(own + at)); break;
        case 2: *hidden(reinterpret_cast<int*>(own + at)) = 1; break;
        case 3: value = sum(*hidden(reinterpret_cast<int2*>(own + at))); break;
        case 4: value = *reinterpret_cast<const int*>(reinterpret_cast<const char*>(&table) + at); break;
        case 5: value = *hidden(reinterpret_cast<const int*>(reinterpret_cast<const char*>(&table) + at)); break;
        case 6: value = sum(*reinterpret_cast<int4*>(reinterpret_cast<char*>(tile) + at)); break;
        case 7: value = sum(*hidden(reinterpret_cast<int4*>(reinterpret_cast<char*>(tile) + at))); break;
        case 8: value = atomicAdd(hidden(reinterpret_cast<int*>(reinterpret_cast<char*>(tile) + at)), 1); break;
        case 9: value = atomicAdd(hidden(reinterpret_cast<int*>(reinterpret_cast<char*>(o) + at)), 1); break;
        case 10: *const_cast<int*>(hidden(&table.at[0])) = at; break;
        case 11: atomicAdd(hidden(reinterpret_cast<int*>(own)), at); break;
    }
    o[t] = value;
}
"""


@pytest.mark.parametrize(
    ("which", "at", "code", "says"),
    [
        (0, 64, "M101", "out-of-bounds read: 4 bytes starting exactly at the end of the thread's local memory"),
        (0, 2, "M102", "local memory+0x2"),
        (1, 64, "M101", "out-of-bounds read: 4 bytes starting exactly at the end of the thread's local memory"),
        (1, 6, "M102", "local memory+0x6"),
        (2, 68, "M101", "out-of-bounds write: 4 bytes starting 4 bytes past the end of the thread's local memory"),
        (3, 60, "M101", "out-of-bounds read: 8 bytes across the end of the thread's local memory"),
        (4, 32, "M101", "out-of-bounds read: 4 bytes starting exactly at the end of the kernel's parameters"),
        (4, 2, "M102", ""),
        (5, 36, "M101", "4 bytes past the end of the kernel's parameters"),
        (6, 256, "M101", "out-of-bounds read: 16 bytes starting exactly at the end of"),
        (6, 248, "M101", "out-of-bounds read: 16 bytes across the end of"),
        (6, -4, "M101", "out-of-bounds read: 16 bytes starting 4 bytes before the start of"),
        (6, 12, "M102", "misaligned read: 16 bytes at "),
        (6, 4, "M102", "tile+0x4"),
        (7, 248, "M101", "across the end of"),
        (7, 8, "M102", "tile+0x8"),
        (8, 256, "M101", "out-of-bounds atomic: 4 bytes starting exactly at the end of"),
        (8, 1, "M102", "tile+0x1"),
        (9, 128, "M101", "out-of-bounds atomic: 4 bytes starting exactly at the end of argument 0 (128 bytes)"),
        (9, 1, "M102", "offset 1 in argument 0 (128 bytes)"),
        (10, 0, "M101", "out-of-bounds write: a write to the kernel's parameters"),
        (11, 0, "M101", "an atomic operation on local memory"),
    ],
)
def test_every_space_and_way(which: int, at: int, code: str, says: str) -> None:
    o, table = np.zeros(32, np.int32), bytes(32)
    binary = weft.compile_cuda(PATHS, name="paths.cu")
    findings = weft.VirtualGPU(threads=1).launch(binary, "paths", 1, 32, [o, which, at, table]).findings
    assert [(finding.code, finding.lanes) for finding in findings] == [(code, 0xFFFFFFFF)], findings
    assert says in findings[0].message, findings[0].message
    assert not o.any(), "nothing was read"


# -- regions ---------------------------------------------------------------------------------------------------------

CARVED = """
#include <weft.h>
extern "C" __global__ void carved(const float* x, float* o, int first) {
    extern __shared__ float block[];
    const int t = threadIdx.x, at = first + 4 * (blockIdx.x % 2);
    float* a = WEFT_REGION(block + at, 128, "a");
    float* b = WEFT_REGION(block + at + 32, 128, "b");
    float* own = WEFT_REGION(block + 96 + 8 * (t / 8), 32, "own");
    a[t] = x[t];
    b[t] = 1.0f;
    own[t % 8] = 2.0f;
    float* again = WEFT_REGION_REUSE(block + at + 16, 64, "again");
    __syncthreads();
    float sum = a[31 - t] + b[t ^ 1] + own[7 - t % 8];
    if (t < at) block[t] = 4.0f;
    __syncthreads();
    if (t < at) sum += block[at - 1 - t];
    again[t % 16] = 0.0f;
    __syncthreads();
    o[32 * blockIdx.x + t] = sum + a[t] * (t >= 16);
}
"""


@pytest.mark.parametrize(("first", "debug"), [(0, False), (1, False), (16, False), (19, False), (3, True)])
def test_regions_change_no_result(first: int, debug: bool) -> None:
    """Odd places, other places per CTA, one region per 8 lanes, a reused part, and the rest of the block."""
    binary = weft.compile_cuda(CARVED, name="carved.cu", debug=debug)
    assert not binary.diagnostics, "ptxas says nothing of the marks"
    x, o = np.arange(32, dtype=np.float32), np.zeros((6, 32), np.float32)
    found = (
        weft.VirtualGPU(threads=2).launch(binary, "carved", 6, 32, [x, o, np.int32(first)], shared_bytes=512).findings
    )
    assert not found, [str(finding) for finding in found]
    for cta in range(6):
        at = first + 4 * (cta % 2)
        assert (o[cta] == 31 - x + 1 + 2 + 4 * (np.arange(32) < at)).all()


def test_the_rest_of_the_block_is_checked_to_the_byte() -> None:
    """The tile begins 16 bytes into the block: its first 64-byte granule belongs to two."""
    source = """
    #include <mma.h>
    #include <weft.h>
    extern "C" __global__ void rest(float* o, int skip) {
        extern __shared__ __align__(128) float block[];
        float* head = WEFT_REGION(block, 16, "head");
        head[threadIdx.x % 4] = 1.0f;
        for (int i = threadIdx.x; i < 256; i += 32) block[4 + i] = i;
        __syncthreads();
        nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;
        nvcuda::wmma::load_matrix_sync(c, block + 4 + skip, 16, nvcuda::wmma::mem_row_major);
        nvcuda::wmma::store_matrix_sync(o, c, 16, nvcuda::wmma::mem_row_major);
    }"""
    binary, o = weft.compile_cuda(source, name="rest.cu"), np.zeros(256, np.float32)
    assert weft.VirtualGPU().launch(binary, "rest", 1, 32, [o, np.int32(0)], shared_bytes=1040).clean
    assert (o == np.arange(256)).all()
    for skip, code in ((4, "M101"), (-4, "M105")):
        (found,) = weft.VirtualGPU().launch(binary, "rest", 1, 32, [o, np.int32(skip)], shared_bytes=1040).findings
        assert found.code == code, str(found)


def test_a_region_keeps_its_banks() -> None:
    source = """
    #include <weft.h>
    extern "C" __global__ void where(unsigned* o, int first) {
        extern __shared__ unsigned char block[];
        unsigned char* part = WEFT_REGION(block + first, 40, "part");
        o[0] = static_cast<unsigned>(__cvta_generic_to_shared(part));
        o[1] = static_cast<unsigned>(__cvta_generic_to_shared(block)) + first;
    }"""
    binary = weft.compile_cuda(source, name="where.cu")
    for first in (0, 4, 100, 132):
        o = np.zeros(2, np.uint32)
        assert weft.VirtualGPU().launch(binary, "where", 1, 1, [o, np.int32(first)], shared_bytes=256).clean
        assert o[0] % 128 == o[1] % 128 and o[0] != o[1]


# -- the arena -------------------------------------------------------------------------------------------------------


def test_a_buffer_is_followed_by_a_gap_of_its_size() -> None:
    memory = GlobalMemory()
    for size, gap in ((100, LEAST_GAP), (1 << 16, 1 << 16), (1 << 20, MOST_GAP)):
        start = memory.allocate(size)
        behind = memory.allocate(1)
        assert behind - start - size >= gap


def test_freed_places_are_reused_only_when_much_is_used() -> None:
    memory = GlobalMemory()
    memory.allocate(64, "stays")
    seen: set[int] = set()
    for launch in range(40):
        mark = memory.mark()
        at = memory.allocate(1 << 20, f"launch {launch}")
        if at in seen:
            break
        gone = memory.freed_owner(max(seen, default=at))
        assert gone is None or gone.name == f"launch {launch - 1}"
        seen.add(at)
        memory.release(mark)
    assert len(seen) > 8 and max(seen) - GLOBAL_BASE < 2 * FREED_BYTES
    assert memory.owner(max(seen)) is None and memory.freed_owner(max(seen)) is None
