/* Records of TensorBoard's event files: a TFRecord (length, checksum of the length, data, checksum of the data) whose
 * data is a tensorflow.Event in protocol buffers' wire format, proto3.
 *
 * Records are written whole (append_file.h), but a process may be killed while it writes. So reading stops at the first
 * record that is torn or damaged, keeps what came before, and says so. */
#ifndef TT_METRICS_EVENT_FILE_H
#define TT_METRICS_EVENT_FILE_H

#include "base/bytes.h"
#include "metrics/scalar_log.h"

#include <tutti/base.h>

#include <stddef.h>
#include <stdint.h>

/* A histogram: how many values lie between PyTorch's limits, which are 0 and +-1e-12 * 1.1^k up to 1e20. */
enum { TT__HISTOGRAM_EDGES = 1549 }; /* 774 on each side, and 0 */

typedef struct tt__histogram {
    double min, max, num, sum, sum_squares;
    size_t size;                       /* buckets, from the one before the first value to that of the last */
    double limit[TT__HISTOGRAM_EDGES]; /* bucket i has the values from limit[i - 1] to below limit[i] */
    double count[TT__HISTOGRAM_EDGES];
} tt__histogram;

/* Each function replaces what is in `record` by one record; without memory it sets record->failed. */
void tt__event_encode_version(tt__bytes *record, double wall_time);
/* A run begins again at `step`: older records of this and later steps no longer count. */
void tt__event_encode_restart(tt__bytes *record, double wall_time, int64_t step);
void tt__event_encode_scalar(tt__bytes *record, double wall_time, int64_t step, const char *tag, double value);
void tt__event_encode_text(tt__bytes *record, double wall_time, int64_t step, const char *tag, const char *text);
void tt__event_encode_histogram(tt__bytes *record, double wall_time, int64_t step, const char *tag,
                                const tt__histogram *h);

/* CRC-32C (Castagnoli) of `size` bytes: "123456789" gives E3069283. */
uint32_t tt__crc32c(const void *data, size_t size);

/* The checksum as a TFRecord stores it: rotated and shifted, so that checksums of data that contains checksums stay
 * good. */
uint32_t tt__crc32c_masked(const void *data, size_t size);

/* Does the data begin as an event file does, with a record whose length has the right checksum? */
bool tt__events_recognise(const void *data, size_t size);

/* Add the scalars of a file's bytes to `log`; texts and histograms are passed over. `name` stands for the path in
 * texts. An unfinished last record is left out, and noted; so is all that follows a damaged record, as in TensorBoard.
 * Errors: TT_ERR_FORMAT: no event file; TT_ERR_UNSUPPORTED: a kind of record that only other programs write;
 * TT_ERR_MEMORY. */
tt_status tt__events_decode(tt__scalar_log *log, const void *data, size_t size, const char *name);

#endif
