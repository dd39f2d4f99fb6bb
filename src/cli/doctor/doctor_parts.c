/* Parts of this host that programs may use: libraries that are loaded when they are first needed, plug-ins, Python;
 * GPUs, as the kernel's part of NVIDIA's driver lists them under /proc; and the driver, libtutti-cuda.so and NVIDIA's
 * libraries, which a child process loads. */
#include "cli/doctor/doctor.h"

#include "base/files/nvidia_library.h"
#include "base/files/object_path.h"
#include "base/text/format.h"
#include "base/text/plain_text.h"
#include "cli/gpus.h"
#include "comm/backend/plugin_load.h"

#include <tutti/device.h>

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <oneapi/dnnl/dnnl_version.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_OF(x) #x
#define STRING_OF(x) TEXT_OF(x)

/* `file` is the name that Tutti was built for; `package` is Debian's. */
static const struct library {
    const char *name, *file, *package, *what;
} libraries[] = {
    {"oneDNN", "libdnnl.so." STRING_OF(DNNL_VERSION_MAJOR), "libdnnl" STRING_OF(DNNL_VERSION_MAJOR),
     "matrix products and convolutions are slow without it"},
    {"hwloc", "libhwloc.so.15", "libhwloc15", "which cores share a cache is not known without it"},
    {"libzip", TT__LIBZIP, "libzip4", ".pt and .npz files can't be read without it"},
    {"libjpeg", TT__LIBJPEG, "libjpeg62-turbo", "JPEG pictures can't be read without it"},
    {"libpng", TT__LIBPNG, "libpng16-16", "PNG pictures can't be read without it"},
    {"libcurl", TT__LIBCURL, "libcurl4", "`tutti data get` can't download, and nobody can meet in etcd, without it"},
};

static void check_libraries(tt__doctor *doctor) {
    char there[256] = "";
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        const struct library *l = &libraries[i];
        void *handle = dlopen(l->file, RTLD_LAZY | RTLD_LOCAL); /* never closed: not every library can be unloaded */
        size_t used = strlen(there);
        if (handle) {
            snprintf(there + used, sizeof there - used, "%s%s", used ? ", " : "", l->name);
            continue;
        }
        tt__doctor_add(doctor, "libraries", TT__DOUBTFUL, "%s can't be loaded: %s", l->file, l->what);
        tt__doctor_fix(doctor, "apt-get install %s, or your system's package of %s", l->package, l->name);
    }
    if (*there)
        tt__doctor_add(doctor, "libraries", TT__FINE, "%s", there);
}

/* Look for plug-ins without loading them: they may do anything then. */
static void check_plugins(tt__doctor *doctor) {
    static const char *const names[] = {"mpi", "gloo"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        tt_status status = tt__plugin_find(path, names[i]);
        if (!status) {
            tt__doctor_add(doctor, "back end", TT__FINE, "%s lies in %s", names[i], path);
        } else if (status == TT_ERR_AUTH) {
            tt__doctor_add(doctor, "back end", TT__DOUBTFUL, "%s", tt_last_error());
            tt__doctor_fix(doctor, "install it as root or as this user, where nobody else may write");
        } else {
            tt__doctor_add(doctor, "back end", TT__FINE, "%s is not here; the native one needs nothing", names[i]);
        }
    }
}

/* ---- Python */

/* Find python3 in PATH. */
static bool python_in_path(const tt__doctor *doctor, char *path, size_t size) {
    const char *folders = tt__environment_value(doctor->environment, "PATH");
    for (const char *at = folders; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(path, size, "%.*s/python3", (int)strcspn(at, ":"), at);
        if (!access(path, X_OK))
            return true;
    }
    return false;
}

/* Read "__version__ = '2.6.0'". */
static bool read_version(const char *path, char *version, size_t size) {
    char line[256];
    FILE *file = fopen(path, "re");
    *version = '\0';
    while (file && !*version && fgets(line, sizeof line, file)) {
        const char *quote = strncmp(line, "__version__", 11) ? NULL : strpbrk(line, "'\"");
        if (quote)
            snprintf(version, size, "%.*s", (int)strcspn(quote + 1, "'\"\n"), quote + 1);
    }
    if (file)
        fclose(file);
    return *version;
}

/* Look for PyTorch among Python's packages, those of the virtual environment first. Python is not started. */
static void check_python(tt__doctor *doctor) {
    const char *own = tt__environment_value(doctor->environment, "VIRTUAL_ENV");
    char python[4200], pattern[4200], version[64];
    const char *const places[] = {own ? own : "/nonexistent", "/usr/local", "/usr"};
    if (!python_in_path(doctor, python, sizeof python)) {
        tt__doctor_add(doctor, "Python", TT__FINE, "no python3 in PATH; only scripts in Python need one");
        return;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        glob_t found = {0};
        snprintf(pattern, sizeof pattern, "%s%s/lib/python3*/*-packages/torch/version.py", doctor->root, places[i]);
        bool torch = !glob(pattern, 0, NULL, &found) && read_version(found.gl_pathv[0], version, sizeof version);
        globfree(&found);
        if (!torch)
            continue;
        tt__doctor_add(doctor, "Python", TT__FINE, "%s; PyTorch %s lies below %s", python, version, places[i]);
        return;
    }
    tt__doctor_add(doctor, "Python", TT__FINE, "%s; no PyTorch, which Tutti does not need", python);
}

/* ---- GPUs */

enum { GPUS_MAX = TT__VISIBLE_MAX };

typedef struct gpu {
    char model[96], uuid[64];
} gpu;

/* List the GPUs in the order of their bus addresses. A container sees all in /proc, but has device files of some only:
 * *kept_away counts the others. */
static int list_gpus(const char *root, gpu gpus[GPUS_MAX], int *kept_away) {
    char pattern[4200], device[4200], minor[32];
    glob_t found = {0};
    int n = 0;
    *kept_away = 0;
    snprintf(pattern, sizeof pattern, "%s/proc/driver/nvidia/gpus/*/information", root);
    glob(pattern, 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc && n < GPUS_MAX; i++) {
        tt__doctor_read_line(found.gl_pathv[i], "Device Minor", minor, sizeof minor);
        snprintf(device, sizeof device, "%s/dev/nvidia%s", root, minor);
        if (!*minor || access(device, R_OK | W_OK)) {
            ++*kept_away;
            continue;
        }
        tt__doctor_read_line(found.gl_pathv[i], "Model", gpus[n].model, sizeof gpus[n].model);
        tt__doctor_read_line(found.gl_pathv[i], "GPU UUID", gpus[n].uuid, sizeof gpus[n].uuid);
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

/* Returns whether programs get a GPU here. */
static bool check_gpus(tt__doctor *doctor) {
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

/* ---- what CUDA devices need: a child writes a line for each piece: name, "ok", "missing" or "broken", text, with tabs
 * between them */

/* Names of the driver and paths from variables may hold line ends and tabs, which would begin other pieces. */
static void say_piece(FILE *to, const char *name, const char *verdict, const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    tt__vformat(text, sizeof text, format, args);
    va_end(args);
    fprintf(to, "%s\t%s\t%s\n", name, verdict, tt__make_plain_name(text));
}

static void say_version(FILE *to, const tt__nvidia_library *library, void *handle, const char *path) {
    size_t (*version)(void) = NULL;
    int (*write_version)(int *) = NULL, number = 0;
    if (library == &tt__nvidia_cublaslt)
        *(void **)&version = dlsym(handle, "cublasLtGetVersion");
    else if (library == &tt__nvidia_cudnn)
        *(void **)&version = dlsym(handle, "cudnnGetVersion");
    else
        *(void **)&write_version = dlsym(handle, "ncclGetVersion");
    if (version)
        number = (int)version();
    else if (write_version)
        write_version(&number);
    say_piece(to, library->name, "ok", "%d.%d.%d, %s", number / 10000, number / 100 % 100, number % 100, path);
}

static void say_driver(FILE *to, void *driver, const char *path) {
    int (*version)(int *), number = 0;
    *(void **)&version = dlsym(driver, "cuDriverGetVersion");
    if (version)
        version(&number);
    say_piece(to, "driver", "ok", "for CUDA %d.%d, %s", number / 1000, number % 1000 / 10, path);
}

/* Open the device as programs would. */
static void say_device(FILE *to) {
    const tt_device *device = tt_device_get("cuda:0");
    const tt_device_properties *properties = device ? tt_device_properties_of(device) : NULL;
    if (!properties)
        say_piece(to, "cuda:0", "broken", "%s", tt_last_error());
    else
        say_piece(to, "cuda:0", "ok", "%s, %lld MiB, compute capability %d.%d", properties->name,
                  (long long)(properties->total_memory >> 20), properties->major, properties->minor);
}

static void ask_pieces(FILE *to) {
    static const tt__nvidia_library *const libraries[] = {&tt__nvidia_cublaslt, &tt__nvidia_cudnn, &tt__nvidia_nccl};
    char text[2048], path[PATH_MAX];
    void *driver = tt__nvidia_open(&tt__nvidia_driver, text, sizeof text);
    if (driver)
        say_driver(to, driver, text);
    else
        say_piece(to, "driver", "missing", "%s", text);
    bool device = tt__object_find("libtutti-cuda.so", path, sizeof path);
    say_piece(to, "libtutti-cuda.so", device ? "ok" : "missing", "%s", device ? path : "it lies beside no library");
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        void *handle = tt__nvidia_open(libraries[i], text, sizeof text);
        if (handle)
            say_version(to, libraries[i], handle, text);
        else
            say_piece(to, libraries[i]->name, "missing", "%s", text);
    }
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    bool hides_all = visible && (!*visible || !strcmp(visible, "-1")); /* as the user wants it */
    if (driver && device && !hides_all)
        say_device(to);
}

/* What is missing matters if there is a driver, or a GPU that needs one. */
static void add_missing(tt__doctor *doctor, const char *name, char *text, bool matters) {
    char *install = strstr(text, ". To have it, ");
    if (!matters)
        return;
    if (install)
        *install = '\0';
    if (!strcmp(name, "libtutti-cuda.so")) {
        tt__doctor_add(doctor, "CUDA", TT__DOUBTFUL, "libtutti-cuda.so, without which tensors use no GPU, is not here");
        tt__doctor_fix(doctor, "build Tutti where nvcc is (./dev setup --cuda, ./dev build), or name its folder in "
                               "TT_BACKEND_PATH");
    } else {
        tt__doctor_add(doctor, "CUDA", TT__DOUBTFUL, "%s", text);
        tt__doctor_fix(doctor, "%s", install ? install + strlen(". To have it, ") : "install it");
    }
}

static void add_cuda_piece(tt__doctor *doctor, char *line, bool matters) {
    char *rest = line, *name = strsep(&rest, "\t"), *verdict = strsep(&rest, "\t");
    if (!verdict || !rest)
        return;
    if (!strcmp(verdict, "ok")) {
        tt__doctor_add(doctor, "CUDA", TT__FINE, "%s: %s", name, rest);
    } else if (!strcmp(verdict, "missing")) {
        add_missing(doctor, name, rest, matters);
    } else {
        tt__doctor_add(doctor, "CUDA", TT__BAD, "%s can't be used: %s", name, rest);
        tt__doctor_fix(doctor, "see whether nvidia-smi works here; docs/gpu.md says what is needed");
    }
}

static void check_cuda(tt__doctor *doctor, bool gpus) {
    static char answer[16384];
    if (tt__ask_child("what CUDA needs", ask_pieces, answer, sizeof answer)) {
        tt__doctor_add(doctor, "CUDA", TT__BAD, "%s", tt_last_error());
        tt__doctor_fix(doctor,
                       "see whether nvidia-smi works here, and whether the library that is named last is whole");
        return;
    }
    bool matters = gpus || !strncmp(answer, "driver\tok", strlen("driver\tok"));
    for (char *rest = answer, *line; (line = strsep(&rest, "\n")) && *line;)
        add_cuda_piece(doctor, line, matters);
}

void tt__doctor_parts(tt__doctor *doctor) {
    check_cuda(doctor, check_gpus(doctor));
    check_libraries(doctor);
    check_plugins(doctor);
    check_python(doctor);
}
