// What of CUDA the kernels use, in C++: so that their source runs, thread by thread, where there is no GPU.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)

struct Dim {
    unsigned x, y;
};
static Dim gridDim, blockIdx, blockDim, threadIdx;

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) longlong2 {
    long long x, y;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }

static inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}
static inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
// Compiled without contraction, each of these rounds once.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __uint2float_rn(unsigned value) { return float(value); }
static inline int __float2int_rd(float value) {
    if (!(value > -2147483648.0f)) return value != value ? 0 : INT32_MIN;
    return value >= 2147483648.0f ? INT32_MAX : int(floorf(value));
}
static inline unsigned __float2uint_rn(float value) {
    if (!(value > 0.0f)) return 0;
    return value >= 4294967296.0f ? UINT32_MAX : unsigned(nearbyintf(value));
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
    return unsigned(((uint64_t(high) << 32) | low) >> (bits & 31));
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    uint64_t bytes = (uint64_t(b) << 32) | a;
    unsigned result = 0;
    for (int index = 0; index < 4; index++) result |= (bytes >> ((selector >> index * 4 & 7) * 8) & 0xff) << index * 8;
    return result;
}

static inline unsigned half_bits(float value) {
    unsigned sign = __float_as_uint(value) >> 16 & 0x8000;
    double magnitude = fabs(double(value));
    if (magnitude >= 65520.0) return sign | 0x7c00;
    int exponent = magnitude == 0.0 ? -14 : std::max(ilogb(magnitude), -14);
    // In units of the last place: up to 2048, which carries into the exponent.
    unsigned units = unsigned(nearbyint(ldexp(magnitude, 10 - exponent)));
    return sign | ((exponent + 14) * 1024 + units);
}
