#include "metrics/event_decode.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/text/plain_text.h"
#include "metrics/crc32c.h"
#include "metrics/event_encode.h"

#include <math.h>
#include <string.h>

/* ---- protocol buffers ---- */

/* A field of a message: its number, and its value, a number (varint, 32 or 64 bits) or bytes. */
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

static double float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- events ---- */

/* What is read now: the record at byte `at`. */
typedef struct event_reader {
    tt__scalar_log *log;
    const char *name;
    size_t at;
    bool malformed; /* it is no message */
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

/* Tensors are written of texts alone. */
static bool event_is_text(const wire_field *f) {
    return is_field(f, TT__VALUE_TENSOR, TT__WIRE_BYTES) && begins_with(f->bytes, TT__TENSOR_DTYPE, TT__DTYPE_STRING);
}

static bool event_is_restart(const wire_field *f) {
    return is_field(f, TT__EVENT_SESSION_LOG, TT__WIRE_BYTES) &&
           begins_with(f->bytes, TT__SESSION_STATUS, TT__SESSION_START);
}

/* A tag that can be shown: some bytes, none of them 0. */
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
            point.value = float_of((uint32_t)f.number);
        } else if (!is_field(&f, TT__VALUE_HISTOGRAM, TT__WIRE_BYTES) &&
                   !is_field(&f, TT__VALUE_METADATA, TT__WIRE_BYTES) && !event_is_text(&f)) {
            return event_is_foreign(r, "Summary.Value", &f);
        }
    }
    r->malformed = r->malformed || more != 0;
    return is_scalar && !more && tag_is_good(tag) ? tt__scalar_log_add(r->log, (const char *)tag.data, tag.size, point)
                                                  : TT_OK;
}

/* A summary has one value. */
static tt_status read_summary(event_reader *r, tt__span summary, tt__scalar_point point) {
    wire_field f;
    if (take_field(&summary, &f) <= 0)
        return r->malformed = true, TT_OK;
    return is_field(&f, TT__SUMMARY_VALUE, TT__WIRE_BYTES) && !summary.size ? event_read_value(r, f.bytes, point)
                                                                            : event_is_foreign(r, "Summary", &f);
}

/* Time and step come before what they are of. */
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
