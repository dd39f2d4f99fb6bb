/* tutti bench startup: how long a whole job takes: launcher, store, ranks that join, one all_reduce, the end of all. */
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"

#include <tutti/comm.h>

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORLD = 1024, MAX_JOBS = 10000 };

static const tt__flag startup_flags[] = {
    TT__VALUE("world", 'w', "N", "ranks (default 2)"),
    TT__VALUE("jobs", 'j', "N", "jobs, one after the other, of which the median is taken (default 20)"),
    {0}};

static int startup_main(int argc, char **argv);

const tt__command tt__bench_startup = {
    .name = "bench startup",
    .what = "a whole job: launcher, ranks, one all_reduce, end",
    .usage = "[--world N] [--jobs N]",
    .text = "How long a whole job takes: tutti run starts the ranks, they join, do one all_reduce, and leave.",
    .flags = startup_flags,
    .run = startup_main,
};

/* Run one rank of a job. */
static int rank_main(void) {
    tt_group *world = NULL;
    int rc = TT__EXIT_FAILED;
    float one = 1;
    if (tt_init_process_group(&world, .timeout_ms = 60000) || tt_all_reduce(world, &one, 1, TT_F32, TT_SUM))
        goto out;
    if (one == (float)tt_get_world_size(world))
        rc = TT__EXIT_OK;
out:
    tt_report();
    tt_destroy_process_group(world);
    return rc;
}

/* Run one job. Returns 0, or an exit code. */
static int start_and_wait(char **argv, double *took_ms) {
    pid_t pid;
    int status = 0;
    int64_t start = tt__now_ns();
    int error = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
    if (error) {
        fprintf(stderr, "tutti bench startup: can't start %s: %s\n", argv[0], strerror(error));
        return TT__EXIT_FAILED;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    *took_ms = (double)(tt__now_ns() - start) / 1e6;
    if (status)
        fprintf(stderr, "tutti bench startup: the job failed\n");
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}

static int bench_jobs(int world, int jobs) {
    char self[4096], nproc[40];
    double *times = calloc((size_t)jobs, sizeof *times);
    if (!times || !tt__bench_self(self, sizeof self) || setenv("TUTTI_BENCH_RANK", "1", 1) ||
        setenv("OMP_NUM_THREADS", "1", 0)) {
        fprintf(stderr, "tutti bench startup: can't prepare the jobs: %s\n", strerror(errno));
        free(times);
        return TT__EXIT_FAILED;
    }
    snprintf(nproc, sizeof nproc, "--nproc-per-node=%d", world);
    char *argv[] = {self, "run", "--standalone", nproc, "--no-python", self, "bench", "startup", NULL};
    int rc = TT__EXIT_OK, middle = jobs / 2;
    for (int i = 0; !rc && i < jobs; i++)
        rc = start_and_wait(argv, &times[i]);
    tt__bench_sort(times, (size_t)jobs);
    if (!rc)
        tt__print(stdout, "{\"bench\":\"startup\",\"world\":%d,\"ms_median\":%.3f,\"ms_min\":%.3f}\n", world,
                  (times[middle - 1 + jobs % 2] + times[middle]) / 2, times[0]);
    free(times);
    return rc;
}

static int startup_main(int argc, char **argv) {
    int64_t world = 2, jobs = 20;
    if (tt__bench_is_rank())
        return rank_main();
    for (int c; (c = tt__cli_next_flag(&tt__bench_startup, argc, argv, NULL)) != -1;) {
        if (c == 'h' || c == '?')
            return c == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (c == 'w' ? tt__parse_i64("--world", optarg, 1, MAX_WORLD, &world)
                     : tt__parse_i64("--jobs", optarg, 1, MAX_JOBS, &jobs))
            return tt__cli_usage_error("bench startup", "%s", tt_last_error());
    }
    return bench_jobs((int)world, (int)jobs);
}
