/* Encoding and decoding of event files. */
#include "metrics/event_file.h"

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

/* The wire types of a field's value: a variable-length number, eight bytes, a length and bytes, four bytes. */
enum { TT__WIRE_VARINT = 0, TT__WIRE_64 = 1, TT__WIRE_BYTES = 2, TT__WIRE_32 = 5 };

/* Numbers of the fields that are written or read. */
enum {
    TT__EVENT_WALL_TIME = 1,
    TT__EVENT_STEP = 2,
    TT__EVENT_FILE_VERSION = 3,
    TT__EVENT_SUMMARY = 5,
    TT__EVENT_SESSION_LOG = 7,
    TT__SESSION_STATUS = 1,
    TT__SESSION_START = 1,
    TT__SUMMARY_VALUE = 1,
    TT__VALUE_TAG = 1,
    TT__VALUE_SIMPLE = 2,
    TT__VALUE_HISTOGRAM = 5,
    TT__VALUE_TENSOR = 8,
    TT__VALUE_METADATA = 9,
    TT__METADATA_PLUGIN = 1,
    TT__PLUGIN_NAME = 1,
    TT__HISTOGRAM_MIN = 1, /* and after it max, num, sum, sum of squares */
    TT__HISTOGRAM_LIMITS = 6,
    TT__HISTOGRAM_COUNTS = 7,
    TT__TENSOR_DTYPE = 1,
    TT__TENSOR_SHAPE = 2,
    TT__TENSOR_STRINGS = 8,
    TT__SHAPE_DIM = 2,
    TT__DIM_SIZE = 1,
    TT__DTYPE_STRING = 7
};

/* A record's bytes besides its data, before and after. */
enum { TT__RECORD_HEAD = 12, TT__RECORD_TAIL = 4 };

/* CRC four bits at a time, which is enough for small records: the 16 remainders of the reflected polynomial
 * 82F63B78. */
static const uint32_t remainders[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t tt__crc32c(const void *data, size_t size) {
    const uint8_t *byte = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= byte[i];
        crc = crc >> 4 ^ remainders[crc & 15];
        crc = crc >> 4 ^ remainders[crc & 15];
    }
    return ~crc;
}

uint32_t tt__crc32c_masked(const void *data, size_t size) {
    uint32_t crc = tt__crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* A nested message's size comes before it, so the size is computed first; that saves a second buffer. */

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

/* Put the beginning of a field of `size` bytes, which the caller puts then. */
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

/* Put the record's head for data of `size` bytes. */
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

/* Put the beginning of an event, with time and step; the caller then puts its further fields, of `size` bytes. Step 0
 * is the default and left out. */
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

/* Put an event with a summary of one value, except the value's `size` bytes, which the caller puts. */
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

/* As PyTorch's add_text() does, write a tensor of one string under "TAG/text_summary", with the plug-in that shows
 * it. */
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

/* ---- protocol buffers ---- */

/* A field of a message: its number and its value, which is a number (varint, 32 or 64 bits) or bytes. */
typedef struct wire_field {
    uint64_t field;
    int wire;
    uint64_t number;
    tt__span bytes;
} wire_field;

static uint64_t event_number(const uint8_t *bytes, size_t size) {
    uint64_t n = 0;
    for (size_t i = 0; i < size; i++)
        n |= (uint64_t)bytes[i] << 8 * i;
    return n;
}

static bool take_varint(tt__span *from, uint64_t *n) {
    *n = 0;
    for (int shift = 0; shift < 64 && from->size; shift += 7) {
        uint8_t byte = *from->data++;
        from->size--;
        *n |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static bool wire_take_bytes(tt__span *from, uint64_t size, tt__span *bytes) {
    if (size > from->size)
        return false;
    *bytes = (tt__span){from->data, (size_t)size};
    from->data += size;
    from->size -= (size_t)size;
    return true;
}

/* Take the next field off a message. 1: done; 0: the message is at its end; -1: it is malformed. */
static int take_field(tt__span *message, wire_field *f) {
    uint64_t key, size = 0;
    if (!message->size)
        return 0;
    if (!take_varint(message, &key) || !(f->field = key >> 3))
        return -1;
    f->wire = (int)(key & 7);
    if (f->wire == TT__WIRE_VARINT)
        return take_varint(message, &f->number) ? 1 : -1;
    if (f->wire == TT__WIRE_BYTES)
        return take_varint(message, &size) && wire_take_bytes(message, size, &f->bytes) ? 1 : -1;
    size = f->wire == TT__WIRE_64 ? 8 : f->wire == TT__WIRE_32 ? 4 : 0;
    if (!size || !wire_take_bytes(message, size, &f->bytes))
        return -1;
    f->number = event_number(f->bytes.data, (size_t)size);
    return 1;
}

static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- events ---- */

/* The reader of the record at byte `at`. */
typedef struct event_reader {
    tt__scalar_log *log;
    const char *name;
    size_t at;
    bool malformed; /* the record is no message */
} event_reader;

static bool is_field(const wire_field *f, int field, int wire) {
    return f->field == (uint64_t)field && f->wire == wire;
}

static tt_status event_is_foreign(const event_reader *r, const char *message, const wire_field *f) {
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "%s: the record at byte %zu has field %llu of TensorBoard's %s, as Tutti does not write it: only "
                    "scalars, texts and histograms of tt_summary_writer are read; use TensorBoard for this file, or "
                    "CSV",
                    r->name, r->at, (unsigned long long)f->field, message);
}

/* Does a message begin with this number in this field? */
static bool begins_with(tt__span message, int field, uint64_t number) {
    wire_field f;
    return take_field(&message, &f) > 0 && is_field(&f, field, TT__WIRE_VARINT) && f.number == number;
}

/* Is the field a text? Only texts are written as tensors. */
static bool event_is_text(const wire_field *f) {
    return is_field(f, TT__VALUE_TENSOR, TT__WIRE_BYTES) && begins_with(f->bytes, TT__TENSOR_DTYPE, TT__DTYPE_STRING);
}

static bool event_is_restart(const wire_field *f) {
    return is_field(f, TT__EVENT_SESSION_LOG, TT__WIRE_BYTES) &&
           begins_with(f->bytes, TT__SESSION_STATUS, TT__SESSION_START);
}

/* Can the tag be shown: has it some bytes, none of them 0? */
static bool tag_is_good(tt__span tag) { return tag.size && !memchr(tag.data, 0, tag.size); }

/* Add a value that is a scalar; pass over texts and histograms. */
static tt_status event_read_value(event_reader *r, tt__span message, tt__scalar_point point) {
    wire_field f;
    tt__span tag = {0};
    bool is_scalar = false;
    int more;
    while ((more = take_field(&message, &f)) > 0) {
        if (is_field(&f, TT__VALUE_TAG, TT__WIRE_BYTES)) {
            tag = f.bytes;
        } else if (is_field(&f, TT__VALUE_SIMPLE, TT__WIRE_32)) {
            is_scalar = true;
            point.value = (double)tt__float_of_bits((uint32_t)f.number);
        } else if (!is_field(&f, TT__VALUE_HISTOGRAM, TT__WIRE_BYTES) &&
                   !is_field(&f, TT__VALUE_METADATA, TT__WIRE_BYTES) && !event_is_text(&f)) {
            return event_is_foreign(r, "Summary.Value", &f);
        }
    }
    r->malformed = r->malformed || more != 0;
    return is_scalar && !more && tag_is_good(tag) ? tt__scalar_log_add(r->log, (const char *)tag.data, tag.size, point)
                                                  : TT_OK;
}

/* Read a summary, which has one value. */
static tt_status read_summary(event_reader *r, tt__span summary, tt__scalar_point point) {
    wire_field f;
    if (take_field(&summary, &f) <= 0)
        return r->malformed = true, TT_OK;
    return is_field(&f, TT__SUMMARY_VALUE, TT__WIRE_BYTES) && !summary.size ? event_read_value(r, f.bytes, point)
                                                                            : event_is_foreign(r, "Summary", &f);
}

/* Read an event, whose time and step come before its value. */
static tt_status read_event(event_reader *r, tt__span event) {
    tt__scalar_point point = {.wall_time = NAN};
    wire_field f;
    int more;
    while ((more = take_field(&event, &f)) > 0) {
        if (is_field(&f, TT__EVENT_WALL_TIME, TT__WIRE_64))
            point.wall_time = double_of(f.number);
        else if (is_field(&f, TT__EVENT_STEP, TT__WIRE_VARINT))
            point.step = (int64_t)f.number;
        else if (is_field(&f, TT__EVENT_SUMMARY, TT__WIRE_BYTES))
            TT__TRY(read_summary(r, f.bytes, point));
        else if (event_is_restart(&f))
            TT__TRY(tt__scalar_log_purge(r->log, point.step));
        else if (!is_field(&f, TT__EVENT_FILE_VERSION, TT__WIRE_BYTES))
            return event_is_foreign(r, "Event", &f);
    }
    r->malformed = r->malformed || more != 0;
    return TT_OK;
}

/* ---- records ---- */

static bool head_is_good(const uint8_t *head) { return event_number(head + 8, 4) == tt__crc32c_masked(head, 8); }

bool tt__events_recognise(const void *data, size_t size) { return size >= TT__RECORD_HEAD && head_is_good(data); }

static tt_status read_records(tt__scalar_log *log, const uint8_t *bytes, size_t size, const char *name) {
    for (size_t at = 0; at < size;) {
        size_t left = size - at;
        if (left >= TT__RECORD_HEAD && !head_is_good(bytes + at)) {
            tt__scalar_log_note(log, "%s is damaged at byte %zu; what follows is left out", name, at);
            return TT_OK;
        }
        uint64_t length = left >= TT__RECORD_HEAD ? event_number(bytes + at, 8) : 0;
        if (left < TT__RECORD_HEAD + TT__RECORD_TAIL || length > left - TT__RECORD_HEAD - TT__RECORD_TAIL) {
            tt__scalar_log_note(log, "%s ends inside a record, whose %zu bytes are left out", name, left);
            return TT_OK;
        }
        tt__span event = {bytes + at + TT__RECORD_HEAD, (size_t)length};
        event_reader r = {.log = log, .name = name, .at = at};
        r.malformed = event_number(event.data + length, 4) != tt__crc32c_masked(event.data, event.size);
        if (!r.malformed)
            TT__TRY(read_event(&r, event));
        if (r.malformed) {
            tt__scalar_log_note(log, "%s is damaged at byte %zu; what follows is left out", name, at);
            return TT_OK;
        }
        at += TT__RECORD_HEAD + event.size + TT__RECORD_TAIL;
    }
    return TT_OK;
}

tt_status tt__events_decode(tt__scalar_log *log, const void *data, size_t size, const char *name) {
    if (!tt__events_recognise(data, size))
        return tt__fail(TT_ERR_FORMAT,
                        "%s: expected an event file, whose first 12 bytes are a length and "
                        "its checksum",
                        name);
    tt_status status = read_records(log, data, size, name);
    tt__scalar_log_settle(log);
    return status;
}
