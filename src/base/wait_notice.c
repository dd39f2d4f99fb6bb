#include "base/wait_notice.h"

#include "base/setting.h"

#include <stdatomic.h>

int64_t tt__wait_notice_ns(void) {
    static _Atomic int64_t known = -1;
    int64_t ns = atomic_load_explicit(&known, memory_order_relaxed);
    if (ns >= 0)
        return ns;
    ns = (int64_t)(tt__setting_seconds(TT__WAIT_NOTICE) * 1e9);
    atomic_store_explicit(&known, ns, memory_order_relaxed);
    return ns;
}
