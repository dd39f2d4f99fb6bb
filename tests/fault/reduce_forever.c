/* A rank that reduces until something fails, for tests that end or disturb it: reduce_forever [HEARTBEAT_MS [FILE]].
 * Rank 0 writes into FILE how many calls it has made (8 bytes). Ends with 1, or with 3 where a sum was wrong. */
#include "support/patience.h"

#include <tutti/comm.h>

#include <fcntl.h>
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
    int counter = argc > 2 && tt_get_rank(world) == 0 ? open(argv[2], O_WRONLY | O_CLOEXEC) : -1;
    bool right = true;
    for (int64_t calls = 1; !status && right; calls++) {
        x = 1;
        status = tt_all_reduce(world, &x, 1, TT_F32, TT_SUM);
        right = status || x == (float)tt_get_world_size(world);
        if (counter >= 0 && pwrite(counter, &calls, sizeof calls, 0) != sizeof calls)
            right = false;
    }
    if (counter >= 0)
        close(counter);
    if (!right)
        printf("rank %d: wrong sum: %g\n", tt_get_rank(world), (double)x);
    else
        tt_report();
    tt_destroy_process_group(world);
    return right ? 1 : 3;
}
