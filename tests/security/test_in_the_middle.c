/* Somebody who may write the job's store, but has not its secret, puts addresses of its own in the place of the ranks',
 * so that they call it; it passes their proofs on, and changes what they send afterwards. Once the ranks must have met
 * it puts the right addresses back. Where neither texts nor frames are signed, one rank's sum is 1001. */
#include "support/hosts.h"
#include "support/patience.h"
#include "support/ranks.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

enum { WORLD = 2, CALLS = 300, GAMES = 40, PAIRS = 16, HIDES_AFTER_MS = 300 };

/* What the processes tell the test. */
typedef struct testimony {
    _Atomic int wrong, refused, relayed; /* sums; texts that a rank refused; connections to the middle */
    _Atomic int joined, ended;           /* ranks */
    tt_status status[WORLD];
    char text[WORLD][512];
} testimony;

/* ---- the ranks */

static void on_log(tt_log_level level, const char *line, void *user) {
    testimony *told = user;
    if (level == TT_LOG_WARNING && strstr(line, "is refused"))
        told->refused++;
}

static int compute(tt_store *store, int rank, testimony *told) {
    tt_group *group = NULL;
    hosts_enter(HOSTS_ALONE, rank);
    CHECK(!setenv("TT_SECRET", "0123456789abcdef0123456789abcdef", 1));
    tt_set_log(on_log, told);
    tt_status status = tt_init_process_group(&group, .store = store, .rank = rank, .world_size = WORLD,
                                             .timeout_ms = PATIENCE_MS, .heartbeat_ms = CALM_MS);
    told->joined++;
    for (int i = 0; !status && i < CALLS; i++) {
        float x = 1;
        status = tt_all_reduce(group, &x, 1, TT_F32, TT_SUM);
        told->wrong += !status && x != WORLD;
    }
    told->status[rank] = status;
    snprintf(told->text[rank], sizeof told->text[rank], "%s", status ? tt_last_error() : "");
    told->ended++;
    tt_destroy_process_group(group);
    return 0;
}

/* ---- the one in the middle */

typedef struct middle {
    tt_store *store;
    int listener, port;
    tt_store_value real[WORLD]; /* what the ranks wrote */
    int ends[PAIRS][2], pairs;
} middle;

static void key_of(int rank, char key[32]) { snprintf(key, 32, "tutti/0/1/net/%d", rank); }

/* The text says "port/nonce/address,address": the port becomes the middle's, the address this machine's. What follows
 * the text, its proof, stays. */
static size_t forge(const middle *m, const tt_store_value *real, char *forged, size_t room) {
    const char *text = (const char *)real->data, *nonce = strchr(text, '/'), *hosts = strchr(nonce + 1, '/');
    size_t length = strlen(text), tail = real->size > length ? real->size - length : 0;
    int n = snprintf(forged, room, "%d%.*s/127.0.0.1", m->port, (int)(hosts - nonce), nonce);
    memcpy(forged + n, text + length, tail);
    return (size_t)n + tail;
}

static void put(const middle *m, int rank, const void *data, size_t size) {
    char key[32];
    key_of(rank, key);
    CHECK_OK(tt_store_set(m->store, key, data, size));
}

/* Wait for what one of the ranks writes, and put the forged text in its place. */
static void overwrite(middle *m, int rank) {
    char key[32], forged[2048];
    key_of(rank, key);
    CHECK_OK(tt_store_get(m->store, key, &m->real[rank]));
    put(m, rank, forged, forge(m, &m->real[rank], forged, sizeof forged));
}

/* Call the rank that the caller meant. The caller is the one of the higher number. */
static int call_really(const middle *m, int rank) {
    const char *text = (const char *)m->real[rank].data, *hosts = strrchr(text, '/') + 1;
    char host[64], port[8];
    struct addrinfo *found = NULL;
    snprintf(host, sizeof host, "%.*s", (int)strcspn(hosts, ","), hosts);
    snprintf(port, sizeof port, "%d", atoi(text));
    CHECK(!getaddrinfo(host, port, &(struct addrinfo){.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, &found));
    int s = socket(found->ai_family, SOCK_STREAM, 0);
    CHECK(!connect(s, found->ai_addr, found->ai_addrlen));
    freeaddrinfo(found);
    return s;
}

/* Each 1 of what passes, as a float, becomes 1000. */
static void change(unsigned char *data, ssize_t n) {
    static const unsigned char one[4] = {0, 0, 0x80, 0x3f}, thousand[4] = {0, 0, 0x7a, 0x44};
    for (ssize_t i = 0; i + 4 <= n; i++)
        if (!memcmp(data + i, one, sizeof one))
            memcpy(data + i, thousand, sizeof thousand);
}

static void pass_on(middle *m, int pair, int from) {
    unsigned char data[4096];
    ssize_t n = recv(m->ends[pair][from], data, sizeof data, 0);
    if (n > 0 && from)
        change(data, n);
    if (n <= 0 || send(m->ends[pair][!from], data, (size_t)n, MSG_NOSIGNAL) != n)
        for (int i = 0; i < 2; i++) {
            close(m->ends[pair][i]);
            m->ends[pair][i] = -1;
        }
}

/* Pass on what has come within `ms`. */
static void relay(middle *m, testimony *told, int ms) {
    struct pollfd fds[1 + 2 * PAIRS] = {{.fd = m->listener, .events = POLLIN}};
    for (int i = 0; i < 2 * m->pairs; i++)
        fds[1 + i] = (struct pollfd){.fd = m->ends[i / 2][i % 2], .events = POLLIN};
    int pairs = m->pairs;
    if (poll(fds, (nfds_t)(1 + 2 * pairs), ms) <= 0)
        return;
    for (int i = 0; i < 2 * pairs; i++)
        if (fds[1 + i].revents && m->ends[i / 2][i % 2] >= 0)
            pass_on(m, i / 2, i % 2);
    if (fds[0].revents && m->pairs < PAIRS) {
        m->ends[m->pairs][0] = accept(m->listener, NULL, NULL);
        m->ends[m->pairs][1] = call_really(m, 0);
        m->pairs++;
        told->relayed++;
    }
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int stand_between(tt_store *store, testimony *told) {
    middle m = {.store = store, .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t size = sizeof own;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(!bind(m.listener, (struct sockaddr *)&own, size) && !listen(m.listener, PAIRS));
    CHECK(!getsockname(m.listener, (struct sockaddr *)&own, &size));
    m.port = ntohs(own.sin_port);
    overwrite(&m, 0);
    overwrite(&m, 1);
    bool hidden = false;
    for (int64_t began = now_ms(); told->ended < WORLD;) {
        relay(&m, told, 10);
        if (hidden || (now_ms() < began + HIDES_AFTER_MS && told->joined < WORLD))
            continue;
        for (int r = 0; r < WORLD; r++)
            put(&m, r, m.real[r].data, m.real[r].size);
        hidden = true;
    }
    for (int r = 0; r < WORLD; r++)
        tt_store_value_free(&m.real[r]);
    return 0;
}

/* ---- the test */

static int body(tt_store *store, int rank, int world, void *arg) {
    (void)world;
    return rank < WORLD ? compute(store, rank, arg) : stand_between(store, arg);
}

/* Who overwrites is not always in time: play until a rank has seen a forged text. */
static void addresses_and_frames_are_changed(void **state) {
    (void)state;
    testimony *told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    int seen = 0;
    for (int game = 0; game < GAMES && seen < 3; game++) {
        memset(told, 0, sizeof *told);
        with_ranks(WORLD + 1, body, told);
        for (int r = 0; r < WORLD; r++)
            if (told->status[r])
                fail_msg("rank %d: %s", r, told->text[r]);
        assert_int_equal(told->wrong, 0);
        assert_int_equal(told->relayed, 0); /* nobody called the middle */
        seen += told->refused > 0;
    }
    munmap(told, sizeof *told);
    assert_int_equal(seen, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses_and_frames_are_changed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
