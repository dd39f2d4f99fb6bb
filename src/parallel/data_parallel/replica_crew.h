/* The threads of replicas: they live as long as what they are for, so that their memory and oneDNN's primitives are
 * used again. */
#ifndef TT_PARALLEL_DATA_PARALLEL_REPLICA_CREW_H
#define TT_PARALLEL_DATA_PARALLEL_REPLICA_CREW_H

#include <tutti/tensor.h>

typedef struct tt__replica_crew tt__replica_crew;

/* Make a crew of `threads`, of which the first is the one that calls tt__replica_crew_run(), with one reference. NULL
 * and an error: no memory, or no more threads. */
tt__replica_crew *tt__replica_crew_new(int threads);
tt__replica_crew *tt__replica_crew_ref(tt__replica_crew *crew);
void tt__replica_crew_unref(tt__replica_crew *crew);

/* Run task(user, i) for i in 0..n-1, each in thread i as replica i of n, with a share of the threads that operators may
 * use; returns when all are done. One thread at a time calls it. In a forked child, which has none of the threads, the
 * caller runs one after the other. */
void tt__replica_crew_run(tt__replica_crew *crew, int n, void (*task)(void *user, int i), void *user);

/* Have thread i free a scope that it made, before its next task; NULL is allowed. */
void tt__crew_end_scope(tt__replica_crew *crew, int i, tt_scope *scope);

#endif
