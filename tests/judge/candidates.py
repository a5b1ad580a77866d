"""Kernels that every route to a verdict must judge alike: right ones, and one for each kind of failure."""

from dataclasses import dataclass
from functools import cache

from weft.core.status import Status
from weft.engines.kernel_file import load
from weft.kernels.ladder import RUNGS

SCALAR = RUNGS["scalar"].path.read_text()
TRITON = RUNGS["fa_triton"].path.read_text()


@dataclass(frozen=True)
class Kernel:
    """One candidate and its expected verdict."""

    name: str
    status: Status
    text: str
    says: str = ""
    """Part of the message."""
    codes: tuple[str, ...] = ()
    """Codes of the findings, in order, each once."""
    language: str = "cuda"
    launch: str = ""
    folder: bool = True
    """Whether a robust-kbench task, which checks only O, can find it."""


def edited(*pairs: tuple[str, str], text: str = SCALAR) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def in_debug_build(code: str) -> tuple[str, str]:
    """Code that only a -G build contains."""
    return ("    float m = -CUDART", f"#ifdef __CUDACC_DEBUG__\n    {code}\n#endif\n    float m = -CUDART")


def at_the_end(code: str) -> tuple[str, str]:
    return ("    if (lane == 0) lse[q_row]", f"    {code}\n    if (lane == 0) lse[q_row]")


LINES = """\
// weft: sizes   B=1 HQ=1 HKV=1 SQ=4 SKV=4 D=32
// weft: in      q : f16[B, HQ, SQ, D] = normal
// weft: in      k, v : f16[B, HKV, SKV, D] = normal
// weft: out     o : f16[B, HQ, SQ, D]
"""


def small(arguments: str, body: str, *, block: int = 64, grid: str = "1", lines: str = "") -> str:
    """Return a kernel that does not compute attention: its error is found before its numbers are checked."""
    launch = f"// weft: launch  kernel({arguments}) grid({grid}) block({block})\n"
    parameters = {"q": "const __half* q", "o": "__half* o", "n": "int n", "B * HQ * SQ * D": "int n", "w": "float* w"}
    signature = ", ".join(parameters[each.strip()] for each in arguments.split(","))
    return f"{LINES}{lines}{launch}#include <assert.h>\n#include <cuda_fp16.h>\n" + (
        f"__global__ void kernel({signature}) {{\n{body}\n}}\n"
    )


COUNTER = (
    ("// weft: scalar  scale", "// weft: workspace drawn : u32[1]\n// weft: scalar  scale"),
    ("// weft: launch  scalar", "// weft: launch  zero(drawn) grid(1) block(1)\n// weft: launch  scalar"),
    ("template <int D>", "__global__ void zero(unsigned* drawn) { *drawn = 0; }\n\ntemplate <int D>"),
    ("(q, k, v, o, lse, HKV", "(q, k, v, o, lse, drawn, HKV"),
    ("lse, int HKV", "lse, unsigned* drawn, int HKV"),
)
"""A counter that is zero before every run."""
ASM = 'asm volatile("discard.global.L2 [%0], 128;" ::"l"(k));'
"""An instruction that the virtual GPU does not support."""

STORE = "if (d < D) o[q_row * D + d] = ELEMENT(u[i] * inverse);"
LSE = "if (lane == 0) lse[q_row] = m + logf(l);"


def keeping(variables: str, *pairs: tuple[str, str]) -> str:
    """The scalar kernel with device variables, which keep their values between launches."""
    room = "__device__ float kept_o[1 << 16], kept_lse[1 << 12];"
    return edited(("template <int D>", f"{room}\n__device__ {variables}\n\ntemplate <int D>"), *pairs)


ANSWERS_AGAIN = keeping(
    "int filled[1 << 12];",
    (STORE, "if (d < D) { if (!filled[q_row]) kept_o[q_row * D + d] = u[i] * inverse; "
            "o[q_row * D + d] = ELEMENT(kept_o[q_row * D + d]); }"),
    (LSE, "__syncwarp();\n    if (lane == 0) { if (!filled[q_row]) kept_lse[q_row] = m + logf(l); filled[q_row] = 1; "
          "lse[q_row] = kept_lse[q_row]; }"),
)  # fmt: skip
"""Returns the outputs of its first launch in all later launches."""


NOT_RESCALED = ("u[i] * rescale + p", "u[i] + p")


def in_shared(declared: str, code: str, *pairs: tuple[str, str]) -> str:
    """The scalar kernel with its scale in shared memory."""
    before = f"    __shared__ float kept[WARPS]{declared};\n    const int warp = threadIdx.x / 32;\n    {code}\n"
    used = ("(products) * scale", "(products) * own_scale")
    return edited(("    float m = -CUDART", f"{before}    float m = -CUDART"), used, *pairs)


def overwritten(*pairs: tuple[str, str]) -> str:
    """Lane 0 overwrites what the lanes of its warp have read: R103, a warning."""
    code = "if (lane == 0) kept[warp] = scale;\n    __syncwarp();\n    const float own_scale = kept[warp];\n"
    code += "    if (lane == 0) kept[warp] = own_scale + 1.0f;"
    return in_shared("", code, at_the_end("__syncwarp();\n    if (kept[warp] < 0.0f) l = 1.0f;"), *pairs)


WARNED, WARNED_AND_WRONG = overwritten(), overwritten(NOT_RESCALED)
RACED_AND_WRONG = in_shared(
    "[32]", "kept[warp][lane] = scale;\n    const float own_scale = kept[warp][lane ^ 1];", NOT_RESCALED
)
"""A lane reads what another of its warp writes, with no __syncwarp() in between: R102, an error."""


@cache
def ptx() -> tuple[str, str]:
    """The scalar kernel compiled for D = 64, and launch lines for it."""
    binary = load(RUNGS["scalar"].path).compile()
    (entry,) = binary.entries.values()
    lines = [line for line in SCALAR.splitlines() if line.startswith("// weft:")]
    launch = "\n".join(lines).replace("scalar_attention<{D}>", entry)
    return binary.ptx, launch.replace('// weft: define  ELEMENT = "half"\n', "").replace("ELEMENT", "f16") + "\n"


def kernels() -> list[Kernel]:
    return [
        Kernel("right", Status.PASSED, SCALAR),
        Kernel("right with two warps", Status.PASSED, edited(("WARPS = 4", "WARPS = 2"))),
        Kernel(
            "right with a margin that nothing reaches",
            Status.PASSED,
            edited(("if (d < D) o[q_row * D + d]", "if (d <= D) o[q_row * D + d]")),
        ),
        Kernel("right with a warning", Status.PASSED, WARNED, "R103 warning"),
        Kernel("U not rescaled, and a warning", Status.INCORRECT_NUMERICAL, WARNED_AND_WRONG, "tight", codes=("R103",)),
        Kernel("U not rescaled, and a race", Status.UNSAFE, RACED_AND_WRONG, "R102", codes=("R102",)),
        Kernel("U not rescaled", Status.INCORRECT_NUMERICAL, edited(NOT_RESCALED), "tight"),
        Kernel(
            "scaled twice", Status.INCORRECT_NUMERICAL, edited(("(products) * scale", "(products) * scale * scale"))
        ),
        Kernel(
            "LSE to base 2", Status.INCORRECT_NUMERICAL, edited(("m + logf(l)", "m + log2f(l)")), "lse", folder=False
        ),
        Kernel("last key left out", Status.INCORRECT_NUMERICAL, edited(("key < end; ++key", "key < end - 1; ++key"))),
        Kernel("NaN", Status.INCORRECT_NUMERICAL, edited(("ELEMENT(u[i] * inverse)", "ELEMENT(u[i] * CUDART_NAN_F)"))),
        Kernel(
            "nothing written", Status.INCORRECT_NUMERICAL, edited(("if (d < D) o[q_row * D + d]", "if (d < 0) o[0]"))
        ),
        Kernel(
            "write out of bounds",
            Status.UNSAFE,
            edited(("o[q_row * D + d] =", "o[(q_row + 1) * D + d] =")),
            codes=("M101",),
        ),
        Kernel(
            "read out of bounds", Status.UNSAFE, edited(("float(k[row + d])", "float(k[row + D + d])")), codes=("M101",)
        ),
        Kernel(
            "race in shared memory",
            Status.UNSAFE,
            small(
                "q, o, B * HQ * SQ * D",
                "    __shared__ __half first[32];\n"
                "    if (threadIdx.x < 32) first[threadIdx.x] = q[0];\n"
                "    const __half mine = first[threadIdx.x % 32];\n"
                "    for (int i = threadIdx.x; i < n; i += 64) o[i] = mine;",
            ),
            codes=("R102",),
        ),
        Kernel(
            "race in global memory",
            Status.UNSAFE,
            small("q, o, B * HQ * SQ * D", "    o[threadIdx.x] = q[blockIdx.x];", grid="2"),
            codes=("R101",),
        ),
        Kernel("infinite loop", Status.TIMEOUT, edited(("key < end; ++key", "key < end;")), codes=("S302",)),
        Kernel(
            "infinite loop around a barrier",
            Status.TIMEOUT,
            small("q, o, B * HQ * SQ * D", "    while (n) __syncthreads();\n    o[threadIdx.x] = q[0];"),
            codes=("S302",),
        ),
        Kernel(
            "barrier that one warp leaves out",
            Status.UNSAFE,
            small(
                "q, o, B * HQ * SQ * D",
                '    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");\n    o[threadIdx.x] = q[0];',
            ),
            codes=("S301",),
        ),
        Kernel("unknown name", Status.COMPILE_ERROR, edited(("m = m_new;", "m = m_newest;")), "m_newest"),
        Kernel("unfinished line", Status.COMPILE_ERROR, edited(("m = m_new;", "m = ;")), "expected an expression"),
        Kernel("unsupported instruction", Status.UNSUPPORTED, edited(("m = m_new;", f"m = m_new; {ASM}")), "discard"),
        Kernel(
            "-G build unsupported", Status.PASSED, edited(in_debug_build(ASM)), "its debug build (-G) cannot be judged"
        ),
        Kernel("-G build does not compile", Status.PASSED, edited(in_debug_build("#error not so")), "cannot be judged"),
        Kernel(
            "-G build reads what nothing wrote",
            Status.UNSAFE,
            edited(
                in_debug_build("float never[4]; if (never[lane & 3] > 1.0f) l_more = 1.0f;"),
                ("    float q_lane[PER_LANE]", "    float l_more = 0.0f;\n    float q_lane[PER_LANE]"),
                at_the_end("l += l_more;"),
            ),
        ),
        Kernel(
            "index in 32 bits",
            Status.UNSAFE,
            edited(("const size_t q_row = (static_cast<size_t>(b) * HQ + h)", "const int q_row = (b * HQ + h)")),
            codes=("M106",),
            folder=False,
        ),
        Kernel(
            "bits depend on the order",
            Status.NONDETERMINISTIC,
            edited(*COUNTER, ("m + logf(l);", "m + logf(l) + (atomicAdd(drawn, 1) == 0) * 1e-6f;")),
            "another order of CTAs and warps gives different bits",
            folder=False,
        ),
        Kernel(
            "answers with what it kept",
            Status.INCORRECT_NUMERICAL,
            ANSWERS_AGAIN,
            "a second call on the same device, with other inputs",
            folder=False,  # its cases have no other inputs with a reference: NONDETERMINISTIC there
        ),
        Kernel(
            "fails in another order",
            Status.UNSAFE,
            edited(*COUNTER, at_the_end("if (lane == 0) assert(atomicAdd(drawn, 1) != 0 || query == 0);")),
            codes=("X402",),
        ),
        Kernel(
            "a row too many",
            Status.INCORRECT_SHAPE,
            edited(("o    : ELEMENT[B, HQ, SQ, D]", "o    : ELEMENT[B, HQ, SQ + 1, D]")),
            "o has shape",
        ),
        Kernel(
            "f32 for f16",
            Status.INCORRECT_DTYPE,
            edited(
                ("out     o    : ELEMENT", "out     o    : f32"),
                ("ELEMENT* __restrict__ o", "float* __restrict__ o"),
                ("= ELEMENT(u[i] * inverse)", "= u[i] * inverse"),
            ),
            "float32",
        ),
        Kernel("too many threads", Status.RESOURCE_ERROR, edited(("block(32 * WARPS)", "block(512 * WARPS)"))),
        Kernel(
            "too much shared memory",
            Status.RESOURCE_ERROR,
            edited(("block(32 * WARPS)", "block(32 * WARPS) shared(200000)")),
            "shared memory",
        ),
        Kernel(
            "a grid of nothing",
            Status.LAUNCH_ERROR,
            edited(("grid(cdiv(SQ, WARPS), HQ, B)", "grid(SQ // 1000, HQ, B)")),
            "must be at least 1 in every dimension",
        ),
        Kernel(
            "reads what nothing wrote",
            Status.UNSAFE,
            small(
                "q, o, w, B * HQ * SQ * D",
                "    o[threadIdx.x] = __half(w[threadIdx.x]);",
                lines="// weft: workspace w : f32[64]\n",
            ),
            codes=("I202",),
        ),
        Kernel("failing assert", Status.UNSAFE, edited(at_the_end("assert(l < 0.0f);")), codes=("X402",)),
        Kernel("trap", Status.UNSAFE, edited(at_the_end("if (SQ) __trap();")), codes=("X401",)),
        Kernel(
            "changes its input",
            Status.UNSAFE,
            edited(at_the_end("const_cast<ELEMENT*>(q)[q_row * D] = ELEMENT(0.0f);")),
        ),
        Kernel(
            "tiles beyond reason",
            Status.REJECTED,
            edited(("WARPS = 4", "WARPS = 4\n// weft: define  BLOCK_N = 1000000")),
            "BLOCK_N is 1000000",
        ),
        Kernel("PTX", Status.PASSED, ptx()[0], language="ptx", launch=ptx()[1]),
        Kernel(
            "PTX with an unknown opcode",
            Status.UNSUPPORTED,
            edited(("\tret;", "\tfrobnicate.u32 %r1, %r1;\n\tret;"), text=ptx()[0]),
            "frobnicate",
            language="ptx",
            launch=ptx()[1],
        ),
        Kernel(
            "PTX whose exponent has another base",
            Status.INCORRECT_NUMERICAL,
            ptx()[0].replace("0f3FB8AA3B", "0f3F800000"),
            language="ptx",
            launch=ptx()[1],
        ),
        Kernel("Triton", Status.PASSED, TRITON, language="triton"),
        Kernel(
            "Triton without the scale",
            Status.INCORRECT_NUMERICAL,
            edited(("tl.dot(q, k.T) * scale_log2", "tl.dot(q, k.T)"), text=TRITON),
            language="triton",
        ),
    ]
