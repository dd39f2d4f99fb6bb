/* Callbacks for backward passes that fail: other ranks may wait for what such a pass would have sent. */
#ifndef TT_AUTOGRAD_FAILED_PASS_H
#define TT_AUTOGRAD_FAILED_PASS_H

#include "autograd/reach.h"

/* A member of the object that is to be called. Zeroed, it is not registered. */
typedef struct tt__pass_watcher {
    struct tt__pass_watcher *next, **at;
    /* A pass has failed on this thread, with its last error, and its end-of-pass callbacks have run. reach: what the
     * pass would have reached; NULL: unknown, as memory ran out first. It must keep the last error, and, as a lock is
     * held, neither register nor remove watchers, nor run a pass. */
    void (*failed)(void *user, const tt__reach *reach);
    void *user;
} tt__pass_watcher;

/* Register a watcher, and remove it (nothing happens if it is not registered). From any thread; passes of all threads
 * are told, each on the thread that ran it. After removal no call is under way. */
void tt__watch_passes(tt__pass_watcher *watcher, void (*failed)(void *user, const tt__reach *reach), void *user);
void tt__unwatch_passes(tt__pass_watcher *watcher);

/* Call all watchers. */
void tt__pass_failed(const tt__reach *reach);

#endif
