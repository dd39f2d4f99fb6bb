/* Commit and restore.
 *
 * Each rank keeps numbered copies of its state. The ranks of a round compare numbers when they meet. Ranks without the
 * newest copy get it from the lowest rank that has it, in a group of these ranks alone. Then all bind their parts to
 * the group, and set them. A copy is never changed, so a rank that is interrupted here by the loss of another one
 * begins again in the next round. */
#include "elastic/elastic.h"

#include "base/build.h"
#include "base/error.h"
#include "base/random_bytes.h"
#include "comm/group.h"

#include <inttypes.h>
#include <stdlib.h>

static const char caller[] = "tt_elastic_restore";

/* ---- commit ---- */

tt_status tt_elastic_commit(tt_elastic *e) {
    if (!e)
        return tt__fail_argument("tt_elastic_commit: `elastic` is NULL");
    if (!e->synced)
        return tt__fail(TT_ERR_STATE, "tt_elastic_commit: expected a tt_elastic_restore() that succeeded before");
    if (!e->disabled) {
        TT__TRY(tt__parts_save(&e->parts, &e->kept[!e->newest]));
        e->newest = !e->newest;
    }
    e->commits++;
    return TT_OK;
}

/* ---- the state of a round ---- */

/* What a rank has; `draws` names the line that would begin with its state. */
typedef struct holding {
    int64_t commits, bytes;
    tt__line line;
    uint64_t draws;
} holding;

/* The copy that all ranks take. */
typedef struct sources {
    int64_t commits, bytes;
    tt__line line;
    uint64_t next_line; /* the line that begins with it */
    int root;           /* the lowest rank that has it */
    bool lacked;        /* some rank lacks it */
    bool lacks;         /* this rank does */
} sources;

static bool same_line(const tt__line *a, const tt__line *b) { return a->round == b->round && a->id == b->id; }

/* Is `a` newer than `b`? A rank that missed rounds gives up its last steps: the others made them again. */
static bool is_newer(const holding *a, const holding *b) {
    return a->line.round != b->line.round ? a->line.round > b->line.round : a->commits > b->commits;
}

static tt_status compare_holdings(const tt_elastic *e, const holding *all, sources *s) {
    int root = 0;
    for (int r = 0; r < e->world; r++)
        if (!TT__MUTANT(state_is_rank_0s) && is_newer(&all[r], &all[root]))
            root = r;
    *s = (sources){all[root].commits, all[root].bytes, all[root].line, all[root].draws, .root = root};
    for (int r = 0; r < e->world; r++) {
        bool same = same_line(&all[r].line, &s->line);
        if (same && all[r].commits >= 0 && all[r].commits < s->commits - 1)
            return tt__fail(TT_ERR_STATE,
                            "%s: rank %d has made %" PRId64 " commits, but rank %d %" PRId64
                            ": expected all ranks to commit after the same steps, behind a collective of each",
                            caller, r, all[r].commits, s->root, s->commits);
        bool lacks = r != s->root &&
                     ((!same && !TT__MUTANT(commits_taken_for_same)) || all[r].commits < s->commits || s->commits < 0);
        s->lacked = s->lacked || lacks;
        s->lacks = s->lacks || (lacks && r == e->rank);
    }
    return TT_OK;
}

/* Exchange what all ranks have. A rank without a copy makes one: when a job begins, all take that of rank 0. */
static tt_status find_sources(tt_elastic *e, sources *s) {
    if (e->commits < 0)
        TT__TRY(tt__parts_save(&e->parts, &e->kept[e->newest]));
    holding mine = {e->commits, (int64_t)e->kept[e->newest].size, e->line, 0};
    TT__TRY(tt__random_bytes(&mine.draws, sizeof mine.draws));
    holding *all = calloc((size_t)e->world, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for what %d ranks have", caller, e->world);
    tt_status status = tt_all_gather_with(TT_ARGS(tt_all_gather_args, .group = e->group, .send = &mine, .recv = all,
                                                  .count = sizeof mine / 8, .dtype = TT_I64, .file = caller));
    if (!status)
        status = compare_holdings(e, all, s);
    free(all);
    return status;
}

/* Send the copy to those that lack it, in a group of theirs with the root, or receive it. */
static tt_status hand_copy_over(tt_elastic *e, const sources *s) {
    bool takes_part = s->lacks || e->rank == s->root;
    tt__bytes *copy = &e->kept[s->lacks ? !e->newest : e->newest];
    tt_group *group;
    TT__TRY(tt_group_split_with(TT_ARGS(tt_group_split_args, &group, e->group, takes_part ? 0 : -1,
                                        e->rank == s->root ? -1 : e->rank, .file = caller)));
    if (!group)
        return TT_OK;
    tt_status status = TT_OK;
    if (s->lacks) {
        copy->size = 0;
        copy->failed = false;
        if (tt__bytes_reserve(copy, (size_t)s->bytes))
            copy->size = (size_t)s->bytes;
        else
            status = tt__fail(TT_ERR_MEMORY, "%s: no memory for a state of %" PRId64 " bytes", caller, s->bytes);
    }
    if (!status && s->bytes)
        status = tt_broadcast_with(TT_ARGS(tt_broadcast_args, .group = group, .buf = copy->data, .count = s->bytes,
                                           .dtype = TT_U8, .root = 0, .file = caller));
    tt_destroy_process_group(group);
    if (!status && s->lacks && !TT__MUTANT(newcomer_keeps_state))
        e->newest = !e->newest;
    return status;
}

/* Give all ranks of the round the same state. */
static tt_status synchronize(tt_elastic *e) {
    sources s = {0}; /* gcc does not see that find_sources() sets it */
    TT__TRY(find_sources(e, &s));
    if (s.lacked)
        TT__TRY(hand_copy_over(e, &s));
    e->commits = s.commits < 0 ? 0 : s.commits;
    e->line = s.line;
    TT__TRY(tt__parts_bind(&e->parts, e->group));
    TT__TRY(tt__parts_load(&e->parts, &e->kept[e->newest]));
    e->line = (tt__line){e->round, s.next_line};
    e->synced = true;
    for (int i = 0; i < 2 && e->disabled; i++)
        tt__bytes_free(&e->kept[i]);
    return TT_OK;
}

/* ---- restore ---- */

/* Return the present failure if no other round mends it. */
static tt_status check_mendable(const tt_elastic *e) {
    tt_status failed = e->group ? e->group->failed : TT_OK, last = tt_last_status();
    bool mends = e->due || !e->group || tt__elastic_mends(failed) || (!failed && tt__elastic_mends(last));
    if (mends && !e->disabled)
        return TT_OK;
    if (failed)
        return tt__fail(failed, "%s", e->group->failure_text);
    if (last)
        return last;
    return tt__fail(TT_ERR_STATE, "%s: the group is well, and no call has failed: there is nothing to recover from",
                    caller);
}

static tt_status another_round(tt_elastic *e) {
    if (e->group && e->group->failed) /* the program may have seen only a consequence of it */
        tt__fail(e->group->failed, "%s", e->group->failure_text);
    e->synced = false;
    tt_status status = tt__elastic_next_round(e);
    e->changed = e->changed || !status;
    return status;
}

/* After a signal ended the wait: set the state of the last commit, which can be saved. */
static void set_last_commit(tt_elastic *e) {
    tt__saved_error saved;
    tt__error_save(&saved);
    if (e->commits >= 0)
        tt_ignore(tt__parts_load(&e->parts, &e->kept[e->newest]));
    tt__error_restore(&saved);
}

static tt_status restore_rounds(tt_elastic *e) {
    tt_status status = TT_OK;
    if (e->synced || !e->group) {
        TT__TRY(check_mendable(e));
        status = another_round(e);
    }
    while (!status) {
        status = synchronize(e);
        if (!status)
            return TT_OK;
        tt_status failed = e->group->failed;
        if (e->disabled || !tt__elastic_mends(failed ? failed : status))
            return status;
        status = another_round(e);
    }
    return status;
}

tt_status tt_elastic_restore(tt_elastic *e) {
    if (!e)
        return tt__fail_argument("%s: `elastic` is NULL", caller);
    bool first = e->commits < 0;
    int old_rank = first ? -1 : e->rank, old_world = first ? 0 : e->world;
    e->changed = first && e->round > 0;
    tt_status status = restore_rounds(e);
    if (status) {
        if (status == TT_ERR_ABORTED && tt__stop_wish_signal(&e->stop))
            set_last_commit(e);
        if (tt__elastic_mends(status)) /* another failure concerns this rank alone, and is told as usual */
            tt__error_file_write(tt_last_error(), true);
        return status;
    }
    e->change = (tt_elastic_change){e->round, e->rank, e->world, old_rank, old_world, e->reason};
    tt__error_drop();
    return TT_OK;
}
