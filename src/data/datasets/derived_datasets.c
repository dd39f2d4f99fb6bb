/* Data sets made of others: several, one after the other (tt_concat_dataset()), and a range of one (tt_subset()). */
#include "base/error.h"
#include "data/datasets/dataset.h"
#include "tensor/core/tensor.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- several, one after the other ---- */

typedef struct chain {
    int64_t count;
    tt_dataset *part[]; /* held */
} chain;

static int64_t chain_size(void *user) {
    const chain *c = user;
    int64_t size = 0;
    for (int64_t i = 0; i < c->count; i++)
        if (__builtin_add_overflow(size, c->part[i]->size, &size)) {
            tt_ignore(tt__fail(TT_ERR_INVALID, "more examples than an int64_t counts, from part %" PRId64 " on", i));
            return -1;
        }
    return size;
}

/* Get an example. A linear search finds its part, since parts are usually few. `index` is in range. */
static tt_status chain_get(void *user, int64_t index, void *x, void *y) {
    const chain *c = user;
    tt_dataset *const *part = c->part;
    for (; index >= (*part)->size; part++)
        index -= (*part)->size;
    return tt__dataset_read(*part, &index, 1, x, y);
}

static void chain_destroy(void *user) {
    chain *c = user;
    for (int64_t i = 0; i < c->count; i++)
        tt__dataset_release(c->part[i]);
    free(c);
}

static tt_status check_alike(tt_dataset *const *parts, int64_t i, const char *field, const tt_tensor_spec *first,
                             const tt_tensor_spec *other) {
    if (first->given == other->given && first->dtype == other->dtype && tt__shape_equal(&first->shape, &other->shape))
        return TT_OK;
    bool types = first->given && other->given && first->dtype != other->dtype;
    return tt__fail(types ? TT_ERR_DTYPE : TT_ERR_SHAPE,
                    "tt_concat_dataset: expected parts whose examples are alike, but %s of part 0 (%s) and of part "
                    "%" PRId64 " (%s) differ in %s",
                    field, parts[0]->cls.name, i, parts[i]->cls.name, types ? "element type" : "shape");
}

static tt_status concat_check(tt_dataset *const *parts, int64_t n) {
    if (n < 1 || !parts)
        return tt__fail(TT_ERR_INVALID, "tt_concat_dataset: expected at least 1 part, got %" PRId64, parts ? n : 0);
    for (int64_t i = 0; i < n; i++)
        if (!parts[i])
            return tt__fail_argument("tt_concat_dataset: part %" PRId64 " is NULL", i);
    for (int64_t i = 1; i < n; i++) {
        TT__TRY(check_alike(parts, i, "x", &parts[0]->x, &parts[i]->x));
        TT__TRY(check_alike(parts, i, "y", &parts[0]->y, &parts[i]->y));
    }
    return TT_OK;
}

tt_dataset *tt_concat_dataset(tt_dataset *const *parts, int64_t n) {
    static const char who[] = "tt_concat_dataset";
    static const tt_dataset_class cls = {
        .name = "a concatenation", .size = chain_size, .get = chain_get, .destroy = chain_destroy};
    if (concat_check(parts, n))
        return NULL;
    chain *c = malloc(sizeof *c + (size_t)n * sizeof(tt_dataset *));
    if (!c)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    c->count = n;
    for (int64_t i = 0; i < n; i++)
        c->part[i] = tt__dataset_hold(parts[i]);
    tt_dataset *d = tt__dataset_new(who, &cls, c, parts[0]->x, parts[0]->y);
    if (d) {
        d->bases = c->part;
        d->base_count = n;
    }
    return d;
}

/* ---- a range ---- */

typedef struct range {
    tt_dataset *base; /* held */
    int64_t begin, size;
    tt_tensor *inputs, *targets; /* views, held; NULL where the base is not in memory */
} range;

static int64_t range_size(void *user) { return ((const range *)user)->size; }

static tt_status range_get(void *user, int64_t index, void *x, void *y) {
    const range *r = user;
    return tt__dataset_read(r->base, (int64_t[]){r->begin + index}, 1, x, y);
}

static tt_status range_get_batch(void *user, const int64_t *indices, int64_t n, void *x, void *y) {
    enum { PIECE = 64 };
    const range *r = user;
    char *to_x = x, *to_y = y;
    int64_t shifted[PIECE];
    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t now = n - done < PIECE ? n - done : PIECE;
        for (int64_t i = 0; i < now; i++)
            shifted[i] = r->begin + indices[done + i];
        TT__TRY(tt__dataset_read(r->base, shifted, now, to_x, to_y));
        to_x += (size_t)now * r->base->x_bytes;
        if (to_y)
            to_y += (size_t)now * r->base->y_bytes;
    }
    return TT_OK;
}

static void range_destroy(void *user) {
    range *r = user;
    tt__tensor_disown(r->inputs);
    tt__tensor_disown(r->targets);
    tt__dataset_release(r->base);
    free(r);
}

/* View the range's part of one of the base's tensors, held; *out is NULL where x is. */
static tt_status range_view(const range *r, tt_tensor *x, tt_tensor **out) {
    if (!x)
        return TT_OK;
    tt_tensor *view = tt__narrow("tt_subset", x, 0, r->begin, r->size);
    if (!view)
        return tt_last_status();
    TT__TRY(tt__tensor_adopt(view, "a data set"));
    *out = view;
    return TT_OK;
}

tt_dataset *tt_subset(tt_dataset *base, int64_t begin, int64_t end) {
    static const tt_dataset_class cls = {.name = "a subset",
                                         .size = range_size,
                                         .get = range_get,
                                         .get_batch = range_get_batch,
                                         .destroy = range_destroy};
    if (!base) {
        tt__fail_argument("tt_subset: the data set is NULL");
        return NULL;
    }
    if (begin < 0 || end < begin || end > base->size)
        return tt__fail_null(TT_ERR_INVALID,
                             "tt_subset: expected 0 <= begin <= end <= %" PRId64 ", got %" PRId64 " and %" PRId64,
                             base->size, begin, end);
    range *r = calloc(1, sizeof *r);
    if (!r)
        return tt__fail_null(TT_ERR_MEMORY, "tt_subset: out of memory");
    *r = (range){.base = tt__dataset_hold(base), .begin = begin, .size = end - begin};
    if (range_view(r, base->inputs, &r->inputs) || range_view(r, base->targets, &r->targets)) {
        range_destroy(r);
        return NULL;
    }
    tt_dataset *d = tt__dataset_new("tt_subset", &cls, r, base->x, base->y);
    if (!d)
        return NULL;
    d->inputs = r->inputs;
    d->targets = r->targets;
    d->classes = base->classes;
    d->class_count = base->class_count;
    d->bases = &r->base;
    d->base_count = 1;
    return d;
}
