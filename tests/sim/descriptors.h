/* Virtual descriptors, with numbers above all real ones. They stand in for base/process/waits.c and
 * launch/local/signals.c. */
#ifndef SIM_DESCRIPTORS_H
#define SIM_DESCRIPTORS_H

#include "sim/world.h"

typedef enum sim_fd_kind {
    SIM_FD_CLOSED,
    SIM_FD_COUNTER,
    SIM_FD_SIGNALS,
    SIM_FD_KEEPER,
    SIM_FD_STREAM,
    SIM_FD_JOB
} sim_fd_kind;

/* Make a descriptor. `owner`: for its maker's use. */
int sim_fd_new(sim_fd_kind kind, void *owner);
void *sim_fd_owner(int fd, sim_fd_kind kind);

/* One more thing can be read from it; one less. */
void sim_fd_put(int fd);
void sim_fd_take(int fd);

/* Give an agent's signalfd a signal; false: it has none (any more). */
bool sim_fd_signal(int fd, int sig);

/* Close it, if it is a virtual one, and tell its owner by one of the two functions below. */
void sim_fd_close(int fd);
void sim_keeper_closed(void *owner);
void sim_stream_closed(void *owner);

#endif
