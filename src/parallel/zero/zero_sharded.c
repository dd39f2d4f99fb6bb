/* Stage 3: an optimizer over the slices of a sharded module (fully_shard/), which owns the slices and their memory. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/group.h"
#include "parallel/zero/zero.h"

static const char who[] = "tt_zero_optimizer";

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

tt_status tt__zero_begin_sharded(const tt__zero *z, const char *caller) {
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

tt_status tt__zero_end_sharded(const tt__zero *z) { return tt__fs_changed(z->fs); }
