#include "base/process/held_signals.h"

#include <stddef.h>

void tt__signals_hold(sigset_t *before) {
    static const int raised[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof raised / sizeof *raised; i++)
        sigdelset(&all, raised[i]);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

void tt__signals_release(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }
