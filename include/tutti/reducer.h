/* tutti/reducer.h: bucketed, overlapped averaging of gradients over a group, for any training loop. Knows no tensors.
 *
 * The reducer owns one gradient buffer per parameter, packed into buckets that lie in the group's symmetric heap. Each
 * step the program writes its gradients there, says for each when it is final (tt_reducer_mark_ready), or that there is
 * none (tt_reducer_mark_unused), and calls tt_reducer_finish(): every rank then holds bitwise the same averages. A
 * bucket's all-reduce starts when its last gradient is ready and every earlier bucket has started. It advances in every
 * later call of the reducer, so that it overlaps with computing.
 *
 * Buckets are formed as torch.nn.parallel.DistributedDataParallel forms them (Li et al., VLDB 2020, section 3.2), over
 * the parameters in reverse order. A bucket is closed when its bytes reach its limit: 1 MiB for the first, the cap for
 * the rest. All of a bucket has one dtype.
 *
 * One thread at a time; it must not overlap other calls on the same group. */
#ifndef TUTTI_REDUCER_H
#define TUTTI_REDUCER_H

#include <tutti/comm.h>

TT_BEGIN_DECLS

typedef struct tt_reducer tt_reducer;

/* One parameter: a name for errors (borrowed during the call), element count and type (TT_F32 or TT_F64). */
typedef struct tt_reducer_param {
    const char *name;
    int64_t count;
    tt_dtype dtype;
} tt_reducer_param;

#define TT_DEFAULT_BUCKET_CAP_BYTES ((size_t)25 << 20)

typedef struct tt_reducer_new_args {
    tt_reducer **out;               /* required: receives the reducer */
    tt_group *group;                /* required: borrowed; once it is destroyed the reducer can only be freed */
    const tt_reducer_param *params; /* required: `count` of them, in registration order (the forward's order) */
    int64_t count;                  /* required */
    TT_OPTIONS;
    size_t bucket_cap_bytes; /* 0 = 1 MiB for the first bucket, 25 MiB for the others; else the limit of all */
    const bool *delayed;     /* (count), copied; true: put it into a bucket after those of all others. NULL: none */
    char tt_end;             /* not an option: see base.h */
} tt_reducer_new_args;

/* Collective. Compares names, counts, types and .delayed over the ranks: TT_ERR_MISMATCH names the first parameter that
 * differs, and the rank. Other errors: TT_ERR_INVALID (no parameters, integer dtype), and those of tt_group_alloc(). */
TT_API TT_NODISCARD tt_status tt_reducer_new_with(const tt_reducer_new_args *args, size_t size);
#ifndef __cplusplus
#define tt_reducer_new(out_, group_, params_, ...)                                                           \
    tt_reducer_new_with(TT_ARGS(tt_reducer_new_args, .out = TT_PLACE(tt_reducer *, out_), .group = (group_), \
                                .params = (params_), .count = __VA_ARGS__))
#endif
#define TT_REDUCER_NEW_ARGS_INIT TT_ARGS_INIT

/* Collective (it frees symmetric memory), but never fails: after an error of the group only local memory is released.
 * NULL ok. */
TT_API void tt_reducer_free(tt_reducer *reducer);

/* The gradient buffer of parameter i: params[i].count elements, 64-byte aligned, zero at first, valid until the reducer
 * is freed; NULL: no such parameter. Write it before marking it ready, read it after finish; in between it is the
 * reducer's. */
TT_API void *tt_reducer_gradient(tt_reducer *reducer, int64_t i);

/* Parameter i's gradient is final for this step. Starts and advances reductions without waiting for peers.
 * Errors: TT_ERR_STATE already marked in this step (names it); TT_ERR_INVALID no such parameter; those of
 * tt_all_reduce(). */
TT_API TT_NODISCARD tt_status tt_reducer_mark_ready(tt_reducer *reducer, int64_t i);

/* Parameter i takes no part in this step on this rank. The rank gives its buffer's values (zeros, or those of earlier
 * steps) to the average. After the step every rank holds the average if any rank has marked the parameter ready, and
 * else its values from before the step. Costs no further call, as each bucket has a mark for each parameter. Errors: as
 * tt_reducer_mark_ready(); TT_ERR_MEMORY no memory for a copy of the buffer. PyTorch: find_unused_parameters. */
TT_API TT_NODISCARD tt_status tt_reducer_mark_unused(tt_reducer *reducer, int64_t i);

/* Has any rank marked parameter i ready in the last step? Valid between steps. False before the first step, and if
 * there is no such parameter. */
TT_API bool tt_reducer_was_used(const tt_reducer *reducer, int64_t i);

/* Wait until all buckets are averaged; then the next step may begin. Errors: TT_ERR_STATE names the first parameter
 * that was not marked (the step is then abandoned: the group must be destroyed, as peers wait in it); those of
 * tt_all_reduce(). */
TT_API TT_NODISCARD tt_status tt_reducer_finish(tt_reducer *reducer);

/* ---- communication hooks: another way to average a bucket ---- */

/* A gradient in a bucket: its parameter's number, and where it lies, in elements. */
typedef struct tt_bucket_gradient {
    int64_t param, offset, count;
    /* In stages: this rank uses the parameter in this step. With stage == stages: some rank has used it. If none has,
     * the values from before the step come back after the call, so that nothing that a hook has sent is applied. */
    bool used;
} tt_bucket_gradient;

/* A bucket, as hooks see it. Everything is borrowed, and keeps its address until the hook is detached. */
typedef struct tt_bucket {
    tt_group *group;
    int64_t index, buckets; /* it is number `index` of so many */
    /* symmetric memory of the group, or of .device: `count` elements, with zeros between gradients. Zeros follow, up to
     * a multiple of world_size cache lines of 64 bytes: equal parts for tt_reduce_scatter() */
    void *data;
    int64_t count;
    tt_dtype dtype;
    int64_t gradient_count;
    const tt_bucket_gradient *gradients; /* by rising offset */
    tt_device_type device;               /* of `data`: the host, unless the hook has .takes_devices */
    int device_index;
    void *stream; /* of the device; its work so far computes the gradients */
} tt_bucket;

/* A table of functions that average buckets, which are called in the thread that calls the reducer. Borrowed while a
 * reducer has it. PyTorch: DistributedDataParallel.register_comm_hook. */
typedef struct tt_comm_hook {
    size_t size;      /* sizeof(tt_comm_hook): TT_COMM_HOOK(.name = ...) sets it */
    const char *name; /* "powersgd": compared over the ranks, and part of errors */

    /* The number of collectives of a bucket, each of which needs the result of the one before; 0 = 1. A bucket's first
     * one begins after the last one of the bucket before, so that all ranks make the same calls in the same order. So
     * with more than one, a bucket waits for the one before it. */
    int stages;

    /* Begin stage 0, 1, ... of a bucket, which has this rank's gradients, not scaled. *work := the work of a call,
     * which the reducer waits for and frees; leave it NULL if there is nothing to wait for. With stage == stages: the
     * last call has ended; leave the averages in bucket->data, alike on all ranks. Must not wait for peers. */
    tt_status (*next)(void *state, const tt_bucket *bucket, int stage, tt_work **work);

    /* Optional: the hook gets a reducer's buckets, `count` of them. It may allocate, and make collective calls. After a
     * failure detach is not called. */
    tt_status (*attach)(void *state, const tt_bucket *buckets, int64_t count);

    /* Optional: the hook loses its buckets. No stage is under way. Collective, as tt_group_free() is. */
    void (*detach)(void *state);

    /* Optional: returns the group in which ranks tell each other which parameters they use in this step: those ranks of
     * the reducer's group, this one included, among which the hook averages in this step. Returns NULL: nothing is
     * told, and this rank's own use counts. Without this function: the reducer's group. Asked when each bucket begins,
     * unless ranks tell numbers of examples (tutti/join.h), which all ranks of the reducer's group do. */
    tt_group *(*told_over)(void *state);

    /* The hook takes buckets on a device, where the group's back end averages: its calls have the bucket's .device,
     * .device_index and .stream, and its computations run on the stream. False: a reducer with such buckets refuses
     * it. */
    bool takes_devices;
} tt_comm_hook;
#define TT_COMM_HOOK(...) ((tt_comm_hook){.size = sizeof(tt_comm_hook), __VA_ARGS__})

typedef struct tt_reducer_set_comm_hook_args {
    tt_reducer *reducer;      /* required */
    const tt_comm_hook *hook; /* required: NULL: average again as without a hook */
    void *state;              /* required: handed to the hook; borrowed, unless there is .destroy */
    TT_OPTIONS;
    const char *settings;         /* what else must be alike on all ranks, for people: "rank 4, from step 10" */
    void (*destroy)(void *state); /* release `state`: when another hook is set, the reducer is freed, and on failure */
    char tt_end;                  /* not an option: see base.h */
} tt_reducer_set_comm_hook_args;

/* Collective, between steps: average buckets by `hook` from now on. As a hook need not be exact, the reducer makes a
 * small call of its own for each bucket, in which ranks tell which parameters take part in the step: see told_over.
 *   tt_reducer_set_comm_hook(reducer, &top_k, state, .settings = "1 %")
 * Errors: TT_ERR_MISMATCH the ranks set different hooks or settings, and the hook before stays; TT_ERR_INVALID a hook
 * without size, name or next, or with stages below 0; TT_ERR_STATE a step is under way, or an earlier one failed; the
 * error of attach(), or TT_ERR_MISMATCH if other ranks' attach() returned something else: all ranks then average
 * buckets without a hook. */
TT_API TT_NODISCARD tt_status tt_reducer_set_comm_hook_with(const tt_reducer_set_comm_hook_args *args, size_t size);
#define TT_REDUCER_SET_COMM_HOOK_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_reducer_set_comm_hook(reducer_, hook_, ...) \
    tt_reducer_set_comm_hook_with(                     \
        TT_ARGS(tt_reducer_set_comm_hook_args, .reducer = (reducer_), .hook = (hook_), .state = __VA_ARGS__))
#endif

/* Number of buckets (0 for NULL), and the bucket of parameter i (-1: no such parameter). Buckets are reduced in index
 * order. */
TT_API int64_t tt_reducer_bucket_count(const tt_reducer *reducer);
TT_API int64_t tt_reducer_bucket_of(const tt_reducer *reducer, int64_t i);

/* Bytes of gradients in bucket b, with padding; 0: no such bucket. */
TT_API int64_t tt_reducer_bucket_bytes(const tt_reducer *reducer, int64_t b);

/* Events of a step, in their order, for tests and for people who want to see the overlap. */
typedef enum tt_reducer_event_kind {
    TT_REDUCER_READY, /* index: parameter */
    TT_REDUCER_BEGIN, /* index: bucket; its all-reduce was begun */
    TT_REDUCER_END    /* index: bucket; averages are in place */
} tt_reducer_event_kind;
typedef struct tt_reducer_event {
    tt_reducer_event_kind kind;
    int64_t index;
    int64_t time_ns; /* CLOCK_MONOTONIC */
} tt_reducer_event;
typedef void (*tt_reducer_trace_fn)(const tt_reducer_event *event, void *user);

typedef struct tt_reducer_set_trace_args {
    tt_reducer *reducer;       /* required */
    tt_reducer_trace_fn trace; /* required: NULL ends it */
    void *user;                /* required: handed to `trace`; borrowed, unless there is .destroy */
    TT_OPTIONS;
    void (*destroy)(void *user); /* release `user`: when another trace is set or the reducer is freed */
    char tt_end;                 /* not an option: see base.h */
} tt_reducer_set_trace_args;

/* Call `trace` for each event, in the thread that caused it. Not to be called from inside a trace.
 *   tt_reducer_set_trace(reducer, note, &notes) */
TT_API void tt_reducer_set_trace_with(const tt_reducer_set_trace_args *args, size_t size);
#define TT_REDUCER_SET_TRACE_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_reducer_set_trace(reducer_, trace_, ...) \
    tt_reducer_set_trace_with(                      \
        TT_ARGS(tt_reducer_set_trace_args, .reducer = (reducer_), .trace = (trace_), .user = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
