/* A stranger on the network who opens connections to a worker faster than they are given up, and holds them: workers
 * that come from elsewhere are let in all the same. */
#include "support/patience.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/message/message_parts.h"
#include "rpc/workers/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    HELD = 8000,      /* connections that the stranger has at a time */
    AT_ONCE = 100,    /* that it opens before each pause, */
    PAUSE_US = 50000, /* so 2,000 a second */
    FULL = 4000       /* after which there is no room for more */
};

static void *nothing_fits(void *user, int peer, size_t bytes) {
    (void)user;
    (void)peer;
    (void)bytes;
    return NULL;
}

static tt__rpc_network *join_named(tt_store *store, const char *name) {
    static const tt__packet_taker taker = {.room = nothing_fits};
    tt__rpc_network *network;
    assert_int_equal(
        tt__rpc_network_of_store(&network, &(tt_rpc_init_args){.name = name, .store = store, .heartbeat_ms = CALM_MS}),
        TT_OK);
    pthread_mutex_lock(network->lock);
    tt__messages_take_packets(network->messages, &taker, NULL);
    pthread_mutex_unlock(network->lock);
    return network;
}

static int port_of(const tt__rpc_network *network) {
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    assert_int_equal(getsockname(network->messages->listener, (struct sockaddr *)&at, &size), 0);
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&at)->sin6_port
                                          : ((struct sockaddr_in *)(void *)&at)->sin_port);
}

static void open_without_end(int port, int full) {
    static int fds[HELD];
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t i = 0;; i++) {
        int *fd = &fds[i % HELD];
        if (*fd > 0)
            close(*fd);
        *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(*fd, (const struct sockaddr *)&to, sizeof to);
        if (i == FULL && write(full, "", 1) != 1)
            _exit(1);
        if (i % AT_ONCE == AT_ONCE - 1)
            usleep(PAUSE_US);
    }
}

static void move(tt__rpc_network *network) {
    pthread_mutex_lock(network->lock);
    network->ops->sleep(network, 2);
    tt__messages_leave(network->messages);
    pthread_mutex_unlock(network->lock);
}

static void a_crowd_keeps_nobody_out(void **state) {
    struct rlimit files;
    int full[2];
    char byte;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    if (files.rlim_max < HELD + 100 || setrlimit(RLIMIT_NOFILE, &files))
        skip();
    tt_store *store;
    assert_int_equal(tt_hash_store(&store, PATIENCE_MS), TT_OK);
    tt__rpc_network *a = join_named(store, "a"), *b = join_named(store, "b");
    assert_int_equal(pipe2(full, O_NONBLOCK), 0);
    int port = port_of(a);
    pid_t stranger = fork();
    if (!stranger)
        open_without_end(port, full[1]);
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    while (read(full[0], &byte, 1) != 1 && tt__left_ms(deadline_ms))
        move(a);
    tt__rpc_reach result = TT__RPC_CONNECTING;
    while (result == TT__RPC_CONNECTING && tt__left_ms(deadline_ms)) {
        move(a);
        move(b);
        pthread_mutex_lock(b->lock);
        result = b->ops->reach(b, a->self);
        pthread_mutex_unlock(b->lock);
    }
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    if (result != TT__RPC_REACHED)
        fail_msg("%s", tt_last_error());
    close(full[0]);
    close(full[1]);
    a->ops->close(a, false);
    b->ops->close(b, false);
    tt_store_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_keeps_nobody_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
