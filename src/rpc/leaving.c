/* Leaving: waiting until no call is under way, of all workers of a group or of this one alone. */
#include "rpc/leaving.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "rpc/calls/sending.h"
#include "rpc/functions/serving.h"
#include "rpc/threads/waiting.h"

#include <stdio.h>

static bool worker_is_there(tt_rpc *rpc, int id) {
    const tt__rpc_peer *peer = tt__rpc_peer_of(rpc, id);
    return peer && !peer->lost;
}

static int leader_of(tt_rpc *rpc) {
    int id = 0;
    while (id != rpc->id && !worker_is_there(rpc, id))
        id++;
    return id;
}

static bool has_no_calls(const tt_rpc *rpc) { return !rpc->counters.calls && !rpc->counters.serving; }

/* Count the calls of this worker to, and from, workers that are not lost. */
static void count_calls(tt_rpc *rpc, uint64_t *sent, uint64_t *received) {
    *sent = *received = 0;
    for (int id = 0; id < rpc->peer_end; id++)
        if (rpc->peers[id] && !rpc->peers[id]->lost) {
            *sent += rpc->peers[id]->calls_sent;
            *received += rpc->peers[id]->calls_received;
        }
}

static uint32_t count_there(tt_rpc *rpc) {
    uint32_t n = 0;
    for (int id = rpc->network->ops->next(rpc->network, -1); id >= 0; id = rpc->network->ops->next(rpc->network, id))
        n += worker_is_there(rpc, id);
    return n;
}

/* Return the id of a lost worker; -1: none is lost. */
static int lost_one(const tt_rpc *rpc) {
    for (int id = 0; id < rpc->peer_end; id++)
        if (rpc->peers[id] && rpc->peers[id]->lost)
            return id;
    return -1;
}

/* ---- the leader */

static void say_to_all(tt_rpc *rpc, tt__rpc_header header) {
    for (int id = rpc->network->ops->next(rpc->network, -1); id >= 0; id = rpc->network->ops->next(rpc->network, id))
        if (id != rpc->id && worker_is_there(rpc, id))
            tt_ignore(tt__rpc_send_header(rpc, id, header));
}

static void add_answer(tt_rpc *rpc, uint64_t sent, uint64_t received) {
    rpc->wave_sent += sent;
    rpc->wave_received += received;
    rpc->waves_answered++;
}

static void note_wave(tt_rpc *rpc, tt__rpc_peer *from, uint32_t wave) {
    rpc->waves_asked += (wave != 0) - (from->asked_wave != 0);
    from->asked_wave = wave;
}

static void begin_wave(tt_rpc *rpc) {
    rpc->wave++;
    rpc->waves_answered = 0;
    rpc->wave_sent = rpc->wave_received = 0;
    note_wave(rpc, rpc->peers[rpc->id], rpc->wave);
    say_to_all(rpc, (tt__rpc_header){.kind = TT__RPC_WAVE, .id = rpc->wave});
}

/* If all have answered the wave, send END, or begin another wave. */
static void judge_wave(tt_rpc *rpc) {
    bool still = rpc->wave_repeats && rpc->wave_sent == rpc->last_sent && rpc->wave_received == rpc->last_received;
    if (rpc->waves_answered < count_there(rpc))
        return;
    if (still && rpc->wave_sent == rpc->wave_received) {
        rpc->ended_without = lost_one(rpc) + 1;
        say_to_all(rpc, (tt__rpc_header){.kind = TT__RPC_END, .serial = (uint64_t)rpc->ended_without});
        rpc->may_end = true;
        return;
    }
    rpc->last_sent = rpc->wave_sent;
    rpc->last_received = rpc->wave_received;
    rpc->wave_repeats = true;
    begin_wave(rpc);
}

/* ---- all workers */

/* Answer the waves that were asked, if this worker has no call under way and has called tt_rpc_shutdown(). Workers may
 * differ in who leads, so any worker may have asked. */
static void answer_waves(tt_rpc *rpc) {
    uint64_t sent, received;
    if (!rpc->waves_asked || !rpc->leaving || !has_no_calls(rpc))
        return;
    count_calls(rpc, &sent, &received);
    for (int id = 0; id < rpc->peer_end; id++) {
        uint32_t wave = rpc->peers[id] ? rpc->peers[id]->asked_wave : 0;
        if (!wave)
            continue;
        rpc->peers[id]->asked_wave = 0;
        if (id == rpc->id)
            add_answer(rpc, sent, received);
        else
            tt_ignore(tt__rpc_send_header(
                rpc, id, (tt__rpc_header){.kind = TT__RPC_IDLE, .id = wave, .context = sent, .message = received}));
    }
    rpc->waves_asked = 0;
}

tt_status tt__leaving_told(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_header *header) {
    if (rpc->network->comes_and_goes)
        return tt__fail(TT_ERR_PROTOCOL,
                        "it sent a packet of workers that leave together, but workers of a store leave one by one");
    switch ((tt__rpc_packet_kind)header->kind) {
    case TT__RPC_LEAVING:
        from->leaving = true;
        break;
    case TT__RPC_WAVE:
        note_wave(rpc, from, header->id);
        break;
    case TT__RPC_IDLE:
        if (rpc->wave && header->id == rpc->wave && from->idle_wave != rpc->wave) {
            from->idle_wave = rpc->wave;
            add_answer(rpc, header->context, header->message);
        }
        break;
    default: /* END. Who leads depends on who is lost, which this worker may see later than the sender */
        from->says_end = true;
        from->end_without = header->serial <= (uint64_t)rpc->peer_room ? (int)header->serial : 0;
        rpc->end_said |= leader_of(rpc) == from->id;
    }
    if (rpc->sleepers)
        pthread_cond_broadcast(&rpc->changed);
    return TT_OK;
}

/* Check a leader's END, as far as this worker can: each worker says LEAVING to all before it answers a leader's
 * wave. */
static bool all_are_idle(tt_rpc *rpc) {
    for (int id = rpc->network->ops->next(rpc->network, -1); id >= 0; id = rpc->network->ops->next(rpc->network, id))
        if (id != rpc->id && worker_is_there(rpc, id) && !rpc->peers[id]->leaving)
            return false;
    return has_no_calls(rpc);
}

/* The leader has sent END: may this worker leave? */
static bool may_end_by(tt_rpc *rpc, const tt__rpc_peer *leader) {
    rpc->end_said = true;
    rpc->ended_by = leader->id + 1;
    rpc->ended_without = leader->end_without;
    return rpc->may_end = all_are_idle(rpc);
}

/* Do what is to be done next towards the end. Returns whether this worker may leave. */
static bool together_over(void *arg) {
    tt_rpc *rpc = arg;
    if (rpc->may_end)
        return true;
    int leader = leader_of(rpc);
    bool leads = leader == rpc->id;
    if (!leads && rpc->peers[leader]->says_end)
        return may_end_by(rpc, rpc->peers[leader]);
    uint32_t there = leads ? count_there(rpc) : 0;
    if (leads && (!rpc->wave || rpc->wave_led_for != there)) { /* it leads now, or somebody was lost meanwhile */
        rpc->wave_led_for = there;
        rpc->wave_repeats = false;
        begin_wave(rpc);
    }
    answer_waves(rpc);
    if (leads)
        judge_wave(rpc);
    answer_waves(rpc);
    return rpc->may_end;
}

/* Write a list of the workers that have not called tt_rpc_shutdown(): "worker1 (id 1), worker3 (id 3)". Returns how
 * many. */
static int list_absent(tt_rpc *rpc, char *text, size_t size) {
    int count = 0;
    size_t n = 0;
    *text = '\0';
    for (int id = rpc->network->ops->next(rpc->network, -1); id >= 0; id = rpc->network->ops->next(rpc->network, id)) {
        char who[TT__RPC_WHO_SIZE];
        if (id == rpc->id || !worker_is_there(rpc, id) || rpc->peers[id]->leaving)
            continue;
        if (n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s", count ? ", " : "", tt__rpc_who(rpc, id, who));
        count++;
    }
    return count;
}

static tt_status fail_calls(tt_rpc *rpc, int64_t since_ms, const char *others) {
    char running[400];
    bool any = tt__serve_list_running(rpc, running, sizeof running);
    return tt__fail(TT_ERR_TIMEOUT,
                    "tt_rpc_shutdown: worker %s waited %lld ms for calls that are still under way: %lld of its own, "
                    "%lld that it serves%s%s%s%s",
                    rpc->name, (long long)(tt__now_ms() - since_ms), (long long)rpc->counters.calls,
                    (long long)rpc->counters.serving, any ? " (" : "", running, any ? ")" : "", others);
}

static tt_status fail_leaving(tt_rpc *rpc, int64_t since_ms) {
    char absent[400];
    long long waited = (long long)(tt__now_ms() - since_ms);
    if (list_absent(rpc, absent, sizeof absent))
        return tt__fail(TT_ERR_TIMEOUT,
                        "tt_rpc_shutdown: worker %s waited %lld ms for worker %s, which did not call tt_rpc_shutdown()",
                        rpc->name, waited, absent);
    return fail_calls(rpc, since_ms, ", and those of others");
}

/* Fail if a worker was lost. A worker that made no calls learns of it only here, perhaps only by the leader's END. */
static tt_status fail_without(tt_rpc *rpc) {
    char who[TT__RPC_WHO_SIZE], leader[TT__RPC_WHO_SIZE];
    int lost = lost_one(rpc);
    if (lost >= 0 && !rpc->peers[lost]->leaving) {
        tt_ignore(tt__rpc_fail_lost(rpc->peers[lost]));
        return tt__fail(tt_last_status(), "%s, without waiting in tt_rpc_shutdown()", tt_last_error());
    }
    if (lost >= 0)
        return tt__rpc_fail_lost(rpc->peers[lost]);
    if (!rpc->ended_without)
        return TT_OK;
    return tt__fail(TT_ERR_PEER, "worker %s: it was lost, as worker %s says",
                    tt__rpc_who(rpc, rpc->ended_without - 1, who),
                    tt__rpc_who(rpc, rpc->ended_by ? rpc->ended_by - 1 : rpc->id, leader));
}

tt_status tt__leave_together(tt_rpc *rpc, int64_t deadline_ms) {
    int64_t since_ms = tt__now_ms();
    say_to_all(rpc, (tt__rpc_header){.kind = TT__RPC_LEAVING});
    if (!tt__rpc_wait_aside(rpc, together_over, rpc, deadline_ms))
        return fail_leaving(rpc, since_ms);
    return fail_without(rpc);
}

static bool alone_over(void *arg) { return has_no_calls(arg); }

tt_status tt__leave_alone(tt_rpc *rpc, int64_t deadline_ms) {
    int64_t since_ms = tt__now_ms();
    if (tt__rpc_wait_aside(rpc, alone_over, rpc, deadline_ms))
        return TT_OK;
    return fail_calls(rpc, since_ms, "");
}
