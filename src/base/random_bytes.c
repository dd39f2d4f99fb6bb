#include "base/random_bytes.h"

#include "base/error.h"
#include "base/machine/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

tt_status tt__random_bytes(void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = getrandom((char *)bytes + done, size - done, 0);
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            return tt__fail_errno(TT_ERR_SYSTEM, errno, "asking for random bytes");
    }
    return TT_OK;
}

void tt__random_seed(void *bytes, size_t size) {
    uint64_t weak[2] = {(uint64_t)tt__now_ns(), (uint64_t)tt__realtime_ns() ^ (uint64_t)getpid() << 40};
    if (getrandom(bytes, size, GRND_NONBLOCK) == (ssize_t)size)
        return;
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < sizeof weak ? size - at : sizeof weak;
        memcpy((uint8_t *)bytes + at, weak, n);
    }
}
