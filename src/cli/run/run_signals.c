#include "cli/run/run_signals.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Find the signal "SIGTERM" (n letters), 0: there is none. */
static int signal_named(const char *name, size_t n) {
    for (int sig = 1; sig < SIGRTMIN; sig++) {
        const char *own = sigabbrev_np(sig);
        if (own && n == strlen(own) + 3 && !strncmp(name, "SIG", 3) && !strncmp(name + 3, own, n - 3))
            return sig;
    }
    return 0;
}

/* Signals that nobody can handle, that say what a process has done wrong itself, or that the launcher needs. */
static bool can_be_handled(int sig) {
    static const int others[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGWINCH, SIGPIPE, SIGXFSZ,
                                 SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,   SIGTRAP, SIGABRT};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sig == others[i])
            return false;
    return sig != 0;
}

tt_status tt__run_signals_read(tt__job *job, const tt__run_flags *flags) {
    const char *given = flags->signals_to_handle, *inherited = getenv("TORCHELASTIC_SIGNALS_TO_HANDLE");
    const char *names = given && *given ? given : inherited && *inherited ? inherited : "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    sigemptyset(&job->signals);
    job->signal_names = names;
    for (const char *at = names; at;) {
        const char *comma = strchr(at, ',');
        at += strspn(at, " ");
        size_t n = strcspn(at, ", ");
        int sig = signal_named(at, n);
        if (!can_be_handled(sig))
            return tt__fail(TT_ERR_INVALID,
                            "%s: expected names such as SIGTERM,SIGINT,SIGUSR1, got \"%.*s\", which is %s",
                            names == given ? "--signals-to-handle" : "TORCHELASTIC_SIGNALS_TO_HANDLE", (int)n, at,
                            sig ? "a signal that can't be handled" : "no signal");
        sigaddset(&job->signals, sig);
        at = comma ? comma + 1 : NULL;
    }
    return TT_OK;
}
