/* Event files and CSV from memory. What is read has steps that rise, each tag once, and can be written and read again.
 */
#include "metrics/event_file.h"
#include "metrics/scalar_log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_log(const tt__scalar_log *log) {
    for (size_t i = 0; i < log->count; i++) {
        const tt__series *s = &log->series[i];
        if (!*s->tag || tt__scalar_log_find(log, s->tag) != s)
            abort();
        for (size_t k = 1; k < s->count; k++)
            if (s->points[k - 1].step >= s->points[k].step)
                abort();
    }
}

/* Steps of tables may be negative, which no writer accepts. */
static void write_again(const tt__scalar_log *log) {
    tt__bytes record = {0}, file = {0};
    tt__scalar_log read = {0};
    size_t count = 0;
    tt__event_encode_version(&file, 1.5);
    for (size_t i = 0; i < log->count; i++)
        for (size_t k = 0; k < log->series[i].count; k++) {
            const tt__scalar_point *p = &log->series[i].points[k];
            if (p->step < 0)
                continue;
            tt__event_encode_scalar(&record, p->wall_time, p->step, log->series[i].tag, p->value);
            tt__bytes_put(&file, record.data, record.size);
            count++;
        }
    if (tt__events_decode(&read, file.data, file.size, "again") || *read.note)
        abort();
    for (size_t i = 0; i < read.count; i++)
        count -= read.series[i].count;
    if (count)
        abort();
    tt__scalar_log_free(&read);
    tt__bytes_free(&file);
    tt__bytes_free(&record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt__scalar_log log = {0};
    tt_status status = tt__events_recognise(data, size) ? tt__events_decode(&log, data, size, "fuzz")
                       : size                           ? tt__csv_decode(&log, data, size, "fuzz")
                                                        : TT_OK;
    if (status && status != TT_ERR_FORMAT && status != TT_ERR_UNSUPPORTED)
        abort();
    check_log(&log);
    write_again(&log);
    tt__scalar_log_free(&log);
    return 0;
}
