/* What fuzzers feed to parsers, over real connections: to a store that serves, to the port of a rank that joins, over
 * the link to a rank that has joined, and to `tutti top`. Those who belong to the job go on meanwhile.
 *
 * Each run draws a seed of its own, and prints it: TT_STORM_SEED repeats it. TT_STORM_CASES or TT_STORM_SECONDS, for
 * each part, is the long form. */
#include "support/mutate.h"
#include "support/patience.h"

#include "base/machine/clock.h"
#include "comm/message/joining/joining.h"
#include "comm/record/recorder.h"
#include "net/job/job_socket.h"

#include <tutti/store.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET "an old and well kept secret"

static unsigned char bytes[MUTATE_MAX];

/* ---- how much */

/* TT_STORM_SECONDS, TT_STORM_CASES, or so many cases as a machine that is busy plays in a few seconds. */
static bool goes_on(long number, long cases, int64_t began_ms) {
    enum { USUAL_MS = 4000 };
    long seconds = storm_number("TT_STORM_SECONDS", 0), given = storm_number("TT_STORM_CASES", 0);
    int64_t taken_ms = tt__now_ms() - began_ms;
    if (seconds)
        return taken_ms < seconds * 1000;
    return given ? number < given : number < cases && taken_ms < USUAL_MS;
}

/* ---- a stranger */

static int call(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void read_what_is_there(int fd, int ms) {
    static unsigned char dropped[1 << 16];
    struct pollfd one = {.fd = fd, .events = POLLIN};
    while (poll(&one, 1, ms) > 0 && recv(fd, dropped, sizeof dropped, MSG_DONTWAIT) > 0)
        ;
}

/* Say it in pieces, read at times, and leave in one way or another. */
static void say(int fd, uint64_t *state, const unsigned char *what, size_t size) {
    bool whole = storm_below(state, 2);
    for (size_t at = 0; at < size;) {
        size_t piece = whole ? size : 1 + storm_below(state, 64);
        piece = piece < size - at ? piece : size - at;
        ssize_t n = send(fd, what + at, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            break;
        if (n < 0 || storm_below(state, 8) == 0)
            read_what_is_there(fd, 0);
        if (n < 0 && send(fd, what + at, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            break;
        at += n > 0 ? (size_t)n : 1;
    }
    switch (storm_below(state, 8)) {
    case 0:
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        break;
    case 1:
        shutdown(fd, SHUT_WR);
        read_what_is_there(fd, 20);
        break;
    case 2:
        read_what_is_there(fd, 5);
        break;
    default:
        break;
    }
}

/* ---- the store */

typedef struct member {
    int port;
    _Atomic int over;
    int64_t rounds;
    tt_status status;
    char error[512];
} member;

/* Somebody of the job uses the store, and gets what it gave. */
static tt_status use_once(tt_store *store, int64_t round) {
    tt_store_value value = {0};
    int64_t count = 0;
    tt_status status = tt_store_set(store, "of the job", &round, sizeof round);
    if (!status)
        status = tt_store_get(store, "of the job", &value);
    if (!status && (value.size != sizeof round || memcmp(value.data, &round, sizeof round)))
        status = TT_ERR_STATE;
    tt_store_value_free(&value);
    if (!status)
        status = tt_store_add(store, "counted by the job", 1, &count);
    return !status && count != round ? TT_ERR_STATE : status;
}

static void *use_the_store(void *arg) {
    member *m = arg;
    tt_store *store = NULL;
    m->status = tt_tcp_store(&store, "127.0.0.1", m->port, .secret = SECRET, .timeout_ms = PATIENCE_MS);
    while (!m->status && !m->over)
        m->status = use_once(store, ++m->rounds);
    snprintf(m->error, sizeof m->error, "%s", m->status ? tt_last_error() : "");
    tt_store_free(store);
    return NULL;
}

static void the_store_serves_on(void **state) {
    (void)state;
    corpus dialect, handshake;
    tt_store_server *server;
    pthread_t thread;
    corpus_load(&dialect, "store");
    corpus_load(&handshake, "handshake");
    assert_int_equal(tt_store_server_new(&server, "127.0.0.1", 0, .secret = SECRET), TT_OK);
    member m = {.port = tt_store_server_port(server)};
    assert_int_equal(pthread_create(&thread, NULL, use_the_store, &m), 0);
    int64_t began_ms = tt__now_ms();
    for (long i = 0; goes_on(i, 2000, began_ms); i++) {
        uint64_t random = storm_case(i);
        bool ours = storm_below(&random, 3) == 0;
        size_t size = ours ? corpus_draw(&handshake, &random, 1, bytes) : corpus_draw(&dialect, &random, 5, bytes);
        int fd = call(m.port);
        if (!storm_skips(i))
            say(fd, &random, bytes, size);
        close(fd);
    }
    m.over = 1;
    pthread_join(thread, NULL);
    tt_store_server_free(server);
    corpus_free(&handshake);
    corpus_free(&dialect);
    if (m.status)
        fail_msg("round %lld: %s %s", (long long)m.rounds, tt_status_name(m.status), m.error);
    assert_true(m.rounds > 0);
}

/* ---- ranks: two engines, or one and a stranger in the place of the other */

typedef struct engine {
    int rank;
    tt__messages *messages;
    pthread_mutex_t lock;
    pthread_t thread;
    char token[TT__ADDRESSES_SIZE];
    const char *addresses[2];
    tt_status status;
    char error[2048];
} engine;

static void make_engine(engine *e, int rank) {
    *e = (engine){.rank = rank};
    pthread_mutex_init(&e->lock, NULL);
    const tt__messages_config config = {.rank = rank, .size = 2, .heartbeat_ms = CALM_MS, .lock = &e->lock};
    assert_int_equal(tt__messages_new(&e->messages, &config), TT_OK);
    assert_int_equal(tt__messages_listen(e->messages, true, e->token), TT_OK);
}

static void *open_engine(void *arg) {
    engine *e = arg;
    e->status = tt__messages_open(e->messages, e->addresses, tt__deadline_ms(PATIENCE_MS));
    snprintf(e->error, sizeof e->error, "%s", e->status ? tt_last_error() : "");
    return NULL;
}

static void end_engine(engine *e, bool quietly) {
    tt__messages_close(e->messages, quietly);
    pthread_mutex_destroy(&e->lock);
}

/* Ranks that join find each other behind strangers. */
static void ranks_meet(long round, long strangers, const corpus *handshake) {
    engine engines[2];
    for (int r = 0; r < 2; r++)
        make_engine(&engines[r], r);
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < 2; k++)
            engines[r].addresses[k] = engines[k].token;
    assert_int_equal(pthread_create(&engines[0].thread, NULL, open_engine, &engines[0]), 0);
    for (long i = round * strangers; i < (round + 1) * strangers; i++) {
        uint64_t random = storm_case(i + 1000000);
        size_t size = corpus_draw(handshake, &random, 1, bytes);
        int fd = call(atoi(engines[0].token));
        if (!storm_skips(i))
            say(fd, &random, bytes, size);
        close(fd);
    }
    open_engine(&engines[1]);
    pthread_join(engines[0].thread, NULL);
    for (int r = 0; r < 2; r++)
        if (engines[r].status)
            fail_msg("round %ld, rank %d: %s", round, r, engines[r].error);
    for (int r = 0; r < 2; r++)
        end_engine(&engines[r], false);
}

static void ranks_meet_behind_strangers(void **state) {
    (void)state;
    enum { STRANGERS = 100 };
    corpus handshake;
    corpus_load(&handshake, "handshake");
    setenv("TT_SECRET", SECRET, 1);
    int64_t began_ms = tt__now_ms();
    for (long round = 0; goes_on(round * STRANGERS, 500, began_ms); round++) {
        setenv("TT_WIRE", round % 2 ? "plain" : "sealed", 1);
        ranks_meet(round, STRANGERS, &handshake);
    }
    corpus_free(&handshake);
}

/* ---- a link */

enum { POSTED = 8, BUFFER = 70000 };

/* Join `e`, as rank 1 would. */
static tt__stream join_as_rank_1(engine *e, tt__sealing sealing) {
    static tt__secret secret;
    tt__target target = {.rank = 0};
    tt__stream stream;
    int peer;
    tt__secret_from(&secret, SECRET, strlen(SECRET));
    assert_int_equal(tt__addresses_read(e->token, &target), TT_OK);
    tt__handshake_role role = {.purpose = TT__PURPOSE_TRANSPORT, .sealing = sealing, .secret = &secret, .rank = 1};
    memcpy(role.job, target.job, sizeof role.job);
    assert_int_equal(tt__stream_open(&stream, call(atoi(e->token)), NULL, false), TT_OK);
    assert_int_equal(tt__stream_handshake(&stream, &role, tt__deadline_ms(PATIENCE_MS), &peer, NULL), TT_OK);
    assert_int_equal(tt__stream_write_full(&stream, "T", 1, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    return stream;
}

static void post_all(engine *e, tt__message *posted, unsigned char (*buffers)[BUFFER]) {
    static const size_t sizes[] = {0, 4, TT__EAGER_MAX, TT__EAGER_MAX + 1, BUFFER};
    for (int i = 0; i < POSTED; i++) {
        posted[i] = (tt__message){.key = {.group = 1, .seq = i < 4 ? 0 : (uint32_t)i / 2, .step = (uint32_t)i / 4},
                                  .peer = i == 2 ? TT_ANY_SOURCE : 1,
                                  .data = buffers[i],
                                  .bytes = sizes[i % 5]};
        posted[i].key.word = 1;
        if (i % 2)
            tt__message_send(e->messages, &posted[i]);
        else
            tt__message_recv(e->messages, &posted[i]);
    }
    tt__messages_leave(e->messages);
}

/* The link ends, at the latest with the stranger, and each message ends once. */
static void link_ends(engine *e, tt__message *posted) {
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    pthread_mutex_lock(&e->lock);
    while (!tt__link_check(e->messages, 1)) {
        assert_true(tt__left_ms(deadline_ms));
        tt__messages_wait(e->messages, 10);
    }
    for (int i = 0; i < POSTED; i++) {
        tt__message_cancel(e->messages, &posted[i], TT_ERR_ABORTED);
        assert_true(posted[i].done);
    }
    pthread_mutex_unlock(&e->lock);
}

/* A rank with the secret that says anything; on a sealed wire also somebody who took its place after the handshake. */
static void a_link_breaks(long number, const corpus *frames) {
    static unsigned char buffers[POSTED][BUFFER];
    uint64_t random = storm_case(number + 2000000);
    tt__message posted[POSTED];
    engine e;
    bool seals = storm_below(&random, 2), taken_over = storm_below(&random, 3) == 0;
    setenv("TT_WIRE", seals ? "sealed" : "plain", 1);
    make_engine(&e, 0);
    e.addresses[0] = e.addresses[1] = e.token;
    assert_int_equal(pthread_create(&e.thread, NULL, open_engine, &e), 0);
    tt__stream stream = join_as_rank_1(&e, seals ? TT__SEALING_RECORDS : TT__SEALING_NONE);
    pthread_join(e.thread, NULL);
    if (e.status)
        fail_msg("case %ld: %s", number, e.error);
    pthread_mutex_lock(&e.lock);
    post_all(&e, posted, buffers);
    pthread_mutex_unlock(&e.lock);
    size_t size = corpus_draw(frames, &random, 1, bytes);
    if (seals && !taken_over)
        (void)!tt__stream_write_full(&stream, bytes, size, tt__deadline_ms(PATIENCE_MS));
    say(stream.fd, &random, bytes, seals && !taken_over ? 0 : size);
    tt__stream_close(&stream);
    link_ends(&e, posted);
    end_engine(&e, false);
}

static void links_break_cleanly(void **state) {
    (void)state;
    corpus frames;
    corpus_load(&frames, "frames");
    setenv("TT_SECRET", SECRET, 1);
    int64_t began_ms = tt__now_ms();
    for (long i = 0; goes_on(i, 200, began_ms); i++)
        if (!storm_skips(i))
            a_link_breaks(i, &frames);
    corpus_free(&frames);
}

/* ---- what `tutti top` reads */

typedef struct launcher {
    int listener;
    _Atomic int over;
    _Atomic long number;
} launcher;

/* A recorder with some calls, a few bytes of which are changed; in a file. */
static int recorder_file(uint64_t *random) {
    int fd = memfd_create("recorder", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, sizeof(tt__recorder)), 0);
    if (storm_below(random, 8)) /* what isn't sealed is not looked at */
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    tt__recorder *recorder = mmap(NULL, sizeof *recorder, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(recorder != MAP_FAILED);
    tt__recorder_init(recorder, 0, 2);
    tt__recorder_name_group(recorder, 0, (const int[]){0, 1}, 2);
    for (int i = 0; i < 4; i++)
        tt__record_ready(tt__record_begin(recorder, "train.c", i, (tt__call_record){.op = TT_OP_ALL_REDUCE}),
                         TT__CALL_BEGUN);
    for (size_t changes = storm_below(random, 200); changes; changes--)
        ((unsigned char *)recorder)[storm_below(random, sizeof *recorder)] ^= (unsigned char)storm_draw(random);
    munmap((void *)recorder, sizeof *recorder);
    return fd;
}

static void send_spoiled(int fd, uint64_t *random, tt__job_kind kind, tt__job_packet packet, int attached) {
    unsigned char *raw = (unsigned char *)&packet;
    for (size_t changes = storm_below(random, 4) ? storm_below(random, 20) : 0; changes; changes--)
        raw[storm_below(random, sizeof packet)] ^= (unsigned char)storm_draw(random);
    tt__job_send(fd, kind, &packet, attached);
}

static void show_job(int fd, uint64_t *random) {
    tt__job_packet packet = {.info = {.pid = getpid(), .world = 2, .local_ranks = 2, .nodes = 1}};
    send_spoiled(fd, random, TT__JOB_INFO, packet, -1);
    for (int r = 0; r < 2; r++) {
        int memory = recorder_file(random);
        packet = (tt__job_packet){.rank = {.rank = r, .pid = getpid(), .state = TT__JOB_RUNNING}};
        packet.rank.at = (tt__job_recorder){.rank = r, .size = sizeof(tt__recorder)};
        send_spoiled(fd, random, TT__JOB_RANK, packet, memory);
        close(memory);
    }
    send_spoiled(fd, random, TT__JOB_END, (tt__job_packet){0}, -1);
}

static void *pretend_to_launch(void *arg) {
    launcher *l = arg;
    struct pollfd one = {.fd = l->listener, .events = POLLIN};
    while (!l->over) {
        uint64_t random = storm_case(l->number + 3000000);
        tt__job_packet asked;
        int attached = -1, fd = poll(&one, 1, 20) > 0 ? accept4(l->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd < 0)
            continue;
        if (tt__job_receive(fd, &asked, &attached) > 0)
            show_job(fd, &random);
        if (attached >= 0)
            close(attached);
        close(fd);
    }
    return NULL;
}

/* It ends by itself, and says nothing that a terminal would obey. */
static void top_survives(long number) {
    static char said[1 << 20];
    char command[4200];
    const char *tutti = getenv("TUTTI");
    if (!tutti)
        fail_msg("TUTTI is not set: run this through ctest");
    snprintf(command, sizeof command, "exec %s top --once %s %d 2>&1", tutti, number % 2 ? "--json" : "",
             (int)getpid());
    FILE *output = popen(command, "r");
    assert_non_null(output);
    size_t size = fread(said, 1, sizeof said - 1, output);
    said[size] = '\0';
    int status = pclose(output);
    bool plain = true;
    for (size_t i = 0; i < size; i++)
        plain = plain && (said[i] == '\n' || !iscntrl((unsigned char)said[i]));
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1 || !plain || strstr(said, "Sanitizer") ||
        strstr(said, "runtime error"))
        fail_msg("case %ld: status %x: %s", number, status, said);
}

static void tops_survive_launchers(void **state) {
    (void)state;
    launcher l = {0};
    char name[TT__JOB_NAME_SIZE];
    pthread_t thread;
    assert_int_equal(tt__job_socket_name(name), TT_OK);
    assert_int_equal(tt__job_socket_listen(&l.listener, name), TT_OK);
    assert_int_equal(pthread_create(&thread, NULL, pretend_to_launch, &l), 0);
    int64_t began_ms = tt__now_ms();
    for (long i = 0; goes_on(i, 60, began_ms); i++) {
        l.number = i;
        if (!storm_skips(i))
            top_survives(i);
    }
    l.over = 1;
    pthread_join(thread, NULL);
    close(l.listener);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_store_serves_on),
        cmocka_unit_test(ranks_meet_behind_strangers),
        cmocka_unit_test(links_break_cleanly),
        cmocka_unit_test(tops_survive_launchers),
    };
    char seed[16];
    unsigned drawn = 0;
    (void)!getrandom(&drawn, sizeof drawn, 0);
    snprintf(seed, sizeof seed, "%u", drawn % 1000000 + 1);
    setenv("TT_STORM_SEED", seed, 0);
    printf("TT_STORM_SEED=%s\n", getenv("TT_STORM_SEED"));
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
