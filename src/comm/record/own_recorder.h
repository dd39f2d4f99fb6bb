/* The recorder of a process without a group, in memory of its own; `tutti top` finds it like that of a rank. */
#ifndef TT_COMM_OWN_RECORDER_H
#define TT_COMM_OWN_RECORDER_H

#include "comm/record/recorder.h"

typedef struct tt__own_recorder {
    tt__recorder *recorder; /* NULL: there was no memory for one, or it was not opened */
    int memory, socket;
} tt__own_recorder;

/* Make a recorder for the rank that the launcher set, else for rank `number`, and hand it to the launcher, if there is
 * one; a group made later takes its place there. Without memory own->recorder is NULL. */
void tt__own_recorder_open(tt__own_recorder *own, int number);

void tt__own_recorder_close(tt__own_recorder *own);

#endif
