/* How fast a GPU copies, adds and sums, as a share of its memory's rate, or how fast ranks that share it reduce:
 *
 *   gpu_rates [MEGABYTES]          one rank alone, or those of a launcher (tutti run): all_reduce
 *
 * Rows of a table: name, GB/s, share, which is "-" if the driver doesn't tell the memory's rate. */
#include "base/machine/clock.h"

#include <tutti/tutti.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 7, CALLS = 5, CLOCK_KHZ = 36, BUS_BITS = 37 }; /* of the driver's attributes */

/* Bytes a second, twice a clock; 0: unknown. */
static double memory_rate(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*get)(int *value, int attribute, int device) = NULL;
    int clock = 0, bits = 0;
    if (driver)
        *(void **)&get = dlsym(driver, "cuDeviceGetAttribute");
    if (!get || get(&clock, CLOCK_KHZ, 0) || get(&bits, BUS_BITS, 0))
        return 0;
    return 2e3 * clock * bits / 8;
}

typedef struct rated {
    tt_group *group; /* NULL: none */
    tt_tensor *x;
} rated;

static tt_status copy(const rated *r) { return tt_clone(r->x) ? TT_OK : tt_last_status(); }
static tt_status add(const rated *r) { return tt_add(r->x, r->x) ? TT_OK : tt_last_status(); }
static tt_status sum(const rated *r) { return tt_sum(r->x) ? TT_OK : tt_last_status(); }
static tt_status row_sums(const rated *r) { return tt_sum(r->x, .dim = TT_DIMS(1)) ? TT_OK : tt_last_status(); }
static tt_status reduce(const rated *r) { return tt_tensor_all_reduce(r->group, r->x, TT_AVG); }

static tt_status call_often(tt_status (*run)(const rated *r), const rated *r) {
    for (int i = 0; i < CALLS; i++) {
        TT_AUTO_SCOPE;
        if (run(r))
            return tt_last_status();
    }
    return tt_device_synchronize(TT_CUDA(0));
}

/* `passes`: how often a call moves the tensor's bytes, of all ranks together. */
static tt_status rate(const char *name, tt_status (*run)(const rated *r), const rated *r, int passes) {
    const double bytes = (double)tt_tensor_numel(r->x) * 4 * passes * CALLS, full = memory_rate();
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t began = tt__now_ns();
        if (call_often(run, r))
            return tt_last_status();
        const double each = bytes / ((double)(tt__now_ns() - began) * 1e-9);
        best = i && each > best ? each : best; /* the first one warms up */
    }
    if (r->group && tt_get_rank(r->group))
        return TT_OK;
    printf("| %s | %.1f | ", name, best * 1e-9);
    if (full > 0)
        printf("%.2f |\n", best / full);
    else
        puts("- |");
    return TT_OK;
}

static tt_status rate_all(rated *r, int64_t megabytes) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    if (!TT_CUDA(0))
        return tt_last_status();
    r->x = tt_to_device(tt_ones(TT_SHAPE(megabytes, 1 << 18), TT_F32), TT_CUDA(0));
    if (!r->x)
        return tt_last_status();
    if (r->group) /* each rank's bytes are read and written once */
        return rate("all_reduce", reduce, r, 2 * tt_get_world_size(r->group));
    tt_status status = rate("copy", copy, r, 2);
    status = status ? status : rate("add", add, r, 2); /* its operands are one */
    status = status ? status : rate("sum", sum, r, 1);
    return status ? status : rate("row_sums", row_sums, r, 1);
}

int main(int argc, char **argv) {
    rated r = {NULL, NULL};
    tt_status status =
        getenv("WORLD_SIZE") ? tt_init_process_group(&r.group, .timeout_ms = 60000, .device = TT_DEVICE_CUDA) : TT_OK;
    if (!status)
        status = rate_all(&r, argc > 1 ? atoll(argv[1]) : 256);
    if (status)
        tt_report();
    tt_destroy_process_group(r.group);
    return status != TT_OK;
}
