"""One attention kernel with many forms of its indices: right at every size, or wrong beyond 2^31 elements."""

LINES = """\
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: in      q    : f16[B, HQ, SQ, D] = normal
// weft: in      k, v : f16[B, HKV, SKV, D] = normal
// weft: out     o    : f16[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
"""
LAUNCH = """\
// weft: launch  attend(q, k, v, o, lse, HQ, HKV, SQ, SKV, D, scale)
// weft:         grid(cdiv(SQ, 128), HQ, B) block(128)
"""
BODY = """\
#include <cuda_fp16.h>

__global__ void attend(const half* q, const half* k, const half* v, half* o, float* lse, int HQ, int HKV, int SQ,
                       int SKV, int D, float scale) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y, b = blockIdx.z;
    if (i >= SQ) return;
    const int g = h / (HQ / HKV);
    @BEFORE@
    float m = -1e30f, l = 0.0f, u[128];
    for (int d = 0; d < D; ++d) u[d] = 0.0f;
    for (int j = 0; j < SKV; ++j) {
        float s = 0.0f;
        for (int d = 0; d < D; ++d)
            s += float(@Q@) *
                 float(@K@);
        s *= scale;
        const float n = fmaxf(m, s), r = expf(m - n), p = expf(s - n);
        for (int d = 0; d < D; ++d)
            u[d] = u[d] * r + p * float(@V@);
        l = l * r + p;
        m = n;
    }
    for (int d = 0; d < D; ++d)
        @O@ = half(u[d] / l);
    @LSE@ = m + logf(l);
}
"""
Q64, K64 = "((size_t(b) * HQ + h) * SQ + i) * D + d", "((size_t(b) * HKV + g) * SKV + j) * D + d"
Q32, K32 = (index.replace("size_t(b)", "b") for index in (Q64, K64))
RIGHT = {"Q": f"q[{Q64}]", "K": f"k[{K64}]", "V": f"v[{K64}]", "O": f"o[{Q64}]", "BEFORE": ""} | {
    "LSE": "lse[(size_t(b) * HQ + h) * SQ + i]"
}


def kernel(*, lines: str = "", launch: str = LAUNCH, **indices: str) -> str:
    """Return the kernel with these expressions instead of the right ones."""
    body = BODY
    for name, index in {**RIGHT, **indices}.items():
        body = body.replace(f"@{name}@", index)
    return LINES + lines + launch + body


def line_of(text: str, part: str) -> int:
    """Return the line with this text."""
    (found,) = [number for number, line in enumerate(text.splitlines(), 1) if part in line]
    return found


LINEAR = """\
__global__ void scaled(const half* q, half* o, @INT@ n) {
    const @INT@ i = blockIdx.x * (@INT@)blockDim.x + threadIdx.x;
    if (i < n) o[i] = q[i];
}
"""


def linear(integer: str, total: str = "B * HQ * SQ * D") -> str:
    """A first kernel of one thread per element, whose number of elements is an argument."""
    first = f"// weft: launch  scaled(q, o, {total}) grid(cdiv(B * HQ * SQ * D, 256)) block(256)\n"
    text = kernel(launch=first + LAUNCH)
    return text.replace("#include <cuda_fp16.h>\n", "#include <cuda_fp16.h>\n" + LINEAR.replace("@INT@", integer))


SCORES = "// weft: workspace s_all : f32[B, HQ, SQ, SKV]\n"


def with_scores(index: str) -> str:
    """A kernel that writes its scores to a workspace: 16384 queries of 8 heads already have 2^31 scores."""
    launch = LAUNCH.replace("lse, HQ", "lse, s_all, HQ")
    text = kernel(lines=SCORES, launch=launch)
    text = text.replace("float* lse, int HQ", "float* lse, float* s_all, int HQ")
    return text.replace("        s *= scale;\n", f"        s *= scale;\n        s_all[{index}] = s;\n")


PERSISTENT = """\
// weft: launch  attend(q, k, v, o, lse, HQ, HKV, SQ, SKV, D, scale, B * HQ * cdiv(SQ, 128) * 128)
// weft:         grid(64) block(128)
"""


def persistent(index: str) -> str:
    """Few CTAs that process queries in turn, some of them past the end of a sequence."""
    text = kernel(launch=PERSISTENT, Q=f"q[{index}]")
    text = text.replace("float scale) {", "float scale, int items) {")
    head = "    const int i = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y, b = blockIdx.z;\n"
    head += "    if (i >= SQ) return;\n"
    assert head in text
    loop = "    const int padded = (SQ + 127) / 128 * 128;\n"
    loop += (
        "    for (int item = blockIdx.x * blockDim.x + threadIdx.x; item < items; item += gridDim.x * blockDim.x) {\n"
    )
    loop += "    const int i = item % padded, h = item / padded % HQ, b = item / padded / HQ;\n"
    loop += "    if (i >= SQ) continue;\n"
    return text.replace(head, loop).rstrip().removesuffix("}") + "}\n}\n"


ROW = "((b * HQ + h) * SQ + i) * D"

WRONG = {
    "q": (kernel(Q=f"q[{Q32}]"), "q["),
    "k": (kernel(K=f"k[{K32}]"), "k["),
    "v": (kernel(V=f"v[{K32}]"), "v["),
    "o": (kernel(O=f"o[{Q32}]"), "o["),
    "lse by the number of an element": (kernel(BEFORE=f"const unsigned at = {ROW};", LSE="lse[at / D]"), "unsigned at"),
    "unsigned": (kernel(Q=f"q[{Q32.replace('b *', 'unsigned(b) *')}]"), "q["),
    "shift": (kernel(K="k[(((b * HKV + g) * SKV + j) << 6) + d]"), "k["),
    "product cast too late": (kernel(O=f"o[size_t({Q32})]"), "o["),
    "bytes": (kernel(V=f"(*(const half*)((const char*)v + 2 * ({K32})))"), "v +"),
    "base in 32 bits": (
        kernel(BEFORE="const half* head = q + (b * HQ + h) * SQ * D;", Q="head[i * D + d]"),
        "const half* head",
    ),
    "scores": (with_scores("((b * HQ + h) * SQ + i) * SKV + j"), "s_all["),
    "persistent": (persistent(Q32), "q["),
    "compared": (kernel(BEFORE=f"if ({ROW} >= gridDim.z * HQ * SQ * (size_t)D) return;"), "gridDim.z * HQ"),
}
"""Name → source, and the text of the line that must be reported."""

RIGHT_TWINS = {
    "size_t": kernel(),
    "long long": kernel(Q=f"q[{Q64.replace('size_t(b)', '(long long)b')}]"),
    "head in 64 bits, inside it 32": kernel(K="(k + (size_t(b) * HKV + g) * SKV * D)[j * D + d]"),
    "rows in 32 bits": kernel(LSE="lse[(b * HQ + h) * SQ + i]", Q="q[size_t((b * HQ + h) * SQ + i) * D + d]"),
    "limit stated": kernel(
        Q=f"q[{Q32}]",
        O=f"o[{Q32}]",
        lines="// weft: require B * HQ * SQ * D <= 2147483647 : 32-bit indices\n",
    ),
    "int n": linear("int"),
    "size_t n": linear("size_t"),
    "scores in 64 bits": with_scores("((size_t(b) * HQ + h) * SQ + i) * SKV + j"),
    "persistent in 64 bits": persistent(Q64),
    "a wrap that is taken back": kernel(
        BEFORE="const unsigned far = h * 0x40000000u + i;",
        Q="q[((size_t(b) * HQ + h) * SQ + (far - h * 0x40000000u)) * D + d]",
    ),
}
