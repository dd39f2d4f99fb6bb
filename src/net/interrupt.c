/* What interrupts a thread's waits: net.h. */
#include "net/net.h"

#include "base/error.h"
#include "base/process/waits.h"

static _Thread_local struct {
    bool set;
    int suspended; /* how often it is */
    int fd;
    const char *why;
} interrupt;

void tt__net_interrupt_by(int fd, const char *why) {
    interrupt.set = fd >= 0;
    interrupt.fd = fd;
    interrupt.why = why;
}

void tt__net_interrupt_suspend(void) { interrupt.suspended++; }

void tt__net_interrupt_resume(void) { interrupt.suspended--; }

int tt__net_interrupt_fd(void) { return interrupt.set && !interrupt.suspended ? interrupt.fd : -1; }

tt_status tt__net_interrupted(void) {
    struct pollfd one = {.fd = tt__net_interrupt_fd(), .events = POLLIN};
    if (one.fd < 0 || !tt__poll(&one, 1, 0))
        return TT_OK;
    return tt__fail(TT_ERR_ABORTED, "%s", interrupt.why);
}
