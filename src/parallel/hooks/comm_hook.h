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
    void *buffers[TT__HOOK_BUFFERS];      /* the hook's, while it is attached */
    tt__carried memory[TT__HOOK_BUFFERS]; /* of the buffers */
    float *error;                         /* (view.count); NULL: none is fed back */
    float *more;                          /* (more_count) other errors of this rank; or NULL */
    int64_t more_count;
    /* (view.count) earlier errors of gradients that this rank does not use; NULL: none were kept yet */
    float *error_before;
    float *more_before; /* (more_count) the same for `more` */
} tt__hook_bucket;

/* What a bucket needs. */
typedef struct tt__hook_needs {
    size_t bytes[TT__HOOK_BUFFERS]; /* of buffers; 0: none */
    bool error;
    int64_t more_count;
} tt__hook_needs;

/* A parameter. Buckets refer to it by its number. */
typedef struct tt__hook_param {
    char *name;
    int64_t rows, count; /* as a matrix it has `count / rows` columns */
} tt__hook_param;

/* One kind of hook. All but `hook`, `takes` and `free` are optional. */
typedef struct tt__hook_class {
    tt_comm_hook hook; /* .attach and .detach are tt__hook_attach and tt__hook_detach */
    bool (*takes)(tt_dtype dtype);
    const char *types; /* the types that it takes, as text: "f32" */
    void (*needs)(const tt__comm_hook *hook, const tt_bucket *bucket, tt__hook_needs *needs);
    /* The hook was attached, perhaps to other buckets and parameters than before. */
    tt_status (*attached)(tt__comm_hook *hook);
    /* The state that is alike on all ranks: its size in bytes; how far it has come; write it; read it. */
    size_t (*shared_size)(const tt__comm_hook *hook);
    int64_t (*progress)(const tt__comm_hook *hook);
    void (*write_shared)(const tt__comm_hook *hook, void *to);
    void (*read_shared)(tt__comm_hook *hook, const void *from);
    /* Entries of the state dict beside errors. save_room: how many at most. */
    int64_t (*save_room)(const tt__comm_hook *hook);
    tt_status (*save)(tt__comm_hook *hook, tt__dict *dict);
    tt_status (*load)(tt__comm_hook *hook, const tt_named_tensors *state);
    void (*forget)(tt__comm_hook *hook); /* become as new */
    void (*free)(tt__comm_hook *hook);   /* free the struct with all that the kind adds */
} tt__hook_class;

/* The first member of each kind's struct. */
struct tt__comm_hook {
    const tt__hook_class *cls;
    tt_module *ddp; /* the wrapper that owns the hook */
    tt_group *group;
    int world; /* of the last group it was attached to; 0: never */
    int64_t param_count, bucket_count;
    tt__hook_param *params;
    tt__hook_bucket *buckets;
    tt__dict dict;
};

/* The call site that errors of a hook's calls name. */
extern const char tt__hook_site[];

/* Check, before a hook is made, that there is a wrapper. */
tt_status tt__hook_check(const char *who, tt_module *ddp);

/* Tell the other ranks, which compare their hooks, that this rank can't make one. Returns `status`. */
tt_status tt__hook_refused(tt_module *ddp, tt_status status);

/* Register `hook`. The wrapper owns it; after a failure it is freed. NULL: there was no memory for it. */
tt_status tt__hook_register(tt_module *ddp, tt__comm_hook *hook, const tt__hook_class *cls, const char *settings);

tt_status tt__hook_attach(void *state, const tt_bucket *buckets, int64_t count);
void tt__hook_detach(void *state);

/* The hook's bucket that `bucket` is. */
static inline tt__hook_bucket *tt__hook_bucket_of(const tt__comm_hook *hook, const tt_bucket *bucket) {
    return &hook->buckets[bucket->index];
}

bool tt__hook_takes_f32(tt_dtype dtype);

/* The wrapper's hook, if it is one of the library's; else, or if `ddp` is no wrapper, NULL. */
tt__comm_hook *tt__hook_of(tt_module *ddp);

/* Errors of parameters that no rank uses in a step must stay unchanged, as nothing that is sent of them is applied.
 * Before a stage changes errors: keep those of gradients that this rank does not use. `first`: the bucket's element at
 * which `more` begins. */
tt_status tt__hook_keep_error(const tt__comm_hook *hook, const tt_bucket *bucket);
tt_status tt__hook_keep_more(const tt__comm_hook *hook, const tt_bucket *bucket, int64_t first);

/* With stage == stages: put back the errors of gradients that no rank has used. */
void tt__hook_put_error_back(const tt__comm_hook *hook, const tt_bucket *bucket);
void tt__hook_put_more_back(const tt__comm_hook *hook, const tt_bucket *bucket, int64_t first);

/* Collective: give all ranks of the group the shared state of the one that has come furthest. `mine`: how this rank's
 * part has gone so far; if it failed on any rank, all fail. */
tt_status tt__hook_align(tt__comm_hook *hook, tt_group *group, tt_status mine);

/* ---- comm_hook_state.c ---- */

/* *found := the entry "HOOK.KIND OF" of a state, which must be contiguous in memory of the host. */
tt_status tt__hook_find(const tt__comm_hook *hook, const tt_named_tensors *state, const char *kind, const char *of,
                        tt_dtype dtype, int64_t count, const tt_tensor **found);

/* ---- hook_kernels.c ---- */

/* Conversions to and from one 16-bit type. */
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
    /* The bits of the largest magnitude; above 0x7f800000 if there is a NaN. */
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

/* Make the rows of a (rank,n), rank <= n, orthonormal, by Gram and Schmidt's method in double, twice for each row
 * (Giraud et al., 2005). A row that depends on those before it, such as zeros, becomes a unit vector orthogonal to
 * them. NaN stays. With `epsilon` the method is applied once, and rows are divided by their length plus epsilon. The
 * same bits on every machine. */
void tt__orthonormal_rows(float *a, int64_t rank, int64_t n, double epsilon);

/* numpy's RandomState.randint(10^9): draw 30 bits until they are less than 10^9. */
static inline uint32_t tt__numpy_randint_billion(tt_generator *g) {
    const uint32_t most = 999999999;
    uint32_t drawn;
    do
        drawn = tt_generator_random(g) & ((1u << 30) - 1);
    while (drawn > most);
    return drawn;
}

#endif
