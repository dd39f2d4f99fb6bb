/* A rank that waits leaves its CPU to others: beyond the first 10 ms it uses less than 5 % of a core, whatever
 * it waits on. Processor time is measured, not the clock, so other load doesn't matter. TT_STORM_SECONDS=N
 * waits longer. */
#include "support/hosts.h"
#include "support/ranks.h"
#include "support/storm.h"

#include <sys/resource.h>
#include <time.h>

typedef struct scene {
    enum hosts hosts;
    double seconds;
} scene;

static double processor_ms(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1e3 * (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

/* It may last longer than it was meant to. */
static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + (double)t.tv_nsec / 1e6;
}

static void pass(double seconds) {
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))},
        NULL);
}

/* All wait for the last rank. */
static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    hosts_enter(scene->hosts, rank);
    tt_group *group = join_group(store, rank, world);
    CHECK_OK(tt_barrier(group));
    double before = processor_ms(), began = now_ms();
    if (rank == world - 1)
        pass(scene->seconds);
    CHECK_OK(tt_barrier(group));
    double used = processor_ms() - before - 10, share = used > 0 ? used / (now_ms() - began) : 0;
    if (rank == 0)
        print_message("%d ranks, %s: a waiting rank used %.2f %% of a core\n", world, hosts_name(scene->hosts),
                      100 * share);
    CHECK(share < 0.05);
    tt_destroy_process_group(group);
    return 0;
}

static void wait_on(enum hosts hosts) {
    if (!hosts_wanted(hosts))
        skip();
    scene scene = {hosts, (double)storm_number("TT_STORM_SECONDS", 0)};
    if (scene.seconds <= 0)
        scene.seconds = 0.7;
    with_ranks(4, body, &scene);
    with_ranks(8, body, &scene);
}

static void on_shared_memory(void **state) {
    (void)state;
    wait_on(HOSTS_ONE);
}

static void on_tcp(void **state) {
    (void)state;
    wait_on(HOSTS_TCP);
}

static void on_both(void **state) {
    (void)state;
    wait_on(HOSTS_PAIRS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_shared_memory),
        cmocka_unit_test(on_tcp),
        cmocka_unit_test(on_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
