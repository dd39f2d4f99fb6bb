/* PyTorch's rendezvous as a machine: what a node makes of the state that it has read. Nothing here reads a clock or a
 * store.
 *
 *   participants  those of the round. It is complete when there are max_nodes of them, or min_nodes and the last call
 *                 has passed; their ranks are then the order of their names.
 *   waiting       came when a round was complete, and has room: participants that see them begin a new round
 *   redundant     came when all places were taken: they wait until one is free
 *
 * Each step looks at a state and says what to do: tell the others (the state was changed), look again later, or an end.
 * Counterpart: torch.distributed.elastic.rendezvous.dynamic_rendezvous, whose nodes may be the others. Theirs and ours
 * must come to the same decisions. */
#ifndef TT_ELASTIC_TORCH_RENDEZVOUS_H
#define TT_ELASTIC_TORCH_RENDEZVOUS_H

#include "elastic/torch_state.h"

typedef struct tt__torch_settings {
    int min_nodes, max_nodes;
    int64_t last_call_ms;  /* how long a round with enough nodes waits for more */
    int64_t keep_alive_ms; /* between two heartbeats, */
    int keep_alive_max;    /* and after how many that are missed a node is dead */
} tt__torch_settings;

typedef enum tt__torch_verdict {
    TT__TORCH_FINISHED, /* nothing to do any more */
    TT__TORCH_WRITE,    /* the state was changed: write it, and look again */
    TT__TORCH_WAIT,     /* look again later */
    TT__TORCH_CLOSED,   /* the job has ended */
    TT__TORCH_UNNEEDED, /* the job has ended; this node was redundant */
    TT__TORCH_LATE,     /* the deadline has passed */
    TT__TORCH_NO_ROOM   /* more nodes than a state holds, or no memory: the error says which */
} tt__torch_verdict;

/* Once a deadline has passed, so long a node still tries to take its name back. */
enum { TT__TORCH_ROLLBACK_MS = 5000 };

typedef struct tt__torch_step {
    tt__torch_state *state;
    const tt__torch_settings *settings;
    const tt__torch_node *node;
    int64_t now_us;      /* time of day, since 1970: what states have */
    int64_t late_ms;     /* how long the operation's deadline has passed; 0 and less: it has not */
    bool *restart_clock; /* set when the deadline is to begin anew; NULL for all but joining */
} tt__torch_step;

/* Forget nodes whose heartbeats have stopped. To be called with each state that is read. */
void tt__torch_sanitize(tt__torch_state *state, const tt__torch_settings *settings, int64_t now_us);

/* Operations, to be repeated until FINISHED or an error: leave a round that this node took part in; or whatever list
 * has it; take part in the
 * next that is complete (FINISHED: the node has its rank); send a heartbeat, if it is due; end the rendezvous. */
tt__torch_verdict tt__torch_leave(const tt__torch_step *s);
tt__torch_verdict tt__torch_depart(const tt__torch_step *s);
tt__torch_verdict tt__torch_join(const tt__torch_step *s);
tt__torch_verdict tt__torch_keep_alive(const tt__torch_step *s);
tt__torch_verdict tt__torch_close(const tt__torch_step *s);

#endif
