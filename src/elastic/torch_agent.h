/* An agent of PyTorch's elastic protocol: a launcher of ours as one node of a torchrun job, whose other nodes may be
 * torchrun's (PyTorch 1.13's and 2.x's) and ours. Counterpart: torch.distributed.elastic.agent.server.api.
 *
 *   CONNECTING - LEAVING - JOINING - NUMBERING - RUNNING - ENDING - CLOSING - OVER
 *                   ^                               |
 *                   +----------- again -------------+
 *
 * A thread of the launcher uses the store, so that a slow network never keeps the launcher from its workers; the two
 * exchange events and orders, as in nodes.h. From NUMBERING on it sends heartbeats.
 *
 *   BEGIN     a round is complete and the ranks are known: start the workers, as assignment says
 *   CHANGED   nodes came or went: end the workers, then tt__torch_agent_again(); that counts as no restart
 *   ENDED     another node has ended the job while workers run here: end them, then tt__torch_agent_finish(failed)
 *   WAITS     text: for whom, after a while
 *   OVER      nothing is left to do: after _finish() or _leave(), or when all places stayed taken to the end (then no
 *             BEGIN came before)
 *   FAILED    the job can't be joined, or its store is lost; text says why. No other event follows.
 *
 * Workers that fail are the launcher's to end; with tt__torch_agent_again() all nodes begin a new round, as they see
 * this one leave and wait. */
#ifndef TT_ELASTIC_TORCH_AGENT_H
#define TT_ELASTIC_TORCH_AGENT_H

#include "elastic/torch_rendezvous.h"
#include "elastic/torch_round.h"

typedef struct tt__torch_agent tt__torch_agent;

/* All strings are borrowed as long as the agent lives. */
typedef struct tt__torch_config {
    const char *host; /* of the rendezvous' store, which this process may serve itself */
    int port;
    const char *run_id, *role;
    const char *address; /* this node's, for the others */
    int workers;         /* on this node */
    tt__torch_settings settings;
    tt__torch_times times;              /* to write, if this is the first node */
    int64_t join_ms, close_ms, exit_ms; /* how long to wait for a round; to end the job; for the others' workers */
    int64_t read_ms;                    /* of a call to the store */
    bool own_store;                     /* workers meet in a store that rank 0 serves, in 2.x too */
    bool identical;                     /* TORCH_ELASTIC_WORKER_IDENTICAL */
} tt__torch_config;

typedef struct tt__torch_assignment {
    int64_t round;
    int node, nodes; /* GROUP_RANK, GROUP_WORLD_SIZE */
    tt__torch_ranks ranks;
    char master_addr[TT__TORCH_MASTER];
    int master_port;
    bool agent_store; /* TORCHELASTIC_USE_AGENT_STORE: agent 0 serves the workers' store, and not rank 0 */
} tt__torch_assignment;

typedef enum tt__torch_kind {
    TT__TORCH_NO_EVENT,
    TT__TORCH_BEGIN,
    TT__TORCH_CHANGED,
    TT__TORCH_ENDED,
    TT__TORCH_WAITS,
    TT__TORCH_OVER,
    TT__TORCH_FAILED
} tt__torch_kind;

typedef struct tt__torch_event {
    tt__torch_kind kind;
    tt__torch_assignment assignment; /* BEGIN */
    char text[512];                  /* "" or what there is to say */
} tt__torch_event;

/* Start the thread, which joins. */
tt_status tt__torch_agent_start(tt__torch_agent **out, const tt__torch_config *config);

/* End the thread, at most read_ms from now; the others learn of it by its heartbeats' end. NULL is allowed. */
void tt__torch_agent_free(tt__torch_agent *agent);

/* Readable when there is an event. */
int tt__torch_agent_fd(const tt__torch_agent *agent);

/* Take the next event; false: there is none. */
bool tt__torch_agent_next(tt__torch_agent *agent, tt__torch_event *event);

/* ---- orders; nothing waits */

/* No worker of the round is left here: take part in another. BEGIN follows. */
void tt__torch_agent_again(tt__torch_agent *agent);

/* The workers have ended for good: wait for the others' (unless ours failed), and end the job. Where no round has begun
 * this is tt__torch_agent_leave(). OVER follows. */
void tt__torch_agent_finish(tt__torch_agent *agent, bool failed);

/* Go without ending the job: the others may go on. OVER follows. */
void tt__torch_agent_leave(tt__torch_agent *agent);

#endif
