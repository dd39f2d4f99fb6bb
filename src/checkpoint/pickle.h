/* The machine that reads the pickle in a .pt file: a stack, a memo, and opcodes that push and join values. It knows a
 * fixed list of globals (pickle_globals.c); what is not on it is an error, so nothing in a file can run.
 *
 * While it runs, the machine owns all values it made, in `objects`, and nothing is counted: containers may hold each
 * other in any way that a file invents. When it has stopped, pickle_values.c checks what is reachable from the result
 * (a tree, or one whose parts are shared, of limited depth and size) and counts it; the rest is freed. */
#ifndef TT_CHECKPOINT_PICKLE_H
#define TT_CHECKPOINT_PICKLE_H

#include "checkpoint/archive.h"
#include "checkpoint/torch_types.h"
#include "checkpoint/value.h"

/* A run of pointers or numbers that grows. */
typedef struct tt__pickle_values {
    tt_value **item;
    size_t count, room;
} tt__pickle_values;

typedef struct tt__pickle_marks {
    size_t *item; /* the heights that the stack had */
    size_t count, room;
} tt__pickle_marks;

/* A storage of the archive, read when its first tensor is made. */
typedef struct tt__pickle_storage {
    const tt__torch_type *type; /* NULL: not yet */
    tt_tensor *elements;        /* all of them, one dimension */
} tt__pickle_storage;

typedef struct tt__pickle {
    const char *name; /* the path, for errors */
    const tt__archive *archive;
    const unsigned char *begin, *at, *end;
    bool stopped;
    tt__pickle_values objects, stack, memo;
    tt__pickle_marks marks;
    tt__pickle_storage *storages; /* one for each record of the archive */
} tt__pickle;

/* What GLOBAL may name: a function, which makes a value of the arguments in a tuple, or a type of storages. */
typedef struct tt__pickle_global {
    const char *module, *name;
    tt_status (*call)(tt__pickle *p, const tt_value *args, tt_value **out);
} tt__pickle_global;

/* Run the pickle of `size` bytes. *out: the result, the caller's. */
tt_status tt__pickle_run(tt_value **out, const tt__archive *archive, const unsigned char *data, size_t size);

/* ---- for the files of the machine ---- */

/* Fail with the path and the place in the pickle. */
tt_status tt__pickle_fail(const tt__pickle *p, tt_status status, const char *format, ...) TT_PRINTF(3, 4);

/* Make a value that belongs to the machine; NULL with an error. */
tt_value *tt__pickle_new(tt__pickle *p, int type);

/* Push a value that belongs to the machine; NULL is an error that is recorded. */
tt_status tt__pickle_push(tt__pickle *p, tt_value *v);

/* Push what the global MODULE NAME stands for. */
tt_status tt__pickle_global_push(tt__pickle *p, const char *module, const char *name);

/* Make what a function of the list returns for `args`. */
tt_status tt__pickle_call(tt__pickle *p, const tt_value *function, const tt_value *args, tt_value **out);

/* Push the storage that a persistent id describes: ("storage", type, key, location, number of elements). */
tt_status tt__pickle_storage_push(tt__pickle *p, const tt_value *id);

/* Check what is reachable from `root`, count it, and take it from the machine. */
tt_status tt__pickle_take_tree(tt__pickle *p, tt_value *root);

/* Append to a run; TT_ERR_MEMORY. */
tt_status tt__pickle_values_add(tt__pickle_values *values, tt_value *v);

#endif
