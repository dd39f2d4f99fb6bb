/* Samplers: making one of a class, getting an epoch's order, freeing. The sequential one, and the one by callback. */
#include "data/samplers/sampler.h"

#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

int64_t *tt__indices_new(const char *who, int64_t n) {
    int64_t *indices = malloc(n ? (size_t)n * sizeof *indices : 1);
    return indices ? indices
                   : tt__fail_null(TT_ERR_MEMORY, "%s: no memory for the order of %" PRId64 " examples", who, n);
}

tt_status tt__check_dataset_size(const char *who, int64_t n) {
    if (n >= 1 && n <= INT64_MAX / 16)
        return TT_OK;
    if (n > 0)
        return tt__fail(TT_ERR_INVALID, "%s: dataset_size: expected at most %" PRId64 ", got %" PRId64, who,
                        INT64_MAX / 16, n);
    if (n == 0 && tt_last_status()) {
        char earlier[TT__ERROR_TEXT_SIZE]; /* perhaps why the data set could not be made */
        return tt__fail(TT_ERR_INVALID, "%s: dataset_size: expected at least 1, got 0, the size of NULL%s", who,
                        tt__error_quote(earlier, sizeof earlier));
    }
    return tt__fail(TT_ERR_INVALID, "%s: dataset_size: expected at least 1, got %" PRId64 "%s", who, n,
                    n ? "" : " (also the size of a data set that could not be made)");
}

static tt_status ask_size(const char *who, tt_sampler *s) {
    if (!s->cls.size || !s->cls.order)
        return tt__fail(TT_ERR_INVALID, "%s: %s: the class has no %s function", who, s->cls.name,
                        s->cls.size ? "order" : "size");
    if (s->dataset_size < 0)
        return tt__fail(TT_ERR_INVALID, "%s: %s: dataset_size: expected at least 0, got %" PRId64, who, s->cls.name,
                        s->dataset_size);
    uint64_t errors = tt__error_count();
    s->size = s->cls.size(s->user);
    if (s->size >= 0 && s->size <= INT64_MAX / 16)
        return TT_OK;
    if (tt__error_count() != errors)
        return tt__fail_prefix("%s: %s: size", who, s->cls.name);
    if (s->size > 0)
        return tt__fail(TT_ERR_INVALID, "%s: %s: size: expected at most %" PRId64 " examples an epoch, got %" PRId64,
                        who, s->cls.name, INT64_MAX / 16, s->size);
    return tt__fail(TT_ERR_INVALID, "%s: %s: size: expected at least 0 examples an epoch, got %" PRId64, who,
                    s->cls.name, s->size);
}

static tt_status sampler_init(const char *who, tt_sampler *s) {
    TT__TRY(ask_size(who, s));
    s->now = s->size;
    s->indices = tt__indices_new(who, s->size);
    return s->indices ? TT_OK : tt_last_status();
}

tt_sampler *tt__sampler_new(const char *who, const tt_sampler_class *cls, void *user, int64_t dataset_size) {
    tt_sampler *s = calloc(1, sizeof *s);
    if (!s) {
        if (cls->destroy)
            cls->destroy(user);
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    }
    s->cls = *cls;
    if (!cls->name)
        s->cls.name = "a sampler";
    s->user = user;
    s->holders = 1;
    s->dataset_size = dataset_size;
    if (!sampler_init(who, s))
        return s;
    tt__sampler_release(s);
    return NULL;
}

tt_sampler *tt_sampler_new_with(const tt_sampler_new_args *args, size_t size) {
    static const char who[] = "tt_sampler_new";
    tt_sampler_new_args a;
    tt_sampler_class cls;
    TT__ARGS_COPY(a, args, size);
    if (!a.cls || !a.cls_size)
        return tt__fail_null(TT_ERR_INVALID, "%s: the class is NULL or its size is 0", who);
    TT__ARGS_COPY(cls, a.cls, a.cls_size);
    return tt__sampler_new(who, &cls, a.user, a.dataset_size);
}

/* ---- placeholders for samplers that a loader makes itself ---- */

static tt_sampler in_order = {.cls.name = "tt_in_order()"}, shuffled = {.cls.name = "tt_shuffled()"};

tt_sampler *tt_in_order(void) { return &in_order; }

tt_sampler *tt_shuffled(void) { return &shuffled; }

static bool is_placeholder(const tt_sampler *s) { return s == &in_order || s == &shuffled; }

tt_sampler *tt__sampler_hold(tt_sampler *sampler) {
    atomic_fetch_add(&sampler->holders, 1);
    return sampler;
}

void tt__sampler_release(tt_sampler *sampler) {
    if (!sampler || is_placeholder(sampler) || atomic_fetch_sub(&sampler->holders, 1) > 1)
        return;
    if (sampler->cls.destroy)
        sampler->cls.destroy(sampler->user);
    free(sampler->indices);
    tt__quarantine(sampler, sizeof *sampler, free);
}

void tt_sampler_free(tt_sampler *sampler) {
    if (!sampler || is_placeholder(sampler) || tt__freed_before("tt_sampler_free", sampler))
        return;
    if (atomic_exchange(&sampler->freed, true)) {
        tt__fail(TT_ERR_STATE, "tt_sampler_free: this sampler was freed already; what was made of it keeps it");
        return;
    }
    tt__sampler_release(sampler);
}

/* ---- the order of an epoch ---- */

/* Check the order's range, since a loader reads memory by it. */
static tt_status check_range(const tt_sampler *s) {
    for (int64_t i = 0; i < s->now; i++)
        if (s->indices[i] < 0 || s->indices[i] >= s->dataset_size)
            return tt__fail(TT_ERR_INVALID,
                            "%s: epoch %" PRId64 ": expected indices from 0 to %" PRId64 ", got %" PRId64
                            " in position %" PRId64,
                            s->cls.name, s->epoch, s->dataset_size - 1, s->indices[i], i);
    return TT_OK;
}

tt_status tt__check_batch_sizes(const char *who, const tt_sampler *s, const int64_t *sizes, int64_t *examples) {
    bool ended = false;
    *examples = 0;
    for (int64_t i = 0; i < s->batches; i++) {
        if (sizes[i] < 0 || sizes[i] > s->largest || (ended && sizes[i]))
            return tt__fail(TT_ERR_INVALID,
                            "%s: expected batches of 1 to %" PRId64 " examples, and 0 only behind the last one, got "
                            "%" PRId64 " examples in batch %" PRId64 " %s",
                            who, s->largest, sizes[i], i, ended ? "behind a 0" : "");
        if (sizes[i] > s->size - *examples)
            return tt__fail(TT_ERR_INVALID,
                            "%s: expected at most %" PRId64 " examples an epoch, got more by batch %" PRId64, who,
                            s->size, i);
        ended = !sizes[i];
        *examples += sizes[i];
    }
    return TT_OK;
}

static tt_status sampler_fill(tt_sampler *s) {
    uint64_t errors = tt__error_count();
    s->drawn = s->begun = false;
    tt_status status = s->cls.order(s->user, s->epoch, s->indices, s->now);
    if (status)
        return tt__fail_callback(errors, status, "%s: epoch %" PRId64, s->cls.name, s->epoch);
    if (s->sizes)
        TT__TRY(tt__check_batch_sizes(s->cls.name, s, s->sizes, &s->now));
    TT__TRY(check_range(s));
    s->drawn = true;
    return TT_OK;
}

/* Set how many examples of the shared order were visited before. */
static void sampler_visited(tt_sampler *s, int64_t visited) {
    s->visited = visited;
    s->now = s->rest ? s->rest(s->user, visited) : s->size;
}

static tt_status sampler_draw(tt_sampler *s) {
    sampler_visited(s, 0);
    return sampler_fill(s);
}

static void sampler_hand_out(tt_sampler *s, int64_t *order) {
    s->begun = true;
    memcpy(order, s->indices, (size_t)s->now * sizeof *order);
}

tt_status tt__sampler_begin(tt_sampler *sampler, int64_t *order) {
    if (!sampler->drawn || sampler->begun)
        TT__TRY(sampler_draw(sampler));
    sampler_hand_out(sampler, order);
    return TT_OK;
}

tt_status tt__sampler_resume(tt_sampler *sampler, int64_t visited, int64_t *order) {
    sampler_visited(sampler, visited);
    TT__TRY(sampler_fill(sampler));
    sampler_hand_out(sampler, order);
    return TT_OK;
}

void tt__sampler_put(tt_sampler *sampler, const int64_t *order, const int64_t *sizes) {
    sampler_visited(sampler, 0);
    if (sizes) {
        memcpy(sampler->sizes, sizes, (size_t)sampler->batches * sizeof *sizes);
        sampler->now = 0;
        for (int64_t i = 0; i < sampler->batches; i++)
            sampler->now += sizes[i];
    }
    memcpy(sampler->indices, order, (size_t)sampler->now * sizeof *order);
    sampler->drawn = sampler->begun = true;
}

int64_t tt__sampler_room(const tt_sampler *s, int64_t replicas) {
    int64_t v = s->virtual_ranks;
    return v ? (s->dataset_size / v + 1) * (v / replicas + 1) : s->dataset_size / replicas + 1;
}

tt_status tt__sampler_share(tt_sampler *sampler, int64_t replicas, int64_t rank) {
    int64_t v = sampler->virtual_ranks;
    if (v && replicas > v)
        return tt__fail(TT_ERR_INVALID,
                        "a sampler of %" PRId64 " virtual ranks: expected at most as many ranks, got %" PRId64, v,
                        replicas);
    int64_t *indices = tt__indices_new("a sampler", tt__sampler_room(sampler, replicas));
    if (!indices)
        return tt_last_status();
    free(sampler->indices);
    sampler->indices = indices;
    sampler->share(sampler->user, replicas, rank);
    if (!v)
        sampler->replicas = replicas;
    else
        sampler->shards = v * (rank + 1) / replicas - v * rank / replicas;
    sampler_visited(sampler, 0);
    sampler->size = sampler->now;
    sampler->drawn = sampler->begun = false;
    return TT_OK;
}

const int64_t *tt_sampler_indices(tt_sampler *sampler) {
    if (!sampler)
        return NULL;
    if (is_placeholder(sampler))
        return tt__fail_null(TT_ERR_INVALID, "tt_sampler_indices: %s stands for a sampler that each loader makes",
                             sampler->cls.name);
    if (sampler->cuts)
        return tt_sampler_indices(sampler->cuts);
    return sampler->drawn || !sampler_draw(sampler) ? sampler->indices : NULL;
}

void tt_sampler_set_epoch(tt_sampler *sampler, int64_t epoch) {
    if (!sampler || is_placeholder(sampler))
        return;
    if (sampler->cuts) {
        tt_sampler_set_epoch(sampler->cuts, epoch);
        return;
    }
    sampler->epoch_said = true;
    if (sampler->epoch == epoch)
        return;
    sampler->epoch = epoch;
    sampler->drawn = false;
}

int64_t tt_sampler_size(const tt_sampler *sampler) {
    if (!sampler)
        return 0;
    int64_t n = sampler->cuts ? sampler->cuts->now : sampler->now;
    return sampler->drop_last ? n - n % sampler->batch_size : n;
}

uint64_t tt_sampler_seed(const tt_sampler *sampler) {
    if (!sampler)
        return 0;
    return sampler->cuts ? sampler->cuts->seed : sampler->seed;
}

/* ---- by callback ---- */

typedef struct callback {
    int64_t size;
    tt_sampler_order_fn order;
    void *user;
} callback;

static int64_t sampler_callback_size(void *user) { return ((const callback *)user)->size; }

static tt_status sampler_callback_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    const callback *c = user;
    return c->order(c->user, epoch, indices, n);
}

tt_sampler *tt_sampler_from_with(const tt_sampler_from_args *args, size_t size) {
    static const char who[] = "tt_sampler_from";
    tt_sampler_from_args a;
    TT__ARGS_COPY(a, args, size);
    const tt_sampler_class cls = {
        .name = a.name, .size = sampler_callback_size, .order = sampler_callback_order, .destroy = free};
    if (!a.order)
        return tt__fail_null(TT_ERR_INVALID, "%s: %s: order is NULL", who, a.name ? a.name : "a sampler");
    callback *c = malloc(sizeof *c);
    if (!c)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    *c = (callback){a.size, a.order, a.user};
    return tt__sampler_new(who, &cls, c, a.dataset_size);
}

/* ---- in order ---- */

static int64_t sequence_size(void *user) { return *(const int64_t *)user; }

static tt_status sequence_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    (void)user, (void)epoch;
    for (int64_t i = 0; i < n; i++)
        indices[i] = i;
    return TT_OK;
}

tt_sampler *tt_sequential_sampler(int64_t dataset_size) {
    static const char who[] = "tt_sequential_sampler";
    static const tt_sampler_class cls = {
        .name = "a sequential sampler", .size = sequence_size, .order = sequence_order, .destroy = free};
    int64_t *n = malloc(sizeof *n);
    if (!n)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    *n = dataset_size;
    tt_sampler *sampler = tt__sampler_new(who, &cls, n, dataset_size);
    if (sampler)
        sampler->pure = true;
    return sampler;
}
