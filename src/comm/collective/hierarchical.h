/* Algorithms made of calls inside hosts (group->local, shared memory) and between them (group->cross: the ranks with this rank's number inside
 * their hosts). Such a call is a child of the work; one at a time. */
#ifndef TT_COMM_COLLECTIVE_HIERARCHICAL_H
#define TT_COMM_COLLECTIVE_HIERARCHICAL_H

#include "comm/group.h"

/* Several hosts, with as many ranks each, more than one. */
bool tt__has_hosts(const tt_group *group);

/* The same, and rank r is number r % L on the host number r / L, of L ranks a host. */
bool tt__has_host_blocks(const tt_group *group);

/* Rank r's number among the hosts (its rank in a cross group), and inside its host (its rank in a local group). */
int tt__host_of(const tt_group *group, int r);
int tt__local_of(const tt_group *group, int r);

/* Begin `call` on `group` as a child and wait for it; call site, timeout and type are the work's. */
tt__next tt__leg(tt_work *work, tt_group *group, tt_call call);

#endif
