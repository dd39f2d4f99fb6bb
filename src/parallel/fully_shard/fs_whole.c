/* tt_fully_shard_gather() and tt_fully_shard_scatter(): whole parameters in memory of their own, gathered unit by unit,
 * and taken back into slices. */
#include "base/error.h"
#include "parallel/fully_shard/fully_shard.h"
#include "reducer/text_agreement.h"
#include "tensor/ops/ops.h"

static const char gather_who[] = "tt_fully_shard_gather";
static const char scatter_who[] = "tt_fully_shard_scatter";

static tt__fs *wrapper_of(const char *who, tt_module *module) {
    tt__fs *fs = tt__fs_of(module);
    if (!fs)
        tt__fail(TT_ERR_INVALID, "%s: expected a wrapper that tt_fully_shard() made", who);
    return fs;
}

/* Has this rank the whole parameters? */
static bool has_whole(const tt__fs *fs) { return fs->gathered_to == TT_ALL_RANKS || fs->gathered_to == fs->rank; }

/* ---- gather ---- */

static tt_status take_out(tt__fs *fs, tt__fs_unit *u, bool keep) {
    TT__TRY(tt__fs_need(u));
    for (size_t i = 0; i < fs->count && keep; i++) {
        tt__fs_param *p = &fs->params[i];
        if (!tt__fs_is_of(p, u))
            continue;
        tt__storage *before = tt__storage_ref(p->whole->storage); /* records may refer to it; it stays marked as away */
        tt_status status = tt__tensor_move(gather_who, p->whole, NULL);
        atomic_store_explicit(&before->away, !status, memory_order_relaxed);
        tt__storage_unref(before);
        TT__TRY(status);
        p->moved = false;
    }
    return TT_OK;
}

static tt_status take_all_out(tt__fs *fs, bool keep) {
    tt_status own = TT_OK;
    for (size_t i = 0; i < fs->unit_count && !fs->broken; i++) { /* after a failure here, too, as the others go on */
        tt__fs_unit *u = &fs->units[i];
        tt_status status = take_out(fs, u, keep && !own);
        own = own ? own : status;
    }
    return own;
}

tt_status tt_fully_shard_gather(tt_module *sharded, int root) {
    tt__fs *fs = wrapper_of(gather_who, sharded);
    if (!fs)
        return tt_last_status();
    if (root < TT_ALL_RANKS || root >= fs->world)
        return tt__fail(TT_ERR_INVALID, "%s: expected a rank below %d, or TT_ALL_RANKS, got %d", gather_who, fs->world,
                        root);
    if (fs->backward || fs->gathered || fs->broken)
        return tt__fail(TT_ERR_STATE, "%s: %s", gather_who,
                        fs->broken     ? "an earlier call failed; free the wrapper"
                        : fs->gathered ? "the whole parameters are out already: tt_fully_shard_scatter() first"
                                       : "a backward pass is under way");
    TT__TRY(tt__fs_settle(fs));
    TT__TRY(tt__fs_changed(fs)); /* earlier whole values go: only those that are taken out below are readable */
    tt_status own = take_all_out(fs, root == TT_ALL_RANKS || root == fs->rank);
    fs->gathered_to = root;
    if (!fs->broken) {
        fs->gathered = true;
        own = tt__agree_on_success(fs->group, gather_who, own);
    }
    own = own ? own : tt__fs_changed(fs);
    return own ? tt__fs_break(fs, own) : TT_OK;
}

/* ---- scatter ---- */

static tt_status check_unchanged(const tt__fs *fs) {
    for (size_t i = 0; i < fs->count; i++) {
        const tt__fs_param *p = &fs->params[i];
        if (p->whole->dtype != fs->buckets[p->bucket].dtype || !p->whole->contiguous || p->whole->numel != p->numel)
            return tt__fail(TT_ERR_STATE, "%s: parameter \"%s\" is %s now; convert a module before tt_fully_shard()",
                            scatter_who, p->name, TT__DESCRIBE(p->whole));
    }
    return TT_OK;
}

/* Copy n elements of the bucket's type between places on the device. */
static tt_status copy_elements(const tt__fs *fs, const tt__fs_bucket *b, void *to, void *from, int64_t n) {
    TT_AUTO_SCOPE;
    tt_tensor *y = tt__tensor_borrow(scatter_who, fs->device, to, TT_SHAPE(n), b->dtype);
    tt_tensor *x = y ? tt__tensor_borrow(scatter_who, fs->device, from, TT_SHAPE(n), b->dtype) : NULL;
    return x ? tt__copy_out(scatter_who, y, x) : tt_last_status();
}

static tt_status put_whole_values(const tt__fs_param *p) {
    const tt__fs_bucket *b = tt__fs_bucket_of(p);
    return copy_elements(p->owner, b, tt__fs_place_of(b->values, p), p->whole->data, p->numel);
}

static tt_status cut_slices(const tt__fs *fs, const tt__fs_bucket *b) {
    return copy_elements(fs, b, b->slices, tt__fs_element(b->values, b, b->part * fs->rank), b->part);
}

static tt_status take_root_values(const tt__fs *fs, const tt__fs_unit *u) {
    tt__carried *whole = tt__fs_values_of(u);
    if (has_whole(fs))
        TT__TRY(tt__carried_send(whole, 0, u->bytes));
    TT__TRY(tt__carried_settle(whole));
    for (size_t i = 0; i < u->bucket_count; i++) {
        const tt__fs_bucket *b = &fs->buckets[u->first_bucket + i];
        TT__TRY(
            tt_broadcast_with(TT_ARGS(tt_broadcast_args, fs->group, tt__carried_near(whole, b->at), b->part * fs->world,
                                      b->dtype, fs->gathered_to, .file = u->gather_site, TT__CARRIED_ON(whole))));
    }
    return has_whole(fs) ? TT_OK : tt__carried_receive(whole, 0, u->bytes);
}

/* Copy the unit's whole values to its place, broadcast them if only the root has them, and cut this rank's slices. */
static tt_status take_slices(tt__fs *fs, const tt__fs_unit *u) {
    for (size_t i = 0; i < fs->count; i++)
        if (tt__fs_is_of(&fs->params[i], u) && has_whole(fs))
            TT__TRY(put_whole_values(&fs->params[i]));
    if (fs->gathered_to != TT_ALL_RANKS)
        TT__TRY(take_root_values(fs, u));
    for (size_t i = 0; i < u->bucket_count; i++)
        TT__TRY(cut_slices(fs, &fs->buckets[u->first_bucket + i]));
    return TT_OK;
}

tt_status tt_fully_shard_scatter(tt_module *sharded) {
    tt__fs *fs = wrapper_of(scatter_who, sharded);
    if (!fs)
        return tt_last_status();
    if (!fs->gathered || fs->broken)
        return tt__fail(TT_ERR_STATE, "%s: %s", scatter_who,
                        fs->broken ? "an earlier call failed; free the wrapper"
                                   : "nothing is gathered: tt_fully_shard_gather() comes first");
    TT__TRY(tt__agree_on_success(fs->group, scatter_who, check_unchanged(fs)));
    tt_status own = TT_OK;
    for (size_t i = 0; i < fs->unit_count; i++) {
        tt_status status = take_slices(fs, &fs->units[i]);
        if (status)
            return tt__fs_break(fs, status);
    }
    for (size_t i = 0; i < fs->count && !own && has_whole(fs); i++)
        own = tt__fs_put_in_place(&fs->params[i]);
    own = tt__agree_on_success(fs->group, scatter_who, own);
    fs->gathered = own != TT_OK;
    return own ? tt__fs_break(fs, own) : tt__fs_changed(fs);
}
