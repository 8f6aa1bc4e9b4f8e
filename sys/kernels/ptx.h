// The instructions of PTX that kernels.ptx uses, as C++ functions of the same names: `add.s32` is `add_s32`. So the
// PTX itself runs, thread by thread, where there is no GPU. tests/loaders/ptx.rs writes a call for each instruction; one
// that is missing here does not compile. Source: the PTX ISA, version 8.0.
//
// Registers are unsigned, as wide as their name says; what an instruction takes them for is in its parameters.
#pragma once
#include "emulate.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int16_t i16;
typedef int32_t i32;
typedef long long i64;

#define BLOCK_THREADS 256

// Operands in braces: registers, or the elements of a vector.
template <typename A, typename B>
struct Two {
    A &a;
    B &b;
};
template <typename T>
struct Four {
    T &a, &b, &c, &d;
};
template <typename A, typename B>
static inline Two<A, B> braces(A &a, B &b) {
    return {a, b};
}
template <typename T>
static inline Four<T> braces(T &a, T &b, T &c, T &d) {
    return {a, b, c, d};
}

// Elements that must be aligned as a whole.
template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT) Vector {
    T at[COUNT];
};
template <typename T>
static inline T *at(u64 address) {
    return reinterpret_cast<T *>(address);
}

#define UNARY(name, to, from, expression) \
    static inline void name(to &d, from a) { d = expression; }
#define BINARY(name, to, from, expression) \
    static inline void name(to &d, from a, from b) { d = expression; }

UNARY(mov_pred, bool, bool, a)
UNARY(mov_u16, u16, u16, a)
UNARY(mov_u32, u32, u32, a)
UNARY(mov_u64, u64, u64, a)
UNARY(mov_f32, float, float, a)
static inline void mov_b32(float &d, u32 a) { d = __uint_as_float(a); }
static inline void mov_b32(u32 &d, float a) { d = __float_as_uint(a); }
static inline void mov_b32(u32 &d, Two<u16, u16> a) { d = u32(a.a) | u32(a.b) << 16; }
UNARY(cvta_to_global_u64, u64, u64, a)

// Numbers wrap, signed or not.
BINARY(add_s32, u32, u32, a + b)
BINARY(add_s64, u64, u64, a + b)
BINARY(add_u64, u64, u64, a + b)
BINARY(sub_s32, u32, u32, a - b)
BINARY(sub_u32, u32, u32, a - b)
BINARY(sub_s64, u64, u64, a - b)
BINARY(mul_lo_s32, u32, u32, a *b)
BINARY(mul_lo_s64, u64, u64, a *b)
BINARY(mul_wide_u32, u64, u32, u64(a) * b)
BINARY(mul_hi_u64, u64, u64, u64(static_cast<unsigned __int128>(a) * b >> 64))
static inline void mad_lo_s32(u32 &d, u32 a, u32 b, u32 c) { d = a * b + c; }
BINARY(div_u32, u32, u32, a / b)
BINARY(div_u64, u64, u64, a / b)
UNARY(neg_s64, u64, u64, 0 - a)
BINARY(min_u32, u32, u32, a < b ? a : b)
BINARY(min_s32, u32, i32, u32(a < b ? a : b))
BINARY(max_s32, u32, i32, u32(a > b ? a : b))
BINARY(min_u64, u64, u64, a < b ? a : b)
BINARY(max_u64, u64, u64, a > b ? a : b)
BINARY(min_s64, u64, i64, u64(a < b ? a : b))
BINARY(max_s64, u64, i64, u64(a > b ? a : b))

// Compiled without contraction, each of these rounds once.
BINARY(add_rn_f32, float, float, a + b)
BINARY(sub_rn_f32, float, float, a - b)
BINARY(mul_rn_f32, float, float, a *b)
BINARY(div_rn_f32, float, float, a / b)
BINARY(min_f32, float, float, fminf(a, b))
BINARY(max_f32, float, float, fmaxf(a, b))
static inline void fma_rn_f32(float &d, float a, float b, float c) { d = fmaf(a, b, c); }

UNARY(cvt_u16_u32, u16, u32, u16(a))
UNARY(cvt_u32_u64, u32, u64, u32(a))
UNARY(cvt_u64_u16, u64, u16, a)
UNARY(cvt_u64_u32, u64, u32, a)
UNARY(cvt_s64_s32, u64, i32, u64(i64(a)))
UNARY(cvt_rn_f32_u32, float, u32, float(a))
UNARY(cvt_rni_u32_f32, u32, float, __float2uint_rn(a))
UNARY(cvt_rmi_s32_f32, u32, float, u32(__float2int_rd(a)))
UNARY(cvt_rmi_f32_f32, float, float, floorf(a))
UNARY(cvt_rn_f16_f32, u16, float, u16(half_bits(a)))
// Of two bfloat16 numbers, the first one above. Not a NaN.
static inline u32 bf16_bits(float a) {
    u32 bits = __float_as_uint(a);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static inline void cvt_rn_bf16x2_f32(u32 &d, float high, float low) { d = bf16_bits(high) << 16 | bf16_bits(low); }

BINARY(and_pred, bool, bool, a &&b)
BINARY(or_pred, bool, bool, a || b)
BINARY(xor_pred, bool, bool, a != b)
UNARY(not_pred, bool, bool, !a)
BINARY(and_b32, u32, u32, a &b)
BINARY(or_b32, u32, u32, a | b)
UNARY(not_b32, u32, u32, ~a)
BINARY(and_b64, u64, u64, a &b)
BINARY(or_b64, u64, u64, a | b)
UNARY(not_b64, u64, u64, ~a)

// A shift by the width or more leaves nothing.
static inline void shl_b32(u32 &d, u32 a, u32 bits) { d = bits < 32 ? a << bits : 0; }
static inline void shr_u32(u32 &d, u32 a, u32 bits) { d = bits < 32 ? a >> bits : 0; }
static inline void shr_s32(u32 &d, i32 a, u32 bits) { d = u32(a >> (bits < 32 ? bits : 31)); }
static inline void shl_b64(u64 &d, u64 a, u32 bits) { d = bits < 64 ? a << bits : 0; }
static inline void shr_u64(u64 &d, u64 a, u32 bits) { d = bits < 64 ? a >> bits : 0; }
static inline void shr_b64(u64 &d, u64 a, u32 bits) { shr_u64(d, a, bits); }
static inline void shf_r_wrap_b32(u32 &d, u32 low, u32 high, u32 bits) { d = __funnelshift_r(low, high, bits); }
// Bit 3 of a selector stands for the sign of the byte it selects.
static inline void prmt_b32(u32 &d, u32 a, u32 b, u32 selector) {
    u64 bytes = u64(b) << 32 | a;
    u32 result = 0;
    for (int index = 0; index < 4; index++) {
        u32 select = selector >> index * 4 & 15, byte = bytes >> (select & 7) * 8 & 0xff;
        if (select & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << index * 8;
    }
    d = result;
}

BINARY(setp_eq_b32, bool, u32, a == b)
BINARY(setp_eq_b64, bool, u64, a == b)
BINARY(setp_eq_s16, bool, i16, a == b)
BINARY(setp_ne_s16, bool, i16, a != b)
BINARY(setp_eq_s32, bool, i32, a == b)
BINARY(setp_ne_s32, bool, i32, a != b)
BINARY(setp_lt_s32, bool, i32, a < b)
BINARY(setp_gt_s32, bool, i32, a > b)
BINARY(setp_lt_u32, bool, u32, a < b)
BINARY(setp_le_u32, bool, u32, a <= b)
BINARY(setp_ge_u32, bool, u32, a >= b)
BINARY(setp_eq_s64, bool, i64, a == b)
BINARY(setp_ne_s64, bool, i64, a != b)
BINARY(setp_le_s64, bool, i64, a <= b)
BINARY(setp_gt_s64, bool, i64, a > b)
BINARY(setp_lt_u64, bool, u64, a < b)
BINARY(setp_le_u64, bool, u64, a <= b)
BINARY(setp_gt_u64, bool, u64, a > b)
BINARY(setp_ge_u64, bool, u64, a >= b)
BINARY(setp_eq_f32, bool, float, a == b)
// True of NaN too, as != is in C++.
BINARY(setp_neu_f32, bool, float, a != b)
static inline void selp_u16(u16 &d, u16 a, u16 b, bool first) { d = first ? a : b; }
static inline void selp_b32(u32 &d, u32 a, u32 b, bool first) { d = first ? a : b; }
static inline void selp_b64(u64 &d, u64 a, u64 b, bool first) { d = first ? a : b; }
static inline void selp_u64(u64 &d, u64 a, u64 b, bool first) { d = first ? a : b; }

static inline void ld_global_f32(float &d, u64 address) { d = *at<float>(address); }
static inline void ld_global_u32(u32 &d, u64 address) { d = *at<u32>(address); }
static inline void ld_global_u64(u64 &d, u64 address) { d = *at<u64>(address); }
static inline void ld_global_nc_u8(u32 &d, u64 address) { d = *at<u8>(address); }
static inline void ld_global_nc_u8(u16 &d, u64 address) { d = *at<u8>(address); }
static inline void ld_global_nc_u16(u16 &d, u64 address) { d = *at<u16>(address); }
static inline void ld_global_nc_u32(u32 &d, u64 address) { d = *at<u32>(address); }
static inline void ld_global_v2_f32(Two<float, float> d, u64 address) {
    Vector<float, 2> value = *at<Vector<float, 2>>(address);
    d.a = value.at[0], d.b = value.at[1];
}
static inline void ld_global_v2_u32(Two<u32, u32> d, u64 address) {
    Vector<u32, 2> value = *at<Vector<u32, 2>>(address);
    d.a = value.at[0], d.b = value.at[1];
}
static inline void ld_global_nc_u64(u64 &d, u64 address) { d = *at<u64>(address); }
static inline void ld_global_nc_v4_u32(Four<u32> d, u64 address) {
    Vector<u32, 4> value = *at<Vector<u32, 4>>(address);
    d.a = value.at[0], d.b = value.at[1], d.c = value.at[2], d.d = value.at[3];
}

static inline void st_global_f32(u64 address, float a) { *at<float>(address) = a; }
static inline void st_global_wb_u8(u64 address, u32 a) { *at<u8>(address) = u8(a); }
static inline void st_global_wb_u16(u64 address, u16 a) { *at<u16>(address) = a; }
static inline void st_global_wb_u32(u64 address, u32 a) { *at<u32>(address) = a; }
static inline void st_global_wb_s64(u64 address, u64 a) { *at<u64>(address) = a; }
static inline void st_global_wb_v2_s64(u64 address, Two<u64, u64> a) { *at<Vector<u64, 2>>(address) = {a.a, a.b}; }
static inline void st_global_wb_v4_u32(u64 address, Four<u32> a) {
    *at<Vector<u32, 4>>(address) = {a.a, a.b, a.c, a.d};
}
