/* uringload: a data loader that keeps a GPU fed from NVMe. The C interface; docs/c.md is a guide to it.
 *
 * Handles (ul_dataset, ul_loader, ul_batch, ul_reader, ul_error) are made by a function and freed by theirs, once.
 * Freeing NULL does nothing. Everything that a handle gives out lives as long as the handle, unless it says otherwise.
 * A function that can fail returns a status, and where `error` is not NULL it gets an error to free, or NULL.
 * A NULL where a handle or an address is needed is an error, and never a crash. Nothing here throws or unwinds.
 * Texts are UTF-8 and end with a zero byte. Structs begin with `size`: set it to sizeof before the call.
 * After fork(), a child uses no handle of its parent.
 */
#ifndef URINGLOAD_H
#define URINGLOAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A program works with a library of the same number: compare it with what ul_version tells. */
#define UL_ABI 1

enum { UL_OK = 0, UL_ERROR = 1, UL_TIMEOUT = 2, UL_END = 3 };

typedef struct ul_dataset ul_dataset;
typedef struct ul_loader ul_loader;
typedef struct ul_batch ul_batch;
typedef struct ul_reader ul_reader;
typedef struct ul_error ul_error;

/* The version, as text that is never freed. `abi` may be NULL. */
const char *ul_version(uint32_t *abi);

/* ---- Errors ---- */

typedef struct ul_error_info {
    size_t size;
    const char *message; /* all of it, for people */
    const char *kind;    /* for programs: "NotFound", "InvalidArgument", "Timeout", "Corrupt", ... */
    const char *what;    /* what happened, in a sentence */
    const char *path;    /* the file, or NULL */
    const char *remedy;  /* what to do about it, or NULL */
    uint64_t offset;     /* in the file */
    uint64_t has_offset; /* whether there is one */
} ul_error_info;

int32_t ul_error_get(const ul_error *error, ul_error_info *out);
void ul_error_free(ul_error *error);

/* ---- Datasets. Threads may share one. ---- */

/* Opens files and folders. `options` is a JSON object or NULL, with the names of the command line:
 * {"format": "records", "record_bytes": 4096}; "timeout" is how many seconds storage may take to answer a call. "only"
 * (numbers of samples, or files that list them) and "exclude" (such files) choose samples; with "weights", a number for
 * each path, and "stopping", each path is a dataset of its own, and loaders mix them. */
int32_t ul_dataset_open(const char *const *paths, size_t path_count, const char *options, ul_dataset **out,
                        ul_error **error);

typedef struct ul_span {
    uint64_t file; /* its number, from 0 */
    uint64_t offset;
    uint64_t len;
} ul_span;

typedef struct ul_bytes {
    const uint8_t *data;
    size_t len;
} ul_bytes;

typedef struct ul_field {
    const char *name;
    const char *dtype;     /* "u8", "i8", "u16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", ... */
    const uint64_t *shape; /* of one value; NULL: one dimension of any length */
    size_t dimensions;
} ul_field;

typedef struct ul_value {
    const uint8_t *data; /* bytes of your own, copied when `parse` returns; NULL: they lie in what was read */
    size_t span;         /* in which piece of the sample */
    size_t offset;       /* from where on in it */
    size_t len;
} ul_value;

/* A dataset that you know. Callbacks are called from threads of the library, several at a time, until `drop` was
 * called; they must not block, throw, longjmp, or call this library. */
typedef struct ul_source {
    size_t size;
    void *context;            /* given to each callback */
    const char *const *paths; /* the files; their sizes are looked up once */
    size_t path_count;
    const ul_field *fields;
    size_t field_count;
    uint64_t samples;
    uint64_t fingerprint; /* of all that decides order and content, for states; 0: made of files and columns */
    /* Tells where a sample lies: writes up to `room` spans, and how many there are to `count`. If those are more, it is
     * called again with room for them (4096 at most). Not 0: the sample cannot be read. Always the same answer. */
    int (*spans)(void *context, uint64_t sample, ul_span *spans, size_t room, size_t *count);
    /* Tells the value of each column. NULL: value i is piece i. Not 0: the bytes are bad. */
    int (*parse)(void *context, uint64_t sample, const ul_bytes *read, size_t read_count, ul_value *values,
                 size_t value_count);
    /* Called once, when nothing uses the context any more, unless ul_dataset_of failed. May be NULL. */
    void (*drop)(void *context);
    /* Bytes of all samples, and of the longest one at most. 0: `spans` is asked about every sample to know them. A
     * sample that is longer than `largest` is an error. */
    uint64_t bytes;
    uint64_t largest;
} ul_source;

int32_t ul_dataset_of(const ul_source *source, ul_dataset **out, ul_error **error);

typedef struct ul_dataset_info {
    size_t size;
    uint64_t samples;
    uint64_t bytes;
    uint64_t files;
    uint64_t columns;
    uint64_t fingerprint;
} ul_dataset_info;

int32_t ul_dataset_get(const ul_dataset *dataset, ul_dataset_info *out, ul_error **error);
/* Loaders, readers and batches of it stay. */
void ul_dataset_free(ul_dataset *dataset);

/* ---- Loaders. One thread at a time asks for batches. ---- */

/* Starts to read. `options` is a JSON object or NULL: {"batch_size": 64, "shuffle": true, "seed": 7, "epochs": 90}.
 * With {"device": "cuda:0"}, batches are in the memory of that GPU; see ul_batch_wait_on. `state` is what UL_STATE told,
 * to go on from there, or NULL. */
int32_t ul_loader_new(const ul_dataset *dataset, const char *options, const char *state, ul_loader **out,
                      ul_error **error);

/* The next batch: UL_OK; UL_TIMEOUT if none came in time (0: it does not wait; negative: no limit); UL_END if none is
 * left, or the loader was cancelled; UL_ERROR for an error in the place of a batch, after which others may come. */
int32_t ul_loader_next(const ul_loader *loader, int64_t timeout_ms, ul_batch **out, ul_error **error);

/* A descriptor for poll(2), readable when ul_loader_next would not wait. It may be so once too often. The loader keeps
 * it: do not close it. */
int32_t ul_loader_ready_fd(const ul_loader *loader, int *out, ul_error **error);

/* Ends the loader, from any thread: who waits gets UL_END. */
void ul_loader_cancel(const ul_loader *loader);

enum { UL_STATE = 0, UL_REPORT = 1 };

/* UL_STATE: the place after the last batch, as JSON. UL_REPORT: what limits it, measurements and route, for people. The
 * text is the loader's: it stays until the loader tells the same again or is freed. */
int32_t ul_loader_tell(const ul_loader *loader, int32_t what, const char **out, ul_error **error);

/* Batches of it stay. */
void ul_loader_free(ul_loader *loader);

/* ---- Batches. Free them soon: their memory is what the next ones are read into. ---- */

typedef struct ul_batch_info {
    size_t size;
    uint64_t samples;
    const uint64_t *ids; /* their numbers in the dataset */
    uint64_t columns;
    uint64_t failed; /* samples that are missing because they could not be read */
    uint64_t epoch;
    uint64_t position; /* where the batch begins in the epoch */
} ul_batch_info;

/* A DLTensor of dlpack.h, byte for byte: (DLTensor *)&column.values. For reading only. */
typedef struct ul_tensor {
    void *data;
    int32_t device_type; /* 1: the host; 2: CUDA */
    int32_t device_id;
    int32_t ndim;
    uint8_t code; /* DLDataTypeCode */
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} ul_tensor;

enum {
    UL_DENSE = 0,  /* each sample has values.shape[1..] */
    UL_RAGGED = 1, /* end to end: sample i has elements places[i]..places[i + 1] */
    UL_PADDED = 2, /* rows of one length: the first places[i] elements of row i are the sample's */
    UL_VIEWS = 3,  /* sample i is views[i], in bytes; there is no tensor */
    UL_PACKED = 4  /* pieces of samples in rows of one length: piece i is in row places[4 * i], from its element
                    * places[4 * i + 1] on, places[4 * i + 2] long, and of the batch's sample places[4 * i + 3] */
};

typedef struct ul_column {
    size_t size;
    const char *name;
    const char *dtype;
    uint64_t form;
    ul_tensor values;
    const uint64_t *places; /* on the host */
    uint64_t place_count;
    const ul_bytes *views;
    uint64_t view_count;
} ul_column;

int32_t ul_batch_get(const ul_batch *batch, ul_batch_info *out, ul_error **error);
/* Of a batch on a GPU, the columns there come first. */
int32_t ul_batch_column(const ul_batch *batch, uint64_t index, ul_column *out, ul_error **error);

/* No stream. */
#define UL_HOST ((void *)-1)
/* Of a batch on a GPU: work put into `stream` (a cudaStream_t or CUstream; NULL: the default stream) from here on sees
 * the values, without a wait of the host. Call it once for each stream that uses the batch, before its columns are used
 * or exported. The memory is filled again after the work that these streams had when the batch and what was exported of
 * it were freed; the streams live until then. UL_HOST: waits here; a stream that is used without being named must be
 * done (cudaStreamSynchronize) before the batch and what was exported of it are freed. On the host there is nothing to
 * wait for. */
int32_t ul_batch_wait_on(const ul_batch *batch, void *stream, ul_error **error);

/* What Arrow's specification declares, for whoever has not included it. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif
#ifndef ARROW_C_DEVICE_DATA_INTERFACE
#define ARROW_C_DEVICE_DATA_INTERFACE
typedef int32_t ArrowDeviceType;
#define ARROW_DEVICE_CPU 1
#define ARROW_DEVICE_CUDA 2
struct ArrowDeviceArray {
    struct ArrowArray array;
    int64_t device_id;
    ArrowDeviceType device_type;
    void *sync_event;
    int64_t reserved[3];
};
#endif

enum { UL_DLPACK = 0, UL_ARROW = 1, UL_ARROW_DEVICE = 2 };
/* All columns, as the fields of a struct: for Arrow, and where each has a value for each sample. */
#define UL_ALL UINT64_MAX

/* A column for another library, without a copy of its values (but those of up to 12 bytes among views). It outlives the
 * batch, whose memory it keeps. `form` says what `out` is the address of:
 *   UL_DLPACK        a DLManagedTensorVersioned *, of DLPack 1.0; whoever takes it calls its deleter once
 *   UL_ARROW         a struct ArrowArray, to be released once
 *   UL_ARROW_DEVICE  a struct ArrowDeviceArray, to be released once; of a GPU (ARROW_DEVICE_CUDA), it is waited for here
 * `schema` gets the type of an Arrow array, to be released once; NULL: it is not wanted. */
int32_t ul_batch_export(const ul_batch *batch, uint64_t index, int32_t form, void *out, struct ArrowSchema *schema,
                        ul_error **error);
void ul_batch_free(ul_batch *batch);

/* ---- Readers: bytes in an order of your own. One thread at a time. ---- */

/* Of a dataset's files. {"engine", "io", "queue_depth", "memory_limit", "timeout", "outage_timeout", ...} or NULL. */
int32_t ul_reader_new(const ul_dataset *dataset, const char *options, ul_reader **out, ul_error **error);
/* Asks for bytes, end to end, under a number of yours. Never waits; any number may be in flight. */
int32_t ul_reader_submit(const ul_reader *reader, uint64_t id, const ul_span *spans, size_t span_count,
                         ul_error **error);
/* Takes a request back: no answer comes. Returns 1 if it was in flight. */
int32_t ul_reader_cancel(const ul_reader *reader, uint64_t id);
/* The next answer, in any order: `id` is the request's, and the batch has one column, its bytes. UL_ERROR with an `id`
 * other than UINT64_MAX is that request's error. UL_END if nothing is in flight; UL_TIMEOUT as for loaders. */
int32_t ul_reader_next(const ul_reader *reader, int64_t timeout_ms, uint64_t *id, ul_batch **out, ul_error **error);
int32_t ul_reader_ready_fd(const ul_reader *reader, int *out, ul_error **error);
void ul_reader_free(ul_reader *reader);

#ifdef __cplusplus
}
#endif

#endif
