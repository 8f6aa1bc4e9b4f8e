/* Batches in C: order, poll, tensors by DLPack, a state to resume from.
 *   cc train.c $(pkg-config --cflags --libs uringload) && ./a.out FILE   (records of 64 int32) */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uringload.h>

/* DLManagedTensorVersioned of dlpack.h, for any library that takes one. */
typedef struct managed managed;
struct managed { uint32_t version[2]; void *of; void (*deleter)(managed *); uint64_t flags; ul_tensor tensor; };

static void check(int status, ul_error *const *error) {
    ul_error_info info = {.size = sizeof info};
    if (status != UL_ERROR) return;
    ul_error_get(*error, &info);
    fprintf(stderr, "%s\n", info.message);
    ul_error_free(*error);
    exit(1);
}

/* Takes up to `most` batches and adds up their elements. Returns the state after the last one. */
static char *train(const ul_dataset *data, const char *state, int most, int64_t *sum) {
    ul_error *error = NULL;
    ul_loader *loader = NULL;
    const char *told = NULL;
    check(ul_loader_new(data, "{\"batch_size\": 16, \"shuffle\": true, \"seed\": 7}", state, &loader, &error), &error);
    struct pollfd ready = {.events = POLLIN};
    check(ul_loader_ready_fd(loader, &ready.fd, &error), &error);
    for (ul_batch *batch; most > 0; most--) {
        int status;
        while ((status = ul_loader_next(loader, 0, &batch, &error)) == UL_TIMEOUT) poll(&ready, 1, -1);
        check(status, &error);
        if (status == UL_END) break;
        managed *numbers = NULL;
        check(ul_batch_export(batch, 0, UL_DLPACK, &numbers, NULL, &error), &error);
        ul_batch_free(batch); /* the tensor keeps its memory */
        const int32_t *elements = numbers->tensor.data;
        for (int64_t i = 0; i < numbers->tensor.shape[0] * numbers->tensor.shape[1]; i++) *sum += elements[i];
        numbers->deleter(numbers);
    }
    check(ul_loader_tell(loader, UL_STATE, &told, &error), &error);
    char *saved = strdup(told); /* a checkpoint; the text itself is the loader's */
    ul_loader_free(loader);
    return saved;
}

int main(int count, char **arguments) {
    ul_error *error = NULL;
    ul_dataset *data = NULL;
    uint32_t abi = 0;
    const char *options = "{\"format\": \"records\", \"record_bytes\": 256, \"dtype\": \"i32\", \"shape\": [64]}";
    if (count != 2 || (ul_version(&abi), abi) != UL_ABI) return 2;
    check(ul_dataset_open((const char *const *)&arguments[1], 1, options, &data, &error), &error);
    int64_t sum = 0;
    char *state = train(data, NULL, 10, &sum), *end = train(data, state, 1 << 30, &sum); /* after the tenth batch */
    printf("sum %lld\n", (long long)sum);
    free(state), free(end);
    ul_dataset_free(data);
}
