/* Gathers the whole parameters of a unit when it needs them. */
#include "base/error.h"
#include "parallel/fully_shard/fully_shard.h"
#include "reducer/text_agreement.h"

tt_status tt__fs_break(tt__fs *fs, tt_status status) {
    if (!fs->broken) {
        fs->broken = status;
        tt__abort_with_error(fs->group);
    }
    return status;
}

static void set_values(tt__fs_unit *u, tt__fs_values values) {
    const tt__fs *fs = u->owner;
    u->values = values;
    for (size_t i = 0; i < fs->count; i++)
        if (tt__fs_is_of(&fs->params[i], u) && fs->params[i].moved)
            atomic_store_explicit(&fs->params[i].whole->storage->away, values != TT__FS_HERE, memory_order_relaxed);
}

static tt_status end_gathering(tt__fs_unit *u) {
    tt_status first = TT_OK;
    for (size_t i = 0; i < u->bucket_count; i++) {
        tt__fs_bucket *b = &u->owner->buckets[u->first_bucket + i];
        tt_status status = b->gathering ? tt_work_wait(b->gathering) : TT_OK;
        tt_work_free(b->gathering);
        b->gathering = NULL;
        first = first ? first : status;
    }
    if (!first)
        first = tt__carried_receive(tt__fs_values_of(u), 0, u->bytes);
    return first ? tt__fs_break(u->owner, first) : TT_OK;
}

static tt_status let_unit_go(tt__fs_unit *u) {
    tt__fs_place *place = &u->owner->places[u->place];
    tt_status status = u->values == TT__FS_COMING ? end_gathering(u) : TT_OK;
    set_values(u, TT__FS_AWAY);
    if (place->holds == u)
        place->holds = NULL;
    return status;
}

/* May another unit take its place? */
static bool is_free(const tt__fs_unit *u) { return !u->running && u != u->owner->current; }

static tt_status gather_unit(tt__fs_unit *u) {
    tt__fs *fs = u->owner;
    u->values = TT__FS_COMING;
    tt__carried *whole = tt__fs_values_of(u);
    tt_status ready = tt__carried_settle(&fs->slices);
    ready = ready ? ready : tt__carried_settle(whole);
    if (ready)
        return tt__fs_break(fs, ready);
    for (size_t i = 0; i < u->bucket_count; i++) {
        tt__fs_bucket *b = &fs->buckets[u->first_bucket + i];
        tt_status status = tt_all_gather_with(TT_ARGS(
            tt_all_gather_args, fs->group, tt__carried_near(&fs->slices, b->slices_at), tt__carried_near(whole, b->at),
            b->part, b->dtype, .work = &b->gathering, .file = u->gather_site, TT__CARRIED_ON(whole)));
        if (status)
            return tt__fs_break(fs, status);
    }
    return TT_OK;
}

tt_status tt__fs_begin(tt__fs_unit *u) {
    tt__fs *fs = u->owner;
    tt__fs_place *place = &fs->places[u->place];
    if (u->values != TT__FS_AWAY || fs->broken || (place->holds && !is_free(place->holds)))
        return TT_OK;
    if (place->holds)
        TT__TRY(let_unit_go(place->holds));
    place->holds = u;
    return gather_unit(u);
}

static tt_status check_fs_usable(const tt__fs *fs) {
    if (fs->broken)
        return tt__fail(TT_ERR_STATE, "%s: an earlier call failed (%s); free the wrapper", FS_SITE,
                        tt_status_name(fs->broken));
    if (fs->gathered)
        return tt__fail(TT_ERR_STATE, "%s: the whole parameters are out: tt_fully_shard_scatter() first", FS_SITE);
    return TT_OK;
}

tt_status tt__fs_need(tt__fs_unit *u) {
    tt__fs *fs = u->owner;
    TT__TRY(check_fs_usable(fs));
    if (u->values == TT__FS_HERE)
        return TT_OK;
    TT__TRY(tt__fs_begin(u));
    if (u->values != TT__FS_COMING)
        return tt__fail(TT_ERR_STATE, "%s: unit \"%s\" runs inside unit \"%s\", whose place it takes; make them one",
                        FS_SITE, u->name, fs->places[u->place].holds->name);
    TT__TRY(end_gathering(u));
    set_values(u, TT__FS_HERE);
    return TT_OK;
}

tt_status tt__fs_begin_first(tt__fs *fs) {
    TT__TRY(check_fs_usable(fs));
    TT__TRY(tt__fs_begin(tt__fs_rest(fs)));
    if (fs->unit_count > 1)
        TT__TRY(tt__fs_begin(&fs->units[0]));
    return tt__fs_need(tt__fs_rest(fs));
}

tt_status tt__fs_begin_next(const tt__fs_unit *u, int step) {
    const tt__fs *fs = u->owner;
    const int64_t next = u - fs->units + step;
    return next < 0 || next >= (int64_t)fs->unit_count - 1 ? TT_OK : tt__fs_begin(&fs->units[next]);
}

tt_status tt__fs_settle(tt__fs *fs) {
    tt_status first = TT_OK;
    for (size_t i = 0; i < fs->unit_count; i++) {
        tt_status status = fs->units[i].values == TT__FS_COMING ? let_unit_go(&fs->units[i]) : TT_OK;
        first = first ? first : status;
    }
    return first;
}

tt_status tt__fs_changed(tt__fs *fs) {
    tt_status first = TT_OK;
    for (size_t i = 0; i < fs->unit_count; i++) {
        tt_status status = let_unit_go(&fs->units[i]);
        first = first ? first : status;
    }
    for (size_t i = 0; i < fs->count; i++)
        tt__storage_touch(fs->params[i].whole->storage);
    tt_status sent = first ? first : tt__carried_send(&fs->slices, 0, fs->slices.bytes);
    return sent ? tt__fs_break(fs, sent) : TT_OK;
}

void tt__fs_poke(const tt__fs *fs) {
    for (size_t i = 0; i < fs->bucket_count; i++) {
        if (fs->buckets[i].gathering && !tt_work_is_completed(fs->buckets[i].gathering))
            return; /* later units wait for this one */
        if (fs->buckets[i].averaging && !tt_work_is_completed(fs->buckets[i].averaging))
            return;
    }
}
