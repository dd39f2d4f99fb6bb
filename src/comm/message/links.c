/* Links to peers, made when they are needed; epoll over the TCP links, and an eventfd that wakes its sleepers. */
#include "comm/message/message_parts.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/fork.h"
#include "net/net.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

tt_status tt__poller_open(tt__messages *messages) {
    if (messages->epoll >= 0)
        return TT_OK;
    messages->epoll = tt__fd(epoll_create1(EPOLL_CLOEXEC));
    messages->wakeup = tt__fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    struct epoll_event event = {.events = EPOLLIN};
    if (messages->epoll < 0 || messages->wakeup < 0 ||
        epoll_ctl(messages->epoll, EPOLL_CTL_ADD, messages->wakeup, &event))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch connections (epoll)");
    return TT_OK;
}

void tt__poller_close(tt__messages *messages) {
    if (messages->epoll >= 0)
        close(messages->epoll);
    if (messages->wakeup >= 0)
        close(messages->wakeup);
}

static tt_status poller_add(tt__link *link) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (epoll_ctl(link->messages->epoll, EPOLL_CTL_ADD, link->transport.stream.fd, &event))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch the connection to rank %d", link->peer);
    return TT_OK;
}

tt_status tt__poller_watch(tt__messages *messages, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = messages};
    if (epoll_ctl(messages->epoll, EPOLL_CTL_ADD, fd, &event))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch for new connections (epoll)");
    return TT_OK;
}

void tt__poller_watch_writes(tt__link *link, bool wanted) {
    if (!link->tcp || link->ended || wanted == link->wants_write || link->messages->epoll < 0)
        return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = link};
    if (!epoll_ctl(link->messages->epoll, EPOLL_CTL_MOD, link->transport.stream.fd, &event))
        link->wants_write = wanted;
}

void tt__poller_wake(tt__messages *messages) {
    ssize_t ignored = write(messages->wakeup, &(uint64_t){1}, sizeof(uint64_t));
    (void)ignored; /* a full counter wakes as well */
}

void tt__poller_woken(tt__messages *messages) {
    uint64_t count;
    ssize_t ignored = read(messages->wakeup, &count, sizeof count);
    (void)ignored; /* another thread may have read it */
}

void tt__poller_sleep(tt__messages *messages, int64_t ms) {
    struct epoll_event event;
    epoll_wait(messages->epoll, &event, 1, ms > INT32_MAX ? INT32_MAX : ms < 0 ? 0 : (int)ms);
}

/* Make the ring to link->peer, a rank of this host, in this rank's memory, and post it on the peer's ring board. */
static tt_status open_ring(tt__link *link) {
    tt__messages *messages = link->messages;
    const tt__messages_config *config = &messages->config;
    unsigned char *base, *own_base;
    tt__ring_board *board, *own_board;
    int number, own_number;
    size_t bytes;
    uint64_t offset;
    if (!config->ring_peer(config->world, link->peer, &number, &base, &bytes, &board) ||
        !config->ring_peer(config->world, config->rank, &own_number, &own_base, &bytes, &own_board))
        return tt__fail(TT_ERR_STATE, "there is no link to rank %d", link->peer);
    TT__TRY(config->ring_memory(config->world, sizeof(tt__ring), &offset));
    link->transport.ring_out = (tt__ring *)(void *)(own_base + offset);
    atomic_store_explicit(&own_board->at[number], offset, memory_order_release);
    atomic_fetch_or_explicit(&board->made, UINT64_C(1) << own_number, memory_order_release);
    return TT_OK;
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
    link->count = &messages->ring_links;
    messages->ring_links++;
    link->transport.wake = messages->config.wake;
    link->transport.world = messages->config.world;
    if (open_ring(link))
        tt__link_end(link, tt_last_status(), "%s", tt_last_error());
    return link;
}

/* Attach the ring that rank `peer` has made to this rank. */
static void attach_ring(tt__messages *messages, int peer, const unsigned char *base, size_t bytes,
                        const tt__ring_board *board, int own_number) {
    tt__link *link = tt__link_to(messages, peer);
    uint64_t at = atomic_load_explicit(&board->at[own_number], memory_order_acquire);
    if (!link || link->ended)
        return;
    if (at % _Alignof(tt__ring) || at > bytes || bytes - at < sizeof(tt__ring))
        tt__link_end(link, TT_ERR_PROTOCOL, "its ring lies outside of its memory");
    else
        link->transport.ring_in = (tt__ring *)(void *)(uintptr_t)(base + at);
}

bool tt__links_attach_rings(tt__messages *messages) {
    const tt__messages_config *config = &messages->config;
    unsigned char *base;
    tt__ring_board *board;
    int number;
    size_t bytes;
    if (!messages->board &&
        !config->ring_peer(config->world, config->rank, &messages->number, &base, &bytes, &messages->board))
        return false;
    if (!atomic_load_explicit(&messages->board->made, memory_order_relaxed))
        return false;
    uint64_t made = atomic_exchange_explicit(&messages->board->made, 0, memory_order_acq_rel);
    for (int r = 0; r < config->size && made; r++)
        if (config->ring_peer(config->world, r, &number, &base, &bytes, &board) && made >> number & 1) {
            attach_ring(messages, r, base, bytes, board, messages->number);
            made &= ~(UINT64_C(1) << number);
        }
    return true;
}

const char *tt__messages_wire(const tt__messages *messages) { return messages->wire ? messages->wire : "none"; }

tt_status tt__link_add_tcp(tt__messages *messages, int peer, tt__stream stream, const char *where) {
    tt_status status = tt__poller_open(messages);
    const tt__transport_ops *ops = stream.seal ? &tt__sealed_ops : stream.ssl ? &tt__tls_ops : &tt__tcp_ops;
    tt__link *link = status ? NULL : tt__link_new(messages, peer, ops);
    if (!link) {
        tt__stream_close(&stream);
        return tt_last_status();
    }
    messages->wire = stream.ssl ? "tls" : stream.seal ? "sealed" : "plain";
    link->tcp = true;
    link->transport.stream = stream;
    tt__stream_borrow(&link->transport.stream);
    link->count = &messages->tcp_links;
    messages->tcp_links++;
    link->received_ms = tt__now_ms();
    snprintf(link->where, sizeof link->where, "%s", where);
    tt__net_no_delay(stream.fd);
    tt__fork_fd_drop(stream.fd);
    return poller_add(link);
}
