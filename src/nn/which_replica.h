/* Several threads that run one module at once, each on a part of the batch (DataParallel): which is this? */
#ifndef TT_NN_WHICH_REPLICA_H
#define TT_NN_WHICH_REPLICA_H

/* Number `index` of `count`; 0 of 1 in a thread that runs no replica. What a forward changes beside its results,
 * running statistics, replica 0 changes. */
typedef struct tt__replica {
    int index, count;
} tt__replica;

tt__replica tt__replica_of_thread(void);

/* Set it for this thread. Returns what it was. */
tt__replica tt__replica_set(tt__replica replica);

#endif
