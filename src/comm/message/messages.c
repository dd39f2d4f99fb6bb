/* The engine: its making and end, progress, waiting. */
#include "comm/message/engine.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/threads.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    LOOK_AT_EACH = 2, /* up to so many TCP links are read from without asking epoll which */
    EVENTS = 64,
    MANY = 64,   /* ranks, beyond which the links' buffers are smaller */
    RINGS_MS = 1 /* a sleeper on TCP looks at the rings that often */
};

tt_status tt__messages_new(tt__messages **out, const tt__messages_config *config) {
    tt__messages *messages = calloc(1, sizeof *messages);
    tt__link **links = calloc((size_t)config->size, sizeof *links);
    *out = NULL;
    if (!messages || !links) {
        free(messages);
        free(links);
        return tt__fail(TT_ERR_MEMORY, "no memory for the links to %d ranks", config->size);
    }
    messages->config = *config;
    messages->links = links;
    messages->epoll = messages->poke = messages->listener = -1;
    tt__cond_init(&messages->changed);
    tt__cond_init(&messages->thread_wanted);
    *out = messages;
    return TT_OK;
}

/* ---- links */

tt__link *tt__link_new(tt__messages *messages, int peer, const tt__link_ops *ops) {
    tt__link *link = calloc(1, sizeof *link);
    size_t ahead = messages->config.size > MANY ? TT__READ_AHEAD / 4 : TT__READ_AHEAD;
    size_t room = !ops ? 0 : ops->reads_ahead ? ahead : sizeof(tt__frame);
    unsigned char *in = malloc(room ? room : 1);
    if (!messages->discard)
        messages->discard = malloc(TT__READ_AHEAD);
    if (!link || !in || !messages->discard) {
        free(link);
        free(in);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for the link to rank %d", peer);
    }
    link->ops = ops;
    link->messages = messages;
    link->peer = peer;
    link->stream.fd = -1;
    link->in = in;
    link->in_room = room;
    link->arrivals_end = &link->arrivals;
    link->readies_end = &link->readies;
    messages->links[peer] = link;
    if (ops) {
        link->next = messages->active;
        messages->active = link;
    }
    return link;
}

tt__link *tt__link_to(tt__messages *messages, int peer) {
    tt__link *link = messages->links[peer];
    if (link)
        return link;
    if (peer == messages->config.rank)
        return tt__link_new(messages, peer, NULL);
    if (!messages->config.ring_peer)
        return tt__fail_null(TT_ERR_STATE, "there is no link to rank %d", peer);
    link = tt__link_new(messages, peer, &tt__ring_ops);
    if (!link)
        return NULL;
    messages->ring_links++;
    if (tt__ring_open(link))
        tt__link_end(link, tt_last_status(), "%s", tt_last_error());
    return link;
}

void tt__message_done(tt__messages *messages, tt__message *message, tt_status status) {
    message->phase = TT__PHASE_DONE;
    message->status = status;
    message->done = true;
    messages->open--;
    messages->completed++;
    if (message->pending)
        atomic_fetch_sub_explicit(message->pending, 1, memory_order_release);
}

static void end_all(tt__messages *messages, tt__message_list *list, tt_status status) {
    while (list->first) {
        tt__message *message = list->first;
        tt__list_remove(list, message);
        tt__message_done(messages, message, status);
    }
}

void tt__link_end(tt__link *link, tt_status status, const char *format, ...) {
    char why[sizeof link->why];
    va_list args;
    if (link->ended)
        return;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    memcpy(link->why, why, sizeof why);
    link->ended = true;
    link->status = status;
    link->chunk = NULL;
    link->receiving = NULL;
    link->into = NULL;
    tt__arrival_free(link->messages, link->keeping);
    link->keeping = NULL;
    end_all(link->messages, &link->posted, status);
    end_all(link->messages, &link->arriving, status);
    end_all(link->messages, &link->announced, status);
    end_all(link->messages, &link->sending, status);
    link->ops->close(link);
    tt__log(TT_LOG_DEBUG, "rank %d: the link to rank %d (%s) is over: %s", link->messages->config.rank, link->peer,
            link->where, link->why);
}

static void link_free(tt__link *link) {
    tt__messages *messages = link->messages;
    if (link->ops && !link->ended)
        link->ops->close(link);
    while (link->arrivals)
        tt__arrival_drop(link, &link->arrivals);
    while (link->readies)
        tt__ready_drop(link, &link->readies);
    tt__arrival_free(messages, link->keeping);
    tt__news_free(link);
    tt__bytes_free(&link->out);
    free(link->in);
    free(link);
}

/* ---- progress */

static bool serve(tt__link *link) {
    if (link->ended)
        return false;
    bool any = tt__link_pump(link);
    if (tt__link_wants_write(link))
        any |= tt__link_flush(link);
    if (link->broken && !any && !link->ended)
        tt__link_end(link, TT_ERR_PEER, "%s", link->why);
    return any;
}

bool tt__serve_events(tt__messages *messages, int64_t wait_ms) {
    struct epoll_event events[EVENTS];
    bool any = false;
    int n = epoll_wait(messages->epoll, events, EVENTS, (int)wait_ms);
    for (int i = 0; i < n; i++) {
        tt__link *link = events[i].data.ptr;
        if (link)
            any |= serve(link);
        else
            tt__poke_taken(messages);
    }
    return any;
}

bool tt__serve_rings(tt__messages *messages) {
    bool any = messages->config.ring_peer && tt__rings_look(messages);
    if (messages->ring_links)
        for (tt__link *link = messages->active; link; link = link->next)
            if (!link->tcp)
                any |= serve(link);
    return any;
}

static bool serve_tcp(tt__messages *messages) {
    bool any = false;
    if (messages->tcp_links > LOOK_AT_EACH)
        return tt__serve_events(messages, 0);
    for (tt__link *link = messages->active; link; link = link->next)
        if (link->tcp)
            any |= serve(link);
    return any;
}

bool tt__messages_progress(tt__messages *messages) {
    uint32_t completed = messages->completed;
    bool any = tt__serve_rings(messages);
    if (!messages->tcp_links)
        return any;
    messages->now_ms = tt__now_ms();
    if (!messages->thread_acts) {
        messages->polled_ms = messages->now_ms;
        messages->handed_over = false;
    }
    any |= serve_tcp(messages);
    if (messages->has_thread && messages->now_ms >= messages->beat_due_ms)
        tt__beats(messages, messages->now_ms); /* the thread may not get the lock for long while bytes keep coming */
    if (messages->completed != completed)
        tt__tell_waiters(messages, 0);
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
            tt__poke(messages);
        pthread_mutex_unlock(messages->config.lock);
        tt__sleep_on_links(messages, ms);
        pthread_mutex_lock(messages->config.lock);
        messages->polling = false;
    }
    messages->callers--;
    messages->now_ms = messages->polled_ms = tt__now_ms();
    messages->handed_over = false;
    tt__serve_events(messages, 0);
    tt__serve_rings(messages);
    if (messages->callers || messages->completed != completed)
        tt__tell_waiters(messages, messages->callers);
}

void tt__messages_wake(tt__messages *messages) { tt__tell_waiters(messages, 0); }

bool tt__messages_threaded(const tt__messages *messages) { return messages->has_thread; }

/* ---- the end */

void tt__messages_close(tt__messages *messages, bool quietly) {
    if (!messages)
        return;
    if (!quietly)
        tt__thread_stop(messages);
    if (!quietly && messages->tcp_links)
        tt__say_goodbye(messages);
    for (int r = 0; r < messages->config.size; r++)
        if (messages->links[r])
            link_free(messages->links[r]);
    while (messages->spare) {
        tt__arrival *arrival = messages->spare;
        messages->spare = arrival->next;
        free(arrival);
    }
    if (messages->epoll >= 0)
        close(messages->epoll);
    if (messages->poke >= 0)
        close(messages->poke);
    tt__messages_stop_joining(messages);
    tt__tls_free(messages->tls);
    if (!quietly) { /* in a child it would wait for the parent's threads that sleep on them */
        pthread_cond_destroy(&messages->changed);
        pthread_cond_destroy(&messages->thread_wanted);
    }
    free(messages->discard);
    free(messages->links);
    free(messages);
}
