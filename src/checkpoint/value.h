/* The inside of a value: what readers and writers of files build and walk. */
#ifndef TT_CHECKPOINT_VALUE_H
#define TT_CHECKPOINT_VALUE_H

#include <tutti/checkpoint.h>

/* The most levels of a tree: functions that walk one call themselves. */
enum { TT__VALUE_MAX_DEPTH = 100 };

/* Types of what a reader has on its stack beside values. No tree that a caller sees has them. */
enum { TT__VALUE_GLOBAL = 100, TT__VALUE_STORAGE };

/* Whether a reader's walk has come to a value. */
typedef enum tt__value_mark { TT__VALUE_UNSEEN, TT__VALUE_OPEN, TT__VALUE_SEEN } tt__value_mark;

struct tt_value {
    unsigned char type;  /* tt_value_type, or a reader's */
    unsigned char mark;  /* tt__value_mark */
    unsigned char depth; /* of what is below: 0, a leaf or an empty container */
    bool has_parent;
    unsigned refs; /* containers that hold it, or 1 for the root */
    size_t count, room;
    tt_value **keys, **items; /* of a dict; of any container */
    union {
        bool boolean;
        int64_t integer;
        double real;
        char *string;
        tt_tensor *tensor;
        tt_dtype dtype;
        const void *global; /* of TT__VALUE_GLOBAL */
        size_t storage;     /* of TT__VALUE_STORAGE: its number */
        uint64_t weight;    /* of a container, while a reader counts: how many values a walk of it meets */
    };
    struct tt__value_names *names; /* what tt_value_tensors() made */
};

static inline bool tt__value_is_container(const tt_value *v) {
    return v->type == TT_VALUE_LIST || v->type == TT_VALUE_TUPLE || v->type == TT_VALUE_DICT;
}

/* Make a value with one reference and nothing in it; NULL and TT_ERR_MEMORY. */
tt_value *tt__value_new(int type);

/* Add an item, and its key to a dict (else NULL), without counting or checking anything. */
tt_status tt__value_push(tt_value *container, tt_value *key, tt_value *item);

/* Release a value's own memory, and not what it holds. */
void tt__value_release(tt_value *v);

/* Drop a reference; the last one ends the value and what it alone holds. NULL is allowed. */
void tt__value_unref(tt_value *v);

/* "a list of 3", "the int 7" in a buffer that lives to the end of the enclosing block. */
const char *tt__value_describe(const tt_value *v, char *text, size_t size);
#define TT__VALUE_TEXT(v) tt__value_describe(v, (char[160]){0}, 160)

/* Compare keys of a dict: numbers first, then strings. */
int tt__value_compare_keys(const tt_value *a, const tt_value *b);

#endif
