/* A rank that is killed or frozen while parameters are averaged: the others learn who it was, and in what, within a
 * bounded time; the averager then refuses, and is freed with all that it had. */
#include "support/blow.h"
#include "support/leftovers.h"

#include <tutti/tutti.h>

enum { WORLD = 4, VICTIM = 2, NUMBERS = 300000, STEPS_BEFORE = 10 };

typedef enum kind { PERIODIC, HIERARCHICAL, POST_LOCAL, DILOCO, KINDS } kind;

typedef struct scene {
    kind kind;
    bool frozen;
    const char *transport; /* NULL: shared memory */
} scene;

static const char *const doings[] = {"tt_periodic_model_averager", "tt_hierarchical_model_averager",
                                     "tt_post_local_sgd", "tt_diloco"};

typedef struct job {
    tt_group *group;
    tt_module *model, *ddp;
    tt_optimizer *sgd;
    tt_model_averager *averager;
} job;

static void begin_job(job *j, kind kind) {
    static const tt_averaging_level levels[] = {{1, 2}, {2, 4}};
    tt_model_averager **out = &j->averager;
    j->model = tt_nn_linear(NUMBERS, 1);
    j->sgd = tt_sgd(tt_module_parameters(j->model), 0.01);
    if (kind == POST_LOCAL)
        j->ddp = tt_ddp(j->model, j->group);
    const tt_named_tensors *p = tt_module_parameters(j->model);
    CHECK_OK(kind == PERIODIC       ? tt_periodic_model_averager(out, j->group, p, 1)
             : kind == HIERARCHICAL ? tt_hierarchical_model_averager(out, j->group, p, levels, 2)
             : kind == POST_LOCAL   ? tt_post_local_sgd(out, j->ddp, 3, 1, .no_local_averaging = true)
                                    : tt_diloco(out, j->group, p, 1, 0.7, 0.9));
}

static void end_job(job *j) {
    tt_model_averager_free(j->averager);
    tt_optimizer_free(j->sgd);
    tt_module_free(j->ddp);
    tt_module_free(j->model);
    tt_destroy_process_group(j->group);
}

static tt_status train_step(const job *j) {
    TT_AUTO_SCOPE;
    tt_tensor *y = tt_module_forward(j->ddp ? j->ddp : j->model, tt_ones(TT_SHAPE(1, NUMBERS), TT_F32));
    tt_optimizer_zero_grad(j->sgd);
    tt_status status = tt_backward(tt_sum(y));
    if (!status)
        status = tt_optimizer_step(j->sgd);
    return status ? status : tt_model_averager_step(j->averager);
}

/* The last line of a survivor's: what it learned, and when. */
static void check_failure(const scene *scene, job *j, tt_store *store, int rank, tt_status status) {
    int64_t now = tt__now_ns();
    CHECK(status == TT_ERR_PEER || (scene->kind == HIERARCHICAL && status == TT_ERR_ABORTED));
    CHECK_TEXT("rank 2 (");
    CHECK_TEXT(scene->frozen ? "frozen" : scene->transport ? "is gone" : "ended");
    if (scene->kind != POST_LOCAL || tt_model_averager_step(j->averager) == TT_ERR_STATE)
        CHECK(tt_model_averager_average(j->averager) == TT_ERR_STATE);
    tell_learned(store, rank, now);
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    char left[200];
    start_first_thread();
    { /* what stays for the life of a process is there before the first look */
        TT_AUTO_SCOPE;
        CHECK(tt_matmul(tt_ones(TT_SHAPE(8, 8), TT_F32), tt_ones(TT_SHAPE(8, 8), TT_F32)));
    }
    const holdings before = look_at_holdings();
    job j = {.group = join_watchful(store, rank, world, scene->transport)};
    begin_job(&j, scene->kind);
    for (int i = 0; i < STEPS_BEFORE; i++)
        CHECK_OK(train_step(&j));
    if (rank == VICTIM)
        tell_under_way(store);
    tt_status status = TT_OK;
    while (!status)
        status = train_step(&j);
    CHECK(rank != VICTIM);
    CHECK(scene->kind == POST_LOCAL || strstr(tt_last_error(), doings[scene->kind]));
    check_failure(scene, &j, store, rank, status);
    end_job(&j);
    compare_holdings(&before, left, sizeof left);
    if (*left)
        fprintf(stderr, "rank %d: %s\n", rank, left);
    CHECK(!*left);
    return 0;
}

static void play(scene scene) {
    const char *wrong = blow_strike(&(blow){WORLD, VICTIM, scene.frozen, 0}, body, &scene);
    if (wrong)
        fail_msg("%s of %s", wrong, doings[scene.kind]);
}

static void killed_ranks_are_named(void **state) {
    (void)state;
    for (kind kind = 0; kind < KINDS; kind++)
        play((scene){kind, false, NULL});
    play((scene){DILOCO, false, "tcp"});
}

static void frozen_ranks_are_named(void **state) {
    (void)state;
    for (kind kind = 0; kind < KINDS; kind++)
        play((scene){kind, true, NULL});
    play((scene){DILOCO, true, "tcp"});
}

/* ---- a rank that stays away from its pair: all learn of it from the other one, who alone has waited for it */

enum { PAIR_PATIENCE_MS = 4000 };

static int stay_away(tt_store *store, int rank, int world, void *arg) {
    static const tt_averaging_level levels[] = {{1, 2}, {2, 4}};
    static const char *const learned[] = {"learned/1", "learned/2", "learned/3"};
    (void)arg;
    job j = {.group = join_group(store, rank, world), .model = tt_nn_linear(8, 8)};
    tt_group_set_timeout_ms(j.group, PAIR_PATIENCE_MS); /* which the pairs take over */
    CHECK_OK(tt_hierarchical_model_averager(&j.averager, j.group, tt_module_parameters(j.model), levels, 2));
    tt_group_set_timeout_ms(j.group, PATIENCE_MS);
    CHECK_OK(tt_model_averager_step(j.averager)); /* number 0: all */
    tt_status status = TT_OK;
    while (rank && !status)
        status = tt_model_averager_step(j.averager);
    CHECK(status == (rank == 0 ? TT_OK : rank == 1 ? TT_ERR_TIMEOUT : TT_ERR_ABORTED));
    if (rank > 1) {
        CHECK_TEXT("rank 1 aborted the group");
        CHECK_TEXT("rank 0 "); /* for whom it waited */
    }
    if (rank)
        tell_learned(store, rank, tt__now_ns());
    CHECK_OK(tt_store_wait(store, learned, 3, PATIENCE_MS)); /* nobody leaves before */
    end_job(&j);
    return 0;
}

static void who_waits_in_another_group_is_told(void **state) {
    (void)state;
    with_ranks(4, stay_away, NULL);
}

/* ---- a rank whose parameter is not what it was: it stays, and the others hear of it all the same */

static int change_shape(tt_store *store, int rank, int world, void *arg) {
    static const char *const learned[] = {"learned/0", "learned/1", "learned/2", "learned/3"};
    const kind *kind = arg;
    job j = {.group = join_group(store, rank, world)};
    begin_job(&j, *kind);
    for (int i = 0; i < STEPS_BEFORE; i++)
        CHECK_OK(train_step(&j));
    if (rank == VICTIM)
        CHECK_OK(tt_module_to(j.model, TT_F64));
    int64_t begin = tt__now_ms();
    tt_status status = tt_model_averager_average(j.averager);
    CHECK(tt__now_ms() - begin < PATIENCE_MS / 2);
    CHECK(status == (rank == VICTIM ? TT_ERR_STATE : TT_ERR_ABORTED));
    CHECK_TEXT("was f32");
    if (rank != VICTIM)
        CHECK_TEXT("rank 2 aborted the group");
    CHECK(tt_model_averager_step(j.averager) == TT_ERR_STATE);
    tell_learned(store, rank, tt__now_ns());
    CHECK_OK(tt_store_wait(store, learned, 4, PATIENCE_MS));
    end_job(&j);
    return 0;
}

static void a_changed_parameter_is_known_everywhere(void **state) {
    (void)state;
    for (kind kind = 0; kind < KINDS; kind++)
        if (kind != POST_LOCAL) /* DDP keeps its parameters as they are */
            with_ranks(WORLD, change_shape, &kind);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks_are_named),
        cmocka_unit_test(frozen_ranks_are_named),
        cmocka_unit_test(who_waits_in_another_group_is_told),
        cmocka_unit_test(a_changed_parameter_is_known_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
