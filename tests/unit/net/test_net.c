/* Sockets with deadlines. */
#include "support/own_network.h"
#include "support/patience.h"

#include "base/machine/clock.h"
#include "net/net.h"
#include "net/stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int pair[2];

static int make_pair(void **state) {
    (void)state;
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

static int close_pair(void **state) {
    (void)state;
    close(pair[0]);
    if (pair[1] >= 0)
        close(pair[1]);
    return 0;
}

static char text[] = "one byte at a time, and none is lost";

static void *write_bytes(void *arg) {
    (void)arg;
    for (size_t i = 0; i < sizeof text; i++) {
        if (write(pair[1], &text[i], 1) != 1)
            break;
        sched_yield();
    }
    return NULL;
}

static void whole_reads_of_single_bytes(void **state) {
    (void)state;
    pthread_t writer;
    char got[sizeof text];
    assert_int_equal(pthread_create(&writer, NULL, write_bytes, NULL), 0);
    assert_int_equal(tt__stream_read_full(&(tt__stream){.fd = pair[0]}, got, sizeof got, tt__deadline_ms(PATIENCE_MS)),
                     TT_OK);
    assert_memory_equal(got, text, sizeof text);
    pthread_join(writer, NULL);
}

enum { LARGE = 1 << 20 };
static unsigned char sent[LARGE], received[LARGE];

/* Odd small chunks, so that the writer blocks and goes on many times. */
static void *read_slowly(void *arg) {
    (void)arg;
    size_t done = 0;
    for (ssize_t n; done < LARGE && (n = read(pair[1], received + done, LARGE - done < 997 ? LARGE - done : 997)) > 0;)
        done += (size_t)n;
    return NULL;
}

static void whole_writes_to_a_slow_reader(void **state) {
    (void)state;
    pthread_t reader;
    for (size_t i = 0; i < LARGE; i++)
        sent[i] = (unsigned char)(i * 31 + i / 257);
    assert_int_equal(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_slowly, NULL), 0);
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = pair[0]}, sent, LARGE, tt__deadline_ms(PATIENCE_MS)),
                     TT_OK);
    pthread_join(reader, NULL);
    assert_memory_equal(sent, received, LARGE);
}

static void deadlines_hold(void **state) {
    (void)state;
    char byte;
    int64_t start = tt__now_ms();
    assert_int_equal(tt__stream_read_full(&(tt__stream){.fd = pair[0]}, &byte, 1, tt__deadline_ms(30)), TT_ERR_TIMEOUT);
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = pair[0]}, sent, LARGE, tt__deadline_ms(30)),
                     TT_ERR_TIMEOUT);
    int64_t took = tt__now_ms() - start;
    assert_true(took >= 60 && took < PATIENCE_MS);
}

static void an_end_is_told(void **state) {
    (void)state;
    char bytes[4];
    size_t got = 1;
    assert_int_equal(write(pair[1], "ab", 2), 2);
    close(pair[1]);
    pair[1] = -1;
    assert_int_equal(tt__stream_read_full(&(tt__stream){.fd = pair[0]}, bytes, 4, tt__deadline_ms(PATIENCE_MS)),
                     TT_ERR_NET);
    assert_non_null(strstr(tt_last_error(), "after 2 of 4 bytes"));
    assert_int_equal(tt__stream_read_some(&(tt__stream){.fd = pair[0]}, bytes, 4, tt__deadline_ms(PATIENCE_MS), &got),
                     TT_OK);
    assert_int_equal(got, 0);
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = pair[0]}, "x", 1, tt__deadline_ms(PATIENCE_MS)),
                     TT_ERR_NET); /* and no SIGPIPE */
}

/* A port that nobody listens on, kept from others by a socket bound to it. */
static int deaf_port(int *holder) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    *holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*holder, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(*holder, (struct sockaddr *)&at, &size), 0);
    return ntohs(at.sin_port);
}

static void waits_are_interrupted(void **state) {
    (void)state;
    char byte;
    int news[2], holder, fd, port = deaf_port(&holder);
    tt__stream stream = {.fd = pair[0]};
    assert_int_equal(pipe(news), 0);
    tt__net_interrupt_by(news[0], "there is news");
    assert_int_equal(write(pair[1], "a", 1), 1);
    assert_int_equal(tt__stream_read_full(&stream, &byte, 1, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    assert_int_equal(tt__stream_read_full(&stream, &byte, 1, tt__deadline_ms(1)), TT_ERR_TIMEOUT);
    assert_int_equal(write(news[1], "n", 1), 1);
    assert_int_equal(tt__stream_read_full(&stream, &byte, 1, tt__deadline_ms(PATIENCE_MS)), TT_ERR_ABORTED);
    assert_string_equal(tt_last_error(), "there is news");
    assert_int_equal(tt__stream_write_full(&stream, sent, LARGE, tt__deadline_ms(PATIENCE_MS)), TT_ERR_ABORTED);
    assert_int_equal(tt__net_connect(&fd, "127.0.0.1", port, tt__deadline_ms(PATIENCE_MS)), TT_ERR_ABORTED);
    tt__net_interrupt_suspend();
    tt__net_interrupt_suspend();
    tt__net_interrupt_resume();
    assert_int_equal(tt__stream_read_full(&stream, &byte, 1, tt__deadline_ms(1)), TT_ERR_TIMEOUT);
    tt__net_interrupt_resume();
    assert_int_equal(tt__stream_read_full(&stream, &byte, 1, tt__deadline_ms(PATIENCE_MS)), TT_ERR_ABORTED);
    tt__net_interrupt_by(-1, NULL);
    assert_int_equal(tt__net_connect(&fd, "127.0.0.1", port, tt__deadline_ms(1)), TT_ERR_TIMEOUT);
    assert_non_null(strstr(tt_last_error(), "Connection refused"));
    close(news[0]);
    close(news[1]);
    close(holder);
}

static void connecting_gives_up_in_time(void **state) {
    (void)state;
    int holder, fd, port = deaf_port(&holder);
    int64_t start = tt__now_ms();
    assert_int_equal(tt__net_connect(&fd, "127.0.0.1", port, tt__deadline_ms(50)), TT_ERR_TIMEOUT);
    assert_true(tt__now_ms() - start < PATIENCE_MS);
    char where[32];
    snprintf(where, sizeof where, "127.0.0.1:%d", port);
    assert_non_null(strstr(tt_last_error(), where));
    assert_non_null(strstr(tt_last_error(), "refused"));
    assert_int_equal(tt__net_connect(&fd, "no-such-host.invalid", 1, tt__deadline_ms(20)), TT_ERR_TIMEOUT);
    assert_non_null(strstr(tt_last_error(), "no-such-host.invalid:1"));
    close(holder);
}

static int warnings;
static char last_warning[512];

static void keep_warning(tt_log_level level, const char *line, void *user) {
    (void)user;
    warnings += level == TT_LOG_WARNING;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

/* Whoever waits long for a wrong address can see in the log which and why, whether it refuses, has no name, or takes no
 * connection. */
static void a_long_wait_is_told(void **state) {
    (void)state;
    int holder, fd, port = deaf_port(&holder), full = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    tt_set_log(keep_warning, NULL);
    assert_int_equal(tt__net_connect_warning(&fd, "127.0.0.1", port, tt__deadline_ms(1500), 50, 50), TT_ERR_TIMEOUT);
    assert_true(warnings >= 2);
    assert_non_null(strstr(last_warning, "refused"));
    warnings = 0;
    assert_int_equal(tt__net_connect_warning(&fd, "no-such-host.invalid", 7, tt__deadline_ms(300), 0, 60000),
                     TT_ERR_TIMEOUT);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "no-such-host.invalid:7"));
    /* A backlog that is full: connecting neither succeeds nor fails. */
    assert_int_equal(bind(full, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(full, 0), 0);
    assert_int_equal(getsockname(full, (struct sockaddr *)&at, &size), 0);
    int taken[2] = {-1, -1};
    tt_status status = TT_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = tt__net_connect(&taken[i], "127.0.0.1", ntohs(at.sin_port), tt__deadline_ms(300));
    warnings = 0;
    assert_int_equal(tt__net_connect_warning(&fd, "127.0.0.1", ntohs(at.sin_port), tt__deadline_ms(1500), 20, 60000),
                     TT_ERR_TIMEOUT);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "no answer"));
    tt_set_log(NULL, NULL);
    for (int i = 0; i < 2; i++)
        if (taken[i] >= 0)
            close(taken[i]);
    close(full);
    close(holder);
}

static bool connecting_tells_of_the_loopback(void) {
    int fd;
    return tt__net_connect(&fd, "127.0.0.1", 1, tt__deadline_ms(600000)) == TT_ERR_NET &&
           strstr(tt_last_error(), "127.0.0.1:1") && strstr(tt_last_error(), "ip link set lo up");
}

static void a_loopback_that_is_down_is_told_at_once(void **state) {
    (void)state;
    assert_in_own_network(connecting_tells_of_the_loopback);
}

static void *listen_late(void *arg) {
    while (tt__now_ms() < *(int64_t *)arg)
        sched_yield();
    listen(pair[0], 8);
    return NULL;
}

static void connecting_waits_for_a_late_listener(void **state) {
    (void)state;
    int fd, port = deaf_port(&pair[0]);
    pthread_t late;
    int64_t when = tt__deadline_ms(40);
    assert_int_equal(pthread_create(&late, NULL, listen_late, &when), 0);
    assert_int_equal(tt__net_connect(&fd, "localhost", port, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    pthread_join(late, NULL);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    close(pair[0]);
}

static void listening(void **state) {
    (void)state;
    int fds[4], more[4], port, fd;
    size_t n, m;
    assert_int_equal(tt__net_listen("localhost", 0, fds, 4, &n, &port), TT_OK);
    assert_true(n >= 1 && port > 0);
    assert_int_equal(tt__net_connect(&fd, "localhost", port, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    close(fd);
    assert_int_equal(tt__net_listen("localhost", port, more, 4, &m, &port), TT_ERR_NET);
    assert_non_null(strstr(tt_last_error(), "port is in use"));
    assert_int_equal(m, 0);
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    assert_int_equal(tt__net_listen("192.0.2.1", 0, more, 4, &m, &port), TT_ERR_NET);
    assert_int_equal(tt__net_listen("0.0.0.0", 0, more, 4, &m, &port), TT_OK);
    assert_int_equal(m, 1);
    close(more[0]);
    assert_int_equal(tt__net_listen("no-such-host.invalid", 0, more, 4, &m, &port), TT_ERR_NET);
}

/* Where the machine's own name means loopback on the machine, other machines still have to reach what is served under
 * it. */
static void listening_on_ones_own_name(void **state) {
    (void)state;
    char name[256] = "";
    struct addrinfo *list = NULL;
    bool is_loopback = true;
    assert_int_equal(gethostname(name, sizeof name - 1), 0);
    if (strstr(name, "localhost") || tt__net_resolve(name, NULL, 0, &list)) {
        print_message("this machine's name has no address\n");
        skip();
    }
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        is_loopback = is_loopback && tt__net_is_loopback(a->ai_addr);
    freeaddrinfo(list);
    int fds[4], port;
    size_t n;
    assert_int_equal(tt__net_listen(name, 0, fds, 4, &n, &port), TT_OK);
    for (size_t i = 0; i < n; i++) {
        struct sockaddr_in6 at = {0};
        socklen_t size = sizeof at;
        char text_of_any[TT__NET_ADDRESS_SIZE], shown[TT__NET_ADDRESS_SIZE];
        assert_int_equal(getsockname(fds[i], (struct sockaddr *)&at, &size), 0);
        tt__net_address_text((struct sockaddr *)&at, shown);
        snprintf(text_of_any, sizeof text_of_any, at.sin6_family == AF_INET6 ? "[::]:%d" : "0.0.0.0:%d", port);
        assert_int_equal(strcmp(shown, text_of_any) == 0, is_loopback);
        close(fds[i]);
    }
}

static bool loopback(int family, const char *address, const char *expected) {
    struct sockaddr_storage at = {.ss_family = (sa_family_t)family};
    void *raw = family == AF_INET ? (void *)&((struct sockaddr_in *)&at)->sin_addr
                                  : (void *)&((struct sockaddr_in6 *)&at)->sin6_addr;
    char shown[TT__NET_ADDRESS_SIZE];
    assert_int_equal(inet_pton(family, address, raw), 1);
    tt__net_address_text((struct sockaddr *)&at, shown);
    assert_string_equal(shown, expected);
    return tt__net_is_loopback((struct sockaddr *)&at);
}

static void loopback_addresses(void **state) {
    (void)state;
    assert_true(loopback(AF_INET, "127.0.0.1", "127.0.0.1:0"));
    assert_true(loopback(AF_INET, "127.255.3.4", "127.255.3.4:0"));
    assert_false(loopback(AF_INET, "128.0.0.1", "128.0.0.1:0"));
    assert_false(loopback(AF_INET, "10.0.0.127", "10.0.0.127:0"));
    assert_true(loopback(AF_INET6, "::1", "[::1]:0"));
    assert_true(loopback(AF_INET6, "::ffff:127.0.0.1", "[::ffff:127.0.0.1]:0"));
    assert_false(loopback(AF_INET6, "::ffff:10.0.0.1", "[::ffff:10.0.0.1]:0"));
    assert_false(loopback(AF_INET6, "fe80::1", "[fe80::1]:0"));
    char endpoint[TT__NET_ENDPOINT_SIZE];
    tt__net_endpoint_text("localhost", 1, endpoint);
    assert_string_equal(endpoint, "localhost:1");
    tt__net_endpoint_text("::1", 29500, endpoint);
    assert_string_equal(endpoint, "[::1]:29500");
    struct sockaddr other = {.sa_family = AF_UNIX};
    assert_false(tt__net_is_loopback(&other));
}

static void endpoints_are_split(void **state) {
    (void)state;
    static const struct {
        const char *text, *host, *port; /* host NULL: it is none */
    } cases[] = {
        {"node0:29500", "node0", "29500"},
        {"node0", "node0", NULL},
        {"10.0.0.2:1", "10.0.0.2", "1"},
        {"[::1]:29500", "::1", "29500"},
        {"[::1]", "::1", NULL},
        {"::1", "::1", NULL},
        {"::1:29500", "::1", "29500"},
        {"fd00::2:1", "fd00::2:1", NULL},
        {"fe80::1%eth0", "fe80::1%eth0", NULL},
        {"::ffff:127.0.0.1", "::ffff:127.0.0.1", NULL},
        {"node0:", "node0", ""},
        {":29500", NULL, NULL},
        {"", NULL, NULL},
        {"a:b:1", NULL, NULL},
        {"[::1", NULL, NULL},
        {"[]:1", NULL, NULL},
        {"[::1]1", NULL, NULL},
        {"a-name-that-is-too-long-for-it:1", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char host[24];
        const char *port = NULL;
        assert_int_equal(tt__net_split_endpoint(cases[i].text, host, sizeof host, &port), cases[i].host != NULL);
        if (!cases[i].host)
            continue;
        assert_string_equal(host, cases[i].host);
        assert_string_equal(port ? port : "none", cases[i].port ? cases[i].port : "none");
    }
}

/* From here on the process may not look at a socket's options. */
static void forbid_getsockopt(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(77);
}

/* It was tried again until the deadline, of half an hour. */
static void what_a_sandbox_forbids_is_told_at_once(void **state) {
    (void)state;
    int listener, port, status;
    size_t n;
    assert_int_equal(tt__net_listen("127.0.0.1", 0, &listener, 1, &n, &port), TT_OK);
    pid_t child = fork();
    if (!child) {
        int fd;
        forbid_getsockopt();
        bool told = tt__net_connect(&fd, "127.0.0.1", port, tt__deadline_ms(10 * PATIENCE_MS)) == TT_ERR_SYSTEM &&
                    strstr(tt_last_error(), ": getsockopt: Operation not permitted: a sandbox (seccomp)");
        _exit(told ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(status == 0 || status == 77 << 8);
    close(listener);
}

static void a_mapped_address_is_served(void **state) {
    (void)state;
    int listener, fd, port;
    size_t n;
    assert_int_equal(tt__net_listen("::ffff:127.0.0.1", 0, &listener, 1, &n, &port), TT_OK);
    assert_int_equal(tt__net_connect(&fd, "[::ffff:127.0.0.1]", port, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    close(fd);
    close(listener);
}

#define PAIR(test) cmocka_unit_test_setup_teardown(test, make_pair, close_pair)

int main(void) {
    const struct CMUnitTest tests[] = {
        PAIR(whole_reads_of_single_bytes),
        PAIR(whole_writes_to_a_slow_reader),
        PAIR(deadlines_hold),
        PAIR(an_end_is_told),
        PAIR(waits_are_interrupted),
        cmocka_unit_test(connecting_gives_up_in_time),
        cmocka_unit_test(a_long_wait_is_told),
        cmocka_unit_test(a_loopback_that_is_down_is_told_at_once),
        cmocka_unit_test(connecting_waits_for_a_late_listener),
        cmocka_unit_test(listening),
        cmocka_unit_test(listening_on_ones_own_name),
        cmocka_unit_test(loopback_addresses),
        cmocka_unit_test(endpoints_are_split),
        cmocka_unit_test(a_mapped_address_is_served),
        cmocka_unit_test(what_a_sandbox_forbids_is_told_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
