// What both compilers see before the generated functions. FN is how a function is declared: for the device or the host.
// Nothing here has undefined behaviour: division by zero and out-of-range conversions are decided by hand.

template <class T> FN T quotient(T a, T b) {
    if (b == 0) return 0;
    if (T(-1) < T(0) && b == T(-1)) return T(0ull - (unsigned long long)a);  // the least number has no negative
    return T(a / b);
}
template <class T> FN T remainder_of(T a, T b) {
    if (b == 0) return a;
    if (T(-1) < T(0) && b == T(-1)) return 0;
    return T(a % b);
}

// Floating numbers as integers: NaN is 0, what is too large is the largest power of two that fits.
FN int32_t whole32(double x) { return x == x ? int32_t(x > 1073741824.0 ? 1073741824.0 : x < -1073741824.0 ? -1073741824.0 : x) : 0; }
FN int64_t whole64(double x) { return x == x ? int64_t(x > 4611686018427387904.0 ? 4611686018427387904.0 : x < -4611686018427387904.0 ? -4611686018427387904.0 : x) : 0; }
FN int32_t whole32(float x) { return x == x ? int32_t(x > 1073741824.0f ? 1073741824.0f : x < -1073741824.0f ? -1073741824.0f : x) : 0; }
FN int64_t whole64(float x) { return x == x ? int64_t(x > 1073741824.0f ? 1073741824.0f : x < -1073741824.0f ? -1073741824.0f : x) : 0; }
FN uint32_t natural32(float x) { return x == x ? uint32_t(x > 2147483648.0f ? 2147483648.0f : x < 0.0f ? 0.0f : x) : 0u; }
FN uint64_t natural64(double x) { return x == x ? uint64_t(x > 9223372036854775808.0 ? 9223372036854775808.0 : x < 0.0 ? 0.0 : x) : 0u; }
FN int32_t whole32(__half x) {
    float wide = __half2float(x);
    return wide > -30000.0f && wide < 30000.0f ? __half2int_rz(x) : 7;
}
FN int32_t whole32(__nv_bfloat16 x) {
    float wide = __bfloat162float(x);
    return wide > -1e9f && wide < 1e9f ? __bfloat162int_rz(x) : 7;
}

// The sign of a NaN means nothing and differs between machines.
FN float with_sign(float a, float b) { return b == b ? copysignf(a, b) : a; }
FN double with_sign(double a, double b) { return b == b ? copysign(a, b) : a; }

// What a result looks like in the output: integers as 64 bits with their sign, one pattern for every NaN.
FN uint64_t bits(int8_t x) { return uint64_t(int64_t(x)); }
FN uint64_t bits(uint8_t x) { return x; }
FN uint64_t bits(int16_t x) { return uint64_t(int64_t(x)); }
FN uint64_t bits(uint16_t x) { return x; }
FN uint64_t bits(int32_t x) { return uint64_t(int64_t(x)); }
FN uint64_t bits(uint32_t x) { return x; }
FN uint64_t bits(int64_t x) { return uint64_t(x); }
FN uint64_t bits(uint64_t x) { return x; }
FN uint64_t bits(float x) { uint32_t u; memcpy(&u, &x, 4); return x == x ? u : 0x7fffffffu; }
FN uint64_t bits(double x) { uint64_t u; memcpy(&u, &x, 8); return x == x ? u : 0x7fffffffffffffffull; }
FN uint64_t bits(__half x) { float w = __half2float(x); return w == w ? __half_as_ushort(x) : 0x7fffu; }
FN uint64_t bits(__nv_bfloat16 x) { float w = __bfloat162float(x); return w == w ? __bfloat16_as_ushort(x) : 0x7fffu; }
