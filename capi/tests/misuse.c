/* Every function of the header with what it must not be given: null for each address, sizes of structs of other
 * headers, numbers out of range, options of no sense, several threads, and a child that was forked. Each is a status
 * with an error that says which argument it is, or does nothing; an error of NULL is fine everywhere. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uringload.h>

static int refused;

/* The call failed, and its error names `what`. */
static void is_refused(int32_t status, ul_error *error, const char *what) {
    ul_error_info info = {.size = sizeof info};
    assert(status == UL_ERROR && error);
    assert(ul_error_get(error, &info) == UL_OK);
    if (!strstr(info.message, what)) fprintf(stderr, "%s\nsays nothing of %s\n", info.message, what), abort();
    assert(*info.kind && *info.what && info.remedy && *info.remedy);
    ul_error_free(error);
    refused++;
}

#define REFUSED(what, call) \
    do { \
        ul_error *error = (ul_error *)-1; \
        int32_t status = call; \
        is_refused(status, error, what); \
    } while (0)

static int spans(void *context, uint64_t sample, ul_span *out, size_t room, size_t *count) {
    (void)context, (void)room;
    out[0] = (ul_span){0, sample * 4, 4};
    *count = 1;
    return 0;
}

static void errors(void) {
    ul_error *error = NULL;
    ul_error_info info = {.size = sizeof info}, untouched = {.size = 0};
    assert(ul_dataset_get(NULL, NULL, &error) == UL_ERROR && error);
    assert(ul_error_get(NULL, &info) == UL_ERROR);
    assert(ul_error_get(error, NULL) == UL_ERROR);
    assert(ul_error_get(error, &untouched) == UL_ERROR && !untouched.message);
    /* A struct of a header that knows the message only, and of one that knows more. */
    ul_error_info small = {.size = offsetof(ul_error_info, kind)};
    assert(ul_error_get(error, &small) == UL_OK && small.message && !small.kind && !small.what);
    struct { ul_error_info info; uint64_t more; } large = {{.size = sizeof large}, 7};
    assert(ul_error_get(error, &large.info) == UL_OK && large.info.remedy && large.more == 7);
    ul_error_free(error);
    ul_error_free(NULL);
    assert(ul_version(NULL) && *ul_version(NULL));
}

static void datasets(const char *path) {
    ul_dataset *data = NULL;
    const char *none[] = {NULL}, *nowhere[] = {"/nowhere/at all"}, *paths[] = {path};
    const char *latin[] = {"\xff\xfe"};
    REFUSED("paths is null", ul_dataset_open(NULL, 1, NULL, &data, &error));
    REFUSED("no paths", ul_dataset_open(paths, 0, NULL, &data, &error));
    REFUSED("a path is null", ul_dataset_open(none, 1, NULL, &data, &error));
    REFUSED("there is no nowhere in /", ul_dataset_open(nowhere, 1, NULL, &data, &error));
    REFUSED("", ul_dataset_open(latin, 1, NULL, &data, &error));
    REFUSED("UTF-8", ul_dataset_open(paths, 1, "{\"format\": \"\xff\"}", &data, &error));
    REFUSED("no JSON object", ul_dataset_open(paths, 1, "[", &data, &error));
    REFUSED("no JSON object", ul_dataset_open(paths, 1, "[1]", &data, &error));
    REFUSED("steam", ul_dataset_open(paths, 1, "{\"format\": \"steam\"}", &data, &error));
    REFUSED("record_bites", ul_dataset_open(paths, 1, "{\"format\": \"records\", \"record_bites\": 4}", &data, &error));
    REFUSED("null", ul_dataset_open(paths, 1, "{\"format\": \"records\", \"record_bytes\": 4}", NULL, &error));
    REFUSED("1 datasets", ul_dataset_open(paths, 1, "{\"record_bytes\": 4, \"weights\": [1, 2]}", &data, &error));
    REFUSED("exclude", ul_dataset_open(paths, 1, "{\"record_bytes\": 4, \"exclude\": [{}]}", &data, &error));
    REFUSED("/nowhere", ul_dataset_open(paths, 1, "{\"record_bytes\": 4, \"only\": \"/nowhere\"}", &data, &error));
    assert(!data);

    const uint64_t huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 40}, scalar[] = {0};
    ul_field field = {"n", "i32", scalar, 0}, twice[] = {{"n", "i32", scalar, 0}, {"n", "i32", scalar, 0}};
    ul_source good = {.size = sizeof good, .paths = paths, .path_count = 1, .fields = &field, .field_count = 1};
    good.samples = 10, good.spans = spans;
    ul_source source = good;
    REFUSED("source is null", ul_dataset_of(NULL, &data, &error));
    REFUSED("out is null", ul_dataset_of(&source, NULL, &error));
    source.size = 0;
    REFUSED("source.size is 0", ul_dataset_of(&source, &data, &error));
    source.size = offsetof(ul_source, spans);
    REFUSED("source.size", ul_dataset_of(&source, &data, &error));
    source = good, source.spans = NULL;
    REFUSED("source.spans is null", ul_dataset_of(&source, &data, &error));
    source = good, source.paths = NULL;
    REFUSED("source.paths is null", ul_dataset_of(&source, &data, &error));
    source = good, source.paths = nowhere;
    REFUSED("/nowhere/at all", ul_dataset_of(&source, &data, &error));
    source = good, source.fields = NULL;
    REFUSED("source.fields is null", ul_dataset_of(&source, &data, &error));
    source = good, source.field_count = 0;
    REFUSED("no fields", ul_dataset_of(&source, &data, &error));
    source = good, source.samples = UINT64_MAX;
    REFUSED("source.largest", ul_dataset_of(&source, &data, &error));
    field.name = NULL;
    REFUSED("no name", ul_dataset_of(&good, &data, &error));
    field.name = "n", field.dtype = NULL;
    REFUSED("n has the type", ul_dataset_of(&good, &data, &error));
    field.dtype = "elephant";
    REFUSED("elephant", ul_dataset_of(&good, &data, &error));
    assert(!data);

    /* What a loader refuses, or finds out. */
    field.dtype = "i32", field.shape = huge, field.dimensions = 2;
    ul_loader *loader = NULL;
    ul_batch *batch = NULL;
    if (ul_dataset_of(&good, &data, NULL) == UL_OK) {
        ul_error *error = NULL;
        int32_t status = ul_loader_new(data, NULL, NULL, &loader, &error);
        if (status == UL_OK) status = ul_loader_next(loader, 20000, &batch, &error);
        is_refused(status, error, "");
        ul_loader_free(loader);
    }
    ul_dataset_free(data);
    source = good, source.fields = twice, source.field_count = 2;
    if (ul_dataset_of(&source, &data, NULL) == UL_OK) {
        REFUSED("n", ul_loader_new(data, NULL, NULL, &loader, &error));
        ul_dataset_free(data);
    }
    field.shape = scalar, field.dimensions = 0;
    source = good, source.bytes = 40, source.largest = 3;
    assert(ul_dataset_of(&source, &data, NULL) == UL_OK);
    assert(ul_loader_new(data, NULL, NULL, &loader, NULL) == UL_OK);
    REFUSED("", ul_loader_next(loader, 20000, &batch, &error));
    ul_loader_free(loader);
    ul_dataset_free(data);
    /* The struct of the first header, which ends before `bytes`. */
    source = good, source.size = offsetof(ul_source, bytes), source.bytes = source.largest = 1;
    assert(ul_dataset_of(&source, &data, NULL) == UL_OK);

    ul_dataset_info info = {.size = sizeof info}, small = {.size = 16};
    REFUSED("dataset is null", ul_dataset_get(NULL, &info, &error));
    REFUSED("out is null", ul_dataset_get(data, NULL, &error));
    small.size = 7;
    REFUSED("out.size is 7", ul_dataset_get(data, &small, &error));
    small.size = 16;
    assert(ul_dataset_get(data, &small, NULL) == UL_OK && small.samples == 10 && !small.bytes);
    assert(ul_dataset_get(data, &info, NULL) == UL_OK && info.bytes == 40 && info.files == 1);
    ul_dataset_free(data);
    ul_dataset_free(NULL);
}

static ul_dataset *records(const char *path) {
    ul_dataset *data = NULL;
    const char *options = "{\"format\": \"records\", \"record_bytes\": 256, \"dtype\": \"i32\", \"shape\": [64]}";
    assert(ul_dataset_open(&path, 1, options, &data, NULL) == UL_OK);
    return data;
}

static void *cancels(void *loader) {
    usleep(50000);
    ul_loader_cancel(loader);
    return NULL;
}

static void *counts(void *loader) {
    uintptr_t samples = 0;
    ul_batch *batch;
    while (ul_loader_next(loader, -1, &batch, NULL) == UL_OK) {
        ul_batch_info info = {.size = sizeof info};
        assert(ul_batch_get(batch, &info, NULL) == UL_OK);
        samples += info.samples;
        ul_batch_free(batch);
    }
    return (void *)samples;
}

static void loaders(const char *path) {
    static const char *const options[][2] = {
        {"{\"batch_size\": -1}", "batch_size"}, {"{\"batch_size\": \"many\"}", "batch_size"},
        {"{\"batchsize\": 4}", "batchsize"}, {"{\"epochs\": 1.5}", "epochs"}, {"{\"rank\": 3}", "world_size"},
        {"{\"rank\": 3, \"world_size\": 2}", "rank"}, {"{\"shuffle\": \"sideways\"}", "sideways"},
        {"{\"engine\": \"steam\"}", "steam"}, {"{\"io\": \"steam\"}", "steam"}, {"{\"timeout\": -1}", "timeout"},
        {"{\"memory_limit\": \"4 elephants\"}", "memory_limit"}, {"{\"on_error\": \"cry\"}", "cry"},
        {"{\"collate\": \"knit\"}", "collate"}, {"{\"collate_columns\": 4}", "collate_columns"},
        {"{\"collate_columns\": {\"nothing\": \"dense\"}}", "nothing"}, {"{\"packing\": \"first_fit\"}", "seq_len"},
        {"{\"packing\": \"squeeze\", \"seq_len\": 8}", "packing"}, {"{\"row_window\": 8}", "row_window"},
        {"{\"bucket_boundaries\": [8]}", "bucket_batch_sizes"}, {"{\"transform\": \"dance(3)\"}", "image"},
        {"{\"transform\": \"dance(3)\", \"image_column\": \"data\"}", "dance"},
        {"{\"transform_column\": {\"data\": \"array(fly(4))\"}}", "fly"}, {"{\"transform_column\": [1]}", "column"},
        {"{\"image_dtype\": \"u8\"}", "transform"}, {"{\"device\": \"toaster\"}", "device"},
        {"{\"device\": \"host\", \"gds\": \"perhaps\"}", "gds"}, {"{\"gds\": \"off\"}", "device"},
        {"{\"device\": \"cuda:0\", \"nvjpeg\": 2}", "nvjpeg"}, {"{\"nvjpeg\": 0.5}", "device"},
        {"{\"device\": \"cuda:0\", \"cuda_library\": \"/nowhere/libcuda.so\"}", "/nowhere/libcuda.so"},
        {"{\"profile\": \"/nowhere/profile.toml\"}", "/nowhere/profile.toml"}, {"{\"cache\": \"attic\"}", "cache"},
        {"[]", "no JSON object"}, {"{", "no JSON object"}, {"\xff", "UTF-8"},
    };
    ul_dataset *data = records(path);
    ul_loader *loader = NULL;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        REFUSED(options[i][1], ul_loader_new(data, options[i][0], NULL, &loader, &error));
    }
    REFUSED("dataset is null", ul_loader_new(NULL, NULL, NULL, &loader, &error));
    REFUSED("out is null", ul_loader_new(data, NULL, NULL, NULL, &error));
    REFUSED("", ul_loader_new(data, NULL, "{}", &loader, &error));
    REFUSED("", ul_loader_new(data, NULL, "", &loader, &error));
    REFUSED("UTF-8", ul_loader_new(data, NULL, "\xff", &loader, &error));
    assert(!loader);

    assert(ul_loader_new(data, "{\"epochs\": null}", NULL, &loader, NULL) == UL_OK);
    ul_batch *batch = NULL;
    const char *text = NULL, *again = NULL;
    int fd = -1;
    REFUSED("loader is null", ul_loader_next(NULL, 0, &batch, &error));
    REFUSED("out is null", ul_loader_next(loader, 0, NULL, &error));
    REFUSED("loader is null", ul_loader_ready_fd(NULL, &fd, &error));
    REFUSED("out is null", ul_loader_ready_fd(loader, NULL, &error));
    REFUSED("loader is null", ul_loader_tell(NULL, UL_STATE, &text, &error));
    REFUSED("out is null", ul_loader_tell(loader, UL_STATE, NULL, &error));
    REFUSED("number 7", ul_loader_tell(loader, 7, &text, &error));
    REFUSED("number -1", ul_loader_tell(loader, -1, &text, &error));
    assert(!batch && !text && fd == -1);
    assert(ul_loader_tell(loader, UL_STATE, &text, NULL) == UL_OK && ul_loader_tell(loader, 1, &again, NULL) == UL_OK);
    assert(*text == '{' && *again && text != again);
    ul_loader_cancel(NULL);
    ul_loader_free(NULL);

    /* A wait without end is ended by another thread. */
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, cancels, loader));
    counts(loader);
    pthread_join(thread, NULL);
    assert(ul_loader_next(loader, -1, &batch, NULL) == UL_END && ul_loader_next(loader, 0, &batch, NULL) == UL_END);
    ul_loader_cancel(loader);
    ul_loader_free(loader);

    /* Threads that ask at a time take turns: no sample is lost, and none comes twice. */
    pthread_t threads[4];
    uintptr_t all = 0;
    assert(ul_loader_new(data, "{\"batch_size\": 7, \"shuffle\": true}", NULL, &loader, NULL) == UL_OK);
    for (int i = 0; i < 4; i++) assert(!pthread_create(&threads[i], NULL, counts, loader));
    for (int i = 0; i < 4; i++) {
        void *samples;
        pthread_join(threads[i], &samples);
        all += (uintptr_t)samples;
    }
    assert(all == 1000);
    ul_loader_free(loader);
    ul_dataset_free(data);
}

static void batches(const char *path) {
    ul_dataset *data = records(path);
    ul_loader *loader = NULL;
    ul_batch *batch = NULL;
    assert(ul_loader_new(data, NULL, NULL, &loader, NULL) == UL_OK);
    assert(ul_loader_next(loader, -1, &batch, NULL) == UL_OK);
    ul_batch_info info = {.size = sizeof info}, small = {.size = 4};
    ul_column column = {.size = sizeof column}, name = {.size = offsetof(ul_column, dtype)};
    void *tensor = NULL;
    REFUSED("batch is null", ul_batch_get(NULL, &info, &error));
    REFUSED("out is null", ul_batch_get(batch, NULL, &error));
    REFUSED("out.size is 4", ul_batch_get(batch, &small, &error));
    REFUSED("batch is null", ul_batch_column(NULL, 0, &column, &error));
    REFUSED("out is null", ul_batch_column(batch, 0, NULL, &error));
    REFUSED("no column 1 among 1", ul_batch_column(batch, 1, &column, &error));
    REFUSED("no column", ul_batch_column(batch, UINT64_MAX, &column, &error));
    REFUSED("batch is null", ul_batch_wait_on(NULL, NULL, &error));
    REFUSED("batch is null", ul_batch_export(NULL, 0, UL_DLPACK, &tensor, NULL, &error));
    REFUSED("out is null", ul_batch_export(batch, 0, UL_DLPACK, NULL, NULL, &error));
    REFUSED("no column 4", ul_batch_export(batch, 4, UL_DLPACK, &tensor, NULL, &error));
    REFUSED("no column", ul_batch_export(batch, UL_ALL, UL_DLPACK, &tensor, NULL, &error));
    REFUSED("no form 9", ul_batch_export(batch, 0, 9, &tensor, NULL, &error));
    assert(!tensor && !column.name && !info.ids);
    assert(ul_batch_column(batch, 0, &name, NULL) == UL_OK && name.name && !name.dtype && !name.values.data);
    /* On the host no stream plays a part. */
    assert(ul_batch_wait_on(batch, NULL, NULL) == UL_OK && ul_batch_wait_on(batch, UL_HOST, NULL) == UL_OK);
    ul_batch_free(NULL);

    /* What is left of a loader outlives it and its dataset. */
    ul_loader_free(loader);
    ul_dataset_free(data);
    assert(ul_batch_column(batch, 0, &column, NULL) == UL_OK && column.form == UL_DENSE);
    assert(((const int32_t *)column.values.data)[64] == 1);
    ul_batch_free(batch);
}

static void readers(const char *path) {
    ul_dataset *data = records(path);
    ul_reader *reader = NULL;
    ul_batch *batch = NULL;
    uint64_t id = 3;
    int fd = -1;
    const ul_span good = {0, 256, 256}, past = {0, 999 * 256, 257}, other = {1, 0, 4}, far = {UINT64_MAX, 0, 4};
    const ul_span endless = {0, UINT64_MAX, 4}, most = {0, 0, UINT64_MAX};
    REFUSED("dataset is null", ul_reader_new(NULL, NULL, &reader, &error));
    REFUSED("out is null", ul_reader_new(data, NULL, NULL, &error));
    REFUSED("batch_size", ul_reader_new(data, "{\"batch_size\": 4}", &reader, &error));
    REFUSED("steam", ul_reader_new(data, "{\"engine\": \"steam\"}", &reader, &error));
    assert(!reader && ul_reader_new(data, "{\"memory_limit\": \"1MiB\"}", &reader, NULL) == UL_OK);
    REFUSED("reader is null", ul_reader_submit(NULL, 1, &good, 1, &error));
    REFUSED("spans is null", ul_reader_submit(reader, 1, NULL, 1, &error));
    REFUSED("ends at byte", ul_reader_submit(reader, 1, &past, 1, &error));
    REFUSED("span", ul_reader_submit(reader, 1, &other, 1, &error));
    REFUSED("span", ul_reader_submit(reader, 1, &far, 1, &error));
    REFUSED("span", ul_reader_submit(reader, 1, &endless, 1, &error));
    REFUSED("span", ul_reader_submit(reader, 1, &most, 1, &error));
    REFUSED("reader is null", ul_reader_next(NULL, 0, &id, &batch, &error));
    REFUSED("id is null", ul_reader_next(reader, 0, NULL, &batch, &error));
    REFUSED("out is null", ul_reader_next(reader, 0, &id, NULL, &error));
    REFUSED("reader is null", ul_reader_ready_fd(NULL, &fd, &error));
    REFUSED("out is null", ul_reader_ready_fd(reader, NULL, &error));
    assert(!batch && fd == -1 && ul_reader_cancel(NULL, 1) == 0 && ul_reader_cancel(reader, 1) == 0);
    assert(ul_reader_next(reader, -1, &id, &batch, NULL) == UL_END && id == UINT64_MAX);
    /* No span at all is a request of no bytes. */
    assert(ul_reader_submit(reader, 8, NULL, 0, NULL) == UL_OK);
    assert(ul_reader_next(reader, -1, &id, &batch, NULL) == UL_OK && id == 8);
    ul_batch_free(batch);
    assert(ul_reader_submit(reader, 9, &good, 1, NULL) == UL_OK);
    REFUSED("request 9 is in flight", ul_reader_submit(reader, 9, &good, 1, &error));
    assert(ul_reader_next(reader, -1, &id, &batch, NULL) == UL_OK && id == 9);
    ul_reader_free(reader);
    ul_reader_free(NULL);
    ul_dataset_free(data);
    ul_column column = {.size = sizeof column};
    assert(ul_batch_column(batch, 0, &column, NULL) == UL_OK && *(const int32_t *)column.values.data == 1);
    ul_batch_free(batch);
}

/* Holds the loader's lock where the process is forked. */
static void *waits(void *loader) {
    ul_batch *batch;
    while (ul_loader_next(loader, -1, &batch, NULL) == UL_OK) ul_batch_free(batch);
    return NULL;
}

static void forks(const char *path) {
    ul_dataset *data = records(path);
    ul_loader *loader = NULL;
    ul_reader *reader = NULL;
    ul_batch *batch = NULL;
    const char *text = NULL;
    const ul_span span = {0, 0, 256};
    assert(ul_loader_new(data, "{\"epochs\": null, \"batch_size\": 8}", NULL, &loader, NULL) == UL_OK);
    assert(ul_reader_new(data, NULL, &reader, NULL) == UL_OK);
    assert(ul_loader_next(loader, -1, &batch, NULL) == UL_OK);
    assert(ul_reader_submit(reader, 1, &span, 1, NULL) == UL_OK);
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, waits, loader));
    for (int round = 0; round < 100; round++) {
        pid_t child = fork();
        assert(child >= 0);
        if (!child) {
            uint64_t id;
            int fd;
            alarm(20);
            REFUSED("forked", ul_loader_next(loader, -1, &batch, &error));
            REFUSED("forked", ul_loader_ready_fd(loader, &fd, &error));
            REFUSED("forked", ul_loader_tell(loader, UL_STATE, &text, &error));
            ul_loader_cancel(loader);
            REFUSED("forked", ul_reader_next(reader, -1, &id, &batch, &error));
            REFUSED("forked", ul_reader_submit(reader, 2, &span, 1, &error));
            REFUSED("forked", ul_reader_ready_fd(reader, &fd, &error));
            assert(ul_reader_cancel(reader, 1) == 0);
            ul_reader_free(reader);
            ul_loader_free(loader);
            ul_dataset_free(data);
            _exit(7);
        }
        int status = 0;
        assert(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) fprintf(stderr, "a child ended with %x\n", status), abort();
    }
    /* And the parent goes on. */
    uint64_t id = 0;
    ul_loader_cancel(loader);
    pthread_join(thread, NULL);
    ul_batch_free(batch);
    assert(ul_reader_next(reader, -1, &id, &batch, NULL) == UL_OK && id == 1);
    ul_batch_free(batch);
    ul_reader_free(reader);
    ul_loader_free(loader);
    ul_dataset_free(data);
}

/* With "forks" after the path it forks; otherwise it does all the rest. */
int main(int count, char **arguments) {
    if (count == 3 && !strcmp(arguments[2], "forks")) {
        forks(arguments[1]);
    } else if (count == 2) {
        errors();
        datasets(arguments[1]);
        loaders(arguments[1]);
        batches(arguments[1]);
        readers(arguments[1]);
    } else {
        return 2;
    }
    printf("%d calls refused\n", refused);
}
