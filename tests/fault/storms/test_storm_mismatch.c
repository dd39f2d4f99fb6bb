/* A storm of disagreements: in a random legal program one rank at one step calls something else. Every rank must
 * learn of it within a second of the first moment at which it and the odd rank differ, by an error that names the odd
 * rank.
 *
 * The program goes on with legal calls after the odd step, and ends with a barrier, so whoever is not told in the odd
 * call itself (the root of a broadcast may be through with it) is told in its next. */
#include "support/calls.h"
#include "support/hosts.h"
#include "support/ranks.h"

#include "base/machine/clock.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { MAX_BYTES = 40000, MAX_STEPS = 12, LATE_MS = 1000 };

typedef enum class {
    OTHER_OP,
    OTHER_DTYPE,
    OTHER_COUNT,
    OTHER_ROOT,
    OTHER_REDUCE_OP,
    MISSING,
    EXTRA,
    OTHER_GROUP,
    CLASSES
} class;

static const char *const class_names[] = {"op",        "dtype",        "count",      "root",
                                          "reduce op", "missing call", "extra call", "other group"};

/* A rank's account of its end. */
typedef struct testimony {
    tt_status status;
    int64_t entered_ns, returned_ns; /* the call that failed */
    char text[1200];
} testimony;

typedef struct scene {
    class class;
    int world, odd_rank, steps, odd_step;
    enum hosts hosts;
    uint64_t state;
    _Atomic int64_t *differed_ns; /* when the odd rank made its odd call */
    testimony *told;              /* (world) */
} scene;

typedef struct player {
    const scene *scene;
    tt_group *group, *twin;
    int rank;
    void *send, *recv;
} player;

/* ---- programs */

/* One call that `class` can be applied to. */
static bool suits(const drawn *call, class class) {
    switch (class) {
    case OTHER_DTYPE:
        return call->op != TT_OP_BARRIER && (!drawn_reduces(call->op) || call->reduce == TT_SUM);
    case OTHER_COUNT:
        return call->op != TT_OP_BARRIER && !drawn_is_uneven(call->op);
    case OTHER_ROOT:
        return drawn_has_root(call->op);
    case OTHER_REDUCE_OP:
        return drawn_reduces(call->op);
    default:
        return true;
    }
}

static bool same_signature(const drawn *a, const drawn *b) {
    return a->op == b->op && (a->dtype == b->dtype || a->op == TT_OP_BARRIER);
}

/* Neighbours differ, so that a missing or extra call can be seen at once. */
static void draw_program(const scene *scene, uint64_t *state, drawn *program) {
    for (int i = 0; i < scene->steps; i++)
        do
            program[i] = drawn_call(state, scene->world, MAX_BYTES);
        while ((i && same_signature(&program[i], &program[i - 1])) ||
               (i == scene->odd_step && !suits(&program[i], scene->class)) ||
               (i == scene->steps - 1 && program[i].op == TT_OP_BARRIER));
}

static drawn odd_call(const scene *scene, uint64_t *state, const drawn *usual) {
    drawn odd = *usual;
    switch (scene->class) {
    case OTHER_DTYPE:
        while (odd.dtype == usual->dtype || tt_dtype_size(odd.dtype) > tt_dtype_size(usual->dtype))
            odd.dtype = (tt_dtype)storm_below(state, 10);
        break;
    case OTHER_COUNT:
        odd.count = odd.count ? storm_below(state, odd.count) : 1;
        break;
    case OTHER_ROOT:
        odd.root = (odd.root + 1 + (int)storm_below(state, (size_t)scene->world - 1)) % scene->world;
        break;
    case OTHER_REDUCE_OP:
        while (odd.reduce == usual->reduce)
            odd.reduce = drawn_reduce_op(state, odd.dtype);
        break;
    default:
        while (same_signature(&odd, usual))
            odd = drawn_call(state, scene->world, MAX_BYTES);
    }
    return odd;
}

/* ---- ranks */

static void testify(const player *p, tt_status status, int64_t entered_ns) {
    testimony *mine = &p->scene->told[p->rank];
    *mine = (testimony){.status = status, .entered_ns = entered_ns, .returned_ns = tt__now_ns()};
    snprintf(mine->text, sizeof mine->text, "%s", tt_last_error());
}

/* Does the rank continue? */
static bool make(player *p, tt_group *group, const drawn *call) {
    int64_t entered = tt__now_ns();
    drawn_fill(call, p->rank, p->scene->world, p->send, p->recv);
    tt_status status = drawn_make(group, call, p->rank, p->scene->world, p->send, p->recv, NULL);
    if (status)
        testify(p, status, entered);
    return !status;
}

static bool make_oddly(player *p, uint64_t *state, const drawn *usual) {
    const scene *scene = p->scene;
    drawn odd = odd_call(scene, state, usual);
    atomic_store(scene->differed_ns, tt__now_ns());
    if (scene->class == MISSING)
        return true;
    if (scene->class == OTHER_GROUP)
        return make(p, p->twin, usual);
    return make(p, p->group, &odd) && (scene->class != EXTRA || make(p, p->group, usual));
}

static void be_late(uint64_t *own) {
    if (storm_below(own, 8) == 0)
        usleep((unsigned)storm_below(own, 2000));
}

static void play(player *p) {
    const scene *scene = p->scene;
    uint64_t state = scene->state, own = scene->state + 1 + (uint64_t)p->rank;
    drawn program[MAX_STEPS], last = {.op = TT_OP_BARRIER};
    draw_program(scene, &state, program);
    bool goes_on = true;
    for (int i = 0; i < scene->steps && goes_on; i++) {
        be_late(&own);
        goes_on = i == scene->odd_step && p->rank == scene->odd_rank ? make_oddly(p, &state, &program[i])
                                                                     : make(p, p->group, &program[i]);
    }
    if (goes_on)
        make(p, p->group, &last);
}

static int body(tt_store *store, int rank, int world, void *arg) {
    player p = {.scene = arg, .rank = rank};
    int ranks[CALLS_WORLD];
    hosts_enter(p.scene->hosts, rank);
    p.group = join_group(store, rank, world);
    for (int r = 0; r < world; r++)
        ranks[r] = r;
    CHECK_OK(tt_new_group(&p.twin, p.group, ranks, (size_t)world));
    wait_for_all(store, world); /* whoever went on could else end the calls of those that have made no groups yet */
    CHECK((p.send = malloc(drawn_bytes(world, MAX_BYTES))) && (p.recv = malloc(drawn_bytes(world, MAX_BYTES))));
    play(&p);
    tt_destroy_process_group(p.twin);
    tt_destroy_process_group(p.group);
    free(p.send);
    free(p.recv);
    return 0;
}

/* ---- judging */

static int64_t late_ns(void) { return (LATE_MS + leeway_ms()) * 1000000; }

static bool names(const char *text, int rank) {
    char name[16];
    snprintf(name, sizeof name, "rank %d ", rank);
    return strstr(text, name) != NULL;
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

static void explain(const scene *scene, long number) {
    fprintf(stderr,
            "case %ld (seed %ld): %s, world %d on %s, rank %d at step %d of %d; "
            "differed at %.3f\n",
            number, storm_number("TT_STORM_SEED", 1), class_names[scene->class], scene->world, hosts_name(scene->hosts),
            scene->odd_rank, scene->odd_step, scene->steps, (double)*scene->differed_ns / 1e9);
    uint64_t state = scene->state;
    drawn program[MAX_STEPS];
    draw_program(scene, &state, program);
    for (int i = 0; i < scene->steps; i++)
        drawn_print(&program[i], i == scene->odd_step ? "  odd" : "     ");
    for (int r = 0; r < scene->world; r++) {
        const testimony *told = &scene->told[r];
        fprintf(stderr, "  rank %d: %s, entered %.3f, returned %.3f: %s\n", r, tt_status_name(told->status),
                (double)told->entered_ns / 1e9, (double)told->returned_ns / 1e9, told->text);
    }
}

/* The time from the first moment of difference until rank r learned of it; -1 if it told something else. */
static int64_t judged_ns(const scene *scene, int r) {
    const testimony *told = &scene->told[r];
    bool right = (told->status == TT_ERR_MISMATCH || told->status == TT_ERR_PEER) && names(told->text, scene->odd_rank);
    return right ? told->returned_ns - later(told->entered_ns, *scene->differed_ns) : -1;
}

static int64_t play_case(long number, enum hosts hosts) {
    uint64_t state = storm_case(number);
    scene scene = {
        .class = (class)(number % CLASSES), .world = 2 + (int)storm_below(&state, CALLS_WORLD - 1), .hosts = hosts};
    scene.odd_rank = (int)storm_below(&state, (size_t)scene.world);
    scene.steps = 1 + (int)storm_below(&state, MAX_STEPS);
    scene.odd_step = (int)storm_below(&state, (size_t)scene.steps);
    scene.state = storm_draw(&state);
    size_t size = 64 + CALLS_WORLD * sizeof(testimony);
    char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    scene.differed_ns = (_Atomic int64_t *)(void *)shared;
    scene.told = (testimony *)(void *)(shared + 64);
    ranks ranks;
    start_ranks(&ranks, scene.world, body, &scene);
    int bad = count_bad_ranks(&ranks);
    int64_t slowest = 0;
    for (int r = 0; r < scene.world && slowest >= 0; r++) {
        int64_t ns = judged_ns(&scene, r);
        slowest = ns < 0 ? -1 : later(slowest, ns);
    }
    if (bad || slowest < 0 || slowest > late_ns())
        explain(&scene, number);
    munmap(shared, size);
    return bad ? -1 : slowest;
}

/* ---- storms */

static void storm(enum hosts hosts, long fallback) {
    if (!hosts_wanted(hosts))
        skip();
    long cases = storm_cases(fallback), bad = 0;
    int64_t slowest = 0;
    for (long i = 0; i < cases; i++) {
        if (storm_skips(i))
            continue;
        int64_t ns = play_case(i, hosts);
        bad += ns < 0 || ns > late_ns();
        slowest = later(slowest, ns);
    }
    print_message("%ld disagreements on %s, %ld of them judged wrongly; the "
                  "slowest was noticed after %.1f ms\n",
                  cases, hosts_name(hosts), bad, (double)slowest / 1e6);
    assert_int_equal(bad, 0);
}

static void over_shared_memory(void **state) {
    (void)state;
    storm(HOSTS_ONE, 3 * CLASSES);
}

static void over_tcp(void **state) {
    (void)state;
    storm(HOSTS_TCP, 2 * CLASSES);
}

static void over_both(void **state) {
    (void)state;
    storm(HOSTS_PAIRS, 2 * CLASSES);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shared_memory),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(over_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
