// A dataset of callbacks, tensors handed over by DLPack, and bytes in an order of one's own, in C++.
//   c++ tensors.cpp $(pkg-config --cflags --libs uringload) && ./a.out FILE   (any file of 4096 bytes or more)
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <uringload.h>

// What dlpack.h declares; libtorch takes it by torch::utils::fromDLPack or at::fromDLPackVersioned.
struct Managed {
    uint32_t major, minor;
    void *context;
    void (*deleter)(Managed *);
    uint64_t flags;
    ul_tensor tensor;
};

template <typename T, void (*Free)(T *)> struct Freed { void operator()(T *handle) const { Free(handle); } };
using Dataset = std::unique_ptr<ul_dataset, Freed<ul_dataset, ul_dataset_free>>;
using Loader = std::unique_ptr<ul_loader, Freed<ul_loader, ul_loader_free>>;
using Reader = std::unique_ptr<ul_reader, Freed<ul_reader, ul_reader_free>>;

// Errors become exceptions on this side; none may cross into the library. The error is read behind the call that sets
// it: C and C++ evaluate arguments in any order.
static int check(int status, ul_error *const *error) {
    if (status != UL_ERROR) return status;
    ul_error_info info{};
    info.size = sizeof info;
    ul_error_get(*error, &info);
    std::string message = info.message;
    ul_error_free(*error);
    throw std::runtime_error(message);
}

// Sample i is the 16 bytes from 16 i on, as four numbers.
static int spans(void *, uint64_t sample, ul_span *out, size_t, size_t *count) {
    out[0] = ul_span{0, sample * 16, 16};
    *count = 1;
    return 0;
}

int main(int count, char **arguments) try {
    if (count != 2) return 2;
    ul_error *error = nullptr;
    const uint64_t shape[] = {4};
    const ul_field field{"numbers", "i32", shape, 1};
    ul_source source{};
    source.size = sizeof source;
    source.paths = &arguments[1];
    source.path_count = 1;
    source.fields = &field;
    source.field_count = 1;
    source.samples = 256;
    source.spans = spans;
    ul_dataset *made = nullptr;
    check(ul_dataset_of(&source, &made, &error), &error);
    Dataset data(made);

    ul_loader *started = nullptr;
    check(ul_loader_new(data.get(), R"({"batch_size": 32, "shuffle": "full"})", nullptr, &started, &error), &error);
    Loader loader(started);
    uint64_t elements = 0;
    for (ul_batch *batch = nullptr; check(ul_loader_next(loader.get(), -1, &batch, &error), &error) == UL_OK;) {
        void *raw = nullptr;
        int status = ul_batch_export(batch, 0, UL_DLPACK, &raw, nullptr, &error);
        ul_batch_free(batch); // the tensor outlives it
        check(status, &error);
        auto tensor = static_cast<Managed *>(raw);
        elements += tensor->tensor.shape[0] * tensor->tensor.shape[1];
        tensor->deleter(tensor);
    }

    ul_reader *opened = nullptr;
    check(ul_reader_new(data.get(), R"({"memory_limit": "1MiB"})", &opened, &error), &error);
    Reader reader(opened);
    for (uint64_t id = 0; id < 8; id++) {
        const ul_span half[] = {{0, id * 512, 100}, {0, 4096 - 50, 50}};
        check(ul_reader_submit(reader.get(), id, half, 2, &error), &error);
    }
    ul_reader_cancel(reader.get(), 3);
    uint64_t id = 0, bytes = 0;
    for (ul_batch *answer = nullptr; check(ul_reader_next(reader.get(), -1, &id, &answer, &error), &error) == UL_OK;) {
        ul_column column{};
        column.size = sizeof column;
        check(ul_batch_column(answer, 0, &column, &error), &error);
        bytes += column.values.shape[1];
        ul_batch_free(answer);
    }
    std::printf("elements %llu, bytes %llu\n", (unsigned long long)elements, (unsigned long long)bytes);
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
