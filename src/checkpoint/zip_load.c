#include "checkpoint/zip_load.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tt__zip functions;
static char why_not_zip[512]; /* "": it is there */

/* Open the library by the name that upstream gives it, or by Debian 12's, which has the same functions. */
static void *open_libzip(void) {
    static const char *const names[] = {"libzip.so.5", "libzip.so.4"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library;
}

static void load_zip(void) {
    void *library = open_libzip();
#define FIND(name) (*(void **)&functions.name = dlsym(library, #name)) &&
    if (library && TT__ZIP_FUNCTIONS(FIND) true)
        return;
#undef FIND
    const char *why = dlerror();
    snprintf(why_not_zip, sizeof why_not_zip, "%s", why ? why : "no reason given");
}

const tt__zip *tt__zip_get(void) {
    pthread_once(&once, load_zip);
    if (*why_not_zip)
        return tt__fail_null(TT_ERR_UNSUPPORTED,
                             ".pt files need libzip, which can't be loaded: %s (Debian: libzip4; newer systems: "
                             "libzip5)",
                             why_not_zip);
    return &functions;
}
