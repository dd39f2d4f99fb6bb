#include "comm/message/link.h"

#include "base/error.h"
#include "base/process/fork.h"
#include "base/text/format.h"
#include "comm/message/arrivals.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 64 /* ranks, beyond which the links' buffers are smaller */ };

tt__link *tt__link_new(tt__messages *messages, int peer, const tt__transport_ops *ops) {
    tt__link *link = calloc(1, sizeof *link);
    size_t ahead = messages->config.size > MANY ? TT__READ_AHEAD / 2 : TT__READ_AHEAD;
    size_t room = !ops ? 0 : ops->reads_ahead ? ahead : sizeof(tt__frame);
    unsigned char *in = malloc(room ? room : 1);
    if (!messages->discard)
        messages->discard = malloc(TT__DISCARD);
    if (!link || !in || !messages->discard) {
        free(link);
        free(in);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for the link to rank %d", peer);
    }
    link->messages = messages;
    link->peer = peer;
    link->transport = (tt__transport){.ops = ops, .peer = peer, .stream.fd = -1};
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

static void close_link(tt__link *link) {
    if (link->count)
        --*link->count;
    tt__fork_fd_forget(link->transport.stream.fd);
    link->transport.ops->close(&link->transport);
}

void tt__message_done(tt__messages *messages, tt__message *message, tt_status status) {
    message->state = TT__MESSAGE_DONE;
    message->status = status;
    message->done = true;
    messages->open--;
    messages->completed++;
    if (message->pending)
        atomic_fetch_sub_explicit(message->pending, 1, memory_order_release);
}

static void end_messages(tt__messages *messages, tt__message_list *list, tt_status status) {
    while (list->first) {
        tt__message *message = list->first;
        tt__message_list_remove(list, message);
        tt__message_done(messages, message, status);
    }
}

void tt__packet_is_lost(tt__link *link) {
    const tt__messages *messages = link->messages;
    if (link->packet)
        messages->packet_taker->drop(messages->packet_user, link->packet);
    link->packet = NULL;
}

void tt__link_end(tt__link *link, tt_status status, const char *format, ...) {
    char why[sizeof link->why];
    va_list args;
    if (link->ended)
        return;
    va_start(args, format);
    tt__vformat(why, sizeof why, format, args);
    va_end(args);
    memcpy(link->why, why, sizeof why);
    link->ended = true;
    link->status = status;
    link->chunk = NULL;
    link->receiving = NULL;
    link->into = NULL;
    tt__arrival_free(link->messages, link->keeping);
    link->keeping = NULL;
    tt__packet_is_lost(link);
    end_messages(link->messages, &link->posted, status);
    end_messages(link->messages, &link->arriving, status);
    end_messages(link->messages, &link->announced, status);
    end_messages(link->messages, &link->sending, status);
    close_link(link);
    tt__log(TT_LOG_DEBUG, "%d: the link to %d (%s) is over: %s", link->messages->config.rank, link->peer, link->where,
            link->why);
}

void tt__news_free(tt__received_news *news) {
    while (news) {
        tt__received_news *next = news->next;
        free(news);
        news = next;
    }
}

void tt__link_lose(tt__messages *messages, int peer, const char *why) {
    tt__link *link = messages->links[peer];
    if (link)
        tt__link_end(link, TT_ERR_PEER, "%s", why);
}

/* Close and free it. */
static void link_free(tt__link *link) {
    tt__messages *messages = link->messages;
    if (link->transport.ops && !link->ended)
        close_link(link);
    while (link->arrivals)
        tt__arrival_drop(link, &link->arrivals);
    while (link->readies)
        tt__ready_drop(link, &link->readies);
    tt__arrival_free(messages, link->keeping);
    tt__packet_is_lost(link);
    tt__news_free(link->news);
    tt__bytes_free(&link->out);
    free(link->in);
    free(link);
}

void tt__link_forget(tt__messages *messages, int peer) {
    tt__link *link = messages->links[peer], **at = &messages->active;
    if (!link)
        return;
    while (*at && *at != link)
        at = &(*at)->next;
    if (*at)
        *at = link->next;
    messages->links[peer] = NULL;
    link_free(link);
}

/* Text of a worker, whose name comes first. */
static const char *worker_text(const tt__messages *messages, int id, bool whole, const char *where, char *text) {
    const char *host = NULL, *name = messages->config.peer_name(messages->config.world, id, &host);
    size_t n = (size_t)(name ? snprintf(text, TT__RANK_TEXT_SIZE, "worker %.127s (id %d", name, id)
                             : snprintf(text, TT__RANK_TEXT_SIZE, "the worker with id %d", id));
    if (whole && (host || where))
        n += (size_t)snprintf(text + n, TT__RANK_TEXT_SIZE - n, "%s%s%.64s%s%.79s", name ? ", " : " (",
                              host ? "host " : "", host ? host : "", host && where ? ", " : "", where ? where : "");
    if (name || (whole && (host || where)))
        snprintf(text + n, TT__RANK_TEXT_SIZE - n, ")");
    return text;
}

const char *tt__rank_name(const tt__messages *messages, int rank, char text[TT__RANK_TEXT_SIZE]) {
    if (messages->config.peer_name)
        return worker_text(messages, rank, false, NULL, text);
    snprintf(text, TT__RANK_TEXT_SIZE, "rank %d", rank);
    return text;
}

const char *tt__rank_text(const tt__messages *messages, int rank, const char *where, char text[TT__RANK_TEXT_SIZE]) {
    if (messages->config.peer_name)
        return worker_text(messages, rank, true, where, text);
    const char *host = messages->config.hostnames ? messages->config.hostnames[rank] : NULL;
    size_t n = (size_t)snprintf(text, TT__RANK_TEXT_SIZE, "rank %d", rank);
    if (host || where)
        snprintf(text + n, TT__RANK_TEXT_SIZE - n, " (%s%s%s%s)", host ? "host " : "", host ? host : "",
                 host && where ? ", " : "", where ? where : "");
    return text;
}
