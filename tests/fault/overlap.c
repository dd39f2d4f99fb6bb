/* Does an asynchronous all-reduce go on while its rank computes? Times computing alone, reducing alone, and both at
 * once; rank 0 prints one JSON object for each of several amounts of computing. cpu_ms is what reducing alone takes of
 * a CPU, the kernel's part included: both at once can't be faster than the link, nor than computing and this.
 * bench/overlap.py runs it between hosts with a slow link; test_overlap.sh looks at the results only.
 *
 *   overlap [BYTES [REPETITIONS]]     ranks from env:// */
#include <tutti/comm.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { POINTS = 7 };

typedef struct job {
    tt_group *group;
    float *buf;
    size_t count;
    int rank, world;
    double cpu_ms; /* taken by all goes so far, between their clocks */
} job;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* What this process took of the CPUs so far, and what the kernel took of each CPU to handle packets, which it does on
 * nobody's account. */
static double cpu_ms(void) {
    struct timespec own;
    uint64_t irq = 0, softirq = 0;
    FILE *stat = fopen("/proc/stat", "r");
    if (stat && fscanf(stat, "cpu %*u %*u %*u %*u %*u %" SCNu64 "%" SCNu64, &irq, &softirq) != 2)
        irq = softirq = 0;
    if (stat)
        fclose(stat);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    return (double)own.tv_sec * 1e3 + (double)own.tv_nsec / 1e6 +
           (double)(irq + softirq) * 1e3 / (double)sysconf(_SC_CLK_TCK) / (double)sysconf(_SC_NPROCESSORS_ONLN);
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
    double start = now_ms(), cpu = cpu_ms();
    if (!status && reduces)
        status = tt_all_reduce(job->group, job->buf, job->count, TT_F32, TT_SUM, .work = &work);
    volatile double sink = compute(rounds);
    (void)sink;
    if (!status && reduces)
        status = tt_work_wait(work);
    *ms = now_ms() - start;
    job->cpu_ms += cpu_ms() - cpu;
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
static tt_status median(job *job, int64_t rounds, bool reduces, int repetitions, double *ms, int *wrong) {
    double times[64];
    tt_status status = TT_OK;
    for (int i = 0; i < repetitions && !status; i++)
        status = go(job, rounds, reduces, &times[i], wrong);
    if (status)
        return status;
    qsort(times, (size_t)repetitions, sizeof *times, by_value);
    *ms = times[repetitions / 2];
    return tt_all_reduce(job->group, ms, 1, TT_F64, TT_MAX);
}

static double longer(double a, double b) { return a > b ? a : b; }

/* Computing that takes `share` of the time of the reduction, which needs `reduce_cpu_ms` of the CPU. */
static tt_status point(job *job, double share, double reduce_ms, double reduce_cpu_ms, int repetitions, int *wrong) {
    double compute_ms = 0, both_ms = 0;
    int64_t rounds = rounds_for(share * reduce_ms);
    tt_status status = median(job, rounds, false, repetitions, &compute_ms, wrong);
    if (!status)
        status = median(job, rounds, true, repetitions, &both_ms, wrong);
    if (!status && job->rank == 0)
        printf("{\"bench\":\"overlap\",\"world\":%d,\"bytes\":%zu,\"reduce_ms\":%.2f,\"compute_ms\":%.2f,"
               "\"cpu_ms\":%.2f,\"both_ms\":%.2f,\"over_longer\":%.3f,\"over_bound\":%.3f}\n",
               job->world, job->count * sizeof(float), reduce_ms, compute_ms, reduce_cpu_ms, both_ms,
               both_ms / longer(compute_ms, reduce_ms), both_ms / longer(compute_ms + reduce_cpu_ms, reduce_ms));
    return status;
}

int main(int argc, char **argv) {
    static const double shares[POINTS] = {0.25, 0.5, 0.75, 1, 1.25, 1.5, 2};
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 16 << 20;
    int repetitions = argc > 2 ? atoi(argv[2]) : 5, wrong = 0;
    job job = {.count = bytes / sizeof(float)};
    double reduce_ms = 0;
    if (repetitions < 1 || repetitions > 64)
        return 2;
    tt_status status = tt_init_process_group(&job.group, .timeout_ms = 60000);
    if (!status)
        status = tt_group_alloc((void **)&job.buf, job.group, bytes);
    job.rank = tt_get_rank(job.group);
    job.world = tt_get_world_size(job.group);
    if (!status)
        status = go(&job, 0, true, &reduce_ms, &wrong);
    job.cpu_ms = 0;
    if (!status)
        status = median(&job, 0, true, repetitions, &reduce_ms, &wrong);
    double reduce_cpu_ms = job.cpu_ms / repetitions;
    for (int i = 0; i < POINTS && !status; i++)
        status = point(&job, shares[i], reduce_ms, reduce_cpu_ms, repetitions, &wrong);
    if (status)
        tt_report();
    tt_destroy_process_group(job.group);
    return status || wrong;
}
