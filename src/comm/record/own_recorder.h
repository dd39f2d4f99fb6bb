/* The recorder of a process that has no group, in memory of its own: `tutti top` finds it as that of a group. */
#ifndef TT_COMM_OWN_RECORDER_H
#define TT_COMM_OWN_RECORDER_H

#include "comm/record/recorder.h"

typedef struct tt__own_recorder {
    tt__recorder *recorder; /* NULL: there was no memory for one, or it was not opened */
    int memory, socket;
} tt__own_recorder;

/* Make one, of the rank that the launcher numbered, or else of rank `number`, and hand it to the launcher, if there is
 * one: a group that is made later takes its place there. Without memory for it there is none. */
void tt__own_recorder_open(tt__own_recorder *own, int number);

void tt__own_recorder_close(tt__own_recorder *own);

#endif
