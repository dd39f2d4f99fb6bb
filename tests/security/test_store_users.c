/* The store and the other users of its machine: --store-auth local means the job's own user (and root), as
 * docs/security.md says. */
#include "support/patience.h"

#include "security/other_user.h"

#include "base/machine/clock.h"
#include "launch/local/snapshot.c" /* the command's alone, in no library */
#include "net/net.h"
#include "net/secure/peer_user.h"
#include "net/stream.h"

#include <tutti/store.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- clients, in processes of some user */

typedef struct target {
    const char *host;
    int port;
    const char *secret; /* NULL: PyTorch's dialect */
} target;

static const uint8_t torch_hello[] = {0, 0xCE, 0xF7, 0x85, 0x3C, 0x0D, 1, 2, 3, 4};

/* PyTorch's hello. 0: it was answered; 1: an end came, without an answer; 2: something else, as a reset. */
static int say_hello(void *arg) {
    const target *t = arg;
    uint8_t echo[4] = {0};
    size_t got = 0;
    int fd;
    if (tt__net_connect(&fd, t->host, t->port, tt__deadline_ms(PATIENCE_MS)))
        return 90;
    tt__stream stream = {.fd = fd};
    if (tt__stream_write_full(&stream, torch_hello, sizeof torch_hello, tt__deadline_ms(PATIENCE_MS)))
        return 2;
    if (tt__stream_read_some(&stream, echo, sizeof echo, tt__deadline_ms(PATIENCE_MS), &got))
        return 2;
    return got == 4 && !memcmp(echo, torch_hello + 6, 4) ? 0 : got ? 2 : 1;
}

/* Sends a request and closes at once, so that nobody owns the socket any more when the server looks. */
static int set_and_vanish(void *arg) {
    static const char set[] = "\x00\xCE\xF7\x85\x3C\x01\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v";
    const target *t = arg;
    int fd;
    if (tt__net_connect(&fd, t->host, t->port, tt__deadline_ms(PATIENCE_MS)))
        return 90;
    (void)!write(fd, set, sizeof set - 1);
    close(fd);
    return 0;
}

static int use_as_tutti(void *arg) {
    const target *t = arg;
    tt_store *store;
    int64_t n;
    setenv("TT_SECRET", "", 1);
    tt_status status = tt_tcp_store(&store, t->host, t->port, .secret = t->secret, .timeout_ms = PATIENCE_MS);
    if (!status)
        status = tt_store_add(store, "joined", 1, &n);
    tt_store_free(store);
    return (int)status;
}

/* ---- the server, which belongs to the user of `owner` */

typedef struct service {
    uid_t owner;
    tt_store_auth auth;
    const char *host, *secret;
    rlim_t descriptors; /* 0: as many as usual */
    int port[2], end[2];
} service;

static void to_stderr(tt_log_level level, const char *line, void *user) {
    (void)level;
    (void)user;
    dprintf(STDERR_FILENO, "%s\n", line);
}

static int serve(void *arg) {
    service *s = arg;
    tt_store_server *server;
    char byte;
    close(s->end[1]);
    if (s->descriptors && setrlimit(RLIMIT_NOFILE, &(struct rlimit){s->descriptors, s->descriptors}))
        return 93;
    tt_set_log(to_stderr, NULL);
    if (tt_store_server_new(&server, s->host, 0, .auth = s->auth, .secret = s->secret, .proof_timeout_ms = 500))
        return 91;
    int port = tt_store_server_port(server);
    if (write(s->port[1], &port, sizeof port) != sizeof port)
        return 92;
    while (read(s->end[0], &byte, 1) < 0)
        ;
    tt_store_server_free(server);
    return 0;
}

static pid_t start_service(service *s, target *t) {
    assert_int_equal(pipe(s->port) | pipe(s->end), 0);
    pid_t pid = start_as_user(s->owner, serve, s);
    close(s->end[0]);
    *t = (target){.host = s->host ? s->host : "127.0.0.1"};
    assert_int_equal(read(s->port[0], &t->port, sizeof t->port), sizeof t->port);
    return pid;
}

static void end_service(service *s, pid_t pid) {
    close(s->end[1]);
    assert_int_equal(end_of_process(pid), 0);
    close(s->port[0]);
    close(s->port[1]);
}

static void local_is_the_owner_and_root(void **state) {
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.9", "::1"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        service s = {
            .owner = STRANGER, .auth = TT_STORE_AUTH_LOCAL, .host = hosts[i], .secret = "sixteen bytes, or more"};
        target t;
        pid_t pid = start_service(&s, &t);
        assert_int_equal(run_as_user(STRANGER, say_hello, &t), 0);
        assert_int_equal(run_as_user(0, say_hello, &t), 0);
        assert_int_equal(run_as_user(OTHER_STRANGER, say_hello, &t), 1);
        t.secret = s.secret;
        assert_int_equal(run_as_user(OTHER_STRANGER, use_as_tutti, &t), TT_OK); /* it has the secret */
        end_service(&s, pid);
    }
}

static void strangers_are_refused_who_vanish(void **state) {
    (void)state;
    service s = {.owner = STRANGER, .auth = TT_STORE_AUTH_LOCAL, .secret = ""};
    target t;
    pid_t pid = start_service(&s, &t);
    for (int i = 0; i < 50; i++)
        assert_int_equal(run_as_user(OTHER_STRANGER, set_and_vanish, &t), 0);
    tt_store *store;
    const char *keys[] = {"k"};
    bool there = true;
    assert_int_equal(tt_tcp_store(&store, t.host, t.port, .secret = "", .timeout_ms = PATIENCE_MS), TT_OK);
    assert_int_equal(tt_store_check(store, keys, 1, &there), TT_OK);
    assert_false(there);
    tt_store_free(store);
    end_service(&s, pid);
}

static void without_a_secret_the_owner_alone_is_served(void **state) {
    (void)state;
    service s = {.owner = STRANGER, .auth = TT_STORE_AUTH_LOCAL, .secret = ""};
    target t;
    pid_t pid = start_service(&s, &t);
    t.secret = "";
    assert_int_equal(run_as_user(STRANGER, use_as_tutti, &t), TT_OK);
    assert_int_not_equal(run_as_user(OTHER_STRANGER, use_as_tutti, &t), TT_OK);
    end_service(&s, pid);
}

static void the_other_settings_ask_no_user(void **state) {
    (void)state;
    target t;
    service none = {.owner = STRANGER, .auth = TT_STORE_AUTH_NONE, .secret = ""};
    pid_t pid = start_service(&none, &t);
    assert_int_equal(run_as_user(OTHER_STRANGER, say_hello, &t), 0);
    end_service(&none, pid);
    service required = {.owner = STRANGER, .auth = TT_STORE_AUTH_REQUIRED, .secret = "sixteen bytes, or more"};
    pid = start_service(&required, &t);
    assert_int_equal(run_as_user(STRANGER, say_hello, &t), 1);
    assert_int_equal(run_as_user(0, say_hello, &t), 1);
    end_service(&required, pid);
}

/* ---- files */

static int make_file(void *arg) {
    FILE *file = fopen(arg, "we");
    return !file || fclose(file) || chmod(arg, 0666);
}

static void files_of_others_are_not_taken_over(void **state) {
    (void)state;
    char path[64];
    tt_store *store = NULL;
    snprintf(path, sizeof path, "/tmp/test_store_users.%d", (int)getpid());
    assert_int_equal(run_as_user(STRANGER, make_file, path), 0);
    tt_status opened = tt_file_store(&store, path, .timeout_ms = PATIENCE_MS);
    tt_status used = opened ? opened : tt_store_set(store, "k", "v", 1);
    tt_store_free(store);
    unlink(path);
    assert_int_equal(used, TT_ERR_AUTH);
}

/* ---- jobs that others pretend to run */

static int pretend_to_launch(void *arg) {
    int fd;
    if (tt__job_socket_listen(&fd, TT__JOB_SOCKET_PREFIX "1/test") || write(((int *)arg)[1], "", 1) != 1)
        return 1;
    return pause();
}

/* `tutti top` does not call them: nobody need answer there. */
static void sockets_of_others_are_skipped(void **state) {
    (void)state;
    int ready[2], n = 0, seen = 0;
    char byte;
    tt__job_heard *jobs = NULL;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = start_as_user(STRANGER, pretend_to_launch, ready);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(tt__jobs_find(&jobs, &n), TT_OK);
    for (int i = 0; i < n; i++)
        seen += !strcmp(jobs[i].name, TT__JOB_SOCKET_PREFIX "1/test");
    free(jobs);
    kill(pid, SIGKILL);
    end_of_process(pid);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(seen, 0);
}

/* ---- crowds */

enum { CROWD = 200 };

/* Connections of the user's own that say nothing, as PyTorch 1.13's second ones, and more than there are
 * descriptors. */
static void silent_ones_make_room(void **state) {
    (void)state;
    service s = {.owner = geteuid(), .auth = TT_STORE_AUTH_LOCAL, .secret = "", .descriptors = 100};
    target t;
    int fds[CROWD];
    pid_t pid = start_service(&s, &t);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(tt__net_connect(&fds[i], t.host, t.port, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    assert_int_equal(run_as_user(geteuid(), say_hello, &t), 0);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
    end_service(&s, pid);
}

/* ---- who is at the other end */

static int hold_open(void *arg) { return say_hello(arg) == 0 ? pause() : 1; }

/* Both ways of asking the kernel see the same. */
static void the_kernel_tells_by_proc_as_well(void **state) {
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "::1", "::ffff:127.0.0.1"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        int fds[4], port;
        size_t n;
        uid_t user = 0;
        int asking = tt__net_peer_user_begin();
        const char *served = i == 1 ? "::1" : "127.0.0.1";
        assert_int_equal(tt__net_listen(served, 0, fds, 4, &n, &port), TT_OK);
        target t = {.host = hosts[i], .port = port};
        pid_t pid = start_as_user(STRANGER, hold_open, &t);
        int fd;
        while ((fd = accept4(fds[0], NULL, NULL, SOCK_CLOEXEC)) < 0)
            sched_yield();
        assert_true(tt__net_peer_user(asking, fd, &user));
        assert_int_equal(user, STRANGER);
        user = 0;
        assert_true(tt__net_peer_user(-1, fd, &user));
        assert_int_equal(user, STRANGER);
        kill(pid, SIGKILL);
        assert_int_equal(end_of_process(pid), 128 + SIGKILL);
        assert_false(tt__net_peer_user(asking, fd, &user)); /* nobody has it open */
        assert_false(tt__net_peer_user(-1, fd, &user));
        close(fd);
        if (asking >= 0)
            close(asking);
        for (size_t k = 0; k < n; k++)
            close(fds[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_is_the_owner_and_root),
        cmocka_unit_test(strangers_are_refused_who_vanish),
        cmocka_unit_test(without_a_secret_the_owner_alone_is_served),
        cmocka_unit_test(the_other_settings_ask_no_user),
        cmocka_unit_test(files_of_others_are_not_taken_over),
        cmocka_unit_test(sockets_of_others_are_skipped),
        cmocka_unit_test(silent_ones_make_room),
        cmocka_unit_test(the_kernel_tells_by_proc_as_well),
    };
    int skipped = skipped_without_root();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
