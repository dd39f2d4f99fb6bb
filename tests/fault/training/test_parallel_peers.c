/* A rank of a divided model dies or freezes: while others wait for its activation, for the gradient that it owes, or
 * for its part of a sum. Each learns who it was within a bounded time, and can free all that it has. Or it fails by
 * itself, and frees what it has in the order that a program likes: the others are told its error. */
#include <tutti/tutti.h>

#include "support/blow.h"
#include "support/storm.h"

enum { WIDTH = 24, LARGE = 20000 };

/* TWO_STAGES: ranks 0 and 1. REPLICAS: 2 x 2, each stage wrapped. DIVIDED: all share each layer. */
typedef enum kind { TWO_STAGES, REPLICAS, DIVIDED } kind;

typedef struct scene {
    kind kind;
    int world, victim;
    bool stops;         /* SIGSTOP, not SIGKILL */
    int steps, wait_us; /* of the victim, before it is struck */
    const char *transport;
} scene;

/* What a rank trains. */
typedef struct program {
    tt_mesh *mesh;
    tt_group *mp;
    tt_module *model, *ddp;
} program;

static tt_status step_of(const program *p) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(TT_SHAPE(LARGE / WIDTH, WIDTH), TT_F32);
    tt_module *model = p->ddp ? p->ddp : p->model;
    if (!p->mp)
        return tt_backward(tt_sum(tt_module_forward(model, x)));
    if (tt_get_rank(p->mp) == 0)
        return tt_backward(tt_send_activation(tt_module_forward(model, x), p->mp, 1));
    return tt_backward(tt_sum(tt_module_forward(model, tt_recv_activation(p->mp, 0))));
}

static void make_program(program *p, const scene *scene, tt_group *world) {
    *p = (program){NULL, NULL, NULL, NULL};
    tt_manual_seed(1);
    if (scene->kind == DIVIDED) {
        p->model = tt_nn_sequential(tt_nn_column_parallel_linear(WIDTH, WIDTH, world), tt_nn_relu(),
                                    tt_nn_row_parallel_linear(WIDTH, WIDTH, world));
    } else {
        CHECK_OK(tt_init_device_mesh(&p->mesh, world, {"dp", -1}, {"mp", 2}));
        p->mp = tt_mesh_get_group(p->mesh, "mp");
        p->model = tt_nn_linear(WIDTH, WIDTH);
    }
    CHECK(p->model);
    if (scene->kind == REPLICAS)
        p->ddp = tt_ddp(p->model, tt_mesh_get_group(p->mesh, "dp"));
    CHECK(scene->kind != REPLICAS || p->ddp);
}

static void free_program(program *p) {
    tt_module_free(p->ddp);
    tt_module_free(p->model);
    tt_mesh_free(p->mesh);
}

/* Trains until something goes wrong. Says when the victim is under way. */
static tt_status train(tt_store *store, const program *p, int told_after) {
    tt_status status = TT_OK;
    for (int steps = 1; !status; steps++) {
        if (steps == told_after)
            tell_under_way(store);
        status = step_of(p);
    }
    return status;
}

/* One that shares no group with the victim is told by one that does. */
static void check_told(const scene *scene, tt_status status) {
    char who[40];
    snprintf(who, sizeof who, "rank %d", scene->victim);
    CHECK(status == TT_ERR_PEER || status == TT_ERR_ABORTED);
    CHECK_TEXT(who);
    CHECK(strstr(tt_last_error(), "frozen") || strstr(tt_last_error(), "ended") || strstr(tt_last_error(), "is gone"));
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    tt_group *group = join_watchful(store, rank, world, scene->transport);
    program p;
    make_program(&p, scene, group);
    tt_status status = train(store, &p, rank == scene->victim ? scene->steps + 1 : 0);
    int64_t now = tt__now_ns();
    check_told(scene, status);
    tt_mesh_abort(p.mesh, tt_last_error());
    free_program(&p);
    tt_destroy_process_group(group);
    tell_learned(store, rank, now);
    return 0;
}

static void play(scene scene) {
    const blow blow = {scene.world, scene.victim, scene.stops, scene.wait_us};
    const char *wrong = blow_strike(&blow, body, &scene);
    if (wrong)
        fail_msg("%s", wrong);
}

static void test_stages(void **state) {
    (void)state;
    for (int victim = 0; victim < 2; victim++)
        for (int stops = 0; stops < 2; stops++)
            play((scene){TWO_STAGES, 2, victim, stops, 2, 0, NULL});
    play((scene){TWO_STAGES, 2, 0, false, 2, 0, "tcp"});
    play((scene){TWO_STAGES, 2, 1, true, 2, 0, "tcp"});
}

static void test_replicas(void **state) {
    (void)state;
    for (int victim = 0; victim < 4; victim++)
        play((scene){REPLICAS, 4, victim, victim % 2, 2, 0, NULL});
}

static void test_divided_layers(void **state) {
    (void)state;
    play((scene){DIVIDED, 3, 0, false, 2, 0, NULL});
    play((scene){DIVIDED, 3, 2, true, 2, 0, NULL});
    play((scene){DIVIDED, 4, 1, false, 2, 0, "tcp"});
}

/* Any rank, any moment. */
static void test_drawn_cases(void **state) {
    (void)state;
    static const int worlds[] = {[TWO_STAGES] = 2, [REPLICAS] = 4, [DIVIDED] = 3};
    for (long number = 0; number < storm_cases(10); number++) {
        uint64_t draw = storm_case(number);
        kind kind = (enum kind)storm_below(&draw, 3);
        scene scene = {.kind = kind, .world = worlds[kind]};
        scene.victim = (int)storm_below(&draw, (size_t)scene.world);
        scene.stops = storm_below(&draw, 4) == 0;
        scene.steps = (int)storm_below(&draw, 5);
        scene.wait_us = (int)storm_below(&draw, 3000);
        scene.transport = storm_below(&draw, 4) == 0 ? "tcp" : NULL;
        if (storm_skips(number))
            continue;
        print_message("case %ld: kind %d, rank %d %s after %d steps and %d us, by %s\n", number, (int)kind,
                      scene.victim, scene.stops ? "stopped" : "killed", scene.steps, scene.wait_us,
                      scene.transport ? scene.transport : "shm");
        play(scene);
    }
}

/* ---- a rank that fails by itself, and frees what it has */

enum { CLASSES = 8, EXAMPLES = 8, GOOD_STEPS = 3 };

/* What it trains with. MEMORY: that of tt_group_alloc() alone. */
typedef enum wrapper {
    WRAPPED,
    HOOKED,
    SHARDS,
    SPLIT_STATE,
    FULLY_SHARDED,
    AVERAGED,
    SYNCHRONISED,
    PIPED,
    SPLIT_LAYERS,
    SENT_ON,
    MEMORY,
    WRAPPERS
} wrapper;

static const char *const wrapper_names[] = {"tt_ddp",
                                            "a communication hook",
                                            "virtual ranks",
                                            "tt_zero",
                                            "tt_fully_shard",
                                            "an averager",
                                            "SyncBatchNorm",
                                            "a pipeline",
                                            "tensor-parallel layers",
                                            "activations",
                                            "memory of tt_group_alloc()"};

typedef struct plan {
    wrapper wrapper;
    bool group_first; /* destroyed before what stands on it is freed */
    bool silent;      /* the program's own error, of which this library knows nothing */
    const char *transport;
} plan;

typedef struct holdings {
    tt_module *model, *wrapped;
    tt_optimizer *optimizer;
    tt_model_averager *averager;
    tt_pipeline *pipe;
    void *memory;
} holdings;

static tt_optimizer *make_sgd(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_sgd(p, 0.01);
}

static void take_hold(holdings *h, const plan *plan, tt_group *group) {
    *h = (holdings){0};
    tt_manual_seed(1);
    if (plan->wrapper == SPLIT_LAYERS)
        h->model = tt_nn_sequential(tt_nn_column_parallel_linear(WIDTH, WIDTH, group), tt_nn_relu(),
                                    tt_nn_row_parallel_linear(WIDTH, CLASSES, group));
    else if (plan->wrapper == SYNCHRONISED)
        h->model = tt_nn_sequential(tt_nn_linear(WIDTH, WIDTH), tt_nn_sync_batch_norm(group, WIDTH),
                                    tt_nn_linear(WIDTH, CLASSES));
    else
        h->model = tt_nn_sequential(tt_nn_linear(WIDTH, WIDTH), tt_nn_relu(),
                                    tt_nn_linear(WIDTH, plan->wrapper == SENT_ON ? WIDTH : CLASSES));
    CHECK(h->model);
    if (plan->wrapper <= SPLIT_STATE)
        CHECK((h->wrapped = tt_ddp(h->model, group, .virtual_ranks = plan->wrapper == SHARDS ? 4 : 0)));
    if (plan->wrapper == HOOKED)
        CHECK_OK(tt_int8_hook(h->wrapped));
    if (plan->wrapper == FULLY_SHARDED)
        CHECK((h->wrapped = tt_fully_shard(h->model, group)));
    if (plan->wrapper == SPLIT_STATE || plan->wrapper == FULLY_SHARDED)
        CHECK((h->optimizer = tt_zero_optimizer(h->wrapped, make_sgd, NULL)));
    else
        CHECK((h->optimizer = make_sgd(tt_module_parameters(h->model), NULL)));
    if (plan->wrapper == AVERAGED)
        CHECK_OK(tt_periodic_model_averager(&h->averager, group, tt_module_parameters(h->model), 1));
    if (plan->wrapper == PIPED)
        CHECK_OK(tt_pipeline_new(&h->pipe, group, h->model, 2));
    if (plan->wrapper == MEMORY)
        CHECK_OK(tt_group_alloc(&h->memory, group, 4096));
}

static tt_status train_once(holdings *h, const plan *plan, tt_group *group) {
    TT_AUTO_SCOPE;
    tt_module *model = h->wrapped ? h->wrapped : h->model;
    tt_tensor *x = tt_ones(TT_SHAPE(EXAMPLES, WIDTH), TT_F32), *target = tt_zeros(TT_SHAPE(EXAMPLES), TT_I64);
    tt_optimizer_zero_grad(h->optimizer);
    if (plan->wrapper == MEMORY)
        return tt_all_reduce(group, h->memory, 16, TT_F32, TT_SUM);
    if (plan->wrapper == PIPED)
        return tt_pipeline_step(h->pipe, x, target);
    if (plan->wrapper == SENT_ON && tt_get_rank(group) == 0)
        return tt_backward(tt_send_activation(tt_module_forward(model, x), group, 1));
    if (plan->wrapper == SENT_ON)
        return tt_backward(tt_sum(tt_module_forward(model, tt_recv_activation(group, 0))));
    for (int shard = 0; shard < (plan->wrapper == SHARDS ? 2 : 1); shard++) {
        tt_status status = tt_backward(tt_cross_entropy(tt_module_forward(model, x), target));
        if (status)
            return status;
    }
    tt_status status = tt_optimizer_step(h->optimizer);
    return status || !h->averager ? status : tt_model_averager_step(h->averager);
}

static void let_go(holdings *h, tt_group *group, bool group_first) {
    if (group_first)
        tt_destroy_process_group(group);
    if (h->memory && !group_first)
        tt_ignore(tt_group_free(group, h->memory));
    tt_model_averager_free(h->averager);
    tt_optimizer_free(h->optimizer);
    tt_pipeline_free(h->pipe);
    tt_module_free(h->wrapped);
    tt_module_free(h->model);
    if (!group_first)
        tt_destroy_process_group(group);
}

static int fail_and_free(tt_store *store, int rank, int world, void *arg) {
    const plan *plan = arg;
    tt_group *group = NULL;
    holdings h;
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS, .transport = plan->transport));
    take_hold(&h, plan, group);
    for (int step = 0; step < GOOD_STEPS; step++)
        CHECK_OK(train_once(&h, plan, group));
    tt_clear_error();
    if (rank == 1) {
        if (!plan->silent)
            tt_ignore(tt_fail(TT_ERR_INVALID, "the file of rank 1 is empty"));
        let_go(&h, group, plan->group_first);
        return 0;
    }
    tt_status status = train_once(&h, plan, group);
    CHECK(status == TT_ERR_PEER || status == TT_ERR_ABORTED);
    CHECK(plan->silent || strstr(tt_last_error(), "rank 1 failed: TT_ERR_INVALID: the file of rank 1 is empty"));
    CHECK(!plan->silent || strstr(tt_last_error(), "rank 1 left"));
    CHECK(!strstr(tt_last_error(), "free(alloc") && !strstr(tt_last_error(), "tt_reducer"));
    if (plan->wrapper == WRAPPED)
        CHECK(strstr(tt_last_error(), "call 4 of the others") || strstr(tt_last_error(), "after call 3, "));
    let_go(&h, group, false);
    return 0;
}

static void who_fails_and_frees_is_quoted(void **state) {
    (void)state;
    for (int wrapper = 0; wrapper < WRAPPERS; wrapper++)
        for (int way = 0; way < 4; way++) {
            plan plan = {(enum wrapper)wrapper, way == 1, way == 2, way == 3 ? "tcp" : NULL};
            if (way > 1 && wrapper != WRAPPED && wrapper != SENT_ON)
                continue;
            print_message("%s, way %d\n", wrapper_names[wrapper], way);
            with_ranks(2, fail_and_free, &plan);
        }
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),         cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_divided_layers), cmocka_unit_test(who_fails_and_frees_is_quoted),
        cmocka_unit_test(test_drawn_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
