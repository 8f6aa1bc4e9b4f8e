/* Batches in the memory of a GPU, or of a mock of one: a.out FILE LIBCUDA, where the file has records of 64 numbers,
 * each 64 times that of the record, and the library is a mock that counts what is alive and what was done wrong. */
#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uringload.h>

enum { RECORDS = 1000, BATCH = 16, BYTES = 256 };

typedef struct managed managed;
struct managed { uint32_t version[2]; void *of; void (*deleter)(managed *); uint64_t flags; ul_tensor tensor; };

static void *driver;

/* A function of the driver or of the mock. */
static void *symbol(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) fprintf(stderr, "no %s\n", name), abort();
    return found;
}

static uint64_t alive(const char *name) {
    int (*count)(const char *, uint64_t *);
    uint64_t number = 0;
    *(void **)&count = symbol("mock_cuda_count");
    assert(count(name, &number) == 0);
    return number;
}

static void *stream_of_trainer(void) {
    int (*init)(unsigned), (*retain)(void **, int), (*push)(void *), (*create)(void **, unsigned, int);
    void *context = NULL, *stream = NULL;
    *(void **)&init = symbol("cuInit"), *(void **)&retain = symbol("cuDevicePrimaryCtxRetain");
    *(void **)&push = symbol("cuCtxPushCurrent_v2"), *(void **)&create = symbol("cuStreamCreateWithPriority");
    assert(!init(0) && !retain(&context, 0) && !push(context) && !create(&stream, 1, 0));
    return stream;
}

static void leave(void *stream) {
    int (*destroy)(void *), (*pop)(void **), (*release)(int);
    void *context;
    *(void **)&destroy = symbol("cuStreamDestroy_v2"), *(void **)&pop = symbol("cuCtxPopCurrent_v2");
    *(void **)&release = symbol("cuDevicePrimaryCtxRelease_v2");
    assert(!destroy(stream) && !pop(&context) && !release(0));
}

/* What a kernel of the trainer reads in its stream, after all that is there. */
static int64_t sum_in(void *stream, const void *address, size_t bytes) {
    int (*consume)(void *, uint64_t, size_t, uint64_t, size_t *), (*consumed)(void *, size_t, void *, size_t);
    int32_t numbers[BATCH * 64];
    size_t answer = 0;
    int64_t sum = 0;
    *(void **)&consume = symbol("mock_cuda_consume"), *(void **)&consumed = symbol("mock_cuda_consumed");
    assert(bytes <= sizeof numbers && !consume(stream, (uint64_t)(uintptr_t)address, bytes, 200, &answer));
    assert(!consumed(stream, answer, numbers, bytes));
    for (size_t i = 0; i < bytes / sizeof *numbers; i++) sum += numbers[i];
    return sum;
}

/* The host learns that all in the stream is done. A batch whose stream was not named is given back after this. */
static void settle(void *stream) {
    int (*synchronize)(void *);
    *(void **)&synchronize = symbol("cuStreamSynchronize");
    assert(!synchronize(stream));
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    driver = dlopen(arguments[2], RTLD_NOW);
    assert(driver);
    void *stream = stream_of_trainer();
    ul_dataset *data = NULL;
    ul_loader *loader = NULL;
    ul_batch *batch = NULL;
    const char *records = "{\"format\": \"records\", \"record_bytes\": 256, \"dtype\": \"i32\", \"shape\": [64]}";
    assert(ul_dataset_open((const char *const *)&arguments[1], 1, records, &data, NULL) == UL_OK);
    char options[4500];
    const char *form = "{\"batch_size\": %d, \"shuffle\": \"full\", \"device\": \"cuda:0\", \"gds\": \"off\", "
                       "\"key\": true, \"device_memory\": \"1MiB\", \"cuda_library\": \"%s\"}";
    snprintf(options, sizeof options, form, BATCH, arguments[2]);
    ul_error *error = NULL;
    int status = ul_loader_new(data, options, NULL, &loader, &error);
    ul_error_info info = {.size = sizeof info};
    if (status != UL_OK) ul_error_get(error, &info), fprintf(stderr, "%s\n", info.message), abort();

    int64_t sum = 0;
    for (int number = 0; ul_loader_next(loader, 20000, &batch, &error) == UL_OK; number++) {
        ul_column column = {.size = sizeof column}, keys = {.size = sizeof keys};
        assert(ul_batch_column(batch, 0, &column, NULL) == UL_OK && ul_batch_column(batch, 1, &keys, NULL) == UL_OK);
        assert(column.values.device_type == 2 && column.values.device_id == 0 && column.form == UL_DENSE);
        assert(column.values.shape[1] == 64 && keys.form == UL_VIEWS && keys.values.device_type == 1);
        managed *tensor = NULL;
        struct ArrowDeviceArray array;
        struct ArrowArray host;
        struct ArrowSchema type;
        switch (number % 3) {
        case 0: /* a tensor that outlives its batch, in a stream that waits on the device */
            assert(ul_batch_wait_on(batch, stream, NULL) == UL_OK);
            assert(ul_batch_export(batch, 0, UL_DLPACK, &tensor, NULL, NULL) == UL_OK);
            ul_batch_free(batch), batch = NULL;
            assert(tensor->tensor.device_type == 2 && tensor->tensor.data == column.values.data);
            sum += sum_in(stream, tensor->tensor.data, (size_t)tensor->tensor.shape[0] * BYTES);
            tensor->deleter(tensor);
            break;
        case 1: /* an array of Arrow, which is there */
            assert(ul_batch_export(batch, 0, UL_ARROW, &host, NULL, NULL) == UL_ERROR);
            assert(ul_batch_export(batch, UL_ALL, UL_ARROW_DEVICE, &array, NULL, NULL) == UL_ERROR);
            assert(ul_batch_export(batch, 0, UL_ARROW_DEVICE, &array, &type, NULL) == UL_OK);
            ul_batch_free(batch), batch = NULL;
            assert(array.device_type == ARROW_DEVICE_CUDA && array.device_id == 0 && !array.sync_event);
            assert(array.array.children[0]->buffers[1] == column.values.data && !strcmp(type.format, "+w:64"));
            sum += sum_in(stream, array.array.children[0]->buffers[1], (size_t)array.array.length * BYTES);
            settle(stream);
            array.array.release(&array.array), type.release(&type);
            break;
        default: /* a wait on the host */
            assert(ul_batch_wait_on(batch, UL_HOST, NULL) == UL_OK);
            sum += sum_in(stream, column.values.data, (size_t)column.values.shape[0] * BYTES);
            settle(stream);
        }
        ul_batch_free(batch);
    }
    assert(!error);
    ul_loader_free(loader);
    ul_dataset_free(data);
    leave(stream);
    const char *names[] = {"contexts", "streams", "events", "modules", "allocations", "registrations"};
    for (int i = 0; i < 6; i++) {
        if (alive(names[i])) fprintf(stderr, "%s are alive: %d\n", names[i], (int)alive(names[i])), abort();
    }
    int (*violation)(size_t, char *, int);
    char text[512];
    *(void **)&violation = symbol("mock_cuda_violation");
    if (!violation(0, text, sizeof text)) fprintf(stderr, "%s\n", text), abort();
    printf("sum %lld\n", (long long)sum);
}
