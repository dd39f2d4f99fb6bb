/* A rank that reduces one number and says when it had done so, in seconds of CLOCK_MONOTONIC, for startup.py. */
#include <tutti/comm.h>

#include <stdio.h>
#include <time.h>

int main(void) {
    tt_group *world = NULL;
    float one = 1;
    tt_status status = tt_init_process_group(&world);
    if (!status)
        status = tt_all_reduce(world, &one, 1, TT_F32, TT_SUM);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (!status)
        printf("%.6f\n", (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    tt_report();
    tt_destroy_process_group(world);
    return status ? 1 : 0;
}
