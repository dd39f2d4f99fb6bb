/* What is loaded when it is first needed, and what programs beside us there are. */
#include "cli/doctor/doctor.h"

#include "base/error.h"
#include "comm/backend/plugin_load.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <oneapi/dnnl/dnnl_version.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_OF(x) #x
#define STRING_OF(x) TEXT_OF(x)

/* A library is opened by the name that we were built for; the package is Debian's. */
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
        void *handle = dlopen(l->file, RTLD_LAZY | RTLD_LOCAL); /* stays: what it made on its way in is its own */
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

/* Look, and load nothing: what a plug-in does when it is loaded is nothing to ask for. */
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

/* Find a program in PATH. */
static bool find_in_path(const tt__doctor *doctor, const char *name, char *path, size_t size) {
    const char *folders = tt__environment_value(doctor->environment, "PATH");
    for (const char *at = folders; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(path, size, "%.*s/%s", (int)strcspn(at, ":"), at, name);
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

/* Look where Python's own packages lie, of the virtual environment first; Python is not started. */
static void check_python(tt__doctor *doctor) {
    const char *own = tt__environment_value(doctor->environment, "VIRTUAL_ENV");
    char python[4200], pattern[4200], version[64];
    const char *const places[] = {own ? own : "/nonexistent", "/usr/local", "/usr"};
    if (!find_in_path(doctor, "python3", python, sizeof python)) {
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

void tt__doctor_parts(tt__doctor *doctor) {
    check_libraries(doctor);
    check_plugins(doctor);
    check_python(doctor);
}
