#include "net/curl_load.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tt__curl functions;
static char why_not_curl[512]; /* "": it was loaded */

/* libcurl appends the keys of its connections to the file that SSLKEYLOGFILE names. In a program with more rights than
 * its caller, the caller could so change any file of ours: remove the variable. */
static void load_curl(void) {
    if (getauxval(AT_SECURE))
        unsetenv("SSLKEYLOGFILE");
    void *library = dlopen(TT__LIBCURL, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&functions.name = dlsym(library, #name)) &&
    if (library && TT__CURL_FUNCTIONS(FIND) functions.curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        return;
#undef FIND
    const char *why = dlerror();
    snprintf(why_not_curl, sizeof why_not_curl, "%s", why ? why : "no reason given");
}

const tt__curl *tt__curl_get(const char *who) {
    pthread_once(&once, load_curl);
    if (*why_not_curl)
        return tt__fail_null(TT_ERR_UNSUPPORTED,
                             "%s need libcurl, which can't be loaded: %s. Tutti was built for " TT__LIBCURL, who,
                             why_not_curl);
    return &functions;
}
