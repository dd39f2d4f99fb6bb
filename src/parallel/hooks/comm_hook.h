/* What the library's communication hooks have in common: buffers for each bucket, errors that are fed back, and state
 * that is saved and loaded. */
#ifndef TT_PARALLEL_HOOKS_COMM_HOOK_H
#define TT_PARALLEL_HOOKS_COMM_HOOK_H

#include "base/machine/cpu.h"
#include "optim/dict.h"
#include "parallel/carried.h"

#include <tutti/comm_hooks.h>
#include <tutti/tensor.h>

#include <stddef.h>
#include <stdint.h>

typedef struct tt__comm_hook tt__comm_hook;

enum { TT__HOOK_BUFFERS = 3 };

/* A bucket and what a hook keeps for it. */
typedef struct tt__hook_bucket {
    tt_bucket view;                       /* its list of gradients is a copy */
    void *buffers[TT__HOOK_BUFFERS];      /* beside the bucket, while the hook is attached, */
    tt__carried memory[TT__HOOK_BUFFERS]; /* in this */
    float *error;                         /* (view.count); NULL: none is fed back */
    float *more;                          /* (more_count) other errors of this rank, likewise */
    int64_t more_count;
    /* (view.count) what errors were, of gradients that this rank does not use; NULL: as yet none */
    float *error_before;
    float *more_before; /* (more_count) likewise */
} tt__hook_bucket;

/* What a bucket needs. */
typedef struct tt__hook_needs {
    size_t bytes[TT__HOOK_BUFFERS]; /* of buffers; 0: none */
    bool error;
    int64_t more_count;
} tt__hook_needs;

/* A parameter, by the number that buckets have for it. */
typedef struct tt__hook_param {
    char *name;
    int64_t rows, count; /* as a matrix it has `count / rows` columns */
} tt__hook_param;

/* One kind of hook. All but `hook`, `takes` and `free` are optional. */
typedef struct tt__hook_class {
    tt_comm_hook hook; /* .attach and .detach are tt__hook_attach and tt__hook_detach */
    bool (*takes)(tt_dtype dtype);
    const char *types; /* which: "f32" */
    void (*needs)(const tt__comm_hook *hook, const tt_bucket *bucket, tt__hook_needs *needs);
    /* Buckets are there, and parameters, which may be others than before. */
    tt_status (*attached)(tt__comm_hook *hook);
    /* What is alike on all ranks: its size in bytes, and how far it has come; write it, and read it. */
    size_t (*shared_size)(const tt__comm_hook *hook);
    int64_t (*progress)(const tt__comm_hook *hook);
    void (*write_shared)(const tt__comm_hook *hook, void *to);
    void (*read_shared)(tt__comm_hook *hook, const void *from);
    /* Entries of the state beside errors. `save_room`: how many at most. */
    int64_t (*save_room)(const tt__comm_hook *hook);
    tt_status (*save)(tt__comm_hook *hook, tt__dict *dict);
    tt_status (*load)(tt__comm_hook *hook, const tt_named_tensors *state);
    void (*forget)(tt__comm_hook *hook); /* as it was when it was made */
    void (*free)(tt__comm_hook *hook);   /* with what the kind has of its own */
} tt__hook_class;

/* The first member of each kind's struct. */
struct tt__comm_hook {
    const tt__hook_class *cls;
    tt_module *ddp; /* the wrapper that owns the hook */
    tt_group *group;
    int world; /* of the group it is, or was last, attached to; 0: never */
    int64_t param_count, bucket_count;
    tt__hook_param *params;
    tt__hook_bucket *buckets;
    tt__dict dict;
};

/* What errors of a hook's calls name, as they have no line of the program's. */
extern const char tt__hook_site[];

/* Check, before a hook is made, that there is a wrapper. */
tt_status tt__hook_check(const char *who, tt_module *ddp);

/* A hook that this rank can't have: let the other ranks, which compare theirs, know. Returns `status`. */
tt_status tt__hook_refused(tt_module *ddp, tt_status status);

/* Register `hook`, which is the wrapper's from now on: on failure it is freed. NULL: there was no memory. */
tt_status tt__hook_register(tt_module *ddp, tt__comm_hook *hook, const tt__hook_class *cls, const char *settings);

tt_status tt__hook_attach(void *state, const tt_bucket *buckets, int64_t count);
void tt__hook_detach(void *state);

/* The hook's bucket that `bucket` is. */
static inline tt__hook_bucket *tt__hook_bucket_of(const tt__comm_hook *hook, const tt_bucket *bucket) {
    return &hook->buckets[bucket->index];
}

bool tt__hook_takes_f32(tt_dtype dtype);

/* The library's hook that a wrapper has. NULL: `ddp` is no wrapper, or has none of them. */
tt__comm_hook *tt__hook_of(tt_module *ddp);

/* Errors of parameters that no rank uses in a step stay what they were, as nothing that is sent of them is applied.
 * Before a stage changes errors: keep those of gradients that this rank does not use. `first`: where `more` begins in
 * the bucket. */
tt_status tt__hook_keep_error(const tt__comm_hook *hook, const tt_bucket *bucket);
tt_status tt__hook_keep_more(const tt__comm_hook *hook, const tt_bucket *bucket, int64_t first);

/* With stage == stages: put back those that no rank has used. */
void tt__hook_put_error_back(const tt__comm_hook *hook, const tt_bucket *bucket);
void tt__hook_put_more_back(const tt__comm_hook *hook, const tt_bucket *bucket, int64_t first);

/* Collective: give all ranks of the group the shared state of the one that has come furthest. `mine`: how this rank's
 * part has gone so far; if it failed on any rank, all fail. */
tt_status tt__hook_align(tt__comm_hook *hook, tt_group *group, tt_status mine);

/* ---- comm_hook_state.c ---- */

/* Find the entry "HOOK.KIND OF" of a state, in memory of the host, contiguous: *found. */
tt_status tt__hook_find(const tt__comm_hook *hook, const tt_named_tensors *state, const char *kind, const char *of,
                        tt_dtype dtype, int64_t count, const tt_tensor **found);

/* ---- hook_kernels.c ---- */

/* To and from one 16-bit type. */
typedef struct tt__hook_half_kernels {
    /* out[i] := in[i] rounded, divided by `divisor` and rounded again */
    void (*narrow_f32)(uint16_t *out, const float *in, size_t n, float divisor);
    void (*narrow_f64)(uint16_t *out, const double *in, size_t n, float divisor); /* by way of f32 */
    void (*divide)(uint16_t *x, size_t n, float divisor);
    void (*widen_f32)(float *out, const uint16_t *in, size_t n);
    void (*widen_f64)(double *out, const uint16_t *in, size_t n);
} tt__hook_half_kernels;

typedef struct tt__hook_kernels {
    tt__hook_half_kernels f16, bf16;
    void (*add)(float *x, const float *y, size_t n);
    void (*divide)(float *x, size_t n, float divisor);
    /* The largest magnitude's bits: above 0x7f800000 if there is a NaN. */
    uint32_t (*largest)(const float *x, size_t n);
    /* q[i] := x[i] / scale, to the nearest, ties to even; error[i] := x[i] - scale q[i]. 1 / scale is finite. error:
     * NULL, or not x. */
    void (*quantise)(int8_t *q, float *error, const float *x, size_t n, float scale);
    void (*add_scaled)(float *sum, const int8_t *q, size_t n, float scale);
    void (*scale)(float *out, const int8_t *q, size_t n, float scale);
    /* m (rows,columns), p (rank,rows), q (rank,columns): error := m - p' q, m := p' q. error: NULL, or not m. */
    void (*low_rank)(float *m, float *error, const float *p, const float *q, size_t rows, size_t columns, size_t rank);
} tt__hook_kernels;

TT__LEVEL_DECLARE(tt__hook_kernels, tt__hook_kernels);

/* ---- what PowerSGD computes with ---- */

/* a (rank,n), rank <= n: make its rows orthonormal, by Gram and Schmidt's method in double, twice for each row (Giraud
 * et al., 2005); one that depends on those before it, such as zeros, becomes a unit vector without their parts. NaN
 * stays. With `epsilon`, once, and rows are divided by their length plus that. The same bits on every machine. */
void tt__orthonormal_rows(float *a, int64_t rank, int64_t n, double epsilon);

/* RandomState.randint(10^9): 30 bits, again while they are too many. */
static inline uint32_t tt__numpy_randint_billion(tt_generator *g) {
    const uint32_t most = 999999999;
    uint32_t drawn;
    do
        drawn = tt_generator_random(g) & ((1u << 30) - 1);
    while (drawn > most);
    return drawn;
}

#endif
