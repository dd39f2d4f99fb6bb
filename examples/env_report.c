/* Report what the launcher gave this process. Any launcher will do:
 *
 *   tutti run --nproc-per-node=2 build/examples/env_report
 *   mpirun -n 2 build/examples/env_report
 *
 * The Python that it mirrors:
 *
 *   import os, torch
 *   for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
 *       print(name, os.environ.get(name))
 *   print("threads", torch.get_num_threads())
 *   for i in range(torch.cuda.device_count()):          # as seen through CUDA_VISIBLE_DEVICES
 *       print("device", i, torch.cuda.get_device_name(i))
 */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "usage.h"

/* Where each value may come from: torchrun's name (which tutti run sets), then Open MPI's, MPICH's and Slurm's. */
static const char *const sources[][5] = {
    {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", NULL},
    {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", NULL},
    {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", NULL},
    {"MASTER_ADDR", NULL},
    {"MASTER_PORT", NULL},
};

static void print_variable(FILE *out, const char *const *names) {
    for (const char *const *name = names; *name; name++) {
        const char *value = getenv(*name);
        if (!value)
            continue;
        fprintf(out, "%s=%s", names[0], value);
        if (name != names)
            fprintf(out, " (%s)", *name);
        fprintf(out, "\n");
        return;
    }
    fprintf(out, "%s is not set\n", names[0]);
}

static void print_threads(FILE *out) {
    const char *threads = getenv("OMP_NUM_THREADS");
    if (threads && *threads)
        fprintf(out, "threads %s (OMP_NUM_THREADS)\n", threads);
    else
        fprintf(out, "threads %ld (CPUs of this machine)\n", sysconf(_SC_NPROCESSORS_ONLN));
}

/* Print the devices as CUDA sees them: all, or those that CUDA_VISIBLE_DEVICES lists. */
static void print_devices(FILE *out) {
    int64_t count = tt_device_count(TT_DEVICE_CUDA);
    for (int64_t i = 0; i < count; i++) {
        const tt_device *device = TT_CUDA(i);
        fprintf(out, "device %d %s\n", (int)i, device ? tt_device_properties_of(device)->name : tt_last_error());
    }
    if (!count)
        fprintf(out, "no devices\n");
}

static const char usage[] = "usage: tutti run --nproc-per-node=N env_report\n"
                            "What the launcher gave each process.\n";

int main(int argc, char **argv) {
    if (argc > 1)
        return tell_usage(usage, argv[1]);
    static char text[8192]; /* written at once, so that ranks don't mix */
    FILE *out = fmemopen(text, sizeof text, "w");
    if (!out) {
        perror("env_report");
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        print_variable(out, sources[i]);
    print_threads(out);
    print_devices(out);
    fprintf(out, "\n");
    fclose(out);
    fputs(text, stdout);
    return EXIT_SUCCESS;
}
