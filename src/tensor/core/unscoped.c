#include "tensor/core/unscoped.h"

#include "base/log.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A program has some dozens of tensors of its own beside what models, optimizers and data sets hold. More, or more
 * memory, comes from a loop that frees none; a few large ones are the program's data before a data set has them. */
enum { MANY = 5000, SOME = 16 };
static const int64_t many_bytes = (int64_t)1 << 30;

static _Atomic int64_t alive, held_bytes;

void tt__unscoped_add(size_t bytes) {
    static _Atomic bool warned;
    int64_t count = atomic_fetch_add_explicit(&alive, 1, memory_order_relaxed) + 1;
    int64_t held = atomic_fetch_add_explicit(&held_bytes, (int64_t)bytes, memory_order_relaxed) + (int64_t)bytes;
    if (__builtin_expect(count < MANY && (count < SOME || held < many_bytes), 1) ||
        atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return;
    tt__log(TT_LOG_WARNING,
            "%lld tensors with %lld MiB live outside of scopes, where only tt_tensor_free() frees them: memory grows. "
            "Write TT_AUTO_SCOPE; at the top of the loop's body, or tt_keep() those that are to stay",
            (long long)count, (long long)(held >> 20));
}

void tt__unscoped_remove(size_t bytes) {
    atomic_fetch_sub_explicit(&alive, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&held_bytes, (int64_t)bytes, memory_order_relaxed);
}
