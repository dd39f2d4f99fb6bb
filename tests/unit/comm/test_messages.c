/* The message engine, moved by hand. */
#include "messages_lab.h"
#include "support/storm.h"

static const size_t SIZES[] = {0, 1, 8, 1000, TT__EAGER_MAX, TT__EAGER_MAX + 1, 300000, (2 << 20) + 3};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES, LARGEST = (2 << 20) + 3 };
static unsigned char source[LARGEST], target[LARGEST];

static const kind KINDS[] = {SOCKETS, TINY, RINGS, SEALED};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

static void one_message(kind kind, tt__key key, size_t bytes, bool receive_first, bool any) {
    lab *lab = lab_open(kind, 2);
    tt__message s, r;
    fill(source, bytes, (unsigned)bytes);
    memset(target, 0, bytes);
    if (receive_first) {
        recv_it(lab, &r, 1, any ? TT_ANY_SOURCE : 0, key, target, bytes);
        settle(lab);
    }
    send_it(lab, &s, 0, 1, key, source, bytes);
    if (!receive_first) {
        settle(lab);
        assert_int_equal(s.done, bytes <= TT__EAGER_MAX);
        recv_it(lab, &r, 1, any ? TT_ANY_SOURCE : 0, key, target, bytes);
    }
    until_done(lab, &r);
    until_done(lab, &s);
    assert_int_equal(r.status, TT_OK);
    assert_int_equal(s.status, TT_OK);
    assert_int_equal(r.source, 0);
    assert_memory_equal(source, target, bytes);
    settle(lab);
    assert_int_equal(lab->nodes[0].messages->open, 0);
    assert_int_equal(lab->nodes[1].messages->open, 0);
    lab_close(lab);
}

static void sizes_both_ways_round(void **state) {
    (void)state;
    for (int k = 0; k < KIND_COUNT; k++)
        for (int i = 0; i < SIZE_COUNT; i++)
            for (int first = 0; first < 2; first++) {
                one_message(KINDS[k], tag(3), SIZES[i], first, false);
                one_message(KINDS[k], tag(3), SIZES[i], first, true);
                one_message(KINDS[k], collective(4, 2), SIZES[i], first, false);
            }
}

static void messages_of_a_tag_keep_their_order(void **state) {
    (void)state;
    enum { COUNT = 60 };
    static unsigned char in[COUNT][20000], out[COUNT][20000];
    for (int k = 0; k < KIND_COUNT; k++) {
        lab *lab = lab_open(KINDS[k], 2);
        tt__message s[COUNT], r[COUNT];
        for (int i = 0; i < COUNT; i++) {
            size_t bytes = i % 3 ? 40 : sizeof *out;
            fill(out[i], bytes, (unsigned)i);
            send_it(lab, &s[i], 0, 1, tag(1), out[i], bytes);
            if (i % 4 == 0)
                progress_all(lab);
        }
        for (int i = 0; i < COUNT; i++)
            recv_it(lab, &r[i], 1, i % 5 ? 0 : TT_ANY_SOURCE, tag(1), in[i], i % 3 ? 40 : sizeof *in);
        for (int i = 0; i < COUNT; i++) {
            until_done(lab, &r[i]);
            assert_int_equal(r[i].status, TT_OK);
            assert_memory_equal(in[i], out[i], i % 3 ? 40 : sizeof *in);
            until_done(lab, &s[i]);
        }
        lab_close(lab);
    }
}

/* Without receives the sender goes on until the window is used up; then its buffers stay its own, and everything
 * still arrives. */
static void the_window_bounds_what_is_kept(void **state) {
    (void)state;
    enum { COUNT = 400, BYTES = 8192 };
    static unsigned char out[COUNT][BYTES], in[BYTES];
    for (int k = 0; k < KIND_COUNT; k++) {
        lab *lab = lab_open(KINDS[k], 2);
        static tt__message s[COUNT];
        tt__message r, late, other;
        int done = 0;
        unsigned char small[4] = "abc", got[4];
        for (int i = 0; i < COUNT; i++) {
            fill(out[i], BYTES, (unsigned)i);
            send_it(lab, &s[i], 0, 1, tag(1), out[i], BYTES);
        }
        settle(lab);
        for (int i = 0; i < COUNT; i++)
            done += s[i].done;
        assert_int_equal(done, TT__EAGER_WINDOW / (BYTES + TT__EAGER_COST));
        assert_true(lab->nodes[1].messages->links[0]->eager_in <= TT__EAGER_WINDOW);
        /* A message that is wanted passes those that are not. */
        send_it(lab, &late, 0, 1, tag(2), small, sizeof small);
        recv_it(lab, &other, 1, 0, tag(2), got, sizeof got);
        until_done(lab, &other);
        assert_string_equal((char *)got, "abc");
        for (int i = 0; i < COUNT; i++) {
            recv_it(lab, &r, 1, 0, tag(1), in, BYTES);
            until_done(lab, &r);
            assert_memory_equal(in, out[i], BYTES);
            until_done(lab, &s[i]);
        }
        settle(lab);
        assert_true(lab->nodes[0].messages->links[1]->eager_out <= TT__EAGER_WINDOW / 2);
        lab_close(lab);
    }
}

/* Messages that are never received take nothing of the window, whether they come before or after their group has
 * ended. */
static void a_group_that_ended_keeps_no_window(void **state) {
    (void)state;
    enum { COUNT = 4 * TT__EAGER_WINDOW / TT__EAGER_MAX };
    for (int k = 0; k < KIND_COUNT; k++) {
        lab *lab = lab_open(KINDS[k], 2);
        tt__message s, large, r;
        for (int i = 0; i < COUNT; i++) {
            send_it(lab, &s, 0, 1, tag(1), source, TT__EAGER_MAX);
            assert_true(s.done); /* it went at once */
            settle(lab);
            if (i == 10)
                tt__messages_forget(lab->nodes[1].messages, 1);
        }
        assert_true(lab->nodes[0].messages->links[1]->eager_out <= TT__EAGER_WINDOW / 2);
        send_it(lab, &large, 0, 1, tag(2), source, LARGEST);
        settle(lab);
        assert_int_equal(lab->nodes[1].messages->links[0]->arrival_count, 0);
        tt__message_cancel(lab->nodes[0].messages, &large, TT_ERR_PEER);
        /* A later group of the same name. */
        tt__messages_expect(lab->nodes[1].messages, 1);
        send_it(lab, &s, 0, 1, tag(1), "abc", 4);
        settle(lab);
        recv_it(lab, &r, 1, 0, tag(1), target, 4);
        until_done(lab, &r);
        assert_int_equal(r.status, TT_OK);
        lab_close(lab);
    }
}

/* Of messages with one key each gets the receive that was posted in its turn, whether from this source or any, told
 * early or not. */
static void in_turn(kind kind, unsigned variant) {
    enum { COUNT = 24 };
    static unsigned char in[COUNT][40000], out[COUNT][40000];
    lab *lab = lab_open(kind, 2);
    tt__message s[COUNT], r[COUNT];
    for (unsigned i = 0, sent = 0, posted = 0; i < 2 * COUNT; i++) {
        bool receive = sent == COUNT || (posted < COUNT && (i * 7 + variant) % 5 < variant % 4 + 1);
        unsigned n = receive ? posted++ : sent++;
        size_t bytes = (n + variant) % 3 ? 40000 : 400;
        fill(out[n], bytes, n);
        if (receive)
            recv_it(lab, &r[n], 1, (n * 5 + variant) % 4 ? 0 : TT_ANY_SOURCE, tag(1), in[n], bytes);
        else
            send_it(lab, &s[n], 0, 1, tag(1), out[n], bytes);
        for (unsigned steps = (i + variant) % 3; steps; steps--)
            tt__messages_progress(lab->nodes[(steps + variant) % 2].messages);
    }
    for (int i = 0; i < COUNT; i++) {
        until_done(lab, &r[i]);
        until_done(lab, &s[i]);
        assert_int_equal(r[i].status, TT_OK);
        assert_memory_equal(in[i], out[i], r[i].bytes);
    }
    lab_close(lab);
}

static void any_source_takes_its_turn(void **state) {
    (void)state;
    for (int k = 0; k < KIND_COUNT; k++)
        for (unsigned variant = 0; variant < (getenv("TT_SANITIZED") ? 12u : 60u); variant++)
            in_turn(KINDS[k], variant);
}

/* A receiver that is there first costs the sender no announcement. */
static void whoever_waits_is_sent_to_at_once(void **state) {
    (void)state;
    for (int k = 0; k < KIND_COUNT; k += 2) {
        lab *lab = lab_open(KINDS[k], 2);
        tt__message s, r;
        fill(source, 100000, 5);
        recv_it(lab, &r, 1, 0, tag(1), target, 100000);
        settle(lab);
        send_it(lab, &s, 0, 1, tag(1), source, 100000);
        while (tt__messages_progress(lab->nodes[1].messages)) /* only the receiver moves */
            ;
        assert_true(r.done);
        assert_int_equal(r.source, 0);
        assert_memory_equal(source, target, 100000);
        until_done(lab, &s);
        lab_close(lab);
    }
}

static void messages_to_itself(void **state) {
    (void)state;
    lab *lab = lab_open(SOCKETS, 2);
    tt__message s, r;
    for (int i = 0; i < SIZE_COUNT; i++)
        for (int first = 0; first < 2; first++) {
            fill(source, SIZES[i], 3);
            memset(target, 0, SIZES[i]);
            if (first)
                recv_it(lab, &r, 1, i % 2 ? TT_ANY_SOURCE : 1, tag(1), target, SIZES[i]);
            send_it(lab, &s, 1, 1, tag(1), source, SIZES[i]);
            if (!first)
                recv_it(lab, &r, 1, i % 2 ? TT_ANY_SOURCE : 1, tag(1), target, SIZES[i]);
            assert_true(s.done && r.done);
            assert_int_equal(r.status, TT_OK);
            assert_int_equal(r.source, 1);
            assert_memory_equal(source, target, SIZES[i]);
        }
    send_it(lab, &s, 1, 1, tag(1), source, LARGEST);
    tt__message_cancel(lab->nodes[1].messages, &s, TT_ERR_ABORTED);
    assert_int_equal(s.status, TT_ERR_ABORTED);
    send_it(lab, &s, 1, 1, tag(1), source, LARGEST);
    recv_it(lab, &r, 1, 1, tag(1), target, 4);
    assert_int_equal(s.status, TT_ERR_MISMATCH);
    assert_int_equal(r.status, TT_ERR_MISMATCH);
    lab_close(lab);
}

typedef struct mismatch {
    tt__key sent, received;
    size_t send_bytes, recv_bytes;
} mismatch;

static void one_mismatch(kind kind, const mismatch *c, bool receive_first) {
    lab *lab = lab_open(kind, 2);
    tt__message s, r;
    if (receive_first) {
        recv_it(lab, &r, 1, 0, c->received, target, c->recv_bytes);
        settle(lab);
    }
    send_it(lab, &s, 0, 1, c->sent, source, c->send_bytes);
    settle(lab);
    if (!receive_first)
        recv_it(lab, &r, 1, 0, c->received, target, c->recv_bytes);
    until_done(lab, &r);
    assert_int_equal(r.status, TT_ERR_MISMATCH);
    assert_int_equal(r.got, c->send_bytes);
    assert_int_equal(r.got_word, c->sent.word);
    assert_int_equal(r.source, 0);
    until_done(lab, &s);
    if (c->send_bytes > TT__EAGER_MAX) {
        assert_int_equal(s.status, TT_ERR_MISMATCH);
        assert_int_equal(s.got, c->recv_bytes);
        assert_int_equal(s.got_word, c->received.word);
    }
    /* The link lives on. */
    recv_it(lab, &r, 1, 0, tag(50), target, 3);
    send_it(lab, &s, 0, 1, tag(50), "xy", 3);
    until_done(lab, &r);
    assert_int_equal(r.status, TT_OK);
    lab_close(lab);
}

static void mismatches_are_told_to_both(void **state) {
    (void)state;
    const tt__key call = collective(3, 1), other = key_of(3, 1, 10), other_step = key_of(3, 8, 10),
                  typed = key_of(0, 2, 6), plain = key_of(0, 2, 5);
    const mismatch cases[] = {{call, other, 8, 8},
                              {call, other, 100000, 100000},
                              {call, call, 8, 16},
                              {call, call, 100000, 100001},
                              {call, call, 8, 100000},
                              {call, call, 100000, 8},
                              {call, other_step, 8, 8},
                              {call, other_step, 100000, 100000},
                              {plain, typed, 8, 8},
                              {plain, typed, 100000, 100000},
                              {plain, plain, 100000, TT__EAGER_MAX + 1},
                              {plain, plain, 100000, 8}};
    for (int k = 0; k < KIND_COUNT; k++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int first = 0; first < 2; first++)
                one_mismatch(KINDS[k], &cases[i], first);
}

/* Every phase that a message can be in when it is taken back; afterwards the link works as before. */
static void messages_are_taken_back(void **state) {
    (void)state;
    for (int k = 0; k < KIND_COUNT; k++)
        for (int steps = 0; steps < 12; steps++)
            for (int who = 0; who < 4; who++) {
                lab *lab = lab_open(KINDS[k], 2);
                tt__message s, r;
                tt__key key = who & 1 ? tag(1) : collective(5, 1);
                recv_it(lab, &r, 1, 0, key, target, LARGEST);
                send_it(lab, &s, 0, 1, key, source, LARGEST);
                for (int i = 0; i < steps; i++)
                    tt__messages_progress(lab->nodes[i % 2].messages);
                tt__messages *messages = lab->nodes[who < 2].messages;
                tt__message *back = who < 2 ? &r : &s, *left = who < 2 ? &s : &r;
                bool was_done = back->done;
                tt__message_cancel(messages, back, TT_ERR_TIMEOUT);
                assert_true(back->done);
                assert_int_equal(back->status, was_done ? TT_OK : TT_ERR_TIMEOUT);
                settle(lab);
                if (!left->done) /* a send or receive that never knew of the other */
                    tt__message_cancel(lab->nodes[who >= 2].messages, left, TT_ERR_ABORTED);
                assert_true(left->status == TT_OK || left->status == TT_ERR_ABORTED);
                fill(source, 70000, (unsigned)steps);
                recv_it(lab, &r, 1, 0, tag(9), target, 70000);
                send_it(lab, &s, 0, 1, tag(9), source, 70000);
                until_done(lab, &r);
                until_done(lab, &s);
                assert_int_equal(r.status, TT_OK);
                assert_memory_equal(source, target, 70000);
                lab_close(lab);
            }
}

/* What nobody wants any more is dropped from two links in turn, though of neither a whole record is there. */
static void two_links_drop_at_once(void **state) {
    (void)state;
    for (int k = 0; k < KIND_COUNT; k++) {
        lab *lab = lab_open(KINDS[k], 3);
        tt__message s[2], r[2];
        fill(source, LARGEST, 1);
        for (int i = 0; i < 2; i++) {
            recv_it(lab, &r[i], 1, 2 * i, tag(1), target + i * LARGEST / 2, LARGEST / 2);
            send_it(lab, &s[i], 2 * i, 1, tag(1), source + i * LARGEST / 2, LARGEST / 2);
        }
        for (int i = 0; i < 6; i++)
            tt__messages_progress(lab->nodes[i % 3].messages);
        for (int i = 0; i < 2; i++)
            tt__message_cancel(lab->nodes[1].messages, &r[i], TT_ERR_TIMEOUT);
        memset(target, 0, sizeof target); /* which is the caller's again */
        settle(lab);
        for (int i = 0; i < 2; i++) {
            recv_it(lab, &r[i], 1, 2 * i, tag(2), target, 3);
            send_it(lab, &s[i], 2 * i, 1, tag(2), "xy", 3);
            until_done(lab, &r[i]);
            assert_int_equal(r[i].status, TT_OK);
        }
        lab_close(lab);
    }
}

static void the_end_of_a_link_ends_its_messages(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        lab *lab = lab_open(KINDS[k], 3);
        tt__message s, r, kept, any;
        unsigned char got[4];
        send_it(lab, &kept, 2, 0, tag(4), "abc", 4);
        settle(lab);
        send_it(lab, &s, 0, 2, tag(1), source, LARGEST);
        recv_it(lab, &r, 0, 2, tag(2), target, 8);
        tt__messages_close(lab->nodes[2].messages, true);
        lab->n = 2;
        until_done(lab, &s);
        until_done(lab, &r);
        assert_int_equal(s.status, TT_ERR_PEER);
        assert_int_equal(r.status, TT_ERR_PEER);
        assert_int_equal(tt__link_check(lab->nodes[0].messages, 2), TT_ERR_PEER);
        assert_non_null(strstr(tt_last_error(), "rank 2"));
        assert_int_equal(tt__link_check(lab->nodes[0].messages, 1), TT_OK);
        send_it(lab, &s, 0, 2, tag(1), source, 8);
        assert_int_equal(s.status, TT_ERR_PEER);
        /* Earlier messages are still there, and other links are not affected. */
        recv_it(lab, &any, 0, TT_ANY_SOURCE, tag(4), got, 4);
        assert_int_equal(any.status, TT_OK);
        send_it(lab, &s, 0, 1, tag(1), source, 8);
        recv_it(lab, &r, 1, 0, tag(1), target, 8);
        until_done(lab, &r);
        assert_int_equal(r.status, TT_OK);
        lab_close(lab);
    }
}

/* A writer finds that nobody reads any more; what the peer sent before its end still counts. */
static void last_words_are_heard(void **state) {
    (void)state;
    lab *lab = lab_open(SOCKETS, 2);
    tt__messages *messages = lab->nodes[0].messages;
    tt__message s;
    tt__news news;
    tt_status status;
    uint32_t seq;
    char text[32];
    tt__news_send(lab->nodes[1].messages, 3, (const int[]){0}, 1, TT__NEWS_FAILED, TT_ERR_TIMEOUT, 8, "why");
    tt__messages_close(lab->nodes[1].messages, true);
    lab->n = 1;
    for (int i = 0; i < 3; i++)
        send_it(lab, &s, 0, 1, tag(1), source, 100);
    settle(lab);
    assert_int_equal(tt__link_check(messages, 1), TT_ERR_PEER);
    assert_true(tt__news_of(messages, 1, 3, &news, &status, &seq, text, sizeof text));
    assert_string_equal(text, "why");
    lab_close(lab);
}

/* Groups come and go; the news that count are those of the last ones. */
static void old_news_give_way(void **state) {
    (void)state;
    enum { GROUPS = 5000 };
    lab *lab = lab_open(SOCKETS, 2);
    tt__messages *messages = lab->nodes[0].messages;
    tt__news news;
    tt_status status;
    uint32_t seq;
    char text[32];
    for (uint32_t group = 1; group <= GROUPS; group++) {
        tt__news_send(lab->nodes[1].messages, group, (const int[]){0}, 1, TT__NEWS_LEFT, TT_OK, 1, "");
        settle(lab);
    }
    tt__news_send(lab->nodes[1].messages, GROUPS + 1, (const int[]){0}, 1, TT__NEWS_FAILED, TT_ERR_MEMORY, 8, "why");
    settle(lab);
    assert_true(tt__news_of(messages, 1, GROUPS + 1, &news, &status, &seq, text, sizeof text));
    assert_string_equal(text, "why");
    assert_true(tt__news_of(messages, 1, GROUPS, &news, &status, &seq, text, sizeof text));
    assert_false(tt__news_of(messages, 1, 1, &news, &status, &seq, text, sizeof text));
    lab_close(lab);
}

static void a_ring_with_impossible_counters_ends(void **state) {
    (void)state;
    lab *lab = lab_open(RINGS, 2);
    tt__message s, r;
    send_it(lab, &s, 0, 1, tag(1), "abc", 4);
    settle(lab);
    recv_it(lab, &r, 1, 0, tag(2), target, 4);
    lab->nodes[0].messages->links[1]->transport.ring_out->tail += UINT64_C(1) << 40;
    until_done(lab, &r);
    assert_int_equal(r.status, TT_ERR_PEER);
    assert_int_equal(tt__link_check(lab->nodes[1].messages, 0), TT_ERR_PEER);
    assert_true(lab->nodes[1].wakes > 0);
    lab_close(lab);
}

/* ---- random traffic against a model */

enum { FLIGHTS = 300, TAGS = 3 };

typedef struct flight {
    tt__message send, receive;
    int from, to;
    unsigned char *out, *in;
    size_t bytes;
    bool sent, received, any;
} flight;

static uint64_t seed;

static unsigned pick(unsigned n) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(seed >> 33) % n;
}

static size_t random_size(void) {
    static const size_t largest[] = {16, 64, 4096, TT__EAGER_MAX * 2, 600000};
    return pick((unsigned)largest[pick(5)]) + 4;
}

/* Sends of one pair and tag are numbered; receives are posted in the same order, so flight i's receive gets flight i's
 * message. With any source, a tag belongs to one receiver and sizes are equal; whose message it is is read from it. */
static void plan(flight *flights, int n) {
    for (int i = 0; i < FLIGHTS; i++) {
        flight *f = &flights[i];
        unsigned t = pick(TAGS + 2);
        f->from = (int)pick((unsigned)n);
        f->to = (f->from + 1 + (int)pick((unsigned)n - 1)) % n;
        f->any = t == TAGS;
        f->bytes = f->any ? 5000 : random_size();
        tt__key key = t > TAGS ? collective(1 + (uint32_t)i, pick(100)) : tag(t);
        f->send = f->receive = (tt__message){.key = key, .bytes = f->bytes};
        f->out = malloc(f->bytes);
        f->in = calloc(1, f->bytes);
        fill(f->out, f->bytes, (unsigned)i);
        memcpy(f->out, &i, sizeof i);
        f->send.data = f->out;
        f->receive.data = f->in;
        f->send.peer = f->to;
        f->receive.peer = f->any ? TT_ANY_SOURCE : f->from;
    }
}

/* An earlier flight of the same pair and tag that has not been posted on this side. */
static bool must_wait(const flight *flights, int i, bool sending) {
    const flight *f = &flights[i];
    for (int j = 0; j < i; j++) {
        const flight *g = &flights[j];
        if (tt__same_key(&g->send.key, &f->send.key) && g->to == f->to &&
            (g->from == f->from || (f->any && !sending)) && !(sending ? g->sent : g->received))
            return true;
    }
    return false;
}

static void post_one(lab *lab, flight *flights) {
    int i = (int)pick(FLIGHTS);
    bool sending = pick(2);
    flight *f = &flights[i];
    if ((sending ? f->sent : f->received) || must_wait(flights, i, sending))
        return;
    if (sending) {
        f->sent = true;
        tt__message_send(lab->nodes[f->from].messages, &f->send);
    } else {
        f->received = true;
        tt__message_recv(lab->nodes[f->to].messages, &f->receive);
    }
}

static void check_flights(const flight *flights) {
    int last[NODES][NODES];
    memset(last, -1, sizeof last);
    for (int i = 0; i < FLIGHTS; i++) {
        const flight *f = &flights[i];
        int got;
        assert_int_equal(f->send.status, TT_OK);
        assert_int_equal(f->receive.status, TT_OK);
        memcpy(&got, f->in, sizeof got);
        assert_memory_equal(f->in, flights[got].out, f->bytes);
        assert_int_equal(f->receive.source, flights[got].from);
        if (!f->any) {
            assert_int_equal(got, i);
        } else {
            assert_true(got > last[flights[got].from][f->to]);
            last[flights[got].from][f->to] = got;
        }
    }
}

static void random_traffic(kind kind, uint64_t first) {
    lab *lab = lab_open(kind, NODES);
    flight *flights = calloc(FLIGHTS, sizeof *flights);
    seed = first;
    plan(flights, NODES);
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    for (int done = 0; done < 2 * FLIGHTS;) {
        for (unsigned i = pick(50); i; i--)
            post_one(lab, flights);
        for (unsigned i = pick(8); i; i--)
            tt__messages_progress(lab->nodes[pick(NODES)].messages);
        done = 0;
        for (int i = 0; i < FLIGHTS; i++)
            done += (flights[i].sent && flights[i].send.done) + (flights[i].received && flights[i].receive.done);
        if (!tt__left_ms(deadline_ms))
            fail_msg("seed %llu of kind %d: %d of %d done", (unsigned long long)first, kind, done, 2 * FLIGHTS);
    }
    check_flights(flights);
    for (int i = 0; i < FLIGHTS; i++) {
        free(flights[i].in);
        free(flights[i].out);
    }
    free(flights);
    lab_close(lab);
}

static void random_traffic_arrives(void **state) {
    (void)state;
    const char *given = getenv("TT_TEST_SEED");
    long seeds = storm_cases(4);
    for (long s = 0; s < seeds; s++)
        for (int k = 0; k < KIND_COUNT; k++)
            random_traffic(KINDS[k], given ? strtoull(given, NULL, 10) : (uint64_t)s * 1000 + (uint64_t)k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_both_ways_round),
        cmocka_unit_test(messages_of_a_tag_keep_their_order),
        cmocka_unit_test(the_window_bounds_what_is_kept),
        cmocka_unit_test(a_group_that_ended_keeps_no_window),
        cmocka_unit_test(any_source_takes_its_turn),
        cmocka_unit_test(whoever_waits_is_sent_to_at_once),
        cmocka_unit_test(messages_to_itself),
        cmocka_unit_test(mismatches_are_told_to_both),
        cmocka_unit_test(messages_are_taken_back),
        cmocka_unit_test(two_links_drop_at_once),
        cmocka_unit_test(the_end_of_a_link_ends_its_messages),
        cmocka_unit_test(last_words_are_heard),
        cmocka_unit_test(old_news_give_way),
        cmocka_unit_test(a_ring_with_impossible_counters_ends),
        cmocka_unit_test(random_traffic_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
