/* A recorder of this process's own, which stands between its groups: in it the launcher reads what the process wants
 * when it has no group, because joining one failed. On its connection the launcher tells of rounds. */
#ifndef TT_ELASTIC_STANDING_RECORD_H
#define TT_ELASTIC_STANDING_RECORD_H

#include "comm/record/recorder.h"
#include "net/job/job_socket.h"

/* Zeroed: none. */
typedef struct tt__standing_record {
    tt__recorder *recorder; /* NULL: no launcher watches */
    int memory;
    int socket; /* to the launcher; -1: there is none */
} tt__standing_record;

/* There is one a process, since what it tells its launcher, and its signals, are the process's. Claim it; false: it is
 * claimed already. A forked child may claim its own. */
bool tt__standing_record_claim(void);
void tt__standing_record_release(void);

/* Make it, and show it. */
tt_status tt__standing_record_open(tt__standing_record *standing, int rank, int world);

/* Show it to the launcher again, in place of a recorder that has ended since or soon will, as that of this rank. */
void tt__standing_record_show(tt__standing_record *standing, int rank, int world);

void tt__standing_record_close(tt__standing_record *standing);

/* Receive a packet of the launcher's through standing->socket within `ms`: 1; 0: none came; -1: the launcher has
 * ended. */
int tt__standing_record_receive(int socket, tt__job_packet *packet, int ms);

#endif
