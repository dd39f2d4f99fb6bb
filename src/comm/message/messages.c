/* Making and closing the message engine. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "base/process/waits.h"
#include "comm/message/joining/joining.h"
#include "comm/message/message_parts.h"
#include "net/net.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { LEAVE_MS = 500 }; /* the last bytes must reach the peers within this time */

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
    messages->epoll = messages->wakeup = messages->listener = -1;
    tt__cond_init(&messages->changed);
    tt__cond_init(&messages->thread_wanted);
    *out = messages;
    return TT_OK;
}

tt_status tt__messages_watch(tt__messages *messages, int fd, bool (*serve)(void *user), void *user) {
    TT__TRY(tt__poller_open(messages));
    messages->serve_watched = serve;
    messages->watched_user = user;
    TT__TRY(tt__poller_watch(messages, fd));
    return tt__messages_thread_start(messages);
}

/* ---- the end */

/* Write out what waits to be sent, then close the sending direction. */
static void end_sending(tt__link *link, int64_t deadline_ms) {
    int fd = link->transport.stream.fd;
    while (!link->ended && tt__link_wants_write(link) && tt__left_ms(deadline_ms)) {
        tt__link_flush(link);
        tt__link_read(link);
        tt__sleep_ms(1);
    }
    if (!link->ended)
        shutdown(fd, SHUT_WR);
}

/* Read and drop what still comes until the peer, having read our goodbye, closes the connection. Closing a socket with
 * bytes unread resets the connection, which would discard what is on its way to the peer. */
static void wait_for_end(const tt__link *link, int64_t deadline_ms) {
    struct pollfd end = {.fd = link->transport.stream.fd, .events = POLLIN};
    ssize_t n = 1;
    while (n && tt__left_ms(deadline_ms)) {
        n = recv(end.fd, link->messages->discard, TT__DISCARD, MSG_DONTWAIT);
        if (n < 0 && !tt__net_would_block(errno))
            return;
        if (n < 0)
            poll(&end, 1, tt__left_ms(deadline_ms));
    }
}

/* Say goodbye to all peers, and wait until they have the goodbye and all that was sent before. */
static void say_goodbye(tt__messages *messages) {
    int64_t deadline_ms = tt__deadline_ms(LEAVE_MS);
    for (tt__link *link = messages->active; link; link = link->next) {
        tt__frame frame = {.type = TT__FRAME_GOODBYE};
        if (link->tcp && !link->ended) {
            tt__send_frame(link, &frame, NULL, 0);
            tt__link_flush(link);
        }
    }
    for (tt__link *link = messages->active; link; link = link->next)
        if (link->tcp)
            end_sending(link, deadline_ms);
    for (tt__link *link = messages->active; link; link = link->next)
        if (link->tcp && !link->ended)
            wait_for_end(link, deadline_ms);
}

void tt__messages_close(tt__messages *messages, bool quietly) {
    if (!messages)
        return;
    if (!quietly)
        tt__messages_thread_stop(messages);
    if (!quietly && messages->tcp_links)
        say_goodbye(messages);
    while (messages->active)
        tt__link_forget(messages, messages->active->peer);
    tt__link_forget(messages, messages->config.rank);
    tt__arrivals_free_all(messages);
    tt__poller_close(messages);
    tt__messages_stop_joining(messages);
    tt__tls_free(messages->tls);
    if (!quietly) { /* in a forked child it would wait for threads of the parent */
        pthread_cond_destroy(&messages->changed);
        pthread_cond_destroy(&messages->thread_wanted);
    }
    free(messages->discard);
    free(messages->links);
    free(messages);
}
