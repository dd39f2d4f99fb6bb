/* Several data sets, one after the other. */
#include "data/datasets/dataset.h"

#include "base/error.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdlib.h>

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
