/* Forks of the process that makes groups. A forked child has a copy of its parent's groups, but not its threads, and
 * shares its sockets and memory: a single byte that it wrote would break the parent's calls. So a group knows the
 * process that made it; a child can do nothing with one but end its copy. */
#ifndef TT_COMM_FORKS_H
#define TT_COMM_FORKS_H

#include <stdint.h>

/* How many forks lie between this process and the first of its ancestors that made a group. */
extern uint32_t tt__forks;

/* Start to count forks. */
void tt__watch_forks(void);

#endif
