#include "metrics/event_encode.h"

#include "metrics/crc32c.h"

#include <string.h>

/* Sizes of nested messages come before them, so each is computed first: there is no second buffer. */

static size_t varint_size(uint64_t n) {
    size_t size = 1;
    while (n >>= 7)
        size++;
    return size;
}

/* All fields have numbers below 16, so a key is one byte. */
static size_t bytes_field_size(size_t size) { return 1 + varint_size(size) + size; }

static void put_little_endian(tt__bytes *record, uint64_t n, size_t size) {
    uint8_t bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(n >> 8 * i);
    tt__bytes_put(record, bytes, size);
}

static void put_varint(tt__bytes *record, uint64_t n) {
    do
        put_little_endian(record, (n & 127) | (n > 127) << 7, 1);
    while (n >>= 7);
}

static void wire_put_key(tt__bytes *record, int field, int wire) { put_varint(record, (uint64_t)(field << 3 | wire)); }

/* The beginning of a field of `size` bytes, which the caller puts. */
static void put_bytes_key(tt__bytes *record, int field, size_t size) {
    wire_put_key(record, field, TT__WIRE_BYTES);
    put_varint(record, size);
}

static void wire_put_text(tt__bytes *record, int field, const char *text) {
    put_bytes_key(record, field, strlen(text));
    tt__bytes_put(record, text, strlen(text));
}

static void put_double_bits(tt__bytes *record, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_little_endian(record, bits, 8);
}

static void put_double(tt__bytes *record, int field, double x) {
    wire_put_key(record, field, TT__WIRE_64);
    put_double_bits(record, x);
}

/* A repeated field, packed. */
static void put_doubles(tt__bytes *record, int field, const double *x, size_t n) {
    put_bytes_key(record, field, 8 * n);
    for (size_t i = 0; i < n; i++)
        put_double_bits(record, x[i]);
}

static void wire_put_float(tt__bytes *record, int field, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    wire_put_key(record, field, TT__WIRE_32);
    put_little_endian(record, bits, 4);
}

/* The record's head for data of `size` bytes. */
static void record_begin(tt__bytes *record, size_t size) {
    record->size = 0;
    record->failed = false;
    put_little_endian(record, size, 8);
    if (!record->failed)
        put_little_endian(record, tt__crc32c_masked(record->data, 8), 4);
}

static void record_end(tt__bytes *record) {
    if (!record->failed)
        put_little_endian(record, tt__crc32c_masked(record->data + TT__RECORD_HEAD, record->size - TT__RECORD_HEAD), 4);
}

void tt__event_encode_version(tt__bytes *record, double wall_time) {
    static const char version[] = "brain.Event:2";
    record_begin(record, 9 + bytes_field_size(strlen(version)));
    put_double(record, TT__EVENT_WALL_TIME, wall_time);
    wire_put_text(record, TT__EVENT_FILE_VERSION, version);
    record_end(record);
}

/* The beginning of an event with time and step, whose further fields of `size` bytes the caller puts. Step 0 is the
 * default and left out. */
static void put_time_and_step(tt__bytes *record, double wall_time, int64_t step, size_t size) {
    size_t step_size = step ? 1 + varint_size((uint64_t)step) : 0;
    record_begin(record, 9 + step_size + size);
    put_double(record, TT__EVENT_WALL_TIME, wall_time);
    if (step) {
        wire_put_key(record, TT__EVENT_STEP, TT__WIRE_VARINT);
        put_varint(record, (uint64_t)step);
    }
}

void tt__event_encode_restart(tt__bytes *record, double wall_time, int64_t step) {
    put_time_and_step(record, wall_time, step, bytes_field_size(2));
    put_bytes_key(record, TT__EVENT_SESSION_LOG, 2);
    wire_put_key(record, TT__SESSION_STATUS, TT__WIRE_VARINT);
    put_varint(record, TT__SESSION_START);
    record_end(record);
}

/* An event with a summary of one value, whose `size` bytes the caller puts. */
static void put_event_head(tt__bytes *record, double wall_time, int64_t step, size_t size) {
    size_t summary = bytes_field_size(size);
    put_time_and_step(record, wall_time, step, bytes_field_size(summary));
    put_bytes_key(record, TT__EVENT_SUMMARY, summary);
    put_bytes_key(record, TT__SUMMARY_VALUE, size);
}

void tt__event_encode_scalar(tt__bytes *record, double wall_time, int64_t step, const char *tag, double value) {
    put_event_head(record, wall_time, step, bytes_field_size(strlen(tag)) + 5);
    wire_put_text(record, TT__VALUE_TAG, tag);
    wire_put_float(record, TT__VALUE_SIMPLE, (float)value);
    record_end(record);
}

/* A tensor of one string, with the plug-in that shows it, under "TAG/text_summary": what PyTorch's add_text()
 * writes. */
void tt__event_encode_text(tt__bytes *record, double wall_time, int64_t step, const char *tag, const char *text) {
    static const char plugin[] = "text", ending[] = "/text_summary";
    size_t tag_size = strlen(tag) + strlen(ending);
    size_t name = bytes_field_size(strlen(plugin)), metadata = bytes_field_size(name);
    size_t dim = 2, shape = bytes_field_size(dim);
    size_t tensor = 2 + bytes_field_size(shape) + bytes_field_size(strlen(text));
    put_event_head(record, wall_time, step,
                   bytes_field_size(tag_size) + bytes_field_size(tensor) + bytes_field_size(metadata));
    put_bytes_key(record, TT__VALUE_TAG, tag_size);
    tt__bytes_put(record, tag, strlen(tag));
    tt__bytes_put(record, ending, strlen(ending));
    put_bytes_key(record, TT__VALUE_TENSOR, tensor);
    wire_put_key(record, TT__TENSOR_DTYPE, TT__WIRE_VARINT);
    put_varint(record, TT__DTYPE_STRING);
    put_bytes_key(record, TT__TENSOR_SHAPE, shape);
    put_bytes_key(record, TT__SHAPE_DIM, dim);
    wire_put_key(record, TT__DIM_SIZE, TT__WIRE_VARINT);
    put_varint(record, 1);
    wire_put_text(record, TT__TENSOR_STRINGS, text);
    put_bytes_key(record, TT__VALUE_METADATA, metadata);
    put_bytes_key(record, TT__METADATA_PLUGIN, name);
    wire_put_text(record, TT__PLUGIN_NAME, plugin);
    record_end(record);
}

void tt__event_encode_histogram(tt__bytes *record, double wall_time, int64_t step, const char *tag,
                                const tt__histogram *h) {
    const double numbers[] = {h->min, h->max, h->num, h->sum, h->sum_squares};
    const int count = sizeof numbers / sizeof *numbers;
    size_t size = 9 * (size_t)count + 2 * bytes_field_size(8 * h->size);
    put_event_head(record, wall_time, step, bytes_field_size(strlen(tag)) + bytes_field_size(size));
    wire_put_text(record, TT__VALUE_TAG, tag);
    put_bytes_key(record, TT__VALUE_HISTOGRAM, size);
    for (int i = 0; i < count; i++)
        put_double(record, TT__HISTOGRAM_MIN + i, numbers[i]);
    put_doubles(record, TT__HISTOGRAM_LIMITS, h->limit, h->size);
    put_doubles(record, TT__HISTOGRAM_COUNTS, h->count, h->size);
    record_end(record);
}
