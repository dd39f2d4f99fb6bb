/* The client: the bytes it sends, and what it makes of servers that are slow, wrong, or gone. */
#include "support/patience.h"

#include "base/machine/clock.h"
#include "net/net.h"
#include "net/stream.h"
#include "unit/store/store_transcript.h"

#include <tutti/store.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static void expect_error(tt_status status, tt_status expected, const char *part) {
    assert_int_equal(status, expected);
    if (!strstr(tt_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tt_last_error(), part);
}

/* ---- a server that follows a script ---- */

enum { HEEDS_MS = 100 };

/* Lines as in a transcript: "> bytes" the client must send, "< bytes" are answered, "< closed" closes; "> hello" is the
 * handshake, whose number is the client's own choice, "< hello" that and its answer; "news" interrupts the client's
 * waits. At the end the client must hang up. */
typedef struct script {
    const char *const *lines;
    int news;          /* what interrupts the client is its other end */
    bool single_bytes; /* answer byte by byte */
    int listener, port;
    pthread_t thread;
    char failure[256];
} script;

static bool play_hello(int fd, bool answers, int64_t deadline) {
    uint8_t hello[10], magic[TRANSCRIPT_MAX];
    size_t n = transcript_bytes("00 CE F7 85 3C 0D", magic);
    return !tt__stream_read_full(&(tt__stream){.fd = fd}, hello, sizeof hello, deadline) && !memcmp(hello, magic, n) &&
           (!answers || !tt__stream_write_full(&(tt__stream){.fd = fd}, hello + 6, 4, deadline));
}

static bool play_line(const script *s, int fd, const char *line, int64_t deadline) {
    uint8_t bytes[TRANSCRIPT_MAX], got[TRANSCRIPT_MAX];
    if (!strcmp(line, "news")) /* one that heeds it hangs up */
        return write(s->news, "x", 1) == 1 && !poll(&(struct pollfd){.fd = fd, .events = POLLRDHUP}, 1, HEEDS_MS);
    if (!strcmp(line + 1, " hello"))
        return play_hello(fd, *line == '<', deadline);
    size_t n = transcript_bytes(line + 1, bytes);
    if (*line == '>')
        return !tt__stream_read_full(&(tt__stream){.fd = fd}, got, n, deadline) && !memcmp(got, bytes, n);
    for (size_t i = 0; s->single_bytes && i < n; i++)
        if (tt__stream_write_full(&(tt__stream){.fd = fd}, bytes + i, 1, deadline))
            return false;
    return s->single_bytes || !tt__stream_write_full(&(tt__stream){.fd = fd}, bytes, n, deadline);
}

static void *play(void *arg) {
    script *s = arg;
    int64_t deadline = tt__deadline_ms(PATIENCE_MS);
    int fd = accept(s->listener, NULL, NULL);
    bool closed = false;
    for (int i = 0; s->lines[i] && !closed && !*s->failure; i++) {
        closed = !strcmp(s->lines[i], "< closed");
        if (!closed && !play_line(s, fd, s->lines[i], deadline))
            snprintf(s->failure, sizeof s->failure, "the client did not follow line %d: %s", i, s->lines[i]);
    }
    uint8_t more;
    size_t got = 0;
    if (!closed && !*s->failure && (tt__stream_read_some(&(tt__stream){.fd = fd}, &more, 1, deadline, &got) || got))
        snprintf(s->failure, sizeof s->failure, "the client sent more than the script has");
    close(fd);
    return NULL;
}

static void start_script(script *s) {
    size_t n;
    assert_int_equal(tt__net_listen("127.0.0.1", 0, &s->listener, 1, &n, &s->port), TT_OK);
    assert_int_equal(fcntl(s->listener, F_SETFL, 0), 0); /* accept() is to wait */
    assert_int_equal(pthread_create(&s->thread, NULL, play, s), 0);
}

static void end_script(script *s) {
    pthread_join(s->thread, NULL);
    close(s->listener);
    if (*s->failure)
        fail_msg("%s", s->failure);
}

#define SCRIPT(...)                                          \
    {                                                        \
        .lines = (const char *const[]) { __VA_ARGS__, NULL } \
    }

static tt_store *connect_to(const script *s, tt_store_dialect dialect) {
    tt_store *store;
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", s->port, .timeout_ms = PATIENCE_MS, .dialect = dialect), TT_OK);
    return store;
}

/* ---- the bytes of every operation ---- */

static void bytes_of_2(void **state) {
    (void)state;
    for (int single = 0; single < 2; single++) {
        script s = SCRIPT(
            "< hello", "> 01 02 00*7 '/k' 02 00*7 'vv'", "> 06 01 00*7 02 00*7 '/k'", "< 00", "> 03 02 00*7 '/k'",
            "< 02 00*7 'vv'", "> 04 02 00*7 '/n' F9 FF*7", "< FE FF*7", "> 02 02 00*7 '/c' 01 00*7 'e' 01 00*7 'd'",
            "< 01 00*7 'd'", "> 05 02 00*7 02 00*7 '/k' 02 00*7 '/n'", "< 01", "> 07", "< 07 00*7", "> 08 02 00*7 '/k'",
            "< 01 00*7", "> 09 02 00*7 '/a' 01 00*7 'x'", "> 0B 02 00*7 02 00*7 '/a' 01 00*7 '1' 02 00*7 '/b' 00*8",
            "> 06 02 00*7 02 00*7 '/a' 02 00*7 '/b'", "< 00", "> 0A 02 00*7 02 00*7 '/a' 02 00*7 '/b'",
            "< 01 00*7 '1' 00*8", "> 11", "< 03 00*7 05 00*7 'init/' 02 00*7 '/a' 04 00*7 '/x' 00 'y'",
            "> 12 02 00*7 '/b' 02 00*7", "< 00");
        s.single_bytes = single;
        start_script(&s);
        tt_store *store = connect_to(&s, TT_STORE_TORCH_2);
        tt_store_value value, two[2];
        int64_t number;
        bool flag;
        char **keys;
        int64_t n;
        const char *kn[] = {"k", "n"}, *ab[] = {"a", "b"};
        assert_int_equal(tt_store_set(store, "k", "vv", 2), TT_OK);
        assert_int_equal(tt_store_get(store, "k", &value), TT_OK);
        assert_string_equal(value.data, "vv");
        tt_store_value_free(&value);
        assert_int_equal(tt_store_add(store, "n", -7, &number), TT_OK);
        assert_int_equal(number, -2);
        assert_int_equal(tt_store_compare_set(store, "c", "e", 1, "d", 1, NULL), TT_OK);
        assert_int_equal(tt_store_check(store, kn, 2, &flag), TT_OK);
        assert_false(flag);
        assert_int_equal(tt_store_num_keys(store, &number), TT_OK);
        assert_int_equal(number, 7);
        assert_int_equal(tt_store_delete_key(store, "k", &flag), TT_OK);
        assert_true(flag);
        assert_int_equal(tt_store_append(store, "a", "x", 1), TT_OK);
        assert_int_equal(tt_store_multi_set(store, ab, (const void *[]){"1", NULL}, (size_t[]){1, 0}, 2), TT_OK);
        assert_int_equal(tt_store_multi_get(store, ab, 2, two), TT_OK);
        assert_string_equal(two[0].data, "1");
        assert_string_equal(two[1].data, "");
        tt_store_value_free(&two[0]);
        tt_store_value_free(&two[1]);
        assert_int_equal(tt_store_list_keys(store, &keys, &n), TT_OK);
        assert_int_equal(n, 1); /* "init/" is not a user's, and a key with a NUL byte has no name here */
        assert_string_equal(keys[0], "a");
        free(keys);
        assert_int_equal(tt_store_barrier(store, "b", 2, 0), TT_OK);
        tt_store_free(store);
        end_script(&s);
    }
}

static void bytes_of_1_13(void **state) {
    (void)state;
    script s = SCRIPT("> 00 02 00*7 '/k' 02 00*7 'vv'", "> 05 01 00*7 02 00*7 '/k'", "< 00", "> 02 02 00*7 '/k'",
                      "< 02 00*7 'vv'", "> 03 02 00*7 '/n' F9 FF*7", "< FE FF*7",
                      "> 01 02 00*7 '/c' 01 00*7 'e' 01 00*7 'd'", "< 01 00*7 'd'", "> 04 01 00*7 02 00*7 '/k'", "< 00",
                      "> 06", "< 07 00*7", "> 08 02 00*7 '/k'", "< 00*8");
    start_script(&s);
    tt_store *store = connect_to(&s, TT_STORE_TORCH_1_13);
    const char *k = "k";
    tt_store_value value;
    int64_t number;
    bool flag;
    assert_int_equal(tt_store_set(store, "k", "vv", 2), TT_OK);
    assert_int_equal(tt_store_get(store, "k", &value), TT_OK);
    tt_store_value_free(&value);
    assert_int_equal(tt_store_add(store, "n", -7, &number), TT_OK);
    assert_int_equal(tt_store_compare_set(store, "c", "e", 1, "d", 1, NULL), TT_OK);
    assert_int_equal(tt_store_check(store, &k, 1, &flag), TT_OK);
    assert_true(flag);
    assert_int_equal(tt_store_num_keys(store, &number), TT_OK);
    assert_int_equal(tt_store_delete_key(store, "k", &flag), TT_OK);
    assert_false(flag);
    expect_error(tt_store_list_keys(store, &(char **){NULL}, &(int64_t){0}), TT_ERR_UNSUPPORTED, "LIST_KEYS");
    expect_error(tt_store_multi_get(store, &k, 1, &value), TT_ERR_UNSUPPORTED, "MULTI_GET");
    tt_store_free(store);
    end_script(&s);
}

/* ---- servers that are none, or wrong ---- */

static void connecting_to_no_store(void **state) {
    (void)state;
    tt_store *store;
    char where[32];
    script refusing = SCRIPT("> 00", "< closed"), chatting = SCRIPT("< 'SSH-2.0-x'", "< closed");
    script silent = SCRIPT("> hello");
    start_script(&chatting);
    expect_error(tt_tcp_store(&store, "127.0.0.1", chatting.port), TT_ERR_PROTOCOL, "no TCPStore");
    assert_null(store);
    end_script(&chatting);
    start_script(&refusing);
    tt_status status = tt_tcp_store(&store, "127.0.0.1", refusing.port, .timeout_ms = 200);
    assert_true(status == TT_ERR_PROTOCOL || status == TT_ERR_TIMEOUT); /* ended or reset, then nobody is there */
    end_script(&refusing);
    start_script(&silent);
    expect_error(tt_tcp_store(&store, "127.0.0.1", silent.port, .timeout_ms = 500), TT_ERR_TIMEOUT, "1.13");
    snprintf(where, sizeof where, "127.0.0.1:%d", silent.port);
    assert_non_null(strstr(tt_last_error(), where));
    end_script(&silent);
}

static void wrong_answers(void **state) {
    (void)state;
    tt_store_value value;
    const char *k = "k";
    script giant = SCRIPT("< hello", "> 06 01 00*7 02 00*7 '/k'", "< 00", "> 03 02 00*7 '/k'", "< 01 00*2 04 00*4");
    start_script(&giant);
    tt_store *store = connect_to(&giant, TT_STORE_TORCH_2);
    expect_error(tt_store_get(store, k, &value), TT_ERR_PROTOCOL, "67108865");
    expect_error(tt_store_set(store, k, "v", 1), TT_ERR_STATE, "make a new store");
    tt_store_free(store);
    end_script(&giant);

    script odd = SCRIPT("< hello", "> 06 01 00*7 02 00*7 '/k'", "< 07");
    start_script(&odd);
    store = connect_to(&odd, TT_STORE_TORCH_2);
    expect_error(tt_store_wait(store, &k, 1, 0), TT_ERR_PROTOCOL, "got 7");
    tt_store_free(store);
    end_script(&odd);

    script gone = SCRIPT("< hello", "> 07", "< 01 00*3", "< closed");
    start_script(&gone);
    store = connect_to(&gone, TT_STORE_TORCH_2);
    expect_error(tt_store_num_keys(store, &(int64_t){0}), TT_ERR_NET, "closed the connection");
    expect_error(tt_store_num_keys(store, &(int64_t){0}), TT_ERR_STATE, "num_keys");
    tt_store_free(store);
    end_script(&gone);

    script slow = SCRIPT("< hello", "> 07", "< 01 00*3");
    start_script(&slow);
    store = connect_to(&slow, TT_STORE_TORCH_2);
    tt_store_set_timeout_ms(store, 50);
    expect_error(tt_store_num_keys(store, &(int64_t){0}), TT_ERR_TIMEOUT, "num_keys");
    expect_error(tt_store_num_keys(store, &(int64_t){0}), TT_ERR_STATE, "num_keys"); /* the rest may still come */
    tt_store_free(store);
    end_script(&slow);
}

static void bytes_that_nobody_asked_for(void **state) {
    (void)state;
    script s = SCRIPT("< hello", "> 07", "< 01 00*7 07");
    start_script(&s);
    tt_store *store = connect_to(&s, TT_STORE_TORCH_2);
    int64_t count;
    assert_int_equal(tt_store_num_keys(store, &count), TT_OK);
    expect_error(tt_store_num_keys(store, &count), TT_ERR_PROTOCOL, "nobody had asked for");
    tt_store_free(store);
    end_script(&s);
}

/* The key comes just when the client gives up: the wait was successful. */
static void an_answer_that_crosses(void **state) {
    (void)state;
    const char *k = "k";
    script s = SCRIPT("< hello", "> 06 01 00*7 02 00*7 '/k'", "> 0C", "< 00 01", "> 07", "< 01 00*7");
    start_script(&s);
    tt_store *store = connect_to(&s, TT_STORE_TORCH_2);
    int64_t count;
    assert_int_equal(tt_store_wait(store, &k, 1, 20), TT_OK);
    assert_int_equal(tt_store_num_keys(store, &count), TT_OK);
    assert_int_equal(count, 1);
    tt_store_free(store);
    end_script(&s);
}

/* A rank whose slice of a wait was over asked for the names of the missing keys. Interrupted then, it closed the
 * connection, said that time was up, and waited again with what was closed. */
static void nothing_interrupts_the_naming_of_missing_keys(void **state) {
    (void)state;
    const char *keys[] = {"a", "b"};
    int news[2];
    assert_int_equal(pipe(news), 0);
    script s = SCRIPT("< hello", "> 06 02 00*7 02 00*7 '/a' 02 00*7 '/b'", "> 0C", "< 01", "> 05 01 00*7 02 00*7 '/a'",
                      "news", "< 01", "> 05 01 00*7 02 00*7 '/b'", "< 01", "> 07", "< 01 00*7");
    s.news = news[1];
    start_script(&s);
    tt_store *store = connect_to(&s, TT_STORE_TORCH_2);
    int64_t count;
    tt__net_interrupt_by(news[0], "there is news");
    expect_error(tt_store_wait(store, keys, 2, 20), TT_ERR_TIMEOUT, "a, ");
    assert_int_equal(tt__net_interrupted(), TT_ERR_ABORTED);
    tt__net_interrupt_by(-1, NULL);
    assert_int_equal(tt_store_num_keys(store, &count), TT_OK);
    tt_store_free(store);
    end_script(&s);
    close(news[0]);
    close(news[1]);
}

/* ---- with our own server ---- */

static tt_store_server *server;

static int start(void **state) {
    (void)state;
    return tt_store_server_new(&server, NULL, 0);
}

static int stop(void **state) {
    (void)state;
    tt_store_server_free(server);
    return 0;
}

static tt_store *client(tt_store_dialect dialect) {
    tt_store *store;
    assert_int_equal(
        tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server), .timeout_ms = PATIENCE_MS, .dialect = dialect),
        TT_OK);
    return store;
}

static void timeouts_name_what_is_missing(void **state) {
    (void)state;
    tt_store *store = client(TT_STORE_TORCH_2), *prefix;
    const char *keys[] = {"there", "absent", "lost"};
    char where[32];
    assert_int_equal(tt_prefix_store(&prefix, "job", store), TT_OK);
    assert_int_equal(tt_store_set(prefix, "there", "", 0), TT_OK);
    expect_error(tt_store_wait(prefix, keys, 3, 30), TT_ERR_TIMEOUT, "30 ms");
    assert_non_null(strstr(tt_last_error(), "keys: job/absent, job/lost"));
    snprintf(where, sizeof where, "127.0.0.1:%d", tt_store_server_port(server));
    assert_non_null(strstr(tt_last_error(), where));
    tt_store_set_timeout_ms(prefix, 40);
    assert_int_equal(tt_store_timeout_ms(store), 40);
    tt_store_value value, values[2];
    expect_error(tt_store_get(store, "absent", &value), TT_ERR_TIMEOUT, "absent");
    expect_error(tt_store_multi_get(store, keys + 1, 2, values), TT_ERR_TIMEOUT, "absent, lost");
    expect_error(tt_store_barrier(store, "gate", 2, 30), TT_ERR_TIMEOUT, "all 2 clients");
    assert_int_equal(tt_store_set(store, "lost", "found", 5), TT_OK); /* still good, and nothing stray comes */
    assert_int_equal(tt_store_get(store, "lost", &value), TT_OK);
    assert_string_equal(value.data, "found");
    tt_store_value_free(&value);
    tt_store_free(prefix);
    tt_store_free(store);
}

static void after_a_timeout_1_13_is_unusable(void **state) {
    (void)state;
    tt_store *store = client(TT_STORE_TORCH_1_13);
    const char *keys[] = {"absent", "lost"};
    expect_error(tt_store_wait(store, keys, 2, 30), TT_ERR_TIMEOUT, "absent, lost");
    expect_error(tt_store_set(store, "k", "v", 1), TT_ERR_STATE, "set \"k\"");
    tt_store_free(store);
}

static void what_cannot_be_sent_is_refused(void **state) {
    (void)state;
    tt_store *store = client(TT_STORE_TORCH_2);
    tt_store_value value;
    static char key[TT_STORE_MAX_KEY + 1];
    memset(key, 'k', sizeof key - 1);
    expect_error(tt_store_set(store, key, "v", 1), TT_ERR_INVALID, "8191");
    key[TT_STORE_MAX_KEY - 1] = '\0';
    assert_int_equal(tt_store_set(store, key, "v", 1), TT_OK);
    assert_int_equal(tt_store_get(store, key, &value), TT_OK);
    tt_store_value_free(&value);
    expect_error(tt_store_set(store, "k", key, TT_STORE_MAX_VALUE + 1), TT_ERR_INVALID, "67108864");
    expect_error(tt_store_set(store, NULL, "v", 1), TT_ERR_INVALID, "key");
    expect_error(tt_store_set(NULL, "k", "v", 1), TT_ERR_INVALID, "store");
    expect_error(tt_store_set(store, "k", NULL, 1), TT_ERR_INVALID, "value");
    expect_error(tt_store_wait(store, (const char *[]){"a", NULL}, 2, 0), TT_ERR_INVALID, "NULL among them");
    expect_error(tt_store_wait(store, (const char *[]){"a"}, 1, -1), TT_ERR_INVALID, "timeout");
    expect_error(tt_store_barrier(store, "b", 0, 0), TT_ERR_INVALID, "world size");
    assert_int_equal(tt_store_set(store, "text", "abc", 3), TT_OK);
    expect_error(tt_store_add(store, "text", 1, NULL), TT_ERR_PROTOCOL, "no number");
    expect_error(tt_store_add(store, "n", 1, NULL), TT_ERR_STATE, "make a new store");
    tt_store_free(store);
    tt_store_free(NULL);
    tt_store_value_free(NULL);
}

static void arguments_of_tcp_store(void **state) {
    (void)state;
    tt_store *store;
    expect_error(tt_tcp_store(&store, NULL, 1), TT_ERR_INVALID, "host");
    expect_error(tt_tcp_store(&store, "127.0.0.1", 0), TT_ERR_INVALID, "from 1 to 65535");
    expect_error(tt_tcp_store(&store, "127.0.0.1", 65536, .is_server = true), TT_ERR_INVALID, "from 0 to 65535");
    expect_error(tt_tcp_store(&store, "127.0.0.1", 1, .timeout_ms = -1), TT_ERR_INVALID, "timeout_ms");
    expect_error(tt_tcp_store(&store, "127.0.0.1", 1, .world_size = -1), TT_ERR_INVALID, "world_size");
    expect_error(tt_tcp_store(&store, "127.0.0.1", 1, .dialect = (tt_store_dialect)7), TT_ERR_INVALID, "dialect");
    expect_error(tt_tcp_store(NULL, "127.0.0.1", 1), TT_ERR_INVALID, "out");
    expect_error(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server), .is_server = true), TT_ERR_NET,
                 "in use");
    assert_null(store);
    expect_error(tt_prefix_store(&store, NULL, NULL), TT_ERR_INVALID, "prefix");
}

static void workers_are_waited_for(void **state) {
    (void)state;
    tt_store *store, *worker;
    expect_error(tt_tcp_store(&store, "127.0.0.1", 0, .is_server = true, .world_size = 3, .timeout_ms = 3000),
                 TT_ERR_TIMEOUT, "1 of 3");
    assert_null(store);
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", 0, .is_server = true, .world_size = 1), TT_OK);
    assert_int_equal(tt_tcp_store(&worker, "127.0.0.1", tt_store_port(store), .world_size = 9),
                     TT_OK); /* a client goes on at once */
    tt_store_free(worker);
    tt_store_free(store);
}

/* ---- threads ---- */

static const char *awaited;

static void *wait_in_thread(void *arg) {
    (void)arg;
    tt_store *store;
    tt_status status = tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server), .timeout_ms = PATIENCE_MS);
    if (!status)
        status = tt_store_add(store, "waiting", 1, NULL);
    if (!status)
        status = tt_store_wait(store, &awaited, 1, 0);
    tt_store_free(store);
    return (void *)(intptr_t)status;
}

static tt_status release_by(tt_store *store, int how, const char *key) {
    switch (how) {
    case 0:
        return tt_store_set(store, key, "v", 1);
    case 1:
        return tt_store_add(store, key, 1, NULL);
    case 2:
        return tt_store_append(store, key, "v", 1);
    case 3:
        return tt_store_multi_set(store, &key, (const void *[]){"v"}, (size_t[]){1}, 1);
    default:
        return tt_store_compare_set(store, key, NULL, 0, "v", 1, NULL);
    }
}

static void waits_are_released(void **state) {
    (void)state;
    tt_store *store = client(TT_STORE_TORCH_2);
    const char *waiting = "waiting";
    for (int how = 0; how < 5; how++) {
        char key[16];
        void *result;
        pthread_t thread;
        snprintf(key, sizeof key, "key%d", how);
        awaited = key;
        assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, NULL), 0);
        assert_int_equal(tt_store_wait(store, &waiting, 1, 0), TT_OK);
        assert_int_equal(release_by(store, how, key), TT_OK);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_int_equal((intptr_t)result, TT_OK);
        assert_int_equal(tt_store_delete_key(store, waiting, NULL), TT_OK);
    }
    tt_store_free(store);
}

enum { THREADS = 4, ROUNDS = 300 };
static tt_store *shared_store;

static void *use_shared_store(void *arg) {
    char key[16];
    snprintf(key, sizeof key, "own%d", *(int *)arg);
    intptr_t wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        tt_store_value value = {0};
        wrong += tt_store_add(shared_store, "sum", 1, NULL) != TT_OK ||
                 tt_store_set(shared_store, key, &i, sizeof i) != TT_OK ||
                 tt_store_get(shared_store, key, &value) != TT_OK || memcmp(value.data, &i, sizeof i) != 0;
        tt_store_value_free(&value);
    }
    return (void *)wrong;
}

static void threads_share_a_store(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    int index[THREADS];
    int64_t sum;
    shared_store = client(TT_STORE_TORCH_2);
    for (int i = 0; i < THREADS; i++) {
        index[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, use_shared_store, &index[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(tt_store_add(shared_store, "sum", 0, &sum), TT_OK);
    assert_int_equal(sum, THREADS * ROUNDS);
    tt_store_free(shared_store);
}

static void *wait_on_shared_store(void *arg) {
    const char *key = arg;
    return (void *)(intptr_t)tt_store_wait(shared_store, &key, 1, PATIENCE_MS);
}

static void waiting_for_another_thread_has_a_deadline(void **state) {
    (void)state;
    tt_store *other = client(TT_STORE_TORCH_2);
    pthread_t thread;
    void *status;
    char key[] = "late";
    int64_t deadline = tt__deadline_ms(PATIENCE_MS);
    tt_status blocked = TT_OK;
    shared_store = client(TT_STORE_TORCH_2);
    tt_store_set_timeout_ms(shared_store, 30);
    assert_int_equal(pthread_create(&thread, NULL, wait_on_shared_store, key), 0);
    while (!blocked && tt__left_ms(deadline)) /* until the thread has begun to wait */
        blocked = tt_store_set(shared_store, "k", "v", 1);
    expect_error(blocked, TT_ERR_TIMEOUT, "another thread");
    assert_int_equal(tt_store_set(other, key, "v", 1), TT_OK);
    pthread_join(thread, &status);
    assert_null(status);
    assert_int_equal(tt_store_set(shared_store, "k", "v", 1), TT_OK);
    tt_store_free(shared_store);
    tt_store_free(other);
}

static void *meet_at_barrier(void *arg) {
    (void)arg;
    tt_store *store;
    tt_status status = tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server), .timeout_ms = PATIENCE_MS);
    if (!status)
        status = tt_store_barrier(store, "gate", THREADS, 0);
    tt_store_free(store);
    return (void *)(intptr_t)status;
}

static void clients_meet_at_a_barrier(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, meet_at_barrier, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *status;
        pthread_join(threads[i], &status);
        assert_null(status);
    }
}

static void a_server_that_stops_ends_its_clients(void **state) {
    (void)state;
    tt_store *store = client(TT_STORE_TORCH_2);
    tt_store_server_free(server);
    server = NULL;
    expect_error(tt_store_num_keys(store, &(int64_t){0}), TT_ERR_NET, "num_keys");
    tt_store_free(store);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_2),
        cmocka_unit_test(bytes_of_1_13),
        cmocka_unit_test(connecting_to_no_store),
        cmocka_unit_test(wrong_answers),
        cmocka_unit_test(bytes_that_nobody_asked_for),
        cmocka_unit_test(an_answer_that_crosses),
        cmocka_unit_test(nothing_interrupts_the_naming_of_missing_keys),
        cmocka_unit_test(workers_are_waited_for),
        SERVED(timeouts_name_what_is_missing),
        SERVED(after_a_timeout_1_13_is_unusable),
        SERVED(what_cannot_be_sent_is_refused),
        SERVED(arguments_of_tcp_store),
        SERVED(waits_are_released),
        SERVED(threads_share_a_store),
        SERVED(waiting_for_another_thread_has_a_deadline),
        SERVED(clients_meet_at_a_barrier),
        SERVED(a_server_that_stops_ends_its_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
