/* Which parameters take part in a step: behind the gradients of a bucket lies a mark for each, which is averaged with
 * them. */
#include "reducer/reducer.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>
/* Write one number as `dtype` has it. */
static void put_mark(void *at, tt_dtype dtype, bool one) {
    const float f32 = one;
    const double f64 = one;
    const uint16_t f16 = one ? 0x3c00 : 0, bf16 = one ? 0x3f80 : 0;
    const void *from = dtype == TT_F64   ? (const void *)&f64
                       : dtype == TT_F32 ? (const void *)&f32
                       : dtype == TT_F16 ? (const void *)&f16
                                         : (const void *)&bf16;
    memcpy(at, from, tt_dtype_size(dtype));
}

static void *mark_of_param(const tt_reducer *r, const tt__reducer_param *p) {
    const tt__reducer_bucket *b = &r->buckets[p->bucket];
    return (char *)b->data + p->mark * tt_dtype_size(b->dtype);
}

static bool was_marked_used(const tt_reducer *r, const tt__reducer_param *p) {
    static const uint64_t zero;
    return memcmp(mark_of_param(r, p), &zero, tt_dtype_size(r->buckets[p->bucket].dtype)) != 0;
}

static tt_status keep_gradient(tt__reducer_param *p) {
    if (!p->kept && !(p->kept = malloc(p->bytes + 1)))
        return tt__fail(TT_ERR_MEMORY, "no memory to keep the gradient of \"%s\", which took no part in this step",
                        p->name);
    memcpy(p->kept, p->gradient, p->bytes);
    return TT_OK;
}

tt_status tt__reducer_put_mark(const tt_reducer *r, tt__reducer_param *p, bool unused) {
    if (unused)
        TT__TRY(keep_gradient(p));
    put_mark(mark_of_param(r, p), r->buckets[p->bucket].dtype, !unused);
    p->unused = unused;
    return TT_OK;
}

void tt__reducer_read_marks(tt_reducer *r, size_t bucket) {
    for (size_t i = 0; i < r->param_count; i++)
        if (r->params[i].bucket == bucket)
            r->params[i].used = !r->params[i].unused || was_marked_used(r, &r->params[i]);
}

void tt__reducer_settle_marks(tt_reducer *r, size_t bucket) {
    for (size_t i = 0; i < r->param_count; i++) {
        const tt__reducer_param *p = &r->params[i];
        if (p->bucket == bucket && !p->used)
            memcpy(p->gradient, p->kept, p->bytes);
    }
}
