/* A worker that has the job secret and means harm: it speaks the packets of workers by itself, wrong and right ones
 * without end. It may break nothing but itself: meanwhile the others' calls to each other go on, their memory stays
 * bounded, and when it is gone nothing of it is left with them. */
#include "rpc/calls/sending.h"
#include "rpc/references/references.h"
#include "rpc/rpc_state.h"
#include "rpc/values/rpc_wire.h"

#include "support/ranks.h"
#include "support/rpc_packet.h"
#include "support/storm.h"

#include "base/machine/clock.h"

#include <sys/mman.h>

enum {
    HOSTILE = 2,
    WORLD = 3,
    ATTACK_MS = 400,
    AHEAD = 4 << 20,        /* bytes that it lets wait to be sent */
    MEMORY_MAX = 400 << 20, /* by which the others may grow meanwhile: twice a window's worth of replies and values */
    SLOW_MS = 3000          /* that a call of theirs may take */
};

/* ---- functions */

static tt_status add(tt_rpc_call *call) {
    return tt_rpc_return(call, tt_rpc_int(tt_rpc_arg_int(call, 0) + tt_rpc_arg_int(call, 1)));
}
TT_RPC_FUNCTION_NAMED(add, "hostile_add", "(int a, int b) -> int");

static tt_status echo(tt_rpc_call *call) {
    tt_rpc_value value;
    if (tt_rpc_take_arg(call, 0, &value))
        return tt_last_status();
    return tt_rpc_return(call, value);
}
TT_RPC_FUNCTION_NAMED(echo, "hostile_echo", "(any value) -> any");

static tt_future *never;

static tt_status later(tt_rpc_call *call) { return tt_rpc_return_future(call, never); }
TT_RPC_FUNCTION_NAMED(later, "hostile_later", "() -> any");

/* Return once what follows from the loss of a worker is done here. */
static tt_status see_lost(tt_rpc_call *call) {
    tt_rpc *rpc = tt_rpc_of_call(call);
    const tt__rpc_peer *peer = rpc->peers[tt_rpc_arg_int(call, 0)];
    int64_t until = tt__deadline_ms(PATIENCE_MS);
    for (bool told = false; !told && tt__left_ms(until);) {
        usleep(1000);
        tt__rpc_lock(rpc);
        told = peer->told;
        tt__rpc_unlock(rpc);
    }
    return TT_OK;
}
TT_RPC_FUNCTION_NAMED(see_lost, "hostile_see_lost", "(int id)");

/* ---- what it sends */

/* A value of one list with one element: bytes that lie in the packet, or a part. */
static void put_bytes_value(packet *p, uint32_t bytes, bool apart) {
    static const uint8_t zeros[TT__PACKET_MAX];
    uint8_t list = TT__TAG_LIST, tag = apart ? TT__TAG_BYTES_APART : TT__TAG_BYTES;
    uint32_t one = 1, number = apart ? 0 : bytes;
    size_t at = p->size;
    put(p, &list, 1);
    put(p, &one, sizeof one);
    put(p, &tag, 1);
    put(p, &number, sizeof number);
    if (!apart)
        put(p, zeros, bytes);
    header_of(p)->value_bytes = (uint32_t)(p->size - at);
}

static void put_part(packet *p, uint64_t bytes) {
    put(p, &bytes, sizeof bytes);
    header_of(p)->parts++;
}

static bool is_ahead(tt_rpc *rpc, int to) {
    return !rpc->peers[to]->lost &&
           (rpc->peers[to]->waiting_bytes > AHEAD || tt__unsent_bytes(rpc->network->messages, to) > AHEAD);
}

/* Send it as a worker does, within the window (it has to be: who exceeds it is lost), or without regard to anything. */
static void send_packet(tt_rpc *rpc, int to, packet *p, bool orderly) {
    tt__rpc_lock(rpc);
    for (int i = 0; is_ahead(rpc, to) && i < 50; i++) {
        rpc->network->ops->progress(rpc->network);
        tt__rpc_send_waiting(rpc);
        tt__rpc_unlock(rpc);
        usleep(1000);
        tt__rpc_lock(rpc);
    }
    if (orderly)
        tt_ignore(tt__rpc_send(rpc, to, p->data, p->size, NULL));
    else
        tt_ignore(tt__packet_send(rpc->network->messages, to, p->data, p->size));
    tt__rpc_unlock(rpc);
}

/* ---- attacks, one step each */

static void fetches_of_nothing(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    uint8_t tag = TT__TAG_RREF;
    uint32_t zero = 0;
    (void)random;
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_FETCH, .id = i}, "");
    put(&p, &tag, 1);
    put(&p, &zero, sizeof zero);
    header_of(&p)->value_bytes = 5;
    put_ref(&p, to, HOSTILE, ((uint64_t)1 << 40) + i);
    send_packet(rpc, to, &p, true);
}

static void calls_without_replies(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    (void)random;
    begin_packet(&p, (tt__rpc_header){.kind = i % 2 ? TT__RPC_CALL : TT__RPC_KEEP, .id = i, .serial = i + 1},
                 "hostile_later");
    uint8_t list = TT__TAG_LIST;
    uint32_t none = 0;
    put(&p, &list, 1);
    put(&p, &none, sizeof none);
    header_of(&p)->value_bytes = 5;
    send_packet(rpc, to, &p, true);
}

static void holds_of_nothing(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    begin_packet(&p,
                 (tt__rpc_header){.kind = i % 2 ? TT__RPC_HOLD : TT__RPC_RELEASE,
                                  .id = (uint32_t)storm_below(random, WORLD),
                                  .serial = storm_below(random, 3)},
                 "");
    put_ref(&p, to, (int)storm_below(random, WORLD), ((uint64_t)1 << 40) + storm_draw(random) % (1 << 24));
    send_packet(rpc, to, &p, true);
}

/* References to values of the third worker, which whoever gets them lets go, and tells it. */
static void references_of_others(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_CALL, .id = i}, "hostile_echo");
    put_bytes_value(&p, 1, false);
    for (int k = 0; k < 100; k++)
        put_ref(&p, 1 - to, HOSTILE, ((uint64_t)1 << 40) + storm_draw(random) % (1 << 24));
    send_packet(rpc, to, &p, true);
}

static void parts_that_never_come(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    static const uint64_t sizes[] = {1,          100000,           64 << 20, (uint64_t)1 << 30, (uint64_t)20 << 30,
                                     UINT64_MAX, (uint64_t)1 << 62};
    packet p;
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_CALL, .id = i}, "hostile_echo");
    put_bytes_value(&p, 0, true);
    put_part(&p, sizes[storm_below(random, 7)]);
    send_packet(rpc, to, &p, true);
}

static void replies_to_nothing(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    bool error = i % 3 == 0;
    begin_packet(&p,
                 (tt__rpc_header){.kind = error ? TT__RPC_ERROR : TT__RPC_REPLY,
                                  .flags = error,
                                  .id = (uint32_t)storm_draw(random) % 4 << 20 | i % 64},
                 "");
    put_bytes_value(&p, 0, i % 3 == 1);
    if (i % 3 == 1)
        put_part(&p, (uint64_t)1 << 30);
    send_packet(rpc, to, &p, false);
}

/* Large replies are asked for, and not taken: this holds the lock that any thread of its would take them under. */
static void replies_that_are_not_taken(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    (void)random;
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_CALL, .id = i}, "hostile_echo");
    put_bytes_value(&p, 8000, false);
    tt__rpc_lock(rpc);
    for (int k = 0; k < 200; k++)
        tt_ignore(tt__packet_send(rpc->network->messages, to, p.data, p.size));
    usleep(3000);
    tt__rpc_unlock(rpc);
}

static void more_than_the_window(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    (void)random;
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_CALL, .id = i}, "hostile_echo");
    put_bytes_value(&p, 50000, false);
    send_packet(rpc, to, &p, false);
}

/* What those that leave together say, and what is asked when a worker is lost. */
static void words_of_the_end(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    static const uint8_t kinds[] = {TT__RPC_LEAVING, TT__RPC_WAVE, TT__RPC_IDLE, TT__RPC_END, TT__RPC_SETTLE};
    packet p;
    (void)i;
    begin_packet(&p,
                 (tt__rpc_header){.kind = kinds[storm_below(random, 5)],
                                  .id = (uint32_t)storm_below(random, 2),
                                  .context = storm_draw(random),
                                  .message = storm_draw(random)},
                 "");
    if (header_of(&p)->kind == TT__RPC_SETTLE)
        header_of(&p)->id = 1 - (uint32_t)to;
    send_packet(rpc, to, &p, false);
}

static void probes(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    begin_packet(&p,
                 (tt__rpc_header){
                     .kind = TT__RPC_PROBE, .id = i, .context = storm_draw(random), .serial = storm_below(random, 100)},
                 "");
    send_packet(rpc, to, &p, false);
}

/* Lists in lists that say to be long. */
static void deep_lists(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    uint8_t list = TT__TAG_LIST;
    (void)random;
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_CALL, .id = i}, "hostile_echo");
    size_t at = p.size;
    for (int k = 0; k < TT_RPC_DEPTH - 1; k++) {
        uint32_t count = 60000;
        put(&p, &list, 1);
        put(&p, &count, sizeof count);
    }
    memset(p.data + p.size, TT__TAG_NONE, 60500);
    p.size += 60500;
    header_of(&p)->value_bytes = (uint32_t)(p.size - at);
    send_packet(rpc, to, &p, true);
}

/* Anything: a call like others, of which some bytes are others. */
static void anything(tt_rpc *rpc, int to, uint32_t i, uint64_t *random) {
    packet p;
    begin_packet(&p,
                 (tt__rpc_header){.kind = (uint8_t)(1 + storm_below(random, TT__RPC_PACKET_KINDS)),
                                  .id = i,
                                  .serial = storm_below(random, 10)},
                 storm_below(random, 2) ? "hostile_echo" : "hostile_add");
    put_bytes_value(&p, (uint32_t)storm_below(random, 100), storm_below(random, 2));
    while (storm_below(random, 3) == 0)
        put_part(&p, storm_draw(random) >> storm_below(random, 64));
    while (storm_below(random, 3) == 0)
        put_ref(&p, (int)storm_below(random, WORLD + 1), (int)storm_below(random, WORLD + 1), storm_below(random, 9));
    for (size_t n = storm_below(random, 4); n; n--)
        p.data[storm_below(random, storm_below(random, 2) ? sizeof(tt__rpc_header) : p.size)] =
            (uint8_t)storm_draw(random);
    send_packet(rpc, to, &p, false);
}

typedef void (*attack_fn)(tt_rpc *rpc, int to, uint32_t i, uint64_t *random);

typedef struct attack {
    const char *name;
    attack_fn step;
    bool on_memory; /* what it is measured by is not what a sanitizer leaves of it */
} attack;

static const attack attacks[] = {{"fetches of nothing", fetches_of_nothing, true},
                                 {"calls without replies", calls_without_replies, true},
                                 {"holds of nothing", holds_of_nothing, true},
                                 {"references of others", references_of_others, false},
                                 {"parts that never come", parts_that_never_come, true},
                                 {"replies to nothing", replies_to_nothing, false},
                                 {"replies that are not taken", replies_that_are_not_taken, true},
                                 {"more than the window", more_than_the_window, false},
                                 {"words of the end", words_of_the_end, false},
                                 {"probes", probes, false},
                                 {"deep lists", deep_lists, false},
                                 {"anything", anything, false}};
enum { ATTACKS = sizeof attacks / sizeof *attacks };

/* ---- workers */

typedef struct scene {
    const attack *attack;
    const char *transport;
    uint64_t random;
    _Atomic int *over; /* shared */
} scene;

static void attack_all(const scene *scene, tt_rpc *rpc) {
    uint64_t random = scene->random;
    int64_t until = tt__deadline_ms(ATTACK_MS);
    for (uint32_t i = 0; tt__left_ms(until); i++)
        scene->attack->step(rpc, (int)i % 2, i, &random);
    atomic_store(scene->over, 1);
    usleep(20000); /* the others see what it has sent, or not */
    raise(SIGKILL);
}

static size_t resident_bytes(void) {
    unsigned long all = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%lu %lu", &all, &resident) == 2);
    fclose(statm);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void call_other(tt_rpc *rpc, int other, const void *bytes, size_t size) {
    int64_t since = tt__now_ms();
    tt_rpc_value value;
    CHECK_OK(tt_rpc_sync(rpc, NULL, "hostile_echo", .to_id = other, .args = TT_RPC_ARGS(tt_rpc_bytes(bytes, size)),
                         .result = &value));
    CHECK(value.bytes.size == size);
    tt_rpc_value_free(&value);
    CHECK(tt__now_ms() - since < SLOW_MS + leeway_ms());
}

static void expect_nothing_left(tt_rpc *rpc) {
    tt_rpc_counts counts;
    int64_t until = tt__deadline_ms(PATIENCE_MS);
    do {
        usleep(1000);
        CHECK_OK(tt_rpc_get_counts(rpc, &counts));
        if (!tt__left_ms(until))
            fprintf(stderr, "left: %lld owned, %lld held, %lld served, %lld calls, %lld bytes\n",
                    (long long)counts.owned, (long long)counts.held, (long long)counts.serving, (long long)counts.calls,
                    (long long)counts.bytes);
        CHECK(tt__left_ms(until));
    } while (counts.owned || counts.held || counts.serving || counts.calls || counts.bytes);
}

static void go_on(const scene *scene, tt_rpc *rpc, int rank) {
    static const unsigned char big[100000];
    size_t before = resident_bytes(), most = before;
    do {
        call_other(rpc, 1 - rank, big, sizeof big);
        call_other(rpc, 1 - rank, big, 10);
        size_t now = resident_bytes();
        most = now > most ? now : most;
    } while (!atomic_load(scene->over));
    if (most - before > MEMORY_MAX)
        fprintf(stderr, "%s over %s: rank %d grew by %zu MiB\n", scene->attack->name, scene->transport, rank,
                (most - before) >> 20);
    CHECK(most - before <= MEMORY_MAX || getenv("TT_SANITIZED"));
    expect_nothing_left(rpc);
}

static int be_worker(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    tt_group *group = NULL;
    tt_rpc *rpc = NULL;
    char name[20];
    snprintf(name, sizeof name, "worker%d", rank);
    CHECK(never = tt_future_new());
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS, .transport = scene->transport));
    CHECK_OK(tt_rpc_init(&rpc, name, .group = group, .join_timeout_ms = PATIENCE_MS));
    if (rank == HOSTILE)
        attack_all(scene, rpc);
    else
        go_on(scene, rpc, rank);
    tt_status status = tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS);
    CHECK(!status || strstr(tt_last_error(), "worker worker2 (id 2): ")); /* that it was lost, and how */
    tt_future_free(never);
    tt_destroy_process_group(group);
    return 0;
}

static bool survived(const attack *attack, const char *transport, long number) {
    ranks ranks;
    scene scene = {.attack = attack, .transport = transport, .random = storm_case(number)};
    scene.over = mmap(NULL, sizeof *scene.over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(scene.over != MAP_FAILED);
    start_ranks(&ranks, WORLD, be_worker, &scene);
    bool good = true;
    for (int r = 0; r < WORLD; r++) {
        int end = end_of_rank(&ranks, r);
        if (end != (r == HOSTILE ? 128 + SIGKILL : 0))
            fprintf(stderr, "rank %d ended with %d\n", r, end), good = false;
    }
    tt_store_server_free(ranks.server);
    munmap((void *)scene.over, sizeof *scene.over);
    if (!good)
        fprintf(stderr, "case %ld: %s over %s\n", number, attack->name, transport);
    return good;
}

static void it_breaks_nothing_but_itself(void **state) {
    long number = 0;
    bool good = true;
    (void)state;
    for (int i = 0; i < ATTACKS; i++)
        for (int t = 0; t < 2; t++, number++)
            if (!storm_skips(number) && !(attacks[i].on_memory && getenv("TT_SANITIZED")))
                good &= survived(&attacks[i], t ? "tcp" : "shm", number);
    assert_true(good);
}

/* ---- not hostile: words of a lost worker that come late, as they have another way than its end has */

static void say_late(tt_rpc *rpc, tt__rpc_header header, tt__rpc_ref ref) {
    packet p;
    begin_packet(&p, header, "");
    put_ref(&p, (int)ref.owner, (int)ref.creator, ref.serial);
    send_packet(rpc, (int)ref.owner, &p, true);
}

/* Worker 1 gave a value of worker 0 to the lost one, could not send it, and takes it back. */
static void speak_of_the_lost(tt_rpc *rpc) {
    tt_rref *ref;
    CHECK_OK(
        tt_rpc_remote(&ref, rpc, NULL, "hostile_add", .to_id = 0, .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(2))));
    CHECK_OK(tt_rpc_sync(rpc, NULL, "hostile_see_lost", .to_id = 0, .args = TT_RPC_ARGS(tt_rpc_int(HOSTILE))));
    tt__rpc_ref unmade = {.owner = 0, .creator = 1, .serial = (uint64_t)1 << 30};
    say_late(rpc, (tt__rpc_header){.kind = TT__RPC_RELEASE, .flags = 1, .id = HOSTILE, .serial = 1}, ref->ref);
    say_late(rpc, (tt__rpc_header){.kind = TT__RPC_HOLD, .id = HOSTILE}, unmade);
    tt_rref_free(ref);
}

static int be_worker_beside_a_lost_one(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    tt_rpc *rpc = NULL;
    char name[20];
    (void)arg;
    snprintf(name, sizeof name, "worker%d", rank);
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS));
    CHECK_OK(tt_rpc_init(&rpc, name, .group = group, .join_timeout_ms = PATIENCE_MS));
    if (rank == HOSTILE)
        raise(SIGKILL);
    if (rank == 1)
        speak_of_the_lost(rpc);
    tt_status status =
        rank ? TT_OK : tt_rpc_sync(rpc, NULL, "hostile_see_lost", .to_id = 1, .args = TT_RPC_ARGS(tt_rpc_int(HOSTILE)));
    CHECK_OK(status);
    wait_for_all(store, world - 1);
    expect_nothing_left(rpc);
    status = tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS);
    CHECK(!status || strstr(tt_last_error(), "worker worker2 (id 2): "));
    tt_destroy_process_group(group);
    return 0;
}

static void late_words_of_a_lost_worker_count_nothing(void **state) {
    ranks ranks;
    (void)state;
    start_ranks(&ranks, WORLD, be_worker_beside_a_lost_one, NULL);
    for (int r = 0; r < WORLD; r++)
        assert_int_equal(end_of_rank(&ranks, r), r == HOSTILE ? 128 + SIGKILL : 0);
    tt_store_server_free(ranks.server);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_breaks_nothing_but_itself),
        cmocka_unit_test(late_words_of_a_lost_worker_count_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
