/* Who takes part in an attempt: the coordinator composes rounds, all members take them. */
#include "launch/cluster/nodes_talk.h"

#include "base/build.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/text/json.h"
#include "base/text/plain_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* QUIET_MS: after so long a wait the user is told. NEWCOMERS_MS: newcomers that come within this time are taken
 * together. */
enum { QUIET_MS = 3000, NEWCOMERS_MS = 300 };

/* ---- as any member */

static bool read_node(tt__round *r, int k, const json_t *entry, const char **nonce) {
    tt__round_node *node = &r->of[k];
    const char *hostname;
    json_int_t role;
    if (json_unpack((json_t *)(uintptr_t)entry, "[i, i, I, s, s]", &node->member, &node->workers, &role, &hostname,
                    nonce) ||
        node->workers < 1 || node->workers > TT__WORKERS_MAX)
        return false;
    node->role = (uint64_t)role;
    snprintf(node->hostname, sizeof node->hostname, "%s", hostname);
    tt__make_plain_name(node->hostname);
    node->first_rank = r->world - (TT__MUTANT(ranks_overlap) && k > 0);
    r->world += node->workers;
    return true;
}

/* Count the ranks of this node's role. */
static void count_role(tt__round *r) {
    for (int k = 0; k < r->n; k++) {
        int ranks = r->of[k].role == r->of[r->own].role ? r->of[k].workers : 0;
        r->first_role_rank += k < r->own ? ranks : 0;
        r->role_world += ranks;
    }
}

/* Are these a round's numbers? */
static bool has_sane_numbers(const tt__round *r) {
    return r->attempt >= 0 && tt__counts_are_sane(&(tt__counts){r->attempt, r->restarts, r->recovery});
}

/* Read a round from news; NULL: it is none, or (*other) without this member. */
static tt__round *read_round(const tt__talk *t, const json_t *news, bool *other) {
    json_t *of = json_object_get(news, "of");
    size_t n = json_array_size(of);
    tt__round *r = calloc(1, sizeof *r + n * sizeof *r->of);
    int trace = 0;
    *other = false;
    if (!r)
        return NULL;
    r->own = -1;
    r->n = (int)n;
    bool good = !json_unpack((json_t *)(uintptr_t)news, "{s:i, s:i, s:i, s:b}", "attempt", &r->attempt, "restarts",
                             &r->restarts, "recovery", &r->recovery, "trace", &trace) &&
                n <= TT__MEMBERS_MAX && has_sane_numbers(r);
    for (int k = 0; good && k < r->n; k++) {
        const char *nonce = "";
        good = read_node(r, k, json_array_get(of, (size_t)k), &nonce);
        r->own = r->of[k].member == t->id && !strcmp(nonce, t->nonce) ? k : r->own; /* it may be an earlier job's */
    }
    r->wants_trace = trace;
    *other = good && r->own < 0;
    if (good && r->own >= 0) {
        count_role(r);
        return r;
    }
    if (!good)
        tt__log(TT_LOG_WARNING, "the round that node 0 announces is not understood");
    free(r);
    return NULL;
}

static tt__round *copy_round(const tt__round *r) {
    size_t size = sizeof *r + (size_t)r->n * sizeof *r->of;
    tt__round *copy = malloc(size);
    return copy ? memcpy(copy, r, size) : NULL;
}

static void tell_spare(tt__talk *t, const json_t *news) {
    char text[100];
    size_t n = json_array_size(json_object_get(news, "of"));
    if ((int)n < t->nodes->member.job->max_nodes || t->composing.told_waiting)
        return;
    snprintf(text, sizeof text, "all %d places are taken: waiting for one to become free", (int)n);
    tt__talk_say_waits(t, text);
    t->composing.told_waiting = true;
}

void tt__talk_take_round(tt__talk *t, const json_t *news) {
    bool other;
    tt__round *r = read_round(t, news, &other);
    if (other)
        tell_spare(t, news);
    if (!r)
        return;
    bool *shown = calloc((size_t)r->n, sizeof *shown);
    tt__round *copy = copy_round(r);
    if (!shown || !copy) {
        free(copy);
        free(shown);
        free(r);
        tt__talk_fail(t, "no memory to take part in the job");
        return;
    }
    free(t->look.shown);
    free(t->round);
    tt_store_free(t->notes); /* its connection ended with the last round's, if the store was renewed */
    t->notes = NULL;
    t->joining.greeted = true;
    t->look.shown = shown;
    t->round = r;
    t->look.id = 0;
    t->closed = t->composing.told_waiting = false;
    bool doubts = tt__talk_replaces(t) && !t->nodes->member.coordinates;
    if (!tt__talk_post(t, &(tt__nodes_event){.event = {.kind = TT__ON_ROUND, .round = {.round = copy}},
                                             .believed_ms = doubts ? TT__BELIEVED_NOT_YET : TT__BELIEVED_ALWAYS})) {
        free(copy);
        tt__talk_fail(t, "no memory to take part in the job");
    }
    /* The coordinator has read all that this member announced up to "gone". */
    if (!t->nodes->member.coordinates) /* NOLINT(clang-analyzer-unix.Malloc): the event has the copy */
        tt__talk_delete_news(t);
}

/* ---- as the coordinator */

void tt__talk_order_round(tt__talk *t, const tt__counts *counts) {
    t->composing.ordered = true;
    t->composing.counts = *counts;
    t->composing.came_ms = t->composing.since_ms = tt__now_ms();
    t->composing.told_waiting = false;
}

void tt__talk_order_first_round(tt__talk *t) {
    const tt__counts *before = &t->nodes->member.counts;
    tt__talk_order_round(t, &(tt__counts){.attempt = before->attempt + 1, .restarts = before->restarts});
}

/* Does a member count for the next round? One of the last round does when it has nothing of it left. */
static bool is_ready(const tt__talk *t, int id) {
    return (TT__MUTANT(lost_node_in_round) ? t->of[id].card == TT__CARD_READ : tt__node_lives(&t->of[id])) &&
           (!t->round || tt__talk_node_number(t, id) < 0 || TT__MUTANT(next_attempt_too_early) ||
            t->of[id].attempts_over > t->round->attempt);
}

static int count_ready(const tt__talk *t) {
    int n = 0;
    for (int id = 0; id < t->known; id++)
        n += is_ready(t, id);
    return n;
}

/* May the round begin with `n`? The first one waits a moment for more, but not longer than for those that it needs;
 * later on all that are there are known. */
static bool are_enough(const tt__talk *t, int n) {
    const tt__nodes_member *m = &t->nodes->member;
    int64_t now_ms = tt__now_ms();
    bool waited = t->round || now_ms - t->composing.came_ms >= m->job->last_call_ms ||
                  now_ms - t->composing.since_ms >= m->job->join_ms;
    return n >= m->job->max_nodes - TT__MUTANT(attempt_without_last_node) || (n >= m->job->min_nodes && waited);
}

/* Continue the count of attempts of members, even late ones, that have been in this job with another coordinator. */
static void count_on(tt__talk *t) {
    for (int id = 0; id < t->known; id++) {
        if (!is_ready(t, id))
            continue;
        const tt__counts *been = &t->of[id].counts;
        t->composing.counts.attempt =
            t->composing.counts.attempt > been->attempt ? t->composing.counts.attempt : been->attempt + 1;
        t->composing.counts.restarts =
            t->composing.counts.restarts > been->restarts ? t->composing.counts.restarts : been->restarts;
    }
}

/* Continue the count of rounds: newcomers may bring workers that have been in rounds of this job with higher
 * numbers. */
static void count_rounds_on(tt__talk *t) {
    for (int id = 0; id < t->known; id++) {
        const tt__node *node = &t->of[id];
        if (is_ready(t, id) && tt__talk_node_number(t, id) < 0 && node->brings &&
            node->counts.recovery >= t->composing.counts.recovery)
            t->composing.counts.recovery = node->counts.recovery + 1;
    }
}

/* List the round's nodes: those of the last round first, so that they keep their order, then the others, in the
 * order in which they came. */
static json_t *list_nodes(const tt__talk *t, bool *trace) {
    json_t *of = json_array();
    int left = t->nodes->member.job->max_nodes;
    for (int newcomers = 0; newcomers < 2; newcomers++)
        for (int id = 0; id < t->known && left; id++)
            if (is_ready(t, id) && (tt__talk_node_number(t, id) < 0) == newcomers) {
                const tt__node *node = &t->of[id];
                json_array_append_new(of, json_pack("[i, i, I, o, s]", id, node->workers, (json_int_t)node->role,
                                                    tt__json_text(node->hostname), node->nonce));
                *trace = *trace || node->wants_trace;
                left--;
            }
    return of;
}

static void begin_round(tt__talk *t) {
    bool trace = false;
    if (!TT__MUTANT(attempts_count_anew))
        count_on(t);
    if (!TT__MUTANT(kept_rounds_count_anew))
        count_rounds_on(t);
    json_t *of = list_nodes(t, &trace);
    json_t *news = json_pack("{s:s, s:i, s:i, s:i, s:b, s:o}", "what", "round", "attempt", t->composing.counts.attempt,
                             "restarts", t->composing.counts.restarts, "recovery", t->composing.counts.recovery,
                             "trace", (int)trace, "of", of);
    t->composing.ordered = false;
    if (!news) {
        tt__talk_fail(t, "no memory to begin the job");
        return;
    }
    tt__talk_take_round(t, news);
    tt__talk_announce_json(t, news);
}

/* List the nodes that are missing: "node 1, node 3" or, without room for all, "node 1, node 3 and 90 more". */
static void list_missing_nodes(const tt__talk *t, char *text, size_t size) {
    enum { LONGEST = sizeof ", node 1000 and 1000 more" };
    int missing = 0, listed = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int k = 0; k < t->nodes->member.job->max_nodes; k++) {
        if (k < t->known && t->of[k].card == TT__CARD_READ)
            continue;
        missing++;
        if (used + LONGEST > size)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%snode %d", listed ? ", " : "", k);
        listed++;
    }
    if (listed < missing)
        snprintf(text + used, size - used, " and %d more", missing - listed);
}

/* Say who is missing: "waiting for node 1, node 3". */
static void name_missing_nodes(const tt__talk *t, int n, char *text, size_t size) {
    const tt__nodes_member *m = &t->nodes->member;
    if (!tt__talk_is_numbered(t)) {
        snprintf(text, size, "waiting for other nodes: %d of %s%d %s here", n,
                 m->job->min_nodes < m->job->max_nodes ? "at least " : "", m->job->min_nodes, n == 1 ? "is" : "are");
        return;
    }
    char nodes[200];
    list_missing_nodes(t, nodes, sizeof nodes);
    snprintf(text, size, "waiting for %s", nodes);
}

static void wait_for_more(tt__talk *t, int n) {
    const tt__nodes_member *m = &t->nodes->member;
    char text[256];
    int64_t waited = tt__now_ms() - t->composing.since_ms;
    if (waited <= QUIET_MS && waited <= m->job->join_ms)
        return;
    name_missing_nodes(t, n, text, sizeof text);
    if (waited > m->job->join_ms) {
        tt__fail(TT_ERR_TIMEOUT, "not all of %d nodes came within %lld s: %s", m->job->min_nodes,
                 (long long)m->job->join_ms / 1000, text);
        tt__talk_fail_all(t, tt_last_error());
    } else if (!t->composing.told_waiting) {
        t->composing.told_waiting = true;
        tt__talk_say_waits(t, text);
        tt__talk_announce_json(t, json_pack("{s:s, s:s}", "what", "waits", "text", text));
    }
}

/* Tell the launcher of a member that is not in the running attempt, if there is a place for it. */
static void tell_newcomer(tt__talk *t) {
    char text[100] = "";
    if (TT__MUTANT(newcomer_not_told) || !t->round || t->closed || t->done || tt__talk_is_numbered(t) ||
        t->round->n >= t->nodes->member.job->max_nodes || tt__now_ms() - t->composing.came_ms < NEWCOMERS_MS)
        return;
    for (int id = 0; id < t->known; id++) {
        tt__node *node = &t->of[id];
        if (node->told || !tt__node_lives(node) || tt__talk_node_number(t, id) >= 0)
            continue;
        node->told = true;
        snprintf(text, sizeof text, "another node (%s) joins", node->hostname);
    }
    if (*text)
        tt__talk_tell_machine(t, (tt__event){.kind = TT__ON_NEWCOMER}, text);
}

void tt__talk_compose(tt__talk *t) {
    if (t->failed || t->done) /* a signal may have come after the order */
        return;
    if (!t->composing.ordered) {
        tell_newcomer(t);
        return;
    }
    int n = count_ready(t);
    if (are_enough(t, n))
        begin_round(t);
    else
        wait_for_more(t, n);
}

void tt__talk_tell_all_gone(tt__talk *t) {
    const tt__round *r = t->round;
    bool kept = false, well = true;
    if (!r || t->attempts_over > r->attempt)
        return;
    for (int k = 0; k < r->n; k++) {
        const tt__node *node = &t->of[r->of[k].member];
        if (tt__node_lives(node) && node->attempts_over <= (TT__MUTANT(next_attempt_too_early) ? -1 : r->attempt))
            return;
        kept = kept || (tt__node_lives(node) && node->kept);
        well = well && node->well && node->attempts_over == r->attempt + 1;
    }
    t->attempts_over = r->attempt + 1;
    tt__talk_tell_machine(t, (tt__event){.kind = TT__ON_ALL_GONE, .all_gone = {r->attempt, kept, well}}, NULL);
    if (TT__MUTANT(news_deleted_unread))
        t->own_news.of_before = t->own_news.sent;
    tt__talk_delete_news(t); /* of the attempt before: all that took part in this one have read them */
    t->own_news.of_before = t->own_news.sent;
}

/* Return a member that has not left, or 0. A count would not do: those that were refused, or come now, leave as
 * well. */
static int who_stays(const tt__talk *t) {
    for (int id = 1; id < t->known; id++)
        if (t->of[id].card == TT__CARD_READ && !t->of[id].lost && !t->of[id].left)
            return id;
    return 0;
}

void tt__talk_wait_for_leavers(tt__talk *t) {
    int64_t deadline = tt__deadline_ms(t->nodes->member.job->heartbeat_ms);
    int n, id;
    while (!t->cut && !tt__talk_stopped(t) && (id = who_stays(t)) && tt__left_ms(deadline) > 0) {
        tt__talk_note_status(t, tt__talk_beat(t));
        if (t->cut || tt__talk_note_status(t, tt__talk_read_left(t, &n)) || who_stays(t) != id)
            continue;
        if (!tt__talk_is_connected(t, id)) /* a member that left early does not wait for the end */
            t->of[id].lost = true;
        else
            tt__sleep_ms(20);
    }
}

void tt__talk_fail_all(tt__talk *t, const char *text) {
    char kept[TT__ERROR_TEXT_SIZE];
    snprintf(kept, sizeof kept, "%s", text);
    tt__talk_announce_json(
        t, json_pack("{s:s, s:o, s:o}", "what", "failed", "text", tt__json_text(kept), "to", tt__talk_nonces(t)));
    tt__talk_wait_for_leavers(t);
    tt__talk_fail(t, kept);
}
