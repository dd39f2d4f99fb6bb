/* Uses the C library alone: objects that link nothing else of Tutti's contain this file, too. */
#include "base/files/nvidia_library.h"

#include "base/files/trusted.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

const tt__nvidia_library tt__nvidia_cublaslt = {
    "cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, "cublas", "nvidia-cublas"};
const tt__nvidia_library tt__nvidia_cudnn = {"cuDNN", {"libcudnn.so.9"}, "cudnn", "nvidia-cudnn-cu13"};
const tt__nvidia_library tt__nvidia_nccl = {"NCCL", {"libnccl.so.2"}, "nccl", "nvidia-nccl-cu13"};
const tt__nvidia_library tt__nvidia_driver = {"NVIDIA's driver", {"libcuda.so.1"}, NULL, NULL};

typedef struct search {
    const tt__nvidia_library *library;
    void *found;
    char failed[512]; /* why a file that is there was skipped */
} search;

static void load_library(search *s, const char *path) {
    s->found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *said = s->found ? NULL : dlerror();
    if (said && !strstr(said, "No such file or directory"))
        snprintf(s->failed, sizeof s->failed, "; %s", said);
}

/* Refuse a folder that everybody may write to, even a sticky one: the library loads its parts from there by itself. */
static bool check_folder(const char *real, char *why, size_t size) {
    char folder[PATH_MAX];
    struct stat info;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(real, '/') - real), real);
    bool good = !stat(*folder ? folder : "/", &info) && !(info.st_mode & S_IWOTH);
    if (!good)
        snprintf(why, size, "%.300s can be written by everybody, who could put parts of %.100s there", folder,
                 strrchr(real, '/') + 1);
    return good;
}

/* Try one file, if it is there and may be trusted: a variable may name a folder that did not exist, and that anybody
 * could have made meanwhile. */
static void try_file(search *s, const char *path) {
    char real[PATH_MAX], why[PATH_MAX + 256];
    if (s->found || access(path, F_OK))
        return;
    if (!tt__trust(path, real, why, sizeof why) && check_folder(real, why, sizeof why))
        load_library(s, real);
    else
        snprintf(s->failed, sizeof s->failed, "; %.500s", why);
}

/* Try each of the library's files in a folder, unless that is relative: it would depend on the working directory. */
static void try_folder(search *s, const char *folder) {
    char path[PATH_MAX];
    for (size_t i = 0; i < 3 && s->library->files[i] && *folder == '/'; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, s->library->files[i]);
        if (n > 0 && (size_t)n < sizeof path)
            try_file(s, path);
    }
}

static void try_list(search *s, const char *list) {
    char folder[PATH_MAX];
    while (list && *list && !s->found) {
        size_t n = strcspn(list, ":");
        if (n > 0 && n < sizeof folder) {
            snprintf(folder, sizeof folder, "%.*s", (int)n, list);
            try_folder(s, folder);
        }
        list += n + (list[n] == ':');
    }
}

static void try_below(search *s, const char *folder, const char *below) {
    char path[PATH_MAX];
    int n = folder ? snprintf(path, sizeof path, "%s/%s", folder, below) : -1;
    if (n > 0 && (size_t)n < sizeof path)
        try_folder(s, path);
}

/* Try the wheels of an environment: those for CUDA 13 share a folder, earlier ones have one each. */
static void try_wheels(search *s, const char *environment) {
    const char *const kinds[] = {"cu13", s->library->package};
    if (!environment || *environment != '/' || !s->library->package)
        return;
    for (size_t kind = 0; kind < 2 && !s->found; kind++) {
        char pattern[PATH_MAX];
        glob_t folders;
        int n =
            snprintf(pattern, sizeof pattern, "%s/lib/python3*/site-packages/nvidia/%s/lib", environment, kinds[kind]);
        if (n < 0 || (size_t)n >= sizeof pattern || glob(pattern, 0, NULL, &folders))
            continue;
        for (size_t i = 0; i < folders.gl_pathc; i++)
            try_folder(s, folders.gl_pathv[i]);
        globfree(&folders);
    }
}

static void try_names(search *s) {
    for (size_t i = 0; i < 3 && s->library->files[i] && !s->found; i++)
        load_library(s, s->library->files[i]);
}

static void say_where(const search *s, char *text, size_t size) {
    const struct link_map *map = NULL;
    if (!dlinfo(s->found, RTLD_DI_LINKMAP, (void *)&map) && map)
        snprintf(text, size, "%s", map->l_name);
    else
        snprintf(text, size, "%s", s->library->files[0]);
}

static void say_missing(const search *s, char *text, size_t size) {
    const tt__nvidia_library *l = s->library;
    char install[128] = "install the driver";
    if (l->wheel)
        snprintf(install, sizeof install, "install PyPI's %s into $VIRTUAL_ENV or name its folder in TT_CUDA_PATH",
                 l->wheel);
    snprintf(text, size,
             "%s was not found: expected %s%s%s in TT_CUDA_PATH, among the system's libraries, in $CUDA_HOME/lib64, "
             "/usr/local/cuda/lib64 or a wheel of $VIRTUAL_ENV or $CONDA_PREFIX%s. To have it, %s",
             l->name, l->files[0], l->files[1] ? " or " : "", l->files[1] ? l->files[1] : "", s->failed, install);
}

void *tt__nvidia_open(const tt__nvidia_library *library, char *text, size_t size) {
    search s = {.library = library};
    if (getauxval(AT_SECURE)) {
        snprintf(text, size, "%s is not used " TT__NVIDIA_REFUSED, library->name);
        return NULL;
    }
    try_list(&s, secure_getenv("TT_CUDA_PATH"));
    try_names(&s);
    try_below(&s, secure_getenv("CUDA_HOME"), "lib64");
    try_folder(&s, "/usr/local/cuda/lib64");
    try_wheels(&s, secure_getenv("VIRTUAL_ENV"));
    try_wheels(&s, secure_getenv("CONDA_PREFIX"));
    if (s.found)
        say_where(&s, text, size);
    else
        say_missing(&s, text, size);
    return s.found;
}
