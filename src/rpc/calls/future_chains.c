/* Futures that are made of other futures: then() and collect_all(). */
#include "base/error.h"
#include "rpc/calls/future.h"

#include <stdlib.h>

typedef struct then {
    tt_future *out;
    tt_future_then_fn fn;
    void *user;
} then;

static void run_then(tt_future *future, void *user) {
    then *what = user;
    tt_rpc_value value = tt_rpc_none(), given;
    uint64_t errors = tt__error_count();
    tt_status status = what->fn(future, &value, what->user);
    if (!status && !value.owned) {
        status = tt_rpc_value_copy(&given, &value);
        value = given;
    }
    if (status) {
        tt__fail_callback(errors, status, "then");
        tt_rpc_value_free(&value);
    }
    tt__future_end(what->out, status, status ? tt_last_error() : NULL, value);
    tt_future_free(what->out);
    free(what);
}

tt_status tt_future_then(tt_future **out, tt_future *future, tt_future_then_fn fn, void *user) {
    if (!out || !future || !fn)
        return tt__fail_argument("tt_future_then: expected a place, a future and a function, got NULL");
    then *what = malloc(sizeof *what);
    *out = what ? tt__future_new_driven(future->driver) : NULL;
    if (!*out) {
        free(what);
        return tt__fail(TT_ERR_MEMORY, "no memory for a future");
    }
    *what = (then){tt_future_share(*out), fn, user};
    tt_status status = tt_future_add_callback(future, run_then, what);
    if (status) {
        tt_future_free(what->out);
        tt_future_free(*out);
        *out = NULL;
        free(what);
    }
    return status;
}

typedef struct collection {
    tt_future *out;
    _Atomic int64_t left;
    _Atomic bool unseen; /* there was no memory for the callback of one */
    int64_t count;
    tt_future *futures[];
} collection;

/* All futures are done: end `out` with the list of values, or with the first error. */
static void end_collection(collection *all) {
    tt_rpc_value list = {.kind = TT_RPC_LIST, .owned = true, .list = {NULL, all->count}};
    tt_status status = TT_OK;
    list.list.items = calloc(all->count ? (size_t)all->count : 1, sizeof *list.list.items);
    if (!list.list.items || all->unseen)
        status = tt__fail(TT_ERR_MEMORY, "no memory for a list of %lld values", (long long)all->count);
    for (int64_t i = 0; i < all->count && !status; i++)
        status = all->futures[i]->status ? tt_future_wait(all->futures[i], 0)
                                         : tt_rpc_value_copy(&list.list.items[i], &all->futures[i]->value);
    if (status && list.list.items)
        tt_rpc_value_free(&list); /* items that were not reached are of kind none */
    tt__future_end(all->out, status, status ? tt_last_error() : NULL, status ? tt_rpc_none() : list);
    for (int64_t i = 0; i < all->count; i++)
        tt_future_free(all->futures[i]);
    tt_future_free(all->out);
    free(all);
}

/* Count futures that have ended; the last one ends the collection. */
static void ended_are(collection *all, int64_t count) {
    if (atomic_fetch_sub_explicit(&all->left, count, memory_order_acq_rel) == count)
        end_collection(all);
}

static void one_is_done(tt_future *future, void *user) {
    (void)future;
    ended_are(user, 1);
}

tt_status tt_future_collect_all(tt_future **out, tt_future *const *futures, int64_t count) {
    if (!out || count < 0 || (count && !futures))
        return tt__fail_argument("tt_future_collect_all: expected a place and %lld futures", (long long)count);
    *out = NULL;
    for (int64_t i = 0; i < count; i++)
        if (!futures[i])
            return tt__fail_argument("tt_future_collect_all: future %lld is NULL", (long long)i);
    int64_t ended = 1; /* this function counts as one, so that the collection lasts until it returns */
    collection *all = calloc(1, sizeof *all + (size_t)count * sizeof *all->futures);
    tt_future *future = all ? tt__future_new_driven(count ? futures[0]->driver : NULL) : NULL;
    if (!future) {
        free(all);
        return tt__fail(TT_ERR_MEMORY, "no memory for a future of %lld futures", (long long)count);
    }
    all->out = tt_future_share(future);
    all->count = count;
    all->left = count + 1;
    for (int64_t i = 0; i < count; i++)
        all->futures[i] = tt_future_share(futures[i]);
    for (int64_t i = 0; i < count; i++)
        if (tt__future_follow(futures[i], one_is_done, all)) {
            all->unseen = true;
            ended++;
        }
    *out = future;
    ended_are(all, ended);
    return TT_OK;
}
