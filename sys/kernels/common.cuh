// What the kernels share: the records of their tables, and how a grid divides the work.
//
// Every kernel loops over the grid that it is given, so any grid of up to two dimensions is right. Blocks have up to
// BLOCK_THREADS threads in one dimension. Each kernel says which grid is fast. They are compiled for compute capability
// 7.0 without any CUDA header (build.py), and as plain C++ to be tested without a GPU (emulate.h).
//
// They write nowhere but in their destinations, whatever their tables hold: the SAFETY note of `Kernels::launch`, in
// sys/src/cuda/kernels.rs, rests on it.
//
// Their twins in src/transform/twin.rs define what they compute, to the bit. So floats are computed by intrinsics,
// which the compiler does not contract. Only bytes of a source are read: an aligned word that sticks out is read byte
// by byte.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define BLOCK_THREADS 256
#define KERNEL extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
#define INLINE __device__ __forceinline__

// Bytes of the widest access.
#define VECTOR_BYTES 16
// Vectors that a block writes between two looks at the grid: 16 KiB.
#define CHUNK_VECTORS 1024
// Vectors that a thread has in flight, which hides the latency of memory.
#define IN_FLIGHT 4

// `from` is a device address, `to` is an offset in the destination, and lengths are in bytes.
struct Piece {
    u64 from;
    u64 to;
    u64 len;
};

struct Row {
    u64 from;
    u64 len;
};

// Pixels are [height, width, channels] bytes. The box is in pixels of the source.
struct Image {
    u64 from;
    u32 height, width;
    float x, y, w, h;
    u32 flip;
    u32 reserved;
};

// One pass over an image of RGB pixels, along its rows or, if it is vertical, along its columns. `to` is an offset in
// the destination, where rows follow each other. At `taps` are two numbers of 32 bits for each column, or row, that
// comes out (resample.cu), and all weights behind them.
struct Pass {
    u64 from;
    u64 to;
    u64 taps;
    u32 height, width;
    u32 row_bytes;
    u32 vertical;
};

// A record of a table.
template <typename T>
INLINE T record(u64 table, u64 index) {
    return reinterpret_cast<const T *>(table)[index];
}

// Reads from a source, which no kernel writes. It is an intrinsic because the compiler does not know that an address
// which is a number lies in global memory, and would have the device find out at each access.
template <typename T>
INLINE T load(u64 address) {
    return __ldg(reinterpret_cast<const T *>(address));
}

// Writes to a destination.
template <typename T>
INLINE void store(u64 address, T value) {
    __stwb(reinterpret_cast<T *>(address), value);
}

template <typename T>
INLINE T smaller(T a, T b) {
    return a < b ? a : b;
}

// The quotient and the remainder of `at` by `by`, in 32 bits if they suffice, which is several times as fast.
INLINE u64 divided(u64 at, u32 by, u32 &rest) {
    u64 times = at >> 32 ? at / by : u32(at) / by;
    rest = u32(at - times * by);
    return times;
}

// The block's number in a grid whose second dimension means nothing, and the number of blocks.
INLINE u64 flat_block() { return u64(blockIdx.y) * gridDim.x + blockIdx.x; }
INLINE u64 flat_blocks() { return u64(gridDim.y) * gridDim.x; }

#ifdef __CUDACC_RTC__
// The bits of the half-precision number nearest to `value`; of two that are equally near, the even one.
INLINE u32 half_bits(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

#if __CUDA_ARCH__ >= 800
// The bits of the bfloat16 numbers nearest to two values, the first one below.
#define HAS_BF16 1
INLINE u32 bf16_pair(float low, float high) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
#endif
#endif
