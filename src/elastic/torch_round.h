/* What PyTorch's agents tell each other in a round, when it is complete: who has how many workers of which role, where
 * the workers meet, and at the end that they are done. Keys of the rendezvous' store, all under
 * "torch.rendezvous.RUN_ID.ROUND/":
 *
 *   torchelastic/role_infoK    of agent K in 1.x, and role_infoK.FIN: it has read all;
 *   torchelastic/role_info/K   in 2.x: JSON, the same
 *   torchelastic/assigned_ranks/K   2.x: agent 0 answers [first rank, world, first role rank, world of the role]
 *   MASTER_ADDR, MASTER_PORT   of agent 0
 *   torchelastic/agent/terminal_stateK, .FIN   1.x: agent K is done; it has seen that all are
 *   torchelastic/agent/terminal_state/num_members, /last_member   2.x: a count; all are done
 *
 * An agent does not learn of which version the others are, so what can be told both ways is. Nothing here waits: each
 * function does what can be done, and is called again. */
#ifndef TT_ELASTIC_TORCH_ROUND_H
#define TT_ELASTIC_TORCH_ROUND_H

#include <tutti/store.h>

enum { TT__TORCH_MASTER = 256 };

typedef struct tt__torch_ranks {
    int first_rank, world, first_role_rank, role_world;
} tt__torch_ranks;

/* An agent in a round. The fields up to `workers` are set; the rest is zeroed. */
typedef struct tt__torch_round {
    tt_store *store; /* borrowed */
    const char *run_id, *role;
    int64_t round;
    int rank, world; /* among the agents */
    int workers;

    bool told, counted; /* this agent's info is in the store; it is counted as done */
    int known;          /* of agents 0 to known - 1 the info is read */
    char **roles;       /* (world) */
    int *sizes;         /* (world) */
} tt__torch_round;

void tt__torch_round_free(tt__torch_round *round);

/* Number the workers. *done: so it is. With `identical` all agents have the same workers, and nobody says so. */
tt_status tt__torch_round_ranks(tt__torch_round *round, bool identical, tt__torch_ranks *ranks, bool *done);

/* Say, as agent 0, where the workers meet; find it out, as another. */
tt_status tt__torch_round_set_master(tt__torch_round *round, const char *address, int port);
tt_status tt__torch_round_get_master(tt__torch_round *round, char address[TT__TORCH_MASTER], int *port, bool *done);

/* The same, from the last earlier round in which an agent at `first` was agent 0 and said so. */
tt_status tt__torch_round_find_master(tt__torch_round *round, const char *first, char address[TT__TORCH_MASTER],
                                      int *port, bool *done);

/* Has an agent said that its workers have ended well? */
tt_status tt__torch_round_has_ended(tt__torch_round *round, bool *one);

/* Say that this agent's workers have ended; *all: everybody's have. `failed`: as 1.x does it after a failure, for which
 * 2.x has no word. */
tt_status tt__torch_round_end(tt__torch_round *round, bool failed, bool *all);

#endif
