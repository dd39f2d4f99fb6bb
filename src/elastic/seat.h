/* The seat of a job's coordinator, as a store outside of the job has it, which outlives the loss of hosts: etcd, or
 * replicas of a store of our own. It names who sits there: "ADDRESS PORT" of the store that this one serves. Who sits
 * there says so again and again; who is silent for tt__seat_ttl_ms() has left it.
 *
 * etcd has leases, which end by its clock. Replicas have none: the name is followed by a number that its owner counts
 * on, and by how long that may take; others take the seat when they have seen the same number for so long, by their own
 * clocks. Their first look begins that time.
 *
 * One thread's at a time. Errors are the store's; TT_ERR_TIMEOUT is worth another try. */
#ifndef TT_ELASTIC_SEAT_H
#define TT_ELASTIC_SEAT_H

#include "elastic/job.h"

#include <netdb.h>

enum { TT__SEAT_NAME_SIZE = NI_MAXHOST + 8 };
enum { TT__SEAT_REPLICA_PORT = 29400 }; /* of a replica without one, as of one endpoint */

typedef struct tt__seat tt__seat;

/* Prepare for job->etcd: no connection yet. `job` is borrowed. On a host that is one of the replicas' this launcher
 * serves that replica from the first connection until tt__seat_free(). */
tt_status tt__seat_new(tt__seat **out, const tt__job *job);
/* NULL is allowed. */
void tt__seat_free(tt__seat *seat);

/* Connect, unless this is done; and end the connection, for the next one to be new. */
tt_status tt__seat_open(tt__seat *seat);
void tt__seat_close(tt__seat *seat);

/* Read who sits there; "": nobody, or one who has been silent. */
tt_status tt__seat_find(tt__seat *seat, char there[TT__SEAT_NAME_SIZE]);

/* Say that this process is there, for so long at least, before it sits there, and from then on. */
tt_status tt__seat_keep(tt__seat *seat, int64_t ttl_ms);
int64_t tt__seat_ttl_ms(const tt__seat *seat);

/* Sit there as `name`, unless somebody does. `there` := who does then. */
tt_status tt__seat_take(tt__seat *seat, const char *name, char there[TT__SEAT_NAME_SIZE]);

/* Say no more that this process is there, so that another may follow at once. */
void tt__seat_leave(tt__seat *seat);

/* The job is over: where its replicas end with it nobody need be told who has left. */
void tt__seat_over(tt__seat *seat);

#endif
