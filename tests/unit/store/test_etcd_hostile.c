/* The etcd store before servers that are none, or none that it can use: bounded time, bounded memory, an error that
 * says what is wrong. */
#include "support/patience.h"

#include "base/machine/clock.h"

#include <tutti/store.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONNECTIONS = 512, SHORT_MS = 700, MOST_MEMORY_KB = 160 * 1024 };

#define OK_JSON "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
#define EMPTY_COUNT \
    OK_JSON "{\"header\":{\"revision\":\"5\"},\"responses\":[{\"response_range\":{}},{\"response_range\":{}}]}"
#define NOT_FOUND "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n404 page not found\n"

typedef struct server {
    int listener, port;
    const char *first;           /* the answer to the first request on /v3/kv/txn; NULL: what the others get */
    const char *answer;          /* to all others but those below; "" = close without one; NULL = `act` */
    const char *version, *watch; /* to those paths; NULL: like the others */
    void (*act)(int fd);
    _Atomic int requests;
    _Atomic bool ends;
    pthread_t thread, threads[CONNECTIONS];
    int fds[CONNECTIONS], connections;
} server;

static bool say(int fd, const char *text, size_t size) { return send(fd, text, size, MSG_NOSIGNAL) == (ssize_t)size; }

/* Read a request's head, and its body as far as it comes with it; its path. */
static bool hear(int fd, char path[64]) {
    char text[1 << 16];
    size_t size = 0;
    for (;;) {
        ssize_t n = recv(fd, text + size, sizeof text - 1 - size, 0);
        if (n <= 0)
            return false;
        size += (size_t)n;
        text[size] = '\0';
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (end && (!length || (size_t)(text + size - end - 4) >= strtoul(length + 16, NULL, 10)))
            return sscanf(text, "%*s %63s", path) == 1;
    }
}

typedef struct connection {
    server *s;
    int fd;
} connection;

static void *serve(void *arg) {
    connection c = *(connection *)arg;
    server *s = c.s;
    char path[64];
    free(arg);
    if (hear(c.fd, path)) {
        const char *answer = s->answer;
        if (!strcmp(path, "/version") && s->version)
            answer = s->version;
        else if (!strcmp(path, "/v3/watch") && s->watch)
            answer = s->watch;
        else if (!strcmp(path, "/v3/kv/txn") && s->requests++ == 0 && s->first)
            answer = s->first;
        if (answer)
            (void)say(c.fd, answer, strlen(answer));
        else
            s->act(c.fd);
    }
    shutdown(c.fd, SHUT_WR);
    while (recv(c.fd, path, sizeof path, 0) > 0) /* so that what was sent is not lost by a reset */
        ;
    return NULL;
}

static void *accept_all(void *arg) {
    server *s = arg;
    while (!s->ends && s->connections < CONNECTIONS) {
        struct pollfd listening = {s->listener, POLLIN, 0};
        if (poll(&listening, 1, 10) <= 0)
            continue;
        connection *c = malloc(sizeof *c);
        *c = (connection){s, accept(s->listener, NULL, NULL)};
        s->fds[s->connections] = c->fd;
        if (pthread_create(&s->threads[s->connections++], NULL, serve, c))
            abort();
    }
    return NULL;
}

static void start(server *s) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->listener, 64), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&address, &size), 0);
    s->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, accept_all, s), 0);
}

static void stop(server *s) {
    s->ends = true;
    pthread_join(s->thread, NULL);
    close(s->listener);
    for (int i = 0; i < s->connections; i++) {
        shutdown(s->fds[i], SHUT_RDWR);
        pthread_join(s->threads[i], NULL);
        close(s->fds[i]);
    }
}

/* ---- what they do */

static void say_without_end(int fd, const char *begin, const char *more) {
    char block[16384];
    size_t n = strlen(more);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = more[i % n];
    if (say(fd, begin, strlen(begin)))
        while (say(fd, block, sizeof block / n * n))
            ;
}

static void endless_body(int fd) { say_without_end(fd, OK_JSON, "x"); }
static void endless_nesting(int fd) { say_without_end(fd, OK_JSON, "["); }
static void endless_string(int fd) { say_without_end(fd, OK_JSON "{\"header\":\"", "a"); }
static void endless_headers(int fd) { say_without_end(fd, "HTTP/1.1 200 OK\r\n", "X-More: and more\r\n"); }
static void endless_header(int fd) { say_without_end(fd, "HTTP/1.1 200 OK\r\nX-Long: ", "y"); }
static void endless_continues(int fd) { say_without_end(fd, "", "HTTP/1.1 100 Continue\r\n\r\n"); }
static void endless_refusal(int fd) { say_without_end(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", "no, "); }
static void endless_lines(int fd) { say_without_end(fd, OK_JSON, "\n"); }

static void drip(int fd) {
    static const char text[] = "HTTP/1.1 200 OK\r\nX-Slow: ";
    if (!say(fd, text, sizeof text - 1))
        return;
    for (struct pollfd p = {fd, POLLIN | POLLRDHUP, 0}; poll(&p, 1, 20) == 0 && say(fd, "z", 1);)
        ;
}

static void drip_body(int fd) {
    if (!say(fd, OK_JSON, sizeof OK_JSON - 1))
        return;
    for (struct pollfd p = {fd, POLLIN | POLLRDHUP, 0}; poll(&p, 1, 20) == 0 && say(fd, " ", 1);)
        ;
}

static void be_silent(int fd) {
    char byte;
    while (recv(fd, &byte, 1, 0) > 0)
        ;
}

/* ---- opening a store */

static const struct opening {
    const char *answer, *version;
    void (*act)(int fd);
    tt_status status;
    const char *part;
} openings[] = {
    {"\x15\x03\x03\x00\x02\x02\x50 this is not HTTP\r\n\r\n", NULL, NULL, TT_ERR_PROTOCOL, "expected etcd"},
    {OK_JSON "<html>hello</html>", NULL, NULL, TT_ERR_PROTOCOL, "expected an answer of etcd's"},
    {OK_JSON, NULL, NULL, TT_ERR_PROTOCOL, "expected an answer of etcd's"},
    {OK_JSON "{\"hello\":\"world\"}", NULL, NULL, TT_ERR_PROTOCOL, "expected an answer of etcd's"},
    {OK_JSON "{\"header\":{\"revision\":\"5\"}}", NULL, NULL, TT_ERR_PROTOCOL, "expected responses"},
    {OK_JSON "{\"header\":{\"revision\":\"5\"},\"responses\":[{\"response_range\":{\"count\":\"many\"}}]}", NULL, NULL,
     TT_ERR_PROTOCOL, "number of keys"},
    {OK_JSON "{\"header\":{\"revision\":\"5\"},\"responses\":[{\"response_put\":{}}]}", NULL, NULL, TT_ERR_PROTOCOL,
     "expected a range"},
    {OK_JSON "{\"header\":{\"revision\":\"5\"},\"responses\":[{\"response_range\":{", NULL, NULL, TT_ERR_PROTOCOL,
     "expected an answer of etcd's"},
    {"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nConnection: close\r\n\r\n", NULL, NULL, TT_ERR_PROTOCOL,
     "HTTP 302"},
    {"HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n<p>oh\033[31m", NULL, NULL, TT_ERR_PROTOCOL,
     "HTTP 500, \"<p>oh?[31m"},
    {"HTTP/1.1 403 No\r\nConnection: close\r\n\r\nnot you", NULL, NULL, TT_ERR_AUTH, "HTTP 403"},
    {"HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n{\"code\":3,\"message\":\"etcdserver: user name is empty\"}", NULL,
     NULL, TT_ERR_AUTH, "give .user and .password"},
    {NOT_FOUND, OK_JSON "{\"etcdserver\":\"2.3.8\",\"etcdcluster\":\"2.3.0\"}", NULL, TT_ERR_UNSUPPORTED,
     "expected etcd 3.4 or later, which has the v3 API, got 2.3.8. (torchrun's own"},
    {NOT_FOUND, OK_JSON "{\"etcdserver\":\"3.3.27\"}", NULL, TT_ERR_UNSUPPORTED, "got 3.3.27"},
    {NOT_FOUND, OK_JSON "{\"etcdserver\":\"3.5.9\"}", NULL, TT_ERR_UNSUPPORTED, "--enable-grpc-gateway"},
    {NOT_FOUND, NOT_FOUND, NULL, TT_ERR_PROTOCOL, "tells no version"},
    {NULL, NULL, endless_body, TT_ERR_PROTOCOL, "more than"},
    {NULL, NULL, endless_nesting, TT_ERR_PROTOCOL, "more than"},
    {NULL, NULL, endless_string, TT_ERR_PROTOCOL, "more than"},
    {NULL, NULL, endless_refusal, TT_ERR_PROTOCOL, "more than"},
    {NULL, NULL, endless_headers, TT_ERR_PROTOCOL, "more than"},
    {NULL, NULL, endless_header, TT_ERR_PROTOCOL, "expected etcd"},
    {NULL, NULL, endless_continues, TT_ERR_PROTOCOL, "more than"},
    {NULL, NULL, drip, TT_ERR_TIMEOUT, "no etcd answered within"},
    {NULL, NULL, drip_body, TT_ERR_TIMEOUT, "no etcd answered within"},
    {NULL, NULL, be_silent, TT_ERR_TIMEOUT, "no etcd answered within"},
    {"", NULL, NULL, TT_ERR_TIMEOUT, "no etcd answered within"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"header\"", NULL, NULL, TT_ERR_TIMEOUT, "what came last"},
    {"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\ntry later", NULL, NULL, TT_ERR_TIMEOUT, "HTTP 503, \"try later\""},
    {"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\n{\"code\":14,\"message\":\"etcdserver: no leader\"}", NULL, NULL,
     TT_ERR_TIMEOUT, "etcdserver: no leader"},
};

static long memory_kb(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static tt_status open_store(tt_store **store, const server *s, int64_t timeout_ms) {
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", s->port);
    return tt_etcd_store(store, endpoint, .timeout_ms = timeout_ms);
}

/* On a busy machine not even the first answer comes in time. */
static bool was_busy(tt_status status, tt_status expected) {
    return leeway_ms() && status == TT_ERR_TIMEOUT && expected == TT_ERR_TIMEOUT &&
           strstr(tt_last_error(), "no etcd answered within");
}

static void check_failure(size_t number, tt_status status, tt_status expected, const char *part, int64_t begun_ms) {
    if ((status != expected || !strstr(tt_last_error(), part)) && !was_busy(status, expected))
        fail_msg("%zu: %s \"%s\" does not say %s \"%s\"", number, tt_status_name(status), tt_last_error(),
                 tt_status_name(expected), part);
    assert_true(tt__now_ms() - begun_ms < PATIENCE_MS);
}

static void no_store_is_opened(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        const struct opening *o = &openings[i];
        static server s;
        s = (server){.answer = o->answer, .version = o->version, .act = o->act};
        tt_store *store;
        start(&s);
        int64_t begun = tt__now_ms();
        tt_status status = open_store(&store, &s, o->status == TT_ERR_TIMEOUT ? SHORT_MS : PATIENCE_MS);
        check_failure(i, status, o->status, o->part, begun);
        assert_null(store);
        stop(&s);
    }
}

/* ---- a store that was opened */

typedef enum asked { GET, SET, WAIT } asked;

#define ONE_RESPONSE(range) OK_JSON "{\"header\":{\"revision\":\"5\"},\"responses\":[{\"response_range\":{" range "}}]}"
#define EVENTS(events) OK_JSON "{\"result\":{\"header\":{\"revision\":\"6\"},\"events\":" events "}}\n"

static const struct use {
    asked what;
    const char *answer, *watch;
    void (*act)(int fd);
    tt_status status;
    const char *part;
} uses[] = {
    {GET, OK_JSON "{\"header\":{\"revision\":\"5\"},\"responses\":[]}", NULL, NULL, TT_ERR_PROTOCOL, "each key"},
    {GET, OK_JSON "{\"header\":{\"revision\":\"5\"},\"responses\":{}}", NULL, NULL, TT_ERR_PROTOCOL, "each key"},
    {GET, OK_JSON "{\"header\":5,\"responses\":[]}", NULL, NULL, TT_ERR_PROTOCOL, "a revision"},
    {GET, ONE_RESPONSE("\"kvs\":[{}]"), NULL, NULL, TT_ERR_PROTOCOL, "a key and its value"},
    {GET, ONE_RESPONSE("\"kvs\":[7]"), NULL, NULL, TT_ERR_PROTOCOL, "a key and its value"},
    {GET, ONE_RESPONSE("\"kvs\":[{\"key\":\"aw==\",\"value\":\"v!==\",\"mod_revision\":\"1\"}]"), NULL, NULL,
     TT_ERR_PROTOCOL, "base64"},
    {GET, ONE_RESPONSE("\"kvs\":[{\"key\":\"aw==\",\"value\":\"abc\",\"mod_revision\":\"1\"}]"), NULL, NULL,
     TT_ERR_PROTOCOL, "base64"},
    {GET, ONE_RESPONSE("\"kvs\":[{\"key\":\"aw==\",\"value\":\"YWJj\",\"mod_revision\":\"99999999999999999999\"}]"),
     NULL, NULL, TT_ERR_PROTOCOL, "a key and its value"},
    {GET, NULL, NULL, endless_string, TT_ERR_PROTOCOL, "more than"},
    {SET, OK_JSON "{\"header\":{\"revision\":\"5\"}}", NULL, NULL, TT_ERR_PROTOCOL, "expected a lease"},
    {SET, OK_JSON "{\"header\":{\"revision\":\"5\"},\"ID\":\"7\",\"TTL\":\"9\"}", NULL, NULL, TT_ERR_PROTOCOL,
     "responses"},
    {SET, NULL, NULL, be_silent, TT_ERR_TIMEOUT, "no etcd answered"},
    /* the key is missing, and this is what the watch says */
    {WAIT, ONE_RESPONSE(""), "", NULL, TT_ERR_TIMEOUT, "waiting for keys: k"},
    {WAIT, ONE_RESPONSE(""), NOT_FOUND, NULL, TT_ERR_TIMEOUT, "waiting for keys: k"},
    {WAIT, ONE_RESPONSE(""), OK_JSON "nonsense\n", NULL, TT_ERR_TIMEOUT, "waiting for keys: k"},
    {WAIT, ONE_RESPONSE(""), OK_JSON "{\"error\":{\"grpc_code\":7,\"message\":\"no\"}}\n", NULL, TT_ERR_TIMEOUT,
     "waiting for keys: k"},
    {WAIT, ONE_RESPONSE(""), OK_JSON "{\"result\":{\"canceled\":true}}\n", NULL, TT_ERR_TIMEOUT, "waiting for keys: k"},
    {WAIT, ONE_RESPONSE(""), EVENTS("[{},7,{\"kv\":{}},{\"kv\":{\"key\":\"***\"}},{\"kv\":{\"key\":\"\"}}]"), NULL,
     TT_ERR_TIMEOUT, "waiting for keys: k"},
    {WAIT, ONE_RESPONSE(""), EVENTS("{\"kv\":\"tutti\"}"), NULL, TT_ERR_TIMEOUT, "waiting for keys: k"},
};

static tt_status ask(tt_store *store, asked what) {
    const char *key = "k";
    tt_store_value value;
    if (what == SET)
        return tt_store_set(store, key, "v", 1);
    tt_status status = what == GET ? tt_store_get(store, key, &value) : tt_store_wait(store, &key, 1, 0);
    if (!status && what == GET)
        tt_store_value_free(&value);
    return status;
}

static void calls_fail(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const struct use *u = &uses[i];
        static server s;
        s = (server){.first = EMPTY_COUNT, .answer = u->answer, .watch = u->watch, .act = u->act};
        tt_store *store;
        start(&s);
        if (open_store(&store, &s, PATIENCE_MS))
            fail_msg("%zu: %s", i, tt_last_error());
        if (u->status == TT_ERR_TIMEOUT)
            tt_store_set_timeout_ms(store, SHORT_MS);
        int64_t begun = tt__now_ms();
        check_failure(i, ask(store, u->what), u->status, u->part, begun);
        tt_store_free(store);
        stop(&s);
    }
}

/* Watches that never end a line, or say nothing but lines. */
static void watches_are_bounded(void **state) {
    (void)state;
    void (*const acts[])(int) = {endless_string, endless_lines, drip_body, endless_headers};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        static server s;
        const char *key = "k";
        tt_store *store;
        s = (server){.first = EMPTY_COUNT, .act = acts[i]};
        start(&s);
        if (open_store(&store, &s, PATIENCE_MS))
            fail_msg("%zu: %s", i, tt_last_error());
        s.requests = 0;
        s.first = ONE_RESPONSE(""); /* the first look finds nothing; the watch, and further looks, get the rest */
        int64_t begun = tt__now_ms();
        tt_status status = tt_store_wait(store, &key, 1, 2 * SHORT_MS);
        assert_true(status == TT_ERR_TIMEOUT || status == TT_ERR_PROTOCOL);
        assert_true(tt__now_ms() - begun < PATIENCE_MS);
        tt_store_free(store);
        stop(&s);
    }
}

static void memory_is_bounded(void **state) {
    (void)state;
    if (getenv("TT_SANITIZED")) /* which have memory of their own */
        return;
    if (memory_kb() > MOST_MEMORY_KB)
        fail_msg("all of this took %ld KiB", memory_kb());
}

/* ---- addresses and options */

static void wrong_arguments(void **state) {
    (void)state;
    static const char *const wrong[] = {"",           ",",      "a,,b",      "http://",   "etcd://host", "host:0",
                                        "host:65536", "host:x", "host/path", "user@host", "ho st",       "ftp://host:1",
                                        ":2379",      "host:-1"};
    tt_store *store = (tt_store *)1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (tt_etcd_store(&store, wrong[i], .timeout_ms = SHORT_MS) != TT_ERR_INVALID)
            fail_msg("\"%s\": %s", wrong[i], tt_last_error());
        assert_null(store);
    }
    assert_int_equal(tt_etcd_store(&store, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_etcd_store(NULL, "host"), TT_ERR_INVALID);
    assert_int_equal(tt_etcd_store(&store, "host", .timeout_ms = -1), TT_ERR_INVALID);
    assert_int_equal(tt_etcd_store(&store, "host", .user = "u"), TT_ERR_INVALID);
    assert_int_equal(tt_etcd_store(&store, "host", .user = "u", .password = "p", .token = "t"), TT_ERR_INVALID);
    assert_int_equal(tt_etcd_store(&store, "host", .token = "a\nb"), TT_ERR_INVALID);
    assert_int_equal(tt_etcd_store(&store, "host", .cert_file = "/x"), TT_ERR_INVALID);
}

/* Nobody listens, or there is no such host; the text names the first and says how many more. */
static void nobody_is_there(void **state) {
    (void)state;
    tt_store *store;
    char endpoints[96];
    server s = {.answer = ""};
    start(&s);
    stop(&s); /* a port that was just free */
    snprintf(endpoints, sizeof endpoints, "127.0.0.1:%d,no-such-host.invalid", s.port);
    int64_t begun = tt__now_ms();
    tt_status status = tt_etcd_store(&store, endpoints, .timeout_ms = SHORT_MS);
    check_failure(0, status, TT_ERR_TIMEOUT, "127.0.0.1", begun);
    assert_non_null(strstr(tt_last_error(), "and 1 more"));
    assert_true(strstr(tt_last_error(), "what came last") || leeway_ms());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_store_is_opened), cmocka_unit_test(calls_fail),      cmocka_unit_test(watches_are_bounded),
        cmocka_unit_test(memory_is_bounded),  cmocka_unit_test(wrong_arguments), cmocka_unit_test(nobody_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
