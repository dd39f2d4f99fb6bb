/* A storm of faults among workers that call each other: one is killed, frozen, or held up for a short while, at a
 * random moment of calls, nested calls, replies that come later, uses of references, distributed passes and optimizer
 * steps, joining, or the shutdown. Every waiter gets an error that names it: at once after a death, within the
 * heartbeat after a freeze; who was only held up is not missed. Afterwards the survivors have nothing left: no
 * reference, call, context, thread or descriptor. Workers of a group, and such as meet through a store. */
#include "support/leftovers.h"
#include "support/ranks.h"
#include "support/storm.h"

#include <tutti/functional.h>
#include <tutti/rpc_training.h>

#include "base/machine/clock.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { HEARTBEAT_MS = 4000, HELD_UP_MS = 400, SOON_MS = 1000, WORLD_MAX = 4, SIZE = 16, BIG = 300000, FEW = 14 };

typedef enum fault { KILL, FREEZE, HOLD_UP, FAULTS } fault;
typedef enum moment { CALLS, NESTED, LATER, REFERENCES, PASSES, JOINING, SHUTDOWN, MOMENTS } moment;

static const char *const fault_names[] = {"killed", "frozen", "held up"};
static const char *const moment_names[] = {"calls",  "nested calls", "late replies", "references",
                                           "passes", "joining",      "shutdown"};

/* Memory that the test shares with its ranks. */
typedef struct shared {
    _Atomic int under_way, over; /* ranks that are; whether they are to end by themselves */
    _Atomic unsigned played;     /* bits of ranks that have */
    _Atomic int64_t struck_ms;
} shared;

typedef struct scene {
    fault fault;
    moment moment;
    int world, victim;
    const char *transport;
    bool by_store;
    uint64_t random;
    shared *shared;
} scene;

/* ---- functions */

static tt_tensor *weight, *bias; /* the latter is what optimizers change: no record keeps it */
static tt_rref *lasting[8];      /* that functions keep, */
static _Atomic bool leaves;      /* unless this worker is about to leave */

static tt_status add(tt_rpc_call *call) {
    return tt_rpc_return(call, tt_rpc_int(tt_rpc_arg_int(call, 0) + tt_rpc_arg_int(call, 1)));
}
TT_RPC_FUNCTION_NAMED(add, "storm_add", "(int a, int b) -> int");

static tt_status echo(tt_rpc_call *call) {
    tt_rpc_value value;
    if (tt_rpc_take_arg(call, 0, &value))
        return tt_last_status();
    return tt_rpc_return(call, value);
}
TT_RPC_FUNCTION_NAMED(echo, "storm_echo", "(any value) -> any");

/* Go on to the next worker, `steps` times. */
static tt_status pass_on(tt_rpc_call *call) {
    int64_t steps = tt_rpc_arg_int(call, 0), world = tt_rpc_arg_int(call, 1);
    tt_rpc *rpc = tt_rpc_of_call(call);
    return steps ? tt_rpc_sync(rpc, NULL, "storm_pass_on", .to_id = (int)((tt_rpc_id(rpc) + 1) % world),
                               .args = TT_RPC_ARGS(tt_rpc_int(steps - 1), tt_rpc_int(world)))
                 : TT_OK;
}
TT_RPC_FUNCTION_NAMED(pass_on, "storm_pass_on", "(int steps, int world)");

/* The same, and the reply comes later. */
static tt_status pass_on_later(tt_rpc_call *call) {
    int64_t steps = tt_rpc_arg_int(call, 0), world = tt_rpc_arg_int(call, 1);
    tt_rpc *rpc = tt_rpc_of_call(call);
    tt_future *future = NULL;
    if (!steps)
        return TT_OK;
    tt_status status =
        tt_rpc_async(&future, rpc, NULL, "storm_pass_on_later", .to_id = (int)((tt_rpc_id(rpc) + 1) % world),
                     .args = TT_RPC_ARGS(tt_rpc_int(steps - 1), tt_rpc_int(world)));
    if (!status)
        status = tt_rpc_return_future(call, future);
    tt_future_free(future);
    return status;
}
TT_RPC_FUNCTION_NAMED(pass_on_later, "storm_pass_on_later", "(int steps, int world)");

/* Keep a reference, in place of an older one. One that were kept by a worker in its shutdown, where it serves those
 * that have not seen the fault yet, would keep its owner from its own. */
static tt_status keep(tt_rpc_call *call) {
    static _Atomic unsigned turn;
    if (atomic_load(&leaves))
        return TT_OK;
    tt_rref *old = __atomic_exchange_n(&lasting[turn++ % 8], tt_rref_share(tt_rpc_arg_rref(call, 0)), __ATOMIC_ACQ_REL);
    tt_rref_free(old);
    return TT_OK;
}
TT_RPC_FUNCTION_NAMED(keep, "storm_keep", "(rref value)");

/* Pass a reference on to a third worker, that keeps it. */
static tt_status give_on(tt_rpc_call *call) {
    return tt_rpc_sync(tt_rpc_of_call(call), NULL, "storm_keep", .to_id = (int)tt_rpc_arg_int(call, 1),
                       .args = TT_RPC_ARGS(*tt_rpc_arg(call, 0)));
}
TT_RPC_FUNCTION_NAMED(give_on, "storm_give_on", "(rref value, int to)");

static tt_status layer(tt_rpc_call *call) {
    tt_tensor *y = tt_add(tt_mul(tt_rpc_arg_tensor(call, 0), weight), bias);
    return y ? tt_rpc_return(call, tt_rpc_tensor(y)) : tt_last_status();
}
TT_RPC_FUNCTION_NAMED(layer, "storm_layer", "(tensor x) -> tensor");

static tt_status parameter(tt_rpc_call *call) { return tt_rpc_return(call, tt_rpc_tensor(bias)); }
TT_RPC_FUNCTION_NAMED(parameter, "storm_parameter", "() -> tensor");

/* ---- what goes on: each returns its first error */

typedef struct player {
    const scene *scene;
    tt_rpc *rpc;
    int rank;
    uint64_t random;
    tt_dist_optimizer *optimizer;
} player;

static int another(player *p) {
    int other = (int)storm_below(&p->random, (size_t)p->scene->world - 1);
    return other + (other >= p->rank);
}

static tt_status play_calls(player *p) {
    static const unsigned char big[BIG];
    tt_future *futures[8] = {0};
    tt_status status = TT_OK;
    for (int i = 0; i < 8 && !status; i++) {
        size_t bytes = storm_below(&p->random, 3) ? storm_below(&p->random, 500) : storm_below(&p->random, BIG);
        status = tt_rpc_async(&futures[i], p->rpc, NULL, "storm_echo", .to_id = another(p),
                              .args = TT_RPC_ARGS(tt_rpc_bytes(big, bytes)));
    }
    for (int i = 0; i < 8; i++) {
        tt_status one = futures[i] ? tt_future_wait(futures[i], 0) : TT_OK;
        status = one ? one : status;
        tt_future_free(futures[i]);
    }
    return status;
}

static tt_status play_nested(player *p, const char *function) {
    int64_t steps = 1 + (int64_t)storm_below(&p->random, 12);
    return tt_rpc_sync(p->rpc, NULL, function, .to_id = another(p),
                       .args = TT_RPC_ARGS(tt_rpc_int(steps), tt_rpc_int(p->scene->world)));
}

static tt_status play_references(player *p) {
    int via = another(p);
    tt_rref *mine = tt_rref_new(p->rpc, tt_rpc_int(7)), *theirs = NULL;
    tt_rpc_value value;
    CHECK(mine);
    tt_status status = tt_rpc_remote(&theirs, p->rpc, NULL, "storm_add", .to_id = via,
                                     .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(2)));
    if (!status)
        status = tt_rpc_sync(p->rpc, NULL, "storm_give_on", .to_id = via,
                             .args = TT_RPC_ARGS(tt_rpc_rref(mine), tt_rpc_int(another(p))));
    if (!status)
        status = tt_rpc_sync(p->rpc, NULL, "storm_give_on", .to_id = another(p),
                             .args = TT_RPC_ARGS(tt_rpc_rref(theirs), tt_rpc_int(another(p))));
    if (!status)
        status = tt_rref_get(theirs, &value, 0);
    CHECK(status || value.integer == 3);
    tt_rref_free(mine);
    tt_rref_free(theirs);
    return status;
}

static tt_tensor *through(player *p, int worker, tt_tensor *x) {
    tt_rpc_value y;
    if (tt_rpc_sync(p->rpc, NULL, "storm_layer", .to_id = worker, .args = TT_RPC_ARGS(tt_rpc_tensor(x)), .result = &y))
        return NULL;
    return tt_rpc_take_tensor(&y);
}

/* A pass through all workers, and a step. */
static tt_status play_pass(player *p) {
    TT_AUTO_SCOPE;
    int64_t context;
    tt_status status = tt_dist_autograd_begin(&context, p->rpc);
    if (status)
        return status;
    tt_tensor *x = tt_requires_grad_(tt_ones(TT_SHAPE(SIZE), TT_F32), true);
    for (int i = 0; i < p->scene->world && x; i++)
        x = through(p, (p->rank + i) % p->scene->world, x);
    tt_tensor *loss = x ? tt_sum(x) : NULL;
    status = loss ? tt_dist_autograd_backward(p->rpc, context, &loss, 1) : tt_last_status();
    if (!status)
        status = tt_dist_optimizer_step(p->optimizer, context);
    char text[1000];
    snprintf(text, sizeof text, "%s", tt_last_error());
    tt_status ended = tt_dist_autograd_end(p->rpc, context);
    (void)ended; /* nobody is to be told where a worker is lost */
    return status ? tt_fail(status, "%s", text) : TT_OK;
}

static tt_status play_once(player *p) {
    switch (p->scene->moment) {
    case NESTED:
        return play_nested(p, "storm_pass_on");
    case LATER:
        return play_nested(p, "storm_pass_on_later");
    case REFERENCES:
        return play_references(p);
    case PASSES:
        return play_pass(p);
    default:
        return play_calls(p);
    }
}

/* ---- judging, in the ranks */

static bool names_victim(const scene *scene) {
    char worker[32], rank[16];
    snprintf(worker, sizeof worker, "worker%d", scene->victim);
    snprintf(rank, sizeof rank, "rank %d ", scene->victim);
    return strstr(tt_last_error(), worker) || strstr(tt_last_error(), rank);
}

static void judge_error(const scene *scene, tt_status status) {
    int64_t promised = (scene->fault == FREEZE ? HEARTBEAT_MS : 0) + SOON_MS;
    CHECK(scene->fault != HOLD_UP);
    CHECK(status == TT_ERR_PEER);
    CHECK(names_victim(scene));
    CHECK(tt__now_ms() - atomic_load(&scene->shared->struck_ms) < promised + leeway_ms());
}

static int64_t left_over(tt_rpc *rpc, tt_rpc_counts *counts, int64_t *contexts) {
    CHECK_OK(tt_rpc_get_counts(rpc, counts));
    *contexts = tt_dist_autograd_context_count(rpc);
    return counts->owned + counts->held + counts->serving + counts->calls + counts->bytes + *contexts;
}

static void let_lasting_go(void) {
    for (int i = 0; i < 8; i++)
        tt_rref_free(__atomic_exchange_n(&lasting[i], NULL, __ATOMIC_ACQ_REL));
}

static void expect_nothing_left(player *p) {
    tt_rpc_counts counts;
    int64_t contexts, until = tt__deadline_ms(PATIENCE_MS / 3);
    while (left_over(p->rpc, &counts, &contexts) && tt__left_ms(until)) {
        let_lasting_go(); /* others may still have given some */
        usleep(1000);
    }
    if (left_over(p->rpc, &counts, &contexts))
        fprintf(stderr, "rank %d has left: %lld owned, %lld held, %lld served, %lld calls, %lld bytes, %lld contexts\n",
                p->rank, (long long)counts.owned, (long long)counts.held, (long long)counts.serving,
                (long long)counts.calls, (long long)counts.bytes, (long long)contexts);
    CHECK(!left_over(p->rpc, &counts, &contexts));
}

/* ---- ranks */

/* Nobody but the frozen one is to be taken for frozen, however busy the machine is. */
static int64_t heartbeat_of(const scene *scene) { return scene->fault == FREEZE ? HEARTBEAT_MS : CALM_MS / 4; }

static unsigned survivors(const scene *scene) {
    unsigned all = (1u << scene->world) - 1;
    return scene->fault == HOLD_UP ? all : all & ~(1u << scene->victim);
}

/* Workers that meet through a store leave one by one: not before all others need no calls any more. */
static void wait_until_played(const scene *scene, int rank) {
    int64_t until = tt__deadline_ms(PATIENCE_MS);
    atomic_fetch_or(&scene->shared->played, 1u << rank);
    while ((atomic_load(&scene->shared->played) & survivors(scene)) != survivors(scene)) {
        CHECK(tt__left_ms(until));
        usleep(500);
    }
}

static void make_optimizer(player *p) {
    tt_rref *params[WORLD_MAX];
    TT_AUTO_SCOPE;
    for (int w = 0; w < p->scene->world; w++)
        CHECK_OK(tt_rpc_remote(&params[w], p->rpc, NULL, "storm_parameter", .to_id = w));
    CHECK_OK(tt_dist_optimizer_new(&p->optimizer, p->rpc, params, p->scene->world, "sgd"));
    for (int w = 0; w < p->scene->world; w++)
        tt_rref_free(params[w]);
}

static void play(player *p) {
    tt_status status = TT_OK;
    const scene *scene = p->scene;
    if (scene->moment == PASSES)
        make_optimizer(p);
    if (scene->moment != JOINING)
        atomic_fetch_add(&scene->shared->under_way, 1);
    for (int i = 0; !status && !atomic_load(&scene->shared->over) && (scene->moment != SHUTDOWN || i < 30); i++)
        status = play_once(p);
    if (status)
        judge_error(scene, status);
    tt_dist_optimizer_free(p->optimizer);
}

static tt_status end_worker(player *p) {
    const scene *scene = p->scene;
    bool leaves_early = scene->moment == SHUTDOWN || scene->moment == JOINING;
    atomic_store(&leaves, true);
    let_lasting_go();
    if (!leaves_early)
        expect_nothing_left(p);
    tt_status status = tt_rpc_shutdown(p->rpc, .timeout_ms = PATIENCE_MS / 3);
    let_lasting_go();
    return status;
}

/* Ids are given in the order of joining. */
static void join_in_order(player *p, tt_store *store, const char *name) {
    char turn[20];
    const char *key = turn;
    snprintf(turn, sizeof turn, "turn %d", p->rank);
    if (p->rank)
        CHECK_OK(tt_store_wait(store, &key, 1, PATIENCE_MS));
    CHECK_OK(tt_rpc_init(&p->rpc, name, .store = store, .heartbeat_ms = heartbeat_of(p->scene)));
    CHECK(tt_rpc_id(p->rpc) == p->rank);
    snprintf(turn, sizeof turn, "turn %d", p->rank + 1);
    CHECK_OK(tt_store_set(store, turn, "", 0));
    snprintf(turn, sizeof turn, "turn %d", p->scene->world);
    CHECK_OK(tt_store_wait(store, &key, 1, PATIENCE_MS));
}

static void be_alive_by_store(const scene *scene, tt_store *store, int rank) {
    player p = {.scene = scene, .rank = rank, .random = scene->random + (uint64_t)rank};
    char name[20];
    snprintf(name, sizeof name, "worker%d", rank);
    if (scene->moment == JOINING) { /* nobody waits for another */
        atomic_fetch_add(&scene->shared->under_way, 1);
        CHECK_OK(tt_rpc_init(&p.rpc, name, .store = store, .heartbeat_ms = heartbeat_of(scene)));
    } else {
        join_in_order(&p, store, name);
        play(&p);
        wait_until_played(scene, rank);
    }
    CHECK_OK(end_worker(&p));
}

static void be_alive(const scene *scene, tt_store *store, int rank) {
    tt_group *group = NULL;
    player p = {.scene = scene, .rank = rank, .random = scene->random + (uint64_t)rank};
    char name[20];
    snprintf(name, sizeof name, "worker%d", rank);
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = scene->world,
                                   .timeout_ms = PATIENCE_MS, .heartbeat_ms = heartbeat_of(scene),
                                   .transport = scene->transport));
    if (scene->moment == JOINING)
        atomic_fetch_add(&scene->shared->under_way, 1);
    tt_status status = tt_rpc_init(&p.rpc, name, .group = group, .join_timeout_ms = PATIENCE_MS);
    if (status) {
        CHECK(scene->moment == JOINING);
        judge_error(scene, status);
    } else {
        play(&p);
        status = end_worker(&p);
        if (status && scene->moment != JOINING) { /* the end tells who was lost, too */
            CHECK(scene->fault != HOLD_UP && status == TT_ERR_PEER);
            CHECK(names_victim(scene));
        }
    }
    tt_destroy_process_group(group);
}

static int be_worker(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    char left[3000];
    (void)world;
    start_first_thread();
    bias = tt_keep(tt_requires_grad_(tt_ones(TT_SHAPE(SIZE), TT_F32), true));
    weight = tt_keep(tt_requires_grad_(tt_ones(TT_SHAPE(SIZE), TT_F32), true));
    const holdings before = look_at_holdings();
    if (scene->by_store)
        be_alive_by_store(scene, store, rank);
    else
        be_alive(scene, store, rank);
    compare_holdings(&before, left, sizeof left);
    if (*left)
        fprintf(stderr, "rank %d: %s\n", rank, left);
    CHECK(!*left);
    tt_tensor_free(weight);
    tt_tensor_free(bias);
    if (getenv("TT_SANITIZED") && rank == scene->victim)
        _exit(0);
    return 0;
}

/* ---- the test */

static void sleep_us(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static void strike(scene *scene, const ranks *ranks, uint64_t *random) {
    int64_t until = tt__deadline_ms(PATIENCE_MS);
    while (atomic_load(&scene->shared->under_way) < scene->world && tt__left_ms(until))
        sleep_us(200);
    sleep_us((int64_t)storm_below(random, 20000));
    atomic_store(&scene->shared->struck_ms, tt__now_ms());
    kill(ranks->pid[scene->victim], scene->fault == KILL ? SIGKILL : SIGSTOP);
    if (scene->fault == HOLD_UP) {
        sleep_us((int64_t)storm_below(random, HELD_UP_MS) * 1000);
        kill(ranks->pid[scene->victim], SIGCONT);
        sleep_us(20000);
        atomic_store(&scene->shared->over, 1);
    }
}

static scene draw_scene(uint64_t *random) {
    static const char *const ways[] = {"shm", "tcp", "a store"};
    size_t way = storm_below(random, 3);
    scene s = {.fault = (fault)storm_below(random, FAULTS),
               .moment = (moment)storm_below(random, MOMENTS),
               .world = 2 + (int)storm_below(random, WORLD_MAX - 1),
               .transport = ways[way],
               .by_store = way == 2};
    s.victim = (int)storm_below(random, (size_t)s.world);
    s.random = storm_draw(random);
    return s;
}

/* Play one case. Returns how many of the ranks that should live did not end well. */
static int play_case(long number) {
    uint64_t random = storm_case(number);
    scene scene = draw_scene(&random);
    ranks ranks;
    int bad = 0;
    scene.shared = mmap(NULL, sizeof *scene.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(scene.shared != MAP_FAILED);
    start_ranks(&ranks, scene.world, be_worker, &scene);
    strike(&scene, &ranks, &random);
    for (int r = 0; r < scene.world; r++)
        if (r != scene.victim || scene.fault == HOLD_UP)
            bad += end_of_rank(&ranks, r) != 0;
    if (scene.fault != HOLD_UP) {
        kill(ranks.pid[scene.victim], SIGKILL);
        end_of_rank(&ranks, scene.victim);
    }
    tt_store_server_free(ranks.server);
    munmap(scene.shared, sizeof *scene.shared);
    if (bad)
        fprintf(stderr, "case %ld: worker %d of %d %s in %s over %s: %d ended badly\n", number, scene.victim,
                scene.world, fault_names[scene.fault], moment_names[scene.moment], scene.transport, bad);
    return bad;
}

static void survivors_are_told_and_keep_nothing(void **state) {
    long cases = storm_cases(FEW), failed = 0;
    (void)state;
    for (long i = 0; i < cases; i++)
        if (!storm_skips(i))
            failed += play_case(i) != 0;
    if (failed)
        fprintf(stderr, "%ld of %ld cases failed\n", failed, cases);
    assert_int_equal(failed, 0);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_are_told_and_keep_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
