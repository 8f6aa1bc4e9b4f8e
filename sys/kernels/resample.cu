// Resampling by Pillow's arithmetic, as images/src/resample.rs has it: weights of 22 bits, computed by the host, and
// levels that are rounded to 8 bits behind each pass. An image is two launches: its columns, and then its rows.
#include "common.cuh"

// Red, green and blue.
#define LEVELS 3
#define WEIGHT_BITS 22
// The first pixel of the source that a pixel is made of, and the end of its weights, which start where those before end.
#define TAP_BYTES 8

// A sum of levels by weights, which has a sign, as a level. Half a level was in the sum from the start.
INLINE u8 level(u32 sum) {
    int whole = int(sum) >> WEIGHT_BITS;
    return u8(whole < 0 ? 0 : whole > 255 ? 255 : whole);
}

// Grid: y over passes, x over the pixels that come out. Neighbouring threads write neighbouring pixels.
KERNEL ur_resample(u64 to, u64 bytes, u64 passes, u32 n) {
    u64 start = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    for (u64 index = blockIdx.y; index < n; index += gridDim.y) {
        Pass pass = record<Pass>(passes, index);
        u64 pixels = u64(pass.height) * pass.width;
        // The host has checked it, and the table may have been overwritten since.
        if (pixels > bytes / LEVELS || pass.to > bytes - pixels * LEVELS) continue;
        u64 weights = pass.taps + u64(pass.vertical ? pass.height : pass.width) * TAP_BYTES;
        u64 tap_bytes = pass.vertical ? u64(pass.row_bytes) : u64(LEVELS);
        for (u64 at = start; at < pixels; at += step) {
            u32 column;
            u32 row = u32(divided(at, pass.width, column));
            u32 place = pass.vertical ? row : column;
            u64 taps = pass.taps + u64(place) * TAP_BYTES, tap = load<u64>(taps);
            u32 first = u32(tap), end = u32(tap >> 32), weight = place ? load<u32>(taps - 4) : 0;
            u32 first_row = pass.vertical ? first : row, first_column = pass.vertical ? column : first;
            u64 from = pass.from + u64(first_row) * pass.row_bytes + u64(first_column) * LEVELS;
            u32 red = 1u << (WEIGHT_BITS - 1), green = red, blue = red;
            for (; weight < end; weight++, from += tap_bytes) {
                u32 by = load<u32>(weights + u64(weight) * 4);
                red += load<u8>(from) * by;
                green += load<u8>(from + 1) * by;
                blue += load<u8>(from + 2) * by;
            }
            u64 pixel = to + pass.to + at * LEVELS;
            store(pixel, level(red));
            store(pixel + 1, level(green));
            store(pixel + 2, level(blue));
        }
    }
}
