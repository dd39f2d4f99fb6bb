/* The progress of training as metadata of a safetensors file. */
#ifndef TT_CHECKPOINT_PROGRESS_TEXTS_H
#define TT_CHECKPOINT_PROGRESS_TEXTS_H

#include <tutti/checkpoint.h>

enum { TT__PROGRESS_PAIRS = 11 };

typedef struct tt__progress_texts {
    char values[TT__PROGRESS_PAIRS][sizeof((tt_progress *)0)->monitor];
    tt_metadata pairs[TT__PROGRESS_PAIRS]; /* that point to them */
    int64_t count;                         /* 0: there is no progress */
} tt__progress_texts;

/* NULL is allowed; `who` begins the error of a progress without a size. */
tt_status tt__progress_check(const char *who, const tt_progress *progress);

/* Copy the name of a metric to a progress' `monitor`: as much as fits, without what can't be in a line of UTF-8. */
void tt__copy_metric_name(char *to, const char *name);

/* Write the texts of a progress, which may be NULL. */
void tt__progress_write(tt__progress_texts *texts, const tt_progress *progress);

/* Read a file's progress: zeros if it has none. */
tt_status tt__progress_read(const tt_safetensors *file, tt_progress *progress);

#endif
