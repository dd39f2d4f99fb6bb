/* Threads that share the TCP links.
 *
 * One thread at a time sleeps in epoll: the caller that waits first, or else the engine's own thread (thread.c). Other
 * callers sleep until something has changed. */
#include "comm/message/progress.h"

#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "comm/message/heartbeat.h"
#include "comm/message/incoming.h"
#include "comm/message/link.h"
#include "comm/message/links.h"
#include "comm/message/outgoing.h"
#include "comm/message/poller.h"

#include <sys/epoll.h>

enum {
    LOOK_AT_EACH = 2, /* up to so many TCP links are read without asking epoll which */
    EVENTS = 64,
    WATCHED_MS = 1, /* what is watched beside the links is looked at that often, */
    SOON_MS = 1,    /* a thread that waits for more than that while bytes are there leaves the link idle */
    RINGS_MS = 1    /* a sleeper on TCP looks at the rings that often */
};

static bool serve_link(tt__link *link) {
    if (link->ended)
        return false;
    bool any = tt__link_read(link);
    if (tt__link_wants_write(link))
        any |= tt__link_flush(link);
    if (link->broken && !any && !link->ended)
        tt__link_end(link, TT_ERR_PEER, "%s", link->transport.why);
    return any;
}

bool tt__serve_events(tt__messages *messages) {
    struct epoll_event events[EVENTS];
    bool any = false, watched = false;
    int n = epoll_wait(messages->epoll, events, EVENTS, 0);
    messages->watched_ms = messages->now_ms;
    for (int i = 0; i < n; i++) {
        tt__link *link = events[i].data.ptr;
        if (events[i].data.ptr == messages)
            watched = true;
        else if (link)
            any |= serve_link(link);
        else
            tt__poller_woken(messages);
    }
    if (watched)
        any |= messages->serve_watched(messages->watched_user);
    return any;
}

bool tt__serve_rings(tt__messages *messages) {
    bool any = messages->config.ring_peer && tt__links_attach_rings(messages);
    if (messages->ring_links)
        for (tt__link *link = messages->active; link; link = link->next)
            if (!link->tcp)
                any |= serve_link(link);
    return any;
}

static bool serve_tcp(tt__messages *messages) {
    bool any = false;
    bool looks = messages->serve_watched && messages->now_ms - messages->watched_ms >= WATCHED_MS;
    if (messages->tcp_links > LOOK_AT_EACH || looks)
        return tt__serve_events(messages);
    for (tt__link *link = messages->active; link; link = link->next)
        if (link->tcp)
            any |= serve_link(link);
    return any;
}

/* ---- waiting */

void tt__wait_for_change(tt__messages *messages, pthread_cond_t *condition, int64_t ms) {
    int64_t until = tt__now_ns() + (ms < 0 ? 0 : ms) * 1000000;
    struct timespec time = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_cond_timedwait(condition, messages->config.lock, &time);
}

void tt__wake_waiters(tt__messages *messages, int sleepers) {
    if (messages->polling)
        tt__poller_wake(messages);
    if (messages->callers > 0 || sleepers)
        pthread_cond_broadcast(&messages->changed);
}

bool tt__messages_progress(tt__messages *messages) {
    uint32_t completed = messages->completed;
    bool any = tt__serve_rings(messages);
    if (!messages->tcp_links && !messages->serve_watched)
        return any;
    messages->now_ms = tt__now_ms();
    if (!messages->thread_acts) {
        messages->polled_ms = messages->now_ms;
        messages->stand_back_ms = TT__STAND_BACK_MS;
    }
    any |= serve_tcp(messages);
    if (messages->has_thread && messages->now_ms >= messages->beat_due_ms)
        tt__beats_send(messages, messages->now_ms); /* while bytes keep coming the thread may long not get the lock */
    if (messages->completed != completed)
        tt__wake_waiters(messages, 0);
    return any;
}

void tt__messages_wait(tt__messages *messages, int64_t ms) {
    if (!messages->has_thread)
        return;
    uint32_t completed = messages->completed;
    if (messages->ring_links && ms > RINGS_MS)
        ms = RINGS_MS;
    messages->callers++;
    if (messages->polling) {
        tt__wait_for_change(messages, &messages->changed, ms);
    } else {
        messages->polling = true;
        if (messages->thread_polls)
            tt__poller_wake(messages);
        pthread_mutex_unlock(messages->config.lock);
        tt__poller_sleep(messages, ms);
        pthread_mutex_lock(messages->config.lock);
        messages->polling = false;
    }
    messages->callers--;
    messages->now_ms = messages->polled_ms = tt__now_ms();
    messages->stand_back_ms = TT__STAND_BACK_MS;
    tt__serve_events(messages);
    tt__serve_rings(messages);
    if (messages->callers || messages->completed != completed)
        tt__wake_waiters(messages, messages->callers);
}

void tt__messages_wake(tt__messages *messages) { tt__wake_waiters(messages, 0); }

bool tt__messages_threaded(const tt__messages *messages) { return messages->has_thread; }

void tt__messages_leave(tt__messages *messages) {
    if (!messages->has_thread || !messages->stand_back_ms)
        return;
    messages->stand_back_ms = 0;
    pthread_cond_signal(&messages->thread_wanted);
}

void tt__messages_leave_soon(tt__messages *messages) {
    if (!messages->has_thread || messages->stand_back_ms <= SOON_MS)
        return;
    messages->stand_back_ms = SOON_MS;
    if (messages->stands_until_ms > messages->polled_ms + SOON_MS)
        pthread_cond_signal(&messages->thread_wanted);
}
