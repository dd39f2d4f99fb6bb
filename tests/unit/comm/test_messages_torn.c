/* A connection that ends after any number of bytes, between frames and inside them, and a peer that stops reading. */
#include "messages_lab.h"

#include "comm/message/message_parts.h"

#include <netinet/in.h>

enum { SMALL = 100, LARGE = 30000, SENDS = 5, PIECE = 4096 };
static unsigned char source[SENDS][LARGE], target[SENDS][LARGE];

/* Rank 0's messages, and which of their receives rank 1 posts before anything has come. */
static const struct {
    size_t bytes;
    bool collective, early;
} PLAN[SENDS] = {
    {SMALL, false, true}, {LARGE, false, false}, {LARGE, true, true}, {0, false, false}, {LARGE, false, true}};

/* Two ranks, joined by a wire that the test moves the bytes of. */
typedef struct wire {
    lab *lab;
    int ends[2]; /* the test's: to rank 0, to rank 1 */
    size_t moved[2];
} wire;

static int link_by(lab *lab, int at, int to) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(tt__link_add_tcp(lab->nodes[at].messages, to, (tt__stream){.fd = pair[0]}, "wire"), TT_OK);
    return pair[1];
}

static wire wire_open(void) {
    wire w = {.lab = lab_open(APART, 2)};
    w.ends[0] = link_by(w.lab, 0, 1);
    w.ends[1] = link_by(w.lab, 1, 0);
    return w;
}

/* Move what rank `from` has written, `most` bytes of it. */
static size_t carry(wire *w, int from, size_t most) {
    unsigned char bytes[PIECE];
    ssize_t n = most ? read(w->ends[from], bytes, most < sizeof bytes ? most : sizeof bytes) : 0;
    if (n <= 0)
        return 0;
    assert_int_equal(write(w->ends[!from], bytes, (size_t)n), n);
    w->moved[from] += (size_t)n;
    return (size_t)n;
}

/* Until nothing moves any more, or rank 0 has been heard to byte `cut`. */
static void converse(wire *w, size_t cut) {
    bool any = true;
    while (any && w->moved[0] < cut) {
        any = carry(w, 1, PIECE);
        any |= carry(w, 0, cut - w->moved[0]) > 0;
        any |= progress_all(w->lab);
    }
    settle(w->lab);
}

static tt__key key_of_plan(int i) { return PLAN[i].collective ? collective(7, (uint32_t)i) : tag((uint32_t)i); }

/* Ends it after `cut` bytes from rank 0 to rank 1; how many there would have been. */
static size_t one_cut(size_t cut) {
    wire w = wire_open();
    tt__message s[SENDS], r[SENDS];
    memset(target, 0, sizeof target);
    for (int early = 1; early >= 0; early--)
        for (int i = 0; i < SENDS; i++)
            if (PLAN[i].early == early)
                recv_it(w.lab, &r[i], 1, 0, key_of_plan(i), target[i], PLAN[i].bytes);
            else if (early)
                send_it(w.lab, &s[i], 0, 1, key_of_plan(i), source[i], PLAN[i].bytes);
    converse(&w, cut);
    for (int i = 0; i < SENDS; i++)
        if (PLAN[i].early)
            send_it(w.lab, &s[i], 0, 1, key_of_plan(i), source[i], PLAN[i].bytes);
    converse(&w, cut);
    close(w.ends[0]);
    close(w.ends[1]);
    settle(w.lab);
    for (int i = 0; i < SENDS; i++) {
        assert_true(s[i].done && r[i].done);
        assert_true(r[i].status == TT_OK || r[i].status == TT_ERR_PEER);
        if (r[i].status == TT_OK)
            assert_memory_equal(source[i], target[i], PLAN[i].bytes);
        assert_true(cut < SIZE_MAX || (!r[i].status && !s[i].status));
    }
    assert_int_equal(w.lab->nodes[0].messages->open, 0);
    assert_int_equal(w.lab->nodes[1].messages->open, 0);
    assert_int_equal(tt__link_check(w.lab->nodes[1].messages, 0), TT_ERR_PEER);
    lab_close(w.lab);
    return w.moved[0];
}

static void any_byte_may_be_the_last(void **state) {
    (void)state;
    for (int i = 0; i < SENDS; i++)
        fill(source[i], LARGE, (unsigned)i);
    size_t all = one_cut(SIZE_MAX);
    assert_true(all > 3 * LARGE);
    for (size_t cut = 0; cut < all; cut += cut < 1000 || all - cut < 300 ? 1 : 211)
        one_cut(cut);
}

/* It goes on to say that it lives: nothing ends, what is kept for it stays within bounds, and all goes on when it reads
 * again. */
static void a_peer_that_reads_nothing(void **state) {
    (void)state;
    enum { COUNT = 400 };
    static tt__message s[COUNT];
    wire w = wire_open();
    tt__message r;
    tt__messages *sender = w.lab->nodes[0].messages;
    const tt__link *link = sender->links[1];
    int done = 0;
    fill(source[0], 8000, 3);
    for (int i = 0; i < COUNT; i++)
        send_it(w.lab, &s[i], 0, 1, tag(1), source[0], 8000);
    for (int beat = 0; beat < 200; beat++) {
        w.lab->nodes[1].messages->beat_due_ms = 0;
        tt__beats_send(w.lab->nodes[1].messages, tt__now_ms());
        settle(w.lab);
        while (carry(&w, 1, PIECE))
            settle(w.lab);
    }
    assert_true(link->beat.sent_ns > 0);
    assert_int_equal(tt__link_check(sender, 1), TT_OK);
    for (int i = 0; i < COUNT; i++)
        done += s[i].done;
    assert_int_equal(done, TT__EAGER_WINDOW / (8000 + TT__EAGER_COST));
    assert_true(link->out.size < TT__EAGER_WINDOW + COUNT * sizeof(tt__frame) + 200 * 2 * sizeof(tt__beat));
    for (int i = 0; i < COUNT; i++) {
        recv_it(w.lab, &r, 1, 0, tag(1), target[0], 8000);
        while (!r.done)
            converse(&w, SIZE_MAX);
        assert_int_equal(r.status, TT_OK);
        assert_memory_equal(source[0], target[0], 8000);
    }
    close(w.ends[0]);
    close(w.ends[1]);
    lab_close(w.lab);
}

/* Make a TCP connection of this machine with itself. */
static void tcp_pair(int pair[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, size) | listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    assert_int_equal(connect(pair[0], (struct sockaddr *)&at, size), 0);
    pair[1] = accept(listener, NULL, NULL);
    assert_true(pair[1] >= 0);
    close(listener);
}

static void *leave(void *messages) {
    tt__messages_close(messages, false);
    return NULL;
}

/* Bytes that cross the goodbye of a rank don't reset its connection: what it said last, on its way yet, arrives. */
static void a_leaving_rank_hears_its_peers_out(void **state) {
    (void)state;
    lab *lab = lab_open(APART, 2);
    int pair[2];
    pthread_t leaving;
    tt__frame frame = {0};
    tcp_pair(pair);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    assert_int_equal(tt__link_add_tcp(lab->nodes[0].messages, 1, (tt__stream){.fd = pair[0]}, "tcp"), TT_OK);
    assert_int_equal(pthread_create(&leaving, NULL, leave, lab->nodes[0].messages), 0);
    assert_int_equal(recv(pair[1], &frame, sizeof frame, MSG_WAITALL), sizeof frame);
    assert_int_equal(frame.type, TT__FRAME_GOODBYE);
    for (int i = 0; i < 3; i++)
        assert_int_equal(send(pair[1], "late", 4, MSG_NOSIGNAL), 4);
    assert_int_equal(recv(pair[1], &frame, sizeof frame, 0), 0);
    close(pair[1]);
    assert_int_equal(pthread_join(leaving, NULL), 0);
    assert_int_equal(tt__messages_new(&lab->nodes[0].messages, &lab->nodes[1].messages->config), TT_OK);
    lab_close(lab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_byte_may_be_the_last),
        cmocka_unit_test(a_peer_that_reads_nothing),
        cmocka_unit_test(a_leaving_rank_hears_its_peers_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
