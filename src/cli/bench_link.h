/* How near averaging comes to what a link allows. A rank can't have its averages before each bucket, from the moment
 * when its last gradient is there, and all later ones have gone over the link. */
#ifndef TT_CLI_BENCH_LINK_H
#define TT_CLI_BENCH_LINK_H

#include <tutti/parallel.h>

typedef struct tt__bench_link tt__bench_link;

/* Watch the steps of a wrapper whose buckets are formed, `steps` of them at most, between ranks that are joined by
 * links of so many Mbit/s. The link goes before the wrapper. */
tt_status tt__bench_link_new(tt__bench_link **out, tt_module *ddp, tt_group *group, int64_t mbit, int64_t steps);
void tt__bench_link_free(tt__bench_link *link);

/* Around a step's forward and backward. NULL ok. */
void tt__bench_link_begin(tt__bench_link *link);
void tt__bench_link_end(tt__bench_link *link);

/* The medians of the least time, and of how many times that was taken. */
void tt__bench_link_medians(tt__bench_link *link, double *least_ms, double *ratio);

#endif
