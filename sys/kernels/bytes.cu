// Moving and filling bytes: gather, fill and pad are one loop, which writes the bytes of a source and a pattern behind
// them.
#include "common.cuh"

// How to get a vector of the destination.
enum Way {
    // With one load.
    ALIGNED,
    // From two loads, which both lie inside the source.
    SHIFTED,
    // Byte by byte, or from the pattern.
    EDGE,
};

INLINE uint4 halves(u64 low, u64 high) { return make_uint4(u32(low), u32(low >> 32), u32(high), u32(high >> 32)); }

// The 16 bytes that start `off` bytes (0 to 15) into two vectors. The words are selected one after the other, because
// an array with an index would be kept in memory.
INLINE uint4 shifted(uint4 a, uint4 b, u32 off) {
    bool two = off & 8, one = off & 4;
    u32 w0 = two ? a.z : a.x, w1 = two ? a.w : a.y, w2 = two ? b.x : a.z;
    u32 w3 = two ? b.y : a.w, w4 = two ? b.z : b.x, w5 = two ? b.w : b.y;
    u32 v0 = one ? w1 : w0, v1 = one ? w2 : w1, v2 = one ? w3 : w2, v3 = one ? w4 : w3, v4 = one ? w5 : w4;
    u32 bits = off % 4 * 8;
    return make_uint4(__funnelshift_r(v0, v1, bits), __funnelshift_r(v1, v2, bits), __funnelshift_r(v2, v3, bits),
                      __funnelshift_r(v3, v4, bits));
}

// `bytes` bytes at `to`: as many of the `len` bytes at `from` as fit, then `pattern`, whose byte k % 8 fills byte k.
// Vectors lie at the aligned addresses of the destination, the first of which is at byte `head`.
struct Span {
    u64 to, bytes, from, len, pattern, head;

    INLINE Span(u64 to, u64 bytes, u64 from, u64 len, u64 pattern)
        : to(to), bytes(bytes), from(from), len(len), pattern(pattern), head(smaller((0 - to) % VECTOR_BYTES, bytes)) {}

    INLINE u8 byte(u64 at) const { return at < len ? load<u8>(from + at) : u8(pattern >> (at % 8 * 8)); }

    // The vector at byte `at`, in which the source ends or behind which it has ended.
    INLINE uint4 edge_vector(u64 at) const {
        u64 low = 0, high = 0;
        if (at >= len) {
            u32 turn = u32(at % 8 * 8);
            low = high = turn ? pattern >> turn | pattern << (64 - turn) : pattern;
        } else {
#pragma unroll 1
            for (u32 index = 0; index < 8; index++) {
                low |= u64(byte(at + index)) << (index * 8);
                high |= u64(byte(at + index + 8)) << (index * 8);
            }
        }
        return halves(low, high);
    }

    // Writes the vectors from `first` to `end`. A thread issues all its loads before it waits for the first of them.
    template <Way WAY>
    INLINE void write_vectors(u64 first, u64 end) const {
        enum : u32 { COUNT = WAY == EDGE ? 1 : IN_FLIGHT };
        u32 off = WAY == SHIFTED ? u32((from + head) % VECTOR_BYTES) : 0;
        u64 source = from + head - off, target = to + head;
        for (first += threadIdx.x; first < end; first += u64(blockDim.x) * COUNT) {
            uint4 a[COUNT], b[COUNT];
#pragma unroll
            for (u32 k = 0; k < COUNT; k++) {
                u64 at = (first + k * blockDim.x) * VECTOR_BYTES;
                if (first + k * blockDim.x >= end) continue;
                a[k] = WAY == EDGE ? edge_vector(head + at) : load<uint4>(source + at);
                if (WAY == SHIFTED) b[k] = load<uint4>(source + at + VECTOR_BYTES);
            }
#pragma unroll
            for (u32 k = 0; k < COUNT; k++) {
                u64 at = (first + k * blockDim.x) * VECTOR_BYTES;
                if (first + k * blockDim.x >= end) continue;
                store(target + at, WAY == SHIFTED ? shifted(a[k], b[k], off) : a[k]);
            }
        }
    }

    // Writes every `chunks`-th chunk from `chunk` on. The bytes before and behind the vectors belong to chunk 0.
    INLINE void write(u64 chunk, u64 chunks) const {
        u64 vectors = (bytes - head) / VECTOR_BYTES;
        if (chunk == 0) {
            u64 tail = head + vectors * VECTOR_BYTES;
            for (u64 at = threadIdx.x; at < head; at += blockDim.x) store(to + at, byte(at));
            for (u64 at = tail + threadIdx.x; at < bytes; at += blockDim.x) store(to + at, byte(at));
        }
        // The vectors for which loads inside the source suffice.
        u32 off = u32((from + head) % VECTOR_BYTES);
        u64 low = head < off, needed = off ? 2 * VECTOR_BYTES - off : VECTOR_BYTES, kept = smaller(len, bytes);
        u64 high = kept >= head + needed ? (kept - head - needed) / VECTOR_BYTES + 1 : 0;
        for (; chunk * CHUNK_VECTORS < vectors; chunk += chunks) {
            u64 first = chunk * CHUNK_VECTORS, end = smaller(first + CHUNK_VECTORS, vectors);
            u64 whole = smaller(first > low ? first : low, end), until = smaller(high, end);
            until = until > whole ? until : whole;
            write_vectors<EDGE>(first, whole);
            if (off == 0) {
                write_vectors<ALIGNED>(whole, until);
            } else {
                write_vectors<SHIFTED>(whole, until);
            }
            write_vectors<EDGE>(until, end);
        }
    }
};

// The element of `size` bytes (1, 2, 4 or 8), repeated.
INLINE u64 repeated(u64 pattern, u32 size) {
    if (size == 1) pattern = (pattern & 0xff) * 0x0101;
    if (size <= 2) pattern = (pattern & 0xffff) * 0x10001;
    if (size <= 4) pattern = (pattern & 0xffffffff) * 0x100000001;
    return pattern;
}

// Grid: y over pieces, x over chunks of 16 KiB of a piece. The host checked that all pieces lie inside the `bytes`
// bytes at `to`, but the table may have changed since: a piece that does not is left out.
KERNEL ur_gather(u64 to, u64 bytes, u64 pieces, u32 n) {
    for (u64 index = blockIdx.y; index < n; index += gridDim.y) {
        Piece piece = record<Piece>(pieces, index);
        if (piece.to > bytes || piece.len > bytes - piece.to) continue;
        Span(to + piece.to, piece.len, piece.from, piece.len, 0).write(blockIdx.x, gridDim.x);
    }
}

// Grid: over chunks of 16 KiB.
KERNEL ur_fill(u64 to, u64 bytes, u64 pattern, u32 size) {
    Span(to, bytes, 0, 0, repeated(pattern, size)).write(flat_block(), flat_blocks());
}

// Grid: y over rows, x over chunks of 16 KiB of a row.
KERNEL ur_pad(u64 to, u64 rows, u32 n, u64 row_bytes, u64 pattern, u32 size) {
    pattern = repeated(pattern, size);
    for (u64 index = blockIdx.y; index < n; index += gridDim.y) {
        Row row = record<Row>(rows, index);
        Span(to + index * row_bytes, row_bytes, row.from, row.len, pattern).write(blockIdx.x, gridDim.x);
    }
}
