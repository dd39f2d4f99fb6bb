#include "tensor/debug.h"

#include "base/error.h"
#include "tensor/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* How many freed tensors wait under TT_DEBUG=1 before the oldest goes: about 100 MB. */
enum { KEPT = 1 << 18 };

/* A model has hundreds of tensors; this many outside of scopes come from a loop that frees none. */
enum { MANY = 50000 };

static bool is_debugging(void) {
    static _Atomic int cached = -1;
    int on = atomic_load_explicit(&cached, memory_order_relaxed);
    if (on < 0) {
        const char *text = getenv("TT_DEBUG");
        on = text && *text && !(text[0] == '0' && !text[1]);
        atomic_store_explicit(&cached, on, memory_order_relaxed);
    }
    return on;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *kept[KEPT];
static size_t oldest;

void tt__debug_free(void *block) {
    if (__builtin_expect(is_debugging(), 0)) {
        pthread_mutex_lock(&lock);
        void *goes = kept[oldest];
        kept[oldest] = block;
        oldest = (oldest + 1) % KEPT;
        pthread_mutex_unlock(&lock);
        block = goes;
    }
    tt__pool_free(block);
}

void tt__debug_count_unscoped(int change) {
    static _Thread_local int alive;
    static _Atomic bool warned;
    alive += change;
    if (__builtin_expect(alive < MANY, 1) || atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return;
    tt__log(TT_LOG_WARNING,
            "%d tensors live outside of scopes, where only tt_tensor_free() frees them: memory grows. Write "
            "TT_AUTO_SCOPE; at the top of the loop's body",
            MANY);
}
