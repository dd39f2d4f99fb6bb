/* Contexts of distributed autograd on a worker: begun, met, found, ended, and ended for lost workers (dist.h). */
#include "base/error.h"
#include "base/random_bytes.h"
#include "parallel/rpc/dist.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OWNERS_MAX = 1 << 20 /* above the ids of workers */ };

static _Thread_local uint64_t current_context;

uint64_t tt__dist_current(void) { return current_context; }

int64_t tt_dist_autograd_current(void) { return (int64_t)current_context; }

uint64_t tt__dist_outside(void) {
    uint64_t before = current_context;
    current_context = 0;
    return before;
}

void tt__dist_reenter(uint64_t before) { current_context = before; }

bool tt__dist_room(void *array, int64_t count, int64_t *room, size_t size) {
    if (count < *room)
        return true;
    int64_t more = *room ? 2 * *room : 8;
    void *larger = realloc(*(void **)array, (size_t)more * size);
    if (!larger)
        return tt__fail(TT_ERR_MEMORY, "no memory for a context of distributed autograd"), false;
    *(void **)array = larger;
    *room = more;
    return true;
}

/* ---- calls outside of contexts */

typedef struct call_end {
    tt_future_fn fn;
    void *user;
} call_end;

tt_status tt__dist_call(tt__dist *dist, int to, const char *function, tt_rpc_values args, tt_future_fn fn, void *user) {
    tt_future *future = NULL;
    uint64_t before = tt__dist_outside();
    tt_status status = tt_rpc_async(&future, dist->rpc, NULL, function, .to_id = to, .args = args);
    tt__dist_reenter(before);
    if (!status && fn)
        status = tt_future_add_callback(future, fn, user);
    tt_future_free(future);
    return status;
}

/* ---- the end of a context */

static void free_receipts(tt__dist_context *context) {
    for (int64_t i = 0; i < context->receipt_count; i++) {
        for (int64_t k = 0; k < context->receipts[i].count; k++)
            tt__tensor_unref(context->receipts[i].leaves[k]);
        free(context->receipts[i].leaves);
    }
    free(context->receipts);
    tt__pointer_map_free(&context->receipt_at);
}

static void free_grads(tt__dist_grads *grads) {
    for (int64_t i = 0; i < grads->count; i++) {
        tt__tensor_unref(grads->leaves[i]);
        tt__tensor_unref(grads->grads[i]);
    }
    free(grads->leaves);
    free(grads->grads);
    tt__pointer_map_free(&grads->at);
}

static void context_free(tt__dist_context *context) {
    for (int64_t i = 0; i < context->scope_count; i++)
        tt_scope_free(context->scopes[i]);
    free(context->scopes);
    for (int64_t i = 0; i < context->send_count; i++)
        tt__node_unref(context->sends[i].node);
    free(context->sends);
    free_receipts(context);
    free_grads(&context->grads);
    free(context->users);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

void tt__dist_unref(tt__dist_context *context) {
    if (!context)
        return;
    pthread_mutex_lock(&context->dist->lock);
    bool last = !--context->refs;
    pthread_mutex_unlock(&context->dist->lock);
    if (last)
        context_free(context);
}

static tt__dist_context **context_place(tt__dist *dist, uint64_t id) {
    return &dist->contexts[id & (TT__DIST_PLACES - 1)];
}

/* Take a context out of the table; the caller gets the table's reference. False: it was taken out before. */
static bool unlink_context(tt__dist_context *context) {
    tt__dist *dist = context->dist;
    pthread_mutex_lock(&dist->lock);
    tt__dist_context **at = context_place(dist, context->id);
    while (*at && *at != context)
        at = &(*at)->next;
    bool there = *at != NULL;
    if (there) {
        *at = context->next;
        dist->known[tt__dist_owner(context->id)]--;
    }
    pthread_mutex_unlock(&dist->lock);
    return there;
}

/* End the current pass over a context, if there is one. */
static void end_pass_of(tt__dist_context *context) {
    pthread_mutex_lock(&context->lock);
    void (*end)(tt__dist_context *, uint64_t) = context->part ? context->end_part : NULL;
    pthread_mutex_unlock(&context->lock);
    if (end)
        end(context, 0);
}

/* End a context that the caller has a reference to. Its pass fails with this thread's last error. */
static void end_context(tt__dist_context *context) {
    if (!unlink_context(context))
        return;
    pthread_mutex_lock(&context->lock);
    context->ended = true;
    pthread_mutex_unlock(&context->lock);
    end_pass_of(context);
    tt__dist_unref(context);
}

/* ---- lost workers, and the end of this one */

/* Return the context after `context` in the table (NULL: the first). dist->lock is held. */
static tt__dist_context *next_context(tt__dist *dist, const tt__dist_context *context) {
    uint64_t place = context ? (context->id & (TT__DIST_PLACES - 1)) + 1 : 0;
    tt__dist_context *next = context ? context->next : NULL;
    while (!next && place < TT__DIST_PLACES)
        next = dist->contexts[place++];
    return next;
}

/* Find a context that worker `id` owns, or whose pass it leads, and take a reference. NULL: there is none. */
static tt__dist_context *context_of_lost(tt__dist *dist, int id) {
    tt__dist_context *found = NULL;
    pthread_mutex_lock(&dist->lock);
    for (tt__dist_context *c = next_context(dist, NULL); c && !found; c = next_context(dist, c)) {
        pthread_mutex_lock(&c->lock);
        if (tt__dist_owner(c->id) == id || (c->part && c->leader == id))
            found = c;
        pthread_mutex_unlock(&c->lock);
    }
    if (found)
        found->refs++;
    pthread_mutex_unlock(&dist->lock);
    return found;
}

static void on_lost_worker(tt_rpc *rpc, int id, const char *why, void *user) {
    (void)rpc;
    for (tt__dist_context *c; (c = context_of_lost(user, id));) {
        tt__fail(TT_ERR_PEER, "worker %d was lost: %s", id, why ? why : "nobody knows why");
        if (tt__dist_owner(c->id) == id)
            end_context(c);
        else
            end_pass_of(c);
        tt__dist_unref(c);
    }
    tt_clear_error();
}

static void dist_free(void *what) {
    tt__dist *dist = what;
    for (tt__dist_context *c; (c = next_context(dist, NULL));) {
        pthread_mutex_lock(&dist->lock);
        c->refs++;
        pthread_mutex_unlock(&dist->lock);
        tt__fail(TT_ERR_STATE, "the worker was shut down");
        end_context(c);
        tt__dist_unref(c);
    }
    tt_clear_error();
    pthread_mutex_destroy(&dist->lock);
    pthread_mutex_destroy(&dist->stepping);
    free(dist->known);
    free(dist);
}

tt__dist *tt__dist_of(tt_rpc *rpc) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    if (!rpc)
        return tt__fail_null(TT_ERR_INVALID, "the tt_rpc is NULL");
    pthread_mutex_lock(&making);
    tt__dist *dist = tt__rpc_attached(rpc);
    bool made = !dist && (dist = calloc(1, sizeof *dist));
    if (made) {
        dist->rpc = rpc;
        pthread_mutex_init(&dist->lock, NULL);
        pthread_mutex_init(&dist->stepping, NULL);
        tt__rpc_attach(rpc, dist, dist_free);
        tt__rpc_on_lost(rpc, on_lost_worker, dist);
    }
    pthread_mutex_unlock(&making);
    return dist ? dist : tt__fail_null(TT_ERR_MEMORY, "no memory for distributed autograd");
}

/* ---- finding and meeting */

/* Find a context, and take a reference. dist->lock is held. */
static tt__dist_context *look_up(tt__dist *dist, uint64_t id) {
    for (tt__dist_context *c = *context_place(dist, id); c; c = c->next)
        if (c->id == id) {
            c->refs++;
            return c;
        }
    return NULL;
}

tt__dist_context *tt__dist_find(tt__dist *dist, const char *who, int64_t context) {
    pthread_mutex_lock(&dist->lock);
    tt__dist_context *found = look_up(dist, (uint64_t)context);
    pthread_mutex_unlock(&dist->lock);
    return found ? found
                 : tt__fail_null(TT_ERR_NOT_FOUND,
                                 "%s: worker %s knows no context %" PRId64 ": it has ended, or nothing was called here "
                                 "in it",
                                 who, tt_rpc_name(dist->rpc), context);
}

/* Is there room for one more context of this owner? */
static bool room_for_owner(tt__dist *dist, int owner) {
    if (owner >= dist->known_room) {
        int room = 2 * owner + 8;
        uint32_t *known = realloc(dist->known, (size_t)room * sizeof *known);
        if (!known)
            return false;
        memset(known + dist->known_room, 0, (size_t)(room - dist->known_room) * sizeof *known);
        dist->known = known;
        dist->known_room = room;
    }
    return dist->known[owner] < TT__DIST_KNOWN_MAX;
}

/* Add a context, with two references: the table's and the caller's. dist->lock is held. NULL: no memory, or the owner
 * has too many. */
static tt__dist_context *add_context(tt__dist *dist, uint64_t id) {
    tt__dist_context *context = room_for_owner(dist, tt__dist_owner(id)) ? calloc(1, sizeof *context) : NULL;
    tt__dist_context **place = context_place(dist, id);
    if (!context)
        return NULL;
    *context = (tt__dist_context){.next = *place, .refs = 2, .dist = dist, .id = id};
    pthread_mutex_init(&context->lock, NULL);
    dist->known[tt__dist_owner(id)]++;
    return *place = context;
}

/* The owner has answered whether the context lives. */
static void on_touched(tt_future *future, void *user) {
    tt__dist_context *context = user;
    const tt_rpc_value *lives = tt_future_value(future);
    if (!lives || lives->kind != TT_RPC_BOOL || !lives->boolean) {
        tt__fail(TT_ERR_STATE, "the context has ended");
        end_context(context);
    }
    tt_clear_error();
    tt__dist_unref(context);
}

static void touch_owner(tt__dist_context *context) {
    tt__dist *dist = context->dist;
    pthread_mutex_lock(&dist->lock);
    context->refs++;
    pthread_mutex_unlock(&dist->lock);
    if (tt__dist_call(dist, tt__dist_owner(context->id), "tutti.autograd.touch",
                      TT_RPC_ARGS(tt_rpc_int((int64_t)context->id)), on_touched, context)) {
        end_context(context);
        tt_clear_error();
        tt__dist_unref(context);
    }
}

tt__dist_context *tt__dist_meet(tt__dist *dist, uint64_t context) {
    pthread_mutex_lock(&dist->lock);
    tt__dist_context *found = look_up(dist, context);
    bool meets = !found && tt__dist_owner(context) != tt_rpc_id(dist->rpc) && tt__dist_owner(context) < OWNERS_MAX;
    if (meets)
        found = add_context(dist, context);
    pthread_mutex_unlock(&dist->lock);
    if (meets && found)
        touch_owner(found);
    return found;
}

tt_status tt__serve_touch(tt_rpc_call *call) {
    tt__dist *dist = tt__dist_of(tt_rpc_of_call(call));
    tt__dist_context *context = dist ? tt__dist_find(dist, "touch", tt_rpc_arg_int(call, 0)) : NULL;
    tt_clear_error();
    if (!context)
        return tt_rpc_return(call, tt_rpc_bool(false));
    pthread_mutex_lock(&context->lock);
    bool kept = !context->ended &&
                tt__dist_room(&context->users, context->user_count, &context->user_room, sizeof *context->users);
    for (int64_t i = 0; kept && i < context->user_count; i++)
        if (context->users[i] == tt_rpc_caller(call))
            context->users[i] = context->users[--context->user_count];
    if (kept)
        context->users[context->user_count++] = tt_rpc_caller(call);
    pthread_mutex_unlock(&context->lock);
    tt__dist_unref(context);
    return tt_rpc_return(call, tt_rpc_bool(kept));
}

tt_status tt__serve_release(tt_rpc_call *call) {
    int64_t id = tt_rpc_arg_int(call, 0);
    tt__dist *dist = tt__dist_of(tt_rpc_of_call(call));
    if (!dist)
        return tt_last_status();
    if (tt__dist_owner((uint64_t)id) != tt_rpc_caller(call))
        return tt__fail(TT_ERR_INVALID, "context %" PRId64 " is worker %d's to end", id, tt__dist_owner((uint64_t)id));
    tt__dist_context *context = tt__dist_find(dist, "release", id);
    if (context) {
        tt__fail(TT_ERR_STATE, "the context has ended");
        end_context(context);
        tt__dist_unref(context);
    }
    tt_clear_error();
    return TT_OK;
}

/* ---- beginning and ending */

/* Begin a context with a new id. The id can't be guessed, so only workers that were told it can take part. */
static tt__dist_context *begin_context(tt__dist *dist, uint64_t drawn) {
    uint64_t owner = (uint64_t)tt_rpc_id(dist->rpc) << TT__DIST_ID_BITS, mask = (UINT64_C(1) << TT__DIST_ID_BITS) - 1;
    pthread_mutex_lock(&dist->lock);
    uint64_t id;
    tt__dist_context *other;
    do {
        id = owner | (drawn++ & mask);
        other = look_up(dist, id);
        if (other)
            other->refs--; /* the table keeps its reference */
    } while (other || id == owner);
    tt__dist_context *made = add_context(dist, id);
    pthread_mutex_unlock(&dist->lock);
    return made;
}

tt_status tt__dist_begin(int64_t *context, tt_rpc *rpc) {
    static const char who[] = "tt_dist_autograd_begin";
    tt__dist *dist = context ? tt__dist_of(rpc) : tt__fail_null(TT_ERR_INVALID, "%s: `context` is NULL", who);
    if (!dist)
        return tt_last_status();
    if (current_context)
        return tt__fail(TT_ERR_STATE, "%s: the thread is in context %" PRId64 " already; tt_dist_autograd_end() it",
                        who, tt_dist_autograd_current());
    uint64_t drawn = 0;
    TT__TRY(tt__random_bytes(&drawn, sizeof drawn));
    tt__dist_context *made = begin_context(dist, drawn);
    if (!made)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a context", who);
    *context = (int64_t)made->id;
    current_context = made->id;
    tt__dist_unref(made);
    return TT_OK;
}

/* Tell all workers that have an entry that the context has ended, without waiting. Those that can't be told are
 * lost. */
static void tell_users(tt__dist_context *context) {
    for (int64_t i = 0; i < context->user_count; i++)
        if (context->users[i] != tt_rpc_id(context->dist->rpc))
            (void)!tt__dist_call(context->dist, context->users[i], "tutti.autograd.release",
                                 TT_RPC_ARGS(tt_rpc_int((int64_t)context->id)), NULL, NULL);
}

tt_status tt_dist_autograd_end(tt_rpc *rpc, int64_t context) {
    static const char who[] = "tt_dist_autograd_end";
    tt__dist *dist = tt__dist_of(rpc);
    tt__dist_context *found = dist ? tt__dist_find(dist, who, context) : NULL;
    if (!found)
        return tt_last_status();
    int owner = tt__dist_owner(found->id);
    tt_status status = owner == tt_rpc_id(rpc) ? TT_OK
                                               : tt__fail(TT_ERR_STATE,
                                                          "%s: context %" PRId64 " ends where it was "
                                                          "begun: on worker %d",
                                                          who, context, owner);
    if (!status) {
        tt__saved_error before; /* perhaps of a failed pass, whose context ends, too */
        tt__error_save(&before);
        if (current_context == (uint64_t)context)
            current_context = 0;
        tt__fail(TT_ERR_STATE, "context %" PRId64 " has ended", context);
        end_context(found);
        tell_users(found);
        tt__error_restore(&before);
    }
    tt__dist_unref(found);
    return status;
}

int64_t tt_dist_autograd_context_count(tt_rpc *rpc) {
    tt__dist *dist = rpc ? tt__dist_of(rpc) : NULL;
    int64_t count = 0;
    if (!dist)
        return 0;
    pthread_mutex_lock(&dist->lock);
    for (const tt__dist_context *c = next_context(dist, NULL); c; c = next_context(dist, c))
        count++;
    pthread_mutex_unlock(&dist->lock);
    return count;
}

/* ---- gradients */

static tt_status add_to_grad(tt_tensor **to, tt_tensor *gradient) {
    if (tt__tensor_is_exclusive(*to))
        return tt__add_out("tt_dist_autograd_backward", *to, *to, gradient);
    int scope = tt_scope_begin();
    tt_tensor *sum = tt__empty_like("tt_dist_autograd_backward", *to);
    tt_status status = sum ? tt__add_out("tt_dist_autograd_backward", sum, *to, gradient) : tt_last_status();
    if (!status) {
        tt__tensor_unref(*to);
        *to = tt__tensor_ref(sum);
    }
    tt_scope_end(scope);
    return status;
}

tt_status tt__dist_add_grad(tt__dist_context *context, tt_tensor *leaf, tt_tensor *gradient) {
    tt__dist_grads *g = &context->grads;
    int64_t at = tt__pointer_map_get(&g->at, leaf), room = g->room;
    if (at >= 0)
        return add_to_grad(&g->grads[at], gradient);
    if (!tt__dist_room(&g->leaves, g->count, &room, sizeof *g->leaves) ||
        !tt__dist_room(&g->grads, g->count, &g->room, sizeof *g->grads))
        return TT_ERR_MEMORY;
    if (!tt__pointer_map_put(&g->at, leaf, g->count))
        return tt__fail(TT_ERR_MEMORY, "no memory for a list of gradients");
    g->leaves[g->count] = tt__tensor_ref(leaf);
    g->grads[g->count++] = tt__tensor_ref(gradient);
    return TT_OK;
}

tt_tensor *tt_dist_autograd_grad(tt_rpc *rpc, int64_t context, const tt_tensor *leaf) {
    tt__dist *dist = tt__dist_of(rpc);
    tt__dist_context *found = dist ? tt__dist_find(dist, "tt_dist_autograd_grad", context) : NULL;
    if (!found)
        return NULL;
    pthread_mutex_lock(&found->lock);
    int64_t at = leaf ? tt__pointer_map_get(&found->grads.at, leaf) : -1;
    tt_tensor *grad = at < 0 ? NULL : found->grads.grads[at];
    pthread_mutex_unlock(&found->lock);
    tt__dist_unref(found);
    return grad;
}
