/* tt_rpc_init() and tt_rpc_shutdown(), and the public functions for workers, calls and references. */
#include "base/args.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "comm/group.h"
#include "comm/in_callback.h"
#include "rpc/calls/calling.h"
#include "rpc/calls/sending.h"
#include "rpc/functions/served_call.h"
#include "rpc/functions/serving.h"
#include "rpc/leaving.h"
#include "rpc/references/references.h"
#include "rpc/rpc_state.h"
#include "rpc/threads/cycles.h"
#include "rpc/threads/waiting.h"
#include "rpc/values/landing_memory.h"
#include "rpc/values/packets_memory.h"
#include "rpc/values/rpc_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 16, MAX_THREADS = 4096, RETURN_MS = 1000 };

/* ---- beginning */

static tt_status check_init(const tt_rpc_init_args *args) {
    if (!args->out)
        return tt__fail(TT_ERR_INVALID, "tt_rpc_init: `out` is NULL");
    *args->out = NULL;
    TT__TRY(tt__functions_close());
    TT__TRY(tt__rpc_check_worker_name(args->name));
    TT__TRY(tt__may_wait("tt_rpc_init"));
    if (!args->group == !args->store)
        return tt__fail(TT_ERR_INVALID,
                        "tt_rpc_init: expected either .group, whose ranks are the workers, or .store, "
                        "through which they meet; got %s",
                        args->group ? "both" : "neither");
    if (args->threads < 0 || args->max_threads < 0 || args->timeout_ms < 0)
        return tt__fail(TT_ERR_INVALID,
                        "tt_rpc_init: .threads, .max_threads and .timeout_ms are 0 or more, got %d, %d "
                        "and %lld",
                        args->threads, args->max_threads, (long long)args->timeout_ms);
    return TT_OK;
}

static tt_rpc *make_rpc(tt__rpc_network *network, const tt_rpc_init_args *args) {
    tt_rpc *rpc = calloc(1, sizeof *rpc);
    if (!rpc || !(rpc->reserve = malloc(sizeof *rpc->reserve + TT__PACKET_MAX)) ||
        !(rpc->peers = calloc((size_t)network->workers, sizeof(tt__rpc_peer *)))) {
        if (rpc)
            free(rpc->reserve);
        free(rpc);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a worker");
    }
    rpc->reserve->room = TT__PACKET_MAX;
    rpc->network = network;
    rpc->id = network->self;
    rpc->peer_room = network->workers;
    rpc->forks = tt__forks;
    snprintf(rpc->name, sizeof rpc->name, "%s", args->name);
    rpc->threads = args->threads ? args->threads : THREADS;
    rpc->max_threads = args->max_threads ? args->max_threads : MAX_THREADS;
    rpc->timeout_ms = args->timeout_ms;
    rpc->max_memory = args->max_memory ? args->max_memory : tt__rpc_machine_memory() / 4;
    rpc->due.end = &rpc->due.first;
    rpc->held.end = &rpc->held.first;
    rpc->slow.end = &rpc->slow.first;
    rpc->aside.end = &rpc->aside.first;
    tt__cond_init(&rpc->changed);
    tt__cond_init(&rpc->keeper_wanted);
    pthread_mutex_init(&rpc->keeper_lock, NULL);
    tt__pool_init(rpc);
    tt__rpc_driver_init(rpc);
    return rpc;
}

/* Make entries, with names, for the workers that are known from the beginning. */
static tt_status name_peers(tt_rpc *rpc) {
    tt__rpc_network *network = rpc->network;
    for (int id = network->ops->next(network, -1); id >= 0; id = network->ops->next(network, id)) {
        tt__rpc_peer *peer = tt__rpc_peer_of(rpc, id);
        if (!peer)
            return tt_last_status();
        tt_ignore(network->ops->name_of(network, id, peer->name));
    }
    return tt__rpc_peer_of(rpc, rpc->id) ? TT_OK : tt_last_status();
}

static void free_peers(tt_rpc *rpc) {
    for (int id = 0; id < rpc->peer_end; id++)
        if (rpc->peers[id]) {
            while (rpc->peers[id]->waiting) {
                tt__rpc_waiting *waiting = rpc->peers[id]->waiting;
                rpc->peers[id]->waiting = waiting->next;
                free(waiting);
            }
            free(rpc->peers[id]->why);
            free(rpc->peers[id]->askers);
            free(rpc->peers[id]);
        }
    free(rpc->peers);
}

static void free_rpc(tt_rpc *rpc, bool quietly) {
    for (uint32_t i = 0; i < rpc->out_room; i++)
        free(rpc->outs[i]);
    free(rpc->outs);
    free(rpc->made);
    free(rpc->reserve);
    tt__served_table_free(rpc);
    tt__own_recorder_close(&rpc->own_recorder);
    while (rpc->free_packets) {
        tt__rpc_packet *packet = rpc->free_packets;
        rpc->free_packets = packet->next;
        free(packet);
    }
    free_peers(rpc);
    if (!quietly) { /* not in a forked child: threads of the parent may have waited on these */
        pthread_cond_destroy(&rpc->changed);
        pthread_cond_destroy(&rpc->keeper_wanted);
        pthread_mutex_destroy(&rpc->keeper_lock);
        pthread_cond_destroy(&rpc->idle);
        pthread_cond_destroy(&rpc->pool_ended);
    }
    free(rpc);
}

/* Wait until all workers of a group take packets: earlier ones would be dropped. */
static tt_status all_take_packets(const tt_rpc_init_args *args) {
    return args->group ? tt_barrier_with(TT_ARGS(tt_barrier_args, args->group, .timeout_ms = args->join_timeout_ms,
                                                 .file = "tt_rpc_init"))
                       : TT_OK;
}

static tt_status begin_rpc(tt_rpc *rpc, const tt_rpc_init_args *args) {
    tt__rpc_lock(rpc);
    tt_status status = name_peers(rpc);
    if (!status) {
        tt__recording_begin(rpc);
        tt__dispatch_begin(rpc);
    }
    tt__rpc_unlock(rpc);
    if (!status)
        status = tt__rpc_keeper_start(rpc);
    if (!status)
        status = all_take_packets(args);
    if (status)
        return status;
    tt__rpc_lock(rpc);
    tt__rpc_pool_call(rpc); /* so that one thread moves messages */
    status = *rpc->pool_why ? tt__fail(TT_ERR_SYSTEM, "tt_rpc_init: %s", rpc->pool_why) : TT_OK;
    tt__rpc_unlock(rpc);
    return status;
}

/* Stop all threads, leave the network, and free the worker. No call is under way. */
static void end_rpc(tt_rpc *rpc) {
    tt__rpc_lock(rpc);
    rpc->network->ops->progress(rpc->network); /* send what is left */
    tt__messages_take_packets(rpc->network->messages, NULL, NULL);
    tt__rpc_unlock(rpc);
    tt__rpc_pool_end(rpc);
    tt__rpc_keeper_end(rpc);
    if (rpc->attached_end)
        rpc->attached_end(rpc->attached);
    tt__rpc_lock(rpc);
    tt__rrefs_end(rpc);
    tt__cycles_drop(rpc);
    for (tt__rpc_due *due; (due = tt__rpc_list_take(&rpc->due));) {
        tt__rpc_unlock(rpc);
        due->run(rpc, due);
        tt__rpc_lock(rpc);
    }
    tt__recording_end(rpc);
    tt__rpc_unlock(rpc);
    rpc->network->ops->close(rpc->network, false);
    free_rpc(rpc, false);
}

tt_status tt__rpc_begin(tt_rpc **out, tt__rpc_network *network, const tt_rpc_init_args *args) {
    tt__saved_error why;
    tt__watch_forks();
    tt__rrefs_begin();
    tt_rpc *rpc = make_rpc(network, args);
    if (rpc)
        tt__rpc_note_live(rpc); /* other workers may call functions at once, and these use the worker */
    tt_status status = rpc ? begin_rpc(rpc, args) : tt_last_status();
    if (!status) {
        *out = rpc;
        return TT_OK;
    }
    tt__error_save_reason(&why);
    if (rpc) {
        tt__rpc_note_dead(rpc);
        end_rpc(rpc);
    } else {
        network->ops->close(network, false);
    }
    tt__error_restore_reason(&why);
    return status;
}

tt_status tt_rpc_init_with(const tt_rpc_init_args *given, size_t size) {
    tt_rpc_init_args args;
    tt__rpc_network *network;
    TT__ARGS_COPY(args, given, size);
    TT__TRY(check_init(&args));
    if (args.group)
        TT__TRY(tt__group_usable(args.group));
    TT__TRY(args.group ? tt__rpc_network_of_group(&network, &args) : tt__rpc_network_of_store(&network, &args));
    return tt__rpc_begin(args.out, network, &args);
}

/* ---- the end */

static bool calls_are_over(void *arg) {
    const tt_rpc *rpc = arg;
    return !rpc->counters.calls && !rpc->counters.serving && !rpc->due.first;
}

/* Fail this worker's calls that are left, and stop replies. Then wait for the functions that run, until `deadline_ms`
 * (0: none). Returns whether all have returned. */
static bool stop_calls(tt_rpc *rpc, int64_t deadline_ms) {
    char why[TT__RPC_NAME_SIZE + 40];
    snprintf(why, sizeof why, "worker %s was shut down", rpc->name);
    rpc->ended = TT_ERR_STATE;
    tt__calls_end(rpc, why);
    tt__serve_end(rpc);
    return tt__rpc_wait_for(rpc, calls_are_over, rpc, deadline_ms);
}

/* Fail because a function does not return. The worker is not freed, as the function may use it; calls are refused. */
static tt_status fail_running(tt_rpc *rpc, int64_t since_ms) {
    char running[400];
    if (!tt__serve_list_running(rpc, running, sizeof running))
        snprintf(running, sizeof running, "a callback of a future");
    return tt__fail(TT_ERR_TIMEOUT,
                    "tt_rpc_shutdown: worker %s waited %lld ms for functions that still run: %s; the memory and "
                    "threads of the worker stay until the process ends",
                    rpc->name, (long long)(tt__now_ms() - since_ms), running);
}

/* Free the copy of a worker in a forked child. Its threads and links are the parent's. */
static void drop_copy(tt_rpc *rpc) {
    tt__rpc_note_dead(rpc);
    rpc->network->ops->close(rpc->network, true);
    free_rpc(rpc, true);
}

tt_status tt_rpc_shutdown_with(const tt_rpc_shutdown_args *given, size_t size) {
    tt_rpc_shutdown_args args;
    tt__saved_error why;
    TT__ARGS_COPY(args, given, size);
    tt_rpc *rpc = args.rpc;
    if (!rpc)
        return TT_OK;
    if (!tt__rpc_is_live(rpc))
        return tt__fail(TT_ERR_STATE, "tt_rpc_shutdown: the worker (tt_rpc) was shut down already");
    TT__TRY(tt__may_wait("tt_rpc_shutdown"));
    if (tt__rpc_is_thread(rpc) && rpc->forks == tt__forks)
        return tt__fail(TT_ERR_STATE,
                        "tt_rpc_shutdown: a function that worker %s runs can't shut it down: expected the "
                        "program to, once the function has returned",
                        rpc->name);
    if (rpc->forks != tt__forks) {
        drop_copy(rpc);
        return TT_OK;
    }
    int64_t deadline_ms = args.timeout_ms > 0 ? tt__deadline_ms(args.timeout_ms) : 0;
    int64_t since_ms = tt__now_ms();
    tt__rpc_lock(rpc);
    if (rpc->leaving) {
        tt__rpc_unlock(rpc);
        return tt__fail(TT_ERR_STATE, "tt_rpc_shutdown: another thread shuts worker %s down already", rpc->name);
    }
    rpc->leaving = true;
    tt_status status = TT_OK;
    if (!args.at_once)
        status =
            rpc->network->comes_and_goes ? tt__leave_alone(rpc, deadline_ms) : tt__leave_together(rpc, deadline_ms);
    tt__error_save_reason(&why);
    if (deadline_ms || args.at_once) /* functions get time to return */
        deadline_ms = deadline_ms > tt__now_ms() + RETURN_MS ? deadline_ms : tt__deadline_ms(RETURN_MS);
    if (!stop_calls(rpc, deadline_ms)) {
        status = fail_running(rpc, since_ms);
        tt__rpc_note_dead(rpc);
        tt__rpc_unlock(rpc);
        return status;
    }
    tt__rpc_unlock(rpc);
    tt__rpc_note_dead(rpc);
    end_rpc(rpc);
    tt__landing_release_kept();
    tt__error_restore_reason(&why);
    return status;
}

void tt__rpc_attach(tt_rpc *rpc, void *what, void (*end)(void *what)) {
    rpc->attached = what;
    rpc->attached_end = end;
}

void *tt__rpc_attached(const tt_rpc *rpc) { return rpc->attached; }

void tt__rpc_on_lost(tt_rpc *rpc, void (*fn)(tt_rpc *rpc, int id, const char *why, void *user), void *user) {
    tt__rpc_lock(rpc);
    rpc->on_lost = fn;
    rpc->on_lost_user = user;
    tt__rpc_unlock(rpc);
}

/* ---- workers */

int tt_rpc_id(const tt_rpc *rpc) { return rpc ? rpc->id : -1; }

const char *tt_rpc_name(const tt_rpc *rpc) { return rpc ? rpc->name : ""; }

static tt_status fail_unknown_worker(tt_rpc *rpc, const char *name) {
    char known[600] = "";
    size_t n = 0;
    tt__rpc_network *network = rpc->network;
    for (int id = network->ops->next(network, -1); id >= 0 && n < sizeof known - 2 * TT__RPC_NAME_SIZE;
         id = network->ops->next(network, id)) {
        char one[TT__RPC_NAME_SIZE];
        if (!network->ops->name_of(network, id, one))
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", one);
    }
    return tt__fail(TT_ERR_NOT_FOUND, "there is no worker %.130s%s; %s knows %s", name,
                    network->comes_and_goes ? " in the store: it has not joined yet, or has left" : "", rpc->name,
                    known);
}

static tt_status find_worker(tt_rpc *rpc, const char *name, int *id) {
    tt__rpc_lock(rpc);
    tt_status status = rpc->network->ops->find(rpc->network, name, id);
    if (status)
        status = fail_unknown_worker(rpc, name);
    tt__rpc_peer *peer = status ? NULL : tt__rpc_peer_of(rpc, *id);
    if (peer && !*peer->name)
        snprintf(peer->name, sizeof peer->name, "%s", name);
    tt__rpc_unlock(rpc);
    return status;
}

tt_status tt_rpc_find_worker(tt_rpc *rpc, const char *name, int *id) {
    TT__TRY(tt__rpc_usable(rpc, "tt_rpc_find_worker"));
    if (!name || !id)
        return tt__fail_argument("tt_rpc_find_worker: expected a name and a place, got NULL");
    return find_worker(rpc, name, id);
}

tt_status tt_rpc_worker_name(tt_rpc *rpc, int id, char *name, size_t size) {
    char found[TT__RPC_NAME_SIZE];
    TT__TRY(tt__rpc_usable(rpc, "tt_rpc_worker_name"));
    if (!name || !size)
        return tt__fail_argument("tt_rpc_worker_name: expected a place for the name, got NULL");
    tt__rpc_lock(rpc);
    tt_status status = rpc->network->ops->name_of(rpc->network, id, found);
    tt__rpc_unlock(rpc);
    if (status)
        return tt__fail(TT_ERR_NOT_FOUND, "there is no worker with the id %d", id);
    snprintf(name, size, "%s", found);
    return TT_OK;
}

int64_t tt_rpc_workers(tt_rpc *rpc, int *ids, int64_t room) {
    int64_t count = 0;
    if (tt__rpc_usable(rpc, "tt_rpc_workers"))
        return 0;
    tt__rpc_network *network = rpc->network;
    tt__rpc_lock(rpc);
    for (int id = network->ops->next(network, -1); id >= 0; id = network->ops->next(network, id)) {
        if (rpc->peers[id] && rpc->peers[id]->lost)
            continue;
        if (ids && count < room)
            ids[count] = id;
        count++;
    }
    tt__rpc_unlock(rpc);
    return count;
}

tt_status tt_rpc_get_counts(tt_rpc *rpc, tt_rpc_counts *out) {
    TT__TRY(tt__rpc_usable(rpc, "tt_rpc_get_counts"));
    if (!out)
        return tt__fail_argument("tt_rpc_get_counts: the place is NULL");
    tt__rpc_lock(rpc);
    const tt__rpc_counters *now = &rpc->counters;
    *out = (tt_rpc_counts){.threads = rpc->pool_threads,
                           .idle = rpc->pool_idle,
                           .calls = now->calls,
                           .calls_made = now->calls_made,
                           .serving = now->serving,
                           .served = now->served,
                           .owned = now->owned,
                           .held = now->held,
                           .bytes = (int64_t)now->bytes};
    tt__rpc_unlock(rpc);
    return TT_OK;
}

/* ---- calls */

/* Make a request of the arguments of a public function `what`. `first`: an argument before the others; or NULL. */
static tt_status make_request(const tt_rpc_sync_args *args, const char *what, const tt_rpc_value *first,
                              tt__rpc_request *out) {
    *out = (tt__rpc_request){.kind = TT__RPC_CALL,
                             .to = args->to_id,
                             .function = args->function,
                             .first = first,
                             .args = args->args,
                             .timeout_ms = args->timeout_ms};
    TT__TRY(tt__rpc_usable(args->rpc, what));
    if (!args->function || !*args->function || strlen(args->function) >= TT__RPC_FUNCTION_NAME)
        return tt__fail(TT_ERR_INVALID, "%s: expected the name of a function, got \"%.80s\"", what,
                        args->function ? args->function : "");
    if (args->args.count < 0 || (args->args.count && !args->args.values))
        return tt__fail(TT_ERR_INVALID, "%s: .args are %lld values at NULL", what, (long long)args->args.count);
    return args->to ? find_worker(args->rpc, args->to, &out->to) : TT_OK;
}

/* Check the arguments against the signature of this worker's own function of that name, if it has one. */
static tt_status check_request(tt__rpc_request *request, const tt_rpc_value *first) {
    const tt__rpc_function *function = tt__function_find(request->function, strlen(request->function));
    tt_rpc_value few[8], *all = few;
    int64_t count = request->args.count + (first != NULL);
    request->known = function;
    if (!function)
        return TT_OK; /* the callee lists its functions in its error */
    if (!first)
        return tt__signature_check_args(&function->signature, function->name, function->text, request->args.values,
                                        request->args.count);
    if (count > 8 && !(all = calloc((size_t)count, sizeof *all)))
        return tt__fail(TT_ERR_MEMORY, "no memory for %lld arguments", (long long)count);
    all[0] = *first;
    if (request->args.count)
        memcpy(all + 1, request->args.values, (size_t)request->args.count * sizeof *all);
    tt_status status = tt__signature_check_args(&function->signature, function->name, function->text, all, count);
    if (all != few)
        free(all);
    return status;
}

/* Wait for a call of this thread, and take its value. */
static tt_status finish_sync(tt_future *future, tt_rpc_value *result) {
    tt_status status = tt_future_wait(future, 0);
    if (!status && result) {
        *result = future->value; /* nobody else has the future */
        tt__value_take_back(result);
        future->value = tt_rpc_none();
    }
    tt_future_free(future);
    return status;
}

static tt_status call_sync(const tt_rpc_sync_args *args, const char *what, const tt_rpc_value *first) {
    tt__rpc_request request;
    tt_future *future;
    if (args->result)
        *args->result = tt_rpc_none();
    TT__TRY(tt__may_wait(what));
    TT__TRY(make_request(args, what, first, &request));
    TT__TRY(check_request(&request, first));
    TT__TRY(tt__call_begin(args->rpc, &request, &future, NULL));
    return finish_sync(future, args->result);
}

static tt_status call_async(tt_future **out, const tt_rpc_sync_args *args, const char *what,
                            const tt_rpc_value *first) {
    tt__rpc_request request;
    if (!out)
        return tt__fail_argument("%s: the place for the future is NULL", what);
    *out = NULL;
    TT__TRY(make_request(args, what, first, &request));
    TT__TRY(check_request(&request, first));
    return tt__call_begin(args->rpc, &request, out, NULL);
}

static tt_status call_remote(tt_rref **out, const tt_rpc_sync_args *args, const char *what, const tt_rpc_value *first) {
    tt__rpc_request request;
    if (!out)
        return tt__fail_argument("%s: the place for the reference is NULL", what);
    *out = NULL;
    TT__TRY(make_request(args, what, first, &request));
    TT__TRY(check_request(&request, first));
    request.kind = TT__RPC_KEEP;
    return tt__call_begin(args->rpc, &request, NULL, out);
}

tt_status tt_rpc_sync_with(const tt_rpc_sync_args *given, size_t size) {
    tt_rpc_sync_args args;
    TT__ARGS_COPY(args, given, size);
    return call_sync(&args, "tt_rpc_sync", NULL);
}

tt_status tt_rpc_async_with(tt_future **out, const tt_rpc_sync_args *given, size_t size) {
    tt_rpc_sync_args args;
    TT__ARGS_COPY(args, given, size);
    return call_async(out, &args, "tt_rpc_async", NULL);
}

tt_status tt_rpc_remote_with(tt_rref **out, const tt_rpc_sync_args *given, size_t size) {
    tt_rpc_sync_args args;
    TT__ARGS_COPY(args, given, size);
    return call_remote(out, &args, "tt_rpc_remote", NULL);
}

/* ---- references */

/* Copy the arguments of a call, and set the owner of the reference as its callee. */
static tt_status aim_at_owner(tt_rref *rref, tt_rpc_sync_args *args, const tt_rpc_sync_args *given, size_t size,
                              const char *what) {
    tt__args_copy(args, sizeof *args, given, size);
    if (!rref)
        return tt__fail_argument("%s: the reference is NULL", what);
    if (!rref->rpc)
        return tt__fail(TT_ERR_STATE, "%s: the worker that had the reference was shut down", what);
    args->rpc = rref->rpc;
    args->to = NULL;
    args->to_id = (int)rref->ref.owner;
    return TT_OK;
}

tt_status tt_rref_sync_with(tt_rref *rref, const tt_rpc_sync_args *given, size_t size) {
    tt_rpc_sync_args args;
    tt_rpc_value first = tt_rpc_rref(rref);
    TT__TRY(aim_at_owner(rref, &args, given, size, "tt_rref_sync"));
    return call_sync(&args, "tt_rref_sync", &first);
}

tt_status tt_rref_async_with(tt_future **out, tt_rref *rref, const tt_rpc_sync_args *given, size_t size) {
    tt_rpc_sync_args args;
    tt_rpc_value first = tt_rpc_rref(rref);
    TT__TRY(aim_at_owner(rref, &args, given, size, "tt_rref_async"));
    return call_async(out, &args, "tt_rref_async", &first);
}

tt_status tt_rref_remote_with(tt_rref **out, tt_rref *rref, const tt_rpc_sync_args *given, size_t size) {
    tt_rpc_sync_args args;
    tt_rpc_value first = tt_rpc_rref(rref);
    TT__TRY(aim_at_owner(rref, &args, given, size, "tt_rref_remote"));
    return call_remote(out, &args, "tt_rref_remote", &first);
}

tt_status tt_rref_get(tt_rref *rref, tt_rpc_value *out, int64_t timeout_ms) {
    tt_future *future;
    if (!rref || !out)
        return tt__fail_argument("tt_rref_get: expected a reference and a place, got NULL");
    *out = tt_rpc_none();
    TT__TRY(tt__may_wait("tt_rref_get"));
    if (rref->value) {
        TT__TRY(tt_future_wait(rref->value, timeout_ms));
        return tt_rpc_value_copy(out, tt_future_value(rref->value));
    }
    if (!rref->rpc)
        return tt__fail(TT_ERR_STATE, "tt_rref_get: the worker that had the reference was shut down");
    TT__TRY(tt__rpc_usable(rref->rpc, "tt_rref_get"));
    const tt__rpc_request request = {
        .kind = TT__RPC_FETCH, .to = (int)rref->ref.owner, .fetched = rref, .timeout_ms = timeout_ms};
    TT__TRY(tt__call_begin(rref->rpc, &request, &future, NULL));
    return finish_sync(future, out);
}
