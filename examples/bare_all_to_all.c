/* Every rank gives something else to every other: first blocks of one size, then of sizes that differ, as a router of
 * experts does with its tokens. Mirrors the Python
 *
 *     dist.all_to_all_single(output, input)
 *     dist.all_to_all_single(output, input, output_split_sizes, input_split_sizes)
 *
 *   tutti run --nproc-per-node=2 build/examples/bare_all_to_all */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/comm.h>

#include "usage.h"

enum { BLOCK = 2, MOST = 8 }; /* ranks */

static void print_list(const char *what, int rank, const int64_t *values, int64_t n) {
    char text[1024];
    int at = snprintf(text, sizeof text, "%s: rank %d has", what, rank);
    for (int64_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %" PRId64, values[i]);
    puts(text);
}

/* Rank a's element i for rank b is 100 a + 10 b + i. */
static tt_status even(tt_group *world) {
    int rank = tt_get_rank(world), ranks = tt_get_world_size(world);
    int64_t input[MOST * BLOCK], output[MOST * BLOCK];
    for (int i = 0; i < ranks * BLOCK; i++)
        input[i] = 100 * rank + i / BLOCK * 10 + i % BLOCK;
    if (tt_all_to_all(world, input, output, BLOCK, TT_I64))
        return tt_last_status();
    print_list("even", rank, output, ranks * BLOCK);
    return TT_OK;
}

/* Likewise, and rank a has a + b + 1 elements for rank b, which b knows. (Otherwise an all_to_all of the counts would
 * come first.) */
static tt_status uneven(tt_group *world) {
    int rank = tt_get_rank(world), ranks = tt_get_world_size(world);
    int64_t input[MOST * 2 * MOST], output[MOST * 2 * MOST];
    int64_t counts[MOST], total = 0;
    for (int r = 0; r < ranks; r++) {
        counts[r] = rank + r + 1;
        for (int64_t i = 0; i < counts[r]; i++)
            input[total++] = 100 * rank + 10 * r + i;
    }
    if (tt_all_to_all_v(world, input, counts, NULL, output, counts, NULL, TT_I64))
        return tt_last_status();
    print_list("uneven", rank, output, total);
    return TT_OK;
}

static const char usage[] = "usage: tutti run --nproc-per-node=N bare_all_to_all\n"
                            "Every rank gives something else to every other.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    if (tt_get_world_size(world) > MOST) {
        fprintf(stderr, "bare_all_to_all: at most %d ranks\n", MOST);
        goto out;
    }
    if (even(world) || uneven(world))
        goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_destroy_process_group(world);
    return rc;
}
