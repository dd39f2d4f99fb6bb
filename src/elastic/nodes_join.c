/* How the launchers find each other: each puts its card into the store, and reads all cards. */
#include "elastic/nodes_talk.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/signed.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECT_MS = 2000, QUIET_MS = 3000 };

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
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:b, s:b, s:b, s:s, s:s, s:o}", "version", tt_version(), "run_id",
                     m->run_id, "nodes", m->nodes, "workers", m->workers, "max_restarts", m->max_restarts, "trace",
                     (int)m->wants_trace, "has_secret", (int)m->has_secret, "demands_it", (int)m->demands_it,
                     "hostname", hostname, "nonce", nonce, "problem", tt__talk_json(m->problem));
}

tt_status tt__talk_put_card(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    char *nonce = t->nodes->of[m->node].nonce, key[TT__NODES_KEY];
    int64_t claims;
    tt__talk_key(key, "claim", m->node);
    TT__TRY(tt_store_add(t->store, key, 1, &claims));
    if (claims != 1)
        return tt__fail(TT_ERR_INVALID, "another launcher is node %d already (--node-rank)", m->node);
    TT__TRY(make_nonce(nonce));
    json_t *card = card_of(m, nonce);
    char *text = card ? json_dumps(card, JSON_COMPACT) : NULL;
    json_decref(card);
    if (!text)
        return tt__fail(TT_ERR_MEMORY, "no memory to join a job of %d nodes", m->nodes);
    tt_status status = tt__talk_beat(t);
    tt__talk_key(key, "card", m->node);
    if (!status)
        status = tt__signed_set(t->store, &t->secret, key, "", text, strlen(text));
    free(text);
    return status;
}

bool tt__talk_connect(tt__talk *t) {
    const tt__nodes_member *m = &t->nodes->member;
    int64_t left = t->began_ms + m->join_ms - tt__now_ms();
    tt_status status = tt_tcp_store(&t->store, m->host, m->port, .timeout_ms = CONNECT_MS);
    if (status == TT_ERR_TIMEOUT && left > 0) {
        if (!t->told_waiting)
            tt__talk_post(t, TT__NODES_WAITS, 0, 0, "waiting for node 0, which serves the store");
        t->told_waiting = true;
        return false;
    }
    if (!status) {
        tt_store_set_timeout_ms(t->store, m->heartbeat_ms);
        status = tt__talk_put_card(t);
    }
    if (status == TT_ERR_TIMEOUT)
        tt__fail_prefix("node 0 did not come within %lld s", (long long)m->join_ms / 1000);
    if (status)
        tt__talk_fail(t, tt_last_error());
    t->cut = status != TT_OK;
    return !status;
}

/* Check that the other launchers have the job secret: the store also serves clients without a proof, such as PyTorch's
 * on its own machine. */
static tt_status check_secret(const tt__nodes_member *own, int k, const tt__nodes_member *other) {
    bool lacks = own->demands_it && !other->has_secret;
    if (!lacks && (!other->demands_it || own->has_secret))
        return TT_OK;
    return tt__fail(TT_ERR_AUTH,
                    "node %d has no job secret, but node %d has one: start all nodes with the same --secret-file, "
                    "TT_SECRET or TT_SECRET_FILE (or with --store-auth=none, to do without)",
                    lacks ? k : own->node, lacks ? own->node : k);
}

static tt_status check_card(const tt__nodes_member *m, int k, const char *version, const char *hostname,
                            const tt__nodes_member *other) {
    if (strcmp(version, tt_version()) != 0)
        return tt__fail(TT_ERR_INVALID, "node %d runs Tutti %.20s, this one %s", k, version, tt_version());
    if (strcmp(other->run_id, m->run_id) != 0)
        return tt__fail(TT_ERR_INVALID, "node %d belongs to job \"%.60s\", this one to \"%.60s\" (--rdzv-id)", k,
                        other->run_id, m->run_id);
    if (other->nodes != m->nodes)
        return tt__fail(TT_ERR_INVALID, "node %d was started with --nnodes=%d, this one with --nnodes=%d", k,
                        other->nodes, m->nodes);
    if (other->max_restarts != m->max_restarts)
        return tt__fail(TT_ERR_INVALID, "node %d was started with --max-restarts=%d, this one with --max-restarts=%d",
                        k, other->max_restarts, m->max_restarts);
    if (other->workers < 1)
        return tt__fail(TT_ERR_PROTOCOL, "node %d says that it has %d workers", k, other->workers);
    TT__TRY(check_secret(m, k, other));
    if (*other->problem)
        return tt__fail(TT_ERR_PEER, "node %d (%.60s) can't start its ranks: %.1000s", k, hostname, other->problem);
    return TT_OK;
}

/* `is_signed`: a card without a proof counts only if it says that its launcher has no secret. */
static tt_status take_card(tt__talk *t, int k, const char *key, const char *text, bool is_signed) {
    tt__node *node = &t->nodes->of[k];
    tt__nodes_member other = {.node = k};
    const char *version, *hostname, *nonce;
    int trace = 0, has_secret = 0, demands_it = 0;
    json_t *card = json_loads(text, 0, NULL);
    tt_status status = TT_OK;
    if (!card || json_unpack(card, "{s:s, s:s, s:i, s:i, s:i, s:b, s:b, s:b, s:s, s:s, s:s}", "version", &version,
                             "run_id", &other.run_id, "nodes", &other.nodes, "workers", &other.workers, "max_restarts",
                             &other.max_restarts, "trace", &trace, "has_secret", &has_secret, "demands_it", &demands_it,
                             "hostname", &hostname, "nonce", &nonce, "problem", &other.problem))
        status = tt__fail(TT_ERR_PROTOCOL, "what node %d says of itself is not understood: \"%.100s\"", k, text);
    if (!is_signed && (status || has_secret)) {
        tt__talk_refuse(t, k, key);
        json_decref(card);
        return TT_OK;
    }
    if (!status) {
        other.has_secret = has_secret;
        other.demands_it = demands_it;
        status = check_card(&t->nodes->member, k, version, hostname, &other);
    }
    if (!status) {
        snprintf(node->hostname, sizeof node->hostname, "%s", hostname);
        if (k != t->nodes->member.node)
            snprintf(node->nonce, sizeof node->nonce, "%s", nonce);
        node->signs = is_signed;
        t->nodes->want_final = t->nodes->want_final || trace;
        node->workers = other.workers;
        node->here = true;
        node->beat_ms = tt__now_ms();
    }
    json_decref(card);
    return status;
}

/* Number the ranks through the nodes, when all have joined. */
static void number_ranks(tt__talk *t) {
    tt__nodes *nodes = t->nodes;
    for (int k = 0; k < nodes->member.nodes; k++) {
        nodes->of[k].first_rank = nodes->world;
        nodes->world += nodes->of[k].workers;
    }
    t->joined = true;
    tt__talk_post(t, TT__NODES_JOINED, nodes->member.node, 0, NULL);
}

static void tell_missing(tt__talk *t) {
    char text[256] = "waiting for";
    size_t used = strlen(text);
    for (int k = 0; k < t->nodes->member.nodes && used < sizeof text; k++)
        if (!t->nodes->of[k].here)
            used += (size_t)snprintf(text + used, sizeof text - used, " node %d", k);
    int64_t waited = tt__now_ms() - t->began_ms;
    if (waited > t->nodes->member.join_ms) {
        tt__fail(TT_ERR_TIMEOUT, "not all of %d nodes came within %lld s: %s", t->nodes->member.nodes,
                 (long long)t->nodes->member.join_ms / 1000, text);
        tt__talk_fail(t, tt_last_error());
    } else if (waited > QUIET_MS && !t->told_waiting) {
        t->told_waiting = true;
        tt__talk_post(t, TT__NODES_WAITS, 0, 0, text);
    }
}

void tt__talk_read_cards(tt__talk *t) {
    bool all = true;
    for (int k = 0; k < t->nodes->member.nodes && !t->cut && !t->failed; k++) {
        char key[TT__NODES_KEY];
        const char *keys[] = {key};
        bool there = false;
        tt_store_value value;
        if (t->nodes->of[k].here)
            continue;
        tt__talk_key(key, "card", k);
        if (tt__talk_check(t, tt_store_check(t->store, keys, 1, &there)))
            return;
        if (there && !tt__talk_check(t, tt_store_get(t->store, key, &value))) {
            bool is_signed = !tt__signed_open(&value, &t->secret, key, "");
            if (take_card(t, k, key, value.data, is_signed)) {
                tt__talk_fail(t, tt_last_error());
                tt_ignore(tt_store_add(t->store, TT__NODES_LEFT, 1, NULL)); /* see nodes_problem.c */
            }
            tt_store_value_free(&value);
        }
        all = all && t->nodes->of[k].here;
    }
    if (t->cut || t->failed)
        return;
    if (all)
        number_ranks(t);
    else
        tell_missing(t);
}
