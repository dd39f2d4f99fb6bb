/* Averages over V shards on W ranks, as a communication hook.
 *
 * A rank adds its shards' gradients, one after the other, to partial sums: the largest subtrees, of the tree over V
 * leaves, that the shards so far fill. They join as a binary counter carries. Partials of 16-bit floats are f32,
 * rounded once, at the root.
 *
 * If each rank ends with one partial, and what remains is the tree that W ranks sum in, one all-reduce of the native
 * engine does the rest. Otherwise, and with engines whose sums have another order, bytes are moved:
 *   0  all_to_all_v: rank o gets slice o of all partials
 *   1  joins them in the tree's order, rounds; all_gather_v
 * Sent a rank: (W-1)/W (P w + n) bytes: P partials, at most 2 log2 V, of w bytes (those of the bucket, n; of 16-bit
 * floats 2 n). */
#include "reducer/reducer.h"

#include "base/error.h"
#include "comm/group.h"
#include "comm/reduce/reduce_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tree: the one summation order (comm/reduce/reduce_tree.c) over V shards, as V ranks would sum ---- */

/* Neighbouring subtrees from left to right, no two of which are halves of a third. */
typedef struct shard_stack {
    int depth;
    tt__shard_node node[TT__SHARD_DEPTH];
} shard_stack;

/* With p the largest power of two not above n, the first 2 (n - p) leaves fold in pairs, which makes p units. Returns
 * the number of pairs. */
static int folded_pairs(int n) {
    int p = 1;
    while (2 * p <= n)
        p *= 2;
    return n - p;
}

static int unit_of(int folded, int leaf) { return leaf < 2 * folded ? leaf / 2 : leaf - folded; }

static int first_leaf(int folded, int unit) { return unit < folded ? 2 * unit : unit + folded; }

static bool is_whole_units(int folded, tt__shard_node x) {
    return x.lo == first_leaf(folded, unit_of(folded, x.lo)) &&
           x.hi == first_leaf(folded, unit_of(folded, x.hi - 1) + 1);
}

/* Are these neighbouring subtrees the halves of a subtree? */
static bool are_halves(int n, tt__shard_node left, tt__shard_node right) {
    int folded = folded_pairs(n);
    int first = unit_of(folded, left.lo), middle = unit_of(folded, right.lo), end = unit_of(folded, right.hi - 1) + 1;
    if (first == middle)
        return true; /* the two leaves of a pair */
    if (!is_whole_units(folded, left) || !is_whole_units(folded, right))
        return false;
    return middle - first == end - middle && first % (end - first) == 0;
}

/* Append a subtree of the tree over n leaves, and join the last two while they are halves of one. Returns the number of
 * joins. */
static int shard_push(shard_stack *s, int n, tt__shard_node node) {
    int joins = 0;
    for (; s->depth > 0 && are_halves(n, s->node[s->depth - 1], node); joins++)
        node.lo = s->node[--s->depth].lo;
    s->node[s->depth++] = node;
    return joins;
}

tt__shard_node tt__shard_block(int shards, int world, int rank) {
    return (tt__shard_node){(int)((long long)shards * rank / world), (int)((long long)shards * (rank + 1) / world)};
}

/* Is a range of leaves one subtree? */
static bool is_subtree(int n, int lo, int hi) {
    shard_stack s = {0};
    for (int leaf = lo; leaf < hi; leaf++)
        shard_push(&s, n, (tt__shard_node){leaf, leaf + 1});
    return s.depth == 1;
}

/* Does each rank make one partial sum, and is what remains the tree that `world` ranks sum in? Yes, if every subtree of
 * the ranks' tree covers shards that are a subtree. */
static bool shard_blocks_are_ranks(int shards, int world) {
    shard_stack ranks = {0};
    for (int r = 0; r < world; r++) {
        shard_stack before = ranks;
        int end = tt__shard_block(shards, world, r).hi;
        if (!is_subtree(shards, tt__shard_block(shards, world, r).lo, end))
            return false;
        int joins = shard_push(&ranks, world, (tt__shard_node){r, r + 1});
        for (int j = 1; j <= joins; j++)
            if (!is_subtree(shards, tt__shard_block(shards, world, before.node[before.depth - j].lo).lo, end))
                return false;
    }
    return true;
}

/* ---- the hook ---- */

/* RUN elements are joined at a time, so that they stay in the first-level cache; slices are whole lines. */
enum { RUN = 1024, LINE = 16 };

static const char site[] = "the averaging of shards";

/* A shard of this rank: when it comes there are `depth` partials, and it is joined with the last `joins` of them. */
typedef struct carry {
    int depth, joins;
} carry;

typedef struct shard_bucket {
    tt_bucket view;
    tt_dtype wide;  /* of partials */
    size_t slice;   /* elements of each owner; the last may have fewer */
    void *partials; /* (owners, slots, slice) */
    void *received; /* (all ranks' partials, slice); NULL: by all-reduce */
    void *averaged; /* (slice) this rank's */
} shard_bucket;

struct tt__shard_sums {
    tt_group *group;
    int shards, world, rank, owners;
    bool by_all_reduce;
    double scale;
    tt__shard_node block;
    carry *carries;                        /* (shards of this rank) */
    shard_stack *stacks;                   /* (world) what each rank ends with */
    int slots, all;                        /* partials that a rank has at most; that all ranks end with */
    int64_t *counts;                       /* (4, world): room for the counts and offsets of a call */
    char (*scratch)[RUN * sizeof(double)]; /* (TT__SHARD_DEPTH): too much for a thread's stack */
    size_t bucket_count;
    shard_bucket *buckets;
    size_t param_count;
    struct place {
        size_t bucket, at, count;
    } * places; /* (param_count) */
};

/* ---- partials of this rank ---- */

static char *partial_at(const tt__shard_sums *s, const shard_bucket *b, size_t element, int slot) {
    size_t owner = s->owners == 1 ? 0 : element / b->slice;
    size_t at = (owner * (size_t)s->slots + (size_t)slot) * b->slice + (element - owner * b->slice);
    return (char *)b->partials + at * tt_dtype_size(b->wide);
}

/* How many of the `left` elements from `at` on lie together. */
static size_t run_of(const shard_bucket *b, size_t at, size_t left) {
    size_t n = b->slice - at % b->slice;
    n = n < RUN ? n : RUN;
    return n < left ? n : left;
}

/* Does the sum of this rank stay where the gradient was? */
static bool stays_in_place(const tt__shard_sums *s, const shard_bucket *b, int shard) {
    return s->by_all_reduce && b->wide == b->view.dtype && shard + 1 == s->block.hi - s->block.lo;
}

static void add_shard_run(const tt__shard_sums *s, const shard_bucket *b, size_t at, size_t n, int shard) {
    _Alignas(64) char scratch[RUN * sizeof(double)];
    const carry c = s->carries[shard];
    char *gradient = (char *)b->view.data + at * tt_dtype_size(b->view.dtype);
    char *to = stays_in_place(s, b, shard) ? gradient : partial_at(s, b, at, c.depth - c.joins);
    tt__reduce_leaf(c.joins ? scratch : to, gradient, n, b->view.dtype, s->scale);
    for (int j = 1; j <= c.joins; j++)
        tt__reduce_join(j == c.joins ? to : scratch, partial_at(s, b, at, c.depth - j), scratch, n, b->view.dtype,
                        TT_SUM);
}

void tt__shard_sums_add(tt__shard_sums *s, size_t i, int shard) {
    const struct place *p = &s->places[i];
    const shard_bucket *b = &s->buckets[p->bucket];
    for (size_t done = 0, n; done < p->count; done += n) {
        n = run_of(b, p->at + done, p->count - done);
        add_shard_run(s, b, p->at + done, n, shard);
    }
}

/* ---- partials of all ranks ---- */

/* Elements of a rank's slice. */
static size_t slice_length(const shard_bucket *b, int rank) {
    size_t at = (size_t)rank * b->slice, count = (size_t)b->view.count;
    return at >= count ? 0 : count - at < b->slice ? count - at : b->slice;
}

/* Join a run of all ranks' partials, which lie behind each other, and round it. */
static void join_run(const tt__shard_sums *s, const shard_bucket *b, size_t at, size_t n) {
    const char *operand[TT__SHARD_DEPTH + 1];
    size_t size = tt_dtype_size(b->wide);
    shard_stack stack = {0};
    const char *from = (const char *)b->received + at * size;
    for (int r = 0; r < s->world; r++)
        for (int p = 0; p < s->stacks[r].depth; p++, from += b->slice * size) {
            int top = stack.depth, joins = shard_push(&stack, s->shards, s->stacks[r].node[p]);
            operand[top] = from;
            for (; joins > 0; joins--, top--) {
                tt__reduce_join(s->scratch[top - 1], operand[top - 1], operand[top], n, b->view.dtype, TT_SUM);
                operand[top - 1] = s->scratch[top - 1];
            }
        }
    tt__reduce_round((char *)b->averaged + at * tt_dtype_size(b->view.dtype), operand[0], n, b->view.dtype, 1);
}

static tt_status begin_exchange(tt__shard_sums *s, const shard_bucket *b, tt_work **work) {
    int64_t *send = s->counts, *send_at = send + s->world, *recv = send_at + s->world, *recv_at = recv + s->world,
            at = 0;
    for (int r = 0; r < s->world; r++) {
        send[r] = s->stacks[s->rank].depth * (int64_t)b->slice;
        send_at[r] = (int64_t)r * s->slots * (int64_t)b->slice;
        recv[r] = s->stacks[r].depth * (int64_t)b->slice;
        recv_at[r] = at;
        at += recv[r];
    }
    return tt_all_to_all_v_with(TT_ARGS(tt_all_to_all_v_args, s->group, b->partials, send, send_at, b->received, recv,
                                        recv_at, b->wide, .work = work, .file = site));
}

static tt_status begin_gathering(tt__shard_sums *s, const shard_bucket *b, tt_work **work) {
    int64_t *counts = s->counts, *offsets = counts + s->world;
    for (int r = 0; r < s->world; r++) {
        counts[r] = (int64_t)slice_length(b, r);
        offsets[r] = counts[r] ? r * (int64_t)b->slice : 0;
    }
    size_t own = slice_length(b, s->rank);
    for (size_t at = 0, n; at < own; at += n) {
        n = own - at < RUN ? own - at : RUN;
        join_run(s, b, at, n);
    }
    return tt_all_gather_v_with(TT_ARGS(tt_all_gather_v_args, s->group, b->averaged, b->view.data, counts, offsets,
                                        b->view.dtype, .work = work, .file = site));
}

static tt_status begin_all_reduce(const tt__shard_sums *s, const shard_bucket *b, tt_work **work) {
    void *at = b->wide == b->view.dtype ? b->view.data : b->partials;
    if (s->world == 1)
        return TT_OK;
    return tt_all_reduce_with(
        TT_ARGS(tt_all_reduce_args, s->group, at, b->view.count, b->wide, TT_SUM, .work = work, .file = site));
}

static tt_status shard_sums_next(void *state, const tt_bucket *bucket, int stage, tt_work **work) {
    tt__shard_sums *s = state;
    const shard_bucket *b = &s->buckets[bucket->index];
    if (!s->by_all_reduce)
        return stage == 0 ? begin_exchange(s, b, work) : stage == 1 ? begin_gathering(s, b, work) : TT_OK;
    if (stage == 0)
        return begin_all_reduce(s, b, work);
    if (b->wide != b->view.dtype)
        tt__reduce_round(b->view.data, b->partials, (size_t)b->view.count, b->view.dtype, 1);
    return TT_OK;
}

/* ---- life */

static tt_status shards_no_memory(void) { return tt__fail(TT_ERR_MEMORY, "no memory for the sums of shards"); }

static tt_status allocate_shared(const tt__shard_sums *s, void **out, size_t elements, tt_dtype dtype) {
    size_t bytes = elements * tt_dtype_size(dtype);
    TT__TRY(tt_group_alloc_with(TT_ARGS(tt_group_alloc_args, out, s->group, bytes, .file = site)));
    memset(*out, 0, bytes); /* between gradients they stay 0 */
    return TT_OK;
}

static tt_status allocate_shard_bucket(const tt__shard_sums *s, shard_bucket *b) {
    size_t owners = (size_t)s->owners, count = (size_t)b->view.count;
    b->wide = tt__partial_dtype(b->view.dtype);
    b->slice = ((count + owners - 1) / owners + LINE - 1) / LINE * LINE;
    TT__TRY(allocate_shared(s, &b->partials, owners * (size_t)s->slots * b->slice, b->wide));
    if (s->by_all_reduce)
        return TT_OK;
    TT__TRY(allocate_shared(s, &b->received, (size_t)s->all * b->slice, b->wide));
    return allocate_shared(s, &b->averaged, b->slice, b->view.dtype);
}

static tt_status note_places(tt__shard_sums *s) {
    for (size_t b = 0; b < s->bucket_count; b++)
        s->param_count += (size_t)s->buckets[b].view.gradient_count;
    s->places = calloc(s->param_count + 1, sizeof *s->places);
    if (!s->places)
        return shards_no_memory();
    for (size_t b = 0; b < s->bucket_count; b++)
        for (int64_t g = 0; g < s->buckets[b].view.gradient_count; g++) {
            const tt_bucket_gradient *from = &s->buckets[b].view.gradients[g];
            s->places[from->param] = (struct place){b, (size_t)from->offset, (size_t)from->count};
        }
    return TT_OK;
}

static void free_shard_buckets(tt__shard_sums *s) {
    for (size_t b = 0; b < s->bucket_count; b++) {
        void *parts[] = {s->buckets[b].partials, s->buckets[b].received, s->buckets[b].averaged};
        for (int i = 0; i < 3; i++)
            if (parts[i] &&
                tt_group_free_with(TT_ARGS(tt_group_free_args, s->group, parts[i], .file = "tt_module_free")))
                goto out; /* the group failed: its end releases the rest */
    }
out:
    free(s->buckets);
    free(s->places);
    s->buckets = NULL;
    s->places = NULL;
    s->bucket_count = s->param_count = 0;
}

static tt_status shard_sums_attach(void *state, const tt_bucket *buckets, int64_t count) {
    tt__shard_sums *s = state;
    s->buckets = calloc((size_t)count, sizeof *s->buckets);
    if (!s->buckets)
        return shards_no_memory();
    s->bucket_count = (size_t)count;
    for (int64_t b = 0; b < count; b++)
        s->buckets[b].view = buckets[b];
    tt_status status = note_places(s);
    for (int64_t b = 0; b < count && !status; b++)
        status = allocate_shard_bucket(s, &s->buckets[b]);
    if (status)
        free_shard_buckets(s);
    return status;
}

static void shard_sums_detach(void *state) { free_shard_buckets(state); }

static void shard_sums_free(void *state) {
    tt__shard_sums *s = state;
    free(s->carries);
    free(s->stacks);
    free(s->counts);
    free(s->scratch);
    free(s);
}

/* Find out which partials all ranks end with, and how this rank's shards are joined. */
static void plan_shards(tt__shard_sums *s) {
    for (int r = 0; r < s->world; r++) {
        tt__shard_node block = tt__shard_block(s->shards, s->world, r);
        shard_stack *stack = &s->stacks[r];
        for (int shard = block.lo; shard < block.hi; shard++) {
            carry c = {.depth = stack->depth};
            c.joins = shard_push(stack, s->shards, (tt__shard_node){shard, shard + 1});
            if (r == s->rank)
                s->carries[shard - block.lo] = c;
            s->slots = stack->depth > s->slots ? stack->depth : s->slots;
        }
        s->all += stack->depth;
    }
}

static tt__shard_sums *shard_sums_new(tt_group *group, int shards) {
    tt__shard_sums *s = calloc(1, sizeof *s);
    if (!s)
        return shards_no_memory(), NULL;
    s->group = group;
    s->shards = shards;
    s->world = tt_get_world_size(group);
    s->rank = tt_get_rank(group);
    s->by_all_reduce = (group->native || s->world == 1) && shard_blocks_are_ranks(shards, s->world);
    s->owners = s->by_all_reduce ? 1 : s->world;
    s->scale = tt__leaf_scale(TT_F32, TT_AVG, shards, 1);
    s->block = tt__shard_block(shards, s->world, s->rank);
    s->carries = calloc((size_t)(s->block.hi - s->block.lo), sizeof *s->carries);
    s->stacks = calloc((size_t)s->world, sizeof *s->stacks);
    s->counts = calloc(4 * (size_t)s->world, sizeof *s->counts);
    s->scratch = aligned_alloc(64, TT__SHARD_DEPTH * sizeof *s->scratch);
    if (s->carries && s->stacks && s->counts && s->scratch) {
        plan_shards(s);
        return s;
    }
    shard_sums_free(s);
    return shards_no_memory(), NULL;
}

#define SHARD_HOOK(n)                                                                           \
    {                                                                                           \
        .size = sizeof(tt_comm_hook), .name = "shards", .stages = (n), .next = shard_sums_next, \
        .attach = shard_sums_attach, .detach = shard_sums_detach                                \
    }
static const tt_comm_hook in_one = SHARD_HOOK(1), in_two = SHARD_HOOK(2);

tt_status tt__shard_sums_set(tt_reducer *reducer, int shards, tt__shard_sums **sums) {
    int world = tt_get_world_size(reducer->group);
    char settings[64];
    *sums = NULL;
    if (shards == world && reducer->group->native)
        return TT_OK;
    tt__shard_sums *s = shard_sums_new(reducer->group, shards);
    if (!s)
        return tt_last_status();
    snprintf(settings, sizeof settings, "%d", shards);
    TT__TRY(tt_reducer_set_comm_hook(reducer, s->by_all_reduce ? &in_one : &in_two, s, .settings = settings,
                                     .destroy = shard_sums_free));
    *sums = s;
    return TT_OK;
}
