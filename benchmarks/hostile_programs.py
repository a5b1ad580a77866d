"""Hostile candidates, and the status that each must have, with the reason.

Each is a right kernel, `scalar`, with a few texts replaced, unless it has a separate text. The status follows from
the order of judgement (text → compiler → resources → launch → memory and races → numbers → determinism), not from a
run: a program that hangs, or makes another process hang, is ended at the wall clock.
"""

from dataclasses import dataclass, field

from weft.attention.shapes import SHAPES
from weft.core.status import Status
from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.supervise.records import CandidateSource, Limits, Request
from weft.tasks.registry import find_task
from weft.tasks.task import Workload

SCALAR = RUNGS["scalar"].path.read_text()
ONE = Choice(("split_4",), ("unit_normal",), ("none",), ("f16",), seeds=(0,))
PATIENT = Limits(wall_seconds=60, cpu_seconds=120, memory_bytes=3 << 30)
SHORT = Limits(wall_seconds=3, cpu_seconds=30, memory_bytes=3 << 30)
"""For a kernel that never ends: the wall clock ends it."""
SHORTEST = Limits(wall_seconds=1, cpu_seconds=30, memory_bytes=3 << 30)
"""For a compilation that never ends."""

FIRST = float(find_task("sdpa").draw(Workload(SHAPES["split_4"], "f16", "none", "unit_normal", 0)).arrays["q"].flat[0])
"""The first number of the inputs of seed 0."""

Edit = tuple[str, str]

LINES, HEAD, START = "// weft: scalar  scale", "constexpr unsigned ALL_LANES", "    float m = -CUDART_INF_F"
STORE, WALK = "o[q_row * D + d] = ELEMENT(u[i] * inverse);", "    const int end = visible_keys(query, SQ, SKV);"
GRID, BLOCK = "grid(cdiv(SQ, WARPS), HQ, B)", "block(32 * WARPS)"
LAUNCH = "scalar_attention<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)"


@dataclass(frozen=True)
class Program:
    """A hostile candidate."""

    name: str
    status: Status
    why: str
    """Why it must have this status."""
    edits: tuple[Edit, ...] = ()
    text: str = SCALAR
    language: str = "cuda"
    launch: str = ""
    choice: Choice = ONE
    limits: Limits = PATIENT
    max_steps: int = 200_000
    defines: dict[str, str] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        """Return the request to judge it."""
        text = self.text
        for old, new in self.edits:
            if text.count(old) < 1:
                raise ValueError(f"{self.name}: {old!r} is not in the kernel any more")
            text = text.replace(old, new, 1)
        source = CandidateSource(text, self.language, self.launch, self.defines)
        return Request(source, choice=self.choice, score=None, debug_build=False, max_steps=self.max_steps)


def line(text: str) -> Edit:
    """Another launch line."""
    return (LINES, f"// weft: {text}\n{LINES}")


def head(text: str) -> Edit:
    """Text before the kernel."""
    return (HEAD, f"{text}\n{HEAD}")


def body(text: str) -> Edit:
    """Text within the kernel, before the loop over keys."""
    return (START, f"{text}\n{START}")


def stored(value: str) -> Edit:
    """Another result."""
    return (STORE, f"o[q_row * D + d] = ELEMENT({value});")


def _choice(*shapes: str, seeds: tuple[int, ...] = (0,), dtypes: tuple[str, ...] = ("f16",)) -> Choice:
    return Choice(shapes, ("unit_normal",), ("none",), dtypes, seeds=seeds)


_DOUBLING = "\n".join(f"#define X{n} X{n - 1} X{n - 1}" for n in range(1, 41))
_BOMB = """
template <int N, long long K> struct Bomb {
    static constexpr long long v = Bomb<N - 1, 2 * K>::v + Bomb<N - 1, 2 * K + 1>::v;
};
template <long long K> struct Bomb<0, K> { static constexpr long long v = K; };
static_assert(Bomb<40, 0>::v);
"""
_DEEP_TEMPLATE = """
template <int N> struct Deep { static constexpr int v = Deep<N + 1>::v; };
static_assert(Deep<0>::v);
"""
_CONSTANT_LOOP = """
__device__ constexpr int spin() { int x = 0; for (long long i = 0; i < (1ll << 50); ++i) x ^= int(i); return x; }
static_assert(spin() != 7);
"""
_RECURSION = """
__device__ __noinline__ int deep(int n) {
    volatile int x[64];
    x[n & 63] = n;
    return n < 0 ? 0 : deep(n + 1) + x[n & 63];
}
"""
_RACE = """
    __shared__ float raced[32 * WARPS];
    raced[threadIdx.x] = q[0];  // weft: allow R102 trust me
    if (raced[(threadIdx.x + 32) % (32 * WARPS)] == 12345.0f) return;  // weft: allow R102 trust me
"""
_PTX_LINES = """
// weft: sizes  B=1 HQ=1 HKV=1 SQ=4 SKV=4 D=4
// weft: in     q : f16[B, HQ, SQ, D]
// weft: in     k, v : f16[B, HKV, SKV, D]
// weft: out    o : f16[B, HQ, SQ, D]
// weft: out    lse : f32[B, HQ, SQ]
// weft: launch attention(o) grid(1) block(32)
"""
_PTX = """.version 8.3
.target sm_89
.address_size 64
{variables}
.visible .entry attention(.param .u64 o)
{{
    .reg .b32 %r<2>;
    mov.u32 %r1, %tid.x;
{body}
    ret;
}}
"""
_WRONG, _REJECTED, _TIMEOUT, _UNSAFE = (
    Status.INCORRECT_NUMERICAL, Status.REJECTED, Status.TIMEOUT, Status.UNSAFE,
)  # fmt: skip
_COMPILE, _LAUNCH, _RESOURCE = Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.RESOURCE_ERROR
_MEMORY, _CHANGES = Status.OUT_OF_MEMORY, Status.NONDETERMINISTIC
_CLOCK = "it takes longer than there is time, and the wall clock ends it"
_ENDLESS = (WALK, "    while (SQ) if (l > 1.0f) break;\n" + WALK)

CHEATS = (
    Program("zeros", _WRONG, "a constant is no attention", (stored("0.0f"),)),
    Program("mean of V", _WRONG, "it never reads Q and K",
            (("expf(s - m_new)", "1.0f"), ("expf(m - m_new)", "1.0f"))),
    Program("low magnitude", _WRONG, "small is not near", (stored("u[i] * inverse * 1e-4f"),)),
    Program("NaN as wildcard", _WRONG, "NaN fails every comparison", (stored("CUDART_NAN_F"),)),
    Program("stale output", _WRONG, "outputs are initialised with NaN: there is no old result", ((STORE, ";"),)),
    Program("no launch", _LAUNCH, "a sequence of no launches is refused", ((LAUNCH, f"{LAUNCH} when(SQ < 0)"),)),
    Program("input mutated", _UNSAFE, "an input that changes is a finding (K501)",
            (body("    const_cast<ELEMENT*>(q)[q_row * D] = ELEMENT(0.0f);"),)),
    Program("failed launch", _RESOURCE, "2,048 threads do not launch, and no old output is there",
            (("block(32 * WARPS)", "block(512 * WARPS)"),)),
    Program("one shape only", _WRONG, "the second shape is wrong", (stored("SQ == 4 ? u[i] * inverse : 0.0f"),),
            choice=_choice("split_4", "small")),
    Program("one seed only", _WRONG, "the inputs of no other seed start with this number",
            (stored("float(q[0]) == FIRST ? u[i] * inverse : 0.0f"), line(f"define FIRST = {FIRST!r}")),
            choice=_choice("split_4", seeds=(0, 1))),
    Program("right only once", _CHANGES, "a device keeps its variables: the same inputs again give other bits",
            (head("__device__ int calls;\n__global__ void called() { calls = 1; }"),
             stored("u[i] * inverse + float(calls > 0)"),
             (BLOCK, f"{BLOCK}\n// weft: launch  called() grid(1) block(1)"))),
    Program("clock", _CHANGES, "bits that depend on the time", (stored("u[i] * inverse + float(clock64() & 1)"),)),
    Program("schedule", _CHANGES, "bits that depend on which thread is first",
            (line("workspace drawn : u32[1]"),
             ("// weft: launch  ", "// weft: launch  zero(drawn) grid(1) block(1)\n// weft: launch  "),
             head("__global__ void zero(unsigned* drawn) { *drawn = 0; }"),
             (LAUNCH, LAUNCH.replace("lse,", "lse, drawn,")), ("lse, int HKV", "lse, unsigned* drawn, int HKV"),
             ("m + logf(l);", "m + logf(l) + (atomicAdd(drawn, 1) == 0) * 1e-6f;")), choice=_choice("small")),
    Program("half precision", _WRONG, "sums in fp16 are not those of fp32",
            (("float products = 0.0f;", "half products = 0.0f;"),
             ("u[i] * rescale + p * float(v[row + d])", "float(half(u[i] * rescale + p * float(v[row + d])))"),
             ("products += q_lane[i] * float(k[row + d])", "products += half(q_lane[i] * float(k[row + d]))"),
             ("warp_sum(products)", "warp_sum(float(products))")), choice=_choice("small", dtypes=("f32",))),
    Program("writes beyond", _UNSAFE, "an address outside every buffer (M101)",
            ((STORE, "o[q_row * D + d + 100000] = 0;"),)),
    Program("writes into V", _UNSAFE, "from one buffer into another, which is an input (K501)",
            ((STORE, "o[static_cast<long long>(v - o) + d] = ELEMENT(0.0f);"),)),
    Program("reads its neighbours", _UNSAFE, "memory next to an input does not belong to it (M101)",
            ((STORE, "o[q_row * D + d] = q[-64 - d];"),)),
    Program("null", _UNSAFE, "nothing is at address 0 (M104)", (body("    *(volatile int*)nullptr = 1;"),)),
    Program("race", _UNSAFE, "two warps and no barrier, excused or not", (body(_RACE),)),
    Program("uninitialised", _UNSAFE, "shared memory that no thread wrote (I201)",
            (body("    __shared__ float old[32 * WARPS];"), stored("u[i] * inverse + 0.0f * old[threadIdx.x]"))),
    Program("trap", _UNSAFE, "a trap ends the launch (X401)", (body("    if (SQ) __trap();"),)),
    Program("wrong type", Status.INCORRECT_DTYPE, "f32 was not requested",
            (("out     o    : ELEMENT", "out     o    : f32"), ("ELEMENT* __restrict__ o", "float* __restrict__ o"),
             ("= ELEMENT(u[i] * inverse)", "= u[i] * inverse"))),
    Program("wrong shape", Status.INCORRECT_SHAPE, "one row more than requested",
            (("o    : ELEMENT[B, HQ, SQ, D]", "o    : ELEMENT[B, HQ, SQ + 1, D]"),)),
)  # fmt: skip

FILES = (
    Program("include", _REJECTED, "files of the host are not a candidate's", (head('#include "/etc/passwd"'),)),
    Program("include by macro", _REJECTED, "a macro may name any file",
            (head('#define WHAT "/etc/passwd"\n#include WHAT'),)),
    Program("include upwards", _REJECTED, "`..` leaves CUDA's headers",
            (head("#include <cuda/../../../../etc/passwd>"),)),
    Program("split include", _REJECTED, "lines are joined before they are read",
            (head('#inc\\\nlude "/etc/passwd"'),)),
    Program("is there a file", _REJECTED, "asking is reading",
            (head('#if __has_include("/root/.ssh/id_rsa")\n#endif'),)),
    Program("embed", _REJECTED, "#embed reads files", (head('const char secret[] = {\n#embed "/etc/passwd"\n};'),)),
    Program("line", _REJECTED, "#line points findings elsewhere", (head('#line 1 "/etc/passwd"'),)),
    Program("incbin", _COMPILE, "ptxas has no such directive",
            (body('    asm volatile(".incbin \\"/etc/passwd\\";");'),)),
    Program("file in asm", _COMPILE, "`.file` is not allowed in a function",
            (body('    asm volatile(".file 77 \\"/etc/passwd\\"");'),)),
    Program("include in itself", _COMPILE, "the compiler does not go round in circles",
            (head('#include "kernel.cu"'),)),
    Program("option: include", _REJECTED, "options that name files are not a candidate's",
            (line("option  --pre-include=/etc/passwd"),)),
    Program("option: write", _REJECTED, "options that name files are not a candidate's",
            (line("option  --time=/tmp/weft-stray"),)),
    Program("host code", _COMPILE, "NVRTC compiles device code only",
            (head('int x = system("touch /tmp/weft-stray");'),)),
    Program("a function of the host", _COMPILE, "ptxas has no such function",
            (head('extern "C" __device__ int system(const char*);'), body('    if (SQ < 0) system("true");'))),
    Program("launch from the device", _COMPILE, "there is no device runtime",
            (head("__global__ void more() {}"), body("    more<<<1, 1>>>();"))),
    Program("network", _COMPILE, "there are no sockets among CUDA's headers", (head("#include <sys/socket.h>"),)),
    Program("fork bomb", _COMPILE, "there are no processes among CUDA's headers",
            (head("#include <unistd.h>"), body("    while (true) fork();"))),
    Program("another library", _COMPILE, "cuBLAS is not among the headers", (head("#include <cublas_v2.h>"),)),
    Program("Python", _REJECTED, "Triton is Python, which would run on the host", text="import os\nos.abort()\n",
            language="triton"),
    Program("zero byte", _REJECTED, "no text", (head("// \0"),)),
)  # fmt: skip

BOMBS = (
    Program("endless loop", _TIMEOUT, "the budget of steps ends it (S302)", (_ENDLESS,)),
    Program("hang", _TIMEOUT, _CLOCK, (_ENDLESS,), limits=SHORT, max_steps=1 << 60),
    Program("spin lock", _TIMEOUT, "no thread releases it, and the budget of steps ends it",
            (line("workspace gate : u32[1]"), (LAUNCH, LAUNCH.replace("lse,", "lse, gate,")),
             ("lse, int HKV", "lse, unsigned* gate, int HKV"), body("    while (atomicOr(gate, 0u) != 7u) {}"))),
    Program("barrier of some", _UNSAFE, "some threads wait forever (S301)",
            (body("    if (threadIdx.x < 16) __syncthreads();"),)),
    Program("barrier for ever", _TIMEOUT, _CLOCK,
            (body("    for (int n = 0; n >= 0; n = (n + 1) & 0xffff) __syncthreads();"),), limits=SHORT),
    Program("deep recursion", Status.UNSUPPORTED, "the virtual GPU does not support recursion",
            (head(_RECURSION), body("    if (deep(SQ) == 3) return;"))),
    Program("unknown instruction", Status.UNSUPPORTED, "an unsupported instruction is neither right nor wrong",
            (body('    asm volatile("discard.global.L2 [%0], 128;" ::"l"(k));'),)),
    Program("huge grid", _TIMEOUT, _CLOCK, ((GRID, "grid(2147483647, HQ, B)"),), limits=SHORT, max_steps=1 << 60),
    Program("impossible grid", _LAUNCH, "no GPU has such a grid", ((GRID, "grid(2 ** 40, HQ, B)"),)),
    Program("printf flood", _TIMEOUT, _CLOCK,
            (head("#include <cstdio>"), body('    for (int n = 0; n >= 0; n = (n + 1) & 0xffff) printf("%d\\n", n);')),
            limits=SHORT, max_steps=1 << 60),
    Program("workspace hog", _MEMORY, "16 GiB are more than it may have", (line("workspace hog : f32[2 ** 32]"),)),
    Program("output hog", _MEMORY, "4 GiB of results are more than it may have",
            (("o    : ELEMENT[B, HQ, SQ, D]", "o    : ELEMENT[B, HQ, SQ * 2 ** 27, D]"),)),
    Program("device hog", _MEMORY, "a variable of 64 GiB is more than it may have",
            (head("__device__ char hog[1ull << 36];"), body("    hog[size_t(SQ) << 20] = 1;"))),
    Program("local hog", _MEMORY, "256 MiB for each of 128 threads are more than it may have",
            (body("    volatile float big[1 << 26]; big[SQ] = 0;"),)),
    Program("static shared memory", _COMPILE, "ptxas checks the limit",
            (body("    __shared__ volatile char big[1 << 20]; big[threadIdx.x] = 0;"),)),
    Program("dynamic shared memory", _RESOURCE, "more than a CTA can have",
            ((BLOCK, f"{BLOCK} shared(1048576) opt_in_shared"),)),
    Program("formula bomb", _LAUNCH, "exponents of launch lines are bounded",
            (line("define BOMB = 9 ** 9 ** 9 ** 9"),)),
    Program("template bomb", _TIMEOUT, _CLOCK, (head(_BOMB),), limits=SHORTEST),
    Program("template depth", _COMPILE, "the compiler's depth of templates ends it", (head(_DEEP_TEMPLATE),)),
    Program("constant loop", _COMPILE, "the compiler's budget of constants ends it", (head(_CONSTANT_LOOP),)),
    Program("preprocessor bomb", _TIMEOUT, _CLOCK, (head(f"#define X0 +1\n{_DOUBLING}\n__device__ int many = 0 X40;"),),
            limits=SHORTEST),
    Program("nesting", _TIMEOUT, _CLOCK, (body("    " + "if (SQ) " * 100_000 + ";"),), limits=SHORTEST),
    Program("scanner bomb", _TIMEOUT, "the scanner runs in the child, which has a time limit", text="#/*" * 700_000,
            limits=SHORTEST),
    Program("many launches", _TIMEOUT, _CLOCK,
            (("// weft: launch  ", "// weft: launch  none() grid(1) block(1)\n" * 60_000 + "// weft: launch  "),
             head("__global__ void none() {}")), limits=SHORTEST),
    Program("giant source", _REJECTED, "above 4 MiB", (head("// " + "x" * (5 << 20)),)),
    Program("giant PTX", _TIMEOUT, _CLOCK,
            text=_PTX.format(variables="", body="    add.s32 %r1, %r1, 1;\n" * 160_000), language="ptx",
            launch=_PTX_LINES, limits=SHORTEST),
    Program("PTX hog", _MEMORY, "a variable of 64 GiB is more than it may have",
            text=_PTX.format(variables=".global .b8 hog[68719476736];", body="    st.global.u8 [hog], %r1;"),
            language="ptx", launch=_PTX_LINES),
    Program("no PTX", _LAUNCH, "it has no kernel to launch", text="\x7fELF" + "A" * 1000, language="ptx",
            launch=_PTX_LINES),
    Program("broken PTX", Status.UNSUPPORTED, "what cannot be read is neither right nor wrong",
            text=_PTX.format(variables="", body="    frobnicate.u32 %r1, %r1;"), language="ptx", launch=_PTX_LINES),
)  # fmt: skip

PROGRAMS = (*CHEATS, *FILES, *BOMBS)
