/* The engine's own thread. It leaves the links to a caller that waits, and for a moment after a caller has read them,
 * since the next call is likely to come soon. The moment is shorter, or none, if the caller left something under way
 * (tt__messages_leave(), tt__messages_leave_soon()). */
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "comm/message/message_parts.h"

/* Return how long the thread still leaves the links to callers; 0: it serves them itself. */
static int64_t stands_back(const tt__messages *messages, int64_t now) {
    if (messages->callers)
        return TT__STAND_BACK_MS;
    int64_t left = messages->polled_ms + messages->stand_back_ms - now;
    return left < 0 ? 0 : left;
}

static int64_t earlier_ms(int64_t a, int64_t b) { return b < 0 || a < b ? a : b; }

/* Sleep until a link has something, and serve it, unless a caller does. */
static void poll_links(tt__messages *messages, int64_t ms) {
    messages->thread_polls = true;
    pthread_mutex_unlock(messages->config.lock);
    tt__poller_sleep(messages, ms);
    pthread_mutex_lock(messages->config.lock);
    messages->thread_polls = false;
    if (messages->callers || messages->stop)
        return;
    uint32_t completed = messages->completed;
    messages->now_ms = tt__now_ms();
    tt__serve_events(messages);
    tt__serve_rings(messages);
    if (messages->completed != completed)
        tt__wake_waiters(messages, 0);
}

static int64_t thread_advance(tt__messages *messages) {
    if (!messages->config.advance)
        return -1;
    messages->thread_acts = true;
    int64_t again_ms = messages->config.advance(messages->config.world);
    messages->thread_acts = false;
    return again_ms;
}

/* As often as beats are sent, check whether all threads of the program have ended, the main thread by pthread_exit().
 * Then nobody will make a call any more, and only this thread keeps the process alive and beating. So it ends the links
 * without a goodbye, as they end when a process dies. */
static bool ends_with_program(tt__messages *messages, int64_t now) {
    if (now < messages->census_due_ms)
        return false;
    messages->census_due_ms = now + (messages->config.heartbeat_ms + 3) / 4;
    if (!tt__program_has_ended())
        return false;
    for (tt__link *link = messages->active; link; link = link->next)
        tt__link_end(link, TT_ERR_STATE, "the threads of this process's program have ended");
    return true;
}

static void *thread_main(void *arg) {
    tt__messages *messages = arg;
    int64_t again_ms = -1; /* when to advance works even if nothing comes */
    pthread_mutex_lock(messages->config.lock);
    while (!messages->stop) {
        int64_t now = tt__now_ms();
        messages->now_ms = now;
        if (ends_with_program(messages, now))
            break;
        int64_t beat_ms = tt__beats_send(messages, now) - now, back_ms = stands_back(messages, now);
        if (back_ms) {
            messages->stands_until_ms = now + back_ms;
            tt__wait_for_change(messages, &messages->thread_wanted, earlier_ms(beat_ms, back_ms));
            messages->stands_until_ms = 0;
            again_ms = 0;
            continue;
        }
        poll_links(messages, earlier_ms(beat_ms, again_ms));
        again_ms = messages->callers || messages->stop ? -1 : thread_advance(messages);
        if (messages->config.unlocked)
            messages->config.unlocked(messages->config.world);
    }
    pthread_mutex_unlock(messages->config.lock);
    return NULL;
}

tt_status tt__messages_thread_start(tt__messages *messages) {
    messages->has_thread = true;
    tt_status status = tt__thread_create(&messages->thread, thread_main, messages, "the thread that serves the links");
    if (status)
        messages->has_thread = false;
    return status;
}

void tt__messages_thread_stop(tt__messages *messages) {
    if (!messages->has_thread)
        return;
    pthread_mutex_lock(messages->config.lock);
    messages->stop = true;
    pthread_cond_signal(&messages->thread_wanted);
    tt__poller_wake(messages);
    pthread_mutex_unlock(messages->config.lock);
    pthread_join(messages->thread, NULL);
    messages->has_thread = false;
}
