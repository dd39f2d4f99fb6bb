/* The progress of training as metadata of a safetensors file. */
#ifndef TT_CHECKPOINT_PROGRESS_TEXTS_H
#define TT_CHECKPOINT_PROGRESS_TEXTS_H

#include <tutti/checkpoint.h>

enum { TT__PROGRESS_PAIRS = 9 };

typedef struct tt__progress_texts {
    char values[TT__PROGRESS_PAIRS][32];
    tt_metadata pairs[TT__PROGRESS_PAIRS]; /* that point to them */
    int64_t count;                         /* 0: there is no progress */
} tt__progress_texts;

/* NULL is allowed; `who` begins the error of a progress without a size. */
tt_status tt__progress_check(const char *who, const tt_progress *progress);

/* Write the texts of a progress, which may be NULL. */
void tt__progress_write(tt__progress_texts *texts, const tt_progress *progress);

/* Read a file's progress: zeros if it has none. */
tt_status tt__progress_read(const tt_safetensors *file, tt_progress *progress);

#endif
