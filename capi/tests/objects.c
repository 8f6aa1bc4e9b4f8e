/* Prints each sample of a dataset, wherever that is: its number, and for each column its name, length and a hash.
 *   ./objects PLACE OPTIONS   (a path or a URL, and the dataset's options as JSON) */
#include <stdio.h>
#include <stdlib.h>
#include <uringload.h>

static void check(int status, ul_error *const *error) {
    ul_error_info info = {.size = sizeof info};
    if (status != UL_ERROR) return;
    ul_error_get(*error, &info);
    fprintf(stderr, "%s: %s\n", info.kind, info.message);
    ul_error_free(*error);
    exit(1);
}

static uint64_t hash(ul_bytes bytes) {
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t at = 0; at < bytes.len; at++) sum = (sum ^ bytes.data[at]) * 0x100000001b3u;
    return sum;
}

static void print(const ul_batch *batch) {
    ul_error *error = NULL;
    ul_batch_info info = {.size = sizeof info};
    check(ul_batch_get(batch, &info, &error), &error);
    for (uint64_t sample = 0; sample < info.samples; sample++) {
        printf("%llu", (unsigned long long)info.ids[sample]);
        for (uint64_t index = 0; index < info.columns; index++) {
            ul_column column = {.size = sizeof column};
            check(ul_batch_column(batch, index, &column, &error), &error);
            if (column.form == UL_VIEWS) {
                ul_bytes view = column.views[sample];
                printf(" %s %zu %016llx", column.name, view.len, (unsigned long long)hash(view));
            } else if (column.form == UL_DENSE) {
                size_t len = column.values.bits / 8;
                for (int at = 1; at < column.values.ndim; at++) len *= (size_t)column.values.shape[at];
                const uint8_t *data = (const uint8_t *)column.values.data + column.values.byte_offset;
                ul_bytes value = {data + sample * len, len};
                printf(" %s %zu %016llx", column.name, len, (unsigned long long)hash(value));
            } else {
                exit(3);
            }
        }
        printf("\n");
    }
}

int main(int count, char **arguments) {
    ul_error *error = NULL;
    ul_dataset *data = NULL;
    ul_loader *loader = NULL;
    int status;
    if (count != 3) return 2;
    check(ul_dataset_open((const char *const *)&arguments[1], 1, arguments[2], &data, &error), &error);
    check(ul_loader_new(data, "{\"batch_size\": 16, \"shuffle\": true, \"seed\": 3}", NULL, &loader, &error), &error);
    for (ul_batch *batch; (status = ul_loader_next(loader, -1, &batch, &error)) == UL_OK; ul_batch_free(batch)) {
        print(batch);
    }
    check(status, &error);
    ul_loader_free(loader);
    ul_dataset_free(data);
    return status == UL_END ? 0 : 1;
}
