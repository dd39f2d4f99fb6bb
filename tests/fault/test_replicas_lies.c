/* A member of a store of several replicas that says what can't be: it has the secret, so it is listened to, but none of
 * its lies ends a replica or what the store holds. */
#include "support/replicas.h"

#include "base/error.h"
#include "store/wire.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { ENTRIES = 1, RESULT, ASK, VOTE, SNAPSHOT, HAND_OVER, COMMAND = 1, CONFIGURATION = 3, STRANGE_ID = 77 };
enum { OPCODE_PEER = 194, OPCODE_TELL = 195, OPCODE_PING = 13, TERM = 100, TERMS = 60 };

static replicas all;
static tt__replica_hello members[REPLICAS]; /* who they are */

static int open_all(void **state) {
    (void)state;
    memset(&all, 0, sizeof all);
    replicas_open(&all);
    replicas_wait(&all);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    replicas_close(&all);
    return 0;
}

/* ---- words */

static void put_u64s(tt__bytes *out, size_t n, const uint64_t *numbers) {
    for (size_t i = 0; i < n; i++)
        tt__store_put_u64(out, numbers[i]);
}

#define PUT(out, ...) \
    put_u64s(out, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (const uint64_t[]){__VA_ARGS__})

/* One entry after another one. */
static tt__bytes entries(uint64_t term, uint64_t index, uint64_t before, uint64_t at, int type, tt__span entry) {
    tt__bytes m = {0};
    tt__store_put_u8(&m, ENTRIES);
    PUT(&m, term, index, before, 0, 1, at);
    tt__store_put_u8(&m, (uint8_t)type);
    tt__store_put_string(&m, entry);
    return m;
}

static tt__bytes heartbeat(uint64_t term, uint64_t index, uint64_t before) {
    tt__bytes m = {0};
    tt__store_put_u8(&m, ENTRIES);
    PUT(&m, term, index, before, 0, 0);
    return m;
}

static tt__span text_of(const char *text) { return (tt__span){(const uint8_t *)text, strlen(text)}; }

static tt__bytes snapshot(uint64_t index, uint64_t term, tt__span data) {
    tt__bytes m = {0};
    tt__store_put_u8(&m, SNAPSHOT);
    PUT(&m, TERM, index, term, index, REPLICAS);
    for (int i = 0; i < REPLICAS; i++) {
        tt__store_put_u8(&m, (uint8_t)i);
        tt__store_put_u64(&m, members[i].id);
        tt__store_put_u8(&m, 1);
    }
    tt__store_put_string(&m, data);
    return m;
}

/* A configuration that ends after its count, or of one voter. */
static tt__bytes configuration(uint64_t n, bool whole) {
    tt__bytes entry = {0};
    char address[40];
    tt__store_put_u8(&entry, 1);
    tt__store_put_u64(&entry, n);
    snprintf(address, sizeof address, "0/%" PRIu64, members[0].id);
    if (whole) {
        tt__store_put_u64(&entry, members[0].id);
        tt__bytes_put(&entry, address, strlen(address) + 1);
        tt__store_put_u8(&entry, 1);
    }
    tt__bytes m = entries(TERM, 1, 1, TERM, CONFIGURATION, (tt__span){entry.data, entry.size});
    tt__bytes_free(&entry);
    return m;
}

static tt__bytes numbers(int kind, size_t n, const uint64_t *values, size_t flags, const uint8_t *flag) {
    tt__bytes m = {0};
    tt__store_put_u8(&m, (uint8_t)kind);
    put_u64s(&m, n, values);
    tt__bytes_put(&m, flag, flags);
    return m;
}

#define NUMBERS(...) \
    sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (const uint64_t[]) { __VA_ARGS__ }
#define FLAGS(...) \
    sizeof((uint8_t[]){__VA_ARGS__}), (const uint8_t[]) { __VA_ARGS__ }

/* The lie of that number, and what is said of it; NULL: there is none. */
static const char *lie_of(int number, tt__bytes *m) {
    static const char none[] = "expected a configuration";
    switch (number) {
    case 0:
        *m = heartbeat(0, 1, 1);
        return "expected a term from 1";
    case 1:
        *m = heartbeat(UINT64_MAX, 1, 1);
        return "expected a term from 1";
    case 2:
        *m = heartbeat(TERM, UINT64_MAX, 1);
        return "expected a place in the log";
    case 3:
        *m = heartbeat(TERM, 1, 7);
        return "expected entry 1 to be of term 1, as was agreed on, got term 7";
    case 4:
        *m = entries(TERM, 0, 0, 50, COMMAND, text_of("words"));
        return "expected a write of a client, got 5 bytes";
    case 5:
        *m = configuration(UINT64_C(1) << 40, false);
        return none;
    case 6:
        *m = configuration(3, false);
        return none;
    case 7:
        *m = configuration(1, true);
        return none;
    case 8:
        *m = entries(TERM, 0, 0, 50, 2, text_of("barrier."));
        return "expected entry 1 to be of term 1, as was agreed on, got term 50";
    case 9:
        *m = snapshot(0, 0, text_of(""));
        return "expected a state of entry 1 or later";
    case 10:
        *m = snapshot(1 << 20, TERM, text_of("all that there is"));
        return "expected all that the store holds";
    case 11:
        *m = numbers(ASK, NUMBERS(TERM, STRANGE_ID, 1 << 20, TERM), FLAGS(0, 0));
        return "expected one who asks for a vote for itself";
    case 12:
        *m = numbers(VOTE, NUMBERS(TERM), FLAGS(1, 1));
        return "expected a vote in term";
    case 13:
        *m = numbers(VOTE, NUMBERS(1), FLAGS(1, 9));
        return "expected a vote, got one of kind 9";
    case 14:
        *m = numbers(RESULT, NUMBERS(0, 0, 0), 0, NULL);
        return "expected a term from 1";
    case 15:
        *m = numbers(HAND_OVER, NUMBERS(TERM, 1, 1), 0, NULL);
        return "expected none that hands over to another";
    case 16:
        *m = numbers(9, NUMBERS(1), 0, NULL);
        return "expected a message of libraft's";
    case 17:
        *m = numbers(ENTRIES, NUMBERS(TERM, 1, 1, 1, UINT64_MAX), 0, NULL);
        return "expected a message of libraft's";
    default:
        return NULL;
    }
}

/* ---- a connection */

static int connect_to(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void send_all(int fd, tt__bytes *words) {
    (void)!send(fd, words->data, words->size, MSG_NOSIGNAL);
    tt__bytes_free(words);
}

static bool receive(int fd, void *to, size_t size) { return recv(fd, to, size, MSG_WAITALL) == (ssize_t)size; }

/* Say who one is; false: the replica hears no more. */
static bool say_hello(int fd, tt__replica_hello hello, tt__replica_hello *answer) {
    tt__bytes words = {0}, own = {0};
    uint8_t head[8], text[512];
    hello.list = text_of(all.list);
    tt__replica_put_hello(&own, &hello);
    tt__store_put_u8(&words, OPCODE_PEER);
    tt__store_put_string(&words, (tt__span){own.data, own.size});
    tt__bytes_free(&own);
    send_all(fd, &words);
    if (!receive(fd, head, sizeof head))
        return false;
    size_t size = (size_t)tt__store_number(head, 8);
    assert_true(size <= sizeof text && receive(fd, text, size));
    return tt__replica_take_hello((tt__span){text, size}, answer);
}

static int open_replica(int i) {
    int fd = connect_to(all.ports[i]);
    tt__bytes words = {0};
    tt__store_put_u8(&words, 0);
    tt__store_put_u32(&words, TT__STORE_MAGIC);
    send_all(fd, &words);
    return fd;
}

static void tell(int fd, tt__bytes *message) {
    tt__bytes words = {0}, body = {0};
    tt__store_put_u64(&body, members[0].cluster);
    tt__store_put_u8(&body, TT__REPLICA_RAFT);
    tt__bytes_put(&body, message->data, message->size);
    tt__store_put_u8(&words, OPCODE_TELL);
    tt__store_put_string(&words, (tt__span){body.data, body.size});
    send_all(fd, &words);
    tt__bytes_free(&body);
    tt__bytes_free(message);
}

/* Does the replica still listen? */
static bool is_open(int fd) {
    tt__bytes words = {0};
    uint8_t echo[4];
    tt__store_put_u8(&words, OPCODE_PING);
    tt__store_put_u32(&words, 1);
    send_all(fd, &words);
    return receive(fd, echo, sizeof echo);
}

/* Find out who all are: each tells whoever comes. */
static void meet_all(void) {
    for (int i = 0; i < REPLICAS; i++) {
        int fd = open_replica(i);
        assert_true(say_hello(fd, (tt__replica_hello){(i + 1) % REPLICAS, STRANGE_ID, 0, {0}}, &members[i]));
        close(fd);
    }
}

/* Speak to replica i in the place of the next one. */
static int speak_to(int i) {
    tt__replica_hello answer;
    int fd = open_replica(i);
    assert_true(say_hello(fd, members[(i + 1) % REPLICAS], &answer));
    return fd;
}

static void assert_all_there(void) {
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    tt_store_value value;
    assert_int_equal(tt_store_get(store, "key", &value), TT_OK);
    assert_string_equal(value.data, "value");
    tt_store_value_free(&value);
    assert_int_equal(tt_store_add(store, "count", 1, NULL), TT_OK);
    tt_store_free(store);
    for (int i = 0; i < REPLICAS; i++) {
        process_read(all.running[i], 0);
        assert_int_equal(waitpid(all.running[i]->pid, NULL, WNOHANG), 0);
        if (strstr(all.running[i]->text[1], "serves nobody any more"))
            fail_msg("replica %d: %s", i + 1, all.running[i]->text[1]);
    }
}

static void begin_store(void) {
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    assert_int_equal(tt_store_set(store, "key", "value", 5), TT_OK);
    tt_store_free(store);
    meet_all();
}

/* ---- */

static void test_no_lie_ends_a_replica(void **state) {
    (void)state;
    tt__bytes m;
    begin_store();
    for (int number = 0; lie_of(number, &m); number++) {
        tt__bytes_free(&m);
        for (int i = 0; i < REPLICAS; i++) {
            int fd = speak_to(i);
            lie_of(number, &m);
            tell(fd, &m);
            if (is_open(fd))
                fail_msg("lie %d was believed by replica %d", number, i + 1);
            close(fd);
        }
    }
    assert_all_there();
}

/* Each in a store of its own, as a log says only so much. */
static void test_what_came_is_said(void **state) {
    (void)state;
    char who[64];
    tt__bytes m;
    const char *why;
    begin_store();
    kill(all.running[1]->pid, SIGSTOP); /* who would come back, and end what is said in its name */
    snprintf(who, sizeof who, ": replica 2, 127.0.0.1:%d: expected", all.ports[1]);
    for (int number = 0; number < 8 && (why = lie_of(number, &m)); number++) { /* ten lines in ten seconds */
        int fd = speak_to(0);
        tell(fd, &m);
        process_expect(all.running[0], 1, why, 1);
        close(fd);
    }
    process_expect(all.running[0], 1, who, 8);
    process_expect(all.running[0], 1, "store: closed the connection from 127.0.0.1:", 8);
    kill(all.running[1]->pid, SIGCONT);
}

/* Who leads hears of another one in its term, whichever that is. */
static void test_another_one_leads(void **state) {
    (void)state;
    begin_store();
    for (int i = 0; i < REPLICAS; i++) {
        int fd = speak_to(i);
        bool open = true;
        for (uint64_t term = 1; term < TERMS && open; term++) {
            tt__bytes m = heartbeat(term, 1, 1);
            tell(fd, &m);
            open = is_open(fd);
        }
        close(fd);
        assert_all_there();
    }
}

static void test_who_is_another_one(void **state) {
    (void)state;
    tt__replica_hello answer;
    begin_store();
    for (int i = 0; i < REPLICAS; i++) {
        int next = (i + 1) % REPLICAS, last = (i + 2) % REPLICAS, fd = open_replica(i);
        assert_false(say_hello(fd, (tt__replica_hello){next, members[i].id, members[i].cluster, {0}}, &answer));
        close(fd);
        fd = open_replica(i);
        assert_false(say_hello(fd, (tt__replica_hello){next, members[last].id, members[i].cluster, {0}}, &answer));
        close(fd);
        fd = open_replica(i);
        assert_false(say_hello(fd, (tt__replica_hello){i, STRANGE_ID, 0, {0}}, &answer));
        close(fd);
        fd = speak_to(i);
        assert_false(say_hello(fd, members[next], &answer));
        close(fd);
    }
    assert_all_there();
}

/* One that is new is told to begin by one that must not, and with ids that are none. */
static void test_a_false_beginning(void **state) {
    (void)state;
    for (int i = 1; i < REPLICAS; i++)
        replicas_stop_one(&all, i, SIGKILL);
    replicas_stop_one(&all, 0, SIGKILL);
    all.running[0] = replicas_start_one(&all);
    process_expect(all.running[0], 0, "replica 1 of 3,", 1);
    for (int lie = 0; lie < 3; lie++) {
        tt__replica_hello answer;
        tt__bytes words = {0}, body = {0};
        int fd = open_replica(0);
        assert_true(say_hello(fd, (tt__replica_hello){1, STRANGE_ID, 0, {0}}, &answer));
        PUT(&body, lie ? STRANGE_ID : 0);
        tt__store_put_u8(&body, lie == 2 ? 9 : TT__REPLICA_BEGIN);
        PUT(&body, answer.id, lie ? STRANGE_ID : 0, 0);
        tt__store_put_u8(&words, OPCODE_TELL);
        tt__store_put_string(&words, (tt__span){body.data, body.size});
        send_all(fd, &words);
        tt__bytes_free(&body);
        assert_false(is_open(fd));
        close(fd);
    }
    replicas_run(&all, 1);
    replicas_run(&all, 2);
    replicas_wait(&all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_lie_ends_a_replica, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_what_came_is_said, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_another_one_leads, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_who_is_another_one, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_a_false_beginning, open_all, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
