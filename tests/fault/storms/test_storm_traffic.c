/* A storm of legal traffic: every collective on the job and on groups of some of its ranks, synchronous and
 * asynchronous, sends and receives across them, buffers of either kind, ranks late by chance. Every result is
 * checked, and nothing may be taken for a failure.
 *
 * Ranks draw one program from the seed. What is one's own affair differs between ranks: when to come, where buffers
 * lie, in which order works of different groups are begun, and in which any are waited for. TT_STORM_SECONDS=N makes
 * each storm that long. */
#include "support/calls.h"
#include "support/hosts.h"
#include "support/ranks.h"

#include "base/machine/clock.h"

#include <sched.h>

enum { MAX_BYTES = 60000, SLOTS = 10, GROUPS = 4, MESSAGES = 12, ROUND = 25, ROUNDS = 3 };

typedef struct scene {
    enum hosts hosts;
    uint64_t seed;
} scene;

/* A group as one of its ranks sees it. */
typedef struct member {
    tt_group *group; /* NULL: not in it */
    int rank, world;
} member;

typedef struct player {
    member groups[GROUPS]; /* the job, its twin, those of my parity, some of the ranks */
    int sizes[GROUPS];     /* of the groups as the program knows them; the parities' is the smaller one */
    int rank, world;
    int tags; /* of receives from any source so far: a rank may be ahead by a call */
    uint64_t shared, own;
    size_t slot_bytes;
    unsigned char *symmetric, *plain; /* (SLOTS, 2, slot_bytes) each */
} player;

static void be_late(player *p) {
    size_t how = storm_below(&p->own, 60);
    if (how == 0)
        usleep((unsigned)storm_below(&p->own, 3000));
    else if (how < 6)
        sched_yield();
}

/* Buffer `which` (0 send, 1 recv) of a slot: symmetric or plain as this rank likes. */
static void *place(player *p, size_t slot, size_t which) {
    unsigned char *base = storm_below(&p->own, 2) ? p->symmetric : p->plain;
    return base + (slot * 2 + which) * p->slot_bytes + 8 * storm_below(&p->own, 8);
}

static void shuffle(uint64_t *state, size_t *order, size_t n) {
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n; i > 1; i--) {
        size_t j = storm_below(state, i), swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

/* ---- collectives */

typedef struct begun {
    drawn call;
    const member *member;
    void *send, *recv;
    tt_work *work;
    size_t group;
} begun;

static void verify(const begun *b) {
    char text[128];
    const char *wrong = drawn_check(&b->call, b->member->rank, b->member->world, b->recv, text, sizeof text);
    if (*wrong) {
        drawn_print(&b->call, wrong);
        CHECK(!"the result is right");
    }
}

/* Draw one for any group. Parity groups may have different sizes; calls are drawn so that they suit both. */
static begun draw_begun(player *p, size_t slot) {
    begun b = {.group = storm_below(&p->shared, GROUPS)};
    b.call = drawn_call(&p->shared, p->sizes[b.group], MAX_BYTES);
    b.member = &p->groups[b.group];
    b.send = place(p, slot, 0);
    b.recv = place(p, slot, 1);
    return b;
}

static void begin(player *p, begun *b, bool async) {
    if (!b->member->group)
        return;
    be_late(p);
    drawn_fill(&b->call, b->member->rank, b->member->world, b->send, b->recv);
    tt_status status = drawn_make(b->member->group, &b->call, b->member->rank, b->member->world, b->send, b->recv,
                                  async ? &b->work : NULL);
    if (status)
        drawn_print(&b->call, "failed");
    CHECK_OK(status);
}

static void finish(begun *b) {
    if (!b->member->group)
        return;
    if (b->work) {
        tt_status status = tt_work_wait(b->work);
        if (status)
            drawn_print(&b->call, "failed");
        CHECK_OK(status);
        CHECK(tt_work_is_completed(b->work));
        tt_work_free(b->work);
    }
    verify(b);
}

static void play_call(player *p) {
    begun b = draw_begun(p, 0);
    begin(p, &b, false);
    finish(&b);
}

/* Within a group in the program's order, groups in any. */
static void play_works(player *p) {
    begun works[SLOTS];
    size_t n = 1 + storm_below(&p->shared, SLOTS), order[SLOTS], groups[GROUPS];
    for (size_t i = 0; i < n; i++)
        works[i] = draw_begun(p, i);
    shuffle(&p->own, groups, GROUPS);
    for (size_t g = 0; g < GROUPS; g++)
        for (size_t i = 0; i < n; i++)
            if (works[i].group == groups[g])
                begin(p, &works[i], true);
    shuffle(&p->own, order, n);
    for (size_t i = 0; i < n; i++) {
        be_late(p);
        finish(&works[order[i]]);
    }
}

/* ---- messages */

typedef struct posted {
    int from, to, tag;
    bool any; /* received from any source: the tag is its alone */
    drawn content;
    tt_work *work;
    void *buf;
} posted;

static void fill_message(const posted *m) {
    for (size_t i = 0; i < m->content.count; i++)
        drawn_put(m->buf, i, m->content.dtype, drawn_value(&m->content, m->from, i));
}

static void check_message(const posted *m) {
    for (size_t i = 0; i < m->content.count; i++)
        CHECK(drawn_get(m->buf, i, m->content.dtype) == (double)drawn_value(&m->content, m->from, i));
    CHECK(tt_work_source_rank(m->work) == m->from);
}

static void draw_messages(player *p, posted *messages, size_t n, int world) {
    for (size_t i = 0; i < n; i++) {
        posted *m = &messages[i];
        *m = (posted){.from = (int)storm_below(&p->shared, (size_t)world),
                      .to = (int)storm_below(&p->shared, (size_t)world)};
        m->any = storm_below(&p->shared, 4) == 0;
        m->tag = m->any ? 100 + p->tags++ : (int)storm_below(&p->shared, 3);
        m->content = drawn_call(&p->shared, world, MAX_BYTES);
    }
}

static void post(const member *g, posted *m, bool receives) {
    if (receives)
        CHECK_OK(tt_irecv(&m->work, g->group, m->buf, m->content.count, m->content.dtype,
                          m->any ? TT_ANY_SOURCE : m->from, .tag = m->tag));
    else
        CHECK_OK(tt_isend(&m->work, g->group, m->buf, m->content.count, m->content.dtype, m->to, .tag = m->tag));
}

/* Sends and receives of one pair and tag keep their order; sends may all come before receives, or the other way
 * round. */
static void play_messages(player *p) {
    size_t which = storm_below(&p->shared, 2), n = 1 + storm_below(&p->shared, MESSAGES), order[2 * MESSAGES],
           count = 0;
    const member *g = &p->groups[which];
    posted sent[MESSAGES], got[MESSAGES], *all[2 * MESSAGES];
    draw_messages(p, sent, n, p->sizes[which]);
    memcpy(got, sent, sizeof sent);
    bool receives_first = storm_below(&p->own, 2);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++) {
            bool receives = (pass == 0) == receives_first;
            posted *m = receives ? &got[i] : &sent[i];
            if ((receives ? m->to : m->from) != g->rank)
                continue;
            CHECK((m->buf = malloc(m->content.count * 8 + 1)));
            if (!receives)
                fill_message(m);
            be_late(p);
            post(g, m, receives);
            all[count++] = m;
        }
    shuffle(&p->own, order, count);
    for (size_t i = 0; i < count; i++) {
        posted *m = all[order[i]];
        CHECK_OK(tt_work_wait(m->work));
        if (m >= got && m < got + n)
            check_message(m);
        tt_work_free(m->work);
        free(m->buf);
    }
}

/* Everybody sends to its neighbour, in one call. */
static void play_batch(player *p) {
    int64_t out[2] = {p->rank, (int64_t)storm_draw(&p->shared)}, in[2] = {-1, -1};
    int right = (p->rank + 1) % p->world, left = (p->rank + p->world - 1) % p->world;
    tt_p2p_op ops[] = {
        tt_send_op(out, 2, TT_I64, right, .tag = 7),
        tt_recv_op(in, 2, TT_I64, left, .tag = 7),
    };
    be_late(p);
    CHECK_OK(tt_batch_isend_irecv(p->groups[0].group, ops, 2));
    CHECK(in[0] == left && in[1] == out[1]);
}

/* ---- groups */

static member member_of(tt_group *group) { return (member){group, tt_get_rank(group), tt_get_world_size(group)}; }

static void make_groups(player *p) {
    tt_group *job = p->groups[0].group, *made;
    int all[CALLS_WORLD], some[CALLS_WORLD], n = 0;
    for (int r = 0; r < p->world; r++) {
        all[r] = p->world - 1 - r; /* the twin counts backwards */
        if (storm_below(&p->shared, 3))
            some[n++] = r;
    }
    if (!n)
        some[n++] = 0;
    CHECK_OK(tt_new_group(&made, job, all, (size_t)p->world));
    p->groups[1] = member_of(made);
    CHECK(p->groups[1].rank == p->world - 1 - p->rank);
    CHECK_OK(tt_group_split(&made, job, p->rank % 2, p->rank));
    p->groups[2] = member_of(made);
    CHECK_OK(tt_new_group(&made, job, some, (size_t)n));
    p->groups[3] = member_of(made);
    p->sizes[0] = p->sizes[1] = p->world;
    p->sizes[2] = p->world / 2;
    p->sizes[3] = n;
}

static void end_groups(player *p) {
    for (int g = 1; g < GROUPS; g++)
        tt_destroy_process_group(p->groups[g].group);
}

static void play_alloc(player *p) {
    void *a;
    size_t bytes = storm_below(&p->shared, 100000);
    be_late(p);
    CHECK_OK(tt_group_alloc(&a, p->groups[0].group, bytes));
    memset(a, 0x77, bytes);
    CHECK_OK(tt_group_free(p->groups[0].group, a));
}

/* ---- storms */

static void play(player *p) {
    switch (storm_below(&p->shared, 10)) {
    case 0:
    case 1:
    case 2:
        play_works(p);
        break;
    case 3:
    case 4:
        play_messages(p);
        break;
    case 5:
        play_batch(p);
        break;
    case 6:
        play_alloc(p);
        break;
    default:
        play_call(p);
    }
}

/* The same answer on all ranks. */
static bool more(player *p, int round, int64_t end_ms) {
    int64_t goes_on = end_ms ? tt__now_ms() < end_ms : round < ROUNDS;
    CHECK_OK(tt_all_reduce(p->groups[0].group, &goes_on, 1, TT_I64, TT_MIN));
    return goes_on != 0;
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    long seconds = storm_number("TT_STORM_SECONDS", 0);
    player p = {.rank = rank, .world = world, .shared = scene->seed, .own = scene->seed + 1 + (uint64_t)rank};
    void *symmetric;
    alarm((unsigned)(seconds + test_seconds() * 3 / 4));
    hosts_enter(scene->hosts, rank);
    p.groups[0] = (member){join_group(store, rank, world), rank, world};
    p.slot_bytes = (drawn_bytes(world, MAX_BYTES) + 64 + 63) / 64 * 64;
    CHECK_OK(tt_group_alloc(&symmetric, p.groups[0].group, 2 * SLOTS * p.slot_bytes));
    p.symmetric = symmetric;
    CHECK((p.plain = malloc(2 * SLOTS * p.slot_bytes)));
    int64_t end_ms = seconds ? tt__now_ms() + seconds * 1000 : 0;
    for (int round = 0; more(&p, round, end_ms); round++) {
        make_groups(&p);
        for (int i = 0; i < ROUND; i++)
            play(&p);
        end_groups(&p);
    }
    tt_destroy_process_group(p.groups[0].group);
    free(p.plain);
    return 0;
}

static void storm(enum hosts hosts) {
    if (!hosts_wanted(hosts))
        skip();
    long seconds = storm_number("TT_STORM_SECONDS", 0), cases = seconds ? 1 : 4;
    uint64_t state = storm_case(hosts);
    for (long i = 0; i < cases; i++) {
        int world = (seconds ? 4 : 2) + (int)storm_below(&state, seconds ? 5 : 4);
        scene scene = {hosts, storm_draw(&state)};
        if (storm_skips(i))
            continue;
        ranks ranks;
        start_ranks(&ranks, world, body, &scene);
        int bad = count_bad_ranks(&ranks);
        if (bad)
            fprintf(stderr, "case %ld (seed %ld), world %d on %s\n", i, storm_number("TT_STORM_SEED", 1), world,
                    hosts_name(hosts));
        assert_int_equal(bad, 0);
    }
}

static void on_one_host(void **state) {
    (void)state;
    storm(HOSTS_ONE);
}

static void over_tcp(void **state) {
    (void)state;
    storm(HOSTS_TCP);
}

static void on_pairs(void **state) {
    (void)state;
    storm(HOSTS_PAIRS);
}

static void on_hosts_alone(void **state) {
    (void)state;
    storm(HOSTS_ALONE);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_host),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(on_pairs),
        cmocka_unit_test(on_hosts_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
