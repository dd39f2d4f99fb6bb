/* The network of workers that are the ranks of a group. It uses the links, the shared memory and the failure detection
 * of the group's world. The worker makes a group of its own, of the same ranks: so the program may destroy its group,
 * and the world shows which ranks leave. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/native/native.h"
#include "comm/shared/doorbell.h"
#include "comm/watch/verdicts.h"
#include "rpc/workers/network.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What each rank tells the others when they join. */
typedef struct worker_card {
    char name[TT__RPC_NAME_SIZE];
    uint64_t functions;
    uint64_t functions_bytes;
    int64_t any_functions;
} worker_card;

enum { FUNCTIONS_MAX = 64 << 20 /* bytes of their names and signatures */ };

typedef struct group_network {
    tt__rpc_network base;
    tt_group *group; /* the worker's own */
    tt__world *world;
    worker_card *cards; /* (size) */
    bool joined;
} group_network;

static group_network *of(tt__rpc_network *network) { return (group_network *)(void *)network; }

/* ---- operations */

static void group_unlock(tt__rpc_network *network) { tt__world_unlock(of(network)->world); }

static bool group_progress(tt__rpc_network *network) {
    tt__world *world = of(network)->world;
    bool any = tt__messages_progress(world->messages);
    if (any)
        world->progress_count++;
    if (tt__world_has_works(world))
        tt__world_progress(world);
    return any;
}

/* If this rank is alone on its host, sleep in the epoll that watches the links. Else sleep on the doorbell, which the
 * other ranks of the host ring, and the thread of the links when it has received something. */
static void group_sleep(tt__rpc_network *network, int64_t ms) {
    tt__world *world = of(network)->world;
    if (world->threaded && tt__world_local_ranks(world, world->size) == 1) {
        tt__messages_wait(world->messages, ms);
        return;
    }
    uint32_t bell = tt__doorbell_count(tt__world_control(world));
    if (world->threaded)
        tt__messages_leave(world->messages);
    tt__sleep_begin(world);
    if (!group_progress(network)) {
        tt__world_unlock(world);
        tt__doorbell_sleep(tt__world_control(world), bell, ms < 1000 ? ms : 999);
        tt__world_lock(world);
    }
    tt__sleep_end(world);
}

static void group_wake(tt__rpc_network *network) { tt__world_wake(of(network)->world); }

static tt__rpc_reach group_reach(tt__rpc_network *network, int id) {
    (void)network;
    (void)id;
    return TT__RPC_REACHED;
}

/* A rank may have left because another one was lost, which this worker had no reason to notice. The error names
 * both. */
static tt_status group_check(tt__rpc_network *network, int id) {
    const tt_group *group = of(network)->group;
    char why[TT__ERROR_TEXT_SIZE];
    if (!tt__check_gone(group, id, false, ""))
        return TT_OK;
    snprintf(why, sizeof why, "%s", tt_last_error());
    if (tt__check_gone(group, id, true, ""))
        return tt_last_status();
    for (int r = 0; r < group->size; r++)
        if (r != id && r != group->rank && tt__check_gone(group, r, true, "")) {
            char first[TT__ERROR_TEXT_SIZE];
            snprintf(first, sizeof first, "%s", tt_last_error());
            return tt__fail(TT_ERR_PEER, "%s, after another was lost: %s", why, first);
        }
    return tt__fail(TT_ERR_PEER, "%s", why);
}

static void group_checked(tt__rpc_network *network) { of(network)->world->last_check_ms = tt__now_ms(); }

static tt_status group_find(tt__rpc_network *network, const char *name, int *id) {
    for (int r = 0; r < of(network)->world->size; r++)
        if (!strcmp(of(network)->cards[r].name, name)) {
            *id = r;
            return TT_OK;
        }
    return TT_ERR_NOT_FOUND;
}

static tt_status group_name_of(tt__rpc_network *network, int id, char name[TT__RPC_NAME_SIZE]) {
    if (id < 0 || id >= of(network)->world->size)
        return TT_ERR_NOT_FOUND;
    snprintf(name, TT__RPC_NAME_SIZE, "%s", of(network)->cards[id].name);
    return TT_OK;
}

static int group_next(tt__rpc_network *network, int after) {
    return after + 1 < of(network)->world->size ? after + 1 : -1;
}

static void group_close(tt__rpc_network *network, bool quietly) {
    group_network *net = of(network);
    (void)quietly; /* the group knows of forks itself */
    net->world->has_rpc &= !net->joined;
    tt_destroy_process_group(net->group);
    free(net->cards);
    free(net);
}

static const tt__rpc_network_ops group_ops = {.unlock = group_unlock,
                                              .progress = group_progress,
                                              .sleep = group_sleep,
                                              .wake = group_wake,
                                              .reach = group_reach,
                                              .check = group_check,
                                              .checked = group_checked,
                                              .find = group_find,
                                              .name_of = group_name_of,
                                              .next = group_next,
                                              .close = group_close};

/* ---- joining */

static tt_status check_workers_group(const tt_group *group) {
    if (!group->native)
        return tt__fail(TT_ERR_UNSUPPORTED, "tt_rpc_init: .group is of the back end %s: expected a native one",
                        tt_get_backend(group));
    if (group->size != group->native->world->size)
        return tt__fail(TT_ERR_UNSUPPORTED, "tt_rpc_init: .group has %d of the job's %d ranks: expected all of them",
                        group->size, group->native->world->size);
    return TT_OK;
}

static tt_status check_cards(const group_network *net) {
    for (int r = 0; r < net->world->size; r++)
        if (!tt__rpc_is_worker_name(net->cards[r].name) || net->cards[r].functions_bytes > FUNCTIONS_MAX)
            return tt__fail(TT_ERR_MISMATCH,
                            "tt_rpc_init: rank %d says that it is worker \"%s\", whose functions have names of %" PRIu64
                            " bytes, which no worker is",
                            r, net->cards[r].name, net->cards[r].functions_bytes);
    for (int r = 0; r < net->world->size; r++)
        for (int s = r + 1; s < net->world->size; s++)
            if (!strcmp(net->cards[r].name, net->cards[s].name))
                return tt__fail(TT_ERR_EXISTS,
                                "tt_rpc_init: ranks %d and %d are both called %s: workers have names "
                                "of their own",
                                r, s, net->cards[r].name);
    return TT_OK;
}

/* Do all ranks have the functions of rank 0, or does one allow others (.other_functions)? */
static bool functions_agree(const group_network *net) {
    bool same = true, any = false;
    for (int r = 0; r < net->world->size; r++) {
        same &= net->cards[r].functions == net->cards[0].functions;
        any |= net->cards[r].any_functions;
    }
    return same || any;
}

/* Compare all functions with rank 0's; each rank finds the same first difference. */
static tt_status compare_functions(const group_network *net, const char *own) {
    size_t bytes = net->cards[0].functions_bytes + 1;
    char *first = calloc(1, bytes);
    if (!first)
        return tt__fail(TT_ERR_MEMORY, "no memory for the names of functions");
    if (net->world->rank == 0)
        memcpy(first, own, bytes);
    tt_status status = tt_broadcast_with(
        TT_ARGS(tt_broadcast_args, net->group, first, (int64_t)bytes, TT_U8, 0, .file = "tt_rpc_init"));
    first[bytes - 1] = '\0'; /* whatever rank 0 says */
    tt_status differs =
        status ? TT_OK : tt__rpc_functions_compare(net->cards[net->world->rank].name, net->cards[0].name, first);
    char text[400] = "", *all = calloc((size_t)net->world->size, sizeof text);
    if (differs)
        snprintf(text, sizeof text, "%s", tt_last_error());
    if (!status && !all)
        status = tt__fail(TT_ERR_MEMORY, "no memory for the names of functions");
    if (!status)
        status = tt_all_gather_with(
            TT_ARGS(tt_all_gather_args, net->group, text, all, sizeof text, TT_U8, .file = "tt_rpc_init"));
    for (int r = 0; r < net->world->size && !status; r++)
        if (all[(size_t)r * sizeof text])
            status =
                tt__fail(TT_ERR_MISMATCH, "tt_rpc_init: %.*s", (int)sizeof text - 1, all + (size_t)r * sizeof text);
    free(all);
    free(first);
    return status;
}

static tt_status exchange_cards(group_network *net, const tt_rpc_init_args *args) {
    char *functions = tt__rpc_functions_text();
    worker_card mine = {.functions = tt__rpc_functions_hash(), .any_functions = args->other_functions};
    if (!functions)
        return tt_last_status();
    mine.functions_bytes = strlen(functions);
    snprintf(mine.name, sizeof mine.name, "%s", args->name);
    tt_status status = tt_all_gather_with(
        TT_ARGS(tt_all_gather_args, net->group, &mine, net->cards, (int64_t)sizeof mine, TT_U8, .file = "tt_rpc_init"));
    for (int r = 0; r < net->world->size && !status; r++)
        net->cards[r].name[TT__RPC_NAME_SIZE - 1] = '\0';
    if (!status)
        status = check_cards(net);
    if (!status && !functions_agree(net))
        status = compare_functions(net, functions);
    free(functions);
    return status;
}

/* Make a group of the worker's own, of all ranks in the order of the job. */
static tt_status own_group(group_network *net, const tt_rpc_init_args *args) {
    int size = net->world->size, *ranks = calloc((size_t)size, sizeof *ranks);
    if (!ranks)
        return tt__fail(TT_ERR_MEMORY, "no memory for a group of %d ranks", size);
    for (int r = 0; r < size; r++)
        for (int g = 0; g < size; g++)
            if (args->group->ranks[g] == r)
                ranks[r] = g;
    tt_status status = tt_new_group_with(TT_ARGS(tt_new_group_args, &net->group, args->group, ranks, size,
                                                 .timeout_ms = args->join_timeout_ms, .file = "tt_rpc_init"));
    free(ranks);
    return status;
}

static tt_status fail_twice(void) {
    return tt__fail(TT_ERR_STATE, "tt_rpc_init: this process is a worker of the group already: expected "
                                  "tt_rpc_shutdown() first");
}

/* Fail early if this process is a worker already: the other ranks may not join a second time. */
static tt_status check_no_worker(tt__world *world) {
    tt__world_lock(world);
    bool twice = world->has_rpc;
    tt__world_unlock(world);
    return twice ? fail_twice() : TT_OK;
}

tt_status tt__rpc_network_of_group(tt__rpc_network **out, const tt_rpc_init_args *args) {
    *out = NULL;
    TT__TRY(check_workers_group(args->group));
    tt__world *world = args->group->native->world;
    TT__TRY(check_no_worker(world));
    group_network *net = calloc(1, sizeof *net);
    if (!net || !(net->cards = calloc((size_t)world->size, sizeof *net->cards))) {
        free(net);
        return tt__fail(TT_ERR_MEMORY, "no memory for %d workers", world->size);
    }
    net->world = world;
    tt_status status = own_group(net, args);
    if (!status)
        status = exchange_cards(net, args);
    tt__world_lock(world);
    if (!status)
        status = tt__world_messages(world);
    if (!status && world->has_rpc)
        status = fail_twice();
    world->has_rpc |= !status;
    tt__world_unlock(world);
    if (status) {
        tt__saved_error why;
        tt__error_save(&why);
        group_close(&net->base, false);
        tt__error_restore(&why);
        return status;
    }
    net->joined = true;
    net->base = (tt__rpc_network){.ops = &group_ops,
                                  .messages = world->messages,
                                  .lock = &world->lock,
                                  .recorder = &tt__world_control(world)->recorder,
                                  .self = world->rank,
                                  .workers = world->size,
                                  .cpus_each = net->group->native->spin};
    *out = &net->base;
    return TT_OK;
}
