/* What PyTorch's agents (torchrun) share of a job: the state of their c10d rendezvous.
 *
 * It lies under one key of a TCPStore, "torch.rendezvous.RUN_ID", as base64 of a Python pickle, and is changed by
 * compare_set alone. The pickle is a stranger's: this reader knows its five classes and no code, holds nothing longer
 * than the text that came, and refuses what it does not know, since a part that it left out when it writes would be
 * lost to the others.
 *
 * PyTorch 1.x has naive times and calls a node's address "fqdn"; 2.x has times with a zone, "addr", and a list of
 * redundant nodes. What is written here has both names and the list, which both read. Times can be of one kind only:
 * that of what was read last. */
#ifndef TT_ELASTIC_TORCH_STATE_H
#define TT_ELASTIC_TORCH_STATE_H

#include "base/bytes.h"

#include <tutti/base.h>

enum { TT__TORCH_ADDRESS = 256, TT__TORCH_MAX_NODES = 4096, TT__TORCH_MAX_STATE = 4 << 20 };

/* What stands in the store before there is a state: a store's get would wait for a missing key. */
#define TT__TORCH_NO_STATE "Y2FuaW1hZGFt"

/* An agent. */
typedef struct tt__torch_node {
    char address[TT__TORCH_ADDRESS];
    int64_t pid, local_id;
} tt__torch_node;

/* What the state says of a node: nothing, when none of the flags is set. */
typedef struct tt__torch_member {
    tt__torch_node node;
    bool participant, waiting, redundant, beats;
    int64_t rank;    /* of a participant, when the round is complete */
    int64_t beat_us; /* its last heartbeat (beats), us since 1970 */
} tt__torch_member;

typedef enum tt__torch_times { TT__TORCH_TIMES_UNKNOWN, TT__TORCH_NAIVE, TT__TORCH_AWARE } tt__torch_times;

/* Zeroed = a rendezvous that nobody has joined. */
typedef struct tt__torch_state {
    int64_t round;
    bool complete, closed, has_deadline;
    int64_t deadline_us;   /* when a round with enough participants is complete */
    tt__torch_times times; /* as they were read; what is written of an unknown kind is aware */
    tt__torch_member *members;
    size_t count, room;
} tt__torch_state;

void tt__torch_state_free(tt__torch_state *state);

/* Order of the ranks: by address, pid, id. */
int tt__torch_node_compare(const tt__torch_node *a, const tt__torch_node *b);

/* The member of a node; NULL: there is none. _add makes it: NULL with TT_ERR_MEMORY, or above TT__TORCH_MAX_NODES. */
tt__torch_member *tt__torch_find(const tt__torch_state *state, const tt__torch_node *node);
tt__torch_member *tt__torch_add(tt__torch_state *state, const tt__torch_node *node);

/* How many nodes take part, and how many wait. */
int tt__torch_participants(const tt__torch_state *state);
int tt__torch_waiting(const tt__torch_state *state);

/* ---- the text in the store: what _encode writes has a NUL behind it that is not counted */

/* Read the value of the key. An empty state for TT__TORCH_NO_STATE. On failure (TT_ERR_FORMAT, TT_ERR_UNSUPPORTED,
 * TT_ERR_MEMORY) *state is empty. */
tt_status tt__torch_decode(tt__torch_state *state, const void *text, size_t size);
tt_status tt__torch_encode(const tt__torch_state *state, tt__bytes *text);

/* ---- torch_base64.c, torch_pickle.c: its two halves */

/* Append. Reading is strict, as nobody writes anything else: no blanks, no missing padding. */
void tt__base64_encode(tt__bytes *text, const uint8_t *data, size_t size);
tt_status tt__base64_decode(tt__bytes *data, const char *text, size_t size);

/* The pickle itself. *state is zeroed before; on failure the caller frees what is in it. */
tt_status tt__torch_unpickle(tt__torch_state *state, const uint8_t *data, size_t size);

#endif
