/* Loading libtutti-cuda.so. */
#include "base/error.h"
#include "base/files/nvidia_library.h"
#include "base/files/object_path.h"
#include "base/log.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "tensor/device/capture.h"
#include "tensor/device/device_plugin.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#define FILE_NAME "libtutti-cuda.so"

static const tt__device_host host = {.build = TT__DEVICE_BUILD,
                                     .fail = tt__fail,
                                     .vformat = tt__vformat,
                                     .log = tt__log,
                                     .last_status = tt_last_status,
                                     .dtype_name = tt_dtype_name,
                                     .iter_over = tt__iter_over,
                                     .iter_row_major = tt__iter_row_major,
                                     .refuse_capture = tt__capture_refuse};

/* It stays until the process ends: CUDA has threads, and handlers that run at exit. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const tt__device_plugin *plugin;

static tt_status fail_no_plugin(void) {
    char *list = tt__object_folders_list();
    tt__fail(TT_ERR_UNSUPPORTED,
             "CUDA devices need " FILE_NAME ", which is in none of %.800s. It is built where CUDA's compiler, "
             "nvcc, is found: docs/gpu.md says how. TT_BACKEND_PATH names other folders, from the root on",
             list ? list : "no memory");
    free(list);
    return TT_ERR_UNSUPPORTED;
}

static tt_status load_plugin_file(const tt__device_plugin **out, const char *path) {
    static const tt__device_build build = TT__DEVICE_BUILD;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!object)
        return tt__fail(TT_ERR_UNSUPPORTED, "CUDA devices can't be loaded: %s", dlerror());
    tt__device_entry *entry;
    *(void **)&entry = dlsym(object, "tutti_devices");
    const tt__device_plugin *found = entry ? entry(&host) : NULL;
    if (!found || memcmp(&found->build, &build, sizeof build) != 0)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s belongs to another build of Tutti: install both from one", path);
    *out = found;
    return TT_OK;
}

static tt_status load(void) {
    char path[PATH_MAX], real[PATH_MAX];
    if (plugin)
        return TT_OK;
    if (getauxval(AT_SECURE)) /* the file contains CUDA's runtime, which opens the driver itself */
        return tt__fail(TT_ERR_UNSUPPORTED, "CUDA devices are not used " TT__NVIDIA_REFUSED);
    if (!tt__object_find(FILE_NAME, path, sizeof path))
        return fail_no_plugin();
    if (tt__trusted_file(path, real))
        return tt__fail_prefix("%s can't be loaded", path);
    return load_plugin_file(&plugin, real);
}

/* In a forked child the lock may be held by a thread that the child doesn't have. */
static void unlock_load_in_child(void) { pthread_mutex_init(&lock, NULL); }

static void load_watch_forks(void) { pthread_atfork(NULL, NULL, unlock_load_in_child); }

static tt_status load_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_watch_forks);
    pthread_mutex_lock(&lock);
    tt_status status = load();
    pthread_mutex_unlock(&lock);
    return status;
}

/* The number after "cuda:"; "cuda" is the first. A device has one name: neither a sign nor leading zeros. */
static tt_status index_of(const char *name, int *index) {
    int64_t number = 0;
    if (name[4])
        TT__TRY(tt__parse_i64(name, name + 5, 0, INT_MAX, &number));
    if (name[4] && (name[5] == '+' || (name[5] == '0' && name[6])))
        return tt__fail(TT_ERR_INVALID, "%s: expected a number without sign and leading zeros, as in \"cuda:%lld\"",
                        name, (long long)number);
    *index = (int)number;
    return TT_OK;
}

/* Load and begin "cuda" (the first one) or "cuda:1"; not registered yet. NULL: an error that starts with `who` and says
 * what is missing. */
static const tt_device *load_named(const char *who, const char *name) {
    int index = 0;
    const tt_device *device = index_of(name, &index) || load_once() ? NULL : plugin->device(index);
    if (!device)
        tt__fail_prefix("%s", who);
    return device;
}

int64_t tt_device_count(tt_device_type type) {
    int count = 0;
    tt__saved_error before;
    if (type == TT_DEVICE_CPU)
        return 1;
    if (type != TT_DEVICE_CUDA)
        return 0;
    tt__error_save(&before);
    if (load_once() || plugin->count(&count))
        count = 0;
    tt__error_restore(&before);
    return count;
}

/* ---- finding */

static _Thread_local const tt_device *current_cuda; /* what "cuda" means; NULL: cuda:0 */

static const tt_device *load_device(const char *who, const char *name) {
    const tt_device *loaded = load_named(who, name);
    return loaded && !tt__device_register(loaded) ? loaded : NULL;
}

static const tt_device *find_device(const char *who, const char *name) {
    char known[256];
    const tt_device *found = tt__device_registered(name, known, sizeof known);
    if (found)
        return found;
    if (name && !strcmp(name, "cuda") && current_cuda)
        return current_cuda;
    if (name && (!strcmp(name, "cuda") || !strncmp(name, "cuda:", 5)))
        return load_device(who, name);
    return tt__fail_null(TT_ERR_NOT_FOUND, "%s: expected one of %s, or \"cuda:0\" and so on, got \"%s\"", who, known,
                         name ? name : "NULL");
}

const tt_device *tt_device_get(const char *name) { return find_device("tt_device_get", name); }

tt_status tt_set_device(const tt_device *device) {
    if (!device || device->type != TT_DEVICE_CUDA)
        return tt__fail(TT_ERR_INVALID, "tt_set_device: expected a CUDA device, as TT_CUDA(0), got %s",
                        device ? device->name : "NULL");
    current_cuda = device;
    return TT_OK;
}

const tt_device *tt_current_device(void) { return find_device("tt_current_device", "cuda"); }

const tt_device *tt_device_of(tt_device_type type, int64_t index) {
    char name[32];
    if (type == TT_DEVICE_CPU && index == 0)
        return &tt__cpu_device;
    if (type != TT_DEVICE_CUDA || index < 0)
        return tt__fail_null(TT_ERR_NOT_FOUND,
                             "tt_device_of: expected TT_DEVICE_CPU and 0, or TT_DEVICE_CUDA and an "
                             "index of at least 0, got %d and %" PRId64,
                             (int)type, index);
    snprintf(name, sizeof name, "cuda:%" PRId64, index);
    return find_device("tt_device_of", name);
}
