/* Several ranks of the message engine in one process, over sockets, sockets that take few bytes at a time, rings, and
 * sealed sockets, whose records arrive in parts; or apart, for a test that joins them itself. */
#ifndef TESTS_UNIT_MESSAGES_LAB_H
#define TESTS_UNIT_MESSAGES_LAB_H

#include "support/patience.h"

#include "base/machine/clock.h"
#include "comm/message/message_parts.h"
#include "net/secure/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES = 4, ARENA = 8 << 20 };

typedef enum kind { SOCKETS, TINY, RINGS, SEALED, APART } kind;

typedef struct node {
    struct lab *lab;
    int rank;
    tt__messages *messages;
    pthread_mutex_t lock;
    tt__waiting waiting;
    _Atomic int64_t offset_ns; /* of its clock from rank 0's */
    tt__ring_board board;
    unsigned char *arena;
    size_t used;
    int wakes;
} node;

typedef struct lab {
    kind kind;
    int n;
    node nodes[NODES];
} lab;

static inline bool ring_peer(void *world, int rank, int *number, unsigned char **base, size_t *bytes,
                             tt__ring_board **board) {
    node *peer = &((node *)world)->lab->nodes[rank];
    *number = rank;
    *base = peer->arena;
    *bytes = ARENA;
    *board = &peer->board;
    return true;
}

static inline tt_status ring_memory(void *world, size_t bytes, uint64_t *offset) {
    node *self = world;
    *offset = self->used + 128; /* 0 is no ring's place */
    self->used += (bytes + 255) & ~(size_t)127;
    assert_true(self->used + 128 <= ARENA);
    return TT_OK;
}

static inline void wake(void *world, int rank) { ((node *)world)->lab->nodes[rank].wakes++; }

static inline bool call_text(void *world, uint32_t group, uint32_t seq, char *text, size_t size, uint32_t *word) {
    snprintf(text, size, "call %u of group %u on rank %d", seq, group, ((node *)world)->rank);
    *word = 77;
    return seq < 10;
}

static inline void join_by_sockets(lab *lab, int a, int b) {
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    tt__stream streams[2] = {{.fd = ends[0]}, {.fd = ends[1]}};
    for (int i = 0; i < 2 && lab->kind != SOCKETS; i++)
        assert_int_equal(
            setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &(int){lab->kind == TINY ? 2048 : 30000}, sizeof(int)), 0);
    for (int i = 0; i < 2 && lab->kind == SEALED; i++)
        assert_int_equal(tt__seal_new(&streams[i].seal, &(tt__seal_keys){{(uint8_t)(1 + i)}, {(uint8_t)(2 - i)}}),
                         TT_OK);
    assert_int_equal(tt__link_add_tcp(lab->nodes[a].messages, b, streams[0], "socket"), TT_OK);
    assert_int_equal(tt__link_add_tcp(lab->nodes[b].messages, a, streams[1], "socket"), TT_OK);
}

static inline lab *lab_open(kind kind, int n) {
    lab *lab = aligned_alloc(128, (sizeof *lab + 127) & ~(size_t)127);
    assert_non_null(lab);
    memset(lab, 0, sizeof *lab);
    lab->kind = kind;
    lab->n = n;
    for (int r = 0; r < n; r++) {
        node *node = &lab->nodes[r];
        node->lab = lab;
        node->rank = r;
        pthread_mutex_init(&node->lock, NULL);
        tt__messages_config config = {.rank = r,
                                      .size = n,
                                      .heartbeat_ms = CALM_MS,
                                      .lock = &node->lock,
                                      .world = node,
                                      .waiting = &node->waiting,
                                      .offset_ns = &node->offset_ns,
                                      .call_text = call_text};
        if (kind == RINGS) {
            node->arena = aligned_alloc(128, ARENA);
            assert_non_null(node->arena);
            memset(node->arena, 0, ARENA);
            config.ring_peer = ring_peer;
            config.ring_memory = ring_memory;
            config.wake = wake;
        }
        assert_int_equal(tt__messages_new(&node->messages, &config), TT_OK);
    }
    for (int a = 0; a < n && kind != RINGS && kind != APART; a++)
        for (int b = a + 1; b < n; b++)
            join_by_sockets(lab, a, b);
    return lab;
}

static inline void lab_close(lab *lab) {
    for (int r = 0; r < lab->n; r++)
        tt__messages_close(lab->nodes[r].messages, !tt__messages_threaded(lab->nodes[r].messages));
    for (int r = 0; r < lab->n; r++) {
        pthread_mutex_destroy(&lab->nodes[r].lock);
        free(lab->nodes[r].arena);
    }
    free(lab);
}

static inline bool progress_all(lab *lab) {
    bool any = false;
    for (int r = 0; r < lab->n; r++)
        any |= tt__messages_progress(lab->nodes[r].messages);
    return any;
}

static inline void settle(lab *lab) {
    while (progress_all(lab))
        ;
}

static inline void until_done(lab *lab, const tt__message *message) {
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    while (!message->done) {
        progress_all(lab);
        assert_true(tt__left_ms(deadline_ms));
    }
}

static inline void send_it(lab *lab, tt__message *m, int from, int to, tt__key key, const void *data, size_t bytes) {
    *m = (tt__message){.key = key, .peer = to, .data = (void *)(uintptr_t)data, .bytes = bytes};
    tt__message_send(lab->nodes[from].messages, m);
}

static inline void recv_it(lab *lab, tt__message *m, int at, int from, tt__key key, void *data, size_t bytes) {
    *m = (tt__message){.key = key, .peer = from, .data = data, .bytes = bytes};
    tt__message_recv(lab->nodes[at].messages, m);
}

static inline tt__key key_of(uint32_t seq, uint32_t step, uint32_t word) {
    return (tt__key){.group = 1, .seq = seq, .step = step, .word = word};
}

static inline tt__key tag(uint32_t n) { return key_of(0, n, 5); }

static inline tt__key collective(uint32_t seq, uint32_t step) { return key_of(seq, step, 9); }

static inline void fill(unsigned char *data, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + seed * 101);
}

#endif
