/* A virtual rank's process: its number, its recorder, its connection to the launcher, the signals that it watches for.
 * Stands in for those parts of src/comm and src/elastic. */
#include "base/error.h"
#include "base/process/waits.h"
#include "sim/trainer.h"

#include "comm/record/recovery.h"
#include "comm/rendezvous/launcher_notes.h"
#include "comm/rendezvous/rendezvous.h"
#include "elastic/elastic.h"
#include "sim/descriptors.h"
#include "sim/groups.h"
#include "sim/history.h"
#include "sim/keeper.h"
#include "sim/verdict.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { WORKER_STREAM = 8 };

static const sim_plan *the_plan;
static int worker_count;
static sim_worker *all_workers;

sim_worker *sim_worker_now(void) {
    const sim_task *task = sim_task_now();
    sim_agent *agent = task ? sim_agent_now() : NULL;
    return agent && agent->is_worker ? (sim_worker *)(void *)agent : NULL;
}

/* ---- from its beginning to its end */

static void *worker_main(void *arg) {
    sim_worker *w = arg;
    int code = sim_worker_program(w);
    w->ended = true;
    sim_groups_lose(w, false);
    sim_keeper_worker_exits(w->agent.node, w, code);
    w->agent.state = SIM_ENDED;
    return NULL;
}

sim_worker *sim_worker_start(const sim_agent *launcher, int local, const sim_place *place) {
    sim_worker *w = sim_memory(calloc(1, sizeof *w));
    w->agent = *launcher;
    w->agent.is_worker = true;
    w->agent.state = SIM_UP;
    w->agent.frozen_until_ns = 0;
    w->agent.random = sim_stream(the_plan->seed, WORKER_STREAM, (uint64_t)++worker_count);
    w->number = worker_count;
    w->local = local;
    w->place = *place;
    w->socket = w->synced_round = -1;
    w->end = &w->first;
    w->model.seen = sim_memory(calloc((size_t)sim_examples(the_plan), 1));
    w->next = all_workers;
    all_workers = w;
    sim_task_start(&w->agent, worker_main, w, NULL);
    return w;
}

void sim_worker_kill(sim_worker *w, bool silent) {
    if (w->ended)
        return;
    w->ended = true;
    w->agent.state = SIM_CRASHED;
    sim_groups_lose(w, silent);
}

bool sim_worker_signal(sim_worker *w, int sig) {
    if (!w->watches || (sig != SIGTERM && sig != SIGUSR1))
        return false;
    w->stop = w->stop ? w->stop : sig;
    return true;
}

void sim_worker_stop(sim_worker *w, int64_t until_ns) {
    if (until_ns > w->agent.frozen_until_ns)
        w->agent.frozen_until_ns = until_ns;
}

static int count_stopped(const sim_round *round) {
    int n = 0;
    for (const sim_worker *w = all_workers; w; w = w->next)
        n += !w->ended && w->agent.frozen_until_ns > sim_now_ns() && sim_keeper_round(w->agent.node) == round;
    return n;
}

int64_t sim_workers_missed_by_none_until_ns(void) {
    int64_t until_ns = 0;
    for (const sim_worker *w = all_workers; w; w = w->next) {
        const sim_round *round = w->ended ? NULL : sim_keeper_round(w->agent.node);
        if (round && w->agent.frozen_until_ns > until_ns && round->good + count_stopped(round) == round->world)
            until_ns = w->agent.frozen_until_ns;
    }
    return until_ns;
}

bool sim_worker_waits(const sim_worker *w) { return w->said.wants_round != 0; }

/* ---- who it is */

tt_status tt__meeting_from_env(const tt__environment *environment, tt__meeting *meeting,
                               const tt_init_process_group_args *args) {
    const sim_worker *w = sim_worker_now();
    (void)environment;
    (void)args;
    *meeting = (tt__meeting){.rank = w->place.rank, .world = w->place.world};
    return TT_OK;
}

int tt__round_number(void) { return sim_worker_now()->place.round; }

void tt__round_move(const tt__seat *seat) {
    sim_worker_now()->place = (sim_place){seat->round, seat->rank, seat->world};
}

/* ---- what the launcher reads */

void tt__recovery_say(tt__recovery said) {
    sim_worker *w = sim_worker_now();
    tt__recovery_words *words = (void *)(w->recorder.bytes + TT__RECOVERY_AT);
    w->said = said;
    atomic_store(&words->recovers, said.recovers);
    atomic_store(&words->lost, said.lost);
    atomic_store(&words->stopped_by, said.stopped_by);
    atomic_store(&words->wants_round, said.wants_round);
    if (said.wants_round)
        sim_trace(w->agent.node, "worker %d waits for round %u", w->local, said.wants_round);
}

tt__recovery tt__recovery_said(void) { return sim_worker_now()->said; }

const void *sim_worker_recorder(const sim_worker *w, size_t *size) {
    *size = sizeof w->recorder.bytes;
    return w->recorder.bytes;
}

/* ---- what the launcher tells */

static void drop_packets(sim_worker *w) {
    for (sim_told *told; (told = w->first);) {
        w->first = told->next;
        free(told);
    }
    w->end = &w->first;
}

bool tt__standing_record_claim(void) { return true; }
void tt__standing_record_release(void) {}

void tt__standing_record_show(tt__standing_record *standing, int rank, int world) {
    sim_worker *w = sim_worker_now();
    (void)rank;
    (void)world;
    if (standing->socket >= 0)
        sim_fd_close(standing->socket);
    drop_packets(w);
    w->socket = standing->socket = sim_fd_new(SIM_FD_JOB, w);
    if (w->hung_up)
        sim_fd_put(w->socket);
    sim_keeper_show(w->agent.node, w);
}

tt_status tt__standing_record_open(tt__standing_record *standing, int rank, int world) {
    *standing = (tt__standing_record){.memory = -1, .socket = -1};
    tt__standing_record_show(standing, rank, world);
    return TT_OK;
}

void tt__standing_record_close(tt__standing_record *standing) {
    if (standing->socket >= 0)
        sim_fd_close(standing->socket);
    sim_worker_now()->socket = standing->socket = -1;
}

bool sim_worker_tell(sim_worker *w, tt__job_kind kind, const tt__job_round *round) {
    if (w->ended || w->socket < 0)
        return false;
    if (kind == TT__JOB_ROUND && !sim_worker_waits(w))
        sim_fail("two rounds", "launcher %d tells a rank of round %d, which still takes part in round %d",
                 w->agent.node, round->number, w->place.round);
    if (kind == TT__JOB_ROUND && round->number <= w->place.round)
        sim_fail("order", "launcher %d tells a rank of round %d, which has been in round %d", w->agent.node,
                 round->number, w->place.round);
    sim_trace(w->agent.node, "tells worker %d of round %d%s", w->local, round->number,
              kind == TT__JOB_WANTED ? ", which it wants" : "");
    sim_told *told = sim_memory(calloc(1, sizeof *told));
    told->packet.kind = (int32_t)kind;
    told->packet.round = *round;
    *w->end = told;
    w->end = &told->next;
    sim_fd_put(w->socket);
    sim_result->kept += kind == TT__JOB_ROUND;
    return true;
}

void sim_worker_hang_up(sim_worker *w) {
    w->hung_up = true;
    if (w->socket >= 0)
        sim_fd_put(w->socket);
}

int tt__standing_record_receive(int socket, tt__job_packet *packet, int ms) {
    sim_worker *w = sim_worker_now();
    struct pollfd one = {.fd = socket, .events = POLLIN};
    sim_told *told = tt__poll(&one, 1, ms) && socket == w->socket ? w->first : NULL;
    if (!told)
        return one.revents && w->hung_up ? -1 : 0;
    if (!(w->first = told->next))
        w->end = &w->first;
    sim_fd_take(socket);
    *packet = told->packet;
    free(told);
    return 1;
}

/* ---- signals, and its report */

void tt__stop_wish_begin(tt__stop_wish *wish) {
    wish->watching = true;
    sim_worker_now()->watches = true;
}

void tt__stop_wish_end(tt__stop_wish *wish) {
    wish->watching = false;
    sim_worker_now()->watches = false;
}

int tt__stop_wish_signal(const tt__stop_wish *wish) { return wish->watching ? sim_worker_now()->stop : 0; }

static void take_report(const char *message, bool secondary) {
    sim_worker *w = sim_worker_now();
    sim_trace(w->agent.node, "worker %d reports: %s", w->local, message);
    w->secondary = secondary;
}

void sim_trainers_begin(const sim_plan *plan) {
    the_plan = plan;
    tt__error_file_divert(take_report);
}
