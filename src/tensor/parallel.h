/* Loops shared among threads: oneDNN's own (OpenMP), so that the two never fight for the CPUs.
 *
 * How many: tt_set_num_threads(), else OMP_NUM_THREADS, else the CPUs this process may use, divided by the ranks of its
 * host (comm tells base/cores.h). A process that forks has no threads of OpenMP in the child, where one more product
 * would wait for them forever: children compute on one thread. */
#ifndef TT_TENSOR_PARALLEL_H
#define TT_TENSOR_PARALLEL_H

#include <stdint.h>

/* body(user, begin, end) for ranges that make up 0..n-1, each `block` long but for the last, in whatever order and
 * thread. The ranges don't depend on the number of threads: who keeps a result a range and combines them in order has
 * the same bits for any. Returns when all are done. */
void tt__parallel_for(int64_t n, int64_t block, void (*body)(void *user, int64_t begin, int64_t end), void *user);

/* Before OpenMP is used in this thread (oneDNN does): give it our number of threads. Cheap. */
void tt__parallel_prepare(void);

#endif
