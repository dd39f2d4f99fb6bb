/* Serving the links; which peers are silent or gone; questions to a peer. Threads share the TCP links.
 *
 * One thread at a time sleeps in epoll: the caller that waits first, or else the engine's own thread (thread.c). Other
 * callers sleep until something has changed. */
#include "comm/message/message_parts.h"

#include "base/error.h"
#include "base/machine/clock.h"

#include <stdio.h>
#include <sys/epoll.h>

enum {
    LOOK_AT_EACH = 2, /* up to this many TCP links are all read, without asking epoll */
    EVENTS = 64,
    WATCHED_MS = 1, /* between looks at what is watched beside the links */
    SOON_MS = 1,    /* waiting longer than this while bytes are there would leave the link idle */
    RINGS_MS = 1    /* between a TCP sleeper's looks at the rings */
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
        tt__beats_send(messages, messages->now_ms); /* while bytes keep coming, the thread may wait long for the lock */
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

/* Other ranks read this text, too, so it names both ends. */
static tt_status fail_link_ended(const tt__link *link) {
    char who[TT__RANK_TEXT_SIZE], own[TT__RANK_TEXT_SIZE];
    tt__rank_text(link->messages, link->peer, link->where, who);
    tt__rank_name(link->messages, link->messages->config.rank, own);
    if (link->transport.peer_left && link->messages->config.peer_name)
        return tt__fail(link->status, "%s has left", who);
    if (link->transport.peer_left)
        return tt__fail(link->status, "%s has left the job: %s", who, link->why);
    if (link->status == TT_ERR_PEER)
        return tt__fail(link->status, "%s is gone; its connection to %s ended: %s", who, own, link->why);
    return tt__fail(link->status, "%s ended its connection to %s: %s", own, who, link->why);
}

bool tt__link_silent(tt__messages *messages, int rank) {
    const tt__link *link = messages->links[rank];
    if (!link || !link->tcp || link->ended)
        return false;
    int64_t patience = messages->config.heartbeat_ms - messages->config.heartbeat_ms / 4, now = tt__now_ms();
    tt__beats_check_clock(messages, now);
    if (now - link->received_ms < patience)
        return false;
    tt__messages_progress(messages); /* unread bytes are a sign of life, too */
    return !link->ended && now - link->received_ms >= patience;
}

tt_status tt__link_check(tt__messages *messages, int rank) {
    const tt__link *link = messages->links[rank];
    char who[TT__RANK_TEXT_SIZE];
    if (!link || !link->transport.ops || (!link->tcp && !link->ended))
        return TT_OK;
    if (!link->tcp)
        return tt__fail(link->status, "the connection to rank %d in shared memory ended: %s", rank, link->why);
    bool silent = tt__link_silent(messages, rank);
    if (link->ended)
        return fail_link_ended(link);
    if (!silent)
        return TT_OK;
    return tt__fail(TT_ERR_PEER, "%s has been silent for %lld ms: it is frozen, or the network between is cut",
                    tt__rank_text(messages, rank, link->where, who), (long long)(tt__now_ms() - link->received_ms));
}

bool tt__link_is_gone(const tt__messages *messages, int rank) {
    const tt__link *link = messages->links[rank];
    return link && link->tcp && link->ended && !link->transport.peer_left && link->status == TT_ERR_PEER;
}

/* Ask, and wait for the answer at most `ms`. */
static tt__question ask_peer(tt__messages *messages, int rank, const tt__key *key, int64_t ms) {
    tt__link *link = messages->links[rank];
    int64_t deadline_ms = tt__deadline_ms(ms);
    tt__question question = {.next = messages->questions, .id = ++messages->last_id};
    tt__frame frame = {.type = TT__FRAME_ASK, .key = *key, .id = question.id};
    if (!link || !link->tcp || link->ended)
        return question;
    messages->questions = &question;
    tt__send_frame(link, &frame, NULL, 0);
    while (!question.answered && !link->ended && tt__left_ms(deadline_ms))
        tt__messages_wait(messages, tt__left_ms(deadline_ms));
    tt__question **at = &messages->questions;
    while (*at != &question)
        at = &(*at)->next;
    *at = question.next;
    return question;
}

bool tt__ask_call(tt__messages *messages, int rank, uint32_t group, uint32_t seq, char *text, size_t size,
                  uint32_t *word, int64_t ms) {
    tt__question question = ask_peer(messages, rank, &(tt__key){.group = group, .seq = seq}, ms);
    if (!question.known)
        return false;
    snprintf(text, size, "%s", question.text);
    *word = question.word;
    return true;
}

bool tt__ask_not_called(tt__messages *messages, int rank, uint32_t group, uint32_t seq, int64_t ms) {
    tt__question question = ask_peer(messages, rank, &(tt__key){.group = group, .seq = seq}, ms);
    return question.answered && !question.known && !question.may_call;
}

bool tt__ask_record(tt__messages *messages, int rank, uint32_t group, uint32_t record, char *text, size_t size,
                    int64_t ms) {
    tt__question question = ask_peer(messages, rank, &(tt__key){.group = group, .record = record}, ms);
    if (question.known)
        snprintf(text, size, "%s", question.text);
    return question.known;
}
