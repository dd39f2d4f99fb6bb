/* The inside of data sets: making the built-in ones, and reading any, for loaders and sets made of others. */
#ifndef TT_DATA_DATASET_H
#define TT_DATA_DATASET_H

#include <tutti/data.h>

#include <pthread.h>
#include <stdatomic.h>

/* What a loader does with u8 inputs: (x / 255 - mean) / std if it is on, else x as f32. */
typedef struct tt__normalization {
    bool on;
    float mean, std;
} tt__normalization;

struct tt_dataset {
    tt_dataset_class cls; /* `name` is never NULL */
    void *user;
    atomic_int holders; /* the caller (until it frees the set), loaders, and sets made of this one */
    atomic_bool freed;  /* by the caller */
    int64_t size;
    tt_tensor_spec x, y;
    size_t x_bytes, y_bytes;     /* of one example */
    tt_tensor *inputs, *targets; /* of a set in memory, owned by `user`; else NULL */
    const char *const *classes;  /* the names of classes 0, 1, ...; owned by `user` or static; NULL: it has none */
    int64_t class_count;
    /* The sets that it is made of, owned by `user`. Their errors name the example; their normalisation is this set's
     * unless it has one of its own. */
    tt_dataset *const *bases;
    int64_t base_count;
    tt__normalization normalization; /* its own, by tt_dataset_normalize() */
    pthread_mutex_t one_at_a_time;   /* held while a serial class reads */
};

/* Make a data set of a built-in class; `who` begins errors. `user` is destroyed on failure, too. */
tt_dataset *tt__dataset_new(const char *who, const tt_dataset_class *cls, void *user, tt_tensor_spec x,
                            tt_tensor_spec y);

/* Hold the set until tt__dataset_release(). Returns it. */
tt_dataset *tt__dataset_hold(tt_dataset *dataset);
void tt__dataset_release(tt_dataset *dataset); /* NULL is allowed */

/* Write n examples, one behind the other. Indices are in range. y NULL: not wanted, or there are none. */
tt_status tt__dataset_read(tt_dataset *dataset, const int64_t *indices, int64_t n, void *x, void *y);

/* Return the normalisation of this set's inputs: its own, else that of all its bases. TT_ERR_STATE: the bases'
 * differ. */
tt_status tt__dataset_normalization(const tt_dataset *dataset, tt__normalization *out);

#endif
