// The host's side: what CUDA's intrinsics mean, in plain C++ and independently of the virtual GPU.
#include <math.h>
#include <stdint.h>
#include <string.h>
#define FN static inline
#define CALLED static __attribute__((noinline))
#define WITHIN static

// -- floating numbers: -0 is less than +0, and a NaN loses against a number --------------------------------------
template <class T> FN T lesser_of(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && signbit(a)) ? a : b;
}
template <class T> FN T greater_of(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !signbit(a)) ? a : b;
}
FN float lesser(float a, float b) { return lesser_of(a, b); }
FN float greater(float a, float b) { return greater_of(a, b); }
FN double lesser(double a, double b) { return lesser_of(a, b); }
FN double greater(double a, double b) { return greater_of(a, b); }
FN float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
FN float __int_as_float(int32_t i) { float x; memcpy(&x, &i, 4); return x; }
FN double __longlong_as_double(int64_t i) { double x; memcpy(&x, &i, 8); return x; }
FN int32_t __float2int_rn(float x) { return (int32_t)nearbyintf(x); }
FN int32_t __float2int_rd(float x) { return (int32_t)floorf(x); }
FN int32_t __double2int_ru(double x) { return (int32_t)ceil(x); }

// -- integers ----------------------------------------------------------------------------------------------------
FN int32_t __clz(int32_t x) { return x ? __builtin_clz((uint32_t)x) : 32; }
FN int32_t __clzll(int64_t x) { return x ? __builtin_clzll((uint64_t)x) : 64; }
FN int32_t __popc(uint32_t x) { return __builtin_popcount(x); }
FN int32_t __popcll(uint64_t x) { return __builtin_popcountll(x); }
FN int32_t __ffs(int32_t x) { return __builtin_ffs(x); }
FN int32_t __ffsll(int64_t x) { return __builtin_ffsll(x); }
FN uint64_t reversed(uint64_t x, int width) {
    uint64_t y = 0;
    for (int i = 0; i < width; ++i) y |= ((x >> i) & 1) << (width - 1 - i);
    return y;
}
FN uint32_t __brev(uint32_t x) { return (uint32_t)reversed(x, 32); }
FN uint64_t __brevll(uint64_t x) { return reversed(x, 64); }
FN int32_t __mulhi(int32_t a, int32_t b) { return (int32_t)(((int64_t)a * b) >> 32); }
FN uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)(((uint64_t)a * b) >> 32); }
FN int64_t __mul64hi(int64_t a, int64_t b) { return (int64_t)(((__int128)a * b) >> 64); }
FN uint64_t __umul64hi(uint64_t a, uint64_t b) { return (uint64_t)(((unsigned __int128)a * b) >> 64); }
FN int32_t __hadd(int32_t a, int32_t b) { return (int32_t)(((int64_t)a + b) >> 1); }
FN uint32_t __urhadd(uint32_t a, uint32_t b) { return (uint32_t)(((uint64_t)a + b + 1) >> 1); }
FN uint32_t __usad(uint32_t a, uint32_t b, uint32_t c) { return (a > b ? a - b : b - a) + c; }
FN uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t by) {
    return (uint32_t)(((((uint64_t)high << 32) | low) << (by & 31)) >> 32);
}
FN uint32_t __funnelshift_rc(uint32_t low, uint32_t high, uint32_t by) {
    return (uint32_t)((((uint64_t)high << 32) | low) >> (by < 32 ? by : 32));
}
FN uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t chosen) {
    uint64_t both = ((uint64_t)b << 32) | a;
    uint32_t y = 0;
    for (int i = 0; i < 4; ++i) {
        uint32_t byte = (both >> (8 * ((chosen >> (4 * i)) & 7))) & 0xff;
        y |= byte << (8 * i);
    }
    return y;
}

// -- half and bfloat16: every operation in double, then one rounding ----------------------------------------------
template <int MANTISSA, int BIAS> struct Narrow { uint16_t raw; };
typedef Narrow<10, 15> __half;
typedef Narrow<7, 127> __nv_bfloat16;

template <int M, int B> FN double widen(Narrow<M, B> x) {
    int exponent = (x.raw & 0x7fff) >> M, fraction = x.raw & ((1 << M) - 1);
    double size = exponent > 2 * B ? (fraction ? NAN : INFINITY)
                : exponent ? ldexp((1 << M) | fraction, exponent - B - M) : ldexp(fraction, 1 - B - M);
    return x.raw & 0x8000 ? -size : size;
}
template <int M, int B> FN Narrow<M, B> narrow(double x) {
    if (x != x) return {0x7fff};
    uint16_t sign = signbit(x) ? 0x8000 : 0, infinity = (2 * B + 1) << M;
    double size = fabs(x);
    if (size == 0) return {sign};
    int exponent = isinf(size) ? 2 * B : ilogb(size);
    if (exponent > B) return {(uint16_t)(sign | infinity)};
    if (exponent < 1 - B) exponent = 1 - B;
    int quanta = (int)nearbyint(ldexp(size, M - exponent));  // to even; a carry moves into the exponent by itself
    int raw = ((exponent + B - 1) << M) + quanta;
    return {(uint16_t)(sign | (raw < infinity ? raw : infinity))};
}
// a + b so that rounding it once more is right: where double cannot hold the sum, its last bit is odd.
FN double sum_to_odd(double a, double b) {
    double sum = a + b;
    if (!isfinite(sum)) return sum;
    double part = sum - a, lost = (a - (sum - part)) + (b - part);
    uint64_t raw;
    memcpy(&raw, &sum, 8);
    return lost != 0 && !(raw & 1) ? nextafter(sum, lost > 0 ? INFINITY : -INFINITY) : sum;
}

#define NARROW_ARITHMETIC(T, M, B)                                                                                 \
    FN T __hadd(T a, T b) { return narrow<M, B>(sum_to_odd(widen(a), widen(b))); }                                 \
    FN T __hsub(T a, T b) { return narrow<M, B>(sum_to_odd(widen(a), -widen(b))); }                                \
    FN T __hmul(T a, T b) { return narrow<M, B>(widen(a) * widen(b)); }                                            \
    FN T __hfma(T a, T b, T c) { return narrow<M, B>(sum_to_odd(widen(a) * widen(b), widen(c))); }                 \
    FN T __hneg(T a) { return {(uint16_t)(a.raw ^ 0x8000)}; }                                                      \
    FN T __habs(T a) { return {(uint16_t)(a.raw & 0x7fff)}; }                                                      \
    FN T __hmin(T a, T b) { return narrow<M, B>(lesser_of(widen(a), widen(b))); }                                  \
    FN T __hmax(T a, T b) { return narrow<M, B>(greater_of(widen(a), widen(b))); }                                 \
    FN bool __hlt(T a, T b) { return widen(a) < widen(b); }                                                        \
    FN bool __hge(T a, T b) { return widen(a) >= widen(b); }                                                       \
    FN bool __heq(T a, T b) { return widen(a) == widen(b); }                                                       \
    FN bool __hneu(T a, T b) { return !(widen(a) == widen(b)); }
NARROW_ARITHMETIC(__half, 10, 15)
NARROW_ARITHMETIC(__nv_bfloat16, 7, 127)

FN __half __float2half_rn(float x) { return narrow<10, 15>(x); }
FN __half __double2half(double x) { return narrow<10, 15>(x); }
FN __half __int2half_rn(int32_t x) { return narrow<10, 15>(x); }
FN __half __ushort_as_half(uint16_t x) { return {x}; }
FN float __half2float(__half x) { return (float)widen(x); }
FN int32_t __half2int_rz(__half x) { return (int32_t)widen(x); }
FN uint16_t __half_as_ushort(__half x) { return x.raw; }
FN __nv_bfloat16 __float2bfloat16_rn(float x) { return narrow<7, 127>(x); }
FN __nv_bfloat16 __double2bfloat16(double x) { return narrow<7, 127>(x); }
FN __nv_bfloat16 __int2bfloat16_rn(int32_t x) { return narrow<7, 127>(x); }
FN __nv_bfloat16 __ushort_as_bfloat16(uint16_t x) { return {x}; }
FN float __bfloat162float(__nv_bfloat16 x) { return (float)widen(x); }
FN int32_t __bfloat162int_rz(__nv_bfloat16 x) { return (int32_t)widen(x); }
FN uint16_t __bfloat16_as_ushort(__nv_bfloat16 x) { return x.raw; }
