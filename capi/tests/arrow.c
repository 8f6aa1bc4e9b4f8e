/* Imports what ul_batch_export gives out as Arrow, by its specification alone and after the batch was freed. The
 * samples are made here: row i has the label i, an image of 2 x 3 bytes, i % 5 tokens, and a name of i bytes. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uringload.h>

enum { ROWS = 32 };

static int spans(void *context, uint64_t sample, ul_span *out, size_t room, size_t *count) {
    (void)context, (void)room;
    out[0] = (ul_span){0, sample * 4, 4};
    *count = 1;
    return 0;
}

static _Thread_local int32_t label, tokens[4];
static _Thread_local uint8_t image[6], name[ROWS];

static int parse(void *context, uint64_t sample, const ul_bytes *read, size_t read_count, ul_value *values,
                 size_t value_count) {
    (void)context, (void)read, (void)read_count;
    assert(value_count == 4);
    label = (int32_t)sample;
    for (int i = 0; i < 4; i++) tokens[i] = label * 10 + i;
    memset(image, label, sizeof image);
    memset(name, 'a' + label % 26, sizeof name);
    values[0] = (ul_value){(uint8_t *)&label, 0, 0, sizeof label};
    values[1] = (ul_value){image, 0, 0, sizeof image};
    values[2] = (ul_value){(uint8_t *)tokens, 0, 0, sample % 5 * sizeof *tokens};
    values[3] = (ul_value){name, 0, 0, sample};
    return 0;
}

/* The value of a key of the metadata, which has a text of known length. */
static int metadata_has(const char *metadata, const char *key, const char *value) {
    int32_t count, length;
    if (!metadata) return 0;
    memcpy(&count, metadata, 4), metadata += 4;
    for (int32_t i = 0; i < count; i++) {
        memcpy(&length, metadata, 4), metadata += 4;
        int is_key = (size_t)length == strlen(key) && !memcmp(metadata, key, (size_t)length);
        metadata += length;
        memcpy(&length, metadata, 4), metadata += 4;
        if (is_key && (size_t)length == strlen(value) && !memcmp(metadata, value, (size_t)length)) return 1;
        metadata += length;
    }
    return 0;
}

static void check_label(const struct ArrowArray *array, const struct ArrowSchema *schema) {
    assert(!strcmp(schema->format, "i") && !strcmp(schema->name, "label") && !schema->metadata);
    assert(array->length == ROWS && array->n_buffers == 2 && !array->buffers[0] && array->n_children == 0);
    for (int i = 0; i < ROWS; i++) assert(((const int32_t *)array->buffers[1])[i] == i);
}

static void check_image(const struct ArrowArray *array, const struct ArrowSchema *schema) {
    assert(!strcmp(schema->format, "+w:6") && schema->n_children == 1 && !strcmp(schema->children[0]->format, "C"));
    assert(metadata_has(schema->metadata, "ARROW:extension:name", "arrow.fixed_shape_tensor"));
    assert(metadata_has(schema->metadata, "ARROW:extension:metadata", "{\"shape\":[2,3]}"));
    assert(array->length == ROWS && array->n_buffers == 1 && array->children[0]->length == ROWS * 6);
    const uint8_t *bytes = array->children[0]->buffers[1];
    for (int i = 0; i < ROWS * 6; i++) assert(bytes[i] == i / 6);
}

static void check_tokens(const struct ArrowArray *array, const struct ArrowSchema *schema) {
    assert(!strcmp(schema->format, "+L") && !strcmp(schema->children[0]->name, "item"));
    assert(!strcmp(schema->children[0]->format, "i") && array->n_buffers == 2);
    const int64_t *offsets = array->buffers[1];
    const int32_t *values = array->children[0]->buffers[1];
    assert(offsets[0] == 0 && offsets[ROWS] == array->children[0]->length);
    for (int i = 0; i < ROWS; i++) {
        assert(offsets[i + 1] - offsets[i] == i % 5);
        for (int at = 0; at < i % 5; at++) assert(values[offsets[i] + at] == i * 10 + at);
    }
}

static void check_name(const struct ArrowArray *array, const struct ArrowSchema *schema) {
    assert(!strcmp(schema->format, "vz") && array->n_buffers == 3 + (ROWS - 13));
    const int64_t *lengths = array->buffers[array->n_buffers - 1];
    for (int i = 0; i < ROWS; i++) {
        const char *view = (const char *)array->buffers[1] + 16 * i;
        int32_t length, buffer, offset;
        memcpy(&length, view, 4);
        assert(length == i);
        const char *text = view + 4;
        if (length > 12) {
            memcpy(&buffer, view + 8, 4), memcpy(&offset, view + 12, 4);
            assert(offset + length <= lengths[buffer]);
            text = (const char *)array->buffers[2 + buffer] + offset;
            assert(!memcmp(text, view + 4, 4));
        }
        for (int at = 0; at < length; at++) assert(text[at] == 'a' + i % 26);
    }
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    const uint64_t shape[] = {2, 3};
    const ul_field fields[] = {{"label", "i32", shape, 0}, {"image", "u8", shape, 2}, {"tokens", "i32", NULL, 0},
                               {"name", "u8", NULL, 0}};
    ul_source source = {.size = sizeof source, .path_count = 1, .fields = fields, .field_count = 4, .samples = ROWS};
    source.paths = (const char *const *)&arguments[1];
    source.spans = spans, source.parse = parse;
    ul_dataset *data = NULL;
    ul_loader *loader = NULL;
    ul_batch *batch = NULL;
    assert(ul_dataset_of(&source, &data, NULL) == UL_OK);
    const char *options = "{\"batch_size\": 32, \"collate_columns\": {\"tokens\": \"ragged\"}}";
    assert(ul_loader_new(data, options, NULL, &loader, NULL) == UL_OK);
    assert(ul_loader_next(loader, -1, &batch, NULL) == UL_OK);

    struct ArrowArray all, one;
    struct ArrowSchema schema, type;
    struct ArrowDeviceArray device;
    ul_column column = {.size = sizeof column};
    assert(ul_batch_export(batch, UL_ALL, UL_ARROW, &all, &schema, NULL) == UL_OK);
    assert(ul_batch_export(batch, 2, UL_ARROW_DEVICE, &device, &type, NULL) == UL_OK);
    assert(ul_batch_export(batch, 1, UL_ARROW, &one, NULL, NULL) == UL_OK);
    /* Not a byte was copied, offsets included. */
    assert(ul_batch_column(batch, 1, &column, NULL) == UL_OK);
    assert(one.children[0]->buffers[1] == column.values.data);
    assert(all.children[1]->children[0]->buffers[1] == column.values.data);
    assert(ul_batch_column(batch, 2, &column, NULL) == UL_OK);
    assert(device.array.buffers[1] == (const void *)column.places);
    assert(device.array.children[0]->buffers[1] == column.values.data);

    /* What cannot be is refused, and writes nothing. */
    int refused = 0;
    struct ArrowArray untouched = {.length = 77};
    refused += ul_batch_export(NULL, 0, UL_ARROW, &untouched, NULL, NULL) == UL_ERROR;
    refused += ul_batch_export(batch, 9, UL_ARROW, &untouched, NULL, NULL) == UL_ERROR;
    refused += ul_batch_export(batch, 0, 3, &untouched, NULL, NULL) == UL_ERROR;
    refused += ul_batch_export(batch, 0, -1, &untouched, NULL, NULL) == UL_ERROR;
    refused += ul_batch_export(batch, 0, UL_ARROW, NULL, &type, NULL) == UL_ERROR;
    refused += ul_batch_export(batch, UL_ALL, UL_DLPACK, &untouched, NULL, NULL) == UL_ERROR;
    refused += ul_batch_export(batch, 3, UL_DLPACK, &untouched, NULL, NULL) == UL_ERROR;
    assert(untouched.length == 77);

    /* The arrays keep the memory. */
    ul_batch_free(batch);
    ul_loader_free(loader);
    ul_dataset_free(data);
    assert(!strcmp(schema.format, "+s") && schema.n_children == 4 && all.n_children == 4 && all.length == ROWS);
    check_label(all.children[0], schema.children[0]);
    check_image(all.children[1], schema.children[1]);
    check_tokens(all.children[2], schema.children[2]);
    check_name(all.children[3], schema.children[3]);
    assert(device.device_type == ARROW_DEVICE_CPU && device.device_id == -1 && !device.sync_event);
    check_tokens(&device.array, &type);

    /* A child that was moved out outlives its parent. */
    struct ArrowArray moved = *all.children[1];
    all.children[1]->release = NULL;
    all.release(&all);
    assert(!all.release && moved.children[0]->length == ROWS * 6);
    check_image(&moved, schema.children[1]);
    moved.release(&moved);
    schema.release(&schema);
    type.release(&type);
    device.array.release(&device.array);
    one.release(&one);
    printf("%d rows of 4 columns, %d refused\n", ROWS, refused);
}
