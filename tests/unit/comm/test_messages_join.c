/* Joining ranks by TCP: several engines in one process, with strangers, addresses that lead nowhere, other jobs, and
 * TLS. */
#include "support/patience.h"

#include "base/machine/clock.h"
#include "comm/message/joining/joining.h"
#include "net/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* HEARTBEAT_MS: where silence is what is tested; who waits for a CPU is not silent for so long. */
enum { NODES = 4, LARGE = 3 << 20, HEARTBEAT_MS = 2500 };

typedef struct node {
    int rank, size;
    tt__messages *messages;
    pthread_mutex_t lock;
    int64_t patience_ms;
    int without; /* a rank that this one is not to be joined with; -1: none */
    char (*all)[TT__ADDRESSES_SIZE];
    pthread_t thread;
    tt_status status;
    char error[2048];
} node;

static char tokens[NODES][TT__ADDRESSES_SIZE];
static const char *const HOSTS[NODES] = {"a", "b", "c", "d"};
static node nodes[NODES];

static void make_watchful(int size, int64_t heartbeat_ms) {
    for (int r = 0; r < size; r++) {
        nodes[r] = (node){.rank = r, .size = size, .patience_ms = PATIENCE_MS, .without = -1, .all = tokens};
        pthread_mutex_init(&nodes[r].lock, NULL);
        const tt__messages_config config = {
            .rank = r, .size = size, .heartbeat_ms = heartbeat_ms, .lock = &nodes[r].lock, .hostnames = HOSTS};
        assert_int_equal(tt__messages_new(&nodes[r].messages, &config), TT_OK);
        assert_int_equal(tt__messages_listen(nodes[r].messages, true, tokens[r]), TT_OK);
    }
}

static void make(int size) { make_watchful(size, CALM_MS); }

static void *open_node(void *arg) {
    node *self = arg;
    const char *addresses[NODES];
    for (int r = 0; r < self->size; r++)
        addresses[r] = r == self->without ? NULL : self->all[r];
    self->status = tt__messages_open(self->messages, addresses, tt__deadline_ms(self->patience_ms));
    snprintf(self->error, sizeof self->error, "%s", tt_last_error());
    return NULL;
}

static void join_all(int size) {
    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_create(&nodes[r].thread, NULL, open_node, &nodes[r]), 0);
    for (int r = 0; r < size; r++)
        pthread_join(nodes[r].thread, NULL);
}

static void all_joined(int size) {
    for (int r = 0; r < size; r++)
        if (nodes[r].status)
            fail_msg("rank %d: %s", r, nodes[r].error);
}

static void unmake(int size) {
    for (int r = 0; r < size; r++) {
        tt__messages_close(nodes[r].messages, false);
        pthread_mutex_destroy(&nodes[r].lock);
    }
}

static void wait_for(int node, const tt__message *message) {
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    pthread_mutex_lock(&nodes[node].lock);
    while (!message->done) {
        tt__messages_wait(nodes[node].messages, 100);
        assert_true(tt__left_ms(deadline_ms));
    }
    pthread_mutex_unlock(&nodes[node].lock);
    assert_int_equal(message->status, TT_OK);
}

/* A message of `bytes` from rank `a` to rank `b`. */
static void pass(int a, int b, size_t bytes) {
    unsigned char *out = malloc(bytes), *in = calloc(1, bytes);
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(i * 3 + i / 1000);
    tt__message s = {.key = {.group = 1, .step = 4}, .peer = b, .data = out, .bytes = bytes}, r = s;
    r.peer = a;
    r.data = in;
    pthread_mutex_lock(&nodes[a].lock);
    tt__message_send(nodes[a].messages, &s);
    tt__messages_leave(nodes[a].messages);
    pthread_mutex_unlock(&nodes[a].lock);
    pthread_mutex_lock(&nodes[b].lock);
    tt__message_recv(nodes[b].messages, &r);
    pthread_mutex_unlock(&nodes[b].lock);
    wait_for(b, &r);
    wait_for(a, &s);
    assert_memory_equal(out, in, bytes);
    free(in);
    free(out);
}

static void all_pairs_are_joined(void **state) {
    (void)state;
    make(NODES);
    join_all(NODES);
    all_joined(NODES);
    for (int a = 0; a < NODES; a++)
        for (int b = 0; b < NODES; b++)
            if (a != b)
                pass(a, b, 100 + (size_t)a * 40000);
    unmake(NODES);
}

static int port_of(int rank) { return atoi(tokens[rank]); }

static int call(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* They call before the ranks do, so they are first in the queue: one that says nothing, one that talks nonsense, one
 * that begins well and stops, many that hang up. */
static void strangers_disturb_nobody(void **state) {
    (void)state;
    make(NODES);
    int silent = call(port_of(0)), nonsense = call(port_of(0)), half = call(port_of(0)), web = call(port_of(1));
    unsigned char garbage[4096];
    memset(garbage, 0xA7, sizeof garbage);
    assert_true(write(nonsense, garbage, sizeof garbage) > 0);
    assert_int_equal(write(half, "\xF5\x01\x01", 3), 3);
    assert_int_equal(write(web, "GET / HTTP/1.1\r\n\r\n", 18), 18);
    for (int i = 0; i < 100; i++)
        close(call(port_of(0)));
    int64_t start_ms = tt__now_ms();
    join_all(NODES);
    all_joined(NODES);
    assert_true(tt__now_ms() - start_ms < 4000 + leeway_ms());
    pass(3, 0, 1000);
    unmake(NODES);
    close(silent);
    close(nonsense);
    close(half);
    close(web);
}

static _Atomic int refusals;

static void count_refusals(tt_log_level level, const char *line, void *user) {
    (void)user;
    refusals += level == TT_LOG_WARNING && strstr(line, "refused");
}

/* More than rank 0 serves at a time; none of them says a word. They came first, so they go first, and fill no log. */
static void a_crowd_keeps_no_rank_out(void **state) {
    (void)state;
    enum { CROWD = 300 };
    static int crowd[CROWD];
    make(NODES);
    for (int i = 0; i < CROWD; i++)
        crowd[i] = call(port_of(0));
    refusals = 0;
    tt_set_log(count_refusals, NULL);
    int64_t start_ms = tt__now_ms();
    join_all(NODES);
    tt_set_log(NULL, NULL);
    all_joined(NODES);
    assert_true(tt__now_ms() - start_ms < 4000 + leeway_ms());
    assert_in_range(refusals, 2, CROWD / 6); /* some lines in ten seconds, however many those are on a busy machine */
    pass(3, 0, 1000);
    unmake(NODES);
    for (int i = 0; i < CROWD; i++)
        close(crowd[i]);
}

/* Put an address before the others of rank r: "4711/<number>/127.0.0.9,127.0.0.1". The port is everybody's. */
static void insert_address(int r, const char *address) {
    char rest[TT__ADDRESSES_SIZE], *list = strrchr(tokens[r], '/') + 1;
    snprintf(rest, sizeof rest, "%s", list);
    snprintf(list, (size_t)(tokens[r] + sizeof tokens[r] - list), "%s,%s", address, rest);
}

/* 127.0.0.9 is nobody's there but a listener that never answers: the next address is tried while it is silent. */
static void a_silent_address_does_not_hold_up_the_next(void **state) {
    (void)state;
    make(2);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port_of(0))};
    int mute = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, "127.0.0.9", &at.sin_addr);
    assert_int_equal(bind(mute, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(mute, 5), 0);
    insert_address(0, "127.0.0.9");
    insert_address(0, "127.0.0.8"); /* refused at once */
    int64_t start_ms = tt__now_ms();
    join_all(2);
    all_joined(2);
    assert_true(tt__now_ms() - start_ms < 5000 + leeway_ms());
    pass(0, 1, 100);
    unmake(2);
    close(mute);
}

static void who_cannot_be_reached_is_named_with_all_addresses(void **state) {
    (void)state;
    make(2);
    char *list = strrchr(tokens[0], '/') + 1;
    snprintf(list, (size_t)(tokens[0] + sizeof tokens[0] - list), "127.0.0.8,127.0.0.7");
    open_node(&nodes[1]);
    assert_int_equal(nodes[1].status, TT_ERR_NET);
    assert_non_null(strstr(nodes[1].error, "rank 1 (host b) can't reach rank 0 (host a)"));
    assert_non_null(strstr(nodes[1].error, "127.0.0.8"));
    assert_non_null(strstr(nodes[1].error, "127.0.0.7"));
    assert_non_null(strstr(nodes[1].error, "Connection refused"));
    unmake(2);
}

/* The kernel takes the call of a rank that is frozen, and then nothing comes. */
static void who_is_frozen_is_named_with_all_addresses(void **state) {
    (void)state;
    make(2);
    nodes[1].patience_ms = 1000;
    open_node(&nodes[1]);
    assert_int_equal(nodes[1].status, TT_ERR_TIMEOUT);
    assert_non_null(strstr(nodes[1].error, "rank 0 (host a) did not answer rank 1 (host b)"));
    char tried[64];
    snprintf(tried, sizeof tried, "127.0.0.1:%d (no answer)", atoi(tokens[0]));
    assert_non_null(strstr(nodes[1].error, tried));
    unmake(2);
}

static void begin(int r) { assert_int_equal(pthread_create(&nodes[r].thread, NULL, open_node, &nodes[r]), 0); }

static tt_status check(int a, int b) {
    pthread_mutex_lock(&nodes[a].lock);
    tt_status status = tt__link_check(nodes[a].messages, b);
    pthread_mutex_unlock(&nodes[a].lock);
    return status;
}

/* Rank 0 is through; ranks 1 and 2 wait for rank 3, for longer than anybody may be silent. */
static void who_still_joins_is_not_silent(void **state) {
    (void)state;
    make_watchful(NODES, HEARTBEAT_MS);
    nodes[0].without = 3;
    for (int r = 0; r < 3; r++)
        begin(r);
    pthread_join(nodes[0].thread, NULL);
    assert_int_equal(nodes[0].status, TT_OK);
    for (int64_t until = tt__deadline_ms(2 * HEARTBEAT_MS); tt__left_ms(until);) {
        assert_int_equal(check(0, 1), TT_OK);
        assert_int_equal(check(0, 2), TT_OK);
        poll(NULL, 0, 20);
    }
    nodes[3].without = 0;
    begin(3);
    for (int r = 1; r < NODES; r++)
        pthread_join(nodes[r].thread, NULL);
    all_joined(NODES);
    pass(3, 1, 1000);
    unmake(NODES);
}

/* Rank 2 is joined with the others and stands still then, while they wait for rank 3. */
static void who_freezes_meanwhile_is_named(void **state) {
    (void)state;
    make_watchful(NODES, HEARTBEAT_MS);
    nodes[2].without = 3;
    for (int r = 0; r < 3; r++)
        begin(r);
    pthread_join(nodes[2].thread, NULL);
    assert_int_equal(nodes[2].status, TT_OK);
    pthread_mutex_lock(&nodes[2].lock); /* its thread can't do anything */
    for (int r = 0; r < 2; r++) {
        pthread_join(nodes[r].thread, NULL);
        assert_int_equal(nodes[r].status, TT_ERR_PEER);
        assert_non_null(strstr(nodes[r].error, "rank 2 (host c"));
        assert_non_null(strstr(nodes[r].error, "has been silent for"));
    }
    pthread_mutex_unlock(&nodes[2].lock);
    unmake(NODES);
}

/* Rank 0 is through and rank 1 waits for rank 2, when rank 0's group is aborted by another, and rank 0 leaves. */
static void who_aborted_meanwhile_is_named(void **state) {
    (void)state;
    const char *why = "rank 7 aborted the group: because";
    make(3);
    nodes[0].without = 2;
    begin(0);
    begin(1);
    pthread_join(nodes[0].thread, NULL);
    assert_int_equal(nodes[0].status, TT_OK);
    pthread_mutex_lock(&nodes[0].lock);
    tt__news_send(nodes[0].messages, 0, (const int[]){0, 1}, 2, TT__NEWS_ABORTED, TT_ERR_ABORTED, 0, why);
    pthread_mutex_unlock(&nodes[0].lock);
    tt__messages_close(nodes[0].messages, false);
    assert_int_equal(tt__messages_new(&nodes[0].messages, &(tt__messages_config){.size = 3, .lock = &nodes[0].lock}),
                     TT_OK);
    pthread_join(nodes[1].thread, NULL);
    assert_int_equal(nodes[1].status, TT_ERR_ABORTED);
    assert_string_equal(nodes[1].error, why);
    unmake(3);
}

/* Ranks 0 and 1 are through and rank 2 waits for rank 3, when rank 0's group is aborted by another: rank 0 stays for
 * now, rank 1 leaves because of it. */
static void who_aborted_is_named_before_who_left(void **state) {
    (void)state;
    const char *why = "rank 7 aborted the group: because";
    make(NODES);
    for (int r = 0; r < 3; r++) {
        nodes[r].without = r < 2 ? 3 : -1;
        begin(r);
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(nodes[r].thread, NULL);
        assert_int_equal(nodes[r].status, TT_OK);
    }
    pthread_mutex_lock(&nodes[0].lock);
    tt__news_send(nodes[0].messages, 0, (const int[]){2}, 1, TT__NEWS_ABORTED, TT_ERR_ABORTED, 0, why);
    pthread_mutex_unlock(&nodes[0].lock);
    tt__messages_close(nodes[1].messages, false);
    assert_int_equal(
        tt__messages_new(&nodes[1].messages, &(tt__messages_config){.rank = 1, .size = 4, .lock = &nodes[1].lock}),
        TT_OK);
    pthread_join(nodes[2].thread, NULL);
    assert_int_equal(nodes[2].status, TT_ERR_ABORTED);
    assert_string_equal(nodes[2].error, why);
    unmake(NODES);
}

/* Rank 1 has read another store, so it knows another number. */
static void another_job_is_refused(void **state) {
    (void)state;
    static char wrong[NODES][TT__ADDRESSES_SIZE];
    make(2);
    memcpy(wrong, tokens, sizeof wrong);
    wrong[0][8] = wrong[0][8] == '0' ? '1' : '0';
    nodes[1].all = wrong;
    nodes[0].patience_ms = 2500;
    join_all(2);
    assert_int_equal(nodes[1].status, TT_ERR_AUTH);
    assert_non_null(strstr(nodes[1].error, "rank 1 (host b) can't reach rank 0 (host a)"));
    assert_int_equal(nodes[0].status, TT_ERR_NET);
    assert_non_null(strstr(nodes[0].error, "rank 1 (host b) did not call rank 0 (host a)"));
    unmake(2);
}

static void joined_by_tls(void **state) {
    (void)state;
    setenv("TT_SECRET", "0123456789abcdef0123456789abcdef", 1);
    for (int tls = 0; tls < 2; tls++) {
        setenv("TT_TLS", tls ? "1" : "0", 1);
        make(3);
        join_all(3);
        all_joined(3);
        pass(0, 1, 100);
        pass(2, 0, LARGE);
        pass(0, 2, LARGE);
        unmake(3);
    }
    unsetenv("TT_TLS");
    unsetenv("TT_SECRET");
}

/* Small and large messages to sockets that are always full, so that what waits to be written changes while TLS holds a
 * part of it. */
static void encrypted_messages_arrive_whole_through_small_sockets(void **state) {
    (void)state;
    enum { MANY = 300, MOST = 120000, UNDER_WAY = 5 };
    static tt__message s[MANY], r[MANY];
    unsigned char *out = malloc(MOST), *in = malloc((size_t)MANY * MOST);
    for (size_t i = 0; i < MOST; i++)
        out[i] = (unsigned char)(i * 7 + i / 999);
    setenv("TT_SECRET", "0123456789abcdef0123456789abcdef", 1);
    setenv("TT_TLS", "1", 1);
    make(2);
    join_all(2);
    all_joined(2);
    unsetenv("TT_TLS");
    unsetenv("TT_SECRET");
    for (int k = 0; k < 2; k++)
        setsockopt(nodes[k].messages->links[1 - k]->transport.stream.fd, SOL_SOCKET, SO_SNDBUF, &(int){4096},
                   sizeof(int));
    for (int i = 0; i < MANY; i++) {
        size_t bytes = i % 3 ? 100 + (size_t)i * 13 : 40000 + (size_t)i * 250;
        s[i] = (tt__message){.key = {.group = 1, .step = (uint32_t)i}, .peer = 1, .data = out, .bytes = bytes};
        r[i] = (tt__message){.key = s[i].key, .peer = 0, .data = in + (size_t)i * MOST, .bytes = bytes};
        if (i >= UNDER_WAY)
            wait_for(1, &r[i - UNDER_WAY]);
        pthread_mutex_lock(&nodes[0].lock);
        tt__message_send(nodes[0].messages, &s[i]);
        tt__messages_leave(nodes[0].messages);
        pthread_mutex_unlock(&nodes[0].lock);
        pthread_mutex_lock(&nodes[1].lock);
        tt__message_recv(nodes[1].messages, &r[i]);
        tt__messages_leave(nodes[1].messages);
        pthread_mutex_unlock(&nodes[1].lock);
    }
    for (int i = 0; i < MANY; i++) {
        wait_for(1, &r[i]);
        wait_for(0, &s[i]);
        assert_memory_equal(out, in + (size_t)i * MOST, r[i].bytes);
    }
    unmake(2);
    free(in);
    free(out);
}

static void names_of_interfaces_are_chosen(void **state) {
    (void)state;
    assert_true(tt__interface_passes(NULL, "eth0"));
    assert_true(tt__interface_passes("", "eth0"));
    assert_true(tt__interface_passes("eth", "eth0"));
    assert_false(tt__interface_passes("=eth", "eth0"));
    assert_true(tt__interface_passes("ib,=eth0", "eth0"));
    assert_false(tt__interface_passes("ib,=eth0", "eth00"));
    assert_true(tt__interface_passes("ib,=eth0", "ib7"));
    assert_true(tt__interface_passes("^docker", "eth0"));
    assert_false(tt__interface_passes("^docker", "docker0"));
    assert_true(tt__interface_passes("^=docker", "docker0"));
    assert_false(tt__interface_passes("eth,^=eth1", "eth1"));
    assert_true(tt__interface_passes("eth,^=eth1", "eth2"));
    assert_false(tt__interface_passes("eth,^=eth1", "lo"));
}

static void addresses_are_in_subnets(void **state) {
    (void)state;
    tt__interface four = {.prefix = 20}, six = {.prefix = 64};
    struct sockaddr_in *a = (struct sockaddr_in *)&four.address, in4 = {.sin_family = AF_INET};
    struct sockaddr_in6 *b = (struct sockaddr_in6 *)&six.address, in6 = {.sin6_family = AF_INET6};
    a->sin_family = AF_INET;
    b->sin6_family = AF_INET6;
    inet_pton(AF_INET, "10.1.16.5", &a->sin_addr);
    inet_pton(AF_INET6, "fd00:1::1", &b->sin6_addr);
    inet_pton(AF_INET, "10.1.31.200", &in4.sin_addr);
    assert_true(tt__interface_reaches(&four, (struct sockaddr *)&in4));
    assert_false(tt__interface_has(&four, (struct sockaddr *)&in4));
    inet_pton(AF_INET, "10.1.32.1", &in4.sin_addr);
    assert_false(tt__interface_reaches(&four, (struct sockaddr *)&in4));
    inet_pton(AF_INET6, "fd00:1::1", &in6.sin6_addr);
    assert_true(tt__interface_has(&six, (struct sockaddr *)&in6));
    assert_false(tt__interface_reaches(&four, (struct sockaddr *)&in6));
    inet_pton(AF_INET6, "fd00:1:0:1::1", &in6.sin6_addr);
    assert_false(tt__interface_reaches(&six, (struct sockaddr *)&in6));
}

/* Descriptions that other ranks write into the store are not trusted to be right. */
static void broken_descriptions_are_errors(void **state) {
    (void)state;
    static const char *const broken[] = {"",         "x",      "0/00112233445566778899aabbccddeeff/1.2.3.4",
                                         "4711",     "4711/",  "70000/00112233445566778899aabbccddeeff/1.2.3.4",
                                         "4711/00/", "-1/00/", "4711/0011223344556677zz99aabbccddeeff/1.2.3.4"};
    tt__target target = {.rank = 3};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_int_equal(tt__addresses_read(broken[i], &target), TT_ERR_PROTOCOL);
    assert_int_equal(tt__addresses_read("4711/00112233445566778899aabbccddeeff/1.2.3.4,nonsense,fd00::2", &target),
                     TT_OK);
    assert_int_equal(target.count, 2);
    assert_int_equal(target.job[1], 0x11);
    assert_string_equal(target.candidates[0].text, "1.2.3.4:4711");
    assert_string_equal(target.candidates[1].text, "[fd00::2]:4711");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs_are_joined),
        cmocka_unit_test(strangers_disturb_nobody),
        cmocka_unit_test(a_crowd_keeps_no_rank_out),
        cmocka_unit_test(a_silent_address_does_not_hold_up_the_next),
        cmocka_unit_test(who_cannot_be_reached_is_named_with_all_addresses),
        cmocka_unit_test(who_is_frozen_is_named_with_all_addresses),
        cmocka_unit_test(who_still_joins_is_not_silent),
        cmocka_unit_test(who_freezes_meanwhile_is_named),
        cmocka_unit_test(who_aborted_meanwhile_is_named),
        cmocka_unit_test(who_aborted_is_named_before_who_left),
        cmocka_unit_test(another_job_is_refused),
        cmocka_unit_test(joined_by_tls),
        cmocka_unit_test(encrypted_messages_arrive_whole_through_small_sockets),
        cmocka_unit_test(names_of_interfaces_are_chosen),
        cmocka_unit_test(addresses_are_in_subnets),
        cmocka_unit_test(broken_descriptions_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
