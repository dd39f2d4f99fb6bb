/* Batch samplers: one that cuts another sampler's order into batches, and those of a program's own.
 *
 * A loader with the first kind behaves as with the other sampler, a batch size and drop_last. */
#include "data/samplers/sampler.h"

#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- of another sampler ---- */

static int64_t no_own_size(void *user) {
    (void)user;
    return 0;
}

static tt_status no_own_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    (void)user, (void)epoch, (void)indices, (void)n;
    return TT_OK;
}

static void release_cut(void *user) { tt__sampler_release(user); }

tt_sampler *tt_batch_sampler_with(const tt_batch_sampler_args *args, size_t size) {
    static const char who[] = "tt_batch_sampler";
    static const tt_sampler_class cls = {
        .name = "a batch sampler", .size = no_own_size, .order = no_own_order, .destroy = release_cut};
    tt_batch_sampler_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.sampler)
        return tt__fail_argument("%s: the sampler is NULL", who), NULL;
    if (tt__is_batch_sampler(a.sampler))
        return tt__fail_null(TT_ERR_INVALID, "%s: expected a sampler of examples, got %s", who, a.sampler->cls.name);
    if (a.sampler->virtual_ranks)
        return tt__fail_null(TT_ERR_INVALID,
                             "%s: expected a sampler without .virtual_ranks: a loader cuts their shares into batches",
                             who);
    if (a.batch_size < 1)
        return tt__fail_null(TT_ERR_INVALID, "%s: batch_size: expected at least 1, got %" PRId64, who, a.batch_size);
    tt_sampler *s = tt__sampler_new(who, &cls, tt__sampler_hold(a.sampler), a.sampler->dataset_size);
    if (!s)
        return NULL;
    s->cuts = a.sampler;
    s->batch_size = a.batch_size;
    s->drop_last = a.drop_last;
    return s;
}

/* ---- of a class ---- */

typedef struct own_batches {
    tt_batch_sampler_class cls;
    void *user;
    int64_t size, batches, largest;
    int64_t sizes[]; /* (batches) */
} own_batches;

static int64_t own_batches_size(void *user) { return ((const own_batches *)user)->size; }

static tt_status own_batches_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    own_batches *o = user;
    memset(o->sizes, 0, (size_t)o->batches * sizeof *o->sizes);
    return o->cls.fill(o->user, epoch, indices, n, o->sizes, o->batches);
}

static void own_batches_destroy(void *user) {
    own_batches *o = user;
    if (o->cls.destroy)
        o->cls.destroy(o->user);
    free(o);
}

/* Ask a function of the class for a number, which must be at least `least`. */
static tt_status ask_number(const tt_batch_sampler_new_args *a, const tt_batch_sampler_class *cls, const char *name,
                            int64_t (*ask)(void *user), int64_t least, int64_t *out) {
    static const char who[] = "tt_batch_sampler_new";
    if (!ask)
        return tt__fail(TT_ERR_INVALID, "%s: %s: the class has no %s function", who, cls->name, name);
    uint64_t errors = tt__error_count();
    *out = ask(a->user);
    if (*out >= least && *out <= INT64_MAX / 32)
        return TT_OK;
    if (tt__error_count() != errors)
        return tt__fail_prefix("%s: %s: %s", who, cls->name, name);
    return tt__fail(TT_ERR_INVALID, "%s: %s: %s: expected at least %" PRId64 ", got %" PRId64, who, cls->name, name,
                    least, *out);
}

/* Make room for the sizes; NULL after a failure. */
static own_batches *own_batches_new(const tt_batch_sampler_new_args *a, const tt_batch_sampler_class *cls) {
    own_batches n = {.cls = *cls, .user = a->user, .size = a->dataset_size};
    if (!cls->fill)
        return tt__fail_null(TT_ERR_INVALID, "tt_batch_sampler_new: %s: the class has no fill function", cls->name);
    if (a->dataset_size < 0)
        return tt__fail_null(TT_ERR_INVALID,
                             "tt_batch_sampler_new: %s: dataset_size: expected at least 0, got %" PRId64, cls->name,
                             a->dataset_size);
    if (ask_number(a, cls, "batches", cls->batches, 0, &n.batches) ||
        ask_number(a, cls, "largest", cls->largest, 1, &n.largest) ||
        (cls->size && ask_number(a, cls, "size", cls->size, 0, &n.size)))
        return NULL;
    own_batches *o = calloc(1, sizeof *o + (size_t)n.batches * sizeof *o->sizes);
    if (!o)
        return tt__fail_null(TT_ERR_MEMORY, "tt_batch_sampler_new: no memory for the sizes of %" PRId64 " batches",
                             n.batches);
    *o = n;
    return o;
}

tt_sampler *tt_batch_sampler_new_with(const tt_batch_sampler_new_args *args, size_t size) {
    static const char who[] = "tt_batch_sampler_new";
    tt_batch_sampler_new_args a;
    tt_batch_sampler_class cls;
    TT__ARGS_COPY(a, args, size);
    if (!a.cls || !a.cls_size)
        return tt__fail_null(TT_ERR_INVALID, "%s: the class is NULL or its size is 0", who);
    TT__ARGS_COPY(cls, a.cls, a.cls_size);
    if (!cls.name)
        cls.name = "a batch sampler";
    own_batches *o = own_batches_new(&a, &cls);
    if (!o) {
        if (cls.destroy)
            cls.destroy(a.user);
        return NULL;
    }
    const tt_sampler_class inside = {
        .name = cls.name, .size = own_batches_size, .order = own_batches_order, .destroy = own_batches_destroy};
    tt_sampler *s = tt__sampler_new(who, &inside, o, a.dataset_size);
    if (!s)
        return NULL;
    s->sizes = o->sizes;
    s->batches = o->batches;
    s->largest = o->largest;
    return s;
}

/* ---- by callback ---- */

typedef struct batches_callback {
    int64_t batches, largest, size;
    tt_batch_sampler_fill_fn fill;
    void *user;
} batches_callback;

static int64_t batches_callback_batches(void *user) { return ((const batches_callback *)user)->batches; }

static int64_t batches_callback_largest(void *user) { return ((const batches_callback *)user)->largest; }

static int64_t batches_callback_size(void *user) { return ((const batches_callback *)user)->size; }

static tt_status batches_callback_fill(void *user, int64_t epoch, int64_t *indices, int64_t n, int64_t *sizes,
                                       int64_t batches) {
    const batches_callback *c = user;
    return c->fill(c->user, epoch, indices, n, sizes, batches);
}

tt_sampler *tt_batch_sampler_from_with(const tt_batch_sampler_from_args *args, size_t size) {
    static const char who[] = "tt_batch_sampler_from";
    tt_batch_sampler_from_args a;
    TT__ARGS_COPY(a, args, size);
    const tt_batch_sampler_class cls = {.name = a.name,
                                        .batches = batches_callback_batches,
                                        .largest = batches_callback_largest,
                                        .fill = batches_callback_fill,
                                        .size = batches_callback_size,
                                        .destroy = free};
    if (!a.fill)
        return tt__fail_null(TT_ERR_INVALID, "%s: %s: fill is NULL", who, a.name ? a.name : "a batch sampler");
    batches_callback *c = malloc(sizeof *c);
    if (!c)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    *c = (batches_callback){a.batches, a.largest, a.size ? a.size : a.dataset_size, a.fill, a.user};
    return tt_batch_sampler_new_with(
        &(tt_batch_sampler_new_args){.cls = &cls, .cls_size = sizeof cls, .user = c, .dataset_size = a.dataset_size},
        sizeof(tt_batch_sampler_new_args));
}
