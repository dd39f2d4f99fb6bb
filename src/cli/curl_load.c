#include "cli/curl_load.h"

#include "base/error.h"

#include <dlfcn.h>

const tt__curl *tt__curl_get(void) {
    static tt__curl functions;
    static bool loaded;
    void *library = loaded ? NULL : dlopen(TT__LIBCURL, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&functions.name = dlsym(library, #name)) &&
    loaded =
        loaded || (library && TT__CURL_FUNCTIONS(FIND) functions.curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
#undef FIND
    const char *why = loaded ? NULL : dlerror();
    if (loaded)
        return &functions;
    return tt__fail_null(TT_ERR_UNSUPPORTED,
                         "downloads need libcurl, which can't be loaded: %s. Tutti was built for " TT__LIBCURL,
                         why ? why : "no reason given");
}
