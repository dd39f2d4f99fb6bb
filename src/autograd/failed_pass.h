/* Who is to hear of backward passes that fail: other ranks may wait for what these would have sent. */
#ifndef TT_AUTOGRAD_FAILED_PASS_H
#define TT_AUTOGRAD_FAILED_PASS_H

#include "autograd/reach.h"

/* Embedded in who asks. Zeroed, it is in no list. */
typedef struct tt__pass_watcher {
    struct tt__pass_watcher *next, **at;
    /* A pass has failed, as the thread's last error says, and its end-of-pass callbacks have run. reach: what it would
     * have come to; NULL: that is not known, as there was no memory to find out. Must not change the last error. */
    void (*failed)(void *user, const tt__reach *reach);
    void *user;
} tt__pass_watcher;

/* From any thread; passes of all threads are heard of, in the thread that ran them. */
void tt__watch_passes(tt__pass_watcher *watcher, void (*failed)(void *user, const tt__reach *reach), void *user);
void tt__unwatch_passes(tt__pass_watcher *watcher);

/* Let all know. */
void tt__pass_failed(const tt__reach *reach);

#endif
