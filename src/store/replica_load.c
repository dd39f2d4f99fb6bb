#ifdef TT__RAFT
#include "store/replica_load.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static pthread_once_t raft_once = PTHREAD_ONCE_INIT;
static tt__raft raft_functions;
static char why_not_raft[512]; /* "": it is there */

static void load_raft(void) {
    void *library = dlopen(TT__LIBRAFT, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&raft_functions.name = dlsym(library, #name)) &&
    if (library && TT__RAFT_FUNCTIONS(FIND) true)
        return;
#undef FIND
    const char *why = dlerror();
    snprintf(why_not_raft, sizeof why_not_raft, "%s", why ? why : "no reason given");
}

const tt__raft *tt__raft_get(void) {
    pthread_once(&raft_once, load_raft);
    if (*why_not_raft)
        return tt__fail_null(
            TT_ERR_UNSUPPORTED,
            "a replica of a store needs libraft, which can't be loaded: %s. Tutti was built for " TT__LIBRAFT
            " (Debian's package libraft2)",
            why_not_raft);
    return &raft_functions;
}
#endif
typedef int tt__replica_load_is_optional; /* ISO C wants something in every file */
