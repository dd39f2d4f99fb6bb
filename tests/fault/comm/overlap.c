/* Does an asynchronous all-reduce go on while its rank computes? Times computing alone, reducing alone, and both at
 * once; rank 0 prints one JSON object for each of several amounts of computing. cpu_ms is what reducing takes of a CPU
 * while the ranks sleep, the kernel's part included: both at once can't be faster than the link, nor than computing and
 * this.
 * bench/run.py runs it between hosts with a slow link; test_overlap.sh looks at the results only.
 *
 *   overlap [BYTES [REPETITIONS]]     ranks from env:// */
#include <tutti/comm.h>

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { POINTS = 7, MOST = 64 /* repetitions */ };

typedef struct job {
    tt_group *group;
    float *buf;
    size_t count;
    int rank, world;
    double sleep_ms; /* what a go sleeps instead of waiting at once, which would take the CPU */
    double busy_ms;  /* of a CPU, in all goes so far, between their clocks */
} job;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* How long a CPU of this machine was busy so far, on average: by processes, and by the kernel, which handles packets on
 * nobody's account. So nothing else should run. What the kernel tells has steps of 10 ms. */
static double busy_ms(void) {
    uint64_t idle = 0, waiting = 0;
    FILE *stat = fopen("/proc/stat", "r");
    if (stat && fscanf(stat, "cpu %*u %*u %*u %" SCNu64 "%" SCNu64, &idle, &waiting) != 2)
        idle = waiting = 0;
    if (stat)
        fclose(stat);
    return now_ms() -
           (double)(idle + waiting) * 1e3 / (double)sysconf(_SC_CLK_TCK) / (double)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Keep to a CPU of its own, as a host does, where there is one for each rank: else the kernel gathers all that serves
 * the network on one CPU, whose rank computes the longer. */
static void keep_to_own_cpu(int rank, int world) {
    cpu_set_t all, own;
    int cpu = -1;
    if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < world)
        return;
    for (int left = rank; left >= 0; left--)
        for (cpu++; !CPU_ISSET(cpu, &all); cpu++)
            ;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof own, &own);
}

/* Arithmetic that nobody can leave out, in a cache's worth of memory. */
static double compute(int64_t rounds) {
    static double x[512];
    for (int64_t i = 0; i < rounds; i++)
        for (int j = 0; j < 512; j++)
            x[j] = x[j] * 0.999 + 0.001 * (double)(j + 1);
    return x[7];
}

static int64_t rounds_for(double ms) {
    int64_t rounds = 1000;
    for (double took = 0; took < 20; rounds *= 2) {
        double start = now_ms();
        compute(rounds);
        took = now_ms() - start;
        if (took >= 20)
            return (int64_t)((double)rounds * ms / took);
    }
    return rounds;
}

static void fill(const job *job) {
    for (size_t i = 0; i < job->count; i++)
        job->buf[i] = (float)((i + (size_t)job->rank) % 8);
}

static int check(const job *job) {
    for (size_t i = 0; i < job->count; i++) {
        float want = 0;
        for (int r = 0; r < job->world; r++)
            want += (float)((i + (size_t)r) % 8);
        if (job->buf[i] != want) {
            fprintf(stderr, "rank %d: element %zu is %g instead of %g\n", job->rank, i, (double)job->buf[i],
                    (double)want);
            return 1;
        }
    }
    return 0;
}

/* One go: `rounds` of computing, an all-reduce, or both. *wrong: whether the result is. */
static tt_status go(job *job, int64_t rounds, bool reduces, double *ms, int *wrong) {
    tt_work *work = NULL;
    fill(job);
    tt_status status = tt_barrier(job->group);
    double start = now_ms(), busy = busy_ms();
    if (!status && reduces)
        status = tt_all_reduce(job->group, job->buf, job->count, TT_F32, TT_SUM, .work = &work);
    volatile double sink = compute(rounds);
    (void)sink;
    nanosleep(&(struct timespec){(time_t)(job->sleep_ms / 1e3), (long)(job->sleep_ms * 1e6) % 1000000000}, NULL);
    if (!status && reduces)
        status = tt_work_wait(work);
    *ms = now_ms() - start;
    job->busy_ms += busy_ms() - busy;
    tt_work_free(work);
    if (!status && reduces)
        *wrong |= check(job);
    return status;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median, the slowest rank's. */
static tt_status median_of(job *job, double *times, int repetitions, double *ms) {
    qsort(times, (size_t)repetitions, sizeof *times, by_value);
    *ms = times[repetitions / 2];
    return tt_all_reduce(job->group, ms, 1, TT_F64, TT_MAX);
}

static tt_status time_reduction(job *job, int repetitions, double *ms, int *wrong) {
    double times[MOST];
    tt_status status = TT_OK;
    for (int i = 0; i < repetitions && !status; i++)
        status = go(job, 0, true, &times[i], wrong);
    return status ? status : median_of(job, times, repetitions, ms);
}

/* The CPU time of a reduction that nobody waits for: it is over when its rank wakes. */
static tt_status reduction_cpu(job *job, double reduce_ms, int repetitions, double *ms, int *wrong) {
    double ignored;
    job->busy_ms = 0;
    job->sleep_ms = 1.5 * reduce_ms;
    tt_status status = time_reduction(job, repetitions, &ignored, wrong);
    job->sleep_ms = 0;
    *ms = job->busy_ms / repetitions;
    return status;
}

/* Computing that takes `share` of the time of the reduction, which needs `reduce_cpu_ms` of the CPU. */
static tt_status point(job *job, double share, double reduce_ms, double reduce_cpu_ms, int repetitions, int *wrong) {
    double compute_ms = 0, both_ms = 0, computing[MOST], both[MOST];
    int64_t rounds = rounds_for(share * reduce_ms);
    tt_status status = TT_OK;
    for (int i = 0; i < repetitions && !status; i++) { /* alternately: a CPU's speed changes with the time */
        status = go(job, rounds, false, &computing[i], wrong);
        if (!status)
            status = go(job, rounds, true, &both[i], wrong);
    }
    if (!status)
        status = median_of(job, computing, repetitions, &compute_ms);
    if (!status)
        status = median_of(job, both, repetitions, &both_ms);
    if (!status && job->rank == 0)
        printf("{\"bench\":\"overlap\",\"world\":%d,\"bytes\":%zu,\"share\":%g,\"reduce_ms\":%.2f,\"compute_ms\":%.2f,"
               "\"cpu_ms\":%.2f,\"both_ms\":%.2f}\n",
               job->world, job->count * sizeof(float), share, reduce_ms, compute_ms, reduce_cpu_ms, both_ms);
    return status;
}

int main(int argc, char **argv) {
    static const double shares[POINTS] = {0.25, 0.5, 0.75, 1, 1.25, 1.5, 2};
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 16 << 20;
    int repetitions = argc > 2 ? atoi(argv[2]) : 5, wrong = 0;
    job job = {.count = bytes / sizeof(float)};
    double reduce_ms = 0, reduce_cpu_ms = 0;
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    if (repetitions < 1 || repetitions > MOST)
        return 2;
    if (rank && world)
        keep_to_own_cpu(atoi(rank), atoi(world));
    tt_status status = tt_init_process_group(&job.group, .timeout_ms = 60000);
    if (!status)
        status = tt_group_alloc((void **)&job.buf, job.group, bytes);
    job.rank = tt_get_rank(job.group);
    job.world = tt_get_world_size(job.group);
    if (!status)
        status = go(&job, 0, true, &reduce_ms, &wrong);
    if (!status)
        status = time_reduction(&job, repetitions, &reduce_ms, &wrong);
    if (!status)
        status = reduction_cpu(&job, reduce_ms, repetitions, &reduce_cpu_ms, &wrong);
    for (int i = 0; i < POINTS && !status; i++)
        status = point(&job, shares[i], reduce_ms, reduce_cpu_ms, repetitions, &wrong);
    if (status)
        tt_report();
    tt_destroy_process_group(job.group);
    return status || wrong;
}
