/* The store: the real service machine behind virtual connections, and the real client's connections. Stands in for
 * src/store/server/server.c and connection.c, and for src/net. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "net/net.h"
#include "net/stream.h"
#include "sim/checks.h"
#include "sim/cluster.h"
#include "sim/descriptors.h"
#include "sim/history.h"
#include "sim/network.h"
#include "sim/verdict.h"
#include "store/server/renewal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_AGAIN_MS = 50 };

/* ---- the server */

struct tt_store_server {
    int port;
    tt__store_service service;
};

static tt_store_server *the_server;
static size_t most_keys;
static int renewals, server_agent, generation;
static struct {
    int agent;
    int64_t gone_ns;
} generations[SIM_MOST_ITEMS + 2];

int sim_store_server(void) { return server_agent; }
int sim_store_generation(void) { return generation; }
int sim_store_renewals(void) { return renewals; }
int sim_store_server_of(int of) { return generations[of].agent; }
int64_t sim_store_gone_ns(int of) { return generations[of].gone_ns; }

static void end_generation(void) {
    the_server = NULL;
    generations[generation].gone_ns = sim_now_ns();
}

tt_status tt_store_server_new_with(const tt_store_server_new_args *args, size_t size) {
    (void)size;
    const sim_agent *agent = sim_agent_now();
    if (agent->machine || the_server)
        return tt__fail(TT_ERR_NET, "%s:%d is not to be had", args->host, args->port);
    server_agent = agent->node;
    renewals = 0;
    if (++generation > SIM_MOST_ITEMS + 1)
        sim_fail("simulator", "the store is served %d times", generation);
    generations[generation].agent = agent->node;
    generations[generation].gone_ns = SIM_NEVER;
    the_server = sim_memory(calloc(1, sizeof *the_server));
    the_server->port = args->port;
    tt__store_service_init(&the_server->service);
    *args->out = the_server;
    return TT_OK;
}

int tt_store_server_port(const tt_store_server *server) { return server->port; }

static sim_conn *conn_at(const tt__store_service *service, const tt__list_node *node) {
    if (node == &service->sessions)
        return NULL;
    return ((tt__store_session *)(void *)((char *)(uintptr_t)node - offsetof(tt__store_session, node)))->owner;
}

void tt_store_server_free(tt_store_server *server) {
    if (!server)
        return;
    for (sim_conn *conn; (conn = conn_at(&server->service, server->service.sessions.next));)
        sim_conn_drop(conn, false);
    tt__store_service_free(&server->service);
    free(server);
    end_generation();
}

bool sim_store_is_served(void) { return the_server != NULL; }

void sim_store_gone(void) {
    while (the_server) {
        sim_conn *conn = conn_at(&the_server->service, the_server->service.sessions.next);
        if (!conn)
            break;
        sim_conn_drop(conn, true);
    }
    if (the_server)
        end_generation(); /* its keys were in the dead process's memory */
}

size_t sim_store_most_keys(void) { return most_keys; }

bool sim_store_has(const char *key) {
    char full[100]; /* the key as the client sends it */
    const tt__span name = {(const uint8_t *)full, (size_t)snprintf(full, sizeof full, "/%s", key)};
    return the_server && tt__store_entry_there(tt__store_table_find(&the_server->service.table, name));
}

void tt__store_server_renew(tt_store_server *server) {
    const tt__list_node *node = server->service.sessions.next;
    while (node != &server->service.sessions) {
        const tt__list_node *next = node->next;
        sim_conn *conn = conn_at(&server->service, node);
        const tt__store_session *session =
            (const tt__store_session *)(const void *)((const char *)node - offsetof(tt__store_session, node));
        if (!session->lasting)
            sim_conn_drop(conn, false);
        node = next;
    }
    tt__store_table_forget(&server->service.table, TT__STORE_LASTING);
    renewals++;
    sim_trace(server_agent, "the store is renewed; %zu keys are left", server->service.table.present);
}

static void send_replies(void) {
    for (tt__store_session *s; (s = tt__store_service_next(&the_server->service));) {
        sim_conn *conn = s->owner;
        do {
            if (s->out.size)
                sim_conn_reply(conn, s->out.data, s->out.size);
            tt__bytes_clear(&s->out, 4096);
            if (s->held)
                tt__store_session_resume(s);
        } while (s->out.size && !s->broken);
        if (s->broken) {
            sim_trace(sim_conn_node(conn), "the store closes the connection: %s", s->why);
            sim_conn_drop(conn, false);
        }
    }
    if (the_server->service.table.present > most_keys)
        most_keys = the_server->service.table.present;
}

bool sim_store_accept(sim_conn *conn, tt__store_session *session) {
    if (!the_server)
        return false;
    tt__store_session_init(session, &the_server->service, conn);
    return true;
}

static void trace_request(const sim_conn *conn, const uint8_t *data, size_t size) {
    if (!sim_tracing() || size < 10 || !data[0] || data[0] >= TT__STORE_OP_COUNT)
        return;
    bool many = data[0] == 5 || data[0] == 6 || data[0] == 10 || data[0] == 11; /* a count comes first */
    size_t at = many ? 9 : 1;
    if (size < at + 8)
        return;
    uint64_t n = tt__store_number(data + at, 8);
    const tt__store_op_info *info = &tt__store_op_table[tt__store_op_of(TT_STORE_TORCH_2, data[0])];
    if (n < size - at - 7)
        sim_trace(sim_conn_node(conn), "%s %.*s", info->name, (int)n, (const char *)data + at + 8);
}

/* Check a launcher's note that a rank has ended: in the attempt that the store is for, whose number is `renewals`. Not
 * a coordinator's notes for the ranks of a node that is gone. */
static void check_note(const sim_conn *conn, const uint8_t *data, size_t size) {
    static const char begin[] = "/tutti/ended/", of_node[] = "its node";
    enum { OPCODE = 1, LENGTH = 8, BEGIN = sizeof begin - 1 };
    int rank = 0;
    if (size <= OPCODE + LENGTH + BEGIN || data[0] != tt__store_op_table[TT__STORE_SET].opcode[TT_STORE_TORCH_2] ||
        memcmp(data + OPCODE + LENGTH, begin, BEGIN) != 0)
        return;
    uint64_t n = tt__store_number(data + OPCODE, LENGTH);
    for (size_t i = OPCODE + LENGTH + BEGIN; i < OPCODE + LENGTH + n && i < size; i++)
        rank = 10 * rank + data[i] - '0';
    size_t value = OPCODE + LENGTH + (size_t)n + LENGTH;
    if (size < value + sizeof of_node || memcmp(data + value, of_node, sizeof of_node - 1) != 0)
        sim_check_note(sim_conn_node(conn), rank, renewals);
}

void sim_store_take(sim_conn *conn, tt__store_session *session, const void *data, size_t size) {
    if (sim_conn_attempt(conn) < 0) {
        trace_request(conn, data, size);
        check_note(conn, data, size);
    }
    if (sim_conn_attempt(conn) >= 0 && sim_conn_attempt(conn) < renewals &&
        !sim_cluster_disturbed_itself(sim_conn_node(conn)))
        sim_fail("fresh store", "what a worker of node %d wrote in attempt %d is taken in attempt %d",
                 sim_conn_node(conn), sim_conn_attempt(conn), renewals);
    tt__store_session_feed(session, data, size);
    send_replies();
}

void sim_store_lose(sim_conn *conn, tt__store_session *session) {
    (void)conn;
    tt__store_session_end(session);
}

/* ---- the client's connections */

typedef struct client {
    sim_conn *conn;
    sim_task *waiter;
} client;

static void client_notify(void *arg) { sim_wake(((client *)arg)->waiter); }

static int64_t deadline_ns(int64_t deadline_ms) {
    int64_t left = deadline_ms - tt__now_ms();
    return left > INT64_MAX / SIM_MS / 4 ? SIM_NEVER : sim_now_ns() + (left < 0 ? 0 : left) * SIM_MS;
}

tt_status tt__net_connect(int *fd, const char *host, int port, int64_t deadline_ms) {
    int64_t deadline = deadline_ns(deadline_ms);
    for (;;) {
        client *c = sim_memory(calloc(1, sizeof *c));
        c->waiter = sim_task_now();
        c->conn = sim_connect(sim_agent_now()->node, -1, client_notify, c);
        while (!sim_conn_is_open(c->conn) && !sim_conn_is_broken(c->conn) && sim_now_ns() < deadline)
            sim_wait(deadline);
        if (sim_conn_is_open(c->conn)) {
            *fd = sim_fd_new(SIM_FD_STREAM, c);
            return TT_OK;
        }
        sim_conn_close(c->conn);
        if (sim_now_ns() >= deadline)
            return tt__fail(TT_ERR_TIMEOUT, "could not connect to %s:%d", host, port);
        sim_wait(sim_now_ns() + CONNECT_AGAIN_MS * SIM_MS);
    }
}

tt_status tt__stream_open(tt__stream *stream, int fd, tt__tls *tls, bool server) {
    (void)tls;
    (void)server;
    *stream = (tt__stream){.fd = fd};
    return TT_OK;
}

void tt__stream_close(tt__stream *stream) {
    if (stream)
        sim_fd_close(stream->fd);
    if (stream)
        stream->fd = -1;
}

void sim_stream_closed(void *owner) { sim_conn_close(((client *)owner)->conn); }

tt_status tt__stream_handshake(tt__stream *stream, const tt__handshake_role *role, int64_t deadline_ms, int *peer,
                               uint8_t job[TT__JOB_SIZE]) {
    (void)stream;
    (void)role;
    (void)deadline_ms;
    if (peer)
        *peer = TT__ANY_RANK;
    if (job)
        memset(job, 0, TT__JOB_SIZE);
    return TT_OK;
}

tt_status tt__stream_read_some(tt__stream *stream, void *data, size_t size, int64_t deadline_ms, size_t *got) {
    client *c = sim_fd_owner(stream->fd, SIM_FD_STREAM);
    int64_t deadline = deadline_ns(deadline_ms);
    c->waiter = sim_task_now();
    while (!sim_conn_inbox(c->conn)->size) {
        if (sim_conn_is_broken(c->conn))
            return tt__fail(TT_ERR_NET, "connection reset by peer");
        *got = 0;
        if (sim_conn_is_ended(c->conn))
            return TT_OK;
        if (sim_now_ns() >= deadline)
            return tt__fail(TT_ERR_TIMEOUT, "nothing came in time");
        sim_wait(deadline);
    }
    tt__bytes *inbox = sim_conn_inbox(c->conn);
    *got = inbox->size < size ? inbox->size : size;
    memcpy(data, inbox->data, *got);
    tt__bytes_consume(inbox, *got);
    return TT_OK;
}

/* The kernel takes the bytes, whether they arrive or not. */
tt_status tt__stream_write_full(tt__stream *stream, const void *data, size_t size, int64_t deadline_ms) {
    client *c = sim_fd_owner(stream->fd, SIM_FD_STREAM);
    (void)deadline_ms;
    if (sim_conn_is_broken(c->conn))
        return tt__fail(TT_ERR_NET, "connection reset by peer");
    sim_conn_send(c->conn, data, size);
    sim_note_request(sim_agent_now());
    sim_wait(sim_now_ns() + 5000); /* writing takes time, in which others may run */
    return TT_OK;
}
