/* A rank of a divided model dies or freezes: while others wait for its activation, for the gradient that it owes, or
 * for its part of a sum. Each learns who it was within a bounded time, and can free all that it has. */
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

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_divided_layers),
        cmocka_unit_test(test_drawn_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
