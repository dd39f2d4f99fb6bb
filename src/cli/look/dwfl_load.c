#include "cli/look/dwfl_load.h"

#include "base/error.h"

#include <dlfcn.h>

const tt__dwfl *tt__dwfl_get(void) {
    static tt__dwfl functions;
    static bool loaded;
    void *library = loaded ? NULL : dlopen(TT__LIBDW, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&functions.name = dlsym(library, #name)) &&
    loaded = loaded || (library && TT__DWFL_FUNCTIONS(FIND) true);
#undef FIND
    const char *why = loaded ? NULL : dlerror();
    if (loaded)
        return &functions;
    return tt__fail_null(TT_ERR_UNSUPPORTED,
                         "stacks need libdw, which can't be loaded: %s. Debian's package is libdw1; Tutti was built "
                         "for " TT__LIBDW,
                         why ? why : "no reason given");
}
