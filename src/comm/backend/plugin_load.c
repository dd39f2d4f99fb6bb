/* Plug-ins are shared objects, libtutti-backend-NAME.so, that are loaded when a program first asks for them by name. */
#include "comm/backend/plugin_load.h"

#include "base/args.h"
#include "base/error.h"
#include "base/files/object_path.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the library offers plug-ins. */
static const tt_backend_host backend_host = {
    .abi = TT_BACKEND_ABI,
    .size = sizeof(tt_backend_host),
    .call_size = sizeof(tt_call),
    .member_size = sizeof(tt_backend_member),
    .fail = tt__fail,
    .log = tt__log,
    .last_error = tt_last_error,
    .dtype_size = tt_dtype_size,
    .dtype_name = tt_dtype_name,
    .reduce_op_name = tt_reduce_op_name,
    .op_name = tt_op_name,
    .store_set = tt_store_set,
    .store_get = tt_store_get,
    .store_add = tt_store_add,
    .store_check = tt_store_check,
    .store_wait = tt_store_wait,
    .store_value_free = tt_store_value_free,
};

#define FILE_PREFIX "libtutti-backend-"

/* Plug-ins stay until the process ends: their engines have threads, and handlers that run at exit. */
typedef struct loaded {
    struct loaded *next;
    tt_backend table; /* a copy, in the form that this library knows */
    char path[];
} loaded;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static loaded *all;

static bool find_plugin(const char *name, char *path, size_t size) {
    char file[NAME_MAX + 1];
    int n = snprintf(file, sizeof file, FILE_PREFIX "%s.so", name);
    return n > 0 && (size_t)n < sizeof file && tt__object_find(file, path, size);
}

/* ", gloo, mpi": the plug-ins in one folder, without those that `text` has already. */
static void list_found(const char *folder, char *text, size_t size) {
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name + strlen(FILE_PREFIX);
        size_t length = strlen(entry->d_name), n = strlen(text);
        char item[NAME_MAX + 4];
        if (strncmp(entry->d_name, FILE_PREFIX, strlen(FILE_PREFIX)) != 0 || length < strlen(FILE_PREFIX ".so") ||
            strcmp(entry->d_name + length - 3, ".so") != 0)
            continue;
        snprintf(item, sizeof item, ", %.*s", (int)(strlen(name) - 3), name);
        if (!strstr(text, item))
            snprintf(text + n, size - n, "%s", item);
    }
    closedir(dir);
}

static tt_status fail_unknown(const char *name) {
    char folder[PATH_MAX], found[512] = "native", *list = tt__object_folders_list();
    for (const char *at = list; at && tt__object_folder_next(&at, folder, sizeof folder);)
        list_found(folder, found, sizeof found);
    tt__fail(TT_ERR_UNSUPPORTED,
             "there is no back end \"%.100s\"; there are: %s. Looked for " FILE_PREFIX
             "%.100s.so in %.800s. TT_BACKEND_PATH names other folders, from the root on",
             name, found, name, list ? list : "no memory");
    free(list);
    return TT_ERR_UNSUPPORTED;
}

/* Choose the plug-in for "mpi" by the MPI launcher that started this process: another MPI library can't talk to it. */
static const char *name_here(const char *name) {
    static const struct {
        const char *name, *variable, *here;
    } launchers[] = {{"mpi", "OMPI_COMM_WORLD_SIZE", "mpi-openmpi"}, {"mpi", "PMI_RANK", "mpi-mpich"}};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (!strcmp(name, launchers[i].name) && getenv(launchers[i].variable) &&
            find_plugin(launchers[i].here, path, sizeof path))
            return launchers[i].here;
    return name;
}

/* The first thing that `table` lacks, or NULL. */
static const char *missing_in(const tt_backend *table) {
    bool on_devices = table->devices & ~TT_DEVICE_BIT(TT_DEVICE_CPU);
    const struct {
        bool there;
        const char *name;
    } slots[] = {{table->name && *table->name, "name"},
                 {table->open, "open"},
                 {table->close, "close"},
                 {table->test, "test"},
                 {table->begin[TT_OP_BARRIER], "begin[TT_OP_BARRIER]"},
                 {table->begin[TT_OP_ALL_REDUCE], "begin[TT_OP_ALL_REDUCE]"},
                 {table->ranks || !table->finds_ranks, "ranks (it says .finds_ranks)"},
                 {table->stream_mark || !on_devices, "stream_mark (it says .devices)"},
                 {table->stream_wait || !on_devices, "stream_wait (it says .devices)"},
                 {table->window_free || !table->window_make, "window_free (it has window_make)"}};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (!slots[i].there)
            return slots[i].name;
    return NULL;
}

tt_status tt__plugin_check(tt_backend *out, const tt_backend *table, const char *path) {
    if (table->abi != TT_BACKEND_ABI)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "the back end %s was built for version %u of tutti/backend.h, this library has version %d: "
                        "build it again",
                        path, table->abi, TT_BACKEND_ABI);
    if (table->size < offsetof(tt_backend, supports))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "the back end %s says that its table has %zu bytes: set .size to sizeof(tt_backend)", path,
                        table->size);
    TT__ARGS_COPY(*out, table, table->size);
    const char *missing = missing_in(out);
    if (missing)
        return tt__fail(TT_ERR_UNSUPPORTED, "the back end %s has no %s in its table, which is mandatory", path,
                        missing);
    return TT_OK;
}

static tt_status load_file(tt_backend *out, const char *path) {
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!object)
        return tt__fail(TT_ERR_UNSUPPORTED, "the back end can't be loaded: %s", dlerror());
    tt_backend_entry *entry;
    *(void **)&entry = dlsym(object, "tutti_backend");
    if (!entry)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s is no back end: it has no function tutti_backend()", path);
    tt_clear_error();
    const tt_backend *table = entry(&backend_host);
    if (!table)
        return tt__fail(TT_ERR_UNSUPPORTED, "the back end %s refuses to work here%s%s", path,
                        *tt_last_error() ? ": " : "", tt_last_error());
    return tt__plugin_check(out, table, path);
}

static tt_status load_plugin(const tt_backend **out, const char *path) {
    for (const loaded *one = all; one; one = one->next)
        if (!strcmp(one->path, path)) {
            *out = &one->table;
            return TT_OK;
        }
    size_t n = strlen(path) + 1;
    loaded *one = malloc(sizeof *one + n);
    if (!one)
        return tt__fail(TT_ERR_MEMORY, "no memory for a back end");
    tt_status status = load_file(&one->table, path);
    if (status) {
        free(one);
        return status;
    }
    one->next = all;
    memcpy(one->path, path, n);
    all = one;
    *out = &one->table;
    return TT_OK;
}

tt_status tt__plugin_find(char real[PATH_MAX], const char *name) {
    char path[PATH_MAX];
    if (strchr(name, '/'))
        snprintf(path, sizeof path, "%s", name);
    else if (!find_plugin(name_here(name), path, sizeof path))
        return fail_unknown(name);
    tt_status status = tt__trusted_file(path, real);
    if (!status)
        return TT_OK;
    tt__fail_prefix("the back end %s can't be loaded", path);
    return status == TT_ERR_AUTH ? status : tt__fail(TT_ERR_UNSUPPORTED, "%s", tt_last_error());
}

tt_status tt__plugin_load(const tt_backend **out, const char *name) {
    char path[PATH_MAX];
    TT__TRY(tt__plugin_find(path, name));
    pthread_mutex_lock(&lock);
    tt_status status = load_plugin(out, path);
    pthread_mutex_unlock(&lock);
    return status;
}
