/* What `tutti tune` finds, and the table it makes of it. */
#ifndef TT_CLI_TUNE_H
#define TT_CLI_TUNE_H

#include "base/bytes.h"
#include "comm/collective/algorithms.h"

enum { TT__TUNE_SIZES = 16, TT__TUNE_ALGORITHMS = 16 };

/* Times of the algorithms of one operation. */
typedef struct tt__tune_times {
    tt_op op;
    int ranks, hosts;
    int sizes, algorithms;
    size_t bytes[TT__TUNE_SIZES]; /* ascending */
    const tt__algorithm *of[TT__TUNE_ALGORITHMS];
    double usec[TT__TUNE_SIZES][TT__TUNE_ALGORITHMS];
} tt__tune_times;

/* Add the rules for one operation: the fastest algorithm up to each size. An algorithm with an order of its own never
 * wins, nor does one that is hardly faster than the winner at the size before. */
void tt__tune_put_rules(tt__bytes *text, const tt__tune_times *times);

/* Add the lines of `previous` but comments, and rules for one of `ops` with the same ranks and hosts. */
void tt__tune_put_previous(tt__bytes *text, const char *previous, const bool ops[TT_OPS], int ranks, int hosts);

#endif
