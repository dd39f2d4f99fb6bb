/* The server over real sockets: recorded conversations, clients that misbehave, many clients. */
#include "support/patience.h"

#include "base/machine/clock.h"
#include "net/net.h"
#include "net/stream.h"
#include "store/server/renewal.h"
#include "store/signed.h"
#include "unit/store/store_transcript.h"

#include <tutti/store.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 500 };

static tt_store_server *server;

static int start(void **state) {
    (void)state;
    return tt_store_server_new(&server, "localhost", 0);
}

static int stop(void **state) {
    (void)state;
    tt_store_server_free(server);
    return 0;
}

static int raw_client(void) {
    int fd;
    assert_int_equal(tt__net_connect(&fd, "127.0.0.1", tt_store_server_port(server), tt__deadline_ms(PATIENCE_MS)),
                     TT_OK);
    return fd;
}

static void say(int fd, const char *text) {
    uint8_t bytes[TRANSCRIPT_MAX];
    size_t n = transcript_bytes(text, bytes);
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = fd}, bytes, n, tt__deadline_ms(PATIENCE_MS)), TT_OK);
}

static void hear(int fd, const char *text) {
    uint8_t expected[TRANSCRIPT_MAX], got[TRANSCRIPT_MAX];
    size_t n = transcript_bytes(text, expected);
    assert_int_equal(tt__stream_read_full(&(tt__stream){.fd = fd}, got, n, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    assert_memory_equal(got, expected, n);
}

static void hear_end(int fd) {
    uint8_t byte;
    size_t got = 1;
    assert_int_equal(tt__stream_read_some(&(tt__stream){.fd = fd}, &byte, 1, tt__deadline_ms(PATIENCE_MS), &got),
                     TT_OK);
    assert_int_equal(got, 0);
}

static void transcripts_are_met(void **state) {
    (void)state;
    for (int i = 0; i < TRANSCRIPTS; i++) {
        /* Strangers are shown out soon, not after the usual 10 s. */
        assert_int_equal(tt_store_server_new(&server, "localhost", 0, .proof_timeout_ms = 1000), TT_OK);
        int fd = raw_client();
        for (int j = 0; transcripts[i].lines[j]; j++) {
            const char *line = transcripts[i].lines[j];
            if (!strcmp(line, "< closed"))
                hear_end(fd);
            else if (*line == '<')
                hear(fd, line + 1);
            else
                say(fd, line + 1);
        }
        close(fd);
        stop(state);
    }
}

static void half_a_request_stalls_nobody(void **state) {
    (void)state;
    int half = raw_client(), silent = raw_client(), other = raw_client();
    say(half, "00 CE F7 85 3C 01 01 00*7 'k' 05 00*7 'he'");
    say(other, "00 CE F7 85 3C 07");
    hear(other, "00*8");
    say(half, "'llo' 03 01 00*7 'k'");
    hear(half, "05 00*7 'hello'");
    close(half);
    close(silent);
    close(other);
}

static char logged[1024];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_log(tt_log_level level, const char *line, void *user) {
    (void)level;
    (void)user;
    pthread_mutex_lock(&log_lock);
    snprintf(logged, sizeof logged, "%s", line);
    pthread_mutex_unlock(&log_lock);
}

static void bad_clients_are_closed_alone(void **state) {
    (void)state;
    static const char *const bad[] = {"FF", "00 11 22 33 44 55 66 77 88", "00 CE F7 85 3C 01 FF*8",
                                      "00 CE F7 85 3C 13"};
    tt_set_log(keep_log, NULL);
    assert_int_equal(start(state), 0);
    int good = raw_client(), waiting = raw_client();
    say(good, HELLO_SENT);
    hear(good, HELLO_HEARD);
    say(waiting, HELLO_SENT " 06 01 00*7 01 00*7 'k'");
    hear(waiting, HELLO_HEARD);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd = raw_client();
        say(fd, bad[i]);
        hear_end(fd);
        close(fd);
    }
    say(good, "01 01 00*7 'k' 00*8");
    hear(waiting, "00");
    pthread_mutex_lock(&log_lock);
    assert_non_null(strstr(logged, "unknown opcode 19"));
    assert_non_null(strstr(logged, "127.0.0.1:"));
    pthread_mutex_unlock(&log_lock);
    close(good);
    close(waiting);
    stop(state);
    tt_set_log(NULL, NULL);
}

static void a_waiting_client_may_die(void **state) {
    (void)state;
    int dying = raw_client(), other = raw_client();
    say(dying, HELLO_SENT " 06 01 00*7 01 00*7 'k'");
    hear(dying, HELLO_HEARD);
    close(dying);
    say(other, HELLO_SENT " 01 01 00*7 'k' 00*8 07");
    hear(other, HELLO_HEARD " 01 00*7");
    close(other);
}

/* 64 MiB of answers to a client that reads none of them, while another is served; then it reads them all. */
static void a_client_that_does_not_read(void **state) {
    (void)state;
    enum { SIZE = 1 << 20, TIMES = 64 };
    int lazy = raw_client(), other = raw_client();
    char *value = calloc(SIZE, 1);
    assert_non_null(value);
    say(lazy, HELLO_SENT " 01 01 00*7 'k' 00*2 10 00*5");
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = lazy}, value, SIZE, tt__deadline_ms(PATIENCE_MS)),
                     TT_OK);
    for (int i = 0; i < TIMES; i++)
        say(lazy, "03 01 00*7 'k'");
    say(other, HELLO_SENT " 07");
    hear(other, HELLO_HEARD);
    hear(lazy, HELLO_HEARD);
    for (int i = 0; i < TIMES; i++) {
        hear(lazy, "00*2 10 00*5");
        assert_int_equal(tt__stream_read_full(&(tt__stream){.fd = lazy}, value, SIZE, tt__deadline_ms(PATIENCE_MS)),
                         TT_OK);
    }
    free(value);
    close(lazy);
    close(other);
}

/* Requests that the server has not read don't turn its end into a reset. */
static void the_refused_see_an_end(void **state) {
    (void)state;
    enum { MORE = 1 << 20 };
    char *more = calloc(MORE, 1);
    assert_non_null(more);
    for (int i = 0; i < 20; i++) {
        int fd = raw_client();
        say(fd, HELLO_SENT " 01 01 00*7 'k' 00*8 07 FF");
        (void)tt__stream_write_full(&(tt__stream){.fd = fd}, more, MORE, tt__deadline_ms(PATIENCE_MS));
        hear(fd, HELLO_HEARD " 01 00*7"); /* what was earned before */
        hear_end(fd);
        close(fd);
    }
    free(more);
}

static void many_clients(void **state) {
    (void)state;
    static int fds[MANY];
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < MANY; i++) {
        fds[i] = raw_client();
        say(fds[i], i % 2 ? "05 01 00*7 01 00*7 'k'" : HELLO_SENT " 06 01 00*7 01 00*7 'k'");
    }
    for (int i = 0; i < MANY; i += 2)
        hear(fds[i], HELLO_HEARD);
    int setter = raw_client();
    say(setter, HELLO_SENT " 01 01 00*7 'k' 00*8");
    for (int i = 0; i < MANY; i++) {
        hear(fds[i], "00");
        close(fds[i]);
    }
    close(setter);
}

static void starting(void **state) {
    (void)state;
    tt_store_server *second = (tt_store_server *)&second;
    assert_int_equal(tt_store_server_new(&second, "localhost", tt_store_server_port(server)), TT_ERR_NET);
    assert_null(second);
    char where[32];
    snprintf(where, sizeof where, "localhost:%d", tt_store_server_port(server));
    assert_non_null(strstr(tt_last_error(), where));
    assert_non_null(strstr(tt_last_error(), "in use"));
    assert_int_equal(tt_store_server_new(&second, "192.0.2.1", 0), TT_ERR_NET);
    assert_int_equal(tt_store_server_new(&second, NULL, 0, .auth = TT_STORE_AUTH_REQUIRED, .secret = ""),
                     TT_ERR_INVALID);
    assert_int_equal(tt_store_server_new(&second, NULL, 0, .secret = "short"), TT_ERR_INVALID);
    assert_int_equal(tt_store_server_new(&second, NULL, 0, .auth = (tt_store_auth)3), TT_ERR_INVALID);
    assert_int_equal(tt_store_server_new(&second, NULL, 65536), TT_ERR_INVALID);
    assert_int_equal(tt_store_server_new(&second, NULL, -1), TT_ERR_INVALID);
    assert_int_equal(tt_store_server_new(NULL, NULL, 0), TT_ERR_INVALID);
    tt_store_server_free(NULL);
    /* a port just left can be taken again at once, clients or not */
    int fd = raw_client(), port = tt_store_server_port(server);
    stop(state);
    assert_int_equal(tt_store_server_new(&server, "localhost", port), TT_OK);
    close(fd);
}

static bool has_key(tt_store *store, const char *key) {
    bool there = false;
    assert_int_equal(tt_store_check(store, &key, 1, &there), TT_OK);
    return there;
}

/* Keys go, but those of the launchers; so do clients, but those that have set one. */
static void a_renewed_store_is_fresh(void **state) {
    (void)state;
    tt_store *launcher, *rank;
    int64_t count;
    int port = tt_store_server_port(server);
    assert_int_equal(tt_tcp_store(&launcher, "127.0.0.1", port, .timeout_ms = PATIENCE_MS), TT_OK);
    assert_int_equal(tt_tcp_store(&rank, "127.0.0.1", port, .timeout_ms = PATIENCE_MS), TT_OK);
    assert_int_equal(tt_store_set(launcher, "tutti/nodes/beat/0", "1", 1), TT_OK);
    assert_int_equal(tt_store_set(launcher, "tutti/ended/0", "1", 1), TT_OK);
    for (int i = 0; i < 200; i++) {
        char key[32];
        snprintf(key, sizeof key, "key %d", i);
        assert_int_equal(tt_store_set(rank, key, "1", 1), TT_OK);
    }
    int waiting = raw_client();
    say(waiting, HELLO_SENT " 0E 02 00*7 2F 71 01 00*7 61 06 01 00*7 08 00*7 '/missing'"); /* a queue; a wait */
    hear(waiting, HELLO_HEARD); /* so the server has read all of it */
    tt__store_server_renew(server);
    hear_end(waiting);
    close(waiting);
    assert_int_equal(tt_store_check(rank, (const char *const[]){"key 0"}, 1, &(bool){false}), TT_ERR_NET);
    tt_store_free(rank);
    assert_true(has_key(launcher, "tutti/nodes/beat/0"));
    assert_false(has_key(launcher, "tutti/ended/0"));
    assert_false(has_key(launcher, "key 0"));
    assert_false(has_key(launcher, "q"));
    assert_int_equal(tt_store_num_keys(launcher, &count), TT_OK);
    assert_int_equal(count, 1);
    assert_int_equal(tt_tcp_store(&rank, "127.0.0.1", port, .timeout_ms = PATIENCE_MS), TT_OK);
    assert_int_equal(tt_store_add(rank, "key 0", 1, &count), TT_OK);
    assert_int_equal(count, 1);
    tt_store_free(rank);
    tt_store_free(launcher);
}

/* What is signed counts in the life of a store that those who prove the secret learn of. */
static void renewals_begin_another_life(void **state) {
    (void)state;
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    tt_store_server *own = NULL;
    tt_store *stores[5], *prefixed = NULL;
    char lives[5][64];
    for (int i = 0; i < 5; i++) {
        if (i % 3 == 0) { /* 0 to 2: one server's, the last after a renewal; 3: another's; 4: who proves nothing */
            tt_store_server_free(own);
            assert_int_equal(tt_store_server_new(&own, NULL, 0, .secret = secret), TT_OK);
        }
        if (i == 2)
            tt__store_server_renew(own);
        assert_int_equal(tt_tcp_store(&stores[i], "127.0.0.1", tt_store_server_port(own),
                                      .secret = i == 4 ? "" : secret, .timeout_ms = PATIENCE_MS),
                         TT_OK);
        snprintf(lives[i], sizeof lives[i], "%s", tt__store_life(stores[i]));
        assert_int_equal(strlen(lives[i]), i == 4 ? 0 : 32);
        assert_int_equal(strlen(tt__store_lasting_life(stores[i])), i == 4 ? 0 : 16);
    }
    assert_string_equal(lives[0], lives[1]);
    assert_string_not_equal(lives[0], lives[2]);
    assert_string_equal(tt__store_lasting_life(stores[0]), tt__store_lasting_life(stores[2]));
    assert_string_not_equal(tt__store_lasting_life(stores[0]), tt__store_lasting_life(stores[3]));
    assert_int_equal(tt_prefix_store(&prefixed, "p", stores[3]), TT_OK);
    assert_string_equal(tt__store_life(prefixed), lives[3]);
    tt_store_free(prefixed);
    for (int i = 0; i < 5; i++)
        tt_store_free(stores[i]);
    tt_store_server_free(own);
}

/* Whether its connection has been accepted or not, its bytes read or not: nothing of a client from before is left. */
static void nothing_late_reaches_a_renewed_store(void **state) {
    (void)state;
    tt_store *launcher;
    assert_int_equal(tt_tcp_store(&launcher, "127.0.0.1", tt_store_server_port(server), .timeout_ms = PATIENCE_MS),
                     TT_OK);
    assert_int_equal(tt_store_set(launcher, "tutti/nodes/beat/0", "1", 1), TT_OK);
    for (int i = 0; i < 200; i++) {
        int clients[4];
        int64_t count;
        for (int k = 0; k < 4; k++) {
            clients[k] = raw_client();
            say(clients[k], HELLO_SENT " 01 02 00*7 2F 6B 02 00*7 76 76");
        }
        tt__store_server_renew(server);
        assert_int_equal(tt_store_num_keys(launcher, &count), TT_OK);
        assert_int_equal(count, 1);
        for (int k = 0; k < 4; k++)
            close(clients[k]);
    }
    tt_store_free(launcher);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transcripts_are_met),
        cmocka_unit_test(bad_clients_are_closed_alone),
        SERVED(half_a_request_stalls_nobody),
        SERVED(a_waiting_client_may_die),
        SERVED(a_client_that_does_not_read),
        SERVED(the_refused_see_an_end),
        SERVED(many_clients),
        SERVED(starting),
        SERVED(a_renewed_store_is_fresh),
        SERVED(nothing_late_reaches_a_renewed_store),
        cmocka_unit_test(renewals_begin_another_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
