#include "cli/run/run_devices.h"

#include "base/error.h"
#include "base/files/nvidia_library.h"
#include "cli/ask_child.h"
#include "cli/visible_devices.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The kernel's part of NVIDIA's driver has a folder here for each GPU. */
static const char gpu_folder[] = "/proc/driver/nvidia/gpus";

static int count_entries(const char *path) {
    int n = 0;
    DIR *dir = opendir(path);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

static int count_visible(const char *list, int devices) {
    tt__visible visible;
    tt__visible_read(&visible, list, devices, NULL, NULL);
    bool are_parts = !strncmp(list, "MIG-", 4); /* of which there may be more than GPUs */
    return visible.repeats ? 0 : visible.count < devices || are_parts ? visible.count : devices;
}

tt_status tt__count_devices(const char *kind, int64_t *count) {
    int devices = count_entries(gpu_folder);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    tt__gpus gpus;
    *count = 0;
    if (strcmp(kind, "gpu") != 0)
        return tt__fail(TT_ERR_UNSUPPORTED, "--nproc-per-node=%s: such devices are not counted here; give a number",
                        kind);
    if (tt__gpus_find(&gpus))
        return tt__fail_prefix("--nproc-per-node=gpu");
    *count = gpus.driver ? gpus.count : visible ? count_visible(visible, devices) : devices;
    if (*count)
        return TT_OK;
    if (gpus.driver || !devices)
        return tt__fail(
            TT_ERR_UNSUPPORTED,
            "--nproc-per-node=gpu: there is no NVIDIA GPU here (%s has none%s%s); give a number, auto or cpu",
            gpus.driver ? "the driver" : gpu_folder, visible ? ", with CUDA_VISIBLE_DEVICES=" : "",
            visible ? visible : "");
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "--nproc-per-node=gpu: of %d GPUs, CUDA_VISIBLE_DEVICES=%s allows none; give a number, auto or cpu",
                    devices, visible);
}

tt_status tt__check_visible_devices(const tt__job *job) {
    const char *hip = getenv("HIP_VISIBLE_DEVICES"),
               *name = hip && *hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
    const char *list = secure_getenv(name);
    int n = 1;
    if (!job->virtual_local_rank || !list)
        return TT_OK;
    for (const char *c = list; *c; c++)
        n += *c == ',';
    if (n >= job->workers)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "--virtual-local-rank: %d workers need a device each, but %s=%s names %d",
                    job->workers, name, list, n);
}

/* ---- what NVIDIA's driver gives ---- */

/* ---- asking the driver ---- */

/* The part of the driver's interface that counts. Its results: 0 is success, 100 no device. */
typedef struct driver_calls {
    int (*init)(unsigned flags);
    int (*count)(int *count);
    int (*get)(int *device, int index);
    int (*bus_id)(char *text, int size, int device);
} driver_calls;

enum { NO_DEVICE = 100 };

static bool find_calls(driver_calls *calls, void *driver) {
    *(void **)&calls->init = dlsym(driver, "cuInit");
    *(void **)&calls->count = dlsym(driver, "cuDeviceGetCount");
    *(void **)&calls->get = dlsym(driver, "cuDeviceGet");
    *(void **)&calls->bus_id = dlsym(driver, "cuDeviceGetPCIBusId");
    return calls->init && calls->count && calls->get && calls->bus_id;
}

/* In the child: a line "driver" or "failed 999", then one for each GPU; nothing if there is no driver. One that does
 * not answer fails all: the others' numbers would not be CUDA's. */
static void ask_driver(FILE *to) {
    char text[2048], ids[TT__GPUS_MAX][32] = {{0}};
    driver_calls calls;
    int count = 0, device;
    void *driver = tt__nvidia_open(&tt__nvidia_driver, text, sizeof text);
    if (!driver || !find_calls(&calls, driver))
        return;
    int error = calls.init(0);
    if (!error)
        error = calls.count(&count);
    if (error == NO_DEVICE)
        error = count = 0;
    count = count < TT__GPUS_MAX ? count : TT__GPUS_MAX;
    for (int i = 0; i < count && !error; i++) {
        error = calls.get(&device, i);
        if (!error)
            error = calls.bus_id(ids[i], sizeof ids[i] - 1, device);
    }
    fprintf(to, error ? "failed %d\n" : "driver\n", error);
    for (int i = 0; i < count && !error; i++)
        fprintf(to, "%s\n", ids[i]);
}

/* "0000:3b:00.0": it becomes part of a path. */
static bool is_bus_id(const char *text, size_t length) {
    return length && length < sizeof((tt__gpus *)NULL)->bus_id[0] &&
           strspn(text, "0123456789abcdefABCDEF:.") >= length && *text != '.';
}

static tt_status read_gpus(const char *answer, tt__gpus *gpus) {
    int error;
    if (sscanf(answer, "failed %d", &error) == 1)
        return tt__fail(TT_ERR_SYSTEM, "NVIDIA's driver does not begin: CUDA error %d (nvidia-smi may say more)",
                        error);
    gpus->driver = *answer != '\0';
    for (const char *line = strchr(answer, '\n'); line && line[1] && gpus->count < TT__GPUS_MAX;
         line = strchr(line + 1, '\n')) {
        const size_t length = strcspn(line + 1, "\n");
        if (!is_bus_id(line + 1, length))
            return tt__fail(TT_ERR_SYSTEM,
                            "NVIDIA's driver says that GPU %d is at the PCI address \"%.*s\"; expected one as "
                            "0000:3b:00.0",
                            gpus->count, (int)(length < 40 ? length : 40), line + 1);
        char *id = gpus->bus_id[gpus->count++];
        snprintf(id, sizeof gpus->bus_id[0], "%.*s", (int)length, line + 1);
        for (; *id; id++)
            *id = (char)tolower((unsigned char)*id);
    }
    return TT_OK;
}

tt_status tt__gpus_find(tt__gpus *gpus) {
    static bool known;
    static tt__gpus all;
    char answer[TT__GPUS_MAX * 32 + 64];
    if (!known) {
        all = (tt__gpus){0};
        TT__TRY(tt__ask_child("NVIDIA's driver", ask_driver, answer, sizeof answer));
        TT__TRY(read_gpus(answer, &all));
    }
    known = true;
    *gpus = all;
    return TT_OK;
}

/* ---- what is near ---- */

static bool read_first_line(const char *path, char *line, int size) {
    FILE *file = fopen(path, "re");
    bool read = file && fgets(line, size, file);
    if (file)
        fclose(file);
    return read;
}

/* "0-3,8" */
static void read_cpus(const char *text, cpu_set_t *cpus) {
    CPU_ZERO(cpus);
    for (const char *at = text; isdigit((unsigned char)*at); at += strspn(at, ",")) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            CPU_SET((int)cpu, cpus);
        at = end;
    }
}

tt_status tt__gpu_node(const char *bus_id, int *node, cpu_set_t *cpus) {
    char path[128], line[4096];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus_id);
    if (!read_first_line(path, line, sizeof line))
        return tt__fail(TT_ERR_UNSUPPORTED, "the NUMA node of GPU %s is not known: %s can't be read", bus_id, path);
    *node = atoi(line) < 0 ? 0 : atoi(line); /* -1: the machine has one */
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", *node);
    memset(cpus, 0xff, sizeof *cpus);
    if (read_first_line(path, line, sizeof line))
        read_cpus(line, cpus);
    else if (*node)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "the CPUs of NUMA node %d, where GPU %s is, are not known: %s can't be read", *node, bus_id,
                        path);
    return TT_OK;
}
