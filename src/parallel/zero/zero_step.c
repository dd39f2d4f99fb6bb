/* The step of a sharded optimizer: every rank updates its slices, and takes the others' updated slices. */
#include "base/error.h"
#include "comm/group.h"
#include "parallel/zero/zero.h"
#include "reducer/text_agreement.h"

#include <stdlib.h>
#include <string.h>

static const char who[] = "tt_zero_optimizer";

/* ---- stage 3: over the slices of a sharded module (fully_shard/), which owns the slices and their memory ---- */

tt_status tt__zero_lay_out_sharded(tt__zero *z) {
    const tt__fs *fs = z->fs;
    tt__group_hold(z->group = fs->group);
    z->buckets = calloc(fs->bucket_count, sizeof *z->buckets);
    z->params = calloc(fs->count, sizeof *z->params);
    if (!z->buckets || !z->params)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the slices", who);
    for (; z->bucket_count < fs->bucket_count; z->bucket_count++)
        z->buckets[z->bucket_count] =
            (tt__zero_bucket){.part = fs->buckets[z->bucket_count].part, .dtype = fs->buckets[z->bucket_count].dtype};
    for (size_t i = 0; i < fs->count; i++) {
        const tt__fs_param *from = &fs->params[i];
        if (!from->trains)
            continue;
        tt__zero_param *p = &z->params[z->count++];
        *p = (tt__zero_param){.whole = tt__tensor_watch(from->whole),
                              .slice = tt__tensor_ref(from->slice),
                              .name = strdup(from->name),
                              .bucket = from->bucket,
                              .offset = from->offset,
                              .numel = from->numel,
                              .from = from->from,
                              .n = from->n};
        if (!p->name)
            return tt__fail(TT_ERR_MEMORY, "%s: no memory for the slices", who);
    }
    return TT_OK;
}

static void sharded_detached(void *user) { ((tt__zero *)user)->fs = NULL; }

static const tt__fs_watcher sharded_watcher = {.detached = sharded_detached};

tt_status tt__zero_watch_sharded(tt__zero *z) {
    z->fs->watcher = &sharded_watcher;
    z->fs->watcher_user = z;
    return TT_OK;
}

void tt__zero_unwatch_sharded(tt__zero *z) {
    if (z->fs && z->fs->watcher_user == z)
        z->fs->watcher = NULL;
    z->fs = NULL;
}

static tt_status zero_begin_sharded(const tt__zero *z, const char *caller) {
    if (!z->fs)
        return tt__fail(TT_ERR_STATE,
                        "%s: the wrapper whose parameters are spread was freed; make wrapper and optimizer anew",
                        caller);
    if (z->fs->broken || z->fs->gathered)
        return tt__fail(TT_ERR_STATE, "%s: %s", caller,
                        z->fs->broken ? "an earlier pass failed; free the wrapper"
                                      : "the whole parameters are out: tt_fully_shard_scatter() first");
    return tt__fs_settle(z->fs);
}

/* The call site that errors of collectives name. */
static const char spread_site[] = "the gathering of updated parameters";
static const char join_site[] = "adding up over slices";

static tt_status check_whole_place(const tt__zero *z, const tt__zero_param *p, const char *who) {
    const tt__zero_bucket *b = &z->buckets[p->bucket];
    if (p->whole->data == tt__carried_at(&b->values, (size_t)p->offset * tt_dtype_size(b->dtype)) &&
        p->whole->dtype == b->dtype && p->whole->contiguous)
        return TT_OK;
    return tt__fail(
        TT_ERR_STATE,
        "%s: parameter \"%s\" is %s now and lies elsewhere than when it was sliced; convert a module before "
        "tt_zero_optimizer()",
        who, p->name, TT__DESCRIBE(p->whole));
}

tt_status tt__zero_begin(void *user, const char *who) {
    tt__zero *z = user;
    if (z->stage > 2) {
        TT__TRY(zero_begin_sharded(z, who));
        tt__zero_forget_state(z);
        return TT_OK;
    }
    if (!z->ddp)
        return tt__fail(TT_ERR_STATE,
                        "%s: the wrapper whose parameters are sliced was freed, or was given another group; make "
                        "wrapper and optimizer anew",
                        who);
    if (z->stage > 1 && !z->hooked)
        return tt__fail(TT_ERR_STATE,
                        "%s: another communication hook took the place of stage 2's; make the optimizer anew, or with "
                        ".stage = 1, beside which there may be one",
                        who);
    for (size_t i = 0; i < z->count; i++)
        TT__TRY(check_whole_place(z, &z->params[i], who));
    tt__zero_forget_state(z);
    return TT_OK;
}

static size_t own_part_at(const tt__zero *z, const tt__zero_bucket *b) {
    return (size_t)(b->part * z->rank) * tt_dtype_size(b->dtype);
}

static tt_status send_own_part(const tt__zero *z, tt__zero_bucket *b) {
    return tt__carried_send(&b->values, own_part_at(z, b), (size_t)b->part * tt_dtype_size(b->dtype));
}

static tt_status begin_gather(const tt__zero *z, tt__zero_bucket *b) {
    TT__TRY(tt__carried_settle(&b->values));
    return tt_all_gather_with(TT_ARGS(tt_all_gather_args, z->group, tt__carried_near(&b->values, own_part_at(z, b)),
                                      b->values.near, b->part, b->dtype, .work = &b->work, .file = spread_site,
                                      TT__CARRIED_ON(&b->values)));
}

static tt_status end_gather(tt__zero_bucket *b) {
    tt_status status = b->work ? tt_work_wait(b->work) : TT_OK;
    tt_work_free(b->work);
    b->work = NULL;
    return status ? status : tt__carried_receive(&b->values, 0, b->values.bytes);
}

tt_status tt__zero_end(void *user, const char *caller, tt_status own) {
    tt__zero *z = user;
    TT__TRY(tt__agree_on_success(z->group, caller, own));
    if (z->stage > 2)
        return tt__fs_changed(z->fs);
    tt_status first = TT_OK;
    for (size_t i = 0; i < z->bucket_count && !first; i++)
        first = send_own_part(z, &z->buckets[i]);
    for (size_t i = 0; i < z->bucket_count && !first; i++)
        first = begin_gather(z, &z->buckets[i]);
    for (size_t i = 0; i < z->bucket_count; i++) {
        tt_status status = end_gather(&z->buckets[i]);
        first = first ? first : status;
    }
    for (size_t i = 0; i < z->count; i++)
        tt__storage_touch(z->params[i].whole->storage);
    if (first && !tt__device_is_host(z->device)) /* it may have failed on this rank alone */
        tt__abort_with_error(z->group);
    return first;
}

/* Reduce the values with a back end that takes nothing of the host: gather them, and add up in the order of ranks. */
static tt_status join_words(const tt__zero *z, double *values, int64_t n, bool largest) {
    double *all = calloc((size_t)z->world * (size_t)n, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld values of %d ranks", join_site, (long long)n, z->world);
    tt_status status = tt__group_gather(z->group, values, all, (size_t)n, TT_F64, join_site);
    for (int64_t i = 0; i < n && !status; i++) {
        values[i] = all[i];
        for (int r = 1; r < z->world; r++) {
            const double x = all[r * n + i];
            values[i] = !largest ? values[i] + x : x > values[i] || x != x ? x : values[i];
        }
    }
    free(all);
    return status;
}

/* values[n] becomes the number of ranks that failed; values[n + 1] the rank, if one did. */
tt_status tt__zero_join(void *user, const char *caller, tt_status own, double *values, int64_t n, bool largest) {
    const tt__zero *z = user;
    double *failed = &values[n], *rank = &values[n + 1];
    tt__saved_error saved;
    tt__error_save(&saved);
    *failed = own ? 1 : 0;
    *rank = own ? z->rank : 0;
    tt_status status = tt__group_takes(z->group, TT_DEVICE_CPU)
                           ? tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, z->group, values, n + TT__JOIN_ROOM, TT_F64,
                                                        largest ? TT_MAX : TT_SUM, .file = join_site))
                           : join_words(z, values, n + TT__JOIN_ROOM, largest);
    if (own)
        tt__error_restore(&saved);
    if (own || status || *failed == 0)
        return own ? own : status;
    if (*failed > 1)
        return tt__fail(TT_ERR_STATE, "%s: %d ranks failed; their errors say why", caller, (int)*failed);
    return tt__fail(TT_ERR_STATE, "%s: rank %d failed; its error says why", caller, (int)*rank);
}

void tt__zero_abandon(void *user) {
    const tt__zero *z = user;
    tt__saved_error saved;
    tt__error_save(&saved);
    tt_group_abort(z->group, saved.text);
    tt__error_restore(&saved);
}
