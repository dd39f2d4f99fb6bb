/* The entries of a checkpoint's file: tensors, and the progress of training as metadata.
 *
 * The tensors of the model have their own names. Those of the optimizer, the scheduler, the averages, the loader, the
 * generator, the gradient scaler, and those that the program adds, have a prefix for each. */
#ifndef TT_CHECKPOINT_ENTRIES_H
#define TT_CHECKPOINT_ENTRIES_H

#include <tutti/checkpoint.h>

/* What a training state is made of, and what the names of each part begin with. */
typedef enum tt__state_part {
    TT__PART_MODEL,
    TT__PART_OPTIMIZER,
    TT__PART_SCHEDULER,
    TT__PART_EMA,
    TT__PART_LOADER,
    TT__PART_GENERATOR,
    TT__PART_SCALER,
    TT__PART_MORE,
    TT__PARTS
} tt__state_part;
extern const char *const tt__part_prefixes[TT__PARTS];

/* Return the part that an entry of a file belongs to. */
int tt__part_of(const char *name);

/* Has the checkpoint anything of this part? Errors: those of tt_safetensors_load(). */
tt_status tt__checkpoint_has_part(bool *has, const char *path, tt__state_part part);

/* A list under construction: names are borrowed, or in `made` where they had to be put together. */
typedef struct tt__entries {
    size_t count;
    const char **names;
    tt_tensor **tensors;
    char **made;
    tt_tensor *generator; /* made for the list, which frees it; or NULL */
    tt_named_tensors view;
} tt__entries;

/* Make an empty list with room for so many entries. */
tt_status tt__entries_make(tt__entries *e, size_t room);

/* Release the list, and its tensors, too, if they are copies. Harmless on a zeroed one. */
void tt__entries_free(tt__entries *e);
void tt__entries_free_copies(tt__entries *e);

void tt__entries_add(tt__entries *e, const char *name, tt_tensor *tensor);
const tt_named_tensors *tt__entries_view(tt__entries *e);

/* Collect the entries of all parts that `a` has; they are borrowed from the parts. */
tt_status tt__entries_collect(tt__entries *e, const tt_checkpoint_save_args *a);

/* Copy tensors, to the host, and their names; release with tt__entries_free_copies(), also after a failure. */
tt_status tt__entries_copy(tt__entries *copies, const tt_named_tensors *of);

/* ---- progress ---- */

enum { TT__PROGRESS_PAIRS = 11 };

typedef struct tt__progress_texts {
    char values[TT__PROGRESS_PAIRS][sizeof((tt_progress *)0)->monitor];
    tt_metadata pairs[TT__PROGRESS_PAIRS]; /* that point to them */
    int64_t count;                         /* 0: there is no progress */
} tt__progress_texts;

/* Check that a progress (NULL is allowed) has the size of its struct; `who` begins the error. */
tt_status tt__progress_check(const char *who, const tt_progress *progress);

/* Copy the name of a metric to a progress' `monitor`: as much as fits, without what can't be in a line of UTF-8. */
void tt__copy_metric_name(char *to, const char *name);

/* Fill in the texts of a progress, which may be NULL. */
void tt__progress_write(tt__progress_texts *texts, const tt_progress *progress);

/* Read a file's progress: zeros if it has none. */
tt_status tt__progress_read(const tt_safetensors *file, tt_progress *progress);

#endif
