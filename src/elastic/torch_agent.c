#include "elastic/torch_agent.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/threads.h"
#include "elastic/torch_meeting.h"
#include "net/net.h"
#include "store/renewal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* How often the store is asked: with many nodes less often, as the state grows with them. */
enum { ASK_MIN_MS = 100, ASK_PER_NODE_MS = 10, ASK_MAX_MS = 1000, RETRY_MS = 200 };
enum { CONNECT_MS = 2000, QUIET_MS = 3000, SAYS_NOTHING_MS = 2000, LEAVE_MS = 5000, MAX_EVENTS = 8 };

typedef enum phase { CONNECTING, LEAVING, JOINING, NUMBERING, RUNNING, ENDING, CLOSING, OVER } phase;
typedef enum order { NO_ORDER, AGAIN, FINISH, FINISH_FAILED, LEAVE, STOP } order;

struct tt__torch_agent {
    tt__torch_config config;
    pthread_t thread;
    bool started;
    int events_fd, wake_fd;
    pthread_mutex_t lock;
    order order; /* guarded by the lock, as are the events */
    tt__torch_event events[MAX_EVENTS];
    size_t first_event, event_count;

    /* Of the thread. */
    phase phase;
    int64_t deadline_ms, began_ms; /* of the phase */
    int64_t next_beat_ms;
    bool told_waiting, told_change, failed, leaves;
    tt_store *store;
    tt__torch_meeting meeting;
    tt__torch_round round;
    tt__torch_assignment assignment;
    tt_store_server *server;                 /* of the workers' store, while or since this was agent 0 */
    tt__torch_node master;                   /* agent 0 of the round in which assignment.master_addr was told */
    bool knows_master, has_place, has_ranks; /* the latter of the round that is numbered */
    tt__torch_node *participants;            /* of the round */
};

/* ---- events */

static void wake(int fd) {
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) /* it is full: whoever waits is awake */
        return;
}

static void post(tt__torch_agent *a, tt__torch_kind kind, const char *text) {
    pthread_mutex_lock(&a->lock);
    if (a->event_count == MAX_EVENTS) { /* a reader that has not come: FAILED and OVER, the last, must not be lost */
        a->first_event = (a->first_event + 1) % MAX_EVENTS;
        a->event_count--;
    }
    tt__torch_event *event = &a->events[(a->first_event + a->event_count++) % MAX_EVENTS];
    *event = (tt__torch_event){.kind = kind, .assignment = a->assignment};
    snprintf(event->text, sizeof event->text, "%s", text ? text : "");
    pthread_mutex_unlock(&a->lock);
    wake(a->events_fd);
}

bool tt__torch_agent_next(tt__torch_agent *a, tt__torch_event *event) {
    uint64_t count;
    pthread_mutex_lock(&a->lock);
    bool there = a->event_count > 0;
    if (there) {
        *event = a->events[a->first_event];
        a->first_event = (a->first_event + 1) % MAX_EVENTS;
        a->event_count--;
    } else if (read(a->events_fd, &count, sizeof count) < 0) {
        count = 0;
    }
    pthread_mutex_unlock(&a->lock);
    return there;
}

int tt__torch_agent_fd(const tt__torch_agent *a) { return a->events_fd; }

static void enter(tt__torch_agent *a, phase phase, int64_t timeout_ms) {
    a->phase = phase;
    a->began_ms = tt__now_ms();
    a->deadline_ms = tt__deadline_ms(timeout_ms);
}

static void agent_fail(tt__torch_agent *a) {
    post(a, TT__TORCH_FAILED, tt_last_error());
    enter(a, OVER, 0);
}

static void be_over(tt__torch_agent *a, const char *text) {
    post(a, TT__TORCH_OVER, text);
    enter(a, OVER, 0);
}

/* ---- steps of the phases. True: the next step can be taken at once. */

static bool is_past(const tt__torch_agent *a) { return tt__now_ms() > a->deadline_ms; }

static bool step_connecting(tt__torch_agent *a) {
    tt_status status = tt_tcp_store(&a->store, a->config.host, a->config.port, .timeout_ms = CONNECT_MS,
                                    .dialect = TT_STORE_TORCH_ANY, .torch_server = true);
    if (status == TT_ERR_TIMEOUT && !is_past(a)) {
        char text[400];
        snprintf(text, sizeof text, "waiting for the rendezvous' store at %s:%d", a->config.host, a->config.port);
        if (!a->told_waiting)
            post(a, TT__TORCH_WAITS, text);
        a->told_waiting = true;
        return true;
    }
    if (!status) {
        tt_store_set_timeout_ms(a->store, a->config.read_ms);
        a->meeting.store = a->store;
        status = tt__torch_meeting_open(&a->meeting, a->config.run_id);
    }
    if (status) {
        agent_fail(a);
        return false;
    }
    a->phase = LEAVING; /* the deadline stays */
    return true;
}

/* Take a step at the rendezvous; false: it failed. */
static bool take_step(tt__torch_agent *a, tt__torch_verdict (*operation)(const tt__torch_step *), bool *restart_clock,
                      tt__torch_verdict *verdict) {
    int64_t late_ms = tt__now_ms() - a->deadline_ms;
    if (!tt__torch_meeting_step(&a->meeting, operation, late_ms, restart_clock, verdict) &&
        *verdict != TT__TORCH_NO_ROOM)
        return true;
    agent_fail(a);
    return false;
}

/* This node has taken its name back already. */
static void fail_incomplete(tt__torch_agent *a) {
    int others = tt__torch_participants(&a->meeting.state);
    tt__fail(TT_ERR_TIMEOUT,
             "the rendezvous \"%.60s\" was not complete within %lld s: %d other node%s came, expected %d at least "
             "(--nnodes); nodes need the same --rdzv-id and --rdzv-endpoint",
             a->config.run_id, (long long)a->config.join_ms / 1000, others, others == 1 ? "" : "s",
             a->config.settings.min_nodes - 1);
    agent_fail(a);
}

static const tt__torch_node *first_in_state(const tt__torch_state *state) {
    const tt__torch_node *first = NULL;
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].participant && (!first || tt__torch_node_compare(&state->members[i].node, first) < 0))
            first = &state->members[i].node;
    return first;
}

/* Whoever comes late must not become agent 0: agents of 2.x ask once where the workers meet, and stay with it. '~' is
 * behind all that names of hosts have. */
static void line_up_behind(tt__torch_agent *a) {
    tt__torch_node *own = &a->meeting.node;
    const tt__torch_state *state = &a->meeting.state;
    const tt__torch_node *first = first_in_state(state);
    size_t length = strlen(own->address);
    if (!state->complete || state->times == TT__TORCH_NAIVE || !first || tt__torch_node_compare(own, first) > 0 ||
        length + 2 > sizeof own->address)
        return;
    memmove(own->address + 1, own->address, length + 1);
    own->address[0] = '~';
}

static bool step_leaving(tt__torch_agent *a) {
    tt__torch_verdict verdict;
    if (!take_step(a, a->leaves ? tt__torch_depart : tt__torch_leave, NULL, &verdict))
        return false;
    if (a->leaves && verdict != TT__TORCH_WRITE)
        be_over(a, NULL);
    else if (verdict == TT__TORCH_LATE)
        fail_incomplete(a);
    else if (verdict == TT__TORCH_FINISHED)
        a->phase = JOINING;
    if (a->phase == JOINING && !a->knows_master)
        line_up_behind(a);
    return true;
}

/* Note who takes part in the round that is complete. */
static tt_status take_torch_round(tt__torch_agent *a) {
    const tt__torch_state *state = &a->meeting.state;
    int n = tt__torch_participants(state), k = 0;
    a->has_place = a->has_ranks = false;
    free(a->participants);
    a->participants = calloc((size_t)n, sizeof *a->participants);
    if (!a->participants)
        return tt__fail(TT_ERR_MEMORY, "no memory for %d nodes", n);
    tt__torch_round_free(&a->round);
    a->round = (tt__torch_round){.store = a->store,
                                 .run_id = a->config.run_id,
                                 .role = a->config.role,
                                 .round = state->round,
                                 .rank = (int)tt__torch_find(state, &a->meeting.node)->rank,
                                 .world = n,
                                 .workers = a->config.workers};
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].participant)
            a->participants[k++] = state->members[i].node;
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].participant && state->members[i].rank >= n)
            return tt__fail(TT_ERR_PROTOCOL, "a rendezvous of %d nodes gives one the rank %lld", n,
                            (long long)state->members[i].rank);
    return TT_OK;
}

static void tell_who_is_missing(tt__torch_agent *a) {
    char text[200];
    int here = tt__torch_participants(&a->meeting.state);
    if (a->told_waiting || tt__now_ms() - a->began_ms < QUIET_MS)
        return;
    a->told_waiting = true;
    snprintf(text, sizeof text, "waiting for other nodes: %d of at least %d %s here", here,
             a->config.settings.min_nodes, here == 1 ? "is" : "are");
    post(a, TT__TORCH_WAITS, text);
}

static bool step_joining(tt__torch_agent *a) {
    bool restart_clock = false;
    tt__torch_verdict verdict;
    if (!take_step(a, tt__torch_join, &restart_clock, &verdict))
        return false;
    if (restart_clock)
        a->deadline_ms = tt__deadline_ms(a->config.join_ms);
    switch (verdict) {
    case TT__TORCH_FINISHED:
        if (take_torch_round(a))
            agent_fail(a);
        else
            enter(a, NUMBERING, a->config.read_ms);
        return true;
    case TT__TORCH_WRITE:
        return true;
    case TT__TORCH_CLOSED:
        tt__fail(TT_ERR_PEER,
                 "the rendezvous \"%.60s\" is closed: its job has ended (another --rdzv-id is another job)",
                 a->config.run_id);
        agent_fail(a);
        return false;
    case TT__TORCH_UNNEEDED:
        be_over(a, "the job has ended; all its places were taken by other nodes");
        return false;
    case TT__TORCH_LATE:
        fail_incomplete(a);
        return false;
    default:
        tell_who_is_missing(a);
        return false;
    }
}

/* ---- heartbeats, and what the state says meanwhile */

/* Has the round lost a node, or is one waiting to join? */
static bool has_changed(const tt__torch_agent *a) {
    const tt__torch_state *state = &a->meeting.state;
    if (state->round != a->round.round || tt__torch_waiting(state) > 0)
        return true;
    for (int k = 0; k < a->round.world; k++) {
        const tt__torch_member *m = tt__torch_find(state, &a->participants[k]);
        if (!m || !m->participant)
            return true;
    }
    return false;
}

static bool keep_alive(tt__torch_agent *a) {
    tt__torch_verdict verdict = TT__TORCH_WRITE;
    while (verdict == TT__TORCH_WRITE)
        if (!take_step(a, tt__torch_keep_alive, NULL, &verdict))
            return false;
    return true;
}

/* A round that loses a node before its workers run is given up. */
static bool begin_anew_if_changed(tt__torch_agent *a) {
    if (!keep_alive(a) || a->meeting.state.closed || !has_changed(a))
        return false;
    enter(a, LEAVING, a->config.join_ms);
    return true;
}

/* ---- where the workers meet */

/* A port that is free now: rank 0, a worker, will serve it. */
static tt_status find_free_port(int *port) {
    tt_store_server *server;
    TT__TRY(tt_store_server_new(&server, "0.0.0.0", 0, .secret = ""));
    *port = tt_store_server_port(server);
    tt_store_server_free(server);
    return TT_OK;
}

/* A store for the workers: a new one each round, at the same address, since agents of 2.x ask for it once. */
static tt_status serve_master(tt__torch_agent *a) {
    tt__torch_assignment *as = &a->assignment;
    if (!as->agent_store) {
        TT__TRY(find_free_port(&as->master_port));
    } else if (a->server) {
        tt__store_server_renew(a->server);
        as->master_port = tt_store_server_port(a->server);
    } else {
        const char *all = strchr(a->config.address, ':') ? "::" : "0.0.0.0";
        TT__TRY(tt_store_server_new(&a->server, all, 0, .auth = TT_STORE_AUTH_NONE, .secret = ""));
        as->master_port = tt_store_server_port(a->server);
    }
    snprintf(as->master_addr, sizeof as->master_addr, "%s", a->config.address);
    return tt__torch_round_set_master(&a->round, as->master_addr, as->master_port);
}

static const tt__torch_node *first_participant(const tt__torch_agent *a) {
    const tt__torch_node *first = &a->participants[0];
    for (int k = 1; k < a->round.world; k++)
        if (tt__torch_node_compare(&a->participants[k], first) < 0)
            first = &a->participants[k];
    return first;
}

/* Find out where the workers meet. An agent 0 of 2.x says so in its first round as agent 0 and not again, also where
 * others have come since. */
static tt_status learn_master(tt__torch_agent *a, const tt__torch_node *first, bool *done) {
    tt__torch_assignment *as = &a->assignment;
    if (a->round.rank == 0) {
        *done = true;
        return serve_master(a);
    }
    TT__TRY(tt__torch_round_get_master(&a->round, as->master_addr, &as->master_port, done));
    if (*done || !as->agent_store)
        return TT_OK;
    *done = a->knows_master && !tt__torch_node_compare(first, &a->master);
    if (!*done && tt__now_ms() - a->began_ms > SAYS_NOTHING_MS)
        return tt__torch_round_find_master(&a->round, first->address, as->master_addr, &as->master_port, done);
    return TT_OK;
}

/* 1.x tells the numbers first, 2.x the place; both are to be had in any order. */
static tt_status take_numbers(tt__torch_agent *a, bool *done) {
    const tt__torch_node *first = first_participant(a);
    if (!a->has_place) {
        TT__TRY(learn_master(a, first, &a->has_place));
        a->knows_master = a->has_place;
        a->master = a->has_place ? *first : a->master;
    }
    if (!a->has_ranks)
        TT__TRY(tt__torch_round_ranks(&a->round, a->config.identical, &a->assignment.ranks, &a->has_ranks));
    *done = a->has_place && a->has_ranks;
    return TT_OK;
}

static void fail_unnumbered(tt__torch_agent *a) {
    long long seconds = (long long)a->config.read_ms / 1000;
    if (!a->has_ranks)
        tt__fail(TT_ERR_TIMEOUT, "agent %d of %d did not say within %lld s how many workers it has", a->round.known,
                 a->round.world, seconds);
    else
        tt__fail(TT_ERR_TIMEOUT, "agent 0 (%.60s) did not say within %lld s where the workers meet",
                 first_participant(a)->address, seconds);
    agent_fail(a);
}

static bool step_numbering(tt__torch_agent *a) {
    bool done = false;
    a->assignment.agent_store = a->meeting.times != TT__TORCH_NAIVE && !a->config.own_store;
    if (take_numbers(a, &done)) {
        agent_fail(a);
    } else if (done) {
        a->assignment.round = a->round.round;
        a->assignment.node = a->round.rank;
        a->assignment.nodes = a->round.world;
        a->told_change = false;
        enter(a, RUNNING, INT64_MAX);
        post(a, TT__TORCH_BEGIN, NULL);
    } else if (!begin_anew_if_changed(a) && a->phase == NUMBERING && is_past(a)) {
        fail_unnumbered(a);
    }
    return false;
}

/* ---- while workers run, and the end */

/* Nodes of PyTorch's that wait for the others' end send no heartbeats meanwhile: who is missing then has not left. */
static bool may_have_left(tt__torch_agent *a) {
    bool one = false;
    return !tt__torch_round_has_ended(&a->round, &one) && !one;
}

static bool step_running(tt__torch_agent *a) {
    if (!keep_alive(a) || a->told_change)
        return false;
    bool waits = tt__torch_waiting(&a->meeting.state) > 0;
    if (a->meeting.state.closed)
        post(a, TT__TORCH_ENDED, "another node has ended the job");
    else if (has_changed(a) && (waits || may_have_left(a)))
        post(a, TT__TORCH_CHANGED, waits ? "another node wants to join" : "a node has left");
    else
        return false;
    a->told_change = true;
    return false;
}

/* After a failure agents of 1.x are counted with the others, those of 2.x are not. */
static bool step_ending(tt__torch_agent *a) {
    bool all = a->failed && a->meeting.times != TT__TORCH_NAIVE;
    if (!all && tt__torch_round_end(&a->round, a->failed, &all)) { /* the store was another's, who has seen the end */
        be_over(a, NULL);
        return false;
    }
    if (all || is_past(a)) {
        enter(a, CLOSING, a->config.close_ms);
        return true;
    }
    tt__torch_verdict verdict;
    if (tt__torch_meeting_step(&a->meeting, tt__torch_keep_alive, 0, NULL, &verdict))
        be_over(a, NULL);
    else if (a->meeting.state.closed) /* by one whose workers failed, and who is not counted */
        be_over(a, "another node has ended the job");
    return a->phase == ENDING && verdict == TT__TORCH_WRITE;
}

static bool step_closing(tt__torch_agent *a) {
    tt__torch_verdict verdict;
    int64_t late_ms = tt__now_ms() - a->deadline_ms;
    if (tt__torch_meeting_step(&a->meeting, tt__torch_close, late_ms, NULL, &verdict) || verdict != TT__TORCH_WRITE)
        be_over(a, NULL); /* without the store nobody is left to be told */
    return true;
}

static bool agent_step(tt__torch_agent *a) {
    switch (a->phase) {
    case CONNECTING:
        return step_connecting(a);
    case LEAVING:
        return step_leaving(a);
    case JOINING:
        return step_joining(a);
    case NUMBERING:
        return step_numbering(a);
    case RUNNING:
        return step_running(a);
    case ENDING:
        return step_ending(a);
    case CLOSING:
        return step_closing(a);
    case OVER:
        break;
    }
    return false;
}

/* ---- the thread */

static void take_order(tt__torch_agent *a, order order) {
    bool running = a->phase == RUNNING;
    if (a->phase == OVER || (order == AGAIN && !running))
        return;
    a->leaves = order == LEAVE || (order != AGAIN && !running);
    if (a->leaves && a->phase == CONNECTING) {
        be_over(a, NULL);
    } else if (a->leaves) {
        enter(a, LEAVING, LEAVE_MS);
    } else if (order == AGAIN) {
        a->told_waiting = false;
        enter(a, LEAVING, a->config.join_ms);
    } else {
        a->failed = order == FINISH_FAILED;
        enter(a, ENDING, a->config.exit_ms);
    }
}

static int64_t pause_ms(const tt__torch_agent *a) {
    int64_t ms = ASK_PER_NODE_MS * (int64_t)a->meeting.state.count;
    return a->phase == OVER         ? -1
           : a->phase == CONNECTING ? RETRY_MS
           : ms < ASK_MIN_MS        ? ASK_MIN_MS
           : ms > ASK_MAX_MS        ? ASK_MAX_MS
                                    : ms;
}

static void *agent_thread(void *arg) {
    tt__torch_agent *a = arg;
    enter(a, CONNECTING, a->config.join_ms);
    for (;;) {
        pthread_mutex_lock(&a->lock);
        order order = a->order;
        if (order != STOP)
            a->order = NO_ORDER;
        pthread_mutex_unlock(&a->lock);
        if (order == STOP)
            break;
        if (order)
            take_order(a, order);
        struct pollfd woken = {.fd = a->wake_fd, .events = POLLIN};
        uint64_t count;
        if (!agent_step(a) && poll(&woken, 1, (int)pause_ms(a)) > 0 && read(a->wake_fd, &count, sizeof count) < 0)
            count = 0;
    }
    return NULL;
}

/* ---- orders and life */

static void agent_order(tt__torch_agent *a, order order) {
    pthread_mutex_lock(&a->lock);
    if (a->order != STOP)
        a->order = order;
    pthread_mutex_unlock(&a->lock);
    wake(a->wake_fd);
}

void tt__torch_agent_again(tt__torch_agent *a) { agent_order(a, AGAIN); }
void tt__torch_agent_finish(tt__torch_agent *a, bool failed) { agent_order(a, failed ? FINISH_FAILED : FINISH); }
void tt__torch_agent_leave(tt__torch_agent *a) { agent_order(a, LEAVE); }

static tt_status agent_begin(tt__torch_agent *a) {
    a->meeting.settings = a->config.settings;
    a->meeting.times = a->config.times;
    TT__TRY(tt__torch_name_node(&a->meeting.node, a->config.address));
    a->events_fd = tt__fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    a->wake_fd = tt__fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (a->events_fd < 0 || a->wake_fd < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make an eventfd");
    TT__TRY(tt__thread_create(&a->thread, agent_thread, a, "the thread that talks to PyTorch's agents"));
    a->started = true;
    return TT_OK;
}

tt_status tt__torch_agent_start(tt__torch_agent **out, const tt__torch_config *config) {
    tt__torch_agent *a = *out = calloc(1, sizeof *a);
    if (!a)
        return tt__fail(TT_ERR_MEMORY, "no memory for a rendezvous");
    a->config = *config;
    a->events_fd = a->wake_fd = -1;
    pthread_mutex_init(&a->lock, NULL);
    tt_status status = agent_begin(a);
    if (status) {
        tt__torch_agent_free(a);
        *out = NULL;
    }
    return status;
}

void tt__torch_agent_free(tt__torch_agent *a) {
    if (!a)
        return;
    agent_order(a, STOP);
    if (a->started)
        pthread_join(a->thread, NULL);
    tt__torch_meeting_close(&a->meeting);
    tt__torch_round_free(&a->round);
    free(a->participants);
    tt_store_free(a->store);
    tt_store_server_free(a->server);
    if (a->events_fd >= 0)
        close(a->events_fd);
    if (a->wake_fd >= 0)
        close(a->wake_fd);
    pthread_mutex_destroy(&a->lock);
    free(a);
}
