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
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Return the value after "KEY:" in one of the driver's files; empty if there is none. */
static void read_value(const char *path, const char *key, char *value, size_t size) {
    char line[256];
    FILE *file = fopen(path, "r");
    value[0] = '\0';
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) {
            const char *text = line + strlen(key);
            text += strspn(text, ": \t");
            snprintf(value, size, "%.*s", (int)strcspn(text, "\n"), text);
        }
    if (file)
        fclose(file);
}

/* Find which of `count` devices a word of CUDA_VISIBLE_DEVICES means, an index or the beginning of a UUID; -1: none. */
static int find_device(const char *word, size_t length, char **paths, int count) {
    char text[64], uuid[64], *end;
    snprintf(text, sizeof text, "%.*s", (int)length, word);
    long index = strtol(text, &end, 10);
    if (*text && !*end)
        return index >= 0 && index < count ? (int)index : -1;
    for (int i = 0; i < count; i++) {
        read_value(paths[i], "GPU UUID", uuid, sizeof uuid);
        if (*text && !strncmp(uuid, text, strlen(text)))
            return i;
    }
    return -1;
}

/* Print the devices as CUDA sees them: all, or those that CUDA_VISIBLE_DEVICES lists, up to the first word that means
 * none. */
static void print_devices(FILE *out) {
    glob_t gpus = {0};
    char name[128];
    int shown = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *word = visible;
    glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &gpus);
    int count = (int)gpus.gl_pathc;
    while (visible ? word != NULL : shown < count) {
        int device = visible ? find_device(word, strcspn(word, ","), gpus.gl_pathv, count) : shown;
        if (device < 0)
            break;
        read_value(gpus.gl_pathv[device], "Model", name, sizeof name);
        fprintf(out, "device %d %s\n", shown++, name);
        word = visible ? strchr(word, ',') : NULL;
        word += word != NULL;
    }
    if (!shown)
        fprintf(out, "no devices%s\n", visible && count ? " (CUDA_VISIBLE_DEVICES hides them)" : "");
    globfree(&gpus);
}

int main(void) {
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
