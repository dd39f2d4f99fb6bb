#include "tensor/cpu/onednn_load.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STRING_(text) #text
#define STRING(text) STRING_(text)
#define LIBRARY "libdnnl.so." STRING(DNNL_VERSION_MAJOR)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tt__onednn functions;
static char why_not[512]; /* "": it is there */

static void note_why_not(const char *why) { snprintf(why_not, sizeof why_not, "%s", why ? why : "no reason given"); }

/* Load oneDNN, which stays until the process ends, as its threads and caches do. */
static void load_onednn(void) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        note_why_not(dlerror());
        return;
    }
#define FIND(name) (*(void **)&functions.name = dlsym(library, #name)) &&
    if (!(TT__ONEDNN_FUNCTIONS(FIND) true))
        note_why_not(dlerror());
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
    return &functions;
}
