/* GPUs, as the kernel's part of NVIDIA's driver lists them under /proc; nothing is linked or loaded for it. */
#include "cli/doctor/doctor.h"
#include "cli/visible_devices.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GPUS_MAX = TT__VISIBLE_MAX };

typedef struct gpu {
    char model[96], uuid[64];
} gpu;

/* Read what stands behind "NAME:" in a file of lines; "" where nothing does. */
static void read_gpu_line(const char *path, const char *name, char *value, size_t size) {
    char line[256];
    size_t length = strlen(name);
    *value = '\0';
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, length) != 0 || line[length] != ':')
            continue;
        const char *text = line + length + 1 + strspn(line + length + 1, " \t");
        snprintf(value, size, "%.*s", (int)strcspn(text, "\n"), text);
        break;
    }
    if (file)
        fclose(file);
}

/* List the GPUs in the order of their bus addresses. A container is shown all, but given a device file of some. */
static int list_gpus(const char *root, gpu gpus[GPUS_MAX], int *kept_away) {
    char pattern[4200], device[4200], minor[32];
    glob_t found = {0};
    int n = 0;
    *kept_away = 0;
    snprintf(pattern, sizeof pattern, "%s/proc/driver/nvidia/gpus/*/information", root);
    glob(pattern, 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc && n < GPUS_MAX; i++) {
        read_gpu_line(found.gl_pathv[i], "Device Minor", minor, sizeof minor);
        snprintf(device, sizeof device, "%s/dev/nvidia%s", root, minor);
        if (!*minor || access(device, R_OK | W_OK)) {
            ++*kept_away;
            continue;
        }
        read_gpu_line(found.gl_pathv[i], "Model", gpus[n].model, sizeof gpus[n].model);
        read_gpu_line(found.gl_pathv[i], "GPU UUID", gpus[n].uuid, sizeof gpus[n].uuid);
        n++;
    }
    globfree(&found);
    return n;
}

static void add_gpu(tt__doctor *doctor, int device, const gpu *g) {
    tt__doctor_add(doctor, "GPU", TT__FINE, "device %d: %s (%s)", device, *g->model ? g->model : "?",
                   *g->uuid ? g->uuid : "no UUID");
}

static const char *uuid_of(const void *gpus, int i) { return ((const gpu *)gpus)[i].uuid; }

static void add_bad_entry(tt__doctor *doctor, const char *list, const tt__visible_entry *bad, int n) {
    tt__doctor_add(doctor, "GPU", TT__BAD,
                   "CUDA_VISIBLE_DEVICES=%.100s: \"%.*s\" means none of the %d GPUs here, and CUDA sees nothing from "
                   "there on",
                   list, (int)bad->length, bad->text, n);
    tt__doctor_fix(doctor,
                   "list either numbers from 0 to %d, or UUIDs as `nvidia-smi -L` prints them, or beginnings of these "
                   "that one has alone",
                   n - 1);
}

static void check_visible(tt__doctor *doctor, const char *list, const gpu *gpus, int n) {
    tt__visible visible;
    tt__visible_read(&visible, list, n, uuid_of, gpus);
    if (visible.repeats) {
        tt__doctor_add(doctor, "GPU", TT__BAD, "CUDA_VISIBLE_DEVICES=%.100s names a device twice: CUDA sees none",
                       list);
        tt__doctor_fix(doctor, "name each device once");
        return;
    }
    for (int i = 0; i < visible.count; i++) {
        const tt__visible_entry *entry = &visible.list[i];
        if (entry->device < 0)
            tt__doctor_add(doctor, "GPU", TT__FINE, "device %d: %.*s, a part of a GPU", i, (int)entry->length,
                           entry->text);
        else
            add_gpu(doctor, i, &gpus[entry->device]);
    }
    if (visible.bad.text)
        add_bad_entry(doctor, list, &visible.bad, n);
}

bool tt__doctor_devices(tt__doctor *doctor) {
    gpu gpus[GPUS_MAX];
    int kept_away, n = list_gpus(doctor->root, gpus, &kept_away);
    const char *visible = doctor->environment->get(doctor->environment, "CUDA_VISIBLE_DEVICES");
    if (kept_away && !n) {
        tt__doctor_add(doctor, "GPU", TT__DOUBTFUL, "the machine has %d, but none of their device files is here",
                       kept_away);
        tt__doctor_fix(doctor, "ask for them: srun --gpus-per-task=1, resources.limits of a pod (nvidia.com/gpu), "
                               "docker run --gpus all");
    } else if (!n) {
        tt__doctor_add(doctor, "GPU", TT__FINE, "none; the native back end and the tensors here use the CPU");
    } else if (visible && (!*visible || !strcmp(visible, "-1"))) {
        tt__doctor_add(doctor, "GPU", TT__FINE, "CUDA_VISIBLE_DEVICES=%s hides all %d", visible, n);
    } else if (visible) {
        check_visible(doctor, visible, gpus, n);
    } else {
        for (int i = 0; i < n; i++)
            add_gpu(doctor, i, &gpus[i]);
    }
    return n > 0;
}
