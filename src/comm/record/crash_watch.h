/* A rank that crashes lets its launcher read its stack before it ends. */
#ifndef TT_COMM_RECORD_CRASH_WATCH_H
#define TT_COMM_RECORD_CRASH_WATCH_H

/* Catch the signals of crashes (SIGSEGV, SIGABRT, ...), those whose effect is still the default one, in this process,
 * and tell the launcher at `socket` (-1: nobody) of the first that comes: the thread that got it waits until the
 * launcher has looked, at most tt__job_crash_ms(). Then the signal has its default effect, as if it had not been
 * caught. A program that sets a handler of its own keeps it. Other threads than the caller have no stack for handlers:
 * where their own overflows nobody is told. */
void tt__crash_watch(int socket);

/* Tell nobody at `socket` any more: it is to be closed. */
void tt__crash_unwatch(int socket);

#endif
