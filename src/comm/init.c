/* tt_init_process_group(): from options and environment to a group.
 *
 *   1. Which rank is this? Options, the environment (rendezvous/env.c, launchers.c), or a URL (rendezvous/url.c).
 *   2. Connect to the store, or serve it (open_store()).
 *   3. Meet the others (native/join.c): cards through the store (rendezvous/cards.c, texts.c), then memory that the
 *      ranks of a host share (shared/shm_connect.c), then TCP links between hosts (message/joining).
 *   4. If the program wants a plug-in, its engine joins through the native group.
 *
 * No rank can hang in this. Every wait has the group's deadline. While a rank waits for cards, memory or links it
 * checks whether another rank has ended, has given up, or is stopped (rendezvous/joining_watch.c, launcher_notes.h,
 * stopped.h), and fails with that rank's name; its launcher can interrupt the wait, too (net/net.h). A rank that fails
 * says so in the store, so that the others need not wait for it. */
#include "base/args.h"
#include "base/error.h"
#include "base/machine/cpu.h"
#include "base/setting.h"
#include "comm/backend/plugin.h"
#include "comm/backend/plugin_load.h"
#include "comm/in_callback.h"
#include "comm/native/native.h"
#include "comm/record/recovery.h"
#include "comm/rendezvous/launcher_notes.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/secure/secret.h"
#include "store/etcd/etcd_lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Meet under the rank that a later round gave this process; false: there was no later round. */
static bool meet_in_round(tt__meeting *meeting) {
    tt__seat seat;
    if (!tt__round_seat(&seat))
        return false;
    *meeting = (tt__meeting){.rank = seat.rank, .world = seat.world, .port = seat.port};
    snprintf(meeting->host, sizeof meeting->host, "%s", seat.host);
    return true;
}

/* Return an option, or its environment variable where it is not given. */
static const char *option_or_env(const char *given, const char *variable) {
    const char *text = given ? given : secure_getenv(variable);
    return text && *text ? text : NULL;
}

/* Find this process's rank, and the store. */
static tt_status find_meeting(const tt_init_process_group_args *args, tt__meeting *meeting) {
    const char *method = args->init_method || args->store ? args->init_method : option_or_env(NULL, "TT_INIT_METHOD");
    if (args->world_size < 0)
        return tt__fail(TT_ERR_INVALID, "tt_init_process_group: .world_size is %d", args->world_size);
    if ((args->store || !method || !strcmp(method, "env://")) && !args->world_size && meet_in_round(meeting))
        return TT_OK;
    if (args->store || !method || !strcmp(method, "env://"))
        return tt__meeting_from_env(&tt__own_environment, meeting, args);
    if (!strncmp(method, "tcp://", strlen("tcp://")))
        return tt__meeting_from_tcp(meeting, method, args->rank, args->world_size);
    if (!strncmp(method, "file://", strlen("file://")))
        return tt__meeting_from_file(meeting, method, args->rank, args->world_size);
    if (!strncmp(method, "etcd://", strlen("etcd://")) || !strncmp(method, "etcds://", strlen("etcds://")))
        return tt__meeting_from_etcd(meeting, method, args);
    return tt__fail(TT_ERR_INVALID,
                    "expected an init_method env://, tcp://host:port, file:///path or etcd://host:port/job, got "
                    "\"%.100s\"",
                    method);
}

int tt_get_node_local_rank(int fallback) { return tt__launched_local_rank(&tt__own_environment, fallback); }

/* For errors: that a launcher serves this store, or serves one only at MASTER_ADDR and MASTER_PORT; or "". */
static const char *agent_note(const tt__meeting *meeting) {
    if (!tt__has_agent_store() || (meeting->rank && !tt__agent_serves_store(meeting->host, meeting->port)))
        return "";
    return tt__agent_serves_store(meeting->host, meeting->port)
               ? " (a launcher serves it, as TORCHELASTIC_USE_AGENT_STORE=True says; without that variable rank 0 does)"
               : " (TORCHELASTIC_USE_AGENT_STORE=True says that a launcher serves a store at MASTER_ADDR and "
                 "MASTER_PORT "
                 "alone, and only by these names)";
}

static tt_status open_store(tt_store **store, const tt__meeting *meeting, int64_t timeout_ms) {
    if (*meeting->etcd)
        return tt_etcd_store(store, meeting->etcd, .prefix = meeting->path, .timeout_ms = timeout_ms);
    if (*meeting->path) {
        if (!tt_file_store(store, meeting->path, .world_size = meeting->world, .fresh = true, .timeout_ms = timeout_ms))
            return TT_OK;
        return meeting->whence
                   ? tt__fail_prefix("rank %d can't meet the others in a file (%s; XDG_RUNTIME_DIR and "
                                     "TMPDIR choose its folder, MASTER_ADDR and MASTER_PORT a port instead)",
                                     meeting->rank, meeting->whence)
                   : tt_last_status();
    }
    tt__log(TT_LOG_DEBUG, "%s the store at %s:%d", meeting->serves ? "serving" : "connecting to", meeting->host,
            meeting->port);
    tt_status status =
        tt_tcp_store(store, meeting->host, meeting->port, .is_server = meeting->serves, .timeout_ms = timeout_ms,
                     .dialect = meeting->serves ? TT_STORE_TORCH_2 : TT_STORE_TORCH_ANY);
    if (status)
        tt__fail_prefix(
            "rank %d %s the store at %s:%d%s%s%s%s", meeting->rank, meeting->serves ? "can't serve" : "can't reach",
            meeting->host, meeting->port, meeting->whence ? " (" : "", meeting->whence ? meeting->whence : "",
            meeting->whence ? "; MASTER_ADDR and MASTER_PORT choose another place)" : "", agent_note(meeting));
    return status;
}

/* Choose the prefix of the keys. A rank may join several groups through one store, one after the other, and again after
 * a restart or in another round: each time under another prefix. */
static tt_status choose_prefix(tt__member *member) {
    const char *restart = getenv("TORCHELASTIC_RESTART_COUNT");
    int round = tt__round_number();
    char *prefix = member->prefix, key[128];
    size_t size = sizeof member->prefix;
    int64_t groups;
    if (!round && tt__needs_fresh_prefix())
        return tt__fresh_prefix(member);
    if (round)
        snprintf(prefix, size, "tutti/round/%d", round);
    else
        snprintf(prefix, size, "tutti/%.20s", restart && *restart ? restart : "0");
    snprintf(key, sizeof key, "%s/groups/%d", prefix, member->rank);
    TT__TRY(tt_store_add(member->store, key, 1, &groups));
    size_t n = strlen(prefix);
    snprintf(prefix + n, size - n, "/%lld", (long long)groups);
    return TT_OK;
}

/* Does this process meet in the store of its launcher? */
static bool meets_at_launcher(const tt__meeting *meeting) {
    tt__seat seat;
    bool moved = tt__round_seat(&seat) && seat.port == meeting->port && !strcmp(seat.host, meeting->host);
    return !*meeting->etcd && !*meeting->path && (moved || tt__agent_serves_store(meeting->host, meeting->port));
}

/* `elsewhere`: the ranks meet through one store, and the launcher notes in another one how they end. */
static tt_status init_join(tt_group **out, tt_store *store, bool elsewhere, tt__member *member) {
    if (!store)
        return tt__native_join(out, member);
    int64_t before = tt_store_timeout_ms(store);
    tt__notes notes = {0};
    member->store = store;
    member->notes = elsewhere ? &notes : NULL;
    tt_store_set_timeout_ms(store, member->timeout_ms);
    tt_status status = choose_prefix(member);
    if (!status)
        status = tt__native_join(out, member);
    tt_store_set_timeout_ms(store, before);
    tt_store_free(notes.store);
    return status;
}

static tt_status check_transport(const char **transport) {
    static const char *const names[] = {"auto", "shm", "tcp"};
    for (int i = 0; i < 3; i++)
        if (!*transport || !strcmp(*transport, names[i])) {
            *transport = names[i];
            return TT_OK;
        }
    return tt__fail(TT_ERR_INVALID, "expected .transport (or TT_TRANSPORT) auto, shm or tcp, got \"%.40s\"",
                    *transport);
}

static tt_status check_device(const tt_init_process_group_args *args, const char *backend, unsigned devices) {
    const char *name = tt_device_type_name(args->device);
    if (!strcmp(name, "?") || args->device_index < 0)
        return tt__fail(TT_ERR_INVALID,
                        "tt_init_process_group: expected a .device as tt_device_type has them, and a .device_index of "
                        "0 or more, got %d and %d",
                        (int)args->device, args->device_index);
    if (args->device == TT_DEVICE_CPU || devices & TT_DEVICE_BIT(args->device))
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "tt_init_process_group: the back end %s takes no memory of %s: name one that does, as \"native\" "
                    "or \"nccl\"; or leave .device out, and tensors of devices are copied to the host for exchanges",
                    backend, name);
}

/* Check the secret and the wire before anybody waits for this rank. */
static tt_status check_wire(const tt__meeting *meeting) {
    tt__secret secret;
    tt__wire wire;
    if (meeting->world < 2)
        return TT_OK;
    TT__TRY(tt__secret_load(&secret));
    tt_status status = tt__wire_check(&wire, &secret);
    bool proves = secret.set || wire == TT__WIRE_TLS;
    tt__secret_wipe(&secret);
    if (status || !meeting->needs_secret || proves)
        return status;
    tt__job_secret_missing(meeting, NULL);
    return tt__fail_alike();
}

/* Find the launcher's notes of how ranks end, even if these ranks meet through a store of the program's own, such as
 * PyTorch's. The keys of notes contain the launcher's rank numbers, so notes are used only if this group's ranks have
 * the same numbers. Launchers other than ours leave none. */
static void find_notes(tt__agent_store *notes, const tt__meeting *meeting) {
    if (!tt__launcher_notes_ends(&(tt__rendezvous){.rank = meeting->rank, .world = meeting->world}) ||
        !tt__launcher_notes_place(notes))
        *notes = (tt__agent_store){0};
}

/* Fill in the member, except for the store and the prefix. */
static tt_status make_member(tt__member *member, const tt_init_process_group_args *args, const tt__meeting *meeting) {
    *member = (tt__member){.rank = meeting->rank,
                           .world = meeting->world,
                           .timeout_ms = args->timeout_ms > 0 ? args->timeout_ms : TT_DEFAULT_TIMEOUT_MS,
                           .heartbeat_ms = args->heartbeat_ms > 0 ? args->heartbeat_ms : 5000,
                           .device = args->device,
                           .device_index = args->device_index,
                           .algorithms = option_or_env(args->algorithms, "TT_ALGORITHMS"),
                           .transport = option_or_env(args->transport, "TT_TRANSPORT")};
    find_notes(&member->agent_store, meeting);
    tt__set_report_rank(meeting->rank);
    TT__TRY(tt__job_secret_find(meeting, member->timeout_ms));
    TT__TRY(check_wire(meeting));
    return check_transport(&member->transport);
}

/* After all have joined, remove the keys from etcd, where they would stay for ever: when the last rank has read what it
 * needs, and before any rank may join another group at the same place. */
static tt_status clear_place(tt_group *group, tt_store *store, const tt__meeting *meeting) {
    if (!*meeting->etcd)
        return TT_OK;
    TT__TRY(tt_barrier_with(TT_ARGS(tt_barrier_args, group, .file = "tt_init_process_group")));
    tt__saved_error before;
    tt__error_save(&before);
    if (meeting->rank == 0 && tt__etcd_clear(store))
        tt__log(TT_LOG_WARNING, "the keys of joining stay in etcd below %s: %s", meeting->path, tt_last_error());
    tt__error_restore(&before);
    return TT_OK;
}

/* Can only the engine find the ranks? True where mpirun started the process and nothing else says its rank. */
static bool engine_finds_ranks(const tt_backend *table, const tt_init_process_group_args *args) {
    const char *method = args->init_method;
    return table->finds_ranks && !args->store && !args->world_size && (!method || !strcmp(method, "env://")) &&
           !getenv("RANK");
}

static tt_status init_plugin(const tt_init_process_group_args *args) {
    const tt_backend *table;
    tt__meeting meeting = {0};
    tt__member member;
    tt_status status = TT_OK;
    bool own_store = false;
    TT__TRY(tt__plugin_load(&table, args->backend));
    TT__TRY(check_device(args, table->name, table->devices));
    if (engine_finds_ranks(table, args))
        TT__TRY(table->ranks(&meeting.rank, &meeting.world));
    else
        TT__TRY(find_meeting(args, &meeting));
    TT__TRY(make_member(&member, args, &meeting));
    if (meeting.world > 1 && !engine_finds_ranks(table, args)) {
        own_store = !args->store;
        member.store = args->store;
        if (own_store)
            TT__TRY(open_store(&member.store, &meeting, member.timeout_ms));
        status = choose_prefix(&member);
    }
    if (!status)
        return tt__plugin_join(args->out, table, &member, own_store);
    if (own_store)
        tt_store_free(member.store);
    return status;
}

tt_status tt_init_process_group_with(const tt_init_process_group_args *args, size_t size) {
    tt_init_process_group_args full;
    tt__meeting meeting = {0};
    tt_store *own = NULL;
    TT__ARGS_COPY(full, args, size);
    if (!full.out)
        return tt__fail(TT_ERR_INVALID, "tt_init_process_group: `out` is NULL");
    *full.out = NULL;
    TT__TRY(tt__cpu_level_check());
    TT__TRY(tt__settings_check());
    TT__TRY(tt__round_check());
    TT__TRY(tt__may_wait("tt_init_process_group"));
    if (full.backend && strcmp(full.backend, "native") != 0)
        return init_plugin(&full);
    TT__TRY(check_device(&full, "native", TT_DEVICE_BIT(TT_DEVICE_CUDA)));
    TT__TRY(find_meeting(&full, &meeting));
    if (meeting.world > TT__MAX_RANKS)
        return tt__fail(TT_ERR_UNSUPPORTED, "%d ranks: expected at most %d", meeting.world, TT__MAX_RANKS);
    tt__member member;
    TT__TRY(make_member(&member, &full, &meeting));
    if (!full.store && meeting.world > 1)
        TT__TRY(open_store(&own, &meeting, member.timeout_ms));
    tt_status status = init_join(full.out, meeting.world > 1 ? (full.store ? full.store : own) : NULL,
                                 full.store || !meets_at_launcher(&meeting), &member);
    if (!status) {
        (*full.out)->device = full.device;
        (*full.out)->device_index = full.device_index;
    }
    if (!status && own)
        status = clear_place(*full.out, own, &meeting);
    tt_store_free(own);
    if (!status && own)
        /* then the address is free for the next group */
        status = tt_barrier_with(TT_ARGS(tt_barrier_args, *full.out, .file = "tt_init_process_group"));
    if (status == TT_ERR_PEER && !tt__recovery_is_on())
        tt__error_file_write(tt_last_error(), true);
    if (status) {
        tt_destroy_process_group(*full.out);
        *full.out = NULL;
    }
    return status;
}
