/* Records of TensorBoard's event files: a TFRecord (length, checksum of the length, data, checksum of the data) whose
 * data is a tensorflow.Event in protocol buffers' wire format, proto3. */
#ifndef TT_METRICS_EVENT_ENCODE_H
#define TT_METRICS_EVENT_ENCODE_H

#include "base/bytes.h"
#include "metrics/histogram.h"

/* What a wire type says of a field's value: a variable-length number, eight bytes, a length and bytes, four bytes. */
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

/* Each replaces what is in `record` by one record; where memory is out, record->failed is set. */
void tt__event_encode_version(tt__bytes *record, double wall_time);
/* "A run begins again at `step`": what older records say of it and later steps doesn't count. */
void tt__event_encode_restart(tt__bytes *record, double wall_time, int64_t step);
void tt__event_encode_scalar(tt__bytes *record, double wall_time, int64_t step, const char *tag, double value);
void tt__event_encode_text(tt__bytes *record, double wall_time, int64_t step, const char *tag, const char *text);
void tt__event_encode_histogram(tt__bytes *record, double wall_time, int64_t step, const char *tag,
                                const tt__histogram *h);

#endif
