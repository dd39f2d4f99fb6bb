/* What replicas of a store agree on: each write of a client happens once, however often it is there; what is written
 * down and taken over is the same; bytes that are no request, no entry and no state are refused. */
#include "store/replica_state.h"
#include "store/replica_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct replica {
    tt__store_service service;
    tt__replica_state state;
} replica;

static void open_replica(replica *r) {
    tt__store_service_init(&r->service);
    tt__replica_state_init(&r->state, &r->service);
}

static void close_replica(replica *r) {
    tt__replica_state_free(&r->state);
    tt__store_service_free(&r->service);
}

static tt__span span_of(const tt__bytes *bytes) { return (tt__span){bytes->data, bytes->size}; }
static tt__span text_of(const char *text) { return (tt__span){(const uint8_t *)text, strlen(text)}; }

/* Requests: an opcode, a key, and what follows. */
static tt__bytes request_of(tt__store_op op, const char *key) {
    tt__bytes bytes = {0};
    tt__store_put_u8(&bytes, (uint8_t)tt__store_op_table[op].opcode[TT_STORE_TORCH_2]);
    tt__store_put_string(&bytes, text_of(key));
    return bytes;
}

static tt__bytes add_of(const char *key, int64_t delta) {
    tt__bytes bytes = request_of(TT__STORE_ADD, key);
    tt__store_put_u64(&bytes, (uint64_t)delta);
    return bytes;
}

static tt__bytes with_value(tt__store_op op, const char *key, const char *value) {
    tt__bytes bytes = request_of(op, key);
    tt__store_put_string(&bytes, text_of(value));
    return bytes;
}

/* Apply an entry and free its request. */
static tt__bytes apply(replica *r, uint64_t client, uint64_t number, tt__bytes request) {
    tt__bytes entry = {0}, answer = {0};
    tt__replica_put_entry(&entry, client, number, span_of(&request));
    assert_true(tt__replica_apply(&r->state, span_of(&entry), &answer));
    tt__bytes_free(&entry);
    tt__bytes_free(&request);
    return answer;
}

static int64_t sum_in(tt__bytes answer) {
    assert_int_equal(answer.size, 17);
    assert_int_equal(answer.data[0], TT__STORE_DONE);
    int64_t sum = (int64_t)tt__store_number(answer.data + 9, 8);
    tt__bytes_free(&answer);
    return sum;
}

static void expect_refused(tt__bytes answer, const char *why) {
    char text[256];
    assert_int_equal(answer.data[0], TT__STORE_REFUSED);
    snprintf(text, sizeof text, "%.*s", (int)(answer.size - 9), (const char *)answer.data + 9);
    if (!strstr(text, why))
        fail_msg("expected \"%s\", got \"%s\"", why, text);
    tt__bytes_free(&answer);
}

static void test_a_write_happens_once(void **state) {
    (void)state;
    replica r;
    open_replica(&r);
    assert_int_equal(sum_in(apply(&r, 1, 1, add_of("/k", 5))), 5);
    assert_int_equal(sum_in(apply(&r, 1, 1, add_of("/k", 5))), 5);
    assert_int_equal(sum_in(apply(&r, 2, 1, add_of("/k", 5))), 10);
    assert_int_equal(sum_in(apply(&r, 1, 2, add_of("/k", 5))), 15);
    expect_refused(apply(&r, 1, 1, add_of("/k", 5)), "given up");
    assert_int_equal(sum_in(apply(&r, 1, 3, add_of("/k", 0))), 15);
    close_replica(&r);
}

/* Those that wrote last are known, however many come after the others. */
static void test_many_clients(void **state) {
    (void)state;
    replica r;
    open_replica(&r);
    const int64_t most = 3 * TT__REPLICA_CLIENTS;
    for (int64_t i = 1; i <= most; i++)
        assert_int_equal(sum_in(apply(&r, (uint64_t)i, 1, add_of("/k", 1))), i);
    for (int64_t i = most - TT__REPLICA_CLIENTS + 1; i <= most; i++)
        assert_int_equal(sum_in(apply(&r, (uint64_t)i, 1, add_of("/k", 1))), i);
    assert_true(r.state.recent.present + r.state.before.present <= 2 * TT__REPLICA_CLIENTS);
    close_replica(&r);
}

static void test_refusals_are_remembered_too(void **state) {
    (void)state;
    replica r;
    open_replica(&r);
    tt__bytes done = apply(&r, 1, 1, with_value(TT__STORE_SET, "/word", "hello"));
    tt__bytes_free(&done);
    for (int i = 0; i < 2; i++)
        expect_refused(apply(&r, 2, 7, add_of("/word", 1)), "no number");
    close_replica(&r);
}

/* What is there is asked for and answered: it may not be larger than what is written at once. Alike everywhere. */
static void test_a_value_grows_to_its_limit(void **state) {
    (void)state;
    replica r;
    tt__bytes answer = {0}, get = request_of(TT__STORE_GET, "/k");
    static char piece[TT__REPLICA_MAX_REQUEST / 8 + 1];
    open_replica(&r);
    memset(piece, 'x', sizeof piece - 1);
    for (uint64_t i = 1; i <= 8; i++) {
        tt__bytes done = apply(&r, 1, i, with_value(TT__STORE_APPEND, "/k", piece));
        assert_int_equal(done.data[0], TT__STORE_DONE);
        tt__bytes_free(&done);
    }
    expect_refused(apply(&r, 1, 9, with_value(TT__STORE_APPEND, "/k", "y")),
                   "APPEND makes a value larger than 1048576");
    expect_refused(apply(&r, 2, 1, with_value(TT__STORE_APPEND, "/k", piece)), "APPEND makes a value larger than");
    tt__replica_read(&r.state, span_of(&get), &answer);
    assert_int_equal(answer.size, 17 + TT__REPLICA_MAX_REQUEST);
    tt__bytes_free(&answer);
    tt__bytes_free(&get);
    close_replica(&r);
}

/* A write of a random client, sometimes the same as before. */
static tt__bytes random_write(unsigned *seed) {
    char key[16], value[32];
    snprintf(key, sizeof key, "/%d", rand_r(seed) % 8);
    snprintf(value, sizeof value, "%d", rand_r(seed));
    switch (rand_r(seed) % 5) {
    case 0:
        return with_value(TT__STORE_SET, key, value);
    case 1:
        return with_value(TT__STORE_APPEND, key, value);
    case 2:
        return with_value(TT__STORE_QUEUE_PUSH, key, value);
    case 3:
        return request_of(TT__STORE_QUEUE_POP, key);
    default:
        return request_of(TT__STORE_DELETE_KEY, key);
    }
}

static void expect_same(tt__bytes a, tt__bytes b) {
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    tt__bytes_free(&a);
    tt__bytes_free(&b);
}

/* One that took the state over in the midst answers as the other one ever after. */
static void test_what_is_taken_over_is_the_same(void **state) {
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        unsigned seed = round;
        uint64_t numbers[4] = {0};
        replica a, b;
        tt__bytes saved = {0};
        open_replica(&a);
        open_replica(&b);
        for (int i = 0; i < 400; i++) {
            int client = rand_r(&seed) % 4;
            bool again = numbers[client] && rand_r(&seed) % 4 == 0;
            uint64_t number = again ? numbers[client] : ++numbers[client];
            unsigned same = seed;
            tt__bytes answer = apply(&a, (uint64_t)client + 1, number, random_write(&seed));
            if (i == 200) {
                assert_true(tt__replica_save(&a.state, &saved));
                assert_true(tt__replica_restore(&b.state, span_of(&saved)));
            }
            if (i > 200)
                expect_same(answer, apply(&b, (uint64_t)client + 1, number, random_write(&same)));
            else
                tt__bytes_free(&answer);
        }
        assert_int_equal(a.service.table.kept, b.service.table.kept);
        for (size_t cut = 0; cut < saved.size; cut += 1 + saved.size / 50)
            assert_false(tt__replica_restore(&b.state, (tt__span){saved.data, cut}));
        tt__bytes_free(&saved);
        close_replica(&a);
        close_replica(&b);
    }
}

static void expect_bad(tt__bytes request, const char *why) {
    char text[TT__STORE_WHY_SIZE] = "";
    bool writes;
    assert_false(tt__replica_request_good(span_of(&request), &writes, text));
    if (!strstr(text, why))
        fail_msg("expected \"%s\", got \"%s\"", why, text);
    tt__bytes_free(&request);
}

/* A client that waits for a key when all keys are taken over. */
static void test_who_waits_while_it_is_taken_over(void **state) {
    replica r;
    tt__store_session waiting;
    tt__bytes saved = {0}, wait = {0};
    (void)state;
    open_replica(&r);
    assert_true(tt__replica_save(&r.state, &saved));
    tt__store_session_init(&waiting, &r.service, NULL);
    tt__store_put_u8(&wait, (uint8_t)tt__store_op_table[TT__STORE_VALIDATE].opcode[TT_STORE_TORCH_2]);
    tt__store_put_u32(&wait, TT__STORE_MAGIC);
    tt__store_put_u8(&wait, (uint8_t)tt__store_op_table[TT__STORE_WAIT].opcode[TT_STORE_TORCH_2]);
    tt__store_put_u64(&wait, 1);
    tt__store_put_string(&wait, text_of("/key"));
    tt__store_session_feed(&waiting, wait.data, wait.size);
    assert_int_equal(waiting.wait_count, 1);
    tt__store_session_break(&waiting, "gone");
    assert_true(tt__replica_restore(&r.state, span_of(&saved)));
    tt__store_session_end(&waiting);
    tt__bytes_free(&wait);
    tt__bytes_free(&saved);
    close_replica(&r);
}

static void test_requests_that_are_none(void **state) {
    (void)state;
    tt__bytes two = add_of("/k", 1), cut = add_of("/k", 1), other = {0};
    tt__store_put_u8(&two, 13);
    cut.size--;
    tt__store_put_u8(&other, 99);
    expect_bad(two, "not one whole request");
    expect_bad(cut, "not one whole request");
    expect_bad(other, "unknown opcode 99");
    expect_bad((tt__bytes){0}, "not one whole request");
    expect_bad(request_of(TT__STORE_REPLICA_TELL, "words"), "has no REPLICA_TELL");
    replica r;
    tt__bytes answer = {0};
    open_replica(&r);
    assert_false(tt__replica_apply(&r.state, text_of("short"), &answer));
    close_replica(&r);
    tt__replica_hello hello;
    assert_false(tt__replica_take_hello(text_of("no hello at all, but long"), &hello));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_write_happens_once),           cmocka_unit_test(test_many_clients),
        cmocka_unit_test(test_refusals_are_remembered_too),    cmocka_unit_test(test_a_value_grows_to_its_limit),
        cmocka_unit_test(test_what_is_taken_over_is_the_same), cmocka_unit_test(test_who_waits_while_it_is_taken_over),
        cmocka_unit_test(test_requests_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
