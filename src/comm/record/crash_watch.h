/* A rank that crashes lets its launcher read its stack before it ends. */
#ifndef TT_COMM_RECORD_CRASH_WATCH_H
#define TT_COMM_RECORD_CRASH_WATCH_H

/* Catch the signals of crashes (SIGSEGV, SIGABRT, ...) whose action in this process is still the default, and report
 * the first to the launcher at `socket` (-1: there is none). The thread that got it waits until the launcher has
 * looked, at most tt__job_crash_ms(); then the default action follows. Handlers of the program stay. Only the calling
 * thread gets a stack for handlers: if another thread's stack overflows, nothing is reported. */
void tt__crash_watch(int socket);

/* Stop telling the launcher at `socket`, which is about to be closed. */
void tt__crash_unwatch(int socket);

#endif
