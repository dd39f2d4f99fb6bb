/* Ranks that use the fake of CUDA (tests/support/fake_cuda). The process that forks them doesn't use it. */
#ifndef TESTS_SUPPORT_CUDA_RANKS_H
#define TESTS_SUPPORT_CUDA_RANKS_H

#include "support/ranks.h"

#include <tutti/tutti.h>

/* False: the test doesn't know where the fake was built. */
static inline bool cuda_choose_fake(void) {
    const char *build = getenv("TT_BUILD");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/fake_cuda", build ? build : "");
    unsetenv("CUDA_VISIBLE_DEVICES");
    return build && !setenv("TT_BACKEND_PATH", path, 1) && !setenv("TT_CUDA_PATH", path, 1);
}

/* cuda_choose_fake(); with TT_CUDA_REAL=1 choose the machine's GPU. */
static inline bool cuda_choose_any(void) { return getenv("TT_CUDA_REAL") || cuda_choose_fake(); }

/* How many ranges of the host's memory this process has pinned. */
static inline size_t cuda_pinned_ranges(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("TT_BACKEND_PATH"));
    void *fake = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    size_t (*ranges)(void) = (size_t(*)(void))dlsym(fake, "fake_pinned_ranges");
    CHECK(ranges);
    size_t n = ranges();
    dlclose(fake);
    return n;
}

/* cuda_pinned_ranges() without ranges that are kept for later copies. */
static inline size_t cuda_pinned_left(void) {
    for (int64_t i = 0; i < tt_device_count(TT_DEVICE_CUDA); i++)
        CHECK_OK(tt_device_empty_cache(TT_CUDA(i)));
    return cuda_pinned_ranges();
}

#endif
