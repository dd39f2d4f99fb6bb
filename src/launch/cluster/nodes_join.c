/* How the launchers find each other: each puts its card into the store and itself into the list; the coordinator reads
 * the cards of all, the others that of the coordinator. */
#include "base/build.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/machine/clock.h"
#include "base/machine/host_name.h"
#include "base/process/waits.h"
#include "base/random_bytes.h"
#include "base/text/json.h"
#include "base/text/plain_text.h"
#include "launch/cluster/election.h"
#include "launch/cluster/nodes.h"
#include "launch/cluster/nodes_talk.h"
#include "net/net.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- who coordinates, where etcd names that one */

/* Is the call worth another try, and is there time left to look for the coordinator? */
static bool may_ask_again(const tt__talk *t, tt_status status) {
    return (status == TT_ERR_TIMEOUT || status == TT_ERR_NET) && t->began_ms + t->nodes->member.find_ms > tt__now_ms();
}

/* Find out who coordinates: member.host, port (0: not known yet) and coordinates. */
static tt_status ask_etcd(tt__talk *t) {
    tt__nodes_member *m = &t->nodes->member;
    bool own = false;
    if (!m->election)
        return TT_OK;
    TT__TRY(tt__election_look(m->election, &m->port, &own));
    m->host = tt__election_host(m->election);
    m->coordinates = own;
    if (own && !t->composing.ordered)
        tt__talk_order_first_round(t);
    if (!m->port && t->began_ms + m->find_ms <= tt__now_ms())
        return tt__fail(TT_ERR_TIMEOUT, "nobody who serves the store came within %lld s (--rdzv-conf: is_host=false)",
                        (long long)m->find_ms / 1000);
    return TT_OK;
}

/* Find out who coordinates, and tell the user if that takes long. False: not known yet, or it has failed. */
static bool find_coordinator(tt__talk *t) {
    char text[TT__ERROR_TEXT_SIZE + 32];
    tt_status status = ask_etcd(t);
    if (status && may_ask_again(t, status)) {
        snprintf(text, sizeof text, "waiting for etcd: %s", tt_last_error());
        if (!t->composing.told_waiting)
            tt__talk_say_waits(t, text);
        t->composing.told_waiting = true;
        return false;
    }
    if (status) {
        tt__talk_fail(t, tt_last_error());
        t->cut = true;
    }
    return !status && (!t->nodes->member.election || t->nodes->member.port);
}

/* Begin to join once more: the coordinator that was found has gone, or this node may not be it any longer. */
static void look_elsewhere(tt__talk *t) {
    tt_store_free(t->store);
    t->store = NULL;
    tt__election_reset(t->nodes->member.election);
    t->nodes->member.coordinates = false;
    t->known = 0;
    t->list_read = 0;
    t->beats = t->own_news.sent = t->own_news.of_before = 0;
    t->trust.heard_ms = t->trust.awaited_beats = 0;
    t->cut = t->composing.ordered = t->composing.told_waiting = t->closed = false;
    t->began_ms = tt__now_ms();
}

void tt__talk_watch_election(tt__talk *t) {
    tt__nodes_member *m = &t->nodes->member;
    if (!m->election || !t->store || t->failed)
        return;
    bool deposed = m->coordinates && !t->over && (t->cut || tt__election_state_of(m->election) == TT__ELECTION_LOST);
    if (!t->round && (deposed || t->cut)) {
        look_elsewhere(t);
    } else if (deposed) {
        tt__talk_tell_machine(t, (tt__event){.kind = TT__ON_DEPOSED}, NULL);
        m->coordinates = false;
        t->cut = true;
    }
}

bool tt__talk_may_compose(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    if (t->failed || !m->election || tt__election_state_of(m->election) == TT__ELECTION_HOLDS)
        return true;
    if (t->composing.ordered && tt__now_ms() - t->composing.since_ms > m->job->join_ms)
        tt__talk_fail_all(t, "etcd, which says who coordinates the job, does not answer");
    return false;
}

enum { CONNECT_MS = 2000 };

#define LIST "tutti/nodes/list"

/* ---- the own card */

static tt_status make_nonce(char text[33]) {
    uint8_t bytes[16];
    TT__TRY(tt__random_bytes(bytes, sizeof bytes));
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return TT_OK;
}

static bool is_nonce(const char *text) { return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32; }

/* Does this node have the job's secret, and refuse nodes without one? */
static bool demands_secret(const tt__job *job) { return job->has_secret && job->store_auth != TT_STORE_AUTH_NONE; }

static json_t *card_of(const tt__nodes_member *m, const char *nonce) {
    const tt__job *job = m->job;
    char hostname[64] = "";
    tt__host_name(hostname, sizeof hostname);
    return json_pack("{s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:b, s:b, s:b, s:I, s:o, s:s, s:o}", "version",
                     tt_version(), "run_id", tt__json_text(job->run_id), "min_nodes", job->min_nodes, "max_nodes",
                     job->max_nodes, "workers", job->workers, "max_restarts", job->max_restarts, "attempt",
                     m->counts.attempt, "restarts", m->counts.restarts, "kept", (int)m->kept, "recovery",
                     m->counts.recovery, "trace", job->at_end != NULL, "has_secret", (int)job->has_secret, "demands_it",
                     (int)demands_secret(job), "role", (json_int_t)tt__fnv_text(TT__FNV, job->role ? job->role : ""),
                     "hostname", tt__json_text(hostname), "nonce", nonce, "problem", tt__json_text(m->problem));
}

/* Find this member's number: the one it was given, if no other has it, or the next. */
static tt_status take_member_number(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    char key[TT__NODES_KEY];
    int64_t number, claims = 1;
    t->id = m->coordinates ? 0 : m->job->number;
    if (t->id < 0) {
        TT__TRY(tt_store_add(t->store, "tutti/nodes/count", 1, &number));
        t->id = number > 0 && number < INT32_MAX ? (int)number : -1;
    } else {
        tt__talk_key(key, "claim", t->id);
        TT__TRY(tt_store_add(t->store, key, 1, &claims));
    }
    if (claims != 1 && !TT__MUTANT(number_claimed_twice))
        return tt__fail(TT_ERR_INVALID, "another launcher is node %d already (--node-rank)", t->id);
    if (t->id < 0)
        return tt__fail(TT_ERR_PROTOCOL, "the store that should serve this job gives no numbers");
    return tt__talk_make_room(t, 0);
}

/* With which nonce is the card of member `id` signed? The coordinator's with that of the store, the others' with the
 * coordinator's, which proves that they are of its life. */
static const char *card_context(const tt__talk *t, int id) {
    return !id ? tt__store_lasting_life(t->store) : t->nodes->member.coordinates ? t->nonce : t->of[0].nonce;
}

static tt_status put_card(tt__talk *t) {
    char key[TT__NODES_KEY], listed[16];
    json_t *card = card_of(&t->nodes->member, t->nonce);
    char *text = card ? tt__json_dumps(card, JSON_COMPACT) : NULL;
    json_decref(card);
    if (!text)
        return tt__fail(TT_ERR_MEMORY, "no memory to join the other nodes");
    tt__talk_key(key, "card", t->id);
    tt_status status = tt__signed_set(t->store, &t->secret, key, card_context(t, t->id), text, strlen(text));
    snprintf(listed, sizeof listed, "%d ", t->id);
    if (!status)
        status = tt_store_append(t->store, LIST, listed, strlen(listed));
    t->joining.introduced = !status;
    free(text);
    return status;
}

/* Take a number, and put the first beat. The coordinator also puts its card; other members put theirs when they have
 * read that. */
static tt_status introduce_oneself(tt__talk *t) {
    char key[TT__NODES_KEY];
    t->joining.introduced = false;
    t->joining.greeted = t->nodes->member.coordinates;
    json_decref(t->joining.foretold);
    t->joining.foretold = NULL;
    TT__TRY(take_member_number(t));
    TT__TRY(make_nonce(t->nonce));
    t->own_news.first = 1;
    TT__TRY(tt__talk_beat(t));
    tt__talk_key(key, "alive", t->id);
    TT__TRY(tt_store_set(t->store, key, "1", 1));
    return t->nodes->member.coordinates ? put_card(t) : TT_OK;
}

/* While it looks for the store, a launcher tries again after any failure of the network: between two attempts of the
 * job the store drops connections that it can't tell from a worker's yet. */
static bool may_try_again(const tt__talk *t, tt_status status) {
    bool left = t->began_ms + t->nodes->member.find_ms > tt__now_ms();
    return left &&
           (status == TT_ERR_TIMEOUT || (!tt__talk_is_numbered(t) && (status == TT_ERR_NET || status == TT_ERR_PEER)));
}

static void tell_waiting(tt__talk *t) {
    char text[TT__NET_ENDPOINT_SIZE + 64], where[TT__NET_ENDPOINT_SIZE];
    tt__net_endpoint_text(t->nodes->member.host, t->nodes->member.port, where);
    snprintf(text, sizeof text, "waiting for the launcher that serves the store at %s", where);
    if (!t->composing.told_waiting)
        tt__talk_say_waits(t, text);
    t->composing.told_waiting = true;
}

bool tt__talk_connect(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    if (!find_coordinator(t))
        return false;
    tt_status status = tt_tcp_store(&t->store, m->host, m->port, .timeout_ms = CONNECT_MS);
    bool found = !status;
    if (found) {
        tt_store_set_timeout_ms(t->store, m->job->heartbeat_ms);
        status = introduce_oneself(t);
    }
    if (status && may_try_again(t, status)) {
        tell_waiting(t);
        tt_store_free(t->store);
        t->store = NULL;
        return false;
    }
    if (found && (status == TT_ERR_NET || status == TT_ERR_PEER))
        tt__fail_prefix("node 0 ended before all nodes had come (it says why)");
    if (status == TT_ERR_TIMEOUT)
        tt__fail_prefix("node 0 did not come within %lld s", (long long)m->find_ms / 1000);
    if (status)
        tt__talk_fail(t, tt_last_error());
    t->cut = status != TT_OK;
    return !status;
}

/* ---- others' cards */

typedef struct card {
    const char *version, *run_id, *hostname, *nonce, *problem;
    int min_nodes, max_nodes, workers, max_restarts, kept, trace, has_secret, demands_it;
    json_int_t role;
    tt__counts counts;
} card;

/* Check that the other launchers have the job secret: the store also serves clients without a proof, such as PyTorch's
 * on its own machine. */
static tt_status check_secret(const tt__talk *t, int id, const card *other) {
    const tt__job *own = t->nodes->member.job;
    bool lacks = demands_secret(own) && !other->has_secret;
    if (!lacks && (!other->demands_it || own->has_secret))
        return TT_OK;
    return tt__fail(TT_ERR_AUTH,
                    "node %d has no job secret, but node %d has one: start all nodes with the same --secret-file, "
                    "TT_SECRET or TT_SECRET_FILE (or with --store-auth=none, to do without)",
                    lacks ? id : t->id, lacks ? t->id : id);
}

static tt_status check_counts(const tt__job *own, int id, const card *other) {
    char theirs[32], ours[32];
    if (other->max_nodes != own->max_nodes || other->min_nodes != own->min_nodes) {
        snprintf(theirs, sizeof theirs, other->min_nodes < other->max_nodes ? "%d:%d" : "%d", other->min_nodes,
                 other->max_nodes);
        snprintf(ours, sizeof ours, own->min_nodes < own->max_nodes ? "%d:%d" : "%d", own->min_nodes, own->max_nodes);
        return tt__fail(TT_ERR_INVALID, "node %d was started with --nnodes=%s, this one with --nnodes=%s", id, theirs,
                        ours);
    }
    if (other->max_restarts != own->max_restarts)
        return tt__fail(TT_ERR_INVALID, "node %d was started with --max-restarts=%d, this one with --max-restarts=%d",
                        id, other->max_restarts, own->max_restarts);
    if (other->workers < 1 || other->workers > TT__WORKERS_MAX)
        return tt__fail(TT_ERR_PROTOCOL, "node %d says that it has %d workers: expected 1 to %d", id, other->workers,
                        TT__WORKERS_MAX);
    if (!tt__counts_are_sane(&other->counts))
        return tt__fail(
            TT_ERR_PROTOCOL,
            "node %d says that it was in attempt %d, round %d, after %d restarts: expected numbers of a job", id,
            other->counts.attempt, other->counts.recovery, other->counts.restarts);
    return TT_OK;
}

/* The id on a card is as it stands in JSON, also if it is not UTF-8. */
static bool is_card_of_job(const card *c, const tt__job *own) {
    json_t *id = tt__json_text(own->run_id);
    bool same = id && !strcmp(c->run_id, json_string_value(id));
    json_decref(id);
    return same;
}

static tt_status check_card(const tt__talk *t, int id, const card *c) {
    const tt__job *own = t->nodes->member.job;
    if (strcmp(c->version, tt_version()) != 0)
        return tt__fail(TT_ERR_INVALID, "node %d runs Tutti %.20s, this one %s", id, c->version, tt_version());
    if (!is_card_of_job(c, own))
        return tt__fail(TT_ERR_INVALID, "node %d belongs to job \"%.60s\", this one to \"%.60s\" (--rdzv-id)", id,
                        c->run_id, own->run_id);
    TT__TRY(check_counts(own, id, c));
    TT__TRY(check_secret(t, id, c));
    if (*c->problem)
        return tt__fail(TT_ERR_PEER, "node %d (%.60s) can't start its ranks: %.1000s", id, c->hostname, c->problem);
    return TT_OK;
}

static void note_member(tt__talk *t, int id, const card *c, bool is_signed) {
    tt__node *node = tt__talk_node(t, id);
    snprintf(node->hostname, sizeof node->hostname, "%s", c->hostname);
    tt__make_plain_name(node->hostname);
    node->signs = is_signed;
    node->wants_trace = c->trace;
    node->workers = c->workers;
    node->role = (uint64_t)c->role;
    node->counts = c->counts;
    node->brings = c->kept;
    node->card = TT__CARD_READ;
    t->composing.came_ms = node->beat_ms = tt__now_ms();
}

/* Note the nonce on a card, whatever else it says. A member answers the coordinator's card with its own, even if the
 * two don't fit together: the coordinator is to know that. */
static void answer_card(tt__talk *t, int id, const char *nonce) {
    snprintf(t->of[id].nonce, sizeof t->of[id].nonce, "%s", nonce && is_nonce(nonce) ? nonce : "");
    if (!t->nodes->member.coordinates && !t->joining.introduced)
        tt__talk_note_status(t, put_card(t));
}

/* `is_signed`: a card without a proof counts only if it says that its launcher has no secret. */
static tt_status take_card(tt__talk *t, int id, const char *key, const char *text, bool is_signed) {
    card c = {0};
    json_t *read = tt__json_loads(text, 0, NULL);
    tt_status status = TT_OK;
    if (!read ||
        json_unpack(read, "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:b, s:b, s:b, s:I, s:s, s:s, s:s}",
                    "version", &c.version, "run_id", &c.run_id, "min_nodes", &c.min_nodes, "max_nodes", &c.max_nodes,
                    "workers", &c.workers, "max_restarts", &c.max_restarts, "attempt", &c.counts.attempt, "restarts",
                    &c.counts.restarts, "kept", &c.kept, "recovery", &c.counts.recovery, "trace", &c.trace,
                    "has_secret", &c.has_secret, "demands_it", &c.demands_it, "role", &c.role, "hostname", &c.hostname,
                    "nonce", &c.nonce, "problem", &c.problem))
        status = tt__fail(TT_ERR_PROTOCOL, "what node %d says of itself is not understood: \"%.100s\"", id, text);
    if (!is_signed && (status || c.has_secret)) {
        tt__talk_refuse(t, id, key);
        json_decref(read);
        return TT_OK;
    }
    answer_card(t, id, json_string_value(json_object_get(read, "nonce")));
    if (!status && !(status = check_card(t, id, &c)))
        note_member(t, id, &c, is_signed);
    json_decref(read);
    return status;
}

/* A member can't take part, `why`. The job can't begin without it if each node has its own number, or if no node may be
 * missing and it is one of this job. */
static void refuse_member(tt__talk *t, int id, tt_status why) {
    char text[TT__ERROR_TEXT_SIZE];
    bool needed = tt__talk_is_numbered(t) || (why == TT_ERR_PEER && !tt__talk_is_elastic(t));
    snprintf(text, sizeof text, "%s", tt_last_error());
    if (!t->nodes->member.coordinates) {
        tt__talk_fail(t, text);
        tt_ignore(tt__talk_put_left(t)); /* tt__nodes_tell_problem() waits for this */
    } else if (id == 0 || (needed && !t->round)) {
        tt__talk_fail_all(t, text);
    } else {
        tt__log(TT_LOG_WARNING, "a node is not taken: %s", text);
        tt__talk_node(t, id)->lost = true;
        tt__talk_announce_json(t, json_pack("{s:s, s:i, s:o, s:[s]}", "what", "refused", "member", id, "text",
                                            tt__json_text(text), "to", tt__talk_node(t, id)->nonce));
    }
}

static void open_card(tt__talk *t, const tt__wanted *of, tt_store_value *value) {
    bool is_signed = !tt__signed_open(value, &t->secret, of->key, card_context(t, of->id));
    tt_status status = take_card(t, of->id, of->key, value->data, is_signed);
    if (status)
        refuse_member(t, of->id, status);
}

static tt__wanted wanted_card(int id) {
    tt__wanted card = {.id = id};
    tt__talk_key(card.key, "card", id);
    return card;
}

static void read_card(tt__talk *t, int id) {
    tt__wanted card = wanted_card(id);
    tt_store_value value;
    if (!tt__talk_fetch(t, card.key, &value))
        return;
    open_card(t, &card, &value);
    tt_store_value_free(&value);
}

static bool misses_card(const tt__node *node) { return node->card == TT__CARD_LISTED && !node->lost; }

/* Read the missing cards in one call, if all are there. False: one is not. */
static bool read_all_cards(tt__talk *t) {
    tt__wanted *list = t->known ? malloc((size_t)t->known * sizeof *list) : NULL;
    int n = 0;
    for (int id = 0; list && id < t->known; id++)
        if (misses_card(&t->of[id]))
            list[n++] = wanted_card(id);
    bool there = !n || tt__talk_are_there(t, list, n, false);
    if (n && there)
        tt__talk_fetch_all(t, list, n, open_card);
    free(list);
    return there;
}

/* Read which members have come since the last time. The list is not signed: a false entry has no card. */
static void read_list(tt__talk *t) {
    tt_store_value value;
    if (tt__talk_note_status(t, tt_store_get(t->store, LIST, &value)))
        return;
    const char *text = value.data;
    for (size_t at = t->list_read; at < value.size;) {
        char *end;
        long id = strtol(text + at, &end, 10);
        if (end == text + at || *end != ' ')
            break;
        at = t->list_read = (size_t)(end + 1 - text);
        bool fits = id >= 0 && id < INT32_MAX && (!tt__talk_is_numbered(t) || id < t->nodes->member.job->max_nodes);
        if (fits && !tt__talk_make_room(t, (int)id) && tt__talk_node(t, (int)id)->card == TT__CARD_NONE)
            tt__talk_node(t, (int)id)->card = TT__CARD_LISTED;
    }
    tt_store_value_free(&value);
}

/* Only node 0's launcher puts this card. If it does not come, something else may serve the store. */
static void read_coordinators_card(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    if (t->of[0].card == TT__CARD_READ)
        return;
    read_card(t, 0);
    if (t->joining.introduced || t->cut || tt__now_ms() - t->began_ms < m->find_ms + m->job->join_ms)
        return;
    tt_ignore(tt__fail(TT_ERR_TIMEOUT,
                       "node 0's launcher has not introduced itself within %lld s at %s:%d: is the store there served "
                       "by something else?",
                       (long long)(tt__now_ms() - t->began_ms) / 1000, m->host, m->port));
    tt__talk_fail(t, tt_last_error());
}

void tt__talk_read_cards(tt__talk *t) {
    if (!t->nodes->member.coordinates) {
        read_coordinators_card(t);
        return;
    }
    read_list(t);
    if (t->cut || read_all_cards(t))
        return;
    for (int id = 0; id < t->known && !t->cut && !t->failed; id++)
        if (misses_card(&t->of[id]))
            read_card(t, id);
}

/* ---- a launcher that can't start its workers (the program is missing on its node) still tells the others why */

/* Wait, as the coordinator, until the others have read its card. */
static tt_status wait_until_all_know(tt__talk *t, int64_t deadline) {
    int others = t->nodes->member.job->min_nodes - 1, left = 0; /* a set that changes may do without more */
    while (left < others && tt__left_ms(deadline)) {
        TT__TRY(tt__talk_read_left(t, &left));
        if (left < others)
            tt__sleep_ms(20);
    }
    return TT_OK;
}

static tt_status tell_problem(tt__talk *t, int64_t deadline) {
    const tt__nodes_member *m = &t->nodes->member;
    TT__TRY(tt__secret_load(&t->secret));
    for (tt_status status; (status = ask_etcd(t)) || !m->port; tt__sleep_ms(20))
        if ((status && status != TT_ERR_TIMEOUT) || !tt__left_ms(deadline))
            return status ? status : tt__fail(TT_ERR_TIMEOUT, "nobody is found to tell");
    TT__TRY(tt_tcp_store(&t->store, m->host, m->port, .timeout_ms = tt__left_ms(deadline)));
    TT__TRY(introduce_oneself(t));
    for (; !t->joining.introduced && !t->cut && tt__left_ms(deadline); tt__sleep_ms(20))
        tt__talk_read_cards(t);
    return m->coordinates ? wait_until_all_know(t, deadline) : TT_OK;
}

void tt__nodes_tell_problem(const tt__nodes_member *member, int64_t timeout_ms) {
    tt__nodes nodes = {.member = *member, .events_fd = -1, .wake_fd = -1};
    tt__talk t = {.nodes = &nodes, .began_ms = tt__now_ms()};
    nodes.events_end = &nodes.events;
    tt_ignore(tell_problem(&t, tt__deadline_ms(timeout_ms < member->job->join_ms ? timeout_ms : member->job->join_ms)));
    tt_store_free(t.store);
    tt__secret_wipe(&t.secret);
    json_decref(t.joining.foretold);
    free(t.of);
    for (tt__nodes_event *event; (event = nodes.events);) { /* only launchers that take part use them */
        nodes.events = event->next;
        tt__nodes_event_free(event);
    }
}
