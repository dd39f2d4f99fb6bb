/* Who is let into a store: its own job's clients, whoever else is on the network. Strangers, replays, other jobs, port
 * scanners, slow and silent ones are refused and logged, and hurt nobody. */
#include "support/own_network.h"
#include "support/patience.h"

#include "base/machine/clock.h"
#include "net/net.h"
#include "net/stream.h"

#include <tutti/store.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define OURS "an old and well kept secret"
#define THEIRS "a new and equally kept one"

enum { SHORT_MS = 1500, CROWD = 700, SCANS = 500 };

static tt_store_server *server;

/* ---- what was logged */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char logged[16384];
static int lines;

static void keep_log(tt_log_level level, const char *line, void *user) {
    (void)level;
    (void)user;
    pthread_mutex_lock(&log_lock);
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", line);
    lines++;
    pthread_mutex_unlock(&log_lock);
}

static bool was_logged(const char *part) {
    pthread_mutex_lock(&log_lock);
    bool found = strstr(logged, part) != NULL;
    pthread_mutex_unlock(&log_lock);
    return found;
}

/* A line is written before its connection is closed, but by another thread. */
static void expect_logged(const char *part) {
    for (int64_t deadline = tt__deadline_ms(PATIENCE_MS); !was_logged(part) && tt__left_ms(deadline);)
        sched_yield();
    if (!was_logged(part))
        fail_msg("the log does not say \"%s\":\n%s", part, logged);
}

static void start(tt_store_auth auth, const char *secret, int64_t timeout_ms) {
    logged[0] = '\0';
    lines = 0;
    tt_set_log(keep_log, NULL);
    assert_int_equal(
        tt_store_server_new(&server, NULL, 0, .auth = auth, .secret = secret, .proof_timeout_ms = timeout_ms), TT_OK);
}

static void stop(void) {
    tt_store_server_free(server);
    server = NULL;
    tt_set_log(NULL, NULL);
}

static tt_status join(const char *secret, tt_store_dialect dialect) {
    tt_store *store = NULL;
    int64_t n = 0;
    tt_status status = tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server), .secret = secret,
                                    .dialect = dialect, .timeout_ms = PATIENCE_MS);
    if (!status)
        status = tt_store_add(store, "joined", 1, &n);
    tt_store_free(store);
    return status;
}

static void joins(const char *secret) {
    if (join(secret, TT_STORE_TORCH_2) || join(secret, TT_STORE_TORCH_1_13))
        fail_msg("not let in: %s", tt_last_error());
}

static void is_refused(const char *secret, tt_status expected, const char *text, const char *log) {
    assert_int_equal(join(secret, TT_STORE_TORCH_2), expected);
    if (!strstr(tt_last_error(), text))
        fail_msg("\"%s\" does not say \"%s\"", tt_last_error(), text);
    expect_logged(log);
}

static void the_job_is_let_in(void **state) {
    (void)state;
    start(TT_STORE_AUTH_LOCAL, OURS, 0);
    joins(OURS);
    joins(""); /* PyTorch's dialect, from this machine */
    is_refused(THEIRS, TT_ERR_AUTH, "another job secret", "another job secret");
    joins(OURS);
    stop();
    start(TT_STORE_AUTH_REQUIRED, OURS, 0);
    joins(OURS);
    is_refused(THEIRS, TT_ERR_AUTH, "another job secret", "another job secret");
    is_refused("", TT_ERR_PROTOCOL, "TT_SECRET", "PyTorch's dialect");
    assert_int_not_equal(join("", TT_STORE_TORCH_1_13), TT_OK);
    joins(OURS);
    stop();
    start(TT_STORE_AUTH_LOCAL, "", 0);
    is_refused(OURS, TT_ERR_AUTH, "the other side has none", "it has a job secret");
    joins("");
    stop();
}

static void secrets_come_from_the_environment(void **state) {
    (void)state;
    setenv("TT_SECRET", OURS, 1);
    start(TT_STORE_AUTH_REQUIRED, NULL, 0);
    joins(NULL);
    tt_store *store;
    assert_int_equal(tt_tcp_store(&store, "localhost", 0, .is_server = true, .auth = TT_STORE_AUTH_REQUIRED), TT_OK);
    tt_store_free(store);
    unsetenv("TT_SECRET");
    is_refused(NULL, TT_ERR_PROTOCOL, "TT_SECRET", "PyTorch's dialect");
    stop();
}

static void encrypted(void **state) {
    (void)state;
    setenv("TT_TLS", "1", 1);
    start(TT_STORE_AUTH_REQUIRED, OURS, 0);
    joins(OURS);
    is_refused(THEIRS, TT_ERR_AUTH, "TLS failed", "TLS failed");

    char *large = malloc(3 << 20); /* more than a record, more than the socket holds */
    assert_non_null(large);
    for (size_t i = 0; i < 3 << 20; i++)
        large[i] = (char)(i * 7 + i / 251);
    tt_store *store;
    tt_store_value value;
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server), .secret = OURS), TT_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tt_store_set(store, "large", large, 3 << 20), TT_OK);
        assert_int_equal(tt_store_get(store, "large", &value), TT_OK);
        assert_int_equal(value.size, 3 << 20);
        assert_memory_equal(value.data, large, value.size);
        tt_store_value_free(&value);
    }
    free(large);
    unsetenv("TT_TLS");
    is_refused(OURS, TT_ERR_AUTH, "TT_TLS=1", "does not encrypt");
    assert_int_equal(tt_store_set(store, "small", "x", 1), TT_OK);
    tt_store_free(store);
    stop();

    start(TT_STORE_AUTH_LOCAL, OURS, 0);
    joins(OURS);
    setenv("TT_TLS", "1", 1);
    is_refused(OURS, TT_ERR_AUTH, "TT_TLS=1", "started without");
    unsetenv("TT_TLS");
    stop();
}

/* ---- raw connections */

static int raw_client(void) {
    int fd;
    assert_int_equal(tt__net_connect(&fd, "127.0.0.1", tt_store_server_port(server), tt__deadline_ms(PATIENCE_MS)),
                     TT_OK);
    return fd;
}

/* Reads until the server closes; how many bytes came. */
static size_t read_to_end(int fd, uint8_t *bytes, size_t size) {
    size_t done = 0, got = 1;
    while (
        done < size &&
        !tt__stream_read_some(&(tt__stream){.fd = fd}, bytes + done, size - done, tt__deadline_ms(PATIENCE_MS), &got) &&
        got)
        done += got;
    return done;
}

static tt__secret ours;

static tt__handshake_role client_role(void) {
    tt__secret_from(&ours, OURS, strlen(OURS));
    return (tt__handshake_role){
        .purpose = TT__PURPOSE_STORE, .secret = &ours, .rank = TT__ANY_RANK, .peer = TT__ANY_RANK};
}

/* A client's messages are recorded on the way, and replayed. */
static void a_replay_is_refused(void **state) {
    (void)state;
    tt__handshake_role role = client_role();
    tt__handshake h;
    uint8_t hello[64], proof[64], answer[128];
    start(TT_STORE_AUTH_REQUIRED, OURS, 0);
    int fd = raw_client();
    assert_int_equal(tt__handshake_begin(&h, &role), TT_OK);
    memcpy(hello, h.out, h.out_size);
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = fd}, h.out, h.out_size, tt__deadline_ms(PATIENCE_MS)),
                     TT_OK);
    tt__handshake_sent(&h, h.out_size);
    assert_int_equal(tt__stream_read_full(&(tt__stream){.fd = fd}, answer, 64, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    tt__handshake_feed(&h, answer, 64);
    size_t size = h.out_size;
    memcpy(proof, h.out, size);
    tt__handshake_sent(&h, size);
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = fd}, proof, size, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    assert_int_equal(tt__stream_read_full(&(tt__stream){.fd = fd}, answer, 36, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    tt__handshake_feed(&h, answer, 36);
    assert_int_equal(h.state, TT__HANDSHAKE_DONE);
    close(fd);

    fd = raw_client();
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = fd}, hello, 64, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = fd}, proof, size, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    assert_int_equal(read_to_end(fd, answer, sizeof answer), 64 + 4); /* a challenge, then a refusal */
    close(fd);
    expect_logged("another job secret");
    joins(OURS);
    stop();
}

static void other_jobs_and_services_are_refused(void **state) {
    (void)state;
    start(TT_STORE_AUTH_REQUIRED, OURS, 0);
    for (int i = 0; i < 2; i++) {
        tt__stream stream;
        tt__handshake_role role = client_role();
        if (i)
            role.purpose = TT__PURPOSE_TRANSPORT;
        else
            role.job[0] = 1;
        assert_int_equal(tt__stream_open(&stream, raw_client(), NULL, false), TT_OK);
        assert_int_equal(tt__stream_handshake(&stream, &role, tt__deadline_ms(PATIENCE_MS), NULL, NULL), TT_ERR_AUTH);
        tt__stream_close(&stream);
    }
    expect_logged("another service");
    expect_logged("another job");
    joins(OURS);
    stop();
}

static void strangers_are_refused(void **state) {
    (void)state;
    static const char *const said[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                       "SSH-2.0-scanner\r\n",
                                       "\x16\x03\x01\x02",
                                       "\xF5\x02zzzz",
                                       "\xF5\x01\x03\x01",
                                       "\xFF\xFF\xFF"};
    start(TT_STORE_AUTH_REQUIRED, OURS, 0);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        uint8_t answer[64];
        int fd = raw_client();
        assert_int_equal(
            tt__stream_write_full(&(tt__stream){.fd = fd}, said[i], strlen(said[i]), tt__deadline_ms(PATIENCE_MS)),
            TT_OK);
        assert_true(read_to_end(fd, answer, sizeof answer) <= 4); /* nothing but a refusal */
        close(fd);
    }
    for (int i = 0; i < SCANS; i++)
        close(raw_client());
    joins(OURS);
    stop();
}

static void silent_and_slow_ones_are_shown_out(void **state) {
    (void)state;
    start(TT_STORE_AUTH_REQUIRED, OURS, SHORT_MS);
    uint8_t byte;
    int silent = raw_client(), half = raw_client(), slow = raw_client();
    tt__handshake_role role = client_role();
    tt__handshake h;
    assert_int_equal(tt__handshake_begin(&h, &role), TT_OK);
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = half}, h.out, 40, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    int64_t begun = tt__now_ms(), asked = begun;
    size_t said = 0;
    while (said < 64 &&
           tt__stream_write_full(&(tt__stream){.fd = slow}, h.out + said, 1, tt__deadline_ms(PATIENCE_MS)) == TT_OK) {
        said++; /* a byte now and then, and less than all of them in time */
        joins(OURS);
        while (tt__now_ms() - asked < SHORT_MS / 20)
            sched_yield();
        asked = tt__now_ms();
    }
    assert_true(said < 64);
    assert_int_equal(read_to_end(silent, &byte, 1), 0);
    assert_int_equal(read_to_end(half, &byte, 1), 0);
    assert_true(tt__now_ms() - begun >= SHORT_MS);
    expect_logged("did not prove in time");
    close(silent);
    close(half);
    close(slow);
    joins(OURS);
    stop();
    /* PyTorch 1.13 keeps a connection on which it never says a word. */
    start(TT_STORE_AUTH_LOCAL, OURS, SHORT_MS);
    silent = raw_client();
    half = raw_client();
    assert_int_equal(tt__stream_write_full(&(tt__stream){.fd = half}, h.out, 40, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    assert_int_equal(read_to_end(half, &byte, 1), 0);
    assert_int_equal(tt__stream_read_full(&(tt__stream){.fd = silent}, &byte, 1, tt__deadline_ms(SHORT_MS)),
                     TT_ERR_TIMEOUT);
    close(silent);
    close(half);
    stop();
}

/* More connections than there is room for, none of which ever says a word. */
static void a_crowd_keeps_nobody_out(void **state) {
    (void)state;
    static int crowd[CROWD];
    struct rlimit limit, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = CROWD; /* the server lets half as many wait; this process's ends need the rest */
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max < (rlim_t)4 * CROWD) {
        print_message("too few descriptors are allowed here\n");
        skip();
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    start(TT_STORE_AUTH_REQUIRED, OURS, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < CROWD; i++)
        crowd[i] = raw_client();
    int64_t begun = tt__now_ms();
    joins(OURS);
    assert_true(tt__now_ms() - begun < 5000 + leeway_ms());
    expect_logged("too many connections");
    uint8_t byte;
    assert_int_equal(read_to_end(crowd[0], &byte, 1), 0); /* the first to come are the first to go */
    pthread_mutex_lock(&log_lock);
    assert_true(lines <= CROWD / 10); /* and the log says so a few times, not hundreds */
    pthread_mutex_unlock(&log_lock);
    for (int i = 0; i < CROWD; i++)
        close(crowd[i]);
    stop();
}

/* ---- another machine: two addresses of a network name space of its own stand for two machines */

static bool add_address(const char *name, const char *address) {
    struct ifreq request = {.ifr_addr.sa_family = AF_INET};
    struct sockaddr_in in = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    inet_pton(AF_INET, address, &in.sin_addr);
    memcpy(&request.ifr_addr, &in, sizeof in);
    bool done = fd >= 0 && !ioctl(fd, SIOCSIFADDR, &request) && !ioctl(fd, SIOCGIFFLAGS, &request);
    request.ifr_flags |= IFF_UP;
    done = done && !ioctl(fd, SIOCSIFFLAGS, &request);
    if (fd >= 0)
        close(fd);
    return done;
}

static int connect_between(const char *from, const char *to, int port) {
    struct sockaddr_in here = {.sin_family = AF_INET},
                       there = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, from, &here.sin_addr);
    inet_pton(AF_INET, to, &there.sin_addr);
    if (bind(fd, (struct sockaddr *)&here, sizeof here) || connect(fd, (struct sockaddr *)&there, sizeof there)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* PyTorch's hello: is it answered? */
static bool torch_is_served(const char *from, const char *to, int port) {
    static const uint8_t hello[] = {0, 0xCE, 0xF7, 0x85, 0x3C, 0x0D, 1, 2, 3, 4};
    uint8_t echo[4] = {0};
    int fd = connect_between(from, to, port);
    bool served = fd >= 0 &&
                  !tt__stream_write_full(&(tt__stream){.fd = fd}, hello, sizeof hello, tt__deadline_ms(PATIENCE_MS)) &&
                  read_to_end(fd, echo, 4) == 4 && !memcmp(echo, hello + 6, 4);
    close(fd);
    return served;
}

static bool job_is_served(const char *from, const char *to, int port) {
    tt__stream stream;
    tt__handshake_role role = client_role();
    int fd = connect_between(from, to, port);
    bool served = fd >= 0 && !tt__stream_open(&stream, fd, NULL, false) &&
                  !tt__stream_handshake(&stream, &role, tt__deadline_ms(PATIENCE_MS), NULL, NULL);
    if (fd >= 0)
        tt__stream_close(&stream);
    return served;
}

/* In a process of its own: 0, or the line that failed. */
#define NEED(condition)      \
    do {                     \
        if (!(condition))    \
            return __LINE__; \
    } while (0)

static int serve_two_machines(void) {
    const char *a = "10.99.0.1", *b = "10.99.0.2";
    NEED(add_address("lo", "127.0.0.1") && add_address("lo:1", a) && add_address("lo:2", b));
    const struct {
        tt_store_auth auth;
        const char *secret;
        bool torch_here, torch_there, job;
    } cases[] = {{TT_STORE_AUTH_LOCAL, OURS, true, false, true},
                 {TT_STORE_AUTH_LOCAL, "", true, false, false},
                 {TT_STORE_AUTH_REQUIRED, OURS, false, false, true},
                 {TT_STORE_AUTH_NONE, OURS, true, true, true}};
    tt_set_log(keep_log, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        logged[0] = '\0';
        NEED(!tt_store_server_new(&server, "0.0.0.0", 0, .auth = cases[i].auth, .secret = cases[i].secret));
        int port = tt_store_server_port(server);
        NEED(torch_is_served("127.0.0.1", "127.0.0.1", port) == cases[i].torch_here);
        NEED(torch_is_served(a, a, port) == cases[i].torch_here); /* by a true address, but from here */
        NEED(torch_is_served(b, a, port) == cases[i].torch_there);
        NEED(torch_is_served(b, a, port) == cases[i].torch_there);
        NEED(job_is_served(b, a, port) == cases[i].job);
        NEED(was_logged("authentication is turned off") == (cases[i].auth == TT_STORE_AUTH_NONE));
        NEED(was_logged("comes from another machine") == (cases[i].auth == TT_STORE_AUTH_LOCAL));
        tt_store_server_free(server);
    }
    return 0;
}

static bool two_machines_are_told_apart(void) {
    int line = serve_two_machines();
    if (line)
        fprintf(stderr, "line %d: not so\n%s%s\n", line, logged, tt_last_error());
    return !line;
}

static void other_machines_must_prove(void **state) {
    (void)state;
    assert_in_own_network(two_machines_are_told_apart);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_job_is_let_in),
        cmocka_unit_test(secrets_come_from_the_environment),
        cmocka_unit_test(encrypted),
        cmocka_unit_test(a_replay_is_refused),
        cmocka_unit_test(other_jobs_and_services_are_refused),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(silent_and_slow_ones_are_shown_out),
        cmocka_unit_test(a_crowd_keeps_nobody_out),
        cmocka_unit_test(other_machines_must_prove),
    };
    unsetenv("TT_SECRET");
    unsetenv("TT_SECRET_FILE");
    unsetenv("TT_TLS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
