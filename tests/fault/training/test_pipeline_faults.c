/* A rank is killed, freezes or fails within a pipeline's step: the others return the right error, which names it, in
 * bounded time, and everything can be freed. And what ranks give that does not fit. */
#include "support/blow.h"
#include "support/storm.h"

#include <tutti/tutti.h>

enum { WORLD = 3, MICROS = 6, FEATURES = 8, STEPS = 3 };

typedef enum fault { KILLED, FROZEN, FAILED, FAULTS } fault;
static const char *const fault_names[] = {"killed", "frozen", "failed"};

/* What strikes where: at the `when`-th forward or backward of the victim's stages. */
typedef struct scene {
    fault fault;
    int victim;
    bool in_backward;
    int64_t when;
    tt_pipeline_schedule schedule;
    bool recompute;
} scene;

/* ---- a layer that strikes ---- */

static struct {
    const scene *scene; /* NULL: not the victim */
    int64_t forwards, backwards;
} trap;

static tt_status strike(bool in_backward) {
    const scene *s = trap.scene;
    int64_t *count = in_backward ? &trap.backwards : &trap.forwards;
    if (!s || s->in_backward != in_backward || (*count)++ != s->when)
        return TT_OK;
    if (s->fault == FAILED)
        return tt_fail(TT_ERR_INVALID, "the trap has closed");
    raise(s->fault == KILLED ? SIGKILL : SIGSTOP);
    return TT_OK;
}

static tt_status trap_op_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    (void)node;
    TT_NO_GRAD;
    *out = tt_clone(in[0]);
    return *out ? strike(false) : tt_last_status();
}

static tt_status trap_op_backward(tt_node *node) {
    tt_status status = strike(true);
    return status ? status : tt_node_give(node, 0, tt_node_grad(node, 0));
}

static tt_tensor *trap_forward(tt_module *self, tt_tensor *x) {
    static const tt_function op = {
        .size = sizeof op, .name = "trap", .forward = trap_op_forward, .backward = trap_op_backward};
    (void)self;
    return tt_apply(&op, NULL, x);
}

static tt_module *trap_layer(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Trap", .forward = trap_forward);
    return tt_module_new(&cls, NULL);
}

/* Stages of two parts each, on up to three ranks with two stages. */
static tt_module *make_model(int64_t stages) {
    tt_manual_seed(1);
    tt_module *model = tt_nn_sequential_with(&(tt_nn_sequential_args){0}, offsetof(tt_nn_sequential_args, tt_end));
    for (int64_t s = 0; s < stages; s++) {
        char name[24];
        snprintf(name, sizeof name, "linear%d", (int)s);
        CHECK_OK(tt_module_add_module(model, name, tt_nn_linear(FEATURES, FEATURES)));
        snprintf(name, sizeof name, "trap%d", (int)s);
        CHECK_OK(tt_module_add_module(model, name, trap_layer()));
    }
    return model;
}

/* Step until something is wrong; returns what. */
static tt_status step_on(tt_pipeline *pipe) {
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_randn(TT_SHAPE(MICROS * 2, FEATURES), NULL);
        tt_tensor *target = tt_randint(0, FEATURES, TT_SHAPE(MICROS * 2), NULL);
        if (tt_pipeline_step(pipe, x, target))
            return tt_last_status();
    }
    return TT_OK;
}

static int victim_or_witness(tt_store *store, int rank, int world, void *arg) {
    const scene *s = arg;
    int64_t chunks = s->schedule == TT_PIPELINE_INTERLEAVED_1F1B ? 2 : 1, split[2 * WORLD];
    char who[48];
    tt_pipeline *pipe = NULL;
    tt_group *group = join_watchful(store, rank, world, NULL);
    tt_module *model = make_model(world * chunks);
    for (int i = 0; i < world * chunks; i++)
        split[i] = 2;
    CHECK_OK(tt_pipeline_new(&pipe, group, model, MICROS, .schedule = s->schedule, .split = split,
                             .split_count = world * chunks, .recompute = s->recompute));
    trap.scene = rank == s->victim ? s : NULL;
    tt_status status = step_on(pipe);
    if (rank == s->victim) {
        CHECK(status == TT_ERR_INVALID);
        CHECK_TEXT("tt_pipeline_step: stage ");
        CHECK_TEXT("the trap has closed");
    } else {
        CHECK(status == TT_ERR_PEER);
        snprintf(who, sizeof who, s->fault == FAILED ? "rank %d" : "rank %d (pid", s->victim);
        CHECK_TEXT(who);
    }
    CHECK(tt_pipeline_step(pipe, NULL, NULL) != TT_OK); /* at once */
    tt_pipeline_free(pipe);
    tt_module_free(model);
    tt_destroy_process_group(group);
    return 0;
}

static void play(scene s, const char *what) {
    ranks ranks;
    int64_t begin = tt__now_ms();
    int bad = 0;
    start_ranks(&ranks, WORLD, victim_or_witness, &s);
    for (int r = 0; r < WORLD; r++)
        if (r != s.victim)
            bad += end_of_rank(&ranks, r) != 0;
    if (s.fault == FROZEN)
        kill(ranks.pid[s.victim], SIGKILL);
    bad += end_of_rank(&ranks, s.victim) != (s.fault == FAILED ? 0 : 128 + SIGKILL);
    tt_store_server_free(ranks.server);
    int64_t took = tt__now_ms() - begin;
    if (bad || took > 3 * BLOW_HEARTBEAT_MS + 3000 + leeway_ms())
        fail_msg("%s: rank %d %s at %s %d of %s%s, after %d ms", what, s.victim, fault_names[s.fault],
                 s.in_backward ? "backward" : "forward", (int)s.when, tt_pipeline_schedule_name(s.schedule),
                 s.recompute ? ", recomputing" : "", (int)took);
}

static void each_fault_on_each_rank(void **state) {
    (void)state;
    for (int victim = 0; victim < WORLD; victim++)
        for (int fault = 0; fault < FAULTS; fault++)
            play((scene){(enum fault)fault, victim, victim != 1, 3, TT_PIPELINE_ZERO_BUBBLE, false}, "each");
}

static void faults_anywhere(void **state) {
    (void)state;
    for (long i = 0; i < storm_cases(10); i++) {
        uint64_t draw = storm_case(i);
        char what[32];
        scene s = {.fault = (fault)storm_below(&draw, FAULTS),
                   .victim = (int)storm_below(&draw, WORLD),
                   .in_backward = storm_below(&draw, 2),
                   .when = (int64_t)storm_below(&draw, (size_t)2 * MICROS),
                   .schedule = (tt_pipeline_schedule)storm_below(&draw, 4),
                   .recompute = storm_below(&draw, 2)};
        snprintf(what, sizeof what, "case %ld", i);
        if (!storm_skips(i))
            play(s, what);
    }
}

/* ---- a rank that fails when it has nothing more to send ---- */

static bool loss_fails;

static tt_tensor *failing_loss(tt_tensor *y, tt_tensor *target, void *user) {
    (void)user;
    if (loss_fails)
        tt_ignore(tt_fail(TT_ERR_INVALID, "the loss has failed"));
    return loss_fails ? NULL : tt_cross_entropy(y, target);
}

/* What the rank that fails returns, and the others; afterwards all refuse to go on, and free without waiting. */
static void check_late_failure(tt_group *group, tt_pipeline *pipe, bool fails, tt_status status, const char *text) {
    char who[64];
    CHECK(status == (fails ? TT_ERR_INVALID : TT_ERR_PEER));
    CHECK_TEXT(text);
    snprintf(who, sizeof who, "rank %d failed", tt_get_world_size(group) - 1);
    if (!fails)
        CHECK_TEXT(who);
    CHECK(tt_pipeline_step(pipe, NULL, NULL) == TT_ERR_STATE);
    CHECK_TEXT(text);
    int64_t begin = tt__now_ms();
    tt_pipeline_free(pipe);
    CHECK(tt__now_ms() - begin < PATIENCE_MS / 2);
}

static void fail_in_last_loss(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    bool last = rank == tt_get_world_size(group) - 1;
    tt_pipeline *pipe = NULL;
    tt_module *model = make_model(3);
    double loss;
    CHECK_OK(tt_pipeline_new(&pipe, group, model, MICROS, .loss = failing_loss));
    CHECK_OK(step_on(pipe)); /* so that there are slots */
    loss_fails = true;
    tt_tensor *x = tt_randn(TT_SHAPE(MICROS, FEATURES), NULL);
    tt_tensor *target = tt_randint(0, FEATURES, TT_SHAPE(MICROS), NULL);
    tt_status status = tt_pipeline_evaluate(pipe, x, target, .loss = &loss);
    check_late_failure(group, pipe, last, status, "the loss has failed");
    tt_module_free(model);
}

/* Of the weight that the last rank's trap scales by: its gradient is of the weights' half. */
static tt_tensor *scaling_trap_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *scale = trap_forward(self, tt_module_parameters(self)->tensors[0]);
    return scale ? tt_mul(x, scale) : NULL;
}

static void fail_in_last_weights(tt_group *group, int rank, void *user) {
    (void)user;
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "ScalingTrap", .forward = scaling_trap_forward);
    const scene at_the_end = {.fault = FAILED, .in_backward = true, .when = MICROS - 1};
    bool last = rank == tt_get_world_size(group) - 1;
    tt_pipeline *pipe = NULL;
    tt_module *model = make_model(1), *scaling = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_register_parameter(scaling, "scale", tt_ones(TT_SHAPE(FEATURES), TT_F32)));
    CHECK_OK(tt_module_add_module(model, "scaling", scaling));
    CHECK_OK(tt_pipeline_new(&pipe, group, model, MICROS, .schedule = TT_PIPELINE_ZERO_BUBBLE,
                             .split = (const int64_t[]){1, 2}, .split_count = 2));
    trap.scene = last ? &at_the_end : NULL;
    check_late_failure(group, pipe, last, step_on(pipe), "the trap has closed");
    tt_module_free(model);
}

static void a_late_failure_is_known_everywhere(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, fail_in_last_loss, NULL), 0);
    assert_int_equal(run_ranks(3, fail_in_last_loss, NULL), 0);
    assert_int_equal(run_ranks(2, fail_in_last_weights, NULL), 0);
}

/* ---- what does not fit ---- */

typedef struct misfit {
    const char *text; /* in the error, on every rank */
    tt_status status;
    int64_t micros, chunks, split[4], split_count;
    tt_pipeline_schedule schedule;
    uint64_t seed;
    int64_t stages;      /* of the model: two parts each; 0: 3 */
    bool one_differs;    /* rank 1 alone gives all this; the others what fits */
    bool tied, no_split; /* .split is NULL */
} misfit;

static void give_misfit(tt_group *group, int rank, void *user) {
    const misfit fits = {.micros = 4}, *m = user, *mine = m->one_differs && rank != 1 ? &fits : m;
    tt_pipeline *pipe = NULL;
    tt_manual_seed(1);
    tt_module *model = mine->tied ? tt_model_gpt2(11, 6, 8, 1, 1) : make_model(mine->stages ? mine->stages : 3);
    tt_status status =
        tt_pipeline_new(&pipe, group, model, mine->micros, .schedule = mine->schedule, .chunks = mine->chunks,
                        .split = mine->split_count && !mine->no_split ? mine->split : NULL,
                        .split_count = mine->split_count, .seed = mine->seed);
    CHECK(status == m->status && !pipe);
    CHECK_TEXT(m->text);
    CHECK_OK(tt_barrier(group)); /* of which nothing was spoilt */
    tt_module_free(model);
}

static void misfits_are_named_on_every_rank(void **state) {
    (void)state;
    static const misfit misfits[] = {
        {"expected at least 1 micro-batch", TT_ERR_INVALID, .micros = 0},
        {"1F1B on 2 ranks: expected at least as many micro-batches, got 1", TT_ERR_INVALID, .micros = 1},
        {"a multiple of the 2 ranks, got 3", TT_ERR_INVALID, .micros = 3, .schedule = TT_PIPELINE_INTERLEAVED_1F1B},
        {"the model is a chain of 2 parts, too few for 4 stages", TT_ERR_INVALID, .micros = 4, .chunks = 2, .stages = 1,
         .schedule = TT_PIPELINE_ZERO_BUBBLE},
        {"expected the parts of each of the 2 stages, got 3 numbers", TT_ERR_INVALID, .micros = 4, .split = {2, 2, 2},
         .split_count = 3},
        {"the stages have 5 parts, the model 6", TT_ERR_INVALID, .micros = 4, .split = {2, 3}, .split_count = 2},
        {"stage 1 has 0 parts", TT_ERR_INVALID, .micros = 4, .split = {6, 0}, .split_count = 2},
        {"parameter \"transformer.wte.weight\" is used in stage 0 and in stage 1", TT_ERR_INVALID, .micros = 4,
         .tied = true},
        {"rank 1 has 6 micro-batches where rank 0 has 4 micro-batches", TT_ERR_MISMATCH, .micros = 6,
         .one_differs = true},
        {"rank 1 has schedule GPipe where rank 0 has schedule 1F1B", TT_ERR_MISMATCH, .micros = 4, .one_differs = true,
         .schedule = TT_PIPELINE_GPIPE},
        {"rank 1 has a split into 4 2 where rank 0 has no split by hand", TT_ERR_MISMATCH, .micros = 4,
         .one_differs = true, .split = {4, 2}, .split_count = 2},
        {"rank 1 has a .split_count of 2 without a .split where rank 0 has no split by hand", TT_ERR_MISMATCH,
         .micros = 4, .one_differs = true, .split_count = 2, .no_split = true},
        {"expected the parts of each of the 2 stages, got 2 numbers at NULL", TT_ERR_INVALID, .micros = 4,
         .split_count = 2, .no_split = true},
        {"rank 1 has seed 3 where rank 0 has seed 0", TT_ERR_MISMATCH, .micros = 4, .one_differs = true, .seed = 3},
        {"rank 1 has a model of 4 parts where rank 0 has a model of 6 parts", TT_ERR_MISMATCH, .micros = 4,
         .one_differs = true, .stages = 2},
    };
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++)
        if (run_ranks(2, give_misfit, (void *)(uintptr_t)&misfits[i]))
            fail_msg("misfit: %s", misfits[i].text);
}

/* Batches that don't fit are refused on all ranks before anything runs, and the next one is taken. */
static void give_batches(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_pipeline *pipe = NULL;
    tt_module *model = make_model(2);
    tt_tensor *x = tt_randn(TT_SHAPE(8, FEATURES), NULL), *short_x = tt_narrow(x, 0, 0, 3);
    tt_tensor *target = tt_randint(0, FEATURES, TT_SHAPE(8), NULL), *short_target = tt_narrow(target, 0, 0, 7);
    CHECK_OK(tt_pipeline_new(&pipe, group, model, 4));
    CHECK(tt_pipeline_step(pipe, NULL, target) == TT_ERR_INVALID);
    CHECK_TEXT("expected the batch as `x` on rank 0, got none");
    CHECK(tt_pipeline_step(pipe, x, NULL) == TT_ERR_INVALID);
    CHECK_TEXT("expected `target` on rank 1, the last, got none");
    CHECK(tt_pipeline_step(pipe, x, short_target) == TT_ERR_INVALID);
    CHECK_TEXT("rank 0 has a batch of 8 examples, rank 1 a target of 7");
    CHECK(tt_pipeline_step(pipe, short_x, tt_narrow(target, 0, 0, 3)) == TT_ERR_INVALID);
    CHECK_TEXT("the batch has 3 examples, fewer than the 4 micro-batches");
    tt_pipeline_times times;
    CHECK(tt_pipeline_get_times(pipe, &times) == TT_ERR_STATE);
    CHECK(tt_pipeline_write_trace(pipe, "/nowhere") == TT_ERR_STATE);
    CHECK((rank ? tt_pipeline_evaluate(pipe, x, target) : tt_pipeline_step(pipe, x, target)) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 evaluates where rank 0 trains");
    CHECK_OK(tt_pipeline_step(pipe, x, target));
    CHECK(tt_pipeline_write_trace(pipe, "/nowhere/at/all") == TT_ERR_IO);
    CHECK_TEXT("/nowhere/at/all");
    CHECK(tt_pipeline_write_trace(pipe, rank ? NULL : "/nowhere/at/all") == TT_ERR_IO); /* rank 0's path alone counts */
    CHECK(tt_pipeline_write_trace(pipe, rank ? "/nowhere/at/all" : NULL) == TT_ERR_INVALID);
    CHECK_OK(tt_pipeline_step(pipe, x, target));
    tt_pipeline_free(pipe);
    tt_module_free(model);
}

static void batches_that_do_not_fit_are_refused_everywhere(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, give_batches, NULL), 0);
}

/* Two pipelines beside each other, which are to be alike. */
static void give_unlike_replicas(tt_group *group, int rank, void *user) {
    const misfit *m = user;
    tt_pipeline *pipe = NULL;
    tt_group *own = NULL, *data = NULL;
    CHECK_OK(tt_group_split(&own, group, rank / 2, 0));
    CHECK_OK(tt_group_split(&data, group, rank % 2, 0));
    tt_module *model = make_model(rank < 2 ? 3 : m->stages);
    CHECK(tt_pipeline_new(&pipe, own, model, rank < 2 ? 4 : m->micros, .data_group = data) == m->status && !pipe);
    CHECK_TEXT(m->text);
    CHECK_OK(tt_barrier(group));
    tt_module_free(model);
    tt_destroy_process_group(own);
    tt_destroy_process_group(data);
}

static void replicas_that_differ_are_named_on_every_rank(void **state) {
    (void)state;
    static const misfit misfits[] = {
        {"rank 1 has 6 micro-batches where rank 0 has 4 micro-batches", TT_ERR_MISMATCH, .micros = 6, .stages = 3},
        {"rank 1 has a model of 4 parts where rank 0 has a model of 6 parts", TT_ERR_MISMATCH, .micros = 4,
         .stages = 2},
    };
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++)
        if (run_ranks(4, give_unlike_replicas, (void *)(uintptr_t)&misfits[i]))
            fail_msg("replicas: %s", misfits[i].text);
}

/* ---- pipelines beside each other, of two ranks each */

typedef struct replicas_of_two {
    tt_group *own, *data;
    tt_module *model;
} replicas_of_two;

static replicas_of_two join_replicas(tt_group *group, int rank) {
    replicas_of_two r = {.model = make_model(2)};
    CHECK_OK(tt_group_split(&r.own, group, rank / 2, 0));
    CHECK_OK(tt_group_split(&r.data, group, rank % 2, 0));
    return r;
}

static void end_replicas(replicas_of_two *r) {
    tt_module_free(r->model);
    tt_destroy_process_group(r->own);
    tt_destroy_process_group(r->data);
}

/* A rank without a model is refused, and the others with it, at once. */
static void give_no_model(tt_group *group, int rank, void *user) {
    (void)user;
    const bool refuses = rank == 1;
    tt_pipeline *pipe = NULL;
    replicas_of_two r = join_replicas(group, rank);
    int64_t begin = tt__now_ms();
    tt_status status = tt_pipeline_new(&pipe, r.own, refuses ? NULL : r.model, 4, .data_group = r.data);
    CHECK(!pipe && status == (refuses ? TT_ERR_INVALID : TT_ERR_MISMATCH));
    CHECK_TEXT(refuses ? "the model is NULL" : rank ? "rank 1" : "rank 1 has a call that it refuses");
    status = tt_pipeline_new(&pipe, r.own, refuses ? NULL : r.model, 4);
    CHECK(rank < 2 ? !pipe && status == (refuses ? TT_ERR_INVALID : TT_ERR_MISMATCH) : status == TT_OK);
    CHECK(tt__now_ms() - begin < PATIENCE_MS / 2);
    tt_pipeline_free(pipe);
    CHECK_OK(tt_barrier(group));
    end_replicas(&r);
}

static void a_missing_model_is_known_on_every_rank(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, give_no_model, NULL), 0);
}

/* Where some ranks of a pipeline have no data group: who waits in one for a rank that has none hears of it from the
 * ranks of its own pipeline. `user`: the ranks without, a bit each. */
static void give_no_data_group(tt_group *group, int rank, void *user) {
    const unsigned without = *(const unsigned *)user;
    char who[64];
    tt_pipeline *pipe = NULL;
    replicas_of_two r = join_replicas(group, rank);
    int64_t begin = tt__now_ms();
    tt_status status = tt_pipeline_new(&pipe, r.own, r.model, 4, .data_group = without >> rank & 1 ? NULL : r.data);
    CHECK(tt__now_ms() - begin < PATIENCE_MS / 2);
    CHECK(!pipe && (status == TT_ERR_MISMATCH || status == TT_ERR_PEER));
    const unsigned own = without >> (rank & 2) & 3, of_other = without >> (~rank & 2) & 3;
    snprintf(who, sizeof who, "rank 1 has %s where rank 0 has %s",
             (own ? own : of_other) == 2 ? "no data group" : "a data group",
             (own ? own : of_other) == 2 ? "a data group" : "no data group");
    CHECK_TEXT(who);
    CHECK_OK(tt_barrier(group));
    end_replicas(&r);
}

static void a_missing_data_group_is_known_on_every_rank(void **state) {
    (void)state;
    static const unsigned cases[] = {1 << 0, 1 << 1, 1 << 2, 1 << 3};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(run_ranks(4, give_no_data_group, (void *)(uintptr_t)&cases[i]), 0);
}

/* Pipelines beside each other are cut alike, by what the first one has measured. */
static void measure_beside_others(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_pipeline *pipe = NULL;
    replicas_of_two r = join_replicas(group, rank);
    tt_module *model = make_model(5);
    tt_tensor *sample = tt_randn(TT_SHAPE(2, FEATURES), NULL);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(tt_pipeline_new(&pipe, r.own, model, 4, .sample = rank ? NULL : sample, .data_group = r.data));
        int64_t parts = tt_pipeline_stage_parts(pipe, 0), first = parts;
        CHECK_OK(tt_broadcast(group, &first, 1, TT_I64, 0));
        CHECK(parts == first);
        tt_pipeline_free(pipe);
    }
    CHECK(tt_pipeline_new(&pipe, r.own, model, 4, .sample = tt_randn(TT_SHAPE(2, rank ? FEATURES : 3), NULL),
                          .data_group = r.data) != TT_OK);
    CHECK_TEXT(rank ? "rank 0" : "measuring part 0");
    CHECK_OK(tt_barrier(group));
    tt_module_free(model);
    end_replicas(&r);
}

static void replicas_are_cut_alike(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, measure_beside_others, NULL), 0);
}

/* One rank's stage fails in a step. It stays, and so do its groups, until all have learned of it. */
static int fail_beside_others(tt_store *store, int rank, int world, void *arg) {
    static const char *const learned[] = {"learned/0", "learned/1", "learned/2", "learned/3"};
    const scene *s = arg;
    tt_group *group = join_group(store, rank, world);
    tt_pipeline *pipe = NULL;
    replicas_of_two r = join_replicas(group, rank);
    CHECK_OK(tt_pipeline_new(&pipe, r.own, r.model, MICROS, .schedule = s->schedule, .data_group = r.data));
    trap.scene = rank == s->victim ? s : NULL;
    int64_t begin = tt__now_ms();
    tt_status status = step_on(pipe);
    CHECK(tt__now_ms() - begin < PATIENCE_MS / 2);
    CHECK(rank == s->victim ? status == TT_ERR_INVALID : status == TT_ERR_PEER || status == TT_ERR_ABORTED);
    CHECK_TEXT("the trap has closed");
    tell_learned(store, rank, begin);
    CHECK_OK(tt_store_wait(store, learned, 4, PATIENCE_MS));
    tt_pipeline_free(pipe);
    CHECK(tt__now_ms() - begin < PATIENCE_MS / 2);
    end_replicas(&r);
    tt_destroy_process_group(group);
    return 0;
}

static void a_failed_step_is_known_in_all_replicas(void **state) {
    (void)state;
    for (int victim = 0; victim < 4; victim++) {
        scene s = {FAILED, victim, victim % 2 == 0, 3, victim < 2 ? TT_PIPELINE_1F1B : TT_PIPELINE_ZERO_BUBBLE, false};
        with_ranks(4, fail_beside_others, &s);
    }
}

/* One rank makes the model another chain behind the pipeline's back. */
static tt_status idle_hook(tt_module *module, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                           int64_t out_count, void *user) {
    (void)module, (void)in, (void)in_count, (void)out, (void)out_count, (void)user;
    return TT_OK;
}

static void change_parts(tt_group *group, int rank, void *user) {
    const bool adds_child = user != NULL;
    tt_pipeline *pipe = NULL;
    tt_manual_seed(1);
    tt_module *inner = tt_nn_sequential(tt_nn_linear(FEATURES, FEATURES), tt_nn_linear(FEATURES, FEATURES));
    tt_module *model = tt_nn_sequential(inner, tt_nn_linear(FEATURES, FEATURES), tt_nn_linear(FEATURES, FEATURES));
    CHECK_OK(tt_pipeline_new(&pipe, group, model, MICROS));
    CHECK_OK(step_on(pipe));
    if (rank == 1 && adds_child)
        CHECK_OK(tt_module_add_module(inner, "2", tt_nn_relu()));
    else if (rank == 1)
        CHECK_OK(tt_module_register_forward_hook(NULL, inner, idle_hook, NULL));
    CHECK(step_on(pipe) == TT_ERR_STATE);
    CHECK_TEXT("rank 1's model is not the chain of 4 parts any more");
    CHECK(tt_pipeline_gather(pipe) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has other parts");
    tt_pipeline_free(pipe);
    tt_module_free(model);
}

static void parts_stay_what_they_were(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, change_parts, NULL), 0);
    assert_int_equal(run_ranks(2, change_parts, state), 0);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misfits_are_named_on_every_rank),
        cmocka_unit_test(replicas_that_differ_are_named_on_every_rank),
        cmocka_unit_test(a_missing_model_is_known_on_every_rank),
        cmocka_unit_test(a_missing_data_group_is_known_on_every_rank),
        cmocka_unit_test(replicas_are_cut_alike),
        cmocka_unit_test(a_failed_step_is_known_in_all_replicas),
        cmocka_unit_test(parts_stay_what_they_were),
        cmocka_unit_test(batches_that_do_not_fit_are_refused_everywhere),
        cmocka_unit_test(a_late_failure_is_known_everywhere),
        cmocka_unit_test(each_fault_on_each_rank),
        cmocka_unit_test(faults_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
