// A compute step: work for the multiprocessors that needs almost no memory.
#include "common.cuh"

// Grid: over numbers. As many threads as the device can hold keep it busy.
KERNEL ur_burn(u64 floats, u64 count, u32 rounds) {
    for (u64 at = flat_block() * blockDim.x + threadIdx.x; at < count; at += flat_blocks() * blockDim.x) {
        float *number = reinterpret_cast<float *>(floats) + at, value = *number;
        for (u32 round = 0; round < rounds; round++) value = __fmaf_rn(value, 0.999f, 0.001f);
        *number = value;
    }
}
