/* Any bytes over a link whose other end the fuzzer plays. The engine has receives and sends of all kinds posted, and
 * cancels some of them. Bytes end at most the link; every message ends exactly once, and nothing is written outside
 * a message's buffer. */
#include "comm/message/message_parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { POSTED = 8, BUFFER = 70000 };

static const uint8_t *input;
static size_t input_left;

static ssize_t feed(tt__transport *transport, const struct iovec *parts, int count) {
    (void)transport;
    ssize_t total = 0;
    for (int i = 0; i < count && input_left; i++) {
        size_t n = parts[i].iov_len < input_left ? parts[i].iov_len : input_left;
        memcpy(parts[i].iov_base, input, n);
        input += n;
        input_left -= n;
        total += (ssize_t)n;
    }
    return total;
}

/* Takes an odd part of what it is given, at times nothing. */
static ssize_t swallow(tt__transport *transport, const struct iovec *parts, int count) {
    static unsigned turn;
    (void)transport;
    (void)count;
    return ++turn % 5 == 0 ? 0 : (ssize_t)(parts->iov_len - parts->iov_len / 3);
}

static void end(tt__transport *transport) { (void)transport; }

static const tt__transport_ops PLAYED[2] = {{true, swallow, feed, end}, {false, swallow, feed, end}};

static void post(tt__messages *messages, tt__message *m, unsigned char *data, int i) {
    static const size_t sizes[] = {0, 4, TT__EAGER_MAX, TT__EAGER_MAX + 1, BUFFER};
    bool any = i == 3, send = i % 2;
    *m = (tt__message){.key = {.group = 1, .seq = i < 4 ? 0 : (uint32_t)i / 2, .step = (uint32_t)i / 4, .word = 1},
                       .bytes = sizes[i % 5]};
    m->peer = any && !send ? TT_ANY_SOURCE : 1;
    m->data = data;
    if (send)
        tt__message_send(messages, m);
    else
        tt__message_recv(messages, m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char buffers[POSTED][BUFFER];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    tt__messages *messages;
    tt__message posted[POSTED];
    if (!size || tt__messages_new(&messages, &(tt__messages_config){.size = 2, .heartbeat_ms = 5000, .lock = &lock}))
        return 0;
    tt__link *link = tt__link_new(messages, 1, &PLAYED[*data & 1]);
    if (!link)
        abort();
    link->eager_out = 1 << 16; /* so that some credit may come back */
    input = data + 1;
    input_left = 0;
    for (int i = 0; i < POSTED; i++)
        post(messages, &posted[i], buffers[i], i);
    int taken_back = *data >> 1 & 7;
    for (size_t left = size - 1, n; left && !link->ended; left -= n) {
        n = left < 200 || *data & 128 ? left : 200;
        input_left = n;
        while (input_left && tt__link_read(link))
            tt__link_flush(link);
        tt__message_cancel(messages, &posted[taken_back], TT_ERR_ABORTED);
        taken_back = (taken_back + 1) % POSTED;
        if (input_left)
            break;
    }
    tt__link_end(link, TT_ERR_PEER, "the input is over");
    for (int i = 0; i < POSTED; i++) {
        tt__message_cancel(messages, &posted[i], TT_ERR_ABORTED);
        if (!posted[i].done)
            abort();
    }
    if (messages->open)
        abort();
    tt__messages_close(messages, true);
    return 0;
}
