/* The launcher's part in a job of PyTorch's agents: what nodes.h is for a job of our own launchers. Each function does
 * nothing, or says no, where job->torch is NULL. */
#ifndef TT_ELASTIC_LAUNCHER_TORCH_H
#define TT_ELASTIC_LAUNCHER_TORCH_H

#include "elastic/launcher.h"

/* Serve the rendezvous' store, if that is on this host, and join. */
tt_status tt__launcher_torch_join(tt__launcher_state *l);

/* Readable when there is something to take; -1: never. */
int tt__launcher_torch_fd(const tt__launcher_state *l);

/* Take what the agent says. When no worker is left here, ask for another round if there is to be one. */
void tt__launcher_torch_take(tt__launcher_state *l);

/* The job is over here: wait for the other agents, by serve(l), until they are done or a signal comes. */
void tt__launcher_torch_finish(tt__launcher_state *l, void (*serve)(tt__launcher_state *l));

void tt__launcher_torch_free(tt__launcher_state *l);

#endif
