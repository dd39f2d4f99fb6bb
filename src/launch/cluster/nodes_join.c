/* How the launchers find each other: each puts its card into the store and itself into the list; the coordinator reads
 * the cards of all, the others that of the coordinator. */
#include "base/text/json.h"
#include "launch/cluster/nodes_talk.h"

#include "base/build.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "net/net.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static json_t *card_of(const tt__nodes_member *m, const char *nonce) {
    char hostname[64] = "";
    gethostname(hostname, sizeof hostname - 1);
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:b, s:b, s:b, s:s, s:s, s:o}", "version",
                     tt_version(), "run_id", m->run_id, "min_nodes", m->min_nodes, "max_nodes", m->max_nodes, "workers",
                     m->workers, "max_restarts", m->max_restarts, "attempt", m->attempt, "restarts", m->restarts,
                     "kept", (int)m->kept, "recovery", m->recovery, "trace", (int)m->wants_trace, "has_secret",
                     (int)m->has_secret, "demands_it", (int)m->demands_it, "hostname", hostname, "nonce", nonce,
                     "problem", tt__talk_json(m->problem));
}

/* Find this member's number: the one it was given, if no other has it, or the next. */
static tt_status take_member_number(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    char key[TT__NODES_KEY];
    int64_t number, claims = 1;
    t->id = m->coordinates ? 0 : m->number;
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
    return tt__talk_know(t, 0);
}

/* With which nonce is the card of member `id` signed? The coordinator's with that of the store, the others' with the
 * coordinator's, which proves that they are of its life. */
static const char *card_context(const tt__talk *t, int id) {
    return !id ? tt__store_life(t->store, true) : t->nodes->member.coordinates ? t->nonce : t->of[0].nonce;
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
    t->introduced = !status;
    free(text);
    return status;
}

tt_status tt__talk_introduce(tt__talk *t) {
    char key[TT__NODES_KEY];
    t->introduced = false;
    t->greeted = t->nodes->member.coordinates;
    json_decref(t->foretold);
    t->foretold = NULL;
    TT__TRY(take_member_number(t));
    TT__TRY(make_nonce(t->nonce));
    t->news_first = 1;
    TT__TRY(tt__talk_beat(t));
    tt__talk_key(key, "alive", t->id);
    TT__TRY(tt_store_set(t->store, key, "1", 1));
    return t->nodes->member.coordinates ? put_card(t) : TT_OK;
}

/* A launcher that waits for who serves the store tries again whatever became of an attempt: between two attempts of the
 * job the store drops who has not come far enough to be told from a worker. */
static bool may_try_again(const tt__talk *t, tt_status status) {
    bool left = t->began_ms + t->nodes->member.find_ms > tt__now_ms();
    return left &&
           (status == TT_ERR_TIMEOUT || (tt__talk_numbers(t) && (status == TT_ERR_NET || status == TT_ERR_PEER)));
}

static void tell_waiting(tt__talk *t) {
    char text[TT__NET_ENDPOINT_SIZE + 64], where[TT__NET_ENDPOINT_SIZE];
    tt__net_endpoint_text(t->nodes->member.host, t->nodes->member.port, where);
    snprintf(text, sizeof text, "waiting for the launcher that serves the store at %s", where);
    if (!t->told_waiting)
        tt__talk_say_waits(t, text);
    t->told_waiting = true;
}

bool tt__talk_connect(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    if (!tt__talk_elect(t))
        return false;
    tt_status status = tt_tcp_store(&t->store, m->host, m->port, .timeout_ms = CONNECT_MS);
    bool found = !status;
    if (found) {
        tt_store_set_timeout_ms(t->store, m->heartbeat_ms);
        status = tt__talk_introduce(t);
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
    tt__nodes_member says;
    const char *version, *hostname, *nonce;
    int kept, trace, has_secret, demands_it;
} card;

/* Check that the other launchers have the job secret: the store also serves clients without a proof, such as PyTorch's
 * on its own machine. */
static tt_status check_secret(const tt__talk *t, int id, const tt__nodes_member *other) {
    const tt__nodes_member *own = &t->nodes->member;
    bool lacks = own->demands_it && !other->has_secret;
    if (!lacks && (!other->demands_it || own->has_secret))
        return TT_OK;
    return tt__fail(TT_ERR_AUTH,
                    "node %d has no job secret, but node %d has one: start all nodes with the same --secret-file, "
                    "TT_SECRET or TT_SECRET_FILE (or with --store-auth=none, to do without)",
                    lacks ? id : t->id, lacks ? t->id : id);
}

static tt_status check_counts(const tt__nodes_member *m, int id, const tt__nodes_member *other) {
    char theirs[32], ours[32];
    if (other->max_nodes != m->max_nodes || other->min_nodes != m->min_nodes) {
        snprintf(theirs, sizeof theirs, other->min_nodes < other->max_nodes ? "%d:%d" : "%d", other->min_nodes,
                 other->max_nodes);
        snprintf(ours, sizeof ours, m->min_nodes < m->max_nodes ? "%d:%d" : "%d", m->min_nodes, m->max_nodes);
        return tt__fail(TT_ERR_INVALID, "node %d was started with --nnodes=%s, this one with --nnodes=%s", id, theirs,
                        ours);
    }
    if (other->max_restarts != m->max_restarts)
        return tt__fail(TT_ERR_INVALID, "node %d was started with --max-restarts=%d, this one with --max-restarts=%d",
                        id, other->max_restarts, m->max_restarts);
    if (other->workers < 1)
        return tt__fail(TT_ERR_PROTOCOL, "node %d says that it has %d workers", id, other->workers);
    return TT_OK;
}

static tt_status check_card(const tt__talk *t, int id, const card *c) {
    const tt__nodes_member *m = &t->nodes->member;
    if (strcmp(c->version, tt_version()) != 0)
        return tt__fail(TT_ERR_INVALID, "node %d runs Tutti %.20s, this one %s", id, c->version, tt_version());
    if (strcmp(c->says.run_id, m->run_id) != 0)
        return tt__fail(TT_ERR_INVALID, "node %d belongs to job \"%.60s\", this one to \"%.60s\" (--rdzv-id)", id,
                        c->says.run_id, m->run_id);
    TT__TRY(check_counts(m, id, &c->says));
    TT__TRY(check_secret(t, id, &c->says));
    if (*c->says.problem)
        return tt__fail(TT_ERR_PEER, "node %d (%.60s) can't start its ranks: %.1000s", id, c->hostname,
                        c->says.problem);
    return TT_OK;
}

static void note_member(tt__talk *t, int id, const card *c, bool is_signed) {
    tt__node *node = tt__talk_node(t, id);
    snprintf(node->hostname, sizeof node->hostname, "%s", c->hostname);
    node->signs = is_signed;
    node->wants_trace = c->trace;
    node->workers = c->says.workers;
    node->attempt = c->says.attempt;
    node->restarts = c->says.restarts;
    node->brings = c->kept;
    node->recovery = c->says.recovery;
    node->here = true;
    t->came_ms = node->beat_ms = tt__now_ms();
}

/* Note the nonce on a card, whatever else it says. To the coordinator's the answer is the own card: that one is to
 * know, too, if they don't fit together. */
static void answer_card(tt__talk *t, int id, const char *nonce) {
    snprintf(t->of[id].nonce, sizeof t->of[id].nonce, "%s", nonce ? nonce : "");
    if (!t->nodes->member.coordinates && !t->introduced)
        tt__talk_check(t, put_card(t));
}

/* `is_signed`: a card without a proof counts only if it says that its launcher has no secret. */
static tt_status take_card(tt__talk *t, int id, const char *key, const char *text, bool is_signed) {
    card c = {0};
    json_t *read = tt__json_loads(text, 0, NULL);
    tt_status status = TT_OK;
    if (!read ||
        json_unpack(read, "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:b, s:b, s:b, s:s, s:s, s:s}", "version",
                    &c.version, "run_id", &c.says.run_id, "min_nodes", &c.says.min_nodes, "max_nodes",
                    &c.says.max_nodes, "workers", &c.says.workers, "max_restarts", &c.says.max_restarts, "attempt",
                    &c.says.attempt, "restarts", &c.says.restarts, "kept", &c.kept, "recovery", &c.says.recovery,
                    "trace", &c.trace, "has_secret", &c.has_secret, "demands_it", &c.demands_it, "hostname",
                    &c.hostname, "nonce", &c.nonce, "problem", &c.says.problem))
        status = tt__fail(TT_ERR_PROTOCOL, "what node %d says of itself is not understood: \"%.100s\"", id, text);
    if (!is_signed && (status || c.has_secret)) {
        tt__talk_refuse(t, id, key);
        json_decref(read);
        return TT_OK;
    }
    c.says.has_secret = c.has_secret;
    c.says.demands_it = c.demands_it;
    answer_card(t, id, json_string_value(json_object_get(read, "nonce")));
    if (!status && !(status = check_card(t, id, &c)))
        note_member(t, id, &c, is_signed);
    json_decref(read);
    return status;
}

/* A member can't take part, `why`. Where every number has its node the job can't begin without it, nor, if it is a node
 * of this job, where none may be missing. */
static void refuse_member(tt__talk *t, int id, tt_status why) {
    char text[TT__ERROR_TEXT_SIZE];
    bool needed = !tt__talk_numbers(t) || (why == TT_ERR_PEER && !tt__talk_is_elastic(t));
    snprintf(text, sizeof text, "%s", tt_last_error());
    if (!t->nodes->member.coordinates) {
        tt__talk_fail(t, text);
        tt_ignore(tt__talk_put_left(t)); /* see nodes_problem.c */
    } else if (id == 0 || (needed && !t->round)) {
        tt__talk_fail_all(t, text);
    } else {
        tt__log(TT_LOG_WARNING, "a node is not taken: %s", text);
        tt__talk_node(t, id)->lost = true;
        tt__talk_announce_json(t, json_pack("{s:s, s:i, s:o, s:[s]}", "what", "refused", "member", id, "text",
                                            tt__talk_json(text), "to", tt__talk_node(t, id)->nonce));
    }
}

/* Takes `value`. */
static void open_card(tt__talk *t, int id, const char *key, tt_store_value *value) {
    bool is_signed = !tt__signed_open(value, &t->secret, key, card_context(t, id));
    tt_status status = take_card(t, id, key, value->data, is_signed);
    if (status)
        refuse_member(t, id, status);
    tt_store_value_free(value);
}

static void read_card(tt__talk *t, int id) {
    char key[TT__NODES_KEY];
    const char *keys[] = {key};
    bool there = false;
    tt_store_value value;
    tt__talk_key(key, "card", id);
    if (!tt__talk_check(t, tt_store_check(t->store, keys, 1, &there)) && there &&
        !tt__talk_check(t, tt_store_get(t->store, key, &value)))
        open_card(t, id, key, &value);
}

static bool misses_card(const tt__node *node) { return node->listed && !node->here && !node->lost; }

/* Read the cards of those who have come, all at once: one after the other would keep all members waiting for a time
 * that grows with their number. False: one is not there, or there is no memory. */
static bool read_all_cards(tt__talk *t, int n) {
    char(*keys)[TT__NODES_KEY] = malloc((size_t)n * sizeof *keys);
    const char **names = malloc((size_t)n * sizeof *names);
    tt_store_value *values = malloc((size_t)n * sizeof *values);
    int *ids = malloc((size_t)n * sizeof *ids), k = 0;
    bool there = false;
    for (int id = 0; keys && names && values && ids && id < t->known && k < n; id++)
        if (misses_card(&t->of[id])) {
            ids[k] = id;
            names[k] = keys[k];
            tt__talk_key(keys[k++], "card", id);
        }
    if (k && !tt__talk_check(t, tt_store_check(t->store, names, k, &there)) && there &&
        !tt__talk_check(t, tt_store_multi_get(t->store, names, k, values)))
        for (int i = 0; i < k; i++)
            open_card(t, ids[i], keys[i], &values[i]);
    free(ids);
    free(values);
    free(names);
    free(keys);
    return there;
}

/* Read who has come since the last time. The list is not signed: who is not there has no card. */
static void read_list(tt__talk *t) {
    tt_store_value value;
    if (tt__talk_check(t, tt_store_get(t->store, LIST, &value)))
        return;
    const char *text = value.data;
    for (size_t at = t->list_read; at < value.size;) {
        char *end;
        long id = strtol(text + at, &end, 10);
        if (end == text + at || *end != ' ')
            break;
        at = t->list_read = (size_t)(end + 1 - text);
        bool fits = id >= 0 && id < INT32_MAX && (tt__talk_numbers(t) || id < t->nodes->member.max_nodes);
        if (fits && !tt__talk_know(t, (int)id))
            tt__talk_node(t, (int)id)->listed = true;
    }
    tt_store_value_free(&value);
}

/* Nobody but node 0's launcher puts it: what serves the store may be no launcher. */
static void read_coordinators_card(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    if (t->of[0].here)
        return;
    read_card(t, 0);
    if (t->introduced || t->cut || tt__now_ms() - t->began_ms < m->find_ms + m->join_ms)
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
    int missing = 0;
    for (int id = 0; id < t->known; id++)
        missing += misses_card(&t->of[id]);
    if (!missing || t->cut || read_all_cards(t, missing))
        return;
    for (int id = 0; id < t->known && !t->cut && !t->failed; id++)
        if (misses_card(&t->of[id]))
            read_card(t, id);
}
