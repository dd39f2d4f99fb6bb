/* The inside of a reducer.
 *
 * Parameters are divided into buckets as PyTorch's DDP divides them: in reverse order of their registration, and again
 * in the order in which the first step shows them to be ready (layout.c). A bucket lies in symmetric memory. It has the
 * gradients of its parameters, which are views into it, and behind them a mark for each (marks.c); behind the last
 * bucket's marks is a note of each rank.
 *
 * A bucket begins when its parameters are ready and the buckets before it have begun, so all ranks make the same calls
 * in the same order (exchange.c). It is averaged by an asynchronous all_reduce, which advances whenever another
 * gradient is ready. A communication hook replaces the all_reduce, in one or several stages. Marks are then averaged by
 * a call of their own, since a hook need not be exact. */
#ifndef TT_REDUCER_REDUCER_H
#define TT_REDUCER_REDUCER_H

#include "base/export.h"

#include <tutti/base.h>
#include <tutti/comm.h>
#include <tutti/reducer.h>

#include <stdbool.h>

/* A gradient, for tt__bucket_assign(). */
typedef struct tt__bucket_item {
    size_t bytes;
    tt_dtype dtype;
} tt__bucket_item;

typedef struct tt__reducer_param {
    char *name;
    size_t count;
    tt_dtype dtype;
    size_t bytes;
    void *gradient; /* inside its bucket */
    size_t bucket;
    size_t mark;  /* the bucket's element that is 1 on ranks that use the parameter; averaged, not 0 if any rank does */
    bool delayed; /* it lies in a bucket behind those of all parameters that aren't delayed */
    bool ready;   /* it was marked in this step */
    bool unused;  /* it was marked as taking no part on this rank */
    bool used;    /* it took part on some rank, in the last step that has ended */
    bool is_kept; /* `kept` has the gradient as it was before this step */
    void *kept;   /* memory for that; NULL until it is first needed */
} tt__reducer_param;

/* Gradients, each beginning at a cache line of its own, and then a mark for each parameter. With marks, finding out
 * which parameters no rank has used costs no further call. */
typedef struct tt__reducer_bucket {
    void *data; /* symmetric memory, or the place's */
    size_t count;
    tt_dtype dtype;
    size_t params;
    size_t pending;   /* parameters that are not ready yet in this step */
    size_t gradients; /* elements of them; zeros follow up to the marks */
    size_t marks_at;  /* the first mark's element; divisible among the ranks: see tt_bucket */
    tt_bucket view;   /* as hooks see it; its list of gradients is allocated */
    int stage;        /* the last that was begun, if the bucket was begun */
    tt_work *work;    /* of that stage; NULL: there is none, or it has ended */
    tt_work *marks;   /* with a hook, of the call that averages the marks; NULL as above */
    void *told;       /* where this rank writes the marks and notes */
    void *heard;      /* where it reads their averages */
    void *hearing;    /* with a place, the mark of the current read into `heard`; NULL: there is none */
    bool filled;      /* with a mirror, the gradients of this step have come into the bucket */
    bool sums;        /* the mirror's sum() is under way */
} tt__reducer_bucket;

/* Gradients that are computed elsewhere, on a device, and come into a bucket when all of them are ready. An error of
 * any of these ends the step. */
typedef struct tt__reducer_mirror {
    /* send: begin to copy the bucket's gradients into it. sent: has that ended? `wait`: wait until it has. */
    tt_status (*send)(void *user, size_t bucket);
    tt_status (*sent)(void *user, size_t bucket, bool wait, bool *done);

    /* Copy the bucket's averages back. The bucket's gradients are not written to again before the next send(). */
    tt_status (*receive)(void *user, size_t bucket);

    /* Are the bucket's averages made where gradients are computed? The same on all ranks. Then send() and receive()
     * copy nothing. After send(), sent() asks whether the gradients are final. When those of all ranks are, sum()
     * begins to write this rank's share of the averages to all ranks; then sent() asks whether that has ended.
     * receive() comes when it has ended on all ranks. */
    bool (*reaches)(void *user, size_t bucket);
    tt_status (*sum)(void *user, size_t bucket);

    /* Write the gradient of parameter i. `from` stays unchanged until that gradient is read again. */
    tt_status (*write)(void *user, size_t i, const void *from);

    /* Read what the gradient of parameter i is now. */
    tt_status (*read)(void *user, size_t i, void *to);
} tt__reducer_mirror;

/* A place on a device for the buckets, which the group's back end averages there, in calls on this stream. Only marks
 * and notes go over the host: they are written to the device before a bucket is averaged, and read back after that.
 * Borrowed for the life of the reducer. */
typedef struct tt__reducer_place {
    void *user;
    tt_device_type device;
    int index;
    void *stream;
    tt_status (*alloc)(void *user, size_t bytes, void **out); /* zeros */
    void (*free)(void *user, void *data);                     /* NULL is allowed, here and below */
    tt_status (*alloc_host)(void *user, size_t bytes, void **out);
    void (*free_host)(void *user, void *host);

    /* write: copy to the device in the stream's order; `host` stays unchanged until a later read has ended. read: begin
     * to copy to the host in that order. wait: until that has ended. */
    tt_status (*write)(void *user, void *to, const void *host, size_t bytes);
    tt_status (*read)(void *user, void *host, const void *from, size_t bytes, void **mark);
    tt_status (*wait)(void *user, void *mark);
} tt__reducer_place;

/* Within a step 0 <= ended <= begun <= bucket_count: buckets are begun, and end, in index order. Only the last that was
 * begun may have stages left, and the next is begun after them. So all ranks make the same calls in the same order,
 * whatever their timing. */
struct tt_reducer {
    tt_group *group;
    tt__reducer_param *params;
    size_t param_count;
    tt__reducer_bucket *buckets;
    size_t bucket_count;
    size_t begun, ended;
    int64_t first_begun_ns;          /* when the first bucket of the step was begun */
    size_t cap;                      /* bucket_cap_bytes */
    uint32_t *order;                 /* (param_count): the order in which buckets are filled */
    uint32_t *seen;                  /* (param_count): the order in which parameters became ready in the step */
    size_t seen_count;               /* how many did */
    tt__reducer_bucket *old_buckets; /* from before a rebuild, until tt__reducer_drop_old(); else NULL */
    size_t old_count;
    size_t notes;             /* the first note's element in the last bucket */
    int64_t examples;         /* what this rank's note tells; -1: nothing */
    const tt_comm_hook *hook; /* NULL: all-reduce */
    void *hook_state;
    void (*hook_destroy)(void *state);                    /* NULL: hook_state is borrowed */
    tt_status broken;                                     /* why no step can follow any more; TT_OK = usable */
    tt_status (*bucket_ended)(void *user, size_t bucket); /* its averages are there; NULL: nobody asks */
    void *bucket_ended_user;
    const tt__reducer_mirror *mirror; /* NULL: gradients are computed in the buckets */
    void *mirror_user;
    const tt__reducer_place *place; /* NULL: buckets lie in symmetric memory. Not with a mirror */
    tt_reducer_trace_fn trace;
    void *trace_user;
    void (*trace_destroy)(void *user); /* NULL: trace_user is borrowed */
};

/* Arguments of a hook's call that say where its tt_bucket lies. */
#define TT__BUCKET_ON(b) .device = (b)->device, .device_index = (b)->device_index, .stream = (b)->stream

/* tt_reducer_new(), with the buckets in this place; NULL: in symmetric memory. */
TT__EXPORT tt_status tt__reducer_new_in(const tt_reducer_new_args *args, const tt__reducer_place *place);

/* Abandon the current step because of `why`, the last error: end the group, as peers may wait in the step. Every later
 * call fails. Does nothing after the first time. */
TT__EXPORT void tt__reducer_abandon(tt_reducer *reducer, tt_status why);

/* tt_reducer_free(); `who`: the public function that was called, for peers' errors. */
TT__EXPORT void tt__reducer_release(tt_reducer *reducer, const char *who);

/* Assign parameters to buckets in the order r->order, and make the buckets. After a failure those that were made must
 * still be freed. */
tt_status tt__reducer_make_buckets(tt_reducer *reducer);

/* Move delayed parameters to the end of an order of all parameters. */
void tt__reducer_delay(const tt_reducer *reducer, uint32_t *order);

void tt__reducer_free_buckets(const tt_reducer *reducer, tt__reducer_bucket *buckets, size_t count, const char *site);

/* Collective, between steps: fill buckets in the order in which rank 0's gradients became ready in the last step, if
 * that makes other buckets (PyTorch: _rebuild_buckets). *rebuilt: gradients have other places now, and the old buckets
 * keep their values until tt__reducer_drop_old(). Does nothing with a hook, which may rely on the places. Averages
 * don't depend on the buckets. After a failure the step is abandoned. */
TT__EXPORT tt_status tt__reducer_rebuild(tt_reducer *reducer, bool *rebuilt);
TT__EXPORT void tt__reducer_drop_old(tt_reducer *reducer);

/* Begin all buckets and stages that can be begun, and end those that are complete, without waiting for peers. */
tt_status tt__reducer_advance(tt_reducer *reducer);

/* Wait until all buckets have ended. */
tt_status tt__reducer_end_buckets(tt_reducer *reducer);

/* Wait for the works of a step that was abandoned: they must end before their memory goes. */
void tt__reducer_end_works(tt_reducer *reducer);

/* Do without the hook from now on, and release its state. */
TT__EXPORT void tt__reducer_end_hook(tt_reducer *reducer);

/* Note whether the parameter takes part in the step on this rank. */
tt_status tt__reducer_put_mark(tt_reducer *reducer, tt__reducer_param *param, bool unused);

/* Keep a copy of parameter i's gradient, so that it may be changed before the parameter is marked. If it is marked as
 * unused, and no rank uses it, it gets the copy back. */
TT__EXPORT tt_status tt__reducer_keep(tt_reducer *reducer, int64_t i);

/* From now on tell all ranks, in a note behind the last bucket's marks, of how many examples this rank's gradients are:
 * 0 to TT__REDUCER_EXAMPLES; -1, as at first: tell nothing. All ranks tell, or none. */
#define TT__REDUCER_EXAMPLES ((int64_t)1 << 20)
TT__EXPORT void tt__reducer_set_examples(tt_reducer *reducer, int64_t examples);

/* What `rank` told in the step that has ended. Only if this rank told, too. */
TT__EXPORT int64_t tt__reducer_examples_of(const tt_reducer *reducer, int rank);

/* Elements of a rank's note in a bucket of this type. */
size_t tt__reducer_note_size(tt_dtype dtype);

/* Write this rank's note. */
void tt__reducer_put_note(const tt_reducer *reducer);

/* Tell a hook which of the bucket's parameters this rank uses. */
void tt__reducer_tell_own_marks(const tt_reducer *reducer, size_t bucket);

/* With a place: write this rank's marks and note to the device; begin to read their averages; wait until they are
 * read. */
tt_status tt__reducer_tell(const tt_reducer *reducer, const tt__reducer_bucket *bucket);
tt_status tt__reducer_ask(const tt_reducer *reducer, tt__reducer_bucket *bucket);
tt_status tt__reducer_hear(const tt_reducer *reducer, tt__reducer_bucket *bucket);

/* The bucket's marks are averaged: find out which parameters any rank used, and tell a hook. */
tt_status tt__reducer_read_marks(tt_reducer *reducer, size_t bucket);

/* The bucket is averaged: restore the gradients that no rank used. */
tt_status tt__reducer_settle_marks(tt_reducer *reducer, size_t bucket);

void tt__reducer_trace(const tt_reducer *reducer, tt_reducer_event_kind kind, size_t index);

/* Call the trace function no more, and destroy its user data. */
void tt__reducer_end_trace(tt_reducer *reducer);

/* Assign gradients to buckets, by PyTorch DDP's procedure. Per dtype there is one open bucket. Each item, in the order
 * given, is appended to the open bucket of its dtype; if the bucket's bytes are then at or above its limit it is
 * closed, and that dtype moves to its next limit (the last one repeats). So a bucket may exceed its limit by its last
 * item. At the end open buckets are closed in the order in which they were opened. bucket_of[i] := item i's bucket,
 * numbered in the order of closing. Returns the number of buckets. `limits`: at least one. */
TT__EXPORT size_t tt__bucket_assign(const tt__bucket_item *items, size_t count, const size_t *limits,
                                    size_t limit_count, size_t *bucket_of);

/* ---- shard_sums.c: averages over shards, of which each rank has several one after the other: the bits that as many
 * ranks as there are shards would get, whatever the number of ranks ---- */

typedef struct tt__shard_sums tt__shard_sums;

enum { TT__SHARDS_MAX = 1024, TT__SHARD_DEPTH = 32 };

/* Shards lo..hi-1. */
typedef struct tt__shard_node {
    int lo, hi;
} tt__shard_node;

/* Have the reducer average over `shards`, of which its ranks have blocks (tt__shard_block()), by a communication hook.
 * *sums belongs to the reducer until that is freed. NULL: each rank has one shard, and the reducer itself sums in the
 * same order. Collective. Errors: those of tt_reducer_set_comm_hook(); TT_ERR_MEMORY. */
TT__EXPORT tt_status tt__shard_sums_set(tt_reducer *reducer, int shards, tt__shard_sums **sums);

/* Add the gradient of parameter i, which lies in the reducer, to the sums, as that of this rank's shard number `shard`
 * (0, 1, ...). After the last shard it is ready to be averaged, and the gradient's memory has a partial sum. */
TT__EXPORT void tt__shard_sums_add(tt__shard_sums *sums, size_t i, int shard);

/* The shards of a rank of `world`, which may be no divisor of `shards`. */
TT__EXPORT tt__shard_node tt__shard_block(int shards, int world, int rank);

#endif
