#include "cli/run/run_devices.h"

#include "base/error.h"
#include "cli/run/run_gpus.h"
#include "cli/visible_devices.h"

#include <dirent.h>
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
