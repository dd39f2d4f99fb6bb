/* A range of another data set. */
#include "data/datasets/dataset.h"

#include "base/error.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
