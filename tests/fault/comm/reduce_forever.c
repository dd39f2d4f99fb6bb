/* A rank that reduces until something fails, for tests that end or disturb it: reduce_forever [HEARTBEAT_MS [FILE]].
 * Rank 0 writes into FILE how many calls it has made (8 bytes). Ends with 1, or with 3 where a sum was wrong.
 * FOREVER_PAUSE_US: how long it rests between calls, where others are to have the CPUs.
 * With "elastic" as FILE it survives the loss of other ranks, and SIGUSR2 ends it with 0. */
#include "support/patience.h"

#include <tutti/comm.h>
#include <tutti/elastic.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say_who(const tt_group *world) {
    printf("rank %d is pid %d.\n", tt_get_rank(world), (int)getpid());
    fflush(stdout);
}

static void end_well(int sig) {
    (void)sig;
    _exit(0);
}

static int survive(int heartbeat_ms) {
    tt_elastic *e;
    float x = 1;
    signal(SIGUSR2, end_well);
    tt_status status = tt_elastic_new(&e, .timeout_ms = 60000, .heartbeat_ms = heartbeat_ms);
    if (!status)
        status = tt_elastic_add(e, "x", &x, sizeof x);
    while (!status && !(status = tt_elastic_restore(e))) {
        if (!tt_barrier(tt_elastic_group(e)))
            say_who(tt_elastic_group(e));
        while (!tt_all_reduce(tt_elastic_group(e), &x, 1, TT_F32, TT_MAX) && !tt_elastic_commit(e))
            ;
    }
    tt_report();
    tt_elastic_free(e);
    return 1;
}

int main(int argc, char **argv) {
    tt_group *world = NULL;
    float x = 1;
    if (argc > 2 && !strcmp(argv[2], "elastic"))
        return survive(atoi(argv[1]));
    tt_status status =
        tt_init_process_group(&world, .timeout_ms = 60000, .heartbeat_ms = argc > 1 ? atoi(argv[1]) : CALM_MS);
    if (!status && !(status = tt_barrier(world)))
        say_who(world);
    int counter = argc > 2 && tt_get_rank(world) == 0 ? open(argv[2], O_WRONLY | O_CLOEXEC) : -1;
    bool right = true;
    const char *pause = getenv("FOREVER_PAUSE_US");
    for (int64_t calls = 1; !status && right; calls++) {
        x = 1;
        status = tt_all_reduce(world, &x, 1, TT_F32, TT_SUM);
        right = status || x == (float)tt_get_world_size(world);
        if (pause)
            usleep((useconds_t)atoi(pause));
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
