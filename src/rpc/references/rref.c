/* References as programs use them: tt_rref_*(). Calls of functions with a reference, tt_rref_sync() and so on, are in
 * agent.c. */
#include "base/error.h"
#include "comm/group.h"
#include "rpc/references/references.h"
#include "rpc/rpc_state.h"
#include "rpc/values/rpc_value.h"

#include <pthread.h>
#include <stdlib.h>

/* Return the worker whose lock guards a reference. NULL: none does, after the shutdown, or in a forked child, where a
 * thread that is not there may hold the lock. */
static tt_rpc *guard_of(const tt_rref *rref) {
    tt_rpc *rpc = rref ? rref->rpc : NULL;
    return rpc && rpc->forks == tt__forks ? rpc : NULL;
}

tt_rref *tt_rref_share(tt_rref *rref) {
    tt_rpc *rpc = guard_of(rref);
    if (rpc)
        tt__rpc_lock(rpc);
    if (rref)
        rref->shares++;
    if (rpc)
        tt__rpc_unlock(rpc);
    return rref;
}

/* Release the lock, and free the reference if it alone is due; else leave it to the poller. */
static void rref_settle(tt_rpc *rpc) {
    tt__rpc_due *due = rpc->due.first;
    if (!due || due->run != tt__rref_free || due->next) {
        tt__rpc_unlock(rpc);
        return;
    }
    tt__rpc_list_take(&rpc->due);
    tt__rpc_unlock(rpc);
    tt__rref_free(rpc, due);
}

void tt_rref_free(tt_rref *rref) {
    if (!rref)
        return;
    tt_rpc *rpc = guard_of(rref);
    if (!rpc) {
        if (!--rref->shares && !rref->rpc)
            tt__rref_free(NULL, &rref->end);
        return;
    }
    tt__rpc_lock(rpc);
    tt__rref_drop(rpc, rref);
    rref_settle(rpc);
}

static void give_hooks(void) {
    static const tt__rpc_rref_hooks hooks = {tt_rref_share, tt_rref_free};
    tt__rpc_set_rref_hooks(&hooks);
}

void tt__rrefs_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* several workers of a process may begin at once */
    pthread_once(&once, give_hooks);
}

tt_rref *tt_rref_new(tt_rpc *rpc, tt_rpc_value value) {
    tt_rpc_value kept = value;
    if (tt__rpc_usable(rpc, "tt_rref_new") || (!value.owned && tt_rpc_value_copy(&kept, &value))) {
        tt_rpc_value_free(&kept);
        return NULL;
    }
    tt__rpc_lock(rpc);
    tt_rref *rref = rpc->ended ? tt__fail_null(TT_ERR_STATE, "tt_rref_new: worker %s was shut down", rpc->name)
                               : tt__rref_make(rpc, rpc->id);
    tt__rpc_unlock(rpc);
    if (rref)
        tt__future_end(rref->value, TT_OK, NULL, kept);
    else
        tt_rpc_value_free(&kept);
    return rref;
}

int tt_rref_owner(const tt_rref *rref) { return rref ? (int)rref->ref.owner : -1; }

bool tt_rref_is_owner(const tt_rref *rref) { return rref && rref->value; }

const tt_rpc_value *tt_rref_local(tt_rref *rref) {
    if (!rref)
        return tt__fail_null(TT_ERR_INVALID, "tt_rref_local: the reference is NULL");
    if (!rref->value)
        return tt__fail_null(TT_ERR_STATE,
                             "tt_rref_local: the value lies with the worker with the id %d: tt_rref_get() fetches a "
                             "copy, and tt_rref_sync() calls a function there",
                             (int)rref->ref.owner);
    return tt_future_wait(rref->value, 0) ? NULL : tt_future_value(rref->value);
}
