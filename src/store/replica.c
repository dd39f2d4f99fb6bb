#include "store/replica.h"

#include "base/error.h"

#ifdef TT__RAFT
#include "base/clock.h"
#include "store/operations.h"
#include "store/replica_log.h"
#include "store/replica_own.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Descriptors: for each of the others (two of this one's connection, one of a try, two of its own), and for clients. */
enum { EACH_FDS = 5, CLIENT_FDS = 6 };

/* How much of the log is kept, so that one who missed some of it needs not all that the store holds. */
enum { SNAPSHOT_EVERY = 1024, LOG_KEPT = 256, SNAPSHOT_MS = 5000, FORGOTTEN_MS = 5000 };
/* Likewise, where entries are large. */
#define SNAPSHOT_BYTES ((size_t)32 << 20)
#define LOG_KEPT_BYTES ((size_t)16 << 20)

static void on_raft_closed(struct raft *raft) { (void)raft; }

static void fail_replica(tt__replica *r, const char *why) {
    if (!*r->failed)
        snprintf(r->failed, sizeof r->failed, "%s", why);
    tt__log(TT_LOG_WARNING, "the replica of the store at %s:%d serves nobody any more: %s", r->place.at[r->member].host,
            r->place.at[r->member].port, r->failed);
}

/* ---- the state machine, for libraft */

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buffer, void **result) {
    tt__replica *r = fsm->data;
    tt__bytes_clear(&r->answer, 4096);
    *result = &r->answer;
    r->applied_bytes += buffer->len;
    if (r->applied_bytes > SNAPSHOT_BYTES)
        r->lib->raft_set_snapshot_threshold(&r->raft, 1); /* when this is done */
    if (tt__replica_apply(&r->state, (tt__span){buffer->base, buffer->len}, &r->answer))
        return 0;
    fail_replica(r, "memory was out in the midst of a write");
    return RAFT_NOMEM;
}

/* Choose how much of the log stays when a snapshot is there, and when the next one is due. */
static void trim_log(tt__replica *r) {
    const struct raft_log *log = &r->raft.log;
    raft_index last = r->raft.last_applied;
    unsigned kept = tt__replica_log_fit(log, last, LOG_KEPT_BYTES, LOG_KEPT);
    size_t bytes = tt__replica_log_bytes(log, 0);
    r->applied_bytes = 0;
    r->lib->raft_set_snapshot_trailing(&r->raft, kept);
    r->lib->raft_set_snapshot_threshold(&r->raft, SNAPSHOT_EVERY);
    tt__log(TT_LOG_DEBUG, "replica %d of the store: a snapshot of %llu entries; %zu KiB were in the log, %zu stay",
            r->member, last, bytes >> 10, tt__replica_log_bytes(log, last > kept ? last - kept : 0) >> 10);
}

static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *buffers[], unsigned *n) {
    tt__replica *r = fsm->data;
    tt__bytes saved = {0};
    struct raft_buffer *one = r->lib->raft_malloc(sizeof *one);
    bool good = one && tt__replica_save(&r->state, &saved);
    void *base = good ? r->lib->raft_malloc(saved.size) : NULL;
    if (base) {
        memcpy(base, saved.data, saved.size);
        *one = (struct raft_buffer){base, saved.size};
        *buffers = one;
        *n = 1;
        trim_log(r);
    } else {
        r->lib->raft_free(one);
    }
    tt__bytes_free(&saved);
    return base ? 0 : RAFT_BUSY; /* it is taken later */
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buffer) {
    tt__replica *r = fsm->data;
    tt__replica_send_away(r);
    if (!tt__replica_restore(&r->state, (tt__span){buffer->base, buffer->len})) {
        fail_replica(r, "it could not take over what the others hold: no memory, or bytes that are no such thing");
        return RAFT_NOMEM;
    }
    r->lib->raft_free(buffer->base);
    return 0;
}

/* ---- speaking to the others */

static bool tell(tt__replica *r, int member, tt__replica_tell what, const tt__bytes *body) {
    tt__bytes words = {0};
    tt__store_put_u64(&words, r->cluster);
    tt__store_put_u8(&words, what);
    tt__bytes_put(&words, body->data, body->size);
    bool told = !body->failed && tt__replica_peers_tell(&r->peers, member, &words);
    tt__bytes_free(&words);
    return told;
}

static bool io_sends(void *user, const struct raft_message *message) {
    tt__replica *r = user;
    int member = message->server_address ? tt__replica_member_of(message->server_address) : -1;
    tt__bytes body = {0};
    if (member < 0 || member >= r->place.n || tt__replica_peers_view(&r->peers, member).hello.id != message->server_id)
        return false;
    tt__replica_put_message(&body, message);
    bool told = tell(r, member, TT__REPLICA_RAFT, &body);
    tt__bytes_free(&body);
    return told;
}

/* Become part of a cluster: one that begins with the ids `begun`, or one that lives and takes this one in. */
static void join_cluster(tt__replica *r, uint64_t cluster) {
    char address[TT__REPLICA_ADDRESS_SIZE];
    struct raft_configuration all;
    r->cluster = cluster;
    r->heard_ms = tt__now_ms();
    tt__replica_address(r->member, r->id, address);
    r->fsm = (struct raft_fsm){
        .version = 1, .data = r, .apply = fsm_apply, .snapshot = fsm_snapshot, .restore = fsm_restore};
    int failed = r->lib->raft_init(&r->raft, &r->io.io, &r->fsm, r->id, address);
    if (failed) {
        fail_replica(r, r->lib->raft_strerror(failed));
        return;
    }
    r->started = true;
    r->lib->raft_set_pre_vote(&r->raft, true);
    r->lib->raft_set_snapshot_threshold(&r->raft, SNAPSHOT_EVERY);
    r->lib->raft_set_snapshot_trailing(&r->raft, LOG_KEPT);
    r->lib->raft_set_install_snapshot_timeout(&r->raft, SNAPSHOT_MS);
    r->lib->raft_configuration_init(&all);
    for (int i = 0; i < r->place.n && r->begun[0] && !failed; i++) {
        tt__replica_address(i, r->begun[i], address);
        failed = r->lib->raft_configuration_add(&all, r->begun[i], address, RAFT_VOTER);
    }
    if (!failed && r->begun[0])
        failed = r->lib->raft_bootstrap(&r->raft, &all);
    r->lib->raft_configuration_close(&all);
    if (!failed)
        failed = r->lib->raft_start(&r->raft);
    if (failed)
        fail_replica(r, r->lib->raft_strerror(failed));
    tt__replica_peers_joined(&r->peers, cluster);
    tt__log(TT_LOG_DEBUG, "replica %d of the store: %s", r->member, r->begun[0] ? "it begins" : "taken in");
}

/* ---- who is in */

static bool tell_to_begin(tt__replica *r, int member) {
    tt__bytes ids = {0};
    for (int i = 0; i < r->place.n; i++)
        tt__store_put_u64(&ids, r->begun[i]);
    bool told = tell(r, member, TT__REPLICA_BEGIN, &ids);
    tt__bytes_free(&ids);
    return told;
}

/* All are there and new: the first one begins. Nobody else can have begun with them, as each hears only the newest
 * process of the first member. */
static void begin_cluster(tt__replica *r) {
    uint64_t ids[TT__REPLICAS_MAX] = {r->id};
    for (int i = 1; i < r->place.n; i++) {
        tt__replica_peer_view view = tt__replica_peers_view(&r->peers, i);
        if (!view.up || view.hello.cluster)
            return;
        ids[i] = view.hello.id;
    }
    memcpy(r->begun, ids, sizeof ids);
    join_cluster(r, r->id);
}

static void on_changed(struct raft_change *change, int status) {
    tt__replica *r = change->data;
    r->changing = false;
    if (status)
        tt__log(TT_LOG_DEBUG, "a change of the store's replicas: %s", r->lib->raft_strerror(status));
}

/* Take in the process that a member is by now, in the place of the one that it was: one step. */
static void replace_member(tt__replica *r, int member, uint64_t id) {
    char address[TT__REPLICA_ADDRESS_SIZE];
    const struct raft_server *same = NULL, *former = NULL;
    for (unsigned i = 0; i < r->raft.configuration.n; i++) {
        const struct raft_server *server = &r->raft.configuration.servers[i];
        if (server->id == id)
            same = server;
        else if (tt__replica_member_of(server->address) == member)
            former = server;
    }
    if (same && same->role == RAFT_VOTER && !former)
        return;
    r->change.data = r;
    r->changing = true;
    tt__replica_address(member, id, address);
    int failed = former  ? r->lib->raft_remove(&r->raft, &r->change, former->id, on_changed)
                 : !same ? r->lib->raft_add(&r->raft, &r->change, id, address, on_changed)
                         : r->lib->raft_assign(&r->raft, &r->change, id, RAFT_VOTER, on_changed);
    r->changing = !failed;
}

/* See to those that are new. */
static void see_to_members(tt__replica *r) {
    const tt__bytes nothing = {0};
    for (int i = 0; i < r->place.n; i++) {
        tt__replica_peer_view view = tt__replica_peers_view(&r->peers, i);
        if (i == r->member || !view.up)
            continue;
        bool is_new = !view.hello.cluster && r->told[i] != view.times;
        if (is_new && r->begun[i] == view.hello.id && tell_to_begin(r, i))
            r->told[i] = view.times;
        else if (is_new && r->leads && r->begun[i] != view.hello.id && tell(r, i, TT__REPLICA_WELCOME, &nothing))
            r->told[i] = view.times;
        bool is_ours = view.hello.cluster == r->cluster || r->told[i] == view.times;
        if (r->leads && !r->changing && is_ours)
            replace_member(r, i, view.hello.id);
    }
}

/* Once this one is known to be a voter, another may be lost. */
static void tell_when_in(tt__replica *r) {
    for (unsigned i = 0; i < r->raft.configuration.n && !r->raft.configuration_uncommitted_index && !r->in; i++)
        r->in = r->raft.configuration.servers[i].id == r->id && r->raft.configuration.servers[i].role == RAFT_VOTER &&
                r->raft.last_applied > 1;
    if (r->in)
        tt__log(TT_LOG_INFO, "replica %d of %d holds all of the store", r->member + 1, r->place.n);
}

/* Be as new as one that is started again: nothing that this one has promised counts under its next id. */
static void start_over(tt__replica *r, const char *why) {
    tt__replica_send_away(r);
    tt__replica_io_settle(&r->io);
    r->lib->raft_close(&r->raft, on_raft_closed);
    tt__replica_io_free(&r->io);
    tt__replica_empty(&r->state);
    r->raft = (struct raft){0};
    r->started = r->changing = r->in = r->lost = false;
    memset(r->begun, 0, sizeof r->begun);
    memset(r->told, 0, sizeof r->told);
    r->cluster = 0;
    r->applied_bytes = 0;
    r->id += 2; /* odd as before, and nobody's */
    for (int i = 0; i < r->place.n; i++)
        if (r->incoming[i]) {
            r->incoming[i]->moved = true;
            tt__store_session_break(r->incoming[i], "this replica starts over");
        }
    tt__replica_peers_anew(&r->peers, r->id);
    tt__log(TT_LOG_DEBUG, "replica %d of the store starts over: %s", r->member, why);
}

/* Is this one on its way in, and those that were to take it in are gone? */
static bool is_forgotten(const tt__replica *r) {
    return !r->in && !r->begun[0] && tt__now_ms() - r->heard_ms > FORGOTTEN_MS;
}

/* Look where this replica is, after anything that may have changed it. */
static void look_around(void *user) {
    tt__replica *r = user;
    if (r->started && !*r->failed && (r->lost || is_forgotten(r)))
        start_over(r, r->lost ? "the others have agreed on something else" : "who was to take it in is silent");
    if (!r->started && !*r->failed && r->member == 0)
        begin_cluster(r);
    if (r->started) {
        int state = r->lib->raft_state(&r->raft);
        bool led = r->leads;
        r->leads = state == RAFT_LEADER && !*r->failed;
        if (state == RAFT_UNAVAILABLE && !*r->failed)
            fail_replica(r, "libraft has given up");
        if (led != r->leads)
            tt__log(TT_LOG_DEBUG, "replica %d of the store %s", r->member, r->leads ? "leads" : "leads no more");
        r->confirms = r->leads && (!led || r->confirms);
        if (led && !r->leads)
            tt__replica_send_away(r);
        /* libraft forgets to note that it has agreed, where a snapshot came in between. */
        if (r->raft.configuration_uncommitted_index <= r->raft.log.snapshot.last_index)
            r->raft.configuration_uncommitted_index = 0;
        if (!*r->failed && !r->in)
            tell_when_in(r);
        if (!*r->failed)
            see_to_members(r);
    }
    tt__replica_go_on(r);
    tt__connections_flush(r->all);
}

static void on_news(uv_async_t *news) { look_around(news->data); }

static void post_news(void *user) { uv_async_send(&((tt__replica *)user)->news); }

/* ---- what comes in */

/* Say in words why nobody leads, as far as can be seen from here. */
static void say_why(tt__replica *r, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s",
                                   *r->failed   ? r->failed
                                   : r->cluster ? "it hears of none that leads"
                                                : "it is new, and waits for all to begin");
    for (int i = 0; i < r->place.n && used < size; i++) {
        tt__replica_peer_view view = tt__replica_peers_view(&r->peers, i);
        char where[TT__NET_ENDPOINT_SIZE];
        if (i == r->member || view.up)
            continue;
        tt__net_endpoint_text(r->place.at[i].host, r->place.at[i].port, where);
        used += (size_t)snprintf(text + used, size - used, "; it does not reach %s: %.300s", where, view.why);
    }
}

/* A byte says whether this one leads; one who does, 255: nobody; a string why. */
static void say_who(tt__replica *r, tt__store_session *session) {
    char text[2000] = "";
    raft_id id = 0;
    const char *address = NULL;
    if (r->started && !r->leads && !*r->failed)
        r->lib->raft_leader(&r->raft, &id, &address);
    int leader = r->leads ? r->member : id && address ? tt__replica_member_of(address) : -1;
    if (leader < 0)
        say_why(r, text, sizeof text);
    tt__store_put_u8(&session->out, r->leads);
    tt__store_put_u8(&session->out, (uint8_t)leader);
    tt__store_put_string(&session->out, (tt__span){(const uint8_t *)text, strlen(text)});
}

static void hear_client(tt__replica *r, tt__store_session *session, const tt__store_parser *request,
                        const uint8_t *data) {
    tt__store_fields fields = tt__store_fields_of(request, data);
    if (request->op == TT__STORE_REPLICA_DO) {
        uint64_t client = (uint64_t)tt__store_take_i64(&fields), number = (uint64_t)tt__store_take_i64(&fields);
        tt__replica_do(r, session, client, number, tt__store_take_string(&fields));
    } else if (request->op == TT__STORE_WAIT && session->dialect == TT_STORE_TORCH_2) {
        tt__replica_wait(r, session, (tt__span){data, request->pos});
    } else {
        tt__store_session_break(session,
                                "%s: a store of several replicas serves Tutti's clients that name all replicas",
                                tt__store_op_table[request->op].name);
    }
}

static void gate_request(void *user, tt__store_session *session, const tt__store_parser *request, const uint8_t *data) {
    tt__replica *r = user;
    tt__store_fields fields = tt__store_fields_of(request, data);
    uint64_t joins;
    switch (request->op) {
    case TT__STORE_VALIDATE:
    case TT__STORE_PING:
    case TT__STORE_CANCEL_WAIT:
        tt__store_execute(session, request, data);
        return;
    case TT__STORE_REPLICA_WHO:
        say_who(r, session);
        return;
    case TT__STORE_REPLICA_PEER:
        tt__replica_hear_hello(r, session, tt__store_take_string(&fields));
        return;
    case TT__STORE_REPLICA_TELL:
        joins = tt__replica_hear_words(r, session, tt__store_take_string(&fields));
        if (joins)
            join_cluster(r, joins);
        break;
    default:
        hear_client(r, session, request, data);
    }
    post_news(r); /* what follows waits until this session is done with its bytes */
}

static void gate_ended(void *user, tt__store_session *session) {
    tt__replica *r = user;
    tt__replica_forget(session);
    for (int i = 0; i < r->place.n; i++)
        if (r->incoming[i] == session)
            r->incoming[i] = NULL;
}

/* ---- its life */

tt_status tt__replica_new(tt__replica **out, const tt__replica_place *place, int member, const char *secret,
                          tt_log_level level) {
    const tt__raft *lib = tt__raft_get();
    tt__replica *r = *out = lib ? calloc(1, sizeof *r) : NULL;
    if (!r)
        return lib ? tt__fail(TT_ERR_MEMORY, "out of memory for a replica of a store") : TT_ERR_UNSUPPORTED;
    r->place = *place;
    r->member = member;
    r->lib = lib;
    r->says.level = level;
    tt__replica_place_text(place, r->list);
    tt_status status = tt__random_bytes(&r->id, sizeof r->id);
    r->id |= 1; /* 0 is nobody's */
    if (!status)
        status = tt__secret_choose(&r->peers.access.secret, secret);
    if (!status)
        status = tt__tls_load(&r->peers.access.tls, &r->peers.access.secret);
    if (status) {
        tt__replica_free(r);
        *out = NULL;
    }
    return status;
}

/* Are there descriptors for the connections to the others, from them, and some clients? One that found none later would
 * try again and again. */
static tt_status find_descriptors(const tt__replica *r, int any) {
    int fds[EACH_FDS * TT__REPLICAS_MAX + CLIENT_FDS], n = 0, needed = EACH_FDS * (r->place.n - 1) + CLIENT_FDS;
    while (n < needed && (fds[n] = fcntl(any, F_DUPFD_CLOEXEC, 3)) >= 0)
        n++;
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return n == needed ? TT_OK
                       : tt__fail(TT_ERR_SYSTEM,
                                  "a replica of a store of %d needs %d more descriptors than there are (ulimit -n sets "
                                  "how many): it has no connections to the others without",
                                  r->place.n, needed - n);
}

tt_status tt__replica_begin(tt__replica *r, uv_loop_t *loop, tt__connections *all) {
    TT__TRY(find_descriptors(r, uv_backend_fd(loop)));
    if (uv_async_init(loop, &r->news, on_news))
        return tt__fail(TT_ERR_SYSTEM, "a replica of a store: no descriptor for its loop");
    r->news.data = r;
    r->all = all;
    r->gate = (tt__store_gate){gate_request, gate_ended, r};
    all->service.gate = &r->gate;
    tt__replica_state_init(&r->state, &all->service);
    tt__replica_io_init(&r->io, r->lib, loop);
    r->io.send = io_sends;
    r->io.moved = look_around;
    r->io.user = r;
    r->handles = true;
    r->peers.n = r->place.n;
    r->peers.own = (tt__replica_hello){r->member, r->id, 0, {(const uint8_t *)r->list, strlen(r->list)}};
    r->peers.place = &r->place;
    r->peers.news = post_news;
    r->peers.user = r;
    tt__replica_peers_init(&r->peers);
    r->peers_made = true;
    tt__replica_says_begin(r, loop);
    for (int i = 0; i < r->place.n; i++)
        if (i != r->member)
            TT__TRY(tt__replica_peers_add(&r->peers, i, r->place.at[i].host, r->place.at[i].port));
    return TT_OK;
}

void tt__replica_close(tt__replica *r) {
    if (r->started)
        tt__replica_io_settle(&r->io); /* a snapshot that it is just taking over libraft would not free */
    if (r->peers_made)
        tt__replica_peers_free(&r->peers);
    r->peers_made = false;
    r->leads = false;
    if (r->started)
        r->lib->raft_close(&r->raft, on_raft_closed);
    r->started = false;
    if (!r->handles)
        return;
    tt__replica_go_on(r);
    tt__replica_io_free(&r->io);
    tt__replica_state_free(&r->state);
    r->all->service.gate = NULL;
    r->handles = false;
}

void tt__replica_free(tt__replica *r) {
    if (!r)
        return;
    tt__bytes_free(&r->answer);
    tt__tls_free(r->peers.access.tls);
    tt__secret_wipe(&r->peers.access.secret);
    free(r);
}

#else /* a build without libraft's header */

tt_status tt__replica_new(tt__replica **out, const tt__replica_place *place, int member, const char *secret,
                          tt_log_level level) {
    (void)place, (void)member, (void)secret, (void)level;
    *out = NULL;
    return tt__fail(TT_ERR_UNSUPPORTED, "this build has no libraft, which replicas of a store need: build Tutti where "
                                        "its header is (Debian's package libraft-dev)");
}

tt_status tt__replica_begin(tt__replica *r, uv_loop_t *loop, tt__connections *all) {
    (void)r, (void)loop, (void)all;
    return TT_ERR_UNSUPPORTED;
}

void tt__replica_close(tt__replica *r) { (void)r; }

void tt__replica_free(tt__replica *r) { (void)r; }
#endif
