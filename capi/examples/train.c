/* Batches in C: order, poll, DLPack's layout, a state to resume from.
 *   cc train.c $(pkg-config --cflags --libs uringload) && ./a.out FILE   (records of 64 int32) */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <uringload.h>

static void check(int status, ul_error *const *error) {
    ul_error_info info = {.size = sizeof info};
    if (status != UL_ERROR) return;
    ul_error_get(*error, &info);
    fprintf(stderr, "%s\n", info.message);
    ul_error_free(*error);
    exit(1);
}

/* Takes up to `most` batches and adds up their elements. Returns the state behind the last one. */
static char *train(const ul_dataset *data, const char *state, int most, int64_t *sum) {
    ul_error *error = NULL;
    ul_loader *loader = NULL;
    char *saved = NULL;
    check(ul_loader_new(data, "{\"batch_size\": 16, \"shuffle\": true, \"seed\": 7}", state, &loader, &error), &error);
    struct pollfd ready = {.events = POLLIN};
    check(ul_loader_ready_fd(loader, &ready.fd, &error), &error);
    while (most > 0) {
        ul_batch *batch = NULL;
        int status = ul_loader_next(loader, 0, &batch, &error);
        check(status, &error);
        if (status == UL_END) break;
        if (status == UL_TIMEOUT) {
            poll(&ready, 1, -1); /* an event loop does other work here */
            continue;
        }
        ul_column column = {.size = sizeof column};
        check(ul_batch_column(batch, 0, &column, &error), &error);
        const int32_t *elements = column.values.data;
        for (int64_t i = 0; i < column.values.shape[0] * column.values.shape[1]; i++) *sum += elements[i];
        ul_batch_free(batch);
        most--;
    }
    check(ul_loader_tell(loader, UL_STATE, &saved, &error), &error);
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
    char *state = train(data, NULL, 10, &sum);
    char *end = train(data, state, 1 << 30, &sum); /* goes on behind the tenth batch */
    printf("sum %lld\n", (long long)sum);
    ul_text_free(state);
    ul_text_free(end);
    ul_dataset_free(data);
}
