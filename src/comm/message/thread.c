/* Threads that share the TCP links.
 *
 * One at a time sleeps in epoll: the caller that waits first, or else the engine's own thread. Other callers sleep until something has
 * changed. The own thread stands back while a caller waits, and for a moment after one has looked at the links, since the next
 * call is likely to come soon; unless a caller went away and left something under way (tt__messages_leave()). */
#include "base/clock.h"
#include "base/error.h"
#include "base/threads.h"
#include "comm/message/engine.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STAND_BACK_MS = 50 };

void tt__link_watch(tt__link *link) {
    bool wants = tt__link_wants_write(link);
    if (!link->tcp || link->ended || wants == link->wants_write || link->messages->epoll < 0)
        return;
    struct epoll_event event = {.events = EPOLLIN | (wants ? EPOLLOUT : 0), .data.ptr = link};
    if (!epoll_ctl(link->messages->epoll, EPOLL_CTL_MOD, link->stream.fd, &event))
        link->wants_write = wants;
}

void tt__poke(tt__messages *messages) {
    ssize_t ignored = write(messages->poke, &(uint64_t){1}, sizeof(uint64_t));
    (void)ignored; /* a full counter pokes as well */
}

void tt__poke_taken(tt__messages *messages) {
    uint64_t count;
    ssize_t ignored = read(messages->poke, &count, sizeof count);
    (void)ignored; /* another thread may have taken it */
}

void tt__sleep_on_links(tt__messages *messages, int64_t ms) {
    struct epoll_event event;
    epoll_wait(messages->epoll, &event, 1, ms > INT32_MAX ? INT32_MAX : ms < 0 ? 0 : (int)ms);
}

void tt__wait_for_change(tt__messages *messages, pthread_cond_t *condition, int64_t ms) {
    int64_t until = tt__now_ns() + (ms < 0 ? 0 : ms) * 1000000;
    struct timespec time = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_cond_timedwait(condition, messages->config.lock, &time);
}

/* Whoever sleeps may find its message done. */
void tt__tell_waiters(tt__messages *messages, int sleepers) {
    if (messages->polling)
        tt__poke(messages);
    if (messages->callers > 0 || sleepers)
        pthread_cond_broadcast(&messages->changed);
}

void tt__messages_leave(tt__messages *messages) {
    if (!messages->has_thread || messages->handed_over)
        return;
    messages->handed_over = true;
    pthread_cond_signal(&messages->thread_wanted);
}

/* How long the thread keeps out of the callers' way; 0: it is its turn. */
static int64_t stands_back(const tt__messages *messages, int64_t now) {
    if (messages->callers)
        return STAND_BACK_MS;
    int64_t left = messages->polled_ms + STAND_BACK_MS - now;
    return messages->handed_over || left < 0 ? 0 : left;
}

static int64_t sooner(int64_t a, int64_t b) { return b < 0 || a < b ? a : b; }

/* Sleep until a link has something; another may have served it by then. */
static void poll_links(tt__messages *messages, int64_t ms) {
    messages->thread_polls = true;
    pthread_mutex_unlock(messages->config.lock);
    tt__sleep_on_links(messages, ms);
    pthread_mutex_lock(messages->config.lock);
    messages->thread_polls = false;
    if (messages->callers || messages->stop)
        return;
    uint32_t completed = messages->completed;
    messages->now_ms = tt__now_ms();
    tt__serve_events(messages, 0);
    tt__serve_rings(messages);
    if (messages->completed != completed)
        tt__tell_waiters(messages, 0);
}

static int64_t advance(tt__messages *messages) {
    if (!messages->config.advance)
        return -1;
    messages->thread_acts = true;
    int64_t again_ms = messages->config.advance(messages->config.world);
    messages->thread_acts = false;
    return again_ms;
}

static void *run(void *arg) {
    tt__messages *messages = arg;
    int64_t again_ms = -1; /* when works want to be looked at though nothing came */
    pthread_mutex_lock(messages->config.lock);
    while (!messages->stop) {
        int64_t now = tt__now_ms();
        messages->now_ms = now;
        int64_t beat_ms = tt__beats(messages, now) - now, back_ms = stands_back(messages, now);
        if (back_ms) {
            tt__wait_for_change(messages, &messages->thread_wanted, sooner(beat_ms, back_ms));
            again_ms = 0;
            continue;
        }
        poll_links(messages, sooner(beat_ms, again_ms));
        again_ms = messages->callers || messages->stop ? -1 : advance(messages);
    }
    pthread_mutex_unlock(messages->config.lock);
    return NULL;
}

tt_status tt__thread_start(tt__messages *messages) {
    messages->has_thread = true;
    int errnum = tt__thread_create(&messages->thread, run, messages);
    if (!errnum)
        return TT_OK;
    messages->has_thread = false;
    return tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't start the thread that serves the links");
}

void tt__thread_stop(tt__messages *messages) {
    if (!messages->has_thread)
        return;
    pthread_mutex_lock(messages->config.lock);
    messages->stop = true;
    pthread_cond_signal(&messages->thread_wanted);
    tt__poke(messages);
    pthread_mutex_unlock(messages->config.lock);
    pthread_join(messages->thread, NULL);
    messages->has_thread = false;
}

tt_status tt__links_watch(tt__messages *messages) {
    if (messages->epoll >= 0)
        return TT_OK;
    messages->epoll = epoll_create1(EPOLL_CLOEXEC);
    messages->poke = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN};
    if (messages->epoll < 0 || messages->poke < 0 || epoll_ctl(messages->epoll, EPOLL_CTL_ADD, messages->poke, &event))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch connections (epoll)");
    return TT_OK;
}
