#include "tensor/cpu/onednn/onednn_load.h"

#include "base/error.h"
#include "base/process/threads.h"
#include "tensor/device/parallel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define STRING_(text) #text
#define STRING(text) STRING_(text)
#define LIBRARY "libdnnl.so." STRING(DNNL_VERSION_MAJOR)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tt__onednn functions;
static char why_not[512]; /* "": it is there */
static bool too_little_memory;

static void note_why_not(const char *why) { snprintf(why_not, sizeof why_not, "%s", why ? why : "no reason given"); }

/* Its first product makes kernels, and does not survive a failure of that: see that there is room, and have them made
 * now rather than when memory has become short. */
static bool make_first_product(void) {
    enum { NEEDED = 32 << 20, SIZE = 16 };
    static float a[SIZE * SIZE], b[SIZE * SIZE], c[SIZE * SIZE];
    void *room = mmap(NULL, NEEDED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED || munmap(room, NEEDED))
        return false;
    sigset_t before;
    tt__signals_hold(&before);
    dnnl_status_t status = functions.dnnl_sgemm('N', 'N', SIZE, SIZE, SIZE, 1, a, SIZE, b, SIZE, 0, c, SIZE);
    tt__signals_release(&before);
    return status == dnnl_success;
}

/* With ONEDNN_JIT_DUMP oneDNN writes files into the working directory: not with more rights than the caller has. */
static void forbid_dumps(void *library) {
    dnnl_status_t (*set_dump)(int enable);
    *(void **)&set_dump = dlsym(library, "dnnl_set_jit_dump");
    if (set_dump && getauxval(AT_SECURE))
        set_dump(0);
}

/* Load oneDNN, which stays until the process ends, as its threads and caches do. */
static void load_onednn(void) {
    tt__openmp_wait_briefly();
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        note_why_not(dlerror());
        return;
    }
    forbid_dumps(library);
#define FIND(name) (*(void **)&functions.name = dlsym(library, #name)) &&
    if (!(TT__ONEDNN_FUNCTIONS(FIND) true))
        note_why_not(dlerror());
    else
        too_little_memory = !make_first_product();
#undef FIND
}

const tt__onednn *tt__onednn_get(void) {
    pthread_once(&once, load_onednn);
    if (*why_not)
        return tt__fail_null(
            TT_ERR_UNSUPPORTED,
            "products and convolutions of f32 need oneDNN, which can't be loaded: %s. Tutti was built for " LIBRARY
            " (Debian: libdnnl" STRING(DNNL_VERSION_MAJOR) ")",
            why_not);
    if (too_little_memory)
        return tt__fail_null(TT_ERR_MEMORY,
                             "no memory for oneDNN, which needs 32 MiB to begin with (ulimit -v limits it)");
    return &functions;
}
