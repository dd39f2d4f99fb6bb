/* A link to one peer: its life, the end of messages on it, and what the peer sent or announced before it was asked for,
 * in the order of arrival. */
#include "comm/message/message_parts.h"

#include "base/error.h"
#include "base/process/fork.h"
#include "base/text/format.h"
#include "comm/message/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Records of arrivals have one of three sizes. Up to FREE_MAX of them, FREE_BYTES in all, are kept, so that a steady
 * exchange allocates nothing. */
enum { SMALL = 464, MIDDLE = 8 << 10, FREE_MAX = 64, FREE_BYTES = TT__EAGER_WINDOW };

static uint32_t room_for(uint64_t bytes) { return bytes <= SMALL ? SMALL : bytes <= MIDDLE ? MIDDLE : TT__EAGER_MAX; }

tt__arrival *tt__arrival_new(tt__messages *messages, const tt__key *key, uint64_t bytes, uint32_t id) {
    uint32_t room = room_for(id ? 0 : bytes);
    tt__arrival **at = &messages->free_arrivals;
    while (*at && (*at)->room != room)
        at = &(*at)->next;
    tt__arrival *a = *at;
    if (a) {
        *at = a->next;
        messages->free_arrival_count--;
        messages->free_arrival_bytes -= room;
    } else if (!(a = malloc(sizeof *a + room))) {
        return NULL;
    }
    a->next = NULL;
    a->key = *key;
    a->bytes = bytes;
    a->id = id;
    a->room = room;
    return a;
}

void tt__arrival_free(tt__messages *messages, tt__arrival *arrival) {
    if (!arrival)
        return;
    if (messages->free_arrival_count == FREE_MAX || messages->free_arrival_bytes + arrival->room > FREE_BYTES) {
        free(arrival);
        return;
    }
    arrival->next = messages->free_arrivals;
    messages->free_arrivals = arrival;
    messages->free_arrival_count++;
    messages->free_arrival_bytes += arrival->room;
}

void tt__arrivals_free_all(tt__messages *messages) {
    while (messages->free_arrivals) {
        tt__arrival *arrival = messages->free_arrivals;
        messages->free_arrivals = arrival->next;
        free(arrival);
    }
}

/* Report the word of the peer's call to comm. */
static void report_word(tt__messages *messages, const tt__key *key) {
    if (key->seq && messages->config.on_word)
        messages->config.on_word(messages->config.world, key->group, key->seq, key->word);
}

void tt__arrival_keep(tt__link *link, tt__arrival *arrival) {
    report_word(link->messages, &arrival->key);
    *link->arrivals_end = arrival;
    link->arrivals_end = &arrival->next;
    link->arrival_count++;
}

tt__arrival *tt__arrival_take(tt__link *link, tt__arrival **at) {
    tt__arrival *arrival = *at;
    *at = arrival->next;
    if (!arrival->next)
        link->arrivals_end = at;
    link->arrival_count--;
    return arrival;
}

void tt__arrival_drop(tt__link *link, tt__arrival **at) {
    tt__arrival_free(link->messages, tt__arrival_take(link, at));
}

bool tt__ready_keep(tt__link *link, const tt__key *key, uint64_t bytes, uint32_t id) {
    tt__readiness *ready = malloc(sizeof *ready);
    if (!ready)
        return false;
    report_word(link->messages, key);
    *ready = (tt__readiness){.key = *key, .bytes = bytes, .id = id};
    *link->readies_end = ready;
    link->readies_end = &ready->next;
    link->ready_count++;
    return true;
}

void tt__ready_drop(tt__link *link, tt__readiness **at) {
    tt__readiness *ready = *at;
    *at = ready->next;
    if (!ready->next)
        link->readies_end = at;
    link->ready_count--;
    free(ready);
}

void tt__messages_compare(tt__messages *messages, const int *ranks, int count, const tt__key *key) {
    for (int i = 0; i < count; i++) {
        const tt__link *link = messages->links[ranks[i]];
        for (const tt__arrival *a = link ? link->arrivals : NULL; a; a = a->next)
            if (tt__contradicts(&a->key, key))
                report_word(messages, &a->key);
        for (const tt__readiness *r = link ? link->readies : NULL; r; r = r->next)
            if (tt__contradicts(&r->key, key))
                report_word(messages, &r->key);
    }
}

enum { MANY = 64 /* in a world of more ranks the links' buffers are smaller */ };

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

/* Close and free the link. */
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

/* Write the text of a worker, which begins with its name. */
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
