// Pixels to tensors: cropped, resized, mirrored and normalized in one pass. Destinations are aligned to their element.
//
// There are two ways. If no pixel is resampled and the vectors of every row lie at aligned addresses, a thread reads
// the pixels for 16 bytes of output of each channel, next to those of its neighbours, and writes whole vectors.
// Otherwise it goes pixel by pixel, and neighbouring threads write neighbouring elements.
#include "common.cuh"

// What 1.0f / 255.0f lacks.
#define INVERSE_LOW -2.319175824e-10f

enum Type { U8, F32, F16, BF16 };

// An element of the output, and how to make vectors of it.
template <Type TYPE>
struct Element {
    enum : u32 { BYTES = TYPE == U8 ? 1 : TYPE == F32 ? 4 : 2, PER_VECTOR = VECTOR_BYTES / BYTES };

    static INLINE u32 bits(float value) {
        if (TYPE == U8) return smaller(__float2uint_rn(value), 255u);
        if (TYPE == F16) return half_bits(value);
        u32 bits = __float_as_uint(value);
        // Devices of 7.0 have no instruction for it, and later ones have one for two (`bf16_pair`). Means and
        // deviations are finite, so this is not a NaN.
        if (TYPE == BF16) return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        return bits;
    }

    static INLINE void write(u64 address, float value) {
        u32 bits = Element::bits(value);
        if (BYTES == 1) store(address, u8(bits));
        if (BYTES == 2) store(address, u16(bits));
        if (BYTES == 4) store(address, bits);
    }

    static INLINE void write_vector(u64 address, const float (&values)[PER_VECTOR]) {
        u32 words[4] = {0, 0, 0, 0};
#ifdef HAS_BF16
        if constexpr (TYPE == BF16) {
#pragma unroll
            for (u32 index = 0; index < 4; index++)
                words[index] = bf16_pair(values[2 * index], values[2 * index + 1]);
            return store(address, make_uint4(words[0], words[1], words[2], words[3]));
        }
#endif
#pragma unroll
        for (u32 index = 0; index < PER_VECTOR; index++)
            words[index * BYTES / 4] |= bits(values[index]) << (index * BYTES % 4 * 8);
        store(address, make_uint4(words[0], words[1], words[2], words[3]));
    }
};

// a / b, where high + low is 1 / b to 48 bits. A division takes several times as long. It is rounded as a division is: of
// levels by 255 always, and else but for quotients that lie within a part in 2^47 of the middle between two numbers.
INLINE float quotient(float a, float high, float low) { return __fmaf_rn(a, high, __fmul_rn(a, low)); }

// What the images of a batch share.
struct Layout {
    u64 to;
    u32 height, width, channels_last;
    // 1 / std is high + low.
    float mean[4], high[4], low[4];

    // A level as an element: (level / 255 - mean) / std, each operation rounded once.
    INLINE float normalized(float level, u32 channel) const {
        float value = quotient(level, 1.0f / 255.0f, INVERSE_LOW);
        return quotient(__fsub_rn(value, mean[channel]), high[channel], low[channel]);
    }
};

// The two pixels of an axis that an output pixel lies between, and its distance from the first one, from 0 to 1.
struct Taps {
    i64 first, second;
    float fraction;
};

// One axis of an image and of its output.
struct Axis {
    i64 whole, last;
    float part, ratio, edge;

    INLINE Axis(float start, float extent, u32 count, u32 len) {
        float floored = floorf(start);
        whole = __float2int_rd(start);
        last = i64(len) - 1;
        part = __fsub_rn(start, floored);
        ratio = __fdiv_rn(extent, __uint2float_rn(count));
        edge = __fsub_rn(extent, 1.0f);
    }

    INLINE i64 clamped(i64 at) const {
        at = smaller(at, last);
        return at < 0 ? 0 : at;
    }

    INLINE Taps taps(u32 index) const {
        float centre = __fsub_rn(__fmul_rn(__fadd_rn(__uint2float_rn(index), 0.5f), ratio), 0.5f);
        float inside = __fadd_rn(fmaxf(fminf(centre, edge), 0.0f), part);
        float first = floorf(inside);
        i64 at = whole + __float2int_rd(inside);
        return {clamped(at), clamped(at + 1), __fsub_rn(inside, first)};
    }

    // Whether the box has exactly one pixel of the image for each pixel of the output.
    INLINE bool is_plain(float extent, u32 count) const {
        return extent == __uint2float_rn(count) && part == 0.0f && whole >= 0 && whole + count <= last + 1;
    }
};

INLINE float between(float first, float second, float fraction) {
    return __fmaf_rn(fraction, __fsub_rn(second, first), first);
}

// The number 0 to 255 in byte `index` of a word. It goes into the mantissa of 2^23, which is then subtracted: two fast
// operations instead of a slow conversion.
INLINE float byte_value(u32 word, u32 index) {
    return __fsub_rn(__uint_as_float(__byte_perm(word, 0x4b000000, 0x7650 | index)), 8388608.0f);
}

// The aligned word at `address`. Bytes of it outside of `low` to `high` are not read.
INLINE u32 guarded_word(u64 address, u64 low, u64 high) {
    if (address >= low && address + 4 <= high) return load<u32>(address);
    u32 word = 0;
#pragma unroll
    for (u32 index = 0; index < 4; index++) {
        u64 at = address + index;
        if (at >= low && at < high) word |= u32(load<u8>(at)) << (index * 8);
    }
    return word;
}

// WORDS words from any address on. All of their bytes lie between `low` and `high`.
template <u32 WORDS>
INLINE void load_words(u32 (&words)[WORDS], u64 address, u64 low, u64 high) {
    u32 bits = u32(address % 4 * 8);
    u64 base = address - address % 4;
    u32 raw[WORDS + 1];
    raw[0] = guarded_word(base, low, high);
#pragma unroll
    for (u32 index = 1; index < WORDS; index++) raw[index] = load<u32>(base + index * 4);
    raw[WORDS] = bits ? guarded_word(base + WORDS * 4, low, high) : 0;
#pragma unroll
    for (u32 index = 0; index < WORDS; index++) words[index] = __funnelshift_r(raw[index], raw[index + 1], bits);
}

// One image and its place in the output.
template <Type TYPE, u32 CHANNELS>
struct Job {
    enum : u32 { PIXELS = Element<TYPE>::PER_VECTOR, BYTES = Element<TYPE>::BYTES };
    const Layout &layout;
    Image image;
    Axis rows, columns;
    // Address of the output image.
    u64 to;

    INLINE Job(const Layout &layout, const Image &image, u64 index)
        : layout(layout),
          image(image),
          rows(image.y, image.h, layout.height, image.height),
          columns(image.x, image.w, layout.width, image.width),
          to(layout.to + index * layout.height * layout.width * CHANNELS * BYTES) {}

    INLINE bool is_plain() const {
        return rows.is_plain(image.h, layout.height) && columns.is_plain(image.w, layout.width);
    }

    INLINE u64 source(i64 row, i64 column) const {
        return image.from + (u64(row) * image.width + u64(column)) * CHANNELS;
    }

    // Writes every `step`-th vector of pixels from `at` on.
    INLINE void write_vectors(u64 at, u64 step) const {
        u32 per_row = layout.width / PIXELS;
        u64 end = source(image.height, 0);
        for (; at < u64(layout.height) * per_row; at += step) {
            u32 vector;
            u64 row = divided(at, per_row, vector);
            u32 column = vector * PIXELS;
            u32 mirrored = image.flip ? layout.width - PIXELS - column : column;
            u32 words[PIXELS * CHANNELS / 4];
            load_words(words, source(rows.whole + row, columns.whole + mirrored), image.from, end);
            if (layout.channels_last) {
                write_pixels(words, to + (row * layout.width + column) * (CHANNELS * BYTES));
            } else {
                write_planes(words, to + (row * layout.width + column) * BYTES);
            }
        }
    }

    // What becomes of a level; bytes stay as they are.
    INLINE float element(float level, u32 channel) const {
        return TYPE == U8 ? level : layout.normalized(level, channel);
    }

    // The value of one channel of a pixel, mirrored if the image is.
    INLINE float value(const u32 (&words)[PIXELS * CHANNELS / 4], u32 pixel, u32 channel) const {
        u32 plain = pixel * CHANNELS + channel, mirrored = (PIXELS - 1 - pixel) * CHANNELS + channel;
        float a = byte_value(words[plain / 4], plain % 4), b = byte_value(words[mirrored / 4], mirrored % 4);
        return element(image.flip ? b : a, channel);
    }

    INLINE void write_planes(const u32 (&words)[PIXELS * CHANNELS / 4], u64 to) const {
        u64 plane_bytes = u64(layout.height) * layout.width * BYTES;
#pragma unroll
        for (u32 channel = 0; channel < CHANNELS; channel++) {
            float values[PIXELS];
#pragma unroll
            for (u32 pixel = 0; pixel < PIXELS; pixel++) values[pixel] = value(words, pixel, channel);
            Element<TYPE>::write_vector(to + channel * plane_bytes, values);
        }
    }

    INLINE void write_pixels(const u32 (&words)[PIXELS * CHANNELS / 4], u64 to) const {
#pragma unroll
        for (u32 vector = 0; vector < CHANNELS; vector++) {
            float values[PIXELS];
#pragma unroll
            for (u32 index = 0; index < PIXELS; index++) {
                u32 element = vector * PIXELS + index;
                values[index] = value(words, element / CHANNELS, element % CHANNELS);
            }
            Element<TYPE>::write_vector(to + vector * VECTOR_BYTES, values);
        }
    }

    // Writes every `step`-th pixel from `at` on. If none is resampled, it reads only one of four.
    INLINE void write_each_pixel(u64 at, u64 step, bool plain) const {
        u64 pixels = u64(layout.height) * layout.width;
        u64 pixel_bytes = layout.channels_last ? u64(CHANNELS * BYTES) : u64(BYTES);
        u64 channel_bytes = layout.channels_last ? u64(BYTES) : pixels * BYTES;
        bool empty = image.height == 0 || image.width == 0;
        for (; at < pixels; at += step) {
            u32 column;
            u32 row = u32(divided(at, layout.width, column));
            Taps y = rows.taps(row), x = columns.taps(image.flip ? layout.width - 1 - column : column);
            u64 corner = source(y.first, x.first);
            u64 below = source(y.second, x.first) - corner, beside = u64(x.second - x.first) * CHANNELS;
#pragma unroll
            for (u32 channel = 0; channel < CHANNELS; channel++) {
                u64 from = corner + channel;
                float value = empty ? 0.0f : __uint2float_rn(load<u8>(from));
                if (!plain && !empty) {
                    float upper = between(value, __uint2float_rn(load<u8>(from + beside)), x.fraction);
                    float left = __uint2float_rn(load<u8>(from + below));
                    float right = __uint2float_rn(load<u8>(from + below + beside));
                    value = between(upper, between(left, right, x.fraction), y.fraction);
                }
                Element<TYPE>::write(to + at * pixel_bytes + channel * channel_bytes, element(value, channel));
            }
        }
    }
};

template <Type TYPE, u32 CHANNELS>
INLINE void write_images(const Layout &layout, u64 images, u32 n) {
    bool aligned = layout.to % VECTOR_BYTES == 0 && layout.width % Element<TYPE>::PER_VECTOR == 0;
    u64 at = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    for (u64 index = blockIdx.y; index < n; index += gridDim.y) {
        Job<TYPE, CHANNELS> job(layout, record<Image>(images, index), index);
        bool plain = job.is_plain();
        if (plain && aligned) {
            job.write_vectors(at, step);
        } else {
            job.write_each_pixel(at, step, plain);
        }
    }
}

template <Type TYPE>
INLINE void write_images(const Layout &layout, u64 images, u32 n, u32 channels) {
    switch (channels) {
        case 1: return write_images<TYPE, 1>(layout, images, n);
        case 2: return write_images<TYPE, 2>(layout, images, n);
        case 3: return write_images<TYPE, 3>(layout, images, n);
        case 4: return write_images<TYPE, 4>(layout, images, n);
    }
}

// Grid of all: y over images, x over the vectors (or, if resampled, the pixels) of an image, a block's worth at a time.
#define IMAGES(NAME, TYPE)                                                                                            \
    KERNEL NAME(u64 to, u64 images, u32 n, u32 channels, u32 height, u32 width, u32 channels_last, float mean0,       \
                float mean1, float mean2, float mean3, float high0, float high1, float high2, float high3, float low0,\
                float low1, float low2, float low3) {                                                                 \
        Layout layout = {to, height, width, channels_last, {mean0, mean1, mean2, mean3},                              \
                         {high0, high1, high2, high3}, {low0, low1, low2, low3}};                                     \
        write_images<TYPE>(layout, images, n, channels);                                                              \
    }

IMAGES(ur_images_u8, U8)
IMAGES(ur_images_f32, F32)
IMAGES(ur_images_f16, F16)
IMAGES(ur_images_bf16, BF16)
