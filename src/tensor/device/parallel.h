/* Loops shared among threads: oneDNN's own (OpenMP), so that the two never fight for the CPUs.
 *
 * How many: tt_set_num_threads(), else OMP_NUM_THREADS, else the CPUs this process may use, shared with the ranks of
 * its host that may use them, too (comm sets base/process/limits.h). A forked child has none of OpenMP's threads, and
 * would wait for them forever: children compute on one thread. Those of tt_spawn() are an exception: their function
 * runs in a new thread, for which OpenMP starts new ones. */
#ifndef TT_TENSOR_PARALLEL_H
#define TT_TENSOR_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

/* Have the threads of OpenMP's runtime wait as base/process/threads.h says, unless the process has loaded it already or
 * the user has said otherwise. Sets an environment variable, so it is to be called before oneDNN or that runtime is
 * loaded. */
void tt__openmp_wait_briefly(void);

/* Call body(user, begin, end) for ranges that make up 0..n-1, each `block` long, the last one maybe shorter, in any
 * order and thread. The ranges don't depend on the number of threads: results kept for each range and combined in order
 * have the same bits for any. Returns when all are done. */
void tt__parallel_for(int64_t n, int64_t block, void (*body)(void *user, int64_t begin, int64_t end), void *user);

/* Does this thread run a share of such a loop beside others? What it calls then has one thread. */
bool tt__parallel_inside(void);

/* Set OpenMP's number of threads to ours, before this thread uses it (oneDNN does). Cheap. */
void tt__parallel_prepare(void);

/* Let operators that this thread calls use at most so many threads; 0: no limit of its own. Returns what was set
 * before. */
int tt__parallel_limit(int threads);

#endif
