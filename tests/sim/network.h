/* Connections to the only store, node 0's. Bytes arrive in order and with delays, wait while a machine can't be
 * reached, and get lost with a connection. */
#ifndef SIM_NETWORK_H
#define SIM_NETWORK_H

#include "base/bytes.h"
#include "sim/plan.h"
#include "sim/world.h"
#include "store/server/service.h"

typedef struct sim_conn sim_conn;

/* Called, without waiting, when something has come for the client. */
typedef void (*sim_conn_fn)(void *arg);

void sim_network_begin(const sim_plan *plan, sim_agent *agents);

/* ---- what clients do */

/* attempt: the number of store renewals when the worker began; -1: a launcher's connection. */
sim_conn *sim_connect(int node, int attempt, sim_conn_fn notify, void *arg);
bool sim_conn_is_open(const sim_conn *conn);
/* Was it refused or reset? Has the server ended it? */
bool sim_conn_is_broken(const sim_conn *conn);
bool sim_conn_is_ended(const sim_conn *conn);
tt__bytes *sim_conn_inbox(sim_conn *conn);
void sim_conn_send(sim_conn *conn, const void *data, size_t size);
/* The client closes the connection, and may not use it any more. */
void sim_conn_close(sim_conn *conn);

/* ---- what happens to it */

/* The machine can't be reached until then. */
void sim_network_isolate(int machine, int64_t until_ns);
/* All connections of the launcher are reset. */
void sim_network_cut(int node);
/* The launcher's process has ended, or its whole machine. */
void sim_network_process_gone(int node);
void sim_network_machine_gone(int node);

/* From when on packets get from one machine to the other; SIM_NEVER: not any more. Do they get there now? */
int64_t sim_network_reaches_ns(int machine, int other);
bool sim_network_reaches(int machine, int other);

/* ---- the server's end: store.c */

bool sim_store_accept(sim_conn *conn, tt__store_session *session);
void sim_store_take(sim_conn *conn, tt__store_session *session, const void *data, size_t size);
void sim_store_lose(sim_conn *conn, tt__store_session *session);
/* Is there a server? Its process has ended. */
bool sim_store_is_served(void);
void sim_store_gone(void);
/* The agent that serves the store, or did last; how many servers there were; how often the present store was
 * renewed. */
int sim_store_server(void);
int sim_store_generation(void);
int sim_store_renewals(void);
/* Since when the generation's server is gone, SIM_NEVER: it is there; which agent that was. */
int64_t sim_store_gone_ns(int generation);
int sim_store_server_of(int generation);
/* The most keys that the store had at one time. */
size_t sim_store_most_keys(void);
/* Is there a key? */
bool sim_store_has(const char *key);

void sim_conn_reply(sim_conn *conn, const void *data, size_t size);
/* The server closes the connection; `reset`: by a reset. */
void sim_conn_drop(sim_conn *conn, bool reset);
int sim_conn_node(const sim_conn *conn);
int sim_conn_attempt(const sim_conn *conn);

#endif
