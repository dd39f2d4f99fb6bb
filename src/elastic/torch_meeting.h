/* A node at PyTorch's rendezvous in a store: reads the state, takes a step (torch_rendezvous.h), writes it if nobody
 * has changed it meanwhile. Used by one thread. */
#ifndef TT_ELASTIC_TORCH_MEETING_H
#define TT_ELASTIC_TORCH_MEETING_H

#include "elastic/torch_rendezvous.h"

#include <tutti/store.h>

typedef struct tt__torch_meeting {
    tt_store *store; /* borrowed */
    tt__torch_settings settings;
    tt__torch_node node;   /* this one */
    tt__torch_times times; /* to write, where nobody has written any */
    tt__torch_state state; /* as last seen */
    char *key;
    tt_store_value token; /* what the key held then */
    bool dirty;           /* the state was changed since */
} tt__torch_meeting;

/* Name the node: `address` (in which others find its store), this process, and a number that no other rendezvous of
 * this process has. TT_ERR_INVALID: the address is too long. */
tt_status tt__torch_name_node(tt__torch_node *node, const char *address);

/* Begin; the fields above `state` are set. One call to the store. */
tt_status tt__torch_meeting_open(tt__torch_meeting *m, const char *run_id);
void tt__torch_meeting_close(tt__torch_meeting *m);

/* Read the state, or write it if the last step changed it and read what is there then; take a step of `operation`.
 * late_ms, restart_clock: of tt__torch_step. Fails as the store does, or with what tt__torch_decode() says. */
tt_status tt__torch_meeting_step(tt__torch_meeting *m, tt__torch_verdict (*operation)(const tt__torch_step *step),
                                 int64_t late_ms, bool *restart_clock, tt__torch_verdict *verdict);

#endif
