/* The lab of "hosts" that other tests stand on (support/netlab.h): hosts reach each other over IPv4 and IPv6, share no
 * network name space, are cut off and come back, and send no faster than told. */
#include "support/netlab.h"
#include "support/ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <time.h>

enum { PORT = 4000, SLOW_BYTES = 1 << 20 };

static netlab lab;

static int open_lab(void **state) {
    (void)state;
    const char *why = netlab_open(&lab, 4);
    if (why) {
        fprintf(stderr, "skipped: %s\n", why);
        exit(77);
    }
    return 0;
}

static int close_lab(void **state) {
    (void)state;
    netlab_close(&lab);
    return 0;
}

/* A socket made in host h: sockets stay where they were made. */
static int socket_in(int h, int family, int type) {
    assert_int_equal(setns(lab.space[h], CLONE_NEWNET), 0);
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
    assert_int_equal(setns(lab.lab, CLONE_NEWNET), 0);
    assert_true(fd >= 0);
    return fd;
}

static socklen_t address_of(int h, int family, struct sockaddr_storage *address) {
    char text[32];
    memset(address, 0, sizeof *address);
    if (family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)address;
        *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
        snprintf(text, sizeof text, "10.77.0.%d", h + 1);
        assert_int_equal(inet_pton(AF_INET, text, &v4->sin_addr), 1);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
    snprintf(text, sizeof text, "fd77::%d", h + 1);
    assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    return sizeof *v6;
}

static void join_sockets(int from, int to, int family, int ends[2]) {
    struct sockaddr_storage address;
    int on = 1, listener = socket_in(to, family, SOCK_STREAM);
    socklen_t size = address_of(to, family, &address);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    ends[0] = socket_in(from, family, SOCK_STREAM);
    assert_int_equal(connect(ends[0], (struct sockaddr *)&address, size), 0);
    ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(ends[1] >= 0);
    close(listener);
}

static bool arrives(int ends[2], int timeout_ms) {
    char byte = 'x';
    assert_int_equal(send(ends[0], &byte, 1, MSG_NOSIGNAL), 1);
    return poll(&(struct pollfd){.fd = ends[1], .events = POLLIN}, 1, timeout_ms) == 1 && read(ends[1], &byte, 1) == 1;
}

static void hosts_reach_each_other(void **state) {
    (void)state;
    for (int h = 0; h < lab.hosts; h++)
        for (int family = 0; family < 2; family++) {
            int ends[2];
            join_sockets(h, (h + 1) % lab.hosts, family ? AF_INET6 : AF_INET, ends);
            assert_true(arrives(ends, PATIENCE_MS));
            close(ends[0]);
            close(ends[1]);
        }
}

static void a_cut_host_is_silent_until_it_is_back(void **state) {
    (void)state;
    int ends[2], others[2];
    join_sockets(0, 1, AF_INET, ends);
    join_sockets(2, 3, AF_INET, others);
    assert_true(netlab_link(&lab, 1, false));
    assert_false(arrives(ends, 100));
    assert_true(arrives(others, PATIENCE_MS));
    assert_true(netlab_link(&lab, 1, true));
    assert_int_equal(poll(&(struct pollfd){.fd = ends[1], .events = POLLIN}, 1, PATIENCE_MS), 1);
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(others[i]);
    }
}

static void ranks_live_on_hosts(void **state) {
    (void)state;
    int status;
    pid_t pid = fork();
    if (!pid) {
        char name[16] = "";
        if (!netlab_enter(&lab, 2) || gethostname(name, sizeof name) || strcmp(name, "host2") != 0)
            _exit(1);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* 1 MiB at 32 Mbit/s takes 260 ms, less the bucket of 256 KiB: 195 ms. */
static void a_rate_is_kept(void **state) {
    (void)state;
    int ends[2];
    char *buf = calloc(1, SLOW_BYTES);
    struct timespec start, end;
    if (!netlab_rate(&lab, 0, "32mbit")) {
        print_message("skipped: this kernel has no tbf\n");
        free(buf);
        skip();
    }
    join_sockets(0, 1, AF_INET, ends);
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!fork())
        _exit(send(ends[0], buf, SLOW_BYTES, MSG_NOSIGNAL) != SLOW_BYTES);
    assert_int_equal(recv(ends[1], buf, SLOW_BYTES, MSG_WAITALL), SLOW_BYTES);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true((double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec) > 0.18);
    assert_true(wait(NULL) > 0);
    close(ends[0]);
    close(ends[1]);
    free(buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_reach_each_other),
        cmocka_unit_test(a_cut_host_is_silent_until_it_is_back),
        cmocka_unit_test(ranks_live_on_hosts),
        cmocka_unit_test(a_rate_is_kept),
    };
    return cmocka_run_group_tests(tests, open_lab, close_lab);
}
