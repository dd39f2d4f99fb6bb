/* Ranks that are killed or freeze while the others train with a sharded optimizer: in the averaging of gradients, in
 * clipping, in the step, in gathering or saving the state, or anywhere. The others learn who it was, and can free all
 * that they have. */
#include "dist/parallel/zero_models.h"

#include "support/blow.h"
#include "support/own_folder.h"
#include "support/storm.h"

enum { WORLD = 3 };

/* In which call the others wait for the victim; ANYWHERE: it is struck while all train. */
typedef enum phase { AVERAGE, CLIP, STEP, CONSOLIDATE, SAVE, LOAD, ANYWHERE, PHASES } phase;

typedef struct scene {
    phase at;
    int victim, stage, step; /* of the victim, in which it is struck */
    bool frozen;
    char path[64];
} scene;

/* What the victim does in front of the call in which it is struck. */
static void meet_fate(tt_store *store) {
    tell_under_way(store);
    for (;;)
        pause();
}

/* A backward pass; how it ended. */
static tt_status average(tt_module *ddp, int data) {
    TT_AUTO_SCOPE;
    tt_manual_seed((uint64_t)data);
    tt_tensor *x = tt_randn(TT_SHAPE(ZERO_BATCH, ZERO_IN), NULL);
    return tt_backward(tt_mean(tt_module_forward(ddp, x)));
}

static tt_status do_phase(phase at, tt_module *ddp, tt_optimizer *o, const scene *scene, int step) {
    switch (at) {
    case AVERAGE:
        return average(ddp, step);
    case CLIP:
        return tt_zero_clip_grad_norm_(o, 1);
    case STEP:
        return tt_optimizer_step(o);
    case CONSOLIDATE:
        return tt_zero_consolidate(o, 0);
    case SAVE:
        return tt_zero_save_sharded(o, scene->path);
    default:
        return tt_zero_load_sharded(o, scene->path);
    }
}

/* Train until something goes wrong; returns what. */
static tt_status train(tt_module *ddp, tt_optimizer *o, const scene *scene, tt_store *victim) {
    const int phases = scene->at == ANYWHERE ? STEP + 1 : LOAD + 1;
    tt_status status = TT_OK;
    for (int step = 0; !status; step++) {
        tt_optimizer_zero_grad(o);
        if (victim && scene->at == ANYWHERE && step == scene->step)
            tell_under_way(victim);
        for (int at = AVERAGE; at < phases && !status; at++) {
            if (victim && scene->at == (phase)at && step == scene->step)
                meet_fate(victim);
            status = do_phase((phase)at, ddp, o, scene, step);
        }
    }
    return status;
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    tt_group *group = join_watchful(store, rank, world, NULL);
    char who[40];
    tt_module *model = zero_branches(), *ddp = tt_ddp(model, group, .bucket_cap_bytes = 2048);
    tt_optimizer *o = tt_zero_optimizer(ddp, zero_make_adam, NULL, .stage = scene->stage);
    CHECK(o);
    tt_status status = train(ddp, o, scene, rank == scene->victim ? store : NULL);
    int64_t now = tt__now_ns();
    CHECK(rank != scene->victim && status == TT_ERR_PEER);
    snprintf(who, sizeof who, "rank %d (pid ", scene->victim);
    CHECK_TEXT(who);
    CHECK_TEXT(scene->frozen ? "frozen" : "ended");
    CHECK(tt_optimizer_step(o) != TT_OK);
    /* before the first step there is no state that ranks would have to gather */
    CHECK(scene->step == 0 || tt_zero_consolidate(o, 0) != TT_OK || tt_optimizer_state_dict(o) == NULL);
    double sum;
    tt_tensor *first = tt_module_parameters(model)->tensors[0];
    tt_optimizer_free(o);
    tt_destroy_process_group(group);
    tt_module_free(ddp);
    int scope = tt_scope_begin();
    CHECK_OK(tt_item(tt_sum(first), &sum)); /* parameters are in memory of their own again */
    tt_scope_end(scope);
    tt_module_free(model);
    tell_learned(store, rank, now);
    return 0;
}

static void play(scene scene) {
    const char *wrong = blow_strike(&(blow){WORLD, scene.victim, scene.frozen, 0}, body, &scene);
    if (wrong)
        fail_msg("%s", wrong);
}

static void play_all(bool frozen) {
    scene scene = {.frozen = frozen, .step = 2};
    strcpy(scene.path, "state.safetensors");
    for (int at = 0; at < PHASES; at++) {
        scene.at = (phase)at;
        scene.stage = 1 + at % 2;
        scene.victim = at % WORLD;
        play(scene);
        if (at == AVERAGE || at == ANYWHERE) { /* where the stages differ */
            scene.stage = 3 - scene.stage;
            play(scene);
        }
    }
}

static void a_killed_rank_is_named(void **state) {
    (void)state;
    play_all(false);
}

static void a_frozen_rank_is_named(void **state) {
    (void)state;
    play_all(true);
}

static void so_is_one_in_any_case(void **state) {
    (void)state;
    for (long number = 0; number < storm_cases(10); number++) {
        uint64_t draw = storm_case(number);
        scene scene = {.at = (phase)storm_below(&draw, PHASES),
                       .victim = (int)storm_below(&draw, WORLD),
                       .stage = 1 + (int)storm_below(&draw, 2),
                       .step = (int)storm_below(&draw, 6),
                       .frozen = storm_below(&draw, 4) == 0,
                       .path = "state.safetensors"};
        if (storm_skips(number))
            continue;
        print_message("case %ld: stage %d, step %d, phase %d, rank %d %s\n", number, scene.stage, scene.step, scene.at,
                      scene.victim, scene.frozen ? "freezes" : "is killed");
        play(scene);
    }
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_frozen_rank_is_named),
        cmocka_unit_test(so_is_one_in_any_case),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
