/* The least time until gradients are averaged that a link allows, beside the time taken. Buckets cross the link one
 * after the other, each when its last gradient is ready: so for every bucket averaging takes at least the time at which
 * that bucket was ready, and the link's time for it and all later ones. The largest of these is the least time. */
#ifndef TT_CLI_BENCH_LINK_H
#define TT_CLI_BENCH_LINK_H

#include <tutti/parallel.h>

typedef struct tt__bench_link tt__bench_link;

/* Time steps of a wrapper, up to `steps` of them (later ones are ignored). Its buckets must have been formed: after its
 * first step. mbit: of the links between ranks, in Mbit/s, each way. To be freed before the wrapper, also after a
 * failure. */
tt_status tt__bench_link_new(tt__bench_link **out, tt_module *ddp, tt_group *group, int64_t mbit, int64_t steps);
void tt__bench_link_free(tt__bench_link *link);

/* Begin and end a step's forward and backward. NULL is allowed. */
void tt__bench_link_begin(tt__bench_link *link);
void tt__bench_link_end(tt__bench_link *link);

/* The medians, over steps, of the least time in ms, and of the time taken as a multiple of it. After a step at
 * least. */
void tt__bench_link_medians(tt__bench_link *link, double *least_ms, double *ratio);

#endif
