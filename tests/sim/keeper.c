#include "sim/keeper.h"

#include "launch/local/error_files.h"
#include "launch/local/keeper.h"
#include "sim/checks.h"
#include "sim/cluster.h"
#include "sim/descriptors.h"
#include "sim/history.h"
#include "sim/network.h"
#include "sim/trainer.h"
#include "sim/verdict.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* FIRST_PID: no real process has such a number. */
enum { KEEPER_STREAM = 3, FIRST_PID = 1 << 23, PIDS_OF_NODE = 100, PATIENCE_MS = 20000 };

typedef struct worker {
    bool pending, running; /* pending: about to begin */
    bool left;             /* a process that it started is still there */
    bool secondary;        /* its report says that another one failed */
    int64_t error_s;       /* when its report says that it failed, by its node's clock; 0: no report */
    sim_conn *conn;
    int starts;          /* how often a worker of this number was started */
    sim_worker *process; /* in plans whose workers survive: the present process, or the last; NULL: none */
    sim_worker *shown;   /* the process whose recorder the launcher has */
    sim_place place;     /* the round and rank with which it begins */
} worker;

typedef struct message {
    struct message *next;
    tt__keeper_message m;
    bool secondary;
    int wants_round; /* the round that the ended worker was waiting for; 0: none */
} message;

typedef struct keeper {
    sim_agent *agent;
    int fd;
    bool dead, started, told_leftovers, told; /* `told`: a signal was sent to the workers */
    int attempt, first_rank, world, workers;
    int next_attempt; /* of the round that the launcher begins next */
    int recovery;     /* the present round, as workers that survive count */
    sim_round *round; /* NULL: none yet */
    int renewals;     /* the store's renewals when the round began */
    int64_t signal_s; /* when `told` became true */
    int64_t paused_until_ns;
    worker *of; /* (workers) */
    message *first, **end;
    sim_task *waiter;
    sim_random random;
} keeper;

/* Something that is to happen to a worker. */
typedef struct occasion {
    keeper *k;
    const sim_round *round;
    int local, attempt, status;
    int starts; /* `starts` of the worker when this was planned */
    bool secondary;
    void (*happen)(struct occasion *o);
} occasion;

static struct {
    const sim_plan *plan;
    int n;
    keeper *of; /* (n) */
} keepers;

void sim_keepers_begin(const sim_plan *plan, sim_agent *agents) {
    keepers.plan = plan;
    keepers.n = sim_plan_launchers(plan);
    keepers.of = sim_memory(calloc((size_t)keepers.n, sizeof *keepers.of));
    for (int k = 0; k < keepers.n; k++)
        keepers.of[k] = (keeper){.agent = &agents[k],
                                 .fd = -1,
                                 .dead = true,
                                 .end = &keepers.of[k].first,
                                 .random = sim_stream(plan->seed, KEEPER_STREAM, (uint64_t)k)};
}

static const sim_item *item_of(const keeper *k, sim_kind kind, int local, int attempt) {
    for (int i = 0; i < keepers.plan->n; i++) {
        const sim_item *item = &keepers.plan->items[i];
        if (item->kind == kind && item->node == k->agent->machine && item->local == local && item->attempt == attempt)
            return item;
    }
    return NULL;
}

/* ---- messages to the launcher */

static void tell(keeper *k, tt__keeper_kind kind, int local, int value, bool secondary) {
    message *new = sim_memory(malloc(sizeof *new));
    int pid = FIRST_PID + k->agent->node * PIDS_OF_NODE + 1 + local;
    *new = (message){.m = {.kind = (int32_t)kind, .worker = local}, .secondary = secondary};
    if (kind == TT__KEEPER_STARTED)
        new->m.started.pid = pid;
    if (kind == TT__KEEPER_NOT_STARTED)
        new->m = (tt__keeper_message){kind, local, .not_started = {.errnum = value, .pid = pid}};
    if (kind == TT__KEEPER_ENDED)
        new->m = (tt__keeper_message){kind, local, .ended = {value, k->told}};
    if (kind == TT__KEEPER_ENDED && k->of[local].process)
        new->wants_round = (int)k->of[local].process->said.wants_round;
    *k->end = new;
    k->end = &new->next;
    sim_fd_put(k->fd);
}

/* Does the worker run in a round? One that waits for the next round is in none. */
static bool is_at_work(const worker *w) { return w->running && !(w->process && sim_worker_waits(w->process)); }

int sim_keeper_alive(int node, int *attempt) {
    const keeper *k = &keepers.of[node];
    int alive = 0;
    for (int i = 0; k->of && i < k->workers; i++)
        alive += k->of[i].pending || is_at_work(&k->of[i]) || k->of[i].left;
    *attempt = k->attempt;
    return alive;
}

const sim_round *sim_keeper_round(int node) { return keepers.of[node].round; }

/* Tell the launcher when no process is left, or only processes that workers left behind. */
static void look_for_end(keeper *k) {
    bool left = false;
    if (!k->started || k->dead)
        return;
    for (int i = 0; i < k->workers; i++) {
        if (k->of[i].pending || k->of[i].running)
            return;
        left = left || k->of[i].left;
    }
    if (!left) {
        k->started = false;
        tell(k, TT__KEEPER_DONE, -1, 0, false);
        sim_cluster_reached(k->agent->node, SIM_FROM_GONE, k->attempt);
    } else if (!k->told_leftovers) {
        k->told_leftovers = true;
        tell(k, TT__KEEPER_LEFTOVERS, -1, 1, false);
    }
}

/* ---- what happens to workers */

static void occur(void *arg) {
    occasion *o = arg;
    if (o->k->paused_until_ns > sim_now_ns()) {
        sim_at(o->k->paused_until_ns + sim_below(&o->k->random, SIM_MS), occur, o);
        return;
    }
    const worker *w = &o->k->of[o->local];
    bool same = keepers.plan->recovers ? o->starts == w->starts : o->round == o->k->round;
    if (same && !o->k->agent->machine_dead)
        o->happen(o);
    free(o);
}

static void soon(keeper *k, int local, int64_t in_ns, void (*happen)(occasion *), int status, bool secondary) {
    occasion *o = sim_memory(malloc(sizeof *o));
    *o = (occasion){k, k->round, local, k->attempt, status, k->of[local].starts, secondary, happen};
    sim_at(sim_now_ns() + in_ns, occur, o);
}

static void react_to_failure(const keeper *from, bool silent);

static void leftover_ends(occasion *o) {
    o->k->of[o->local].left = false;
    look_for_end(o->k);
}

static void end_worker(keeper *k, int local, int status, bool secondary) {
    worker *w = &k->of[local];
    if (!w->running)
        return;
    const sim_item *leaves = item_of(k, SIM_LEAVES, local, k->attempt);
    w->running = false;
    k->round->good += !status;
    sim_trace(k->agent->node, "worker %d of attempt %d ends: status %#x%s", local, k->attempt, (unsigned)status,
              secondary ? ", secondary" : "");
    if (w->conn)
        sim_worker_says_goodbye(w->conn);
    w->conn = NULL;
    if (leaves && !k->dead) {
        w->left = true;
        soon(k, local, leaves->for_ms * SIM_MS, leftover_ends, 0, false);
    }
    if (!k->dead)
        tell(k, TT__KEEPER_ENDED, local, status, secondary);
    if (w->process)
        sim_worker_kill(w->process, false);
    if (status)
        react_to_failure(k, false);
    look_for_end(k);
}

static int64_t clock_s(const keeper *k) { return (SIM_EPOCH_NS + sim_now_ns() + k->agent->realtime_ns) / 1000000000; }

static void worker_reports(occasion *o) {
    if (o->k->of[o->local].running)
        o->k->of[o->local].error_s = clock_s(o->k);
}

static void worker_ends(occasion *o) { end_worker(o->k, o->local, o->status, o->secondary); }

/* End the worker, if it is still in the round for which this was planned. */
static void worker_fails(occasion *o) {
    if (o->round == o->k->round)
        worker_ends(o);
}

static void worker_stops(occasion *o) {
    if (o->round == o->k->round && o->k->of[o->local].process)
        sim_worker_stop(o->k->of[o->local].process, sim_now_ns() + o->status * SIM_MS);
}

static bool hangs(const keeper *k, int local) {
    const sim_item *item = item_of(k, SIM_REACTS, local, k->attempt);
    return item && (item->value == SIM_HANGS || item->value == SIM_IGNORES);
}

/* The worker succeeds, unless it hangs as another rank has failed. */
static void worker_is_done(occasion *o) {
    if (!o->round->failed || !hangs(o->k, o->local))
        end_worker(o->k, o->local, 0, false);
}

static void peer_failed(occasion *o) {
    const sim_item *item = item_of(o->k, SIM_REACTS, o->local, o->attempt);
    if (!item || item->value == SIM_REPORTS)
        end_worker(o->k, o->local, 1 << 8, true);
    else if (item->value == SIM_BREAKS)
        end_worker(o->k, o->local, 3 << 8, false);
    else if (item->value == SIM_SUCCEEDS)
        soon(o->k, o->local, keepers.plan->work_ms * SIM_MS, worker_ends, 0, false);
}

/* The ranks of the attempt notice that one has failed: soon, or after a while if its machine is gone. */
static void react_to_failure(const keeper *from, bool silent) {
    if (keepers.plan->recovers) /* these ranks notice by themselves */
        return;
    if (from->round)
        from->round->failed = true;
    for (int k = 0; k < keepers.n; k++) {
        keeper *other = &keepers.of[k];
        for (int i = 0; other->of && other->round == from->round && i < other->workers; i++)
            if (other->of[i].running)
                soon(other, i, sim_between(&other->random, silent ? 500 : 5, silent ? 3000 : 80) * SIM_MS, peer_failed,
                     0, false);
    }
}

static void gives_up(occasion *o) {
    if (!hangs(o->k, o->local))
        end_worker(o->k, o->local, 1 << 8, true);
}

/* All ranks have begun: let each succeed when its work is done. */
static void all_have_begun(const sim_round *round) {
    for (int k = 0; k < keepers.n; k++) {
        keeper *other = &keepers.of[k];
        for (int i = 0; other->of && other->round == round && i < other->workers; i++)
            if (other->of[i].running && !item_of(other, SIM_FAILS, i, round->attempt))
                soon(other, i, keepers.plan->work_ms * SIM_MS + sim_below(&other->random, 5 * SIM_MS), worker_is_done,
                     0, false);
    }
}

/* ---- a worker's use of the store: it counts itself, among those of its attempt alone */

/* May workers begin after their round has ended? Yes if a machine may have been away then: docs/testing.md. */
static bool may_be_late(void) {
    bool any = false;
    for (int k = 0; keepers.plan->elastic && k < sim_cluster_launchers(); k++)
        any = any || sim_cluster_disturbed_itself(k);
    return any;
}

static void worker_is_told(void *arg) {
    occasion *o = arg;
    worker *w = &o->k->of[o->local];
    if (o->round != o->k->round || !w->conn || sim_conn_is_broken(w->conn))
        return;
    tt__bytes *inbox = sim_conn_inbox(w->conn);
    if (sim_conn_is_open(w->conn) && !o->secondary) { /* here: it has asked already */
        o->secondary = true;
        sim_worker_counts_itself(w->conn);
    }
    if (inbox->size < 8)
        return;
    uint64_t arrived = tt__store_number(inbox->data, 8);
    tt__bytes_consume(inbox, 8);
    if (arrived > (uint64_t)o->k->world && !may_be_late())
        sim_fail("fresh store", "worker %d of node %d is number %llu of %d in attempt %d: the store is not fresh",
                 o->local, o->k->agent->node, (unsigned long long)arrived, o->k->world, o->attempt);
}

/* ---- starting */

/* Plan what happens to a surviving worker in the round that begins. */
static void foresee(keeper *k, int local) {
    const sim_item *fails = item_of(k, SIM_FAILS, local, k->attempt), *stops = item_of(k, SIM_STOPS, local, k->attempt);
    if (fails)
        soon(k, local, fails->at_ms * SIM_MS, worker_fails, fails->value, false);
    if (stops)
        soon(k, local, stops->at_ms * SIM_MS, worker_stops, (int)stops->for_ms, false);
}

static void begin_worker(occasion *o) {
    keeper *k = o->k;
    worker *w = &k->of[o->local];
    const sim_item *item = item_of(k, SIM_NOT_EXECUTABLE, o->local, o->attempt);
    if (k->dead || !w->pending)
        return;
    w->pending = false;
    w->running = true;
    if (item) {
        tell(k, TT__KEEPER_NOT_STARTED, o->local, item->value, false);
        soon(k, o->local, SIM_MS / 2, worker_ends, 127 << 8, false);
        return;
    }
    tell(k, TT__KEEPER_STARTED, o->local, 0, false);
    sim_check_alone(k->agent->node, o->attempt);
    if (keepers.plan->recovers) {
        w->process = sim_worker_start(k->agent, o->local, &w->place);
        foresee(k, o->local);
        return;
    }
    occasion *asking = sim_memory(malloc(sizeof *asking));
    *asking = (occasion){.k = k, .round = k->round, .local = o->local, .attempt = o->attempt};
    w->conn = sim_connect(k->agent->node, k->renewals, worker_is_told, asking);
    if ((item = item_of(k, SIM_FAILS, o->local, o->attempt)))
        soon(k, o->local, (item->at_ms + item->for_ms) * SIM_MS, worker_ends, item->value, false);
    if (item && item->for_ms)
        soon(k, o->local, item->at_ms * SIM_MS, worker_reports, 0, false);
    soon(k, o->local, PATIENCE_MS * SIM_MS, gives_up, 0, false);
    k->round->begun++;
    if (k->round->failed) /* the round has failed: this worker can't join the others */
        soon(k, o->local, sim_between(&k->random, 500, 3000) * SIM_MS, peer_failed, 0, false);
    else if (k->round->begun == k->world)
        all_have_begun(k->round);
}

static void keeper_exits(void *arg) {
    keeper *k = arg;
    k->dead = true;
    sim_wake(k->waiter);
}

/* ---- the product's calls */

static keeper *own(void) { return &keepers.of[sim_agent_now()->node]; }

tt_status tt__keeper_start(tt__keeper *launchers, tt__job *job) {
    keeper *k = own();
    k->fd = sim_fd_new(SIM_FD_KEEPER, k);
    k->dead = false;
    k->attempt = -1;
    k->workers = job->workers;
    k->of = sim_memory(calloc((size_t)job->workers, sizeof *k->of));
    *launchers = (tt__keeper){.pid = FIRST_PID + k->agent->node * PIDS_OF_NODE, .socket = k->fd};
    return TT_OK;
}

void tt__keeper_send_place(const tt__keeper *launchers, const tt__job *job) {
    (void)launchers;
    keeper *k = own();
    k->first_rank = job->first_rank;
    k->world = job->world;
}

void tt__keeper_kill_worker(const tt__keeper *launchers, int i) {
    (void)launchers;
    keeper *k = own();
    sim_trace(k->agent->node, "tells its workers: SIGKILL to number %d", i);
    if (k->of[i].running && !k->dead)
        soon(k, i, sim_between(&k->random, 100, 1000) * 1000, worker_ends, SIGKILL, false);
}

void tt__keeper_start_workers(const tt__keeper *launchers, const tt__job *job, const int *stderr_ends) {
    (void)launchers;
    (void)stderr_ends;
    keeper *k = own();
    int before;
    if (sim_keeper_alive(k->agent->node, &before))
        sim_fail("alone", "node %d starts attempt %d while processes of attempt %d are there", job->node,
                 k->next_attempt, before);
    k->round = sim_round_of(k->agent->generation, k->next_attempt, k->world);
    k->renewals = sim_store_renewals();
    sim_note_start(&(sim_start){k->agent->node, k->next_attempt, k->first_rank, job->workers, k->world, sim_now_ns(),
                                k->agent->generation, job->restarts, job->nodes});
    sim_check_start(&sim_seen.starts[sim_seen.start_count - 1]);
    sim_cluster_reached(k->agent->node, SIM_FROM_START, k->next_attempt);
    k->attempt = k->next_attempt;
    k->recovery = job->recovery;
    k->started = !k->dead;
    k->told_leftovers = k->told = false;
    for (int i = 0; i < k->workers; i++) {
        if (k->of[i].running) { /* this worker is kept */
            sim_check_alone(k->agent->node, k->attempt);
            foresee(k, i);
            continue;
        }
        k->of[i] = (worker){.pending = true, .starts = k->of[i].starts + 1, .shown = k->of[i].shown};
        k->of[i].place = (sim_place){job->recovery, k->first_rank + i, k->world};
        soon(k, i, sim_between(&k->random, 500, 8000) * 1000, begin_worker, 0, false);
    }
}

static void note_told(keeper *k) {
    k->signal_s = k->told ? k->signal_s : clock_s(k);
    k->told = true;
}

static void signal_workers(keeper *k, int sig) {
    for (int i = 0; i < k->workers; i++) {
        const sim_item *item = item_of(k, SIM_REACTS, i, k->attempt);
        if (k->of[i].process && k->of[i].running && sim_worker_signal(k->of[i].process, sig))
            continue;
        if ((k->of[i].pending || k->of[i].running) && !(item && item->value == SIM_IGNORES))
            soon(k, i, sim_between(&k->random, 10, 150) * SIM_MS, worker_ends,
                 sim_chance(&k->random, 50) ? sig : (128 + sig) << 8, false);
    }
}

static void killed_by_keeper(occasion *o) {
    worker *w = &o->k->of[o->local];
    w->running = w->running || w->pending;
    w->pending = false;
    end_worker(o->k, o->local, SIGKILL, false);
    w->left = false;
    look_for_end(o->k);
}

static void kill_workers(keeper *k) {
    for (int i = 0; k->of && i < k->workers; i++)
        if (k->of[i].pending || k->of[i].running || k->of[i].left)
            soon(k, i, sim_between(&k->random, 100, 5000) * 1000, killed_by_keeper, 0, false);
}

/* Kill all workers, and don't start those that are pending. */
static void keeper_kills(keeper *k) {
    bool any = false;
    for (int i = 0; i < k->workers; i++)
        any = any || k->of[i].pending || k->of[i].running || k->of[i].left;
    if (any)
        kill_workers(k);
    else
        look_for_end(k);
}

/* No launcher tells surviving workers to end while the job can go on. */
static void check_kept(const keeper *k) {
    for (int i = 0; i < k->workers; i++) {
        const worker *w = &k->of[i];
        if (w->running && w->process && w->process->made > 0)
            sim_check_kept(k->agent->node, w->process);
    }
}

bool tt__keeper_send(const tt__keeper *launchers, tt__keeper_kind kind, int value) {
    (void)launchers;
    keeper *k = own();
    if (k->dead)
        return false;
    const char *how = kind == TT__KEEPER_KILL ? "SIGKILL to all" : kind == TT__KEEPER_SWEEP ? "leftovers" : "all";
    sim_trace(k->agent->node, "signals its workers: %s, %d", how, value);
    if (kind == TT__KEEPER_SIGNAL || kind == TT__KEEPER_KILL)
        check_kept(k);
    if (kind == TT__KEEPER_SIGNAL || kind == TT__KEEPER_PASS) {
        note_told(k);
        signal_workers(k, value);
    } else if (kind == TT__KEEPER_SWEEP) {
        for (int i = 0; i < k->workers; i++)
            if (k->of[i].left)
                soon(k, i, sim_between(&k->random, 1, 50) * SIM_MS, leftover_ends, 0, false);
    } else if (kind == TT__KEEPER_KILL && k->started) {
        note_told(k);
        keeper_kills(k);
    }
    return true;
}

int tt__keeper_receive(const tt__keeper *launchers, tt__keeper_message *m) {
    (void)launchers;
    keeper *k = own();
    message *first = k->first;
    if (!first)
        return k->dead ? -1 : 0;
    if (!(k->first = first->next))
        k->end = &k->first;
    sim_fd_take(k->fd);
    *m = first->m;
    if (m->kind == TT__KEEPER_ENDED) {
        const sim_item *item = item_of(k, SIM_NOT_EXECUTABLE, m->worker, k->attempt);
        k->of[m->worker].secondary = first->secondary;
        sim_note_end(&(sim_end){k->agent->node, k->attempt, k->first_rank + m->worker, m->ended.status,
                                item ? item->value : 0, k->round, first->secondary, k->told,
                                first->wants_round > k->recovery, sim_now_ns() + k->agent->realtime_ns,
                                k->of[m->worker].error_s, k->signal_s});
    }
    free(first);
    return 1;
}

void tt__job_error_file_read(const tt__job *job, int i, tt__worker *w) {
    (void)job;
    w->secondary = own()->of[i].secondary;
    w->error_s = own()->of[i].error_s;
    w->message = NULL;
}

/* ---- workers that survive */

void sim_keeper_worker_exits(int node, const sim_worker *w, int code) {
    keeper *k = &keepers.of[node];
    if (k->of[w->local].process == w)
        end_worker(k, w->local, code << 8, w->secondary);
}

sim_worker *sim_keeper_shown(int node, int i) { return keepers.of[node].of[i].shown; }

void sim_keeper_show(int node, sim_worker *w) {
    keepers.of[node].of[w->local].shown = w;
    sim_fd_put(keepers.of[node].agent->watch_fd);
}

void sim_keeper_note_round(int node, int attempt) { keepers.of[node].next_attempt = attempt; }

void sim_keeper_forget_shown(int node) {
    for (int i = 0; i < keepers.of[node].workers; i++)
        keepers.of[node].of[i].shown = NULL;
}

/* ---- deaths */

/* The launcher's end of the socket is closed: kill all that is left, and end. */
static void orphaned(keeper *k) {
    if (k->dead)
        return;
    for (int i = 0; i < k->workers; i++)
        if (k->of[i].process)
            sim_worker_hang_up(k->of[i].process);
    kill_workers(k);
    k->started = false;
    sim_at(sim_now_ns() + 10 * SIM_MS, keeper_exits, k);
}

void sim_keeper_closed(void *owner) { orphaned(owner); }
void sim_keeper_orphaned(int node) { orphaned(&keepers.of[node]); }

void sim_keeper_killed(int node) {
    keeper *k = &keepers.of[node];
    if (k->dead)
        return;
    kill_workers(k); /* as the kernel does when the keeper dies */
    keeper_exits(k);
    sim_fd_put(k->fd);
}

void sim_keeper_machine_gone(int node) {
    keeper *k = &keepers.of[node];
    for (int i = 0; k->of && i < k->workers; i++) {
        if (k->of[i].process)
            sim_worker_kill(k->of[i].process, true);
        k->of[i] = (worker){.starts = k->of[i].starts + 1};
    }
    k->dead = true;
    react_to_failure(k, true);
}

void sim_keeper_paused(int node, int64_t until_ns) {
    keeper *k = &keepers.of[node];
    if (until_ns > k->paused_until_ns)
        k->paused_until_ns = until_ns;
    for (int i = 0; k->of && i < k->workers; i++)
        if (k->of[i].process)
            sim_worker_stop(k->of[i].process, until_ns);
}

void tt__keeper_kill(const tt__keeper *launchers) {
    (void)launchers;
    sim_keeper_killed(own()->agent->node);
}

void tt__keeper_dismiss(tt__keeper *launchers) {
    sim_fd_close(launchers->socket);
    launchers->socket = -1;
}

void tt__keeper_wait(const tt__keeper *launchers, int64_t timeout_ms) {
    keeper *k = own();
    (void)timeout_ms;
    while (launchers->pid && !k->dead) {
        k->waiter = sim_task_now();
        sim_wait(SIM_NEVER);
    }
}
