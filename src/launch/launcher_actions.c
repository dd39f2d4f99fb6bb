/* Carries out the machine's actions. */
#include "base/build.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/limits.h"
#include "launch/launcher_parts.h"
#include "launch/local/children.h"
#include "launch/polling.h"
#include "net/job/job_socket.h"
#include "store/server/renewal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef tt__launcher_state launcher;

/* ---- workers that survive the loss of others (tutti/elastic.h). They are not told to end when one is lost, or when
 * nodes come and go: they notice it, and wait for the next round. machine/attempt_states.c decides when that begins,
 * and which workers are killed because they don't come. net/job/job_socket.h has what they and we tell each
 * other. */

static bool read_recovery_words(const launcher *l, int i, tt__recovery *words) {
    size_t size = 0;
    const void *recorder = tt__watch_last_recorder(l->watch, i, &size);
    return recorder && tt__recovery_read(recorder, size, words);
}

tt__survivors tt__launcher_survivors(const launcher *l) {
    tt__survivors s = {.blamed = -1};
    uint32_t next = (uint32_t)l->job->recovery + 1;
    for (int i = 0; i < l->job->workers; i++) {
        tt__recovery words;
        s.starting += !l->workers[i].pid && !l->workers[i].ended;
        if (!l->workers[i].pid || l->workers[i].ended)
            continue;
        s.living++;
        if (!read_recovery_words(l, i, &words) || !words.recovers)
            continue;
        s.able++;
        if (words.wants_round != next && !TT__MUTANT(survivor_taken_for_waiting))
            continue;
        s.waiting++;
        if (words.lost)
            s.blamed = (int)(words.lost - 1);
    }
    return s;
}

bool tt__launcher_waits(const launcher *l, int i) {
    tt__recovery words;
    return read_recovery_words(l, i, &words) && words.wants_round == (uint32_t)l->job->recovery + 1;
}

/* Is worker `i` running, but not waiting for the next round? */
static bool is_late(const launcher *l, int i) {
    return l->workers[i].pid && !l->workers[i].ended && !tt__launcher_waits(l, i);
}

static void say_late_workers(launcher *l) {
    int first = -1, n = 0;
    for (int i = 0; i < l->job->workers; i++)
        if (is_late(l, i) && !n++)
            first = i;
    if (!n)
        return;
    char more[32] = "";
    if (n > 1)
        snprintf(more, sizeof more, " and %d more here", n - 1);
    tt__streams_print(&l->streams,
                      "tutti run: waiting for rank %d%s to come to the next round; who has not in %d s is killed",
                      l->job->first_rank + first, more, (tt__left_ms(l->machine.attempt.deadline_ms) + 999) / 1000);
}

/* Kill the workers that don't wait for the next round; only rank `rank`, unless it is -1. */
static void kill_late_workers(launcher *l, int rank) {
    int only = rank - l->job->first_rank;
    for (int i = 0; i < l->job->workers; i++) {
        if (!is_late(l, i) || (rank >= 0 && i != only))
            continue;
        l->workers[i].late = true;
        tt__keeper_kill_worker(&l->keeper, i);
    }
}

int tt__launcher_agreed_stop(const launcher *l, int i) {
    tt__recovery words;
    bool stopped = read_recovery_words(l, i, &words) && words.stopped_by > 0 && words.stopped_by < 128;
    return stopped && tt__end_code(l->workers[i].status) == 128 + (int)words.stopped_by ? (int)words.stopped_by : 0;
}

/* Tell worker `i` that the round job->recovery begins (TT__JOB_ROUND), that the next one is wanted, or that it won't
 * come. */
static void tell_worker(launcher *l, int i, tt__job_kind kind, const char *why) {
    int number = l->job->recovery + (kind != TT__JOB_ROUND);
    tt__job_round round = {.number = number - TT__MUTANT(told_number_of_round_before),
                           .rank = l->job->first_rank + i,
                           .world = l->job->world,
                           .port = l->job->master_port};
    snprintf(round.host, sizeof round.host, "%s", l->job->master_addr);
    snprintf(round.reason, sizeof round.reason, "%s", why);
    if (!tt__watch_tell_round(l->watch, i, kind, &round) && kind == TT__JOB_ROUND)
        tt__log(TT_LOG_WARNING, "rank %d can't be told that round %d begins", round.rank, number);
}

static void tell_running_workers(launcher *l, tt__job_kind kind, const char *why) {
    for (int i = 0; i < l->job->workers; i++)
        if (l->workers[i].pid && !l->workers[i].ended && (kind != TT__JOB_NO_ROUND || tt__launcher_waits(l, i)))
            tell_worker(l, i, kind, why);
}

/* ---- the workers */

/* Fail with this thread's last error when all actions have been carried out. */
static void fail_afterwards(launcher *l) {
    l->failure = tt_last_status();
    l->follow_up.kind = TT__ON_FAILURE;
}

void tt__launcher_close_pipes(launcher *l) {
    for (int i = 0; l->pipe_ends && i < l->job->workers; i++) {
        tt__close_fd(&l->pipe_ends[i]);
    }
}

/* Give pipes to the workers that are to be started. */
static tt_status renew_streams(launcher *l) {
    bool *kept = calloc((size_t)l->job->workers, sizeof *kept);
    if (!kept)
        return tt__fail(TT_ERR_MEMORY, "no memory for %d workers", l->job->workers);
    for (int i = 0; i < l->job->workers; i++)
        kept[i] = l->workers[i].pid != 0;
    tt_status status = tt__streams_renew(&l->streams, kept, l->pipe_ends);
    free(kept);
    return status;
}

/* Order the keeper to start the workers that are missing. */
static void order_start(launcher *l, bool again) {
    if (again && renew_streams(l)) {
        tt__fail_prefix("the workers can't be started again");
        fail_afterwards(l);
        return;
    }
    l->started = tt__moment_now();
    l->memory_kills = tt__cgroup_memory_kills("");
    if (l->job->look && l->job->look_ms)
        l->look_ms = tt__deadline_ms(l->job->look_ms);
    tt__watch_first_rank(l->watch, l->job->first_rank);
    for (int i = 0; i < l->job->workers; i++)
        l->streams.of[i].hidden = l->job->logs && l->job->logs->hidden[i];
    tt__follow_begin(l->follow);
    tt__keeper_send_place(&l->keeper, l->job);
    tt__keeper_start_workers(&l->keeper, l->job, l->pipe_ends);
    tt__launcher_close_pipes(l);
}

static void order_signal(launcher *l, int sig, tt__signal_scope scope) {
    static const tt__keeper_kind orders[] = {
        [TT__TO_WORKERS] = TT__KEEPER_SIGNAL, [TT__TO_LEFTOVERS] = TT__KEEPER_SWEEP, [TT__TO_OTHERS] = TT__KEEPER_PASS};
    tt__keeper_send(&l->keeper, orders[scope], sig);
}

/* Forget all that is known of workers that have ended. */
static void forget_attempt(launcher *l) {
    bool kept = l->machine.attempt.kept;
    for (int i = 0; i < l->job->workers; i++) {
        if (kept && !l->workers[i].ended)
            continue;
        tt__watchdog_forget(l, i);
        l->workers[i] = (tt__worker){0};
    }
    tt__ledger_clear(&l->machine.ledger);
    tt__snapshot_free(&l->remote);
    if (kept)
        return;
    tt__watchdog_forget_all(l);
    tt__watch_renew(l->watch);
    tt_store_free(l->store); /* its connection ends with those of the workers */
    l->store = NULL;
    l->store_failed = false;
}

/* Take what the attempt's processes have written and handed in, up to their end. */
static void take_last_words(launcher *l, int attempt, bool kept) {
    tt__log(TT_LOG_DEBUG, "nothing is left here of attempt %d%s", attempt + 1, kept ? " but ranks that go on" : "");
    for (int i = 0; i < l->job->workers; i++)
        tt__streams_drain(&l->streams, i);
    tt__watch_serve(l->watch);
}

/* ---- the user */

static void say_round(launcher *l) {
    const tt__round *round = l->machine.membership.round;
    char where[128];
    snprintf(where, sizeof where, "this is node %d, and node 0 (%s)", round->own, round->of[0].hostname);
    tt__streams_print(&l->streams, "tutti run: round %d begins on %d node%s, with %d rank%s: %s serves the store",
                      round->attempt + 1, round->n, round->n == 1 ? "" : "s", round->world,
                      round->world == 1 ? "" : "s", l->job->coordinates ? "this node, node 0," : where);
}

static void say_deposed(launcher *l) {
    l->job->coordinates = false;
    tt__streams_alarm(&l->streams,
                      "tutti run: etcd names another node than this one by now, which was silent or cut off: it leaves "
                      "its round");
}

/* ---- steps */

/* Carry out what concerns this node's workers. False: it is something else. */
static bool tell_workers(launcher *l, const tt__action *action) {
    switch (action->kind) {
    case TT__DO_START:
        order_start(l, action->start.again);
        break;
    case TT__DO_SIGNAL:
        order_signal(l, action->signal.sig, action->signal.scope);
        break;
    case TT__DO_KILL:
        tt__keeper_send(&l->keeper, TT__KEEPER_KILL, 0);
        break;
    case TT__DO_KILL_KEEPER:
        tt__keeper_kill(&l->keeper);
        break;
    case TT__DO_KILL_ORPHANS:
        tt__streams_print(&l->streams, "tutti run: the keeper process (pid %d) was killed: ending the job",
                          (int)l->keeper.pid);
        tt__children_kill(l->spared, l->spared_count, NULL, NULL, TT__KEEPER_KILL_MS);
        break;
    case TT__DO_KILL_LATE:
        kill_late_workers(l, action->late);
        break;
    case TT__DO_TELL_ROUND:
        tell_running_workers(l, TT__JOB_ROUND, l->why);
        break;
    case TT__DO_WANT_ROUND:
        tell_running_workers(l, TT__JOB_WANTED, l->why);
        break;
    case TT__DO_DENY_ROUND:
        tell_running_workers(l, TT__JOB_NO_ROUND, "no restarts are left (tutti run --max-restarts)");
        break;
    case TT__DO_READ_IDLE:
        if (!tt__watchdog_begin_idle_reading(l))
            l->follow_up.kind = TT__ON_IDLE_READ;
        break;
    case TT__DO_COLLECT:
        take_last_words(l, action->collect.attempt, action->collect.kept);
        break;
    case TT__DO_FORGET:
        forget_attempt(l);
        break;
    default:
        return false;
    }
    return true;
}

static bool tell_nodes(launcher *l, const tt__action *action) {
    switch (action->kind) {
    case TT__DO_PUBLISH_END:
        tt__launcher_publish_end(l, action->worker);
        break;
    case TT__DO_PUBLISH_NODE_END:
        tt__launcher_publish_end_of_node(l, action->node);
        break;
    case TT__DO_ANNOUNCE_GONE:
        tt__nodes_announce_gone(l->nodes, &action->gone);
        break;
    case TT__DO_ANNOUNCE_SUCCESS:
        tt__nodes_announce_success(l->nodes, action->attempt);
        break;
    case TT__DO_ANNOUNCE_REGROUP:
        tt__nodes_announce_regroup(l->nodes, action->say.attempt, action->say.text);
        break;
    case TT__DO_ANNOUNCE_LAST:
        tt__nodes_announce_last(l->nodes, action->attempt);
        break;
    case TT__DO_ANNOUNCE_SIGNAL:
        tt__nodes_announce_signal(l->nodes, action->signal.sig);
        break;
    case TT__DO_ANNOUNCE_DONE:
        if (l->nodes)
            tt__nodes_announce_done(l->nodes, NULL);
        break;
    case TT__DO_ORDER_ROUND:
        tt__nodes_order_round(l->nodes, &action->order.counts, action->order.renews ? l->server : NULL);
        break;
    case TT__DO_RENEW_STORE:
        if (l->server)
            tt__store_server_renew(l->server);
        break;
    case TT__DO_REJOIN:
        if (tt__launcher_rejoin(l))
            fail_afterwards(l);
        break;
    default:
        return false;
    }
    return true;
}

static bool tell_user(launcher *l, const tt__action *action) {
    switch (action->kind) {
    case TT__DO_SAY:
        tt__streams_print(&l->streams, "tutti run: %s", action->say.text);
        break;
    case TT__DO_ALARM:
        tt__streams_alarm(&l->streams, "tutti run: %s", action->say.text);
        break;
    case TT__DO_SAY_ROUND:
        say_round(l);
        break;
    case TT__DO_SAY_LATE:
        say_late_workers(l);
        break;
    case TT__DO_SAY_DEPOSED:
        say_deposed(l);
        break;
    case TT__DO_REPORT_LOST:
        tt__launcher_report_lost(l);
        break;
    case TT__DO_REPORT_ATTEMPT:
        tt__launcher_report_attempt(l, action->report.cause, action->report.recovers);
        break;
    case TT__DO_NOTE_WHY:
        snprintf(l->why, sizeof l->why, "%.*s", (int)sizeof l->why - 1, action->say.text);
        break;
    default:
        return false;
    }
    return true;
}

static void perform(launcher *l, const tt__action *action) {
    if (action->kind == TT__DO_NEXT)
        l->follow_up.kind = TT__ON_NEXT;
    else if (action->kind == TT__DO_FAIL)
        l->failure = tt__fail(TT_ERR_PEER, "%s", action->say.text);
    else if (!tell_workers(l, action) && !tell_nodes(l, action))
        tell_user(l, action);
}

/* Copy the machine's counts and round to the job. */
static void note_counts(launcher *l) {
    const tt__membership *me = &l->machine.membership;
    const tt__round *round = me->round;
    tt__job *job = l->job;
    job->attempt = me->counts.attempt;
    job->restarts = me->counts.restarts;
    job->recovery = me->counts.recovery;
    if (!round)
        return;
    job->node = round->own;
    job->nodes = round->n;
    job->world = round->world;
    job->first_rank = round->of[round->own].first_rank;
    job->first_role_rank = round->first_role_rank;
    job->role_world = round->role_world;
}

/* Log when ranks here begin to wait for another round. */
static void log_waiting(const launcher *l, const tt__attempt_state *before) {
    const tt__attempt_state *now = &l->machine.attempt;
    bool waits = now->phase == TT__SETTLING && now->settling != TT__FOR_REASONS && now->settling != TT__FOR_STACKS;
    bool waited = before->phase == TT__SETTLING && before->settling == now->settling;
    if (waits && !waited)
        tt__log(TT_LOG_DEBUG, "ranks here wait for another round, or are to");
}

static void one_step(launcher *l, tt__event *event) {
    tt__attempt_state before = l->machine.attempt;
    tt__surroundings around = {.now_ms = tt__now_ms(),
                               .realtime_ns = tt__moment_now().realtime_ns,
                               .listeners = tt__watch_listeners(l->watch),
                               .survivors = tt__launcher_survivors(l)};
    tt__actions actions;
    tt__machine_step(&l->machine, event, &around, &actions);
    note_counts(l);
    log_waiting(l, &before);
    for (int i = 0; i < actions.n; i++)
        perform(l, &actions.list[i]);
}

void tt__launcher_step(launcher *l, tt__event *event) {
    one_step(l, event);
    while (l->follow_up.kind != TT__ON_TIME) {
        tt__event next = l->follow_up;
        l->follow_up = (tt__event){.kind = TT__ON_TIME};
        one_step(l, &next);
    }
}
