/* Error feedback of parameters that no rank uses in a step: what a hook sends of them is not applied, so that their
 * errors must stay what they were. Whether others use a parameter is known at the end alone: errors of those that this
 * rank doesn't use are kept till then. */
#include "base/error.h"
#include "parallel/hooks/comm_hook.h"

#include <stdlib.h>
#include <string.h>

/* Copy, for each gradient that is not used, the part of it that lies in `count` elements from `first` on. */
static void copy_unused(float *to, const float *from, const tt_bucket *b, int64_t first, int64_t count) {
    for (int64_t g = 0; g < b->gradient_count; g++) {
        const tt_bucket_gradient *at = &b->gradients[g];
        int64_t begin = at->offset - first, end = begin + at->count;
        begin = begin < 0 ? 0 : begin;
        end = end > count ? count : end;
        if (!at->used && begin < end)
            memcpy(to + begin, from + begin, (size_t)(end - begin) * sizeof *to);
    }
}

static bool all_are_used(const tt_bucket *b) {
    for (int64_t g = 0; g < b->gradient_count; g++)
        if (!b->gradients[g].used)
            return false;
    return true;
}

static tt_status keep_unused(float **kept, const float *from, const tt_bucket *b, int64_t first, int64_t count) {
    if (!from || all_are_used(b))
        return TT_OK;
    if (!*kept && !(*kept = calloc((size_t)count + 1, sizeof **kept)))
        return tt__fail(TT_ERR_MEMORY, "no memory to keep the errors of parameters that are not used");
    copy_unused(*kept, from, b, first, count);
    return TT_OK;
}

tt_status tt__hook_keep_error(const tt__comm_hook *h, const tt_bucket *b) {
    tt__hook_bucket *own = tt__hook_bucket_of(h, b);
    return keep_unused(&own->error_before, own->error, b, 0, b->count);
}

tt_status tt__hook_keep_more(const tt__comm_hook *h, const tt_bucket *b, int64_t first) {
    tt__hook_bucket *own = tt__hook_bucket_of(h, b);
    return keep_unused(&own->more_before, own->more, b, first, own->more_count);
}

void tt__hook_put_error_back(const tt__comm_hook *h, const tt_bucket *b) {
    tt__hook_bucket *own = tt__hook_bucket_of(h, b);
    if (own->error && own->error_before)
        copy_unused(own->error, own->error_before, b, 0, b->count);
}

void tt__hook_put_more_back(const tt__comm_hook *h, const tt_bucket *b, int64_t first) {
    tt__hook_bucket *own = tt__hook_bucket_of(h, b);
    if (own->more && own->more_before)
        copy_unused(own->more, own->more_before, b, first, own->more_count);
}
