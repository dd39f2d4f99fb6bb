/* A rank that reduces until something fails, for tests that end or disturb it: reduce_forever [HEARTBEAT_MS] */
#include "support/patience.h"

#include <tutti/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    tt_group *world = NULL;
    float x = 1;
    tt_status status =
        tt_init_process_group(&world, .timeout_ms = 60000, .heartbeat_ms = argc > 1 ? atoi(argv[1]) : CALM_MS);
    if (!status && !(status = tt_barrier(world))) {
        printf("rank %d is pid %d.\n", tt_get_rank(world), (int)getpid());
        fflush(stdout);
    }
    while (!status) {
        x = 1;
        status = tt_all_reduce(world, &x, 1, TT_F32, TT_SUM);
    }
    tt_report();
    tt_destroy_process_group(world);
    return 1;
}
