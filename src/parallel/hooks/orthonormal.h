/* Orthogonal rows. */
#ifndef TT_PARALLEL_HOOKS_ORTHONORMAL_H
#define TT_PARALLEL_HOOKS_ORTHONORMAL_H

#include <stdint.h>

/* a (rank,n), rank <= n: make its rows orthonormal, by Gram and Schmidt's method in double, twice for each row (Giraud
 * et al., 2005); one that depends on those before it, such as zeros, becomes a unit vector without their parts. NaN
 * stays. With `epsilon`, once, and rows are divided by their length plus that. The same bits on every machine. */
void tt__orthonormal_rows(float *a, int64_t rank, int64_t n, double epsilon);

#endif
