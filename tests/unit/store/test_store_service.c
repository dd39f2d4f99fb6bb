/* The server's protocol without sockets: recorded conversations, any cut of the stream, who is released by what,
 * limits. */
#include "base/hash.h"
#include "store/server/service.h"
#include "unit/store/store_transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static tt__store_service service;

static int start(void **state) {
    (void)state;
    tt__store_service_init(&service);
    return 0;
}

static int stop(void **state) {
    (void)state;
    bool clean = service.table.entries == service.table.kept && tt__list_empty(&service.queue);
    tt__store_service_free(&service);
    return clean ? 0 : -1; /* nothing of ended sessions may be left */
}

static void expect_out(tt__store_session *s, const char *what, const uint8_t *bytes, size_t size) {
    if (s->out.size < size || (size && memcmp(s->out.data, bytes, size) != 0))
        fail_msg("%s: the answer differs", what);
    tt__bytes_consume(&s->out, size);
}

/* Play one conversation, the client's bytes in pieces of `piece` (0: each line whole). */
static void play(const transcript *t, size_t piece) {
    tt__store_session session;
    uint8_t bytes[TRANSCRIPT_MAX];
    tt__store_session_init(&session, &service, NULL);
    for (int i = 0; t->lines[i]; i++) {
        const char *line = t->lines[i];
        bool closed = !strcmp(line, "< closed");
        size_t n = closed ? 0 : transcript_bytes(line + 1, bytes);
        if (*line == '>') {
            for (size_t at = 0; at < n; at += piece ? piece : n)
                tt__store_session_feed(&session, bytes + at, piece && n - at > piece ? piece : n - at);
            continue;
        }
        expect_out(&session, t->name, bytes, n);
        if (session.broken != (closed || (t->lines[i + 1] && !strcmp(t->lines[i + 1], "< closed"))))
            fail_msg("%s: %s", t->name, closed ? "not closed" : session.why);
    }
    assert_int_equal(session.out.size, 0);
    assert_int_equal(tt__store_service_next(&service) != NULL, true);
    tt__store_session_end(&session);
}

static void forget_all_keys(void) {
    tt__store_service_free(&service);
    tt__store_service_init(&service);
}

static void transcripts_are_met(void **state) {
    (void)state;
    for (int i = 0; i < TRANSCRIPTS; i++) {
        for (size_t piece = 0; piece < 24; piece++) {
            play(&transcripts[i], piece);
            forget_all_keys();
        }
    }
}

/* Every conversation glued into one write, and cut in two at every byte: the same answers in the same order. */
static void cuts_change_nothing(void **state) {
    (void)state;
    for (int i = 0; i < TRANSCRIPTS; i++) {
        uint8_t sent[4096], expected[4096];
        size_t sent_size = 0, expected_size = 0;
        for (int j = 0; transcripts[i].lines[j]; j++) {
            const char *line = transcripts[i].lines[j];
            if (*line == '>')
                sent_size += transcript_bytes(line + 1, sent + sent_size);
            else if (strcmp(line, "< closed") != 0)
                expected_size += transcript_bytes(line + 1, expected + expected_size);
        }
        for (size_t cut = 0; cut <= sent_size; cut++) {
            tt__store_session session;
            tt__store_session_init(&session, &service, NULL);
            tt__store_session_feed(&session, sent, cut);
            tt__store_session_feed(&session, sent + cut, sent_size - cut);
            assert_int_equal(session.out.size, expected_size);
            expect_out(&session, transcripts[i].name, expected, expected_size);
            tt__store_session_end(&session);
            forget_all_keys();
        }
    }
}

/* ---- several clients ---- */

static tt__store_session a, b;

static void say(tt__store_session *s, const char *text) {
    uint8_t bytes[TRANSCRIPT_MAX];
    tt__store_session_feed(s, bytes, transcript_bytes(text, bytes));
    if (s->broken)
        fail_msg("%s", s->why);
}

static void hear(tt__store_session *s, const char *text) {
    uint8_t bytes[TRANSCRIPT_MAX];
    size_t n = transcript_bytes(text, bytes);
    assert_int_equal(s->out.size, n);
    expect_out(s, text, bytes, n);
}

static int start_two(void **state) {
    start(state);
    tt__store_session_init(&a, &service, NULL);
    tt__store_session_init(&b, &service, NULL);
    for (int i = 0; i < 2; i++) {
        say(i ? &b : &a, "00 CE F7 85 3C");
        hear(i ? &b : &a, "");
    }
    return 0;
}

static int stop_two(void **state) {
    tt__store_session_end(&a);
    tt__store_session_end(&b);
    return stop(state);
}

static void waiters_are_released(void **state) {
    (void)state;
    static const char *const releases[] = {
        "01 01 00*7 'k' 01 00*7 'v'",         /* SET */
        "04 01 00*7 'k' 01 00*7",             /* ADD */
        "09 01 00*7 'k' 01 00*7 'v'",         /* APPEND */
        "0B 01 00*7 01 00*7 'k' 01 00*7 'v'", /* MULTI_SET */
        "02 01 00*7 'k' 00*8 01 00*7 'v'",    /* COMPARE_SET */
        "12 01 00*7 'k' 01 00*7",             /* BARRIER makes the key, too */
    };
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        say(&a, "06 01 00*7 01 00*7 'k'");
        hear(&a, "");
        say(&b, releases[i]);
        hear(&a, "00");
        b.out.size = 0;
        say(&b, "08 01 00*7 'k'");
        hear(&b, "01 00*7");
        say(&b, releases[i]); /* nobody waits any more */
        hear(&a, "");
        b.out.size = 0;
        say(&b, "08 01 00*7 'k'");
        b.out.size = 0;
    }
}

static void a_push_releases_one_waiter(void **state) {
    (void)state;
    tt__store_session c;
    tt__store_session_init(&c, &service, NULL);
    say(&c, "00 CE F7 85 3C");
    say(&c, "06 02 00*7 01 00*7 'q' 01 00*7 'x'"); /* waits for a key, too: not the one that is released */
    say(&a, "06 01 00*7 01 00*7 'q'");
    say(&b, "06 01 00*7 01 00*7 'q'");
    say(&c, "0E 01 00*7 'q' 01 00*7 '1'"); /* as a client that sends on while it waits */
    hear(&c, "");
    hear(&b, "");
    hear(&a, "00");
    say(&c, "0E 01 00*7 'q' 01 00*7 '2'");
    hear(&b, "00");
    say(&a, "0F 01 00*7 'q'");
    hear(&a, "02 00*7 01 00*7 '1'");
    say(&b, "0F 01 00*7 'q'");
    hear(&b, "01 00*7 01 00*7 '2'");
    say(&a, "01 01 00*7 'x' 00*8");
    hear(&c, "00");
    tt__store_session_end(&c);
}

static void a_push_releases_waiters(void **state) {
    (void)state;
    say(&a, "06 01 00*7 03 00*7 2F 71 32");
    hear(&a, "");
    say(&b, "0E 03 00*7 2F 71 32 04 00*7 'late'");
    hear(&a, "00");
    say(&a, "0F 03 00*7 2F 71 32");
    hear(&a, "01 00*7 04 00*7 'late'");
}

static void a_wait_needs_all_its_keys(void **state) {
    (void)state;
    say(&a, "06 04 00*7 01 00*7 'x' 01 00*7 'y' 01 00*7 'x' 01 00*7 'z'");
    say(&b, "01 01 00*7 'z' 00*8 01 01 00*7 'x' 00*8");
    hear(&a, "");
    say(&b, "08 01 00*7 'x'"); /* counts as seen */
    say(&b, "01 01 00*7 'y' 00*8");
    hear(&a, "00");
    say(&a, "06 01 00*7 01 00*7 'x'"); /* waiting for a deleted key waits for it to be set again */
    hear(&a, "");
    say(&b, "01 01 00*7 'x' 00*8");
    hear(&a, "00");
    b.out.size = 0;
}

static void a_second_wait_replaces_the_first(void **state) {
    (void)state;
    say(&a, "06 01 00*7 01 00*7 'x'");
    say(&a, "06 01 00*7 01 00*7 'y'");
    say(&b, "01 01 00*7 'x' 00*8");
    hear(&a, "");
    say(&b, "01 01 00*7 'y' 00*8");
    hear(&a, "00");
    say(&a, "06 01 00*7 01 00*7 'w' 0C");
    hear(&a, "01");
    say(&b, "01 01 00*7 'w' 00*8");
    hear(&a, "");
}

static void a_dead_waiter_is_forgotten(void **state) {
    (void)state;
    say(&a, "06 02 00*7 01 00*7 'x' 01 00*7 'y'");
    assert_int_equal(service.table.entries, 2);
    assert_int_equal(service.table.present, 0);
    tt__store_session_end(&a);
    assert_int_equal(service.table.entries, 0);
    tt__store_session_init(&a, &service, NULL);
    say(&b, "01 01 00*7 'x' 00*8");
    hear(&b, "");
}

static void barriers_open_when_all_came(void **state) {
    (void)state;
    tt__store_session c;
    tt__store_session_init(&c, &service, NULL);
    say(&c, "00 CE F7 85 3C");
    say(&a, "12 01 00*7 'b' 03 00*7");
    say(&c, "12 01 00*7 'b' 03 00*7");
    hear(&a, "");
    hear(&c, "");
    say(&b, "03 01 00*7 'b'");
    hear(&b, "01 00*7 '2'"); /* the counter lies under the key */
    say(&b, "12 01 00*7 'b' 03 00*7");
    hear(&a, "00");
    hear(&b, "00");
    hear(&c, "00");
    tt__store_session_end(&c);
}

static void watchers_in_old_dialect_see_changes_of_new_clients(void **state) {
    (void)state;
    tt__store_session old;
    tt__store_session_init(&old, &service, NULL);
    say(&old, "07 01 00*7 'w'");
    hear(&old, "03");
    say(&b, "09 01 00*7 'w' 01 00*7 'x' 09 01 00*7 'w' 01 00*7 'y'");
    hear(&old, "01 01 00*7 'w' 00*8 01 00*7 'x' 00 01 00*7 'w' 01 00*7 'x' 02 00*7 'xy'");
    say(&b, "03 01 00*7 'v'"); /* another key, and no change */
    b.out.size = 0;
    hear(&old, "");
    tt__store_session_end(&old);
}

/* ---- limits ---- */

static void append_stays_within_the_limit(void **state) {
    (void)state;
    static uint8_t chunk[17 + 1 + (1 << 20)];
    uint8_t head[TRANSCRIPT_MAX];
    size_t n = transcript_bytes("09 01 00*7 'k' 00*2 10 00*5", head);
    memcpy(chunk, head, n);
    for (int i = 0; i < 64; i++)
        tt__store_session_feed(&a, chunk, n + (1 << 20));
    assert_false(a.broken);
    say(&b, "09 01 00*7 'k' 00*8"); /* nothing more is still allowed */
    tt__store_session_feed(&a, chunk, n + (1 << 20));
    assert_true(a.broken);
    assert_non_null(strstr(a.why, "APPEND"));
}

/* A client that asks and asks but reads nothing is not served on until its answers have gone. */
static void unread_answers_hold_requests_back(void **state) {
    (void)state;
    static uint8_t big[18 + (1 << 19)];
    size_t n = transcript_bytes("01 01 00*7 'k' 00*2 08 00*5", big);
    tt__store_session_feed(&b, big, n + (1 << 19));
    for (int i = 0; i < 10; i++)
        say(&a, "03 01 00*7 'k'");
    const size_t reply = 8 + (1 << 19);
    assert_int_equal(a.out.size, 2 * reply); /* what passes a megabyte is the last */
    size_t total = 0;
    for (int i = 0; i < 10 && a.out.size; i++) {
        total += a.out.size;
        a.out.size = 0;
        tt__store_session_resume(&a);
    }
    assert_int_equal(total, 10 * reply);
    assert_int_equal(a.in.size, 0);
}

static size_t set_large(tt__store_session *s, const char *key, size_t size) {
    static const uint8_t zeros[1 << 20];
    uint8_t head[TRANSCRIPT_MAX];
    char text[64];
    snprintf(text, sizeof text, "01 01 00*7 '%s'", key);
    size_t n = transcript_bytes(text, head);
    for (int i = 0; i < 8; i++)
        head[n++] = (uint8_t)((uint64_t)size >> 8 * i);
    tt__store_session_feed(s, head, n);
    for (size_t at = 0; at < size && !s->broken; at += sizeof zeros)
        tt__store_session_feed(s, zeros, size - at < sizeof zeros ? size - at : sizeof zeros);
    return size;
}

/* A few bytes may ask for gigabytes: no more is made of them than the client reads. */
static void a_small_request_for_much_is_answered_in_slices(void **state) {
    (void)state;
    enum { TIMES = 64 };
    size_t reply = 8 + set_large(&b, "k", 3 << 20), total = 0;
    uint8_t ask[TRANSCRIPT_MAX];
    tt__store_session_feed(&a, ask, transcript_bytes("0A 40 00*7", ask));
    for (int i = 0; i < TIMES; i++)
        tt__store_session_feed(&a, ask, transcript_bytes("01 00*7 'k'", ask));
    tt__store_session_feed(&a, ask, transcript_bytes("07", ask)); /* what comes after is answered after */
    for (int i = 0; i <= TIMES && a.out.size; i++) {
        assert_in_range(a.out.size, 1, 8 + reply);
        total += a.out.size;
        a.out.size = 0;
        tt__store_session_resume(&a);
    }
    assert_int_equal(total, TIMES * reply + 8);
    assert_int_equal(a.in.size, 0);
}

/* Who holds the most in unread replies or an unfinished request is closed, not who comes last. */
static void who_holds_the_most_is_closed_when_memory_is_short(void **state) {
    (void)state;
    uint8_t head[TRANSCRIPT_MAX];
    service.limit = 16 << 20;
    set_large(&b, "k", 2 << 20);
    assert_false(b.broken);
    say(&b, "03 01 00*7 'k'"); /* not read */
    tt__store_session_feed(&a, head, transcript_bytes("0B 08 00*7", head));
    for (int i = 0; i < 8 && !a.broken; i++) {
        static const uint8_t zeros[4 << 20];
        tt__store_session_feed(&a, head, transcript_bytes("01 00*7 'x' 00*2 40 00*5", head));
        tt__store_session_feed(&a, zeros, sizeof zeros);
    }
    assert_true(a.broken);
    assert_non_null(strstr(a.why, "holds the most"));
    assert_false(b.broken);
    b.out.size = 0;
    say(&b, "01 01 00*7 's' 01 00*7 'v'");
    assert_false(b.broken);
}

static void values_take_three_quarters(void **state) {
    (void)state;
    service.limit = 16 << 20;
    for (int i = 0; i < 5; i++)
        set_large(&b, (const char[]){(char)('a' + i), 0}, 2 << 20);
    assert_false(b.broken);
    set_large(&a, "x", 3 << 20);
    assert_true(a.broken);
    assert_non_null(strstr(a.why, "don't fit"));
    set_large(&b, "a", 2 << 20); /* no more than it has */
    say(&b, "08 01 00*7 'b' 08 01 00*7 'c'");
    set_large(&b, "x", 3 << 20);
    assert_false(b.broken);
    for (int i = 0; i < 5; i++)
        say(&b, (const char *[]){"08 01 00*7 'a'", "08 01 00*7 'd'", "08 01 00*7 'e'", "08 01 00*7 'x'", "07"}[i]);
    assert_int_equal(service.table.bytes, 0);
}

static void many_keys(void **state) {
    (void)state;
    for (int i = 0; i < 20000; i++) {
        char text[64];
        snprintf(text, sizeof text, "01 06 00*7 '%06d' 06 00*7 '%06d'", i, i);
        say(&a, text);
    }
    assert_int_equal(service.table.present, 20000);
    say(&a, "03 06 00*7 '012345'");
    hear(&a, "06 00*7 '012345'");
    for (int i = 0; i < 20000; i += 2) {
        char text[64];
        snprintf(text, sizeof text, "08 06 00*7 '%06d'", i);
        say(&a, text);
    }
    a.out.size = 0;
    say(&a, "07");
    hear(&a, "10 27 00*6"); /* 10000 */
    say(&a, "03 06 00*7 '012344'");
    hear(&a, "00*8");
}

/* Values of CPython 3.11, whose bytes hash is SipHash-1-3 (PYTHONHASHSEED=0: key 0). */
static void siphash_is_right(void **state) {
    (void)state;
    static const uint64_t key[2];
    uint8_t bytes[64];
    for (int i = 0; i < 64; i++)
        bytes[i] = (uint8_t)i;
    assert_true(tt__siphash13(key, "a", 1) == UINT64_C(0x407448d2b89b1813));
    assert_true(tt__siphash13(key, "12345678", 8) == UINT64_C(0x3489982430560a87));
    assert_true(tt__siphash13(key, "/default_pg/0//cpu//0/1", 23) == UINT64_C(0x7c45301da649a352));
    assert_true(tt__siphash13(key, bytes, 64) == UINT64_C(0x75e05fd5bbc870c6));
    for (size_t cut = 0; cut <= 64; cut++) {
        tt__siphash pieces;
        tt__siphash_begin(&pieces, key);
        tt__siphash_add(&pieces, bytes, cut);
        tt__siphash_add(&pieces, bytes + cut, 64 - cut);
        assert_true(tt__siphash_end(&pieces) == UINT64_C(0x75e05fd5bbc870c6));
    }
}

#define ALONE(test) cmocka_unit_test_setup_teardown(test, start, stop)
#define TWO(test) cmocka_unit_test_setup_teardown(test, start_two, stop_two)

int main(void) {
    const struct CMUnitTest tests[] = {
        ALONE(transcripts_are_met),
        ALONE(cuts_change_nothing),
        TWO(waiters_are_released),
        TWO(a_push_releases_waiters),
        TWO(a_push_releases_one_waiter),
        TWO(a_wait_needs_all_its_keys),
        TWO(a_second_wait_replaces_the_first),
        TWO(a_dead_waiter_is_forgotten),
        TWO(barriers_open_when_all_came),
        TWO(watchers_in_old_dialect_see_changes_of_new_clients),
        TWO(append_stays_within_the_limit),
        TWO(unread_answers_hold_requests_back),
        TWO(a_small_request_for_much_is_answered_in_slices),
        TWO(who_holds_the_most_is_closed_when_memory_is_short),
        TWO(values_take_three_quarters),
        TWO(many_keys),
        cmocka_unit_test(siphash_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
