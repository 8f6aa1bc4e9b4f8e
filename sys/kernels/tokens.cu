// Tokens of 2 or 4 bytes to ids and labels of 8 bytes. Destinations are aligned to 8.
#include "common.cuh"

// One row of ids or of labels: element j is token j + `ahead`, or `behind` if there is none.
template <typename Token, bool ALIGNED>
struct TokenRow {
    // Fewer in flight than for bytes: a row writes at least four times what it reads, and nobody waits for writes.
    enum : u32 { VECTORS = ALIGNED ? IN_FLIGHT / 2 : 1 };
    u64 to, from, tokens, ahead;
    i64 behind;

    INLINE i64 element(u64 at) const {
        at += ahead;
        if (at >= tokens) return behind;
        u64 address = from + at * sizeof(Token);
        if (ALIGNED) return load<Token>(address);
        u32 token = 0;
#pragma unroll
        for (u32 index = 0; index < sizeof(Token); index++) token |= u32(load<u8>(address + index)) << (index * 8);
        return token;
    }

    // Writes the elements of one chunk. The ones before and behind whole vectors belong to chunk 0.
    INLINE void write(u64 chunk, u64 seq_len) const {
        u64 head = smaller(to / 8 % 2, seq_len), pairs = (seq_len - head) / 2;
        if (chunk == 0) {
            u64 tail = head + pairs * 2;
            if (threadIdx.x == 0 && head == 1) store(to, element(0));
            if (threadIdx.x == 0 && tail < seq_len) store(to + tail * 8, element(tail));
        }
        u64 end = smaller(chunk * CHUNK_VECTORS + CHUNK_VECTORS, pairs);
        for (u64 first = chunk * CHUNK_VECTORS + threadIdx.x; first < end; first += u64(blockDim.x) * VECTORS) {
            longlong2 values[VECTORS];
#pragma unroll
            for (u32 k = 0; k < VECTORS; k++) {
                u64 at = head + (first + k * blockDim.x) * 2;
                // Behind the chunk's end there may or may not be a token. Either way it is an element that nobody
                // writes.
                values[k] = make_longlong2(element(at), element(at + 1));
            }
#pragma unroll
            for (u32 k = 0; k < VECTORS; k++) {
                u64 index = first + k * blockDim.x;
                if (index < end) store(to + (head + index * 2) * 8, values[k]);
            }
        }
    }
};

// Writes the chunks of a row of ids and of labels that belong to this block.
template <typename Token, bool ALIGNED>
INLINE void write_row(u64 ids, u64 labels, Row row, u64 seq_len, i64 pad_id, i64 ignore) {
    u64 tokens = row.len / sizeof(Token);
    TokenRow<Token, ALIGNED> id_row = {ids, row.from, tokens, 0, pad_id};
    TokenRow<Token, ALIGNED> label_row = {labels, row.from, tokens, 1, ignore};
    // Labels right after ids, while the tokens are in the cache.
    for (u64 chunk = blockIdx.x; chunk * (CHUNK_VECTORS * 2) < seq_len; chunk += gridDim.x) {
        id_row.write(chunk, seq_len);
        if (labels) label_row.write(chunk, seq_len);
    }
}

template <typename Token>
INLINE void write_rows(u64 ids, u64 labels, u64 rows, u32 n, u64 seq_len, i64 pad_id, i64 ignore) {
    for (u64 index = blockIdx.y; index < n; index += gridDim.y) {
        Row row = record<Row>(rows, index);
        u64 at = index * seq_len * 8, row_labels = labels ? labels + at : 0;
        if (row.from % sizeof(Token) == 0) {
            write_row<Token, true>(ids + at, row_labels, row, seq_len, pad_id, ignore);
        } else {
            write_row<Token, false>(ids + at, row_labels, row, seq_len, pad_id, ignore);
        }
    }
}

// Grid of both: y over rows, x over chunks of 2048 elements of a row.
KERNEL ur_tokens_u16(u64 ids, u64 labels, u64 rows, u32 n, u64 seq_len, i64 pad_id, i64 ignore) {
    write_rows<u16>(ids, labels, rows, n, seq_len, pad_id, ignore);
}

KERNEL ur_tokens_u32(u64 ids, u64 labels, u64 rows, u32 n, u64 seq_len, i64 pad_id, i64 ignore) {
    write_rows<u32>(ids, labels, rows, n, seq_len, pad_id, ignore);
}
