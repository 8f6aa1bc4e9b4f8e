// Runs the kernels on the processor for tests/kernels_emulated.rs. It reads cases from stdin and writes the
// destinations to stdout.
//
// Each source and destination is an allocation of exactly its bytes, so that the sanitizers that this is compiled with
// see every access outside it and every misaligned one. Numbers are little-endian.
#include "emulate.h"

#ifdef KERNELS_PTX
// What tests/loaders/ptx.rs makes of kernels.ptx.
#include "kernels_ptx.h"
#else
#include "burn.cu"
#include "bytes.cu"
#include "images.cu"
#include "resample.cu"
#include "tokens.cu"
#endif

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#endif

static void read_bytes(void *to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) exit(1);
}

template <typename T>
static T read_number() {
    T number;
    read_bytes(&number, sizeof number);
    return number;
}

// Bytes at an address `off` behind a multiple of 64.
struct Memory {
    static const size_t MARGIN = 64;
    size_t bytes, off;
    char *start;

    Memory() : bytes(read_number<u64>()), off(read_number<u64>()) {
        size_t all = MARGIN + off + bytes;
        if (posix_memalign(reinterpret_cast<void **>(&start), MARGIN, all ? all : 1) != 0) exit(1);
        read_bytes(start + MARGIN + off, bytes);
        ASAN_POISON_MEMORY_REGION(start, MARGIN + off);
    }
    ~Memory() {
        ASAN_UNPOISON_MEMORY_REGION(start, MARGIN + off);
        free(start);
    }
    u64 address() const { return reinterpret_cast<u64>(start + MARGIN + off); }
};

template <typename Kernel>
static void launch(Dim grid, unsigned block, Kernel kernel) {
    gridDim = grid;
    blockDim = {block, 1};
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) kernel();
}

static void run(u32 kernel, Dim grid, u32 block) {
    std::vector<std::unique_ptr<Memory>> to, from;
    for (u32 left = read_number<u32>(); left > 0; left--) to.emplace_back(new Memory);
    for (u32 left = read_number<u32>(); left > 0; left--) from.emplace_back(new Memory);
    u32 records = read_number<u32>(), record_bytes = read_number<u32>();
    std::vector<u64> table(size_t(records) * record_bytes / 8);
    read_bytes(table.data(), table.size() * 8);
    // The first number of a record is the index of its source; the third of a pass is that of its weights.
    for (size_t at = 0; at < table.size(); at += record_bytes / 8) {
        table[at] = from.at(table[at])->address();
        if (kernel == 10) table[at + 2] = from.at(table[at + 2])->address();
    }
    std::vector<u64> n(read_number<u32>());
    read_bytes(n.data(), n.size() * 8);

    u64 first = to.at(0)->address(), second = to.size() > 1 ? to[1]->address() : 0;
    u64 rows = reinterpret_cast<u64>(table.data());
    auto f = [&](size_t index) { return __uint_as_float(u32(n.at(index))); };
    auto images = [&](decltype(ur_images_u8) kernel) {
        kernel(first, rows, records, n.at(0), n.at(1), n.at(2), n.at(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10),
               f(11), f(12), f(13), f(14), f(15));
    };
    launch(grid, block, [&] {
        switch (kernel) {
            case 0: return ur_gather(first, to[0]->bytes, rows, records);
            case 1: return ur_fill(first, n.at(0), n.at(1), n.at(2));
            case 2: return ur_pad(first, rows, records, n.at(0), n.at(1), n.at(2));
            case 3: return ur_tokens_u16(first, second, rows, records, n.at(0), n.at(1), n.at(2));
            case 4: return ur_tokens_u32(first, second, rows, records, n.at(0), n.at(1), n.at(2));
            case 5: return images(ur_images_u8);
            case 6: return images(ur_images_f32);
            case 7: return images(ur_images_f16);
            case 8: return images(ur_images_bf16);
            case 9: return ur_burn(first, n.at(0), n.at(1));
            case 10: return ur_resample(first, to[0]->bytes, rows, records);
            default: exit(1);
        }
    });
    for (auto &memory : to) fwrite(memory->start + Memory::MARGIN + memory->off, 1, memory->bytes, stdout);
    fflush(stdout);
}

int main() {
    u32 kernel;
    while (fread(&kernel, 1, sizeof kernel, stdin) == sizeof kernel) {
        u32 x = read_number<u32>(), y = read_number<u32>(), block = read_number<u32>();
        run(kernel, {x, y}, block);
    }
}
