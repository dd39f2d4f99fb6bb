#include "zip/zip_load.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tt__zip functions;
static char why_not_zip[512]; /* "": it is there */

static void load_zip(void) {
    void *library = dlopen(TT__LIBZIP, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
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
        return tt__fail_null(
            TT_ERR_UNSUPPORTED,
            "zip archives (.pt, .npz) need libzip, which can't be loaded: %s. Tutti was built for " TT__LIBZIP,
            why_not_zip);
    return &functions;
}
