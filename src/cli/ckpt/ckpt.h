/* What the parts of `tutti ckpt` share: a checkpoint file of any format, as rows. */
#ifndef TT_CLI_CKPT_H
#define TT_CLI_CKPT_H

#include "cli/cli.h"

#include <tutti/checkpoint.h>

/* One entry: a tensor, or another value of a .pt file. */
typedef struct tt__ckpt_row {
    char *name;
    tt_tensor *tensor;     /* NULL: another value */
    const tt_value *value; /* NULL in safetensors */
} tt__ckpt_row;

typedef struct tt__ckpt_file {
    const char *path;
    const char *format; /* "safetensors" or "pt" */
    tt_safetensors *safetensors;
    tt_value *value;
    size_t count, room, name_bytes;
    tt__ckpt_row *rows;     /* sorted by name in safetensors, in the file's order in .pt */
    tt__ckpt_row **by_name; /* sorted */
} tt__ckpt_file;

/* Read a file of any format. tt__ckpt_free() may follow a failure, too. */
tt_status tt__ckpt_open(tt__ckpt_file *file, const char *path);
void tt__ckpt_free(tt__ckpt_file *file);

/* Find a row; NULL if there is none. */
const tt__ckpt_row *tt__ckpt_find(const tt__ckpt_file *file, const char *name);

/* Return how many tensors there are, and their bytes. */
size_t tt__ckpt_tensors(const tt__ckpt_file *file, uint64_t *bytes);

/* Return the bytes of a tensor's elements. */
uint64_t tt__ckpt_bytes(const tt_tensor *x);

/* Write what a row is, without what a terminal would act upon. Returns `text`. */
const char *tt__ckpt_describe(const tt__ckpt_row *row, char *text, size_t size);

/* The subcommands' work: each returns the exit code. */
int tt__ckpt_show(const char *path, bool json);
int tt__ckpt_verify(int count, char **paths, bool json);
int tt__ckpt_diff(const char *a, const char *b, bool json);

#endif
