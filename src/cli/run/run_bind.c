/* Which GPUs and CPUs workers get. */
#include "cli/run/run.h"

#include "base/error.h"
#include "base/files/nvidia_library.h"
#include "cli/gpus.h"
#include "comm/shared/placement.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the GPUs that NVIDIA's driver gives to programs here, and the CPUs near them */

enum { GPUS_MAX = 64 };

typedef struct gpu_list {
    bool driver; /* there is one */
    int count;
    char bus_id[GPUS_MAX][24]; /* "0000:3b:00.0", in the order of CUDA's numbers */
} gpu_list;

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

/* In the child: write a line "driver" or "failed 999", then a line for each GPU; nothing if there is no driver. If one
 * GPU does not answer, all fail: the numbers of the others would not be CUDA's. */
static void ask_driver(FILE *to) {
    char text[2048], ids[GPUS_MAX][32] = {{0}};
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
    count = count < GPUS_MAX ? count : GPUS_MAX;
    for (int i = 0; i < count && !error; i++) {
        error = calls.get(&device, i);
        if (!error)
            error = calls.bus_id(ids[i], sizeof ids[i] - 1, device);
    }
    fprintf(to, error ? "failed %d\n" : "driver\n", error);
    for (int i = 0; i < count && !error; i++)
        fprintf(to, "%s\n", ids[i]);
}

/* Is it an address as "0000:3b:00.0"? It becomes part of a path. */
static bool is_bus_id(const char *text, size_t length) {
    return length && length < sizeof((gpu_list *)NULL)->bus_id[0] &&
           strspn(text, "0123456789abcdefABCDEF:.") >= length && *text != '.';
}

static tt_status read_gpus(const char *answer, gpu_list *gpus) {
    int error;
    if (sscanf(answer, "failed %d", &error) == 1)
        return tt__fail(TT_ERR_SYSTEM, "NVIDIA's driver does not begin: CUDA error %d (nvidia-smi may say more)",
                        error);
    gpus->driver = *answer != '\0';
    for (const char *line = strchr(answer, '\n'); line && line[1] && gpus->count < GPUS_MAX;
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

/* Ask the driver, once, in a child: CUDA can't be used in the children of a process that has begun it. Errors:
 * TT_ERR_SYSTEM, TT_ERR_TIMEOUT the driver does not work. */
static tt_status find_gpus(gpu_list *gpus) {
    static bool known;
    static gpu_list all;
    char answer[GPUS_MAX * 32 + 64];
    if (!known) {
        all = (gpu_list){0};
        TT__TRY(tt__ask_child("NVIDIA's driver", ask_driver, answer, sizeof answer));
        TT__TRY(read_gpus(answer, &all));
    }
    known = true;
    *gpus = all;
    return TT_OK;
}

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

/* Find the NUMA node of a GPU and its CPUs in the system's files. Without nodes it is node 0. TT_ERR_UNSUPPORTED: the
 * files don't tell. */
static tt_status find_gpu_node(const char *bus_id, int *node, cpu_set_t *cpus) {
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

/* ---- --nproc-per-node=gpu, --virtual-local-rank */

/* Here the kernel's part of NVIDIA's driver has a folder for each GPU. */
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
    bool are_parts = !strncmp(list, "MIG-", 4); /* there may be more of these than GPUs */
    return visible.repeats ? 0 : visible.count < devices || are_parts ? visible.count : devices;
}

tt_status tt__count_devices(const char *kind, int64_t *count) {
    int devices = count_entries(gpu_folder);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    gpu_list gpus;
    *count = 0;
    if (strcmp(kind, "gpu") != 0)
        return tt__fail(TT_ERR_UNSUPPORTED, "--nproc-per-node=%s: such devices are not counted here; give a number",
                        kind);
    if (find_gpus(&gpus))
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

/* ---- --bind, --numa-binding */

typedef struct binding {
    const char *flag, *name;
    bool share; /* a worker gets a share of such parts; else one part, which others may get, too */
    const char *part;
    const int16_t *(*parts)(const tt__topology *topology);
} binding;

static const int16_t *cores(const tt__topology *topology) { return topology->core_of; }
static const int16_t *numa_nodes(const tt__topology *topology) { return topology->node_of; }
static const int16_t *packages(const tt__topology *topology) { return topology->package_of; }
static const int16_t *caches(const tt__topology *topology) { return topology->cache_of; }

static const binding bindings[] = {
    {"--bind", "core", true, "core", cores},
    {"--bind", "numa", false, "NUMA node", numa_nodes},
    {"--numa-binding", "node", false, "NUMA node", numa_nodes},
    {"--numa-binding", "exclusive", true, "core", cores},
    {"--numa-binding", "socket", false, "processor", packages},
    {"--numa-binding", "core-complex", false, "cache", caches},
};

/* Find the binding that the flags ask for. *out := NULL if they ask for none. */
static tt_status find_binding(const binding **out, const tt__run_flags *flags) {
    const char *flag = flags->given.bind ? "--bind" : "--numa-binding";
    const char *name = flags->given.bind ? flags->bind : flags->numa_binding;
    *out = NULL;
    if (flags->given.bind && flags->given.numa_binding)
        return tt__fail(TT_ERR_INVALID, "--bind and --numa-binding both say where workers run: give one of them");
    for (size_t i = 0; name && i < sizeof bindings / sizeof *bindings; i++)
        if (!strcmp(bindings[i].flag, flag) && !strcmp(bindings[i].name, name))
            *out = &bindings[i];
    return TT_OK;
}

/* List the numbers of the parts that have a CPU in `usable`, in rising order. Returns how many. */
static int list_parts(const cpu_set_t *usable, const int16_t *part_of, int16_t *list) {
    int n = 0;
    for (int cpu = 0; cpu < TT__TOPOLOGY_CPUS && cpu < CPU_SETSIZE; cpu++) {
        bool known = part_of[cpu] == TT__NOWHERE || !CPU_ISSET(cpu, usable);
        for (int i = 0; i < n && !known; i++)
            known = list[i] == part_of[cpu];
        if (!known)
            list[n++] = part_of[cpu];
    }
    /* hwloc's numbers follow the machine's structure: neighbours are neighbours. The system's numbers of CPUs need
     * not. */
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && list[k - 1] > list[k]; k--) {
            int16_t swapped = list[k];
            list[k] = list[k - 1];
            list[k - 1] = swapped;
        }
    return n;
}

static void add_part(cpu_set_t *cpus, const cpu_set_t *usable, const int16_t *part_of, int16_t part) {
    for (int cpu = 0; cpu < TT__TOPOLOGY_CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, usable) && part_of[cpu] == part)
            CPU_SET(cpu, cpus);
}

/* Give each worker an equal share of the parts if there is one for each, else one part, in blocks. */
static void divide_parts(cpu_set_t *cpus, int workers, const cpu_set_t *usable, const binding *b,
                         const int16_t *part_of) {
    int16_t list[TT__TOPOLOGY_CPUS];
    int n = list_parts(usable, part_of, list);
    for (int i = 0; i < workers; i++) {
        int from = (int)((int64_t)i * n / workers), to = (int)((int64_t)(i + 1) * n / workers);
        CPU_ZERO(&cpus[i]);
        if (!b->share || to <= from)
            to = from + 1;
        for (int k = from; k < to; k++)
            add_part(&cpus[i], usable, part_of, list[k]);
    }
}

/* Find the CPUs near a GPU: those of its NUMA node, or with --numa-binding=socket those of that node's processor. */
static tt_status find_near(cpu_set_t *near, int *node, const char *bus_id, const cpu_set_t *usable, const binding *b) {
    cpu_set_t of_node;
    CPU_ZERO(&of_node);
    TT__TRY(find_gpu_node(bus_id, node, &of_node));
    CPU_AND(near, &of_node, usable);
    for (int cpu = 0; b->parts == packages && cpu < TT__TOPOLOGY_CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &of_node) && CPU_ISSET(cpu, usable))
            add_part(near, usable, packages(tt__topology_get()), packages(tt__topology_get())[cpu]);
    if (CPU_COUNT(near))
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED, "GPU %s is at NUMA node %d, of whose CPUs this process may use none", bus_id,
                    *node);
}

/* Bind worker i to the CPUs near GPU i, as torchrun does. Workers whose GPUs share a node divide its parts. */
static tt_status bind_to_gpus(cpu_set_t *cpus, int workers, const gpu_list *gpus, const cpu_set_t *usable,
                              const binding *b, const int16_t *part_of) {
    cpu_set_t near[GPUS_MAX], own[GPUS_MAX];
    int node[GPUS_MAX];
    for (int i = 0; i < workers; i++)
        TT__TRY(find_near(&near[i], &node[i], gpus->bus_id[i], usable, b));
    for (int i = 0; i < workers; i++) {
        int n = 0, place = 0;
        for (int k = 0; k < workers; k++) {
            place += k < i && node[k] == node[i];
            n += node[k] == node[i];
        }
        if (b->share || b->parts == caches)
            divide_parts(own, n, &near[i], b, part_of);
        cpus[i] = b->share || b->parts == caches ? own[place] : near[i];
    }
    return TT_OK;
}

/* Has each worker i a GPU i? If the driver does not work, none has. */
static bool goes_by_gpus(gpu_list *gpus, int workers, const binding *b) {
    tt__saved_error before;
    if (strcmp(b->flag, "--numa-binding") != 0)
        return false;
    tt__error_save(&before);
    bool found = !find_gpus(gpus) && workers <= gpus->count;
    tt__error_restore(&before);
    return found;
}

static bool all_known(const cpu_set_t *usable, const int16_t *part_of) {
    bool known = true;
    for (int cpu = 0; known && cpu < TT__TOPOLOGY_CPUS && cpu < CPU_SETSIZE; cpu++)
        known = !CPU_ISSET(cpu, usable) || part_of[cpu] != TT__NOWHERE;
    return known;
}

tt_status tt__run_bind(tt__job *job, cpu_set_t **cpus, const tt__run_flags *flags) {
    const binding *b;
    gpu_list gpus;
    cpu_set_t usable;
    TT__TRY(find_binding(&b, flags));
    if (!b)
        return TT_OK;
    bool by_gpus = goes_by_gpus(&gpus, job->workers, b);
    const int16_t *part_of = b->parts(tt__topology_get());
    if (sched_getaffinity(0, sizeof usable, &usable) ||
        (!all_known(&usable, part_of) && !(by_gpus && b->parts == numa_nodes))) /* the system's files tell these */
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s %s: it is not known to which %s each CPU belongs (hwloc, libhwloc.so.15, would tell)",
                        b->flag, b->name, b->part);
    *cpus = calloc((size_t)job->workers, sizeof **cpus);
    if (!*cpus)
        return tt__fail(TT_ERR_MEMORY, "no memory for the CPUs of %d workers", job->workers);
    if (!by_gpus)
        divide_parts(*cpus, job->workers, &usable, b, part_of);
    else if (bind_to_gpus(*cpus, job->workers, &gpus, &usable, b, part_of))
        return tt__fail_prefix("%s %s", b->flag, b->name);
    job->cpus = *cpus;
    return TT_OK;
}

/* "0-3,8" */
static void cpus_text(const cpu_set_t *cpus, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int cpu = 0, last; cpu < CPU_SETSIZE && used + 32 < size; cpu = last + 1) {
        last = cpu;
        if (!CPU_ISSET(cpu, cpus))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        used += (size_t)snprintf(text + used, size - used, last > cpu ? "%s%d-%d" : "%s%d", used ? "," : "", cpu, last);
    }
}

void tt__run_bind_tell(const tt__job *job) {
    char line[1024], own[256];
    size_t used = 0;
    for (int i = 0; job->cpus && i < job->workers; i++) {
        cpus_text(&job->cpus[i], own, sizeof own);
        if (used + sizeof own + 64 > sizeof line) {
            snprintf(line + used, sizeof line - used, ", ...");
            break;
        }
        used += (size_t)snprintf(line + used, sizeof line - used, "%slocal rank %d on CPU %s", i ? ", " : "", i, own);
    }
    if (job->cpus)
        tt__cli_note("run", "%s", line);
}
