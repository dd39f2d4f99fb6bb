/* What a hook must have alike on all ranks: a rank that is new, or was behind when another failed, takes it from the
 * one that has come furthest. */
#include "base/error.h"
#include "comm/group.h"
#include "parallel/hooks/comm_hook.h"

#include <stdlib.h>
#include <string.h>

const char tt__hook_site[] = "a communication hook";

void tt__hook_forget(tt__comm_hook *h) {
    for (int64_t b = 0; b < h->bucket_count; b++) {
        tt__hook_bucket *bucket = &h->buckets[b];
        if (bucket->error)
            memset(bucket->error, 0, (size_t)bucket->view.count * sizeof(float));
        if (bucket->more)
            memset(bucket->more, 0, (size_t)bucket->more_count * sizeof(float));
    }
    if (h->cls->forget)
        h->cls->forget(h);
}

enum { STATUS, PROGRESS, TOLD };

/* Tell the others how far this rank is; *from: the rank that has come furthest, -1: none has begun. */
static tt_status tell_progress(const tt__comm_hook *h, tt_group *group, tt_status mine, int *from) {
    int world = tt_get_world_size(group);
    const int64_t own[TOLD] = {mine, !mine && h->cls->progress ? h->cls->progress(h) : 0};
    int64_t *all = calloc((size_t)world * TOLD, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "no memory for what %d ranks tell", world);
    tt_status status = tt__group_gather(group, own, all, TOLD, TT_I64, tt__hook_site);
    *from = -1;
    for (int rank = 0; rank < world && !status; rank++) {
        const int64_t *told = all + (size_t)rank * TOLD;
        if (told[STATUS] && !mine)
            status = tt__fail((tt_status)told[STATUS], "rank %d has failed in this: %s", rank,
                              tt_status_name((tt_status)told[STATUS]));
        else if (told[PROGRESS] > 0 && (*from < 0 || told[PROGRESS] > all[(size_t)*from * TOLD + PROGRESS]))
            *from = rank;
    }
    free(all);
    return status;
}

static tt_status share_from(tt__comm_hook *h, tt_group *group, int from) {
    size_t size = h->cls->shared_size(h);
    char *text = calloc(1, size + 1);
    tt_status status = text ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for %zu bytes of state", size);
    if (status)
        return status;
    if (tt_get_rank(group) == from)
        h->cls->write_shared(h, text);
    status = tt_broadcast_with(
        TT_ARGS(tt_broadcast_args, group, text, (int64_t)size, TT_U8, .root = from, .file = tt__hook_site));
    if (!status)
        h->cls->read_shared(h, text);
    free(text);
    return status;
}

tt_status tt__hook_align(tt__comm_hook *h, tt_group *group, tt_status mine) {
    tt__saved_error saved;
    int from = -1;
    if (mine)
        tt__error_save(&saved);
    tt_status status = tell_progress(h, group, mine, &from);
    if (mine) {
        tt__error_restore(&saved);
        return mine;
    }
    if (!status && from >= 0 && h->cls->shared_size && tt_get_world_size(group) > 1)
        status = share_from(h, group, from);
    return status;
}
