/* A recorder of this process's own, which stands between its groups: in it the launcher reads what the process wants
 * when it has no group, because joining one failed. On its connection the launcher tells of rounds. */
#ifndef TT_ELASTIC_STANDING_RECORD_H
#define TT_ELASTIC_STANDING_RECORD_H

#include "comm/record/recorder.h"

/* Zeroed: none. */
typedef struct tt__standing_record {
    tt__recorder *recorder; /* NULL: no launcher watches */
    int memory;
    int socket; /* to the launcher; -1: there is none */
} tt__standing_record;

/* Make it, and show it. */
tt_status tt__standing_record_open(tt__standing_record *standing, int rank, int world);

/* Show it to the launcher again, in place of a recorder that has ended since or soon will, as that of this rank. */
void tt__standing_record_show(tt__standing_record *standing, int rank, int world);

void tt__standing_record_close(tt__standing_record *standing);

#endif
