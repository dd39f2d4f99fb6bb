/* The comparisons of tutti-bench. Each prints JSON objects, one a line, on stdout. */
#ifndef TT_BENCH_COMPARE_H
#define TT_BENCH_COMPARE_H

#include "cli/cli.h"

extern const tt__command tt__compare_agreement, tt__compare_link, tt__compare_pipeline, tt__compare_zero;

#endif
