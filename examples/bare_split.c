/* Ranks as a grid: a group for each row and one for each column, as pipelines and tensor parallelism want them. Mirrors
 * the Python
 *
 *     mesh = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("row", "column"))
 *     dist.all_reduce(a, group=mesh.get_group("column"))       # over the ranks of this row
 *     dist.all_reduce(b, group=mesh.get_group("row"))
 *
 *   tutti run --nproc-per-node=4 build/examples/bare_split */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/comm.h>

#include "usage.h"

enum { COLUMNS = 2 };

static const char usage[] = "usage: tutti run --nproc-per-node=N bare_split\n"
                            "Ranks as a grid: a group for each row and one for each column.\n";

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL, *row = NULL, *column = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    int rank = tt_get_rank(world);
    /* Ranks of one color form a group; the key orders them in it. */
    if (tt_group_split(&row, world, /* color */ rank / COLUMNS, /* key */ rank) ||
        tt_group_split(&column, world, /* color */ rank % COLUMNS, /* key */ rank))
        goto out;
    int64_t in_row = rank, in_column = rank;
    if (tt_all_reduce(row, &in_row, 1, TT_I64, TT_SUM) || tt_all_reduce(column, &in_column, 1, TT_I64, TT_SUM))
        goto out;
    printf("rank %d is at (%d, %d): ranks of its row add up to %d, of its column to %d\n", rank, tt_get_rank(column),
           tt_get_rank(row), (int)in_row, (int)in_column);
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_destroy_process_group(column);
    tt_destroy_process_group(row);
    tt_destroy_process_group(world);
    return rc;
}
