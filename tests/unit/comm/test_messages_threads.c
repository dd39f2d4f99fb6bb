/* The message engine with its own threads: who serves the links, and what ranks tell each other beside data. */
#include "messages_lab.h"

#include "comm/message/message_parts.h"

enum { LARGEST = (2 << 20) + 3 };
static unsigned char source[LARGEST], target[LARGEST];

static void start_threads(lab *lab) {
    for (int r = 0; r < lab->n; r++)
        assert_int_equal(tt__messages_thread_start(lab->nodes[r].messages), TT_OK);
}

static void wait_locked(node *node, const _Atomic uint32_t *pending) {
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    while (atomic_load(pending)) {
        tt__messages_wait(node->messages, 100);
        assert_true(tt__left_ms(deadline_ms));
    }
}

enum { ROUNDS = 2000 };

/* Rank r of a chain of exchanges with the other. */
static void *exchange(void *arg) {
    node *self = arg;
    static const size_t sizes[] = {8, 20000, 0, 100};
    int other = 1 - self->rank;
    unsigned char *out = malloc(20000), *in = malloc(20000);
    for (int i = 0; i < ROUNDS; i++) {
        size_t bytes = sizes[i % 4];
        _Atomic uint32_t pending = 2;
        fill(out, bytes, (unsigned)(i + self->rank));
        tt__message s = {.key = tag(1), .peer = other, .data = out, .bytes = bytes, .pending = &pending}, r = s;
        r.data = in;
        pthread_mutex_lock(&self->lock);
        tt__message_recv(self->messages, &r);
        tt__message_send(self->messages, &s);
        wait_locked(self, &pending);
        pthread_mutex_unlock(&self->lock);
        fill(out, bytes, (unsigned)(i + other));
        assert_memory_equal(in, out, bytes);
    }
    free(in);
    free(out);
    return NULL;
}

static void waiting_callers_and_the_thread_share_the_links(void **state) {
    (void)state;
    lab *lab = lab_open(SOCKETS, 2);
    pthread_t thread;
    start_threads(lab);
    assert_int_equal(pthread_create(&thread, NULL, exchange, &lab->nodes[0]), 0);
    exchange(&lab->nodes[1]);
    pthread_join(thread, NULL);
    lab_close(lab);
}

/* The threads alone bring a large message over, once the callers have gone away. */
static void the_thread_serves_who_went_away(void **state) {
    (void)state;
    lab *lab = lab_open(TINY, 2);
    _Atomic uint32_t pending = 2;
    tt__message s = {.key = tag(1), .peer = 1, .data = source, .bytes = LARGEST, .pending = &pending}, r = s;
    fill(source, LARGEST, 8);
    memset(target, 0, LARGEST);
    r.data = target;
    r.peer = 0;
    start_threads(lab);
    pthread_mutex_lock(&lab->nodes[0].lock);
    tt__message_send(lab->nodes[0].messages, &s);
    tt__messages_progress(lab->nodes[0].messages);
    tt__messages_leave(lab->nodes[0].messages);
    pthread_mutex_unlock(&lab->nodes[0].lock);
    pthread_mutex_lock(&lab->nodes[1].lock);
    tt__messages_progress(lab->nodes[1].messages);
    tt__message_recv(lab->nodes[1].messages, &r);
    tt__messages_leave(lab->nodes[1].messages);
    pthread_mutex_unlock(&lab->nodes[1].lock);
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    while (atomic_load_explicit(&pending, memory_order_acquire) && tt__left_ms(deadline_ms))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    assert_int_equal(atomic_load(&pending), 0);
    lab_close(lab);
    assert_memory_equal(source, target, LARGEST);
}

static void news_questions_and_what_is_waited_for(void **state) {
    (void)state;
    lab *lab = lab_open(SOCKETS, 3);
    node *a = &lab->nodes[0];
    char text[200];
    uint32_t word, group, seq, record;
    int whom;
    tt__news news;
    tt_status status;
    lab->nodes[2].waiting.seq = 12;
    lab->nodes[2].waiting.group = 4;
    lab->nodes[2].waiting.whom = 1;
    lab->nodes[2].waiting.since = 1;
    lab->nodes[0].offset_ns = lab->nodes[2].offset_ns = INT64_MIN; /* not measured */
    start_threads(lab);
    pthread_mutex_lock(&a->lock);
    assert_true(tt__ask_call(a->messages, 2, 7, 3, text, sizeof text, &word, PATIENCE_MS));
    assert_string_equal(text, "call 3 of group 7 on rank 2");
    assert_int_equal(word, 77);
    assert_false(tt__ask_call(a->messages, 2, 7, 30, text, sizeof text, &word, PATIENCE_MS));
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    while (!tt__remote_waiting(a->messages, 2, &group, &seq, &whom, &record) || lab->nodes[2].offset_ns == INT64_MIN) {
        tt__messages_wait(a->messages, 50);
        assert_true(tt__left_ms(deadline_ms));
    }
    assert_int_equal(group, 4);
    assert_int_equal(seq, 12);
    assert_int_equal(whom, 1);
    /* One clock; who waits for a CPU in the middle of it knows it no better than to half of that time. */
    int64_t offset = lab->nodes[2].offset_ns;
    assert_true(llabs(offset) < 100000000 + leeway_ms() * 1000000);
    assert_int_equal(lab->nodes[0].offset_ns, INT64_MIN); /* it is the clock of all */
    assert_false(tt__remote_waiting(a->messages, 1, &group, &seq, &whom, &record));
    pthread_mutex_unlock(&a->lock);

    pthread_mutex_lock(&lab->nodes[2].lock);
    tt__news_send(lab->nodes[2].messages, 9, (const int[]){0, 1}, 2, TT__NEWS_FAILED, TT_ERR_TIMEOUT, 5, "why");
    tt__news_send(lab->nodes[2].messages, 9, (const int[]){0, 1}, 2, TT__NEWS_LEFT, TT_OK, 6, "");
    pthread_mutex_unlock(&lab->nodes[2].lock);
    pthread_mutex_lock(&a->lock);
    while (!tt__news_of(a->messages, 2, 9, &news, &status, &seq, text, sizeof text)) {
        tt__messages_wait(a->messages, 50);
        assert_true(tt__left_ms(deadline_ms));
    }
    assert_int_equal(news, TT__NEWS_FAILED);
    assert_int_equal(status, TT_ERR_TIMEOUT);
    assert_int_equal(seq, 5);
    assert_string_equal(text, "why");
    assert_false(tt__news_of(a->messages, 1, 9, &news, &status, &seq, text, sizeof text));
    pthread_mutex_unlock(&a->lock);
    lab_close(lab);
}

/* Rank 1 has no thread, so it says nothing: as if it were frozen. */
static void a_silent_rank_is_named(void **state) {
    (void)state;
    lab *lab = lab_open(SOCKETS, 2);
    node *a = &lab->nodes[0];
    a->messages->config.heartbeat_ms = 200;
    assert_int_equal(tt__messages_thread_start(a->messages), TT_OK);
    pthread_mutex_lock(&a->lock);
    int64_t start_ms = tt__now_ms();
    while (tt__link_check(a->messages, 1) == TT_OK) {
        tt__messages_wait(a->messages, 10);
        assert_true(tt__now_ms() - start_ms < PATIENCE_MS);
    }
    assert_true(tt__now_ms() - start_ms >= 140);
    assert_non_null(strstr(tt_last_error(), "rank 1 (socket) has been silent"));
    pthread_mutex_unlock(&a->lock);
    lab_close(lab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_callers_and_the_thread_share_the_links),
        cmocka_unit_test(the_thread_serves_who_went_away),
        cmocka_unit_test(news_questions_and_what_is_waited_for),
        cmocka_unit_test(a_silent_rank_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
