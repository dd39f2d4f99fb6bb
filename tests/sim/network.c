#include "sim/network.h"

#include "sim/verdict.h"

#include <stdlib.h>
#include <string.h>

enum { NETWORK_STREAM = 2, TO_SERVER = 0, TO_CLIENT = 1 };

typedef enum kind { SYN, ACK, DATA, FIN, RESET } kind;

typedef struct segment {
    struct segment *next;
    kind kind;
    int64_t due_ns;
    size_t size;
    uint8_t data[];
} segment;

typedef struct direction {
    sim_conn *conn;
    segment *first, **end; /* in order; only the first is on its way */
    sim_random random;
} direction;

struct sim_conn {
    sim_conn *next; /* in the list of all */
    int node;
    int attempt;                             /* the worker's; -1: a launcher's connection */
    int generation;                          /* of a worker's round */
    bool client_closed, open, broken, ended; /* as the client's end sees it */
    bool served;                             /* the server has a session for it */
    tt__bytes inbox;
    sim_conn_fn notify;
    void *arg;
    tt__store_session session;
    direction to[2];
};

static struct {
    const sim_plan *plan;
    sim_agent *agents;
    sim_conn *conns;
    uint64_t count;
    int64_t *isolated_until_ns; /* (machines) */
} net;

void sim_network_begin(const sim_plan *plan, sim_agent *agents) {
    net.plan = plan;
    net.agents = agents;
    net.isolated_until_ns = sim_memory(calloc((size_t)sim_plan_launchers(plan), sizeof *net.isolated_until_ns));
}

/* ---- segments on their way */

static void arrive(void *arg);

static int64_t delay_ns(direction *d) {
    int64_t base = net.plan->delay_us * 1000, delay = base / 2 + sim_below(&d->random, base + 1);
    if (sim_below(&d->random, 1000) < net.plan->lost) /* lost, and sent again */
        delay += (int64_t)200 * SIM_MS << sim_below(&d->random, sim_chance(&d->random, 90) ? 2 : 4);
    return delay;
}

static void start_first(direction *d) {
    int64_t now = sim_now_ns();
    if (d->first)
        sim_at(d->first->due_ns > now ? d->first->due_ns : now + 1000, arrive, d);
}

static void send_segment(sim_conn *conn, int to, kind what, const void *data, size_t size) {
    direction *d = &conn->to[to];
    segment *new = sim_memory(malloc(sizeof *new + size));
    *new = (segment){.kind = what, .due_ns = sim_now_ns() + delay_ns(d), .size = size};
    if (size)
        memcpy(new->data, data, size);
    bool idle = !d->first;
    *d->end = new;
    d->end = &new->next;
    if (idle)
        start_first(d);
}

static void drop_segments(direction *d) {
    for (segment *first; (first = d->first);) {
        d->first = first->next;
        free(first);
    }
    d->end = &d->first;
}

static void tell_client(sim_conn *conn) {
    if (!conn->client_closed)
        conn->notify(conn->arg);
}

static void lose_session(sim_conn *conn) {
    if (conn->served)
        sim_store_lose(conn, &conn->session);
    conn->served = false;
}

static void arrive_at_server(sim_conn *conn, const segment *s) {
    if (s->kind == SYN) {
        bool stale = conn->attempt >= 0 && conn->generation != sim_store_generation(); /* a worker of an earlier job */
        conn->served = !stale && sim_store_accept(conn, &conn->session);
        if (conn->served && conn->attempt < 0)
            net.agents[conn->node].generation = sim_store_generation();
        send_segment(conn, TO_CLIENT, conn->served ? ACK : RESET, NULL, 0);
    } else if (s->kind == DATA && conn->served) {
        sim_store_take(conn, &conn->session, s->data, s->size);
    } else if (s->kind == DATA) {
        send_segment(conn, TO_CLIENT, RESET, NULL, 0);
    } else {
        lose_session(conn);
    }
}

static void arrive_at_client(sim_conn *conn, const segment *s) {
    conn->open = conn->open || s->kind == ACK;
    conn->broken = conn->broken || s->kind == RESET;
    conn->ended = conn->ended || s->kind == FIN;
    if (s->kind == DATA && !conn->client_closed)
        tt__bytes_put(&conn->inbox, s->data, s->size);
    tell_client(conn);
}

/* Return when a segment that is due may arrive: now, later, or never. */
static int64_t arrival_ns(direction *d, int to) {
    int64_t now = sim_now_ns(), free_ns = now;
    int node = d->conn->node, machine = net.agents[node].machine, server = sim_store_server();
    if (net.agents[to == TO_SERVER ? server : node].machine_dead)
        return SIM_NEVER;
    if (machine) /* segments of machine 0 don't leave it */
        for (int k = 0; k < 2; k++) {
            int64_t until = net.isolated_until_ns[k ? machine : 0];
            free_ns = until > free_ns ? until : free_ns;
        }
    if (free_ns > now) { /* TCP sends it again and again, after ever longer pauses */
        int64_t waited_ns = free_ns - d->first->due_ns;
        return free_ns + sim_below(&d->random, waited_ns > 400 * SIM_MS ? waited_ns : 400 * SIM_MS);
    }
    int64_t frozen = net.agents[server].frozen_until_ns;
    return to == TO_SERVER && frozen > now ? frozen + sim_latency_ns(&net.agents[server]) : now;
}

static void arrive(void *arg) {
    direction *d = arg;
    segment *first = d->first;
    int to = d == &d->conn->to[TO_CLIENT] ? TO_CLIENT : TO_SERVER;
    if (!first) /* dropped meanwhile */
        return;
    int64_t when = arrival_ns(d, to);
    if (when == SIM_NEVER) {
        drop_segments(d);
        return;
    }
    if (when > sim_now_ns()) {
        sim_at(when, arrive, d);
        return;
    }
    if (!(d->first = first->next))
        d->end = &d->first;
    start_first(d);
    if (to == TO_SERVER)
        arrive_at_server(d->conn, first);
    else
        arrive_at_client(d->conn, first);
    free(first);
}

/* ---- clients */

sim_conn *sim_connect(int node, int attempt, sim_conn_fn notify, void *arg) {
    sim_conn *conn = sim_memory(calloc(1, sizeof *conn));
    *conn = (sim_conn){.next = net.conns, .node = node, .attempt = attempt, .notify = notify, .arg = arg};
    conn->generation = net.agents[node].generation;
    net.conns = conn;
    net.count++;
    for (int to = 0; to < 2; to++) {
        conn->to[to].conn = conn;
        conn->to[to].end = &conn->to[to].first;
        conn->to[to].random = sim_stream(net.plan->seed, NETWORK_STREAM, net.count * 2 + (uint64_t)to);
    }
    send_segment(conn, TO_SERVER, SYN, NULL, 0);
    return conn;
}

bool sim_conn_is_open(const sim_conn *conn) { return conn->open; }
bool sim_conn_is_broken(const sim_conn *conn) { return conn->broken; }
bool sim_conn_is_ended(const sim_conn *conn) { return conn->ended; }
tt__bytes *sim_conn_inbox(sim_conn *conn) { return &conn->inbox; }
int sim_conn_node(const sim_conn *conn) { return conn->node; }
int sim_conn_attempt(const sim_conn *conn) { return conn->attempt; }

void sim_conn_send(sim_conn *conn, const void *data, size_t size) { send_segment(conn, TO_SERVER, DATA, data, size); }

void sim_conn_close(sim_conn *conn) {
    if (conn->client_closed)
        return;
    conn->client_closed = true;
    tt__bytes_free(&conn->inbox);
    if (!conn->broken)
        send_segment(conn, TO_SERVER, FIN, NULL, 0);
}

/* ---- the server */

void sim_conn_reply(sim_conn *conn, const void *data, size_t size) { send_segment(conn, TO_CLIENT, DATA, data, size); }

void sim_conn_drop(sim_conn *conn, bool reset) {
    lose_session(conn);
    send_segment(conn, TO_CLIENT, reset ? RESET : FIN, NULL, 0);
}

/* ---- what happens to it */

void sim_network_isolate(int machine, int64_t until_ns) {
    if (until_ns > net.isolated_until_ns[machine])
        net.isolated_until_ns[machine] = until_ns;
}

int64_t sim_network_reaches_ns(int machine, int other) {
    int64_t now = sim_now_ns(), until = net.isolated_until_ns[machine];
    if (net.agents[machine].machine_dead || net.agents[other].machine_dead)
        return SIM_NEVER;
    until = net.isolated_until_ns[other] > until ? net.isolated_until_ns[other] : until;
    return machine == other || until < now ? now : until;
}

bool sim_network_reaches(int machine, int other) { return sim_network_reaches_ns(machine, other) <= sim_now_ns(); }

void sim_network_cut(int node) {
    for (sim_conn *conn = net.conns; conn; conn = conn->next) {
        if (conn->node != node || conn->attempt >= 0 || conn->client_closed || !conn->open)
            continue;
        lose_session(conn);
        conn->broken = true;
        tell_client(conn);
    }
}

void sim_network_process_gone(int node) {
    for (sim_conn *conn = net.conns; conn; conn = conn->next)
        if (conn->node == node && conn->attempt < 0)
            sim_conn_close(conn);
    if (node == sim_store_server())
        sim_store_gone();
}

void sim_network_machine_gone(int node) {
    for (sim_conn *conn = net.conns; conn; conn = conn->next)
        conn->client_closed = conn->client_closed || conn->node == node;
}
