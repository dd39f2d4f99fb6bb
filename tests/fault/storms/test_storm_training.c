/* A rank is killed or freezes while all train, at any moment, with each thing that data-parallel training can have:
 * parameters that go unused, sparse gradients, accumulation, communication hooks, ranks without data, virtual ranks,
 * SyncBatchNorm, averaged parameters, sharded optimizers, sharded modules. The others learn who it was within a bounded
 * time, in an error of the call that they are in; the next call fails, too; and all that they have is freed.
 * TT_STORM_FEATURE=PART plays those alone whose name has this in it. */
#include "support/blow.h"
#include "support/inject.h"
#include "support/leftovers.h"
#include "support/storm.h"

#include "tensor/core/pool.h"

#include <tutti/tutti.h>

enum { IN = 48, HIDDEN = 96, OUT = 40, BATCH = 4, BUCKET_BYTES = 8192, ROWS = 3000, VIRTUAL_A_RANK = 2 };

typedef struct feature feature;

/* One case: who is struck, how, and at which moment. */
typedef struct scene {
    const feature *feature;
    blow blow;
    int steps; /* of the victim, before it says that it is under way; 0: before it begins to make what it trains */
    bool in_join_wait; /* it says so there instead */
    const char *transport;
} scene;

/* What a rank trains. */
typedef struct job {
    const scene *scene;
    tt_store *store;
    tt_group *group, *subgroup;
    int rank, world;
    tt_module *model, *ddp;
    tt_optimizer *optimizer;
    tt_join *join;
    tt_model_averager *averager;
    int64_t step;
    int left, epoch; /* batches of the epoch, with a join */
    bool reads_rows; /* the model's inputs are numbers of rows */
} job;

struct feature {
    const char *name;
    tt_status (*begin)(job *job);
    tt_status (*step)(job *job);
    tt_status (*set_hook)(tt_module *ddp);
};

/* ---- models */

/* Which of the branches the next forward takes. */
static unsigned branches = 3;

static tt_tensor *branching_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *stem = tt_tanh(tt_module_forward(tt_module_child(self, "stem"), x)), *y = stem;
    if (branches & 1)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "left"), stem));
    if (branches & 2)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "right"), stem));
    return y;
}

static tt_module *branching_model(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Branching", .forward = branching_forward);
    tt_manual_seed(1);
    tt_module *m = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_add_module(m, "stem", tt_nn_linear(IN, HIDDEN)));
    CHECK_OK(tt_module_add_module(m, "left", tt_nn_linear(HIDDEN, HIDDEN)));
    CHECK_OK(tt_module_add_module(m, "right", tt_nn_linear(HIDDEN, HIDDEN)));
    return m;
}

/* ---- parts of a beginning: each returns how it ended */

static tt_status last_status_of(const void *made) { return made ? TT_OK : tt_last_status(); }

static tt_status wrap(job *j) {
    if (!j->model)
        j->model = branching_model();
    j->ddp = tt_ddp(j->model, j->group, .bucket_cap_bytes = BUCKET_BYTES);
    if (!j->ddp)
        return tt_last_status();
    j->optimizer = tt_sgd(tt_module_parameters(j->ddp), 0.01, .momentum = 0.9);
    CHECK(j->optimizer);
    return TT_OK;
}

static tt_status begin_hook(job *j) {
    tt_status status = wrap(j);
    return status ? status : j->scene->feature->set_hook(j->ddp);
}

static tt_status begin_sparse(job *j) {
    tt_manual_seed(1);
    j->reads_rows = true;
    j->model = tt_nn_sequential(tt_nn_embedding(ROWS, IN, .sparse = true), tt_nn_linear(IN, OUT));
    j->ddp = tt_ddp(j->model, j->group, .bucket_cap_bytes = BUCKET_BYTES);
    if (!j->ddp)
        return tt_last_status();
    j->optimizer = tt_sgd(tt_module_parameters(j->ddp), 0.01);
    CHECK(j->optimizer);
    return TT_OK;
}

static tt_status begin_step_in_backward(job *j) {
    tt_status status = wrap(j);
    return status ? status : tt_ddp_step_in_backward(j->ddp, j->optimizer, .zero_grad = true);
}

static tt_status begin_virtual(job *j) {
    j->model = branching_model();
    j->ddp = tt_ddp(j->model, j->group, .bucket_cap_bytes = BUCKET_BYTES, .virtual_ranks = VIRTUAL_A_RANK * j->world,
                    .shard_seed = 5);
    if (!j->ddp)
        return tt_last_status();
    j->optimizer = tt_sgd(tt_module_parameters(j->ddp), 0.01);
    CHECK(j->optimizer);
    return TT_OK;
}

static tt_status begin_sync_norm(job *j) {
    tt_manual_seed(1);
    j->model = tt_nn_sequential(tt_nn_linear(IN, HIDDEN), tt_nn_batch_norm1d(HIDDEN), tt_nn_relu(),
                                tt_nn_linear(HIDDEN, HIDDEN), tt_nn_batch_norm1d(HIDDEN), tt_nn_linear(HIDDEN, OUT));
    return tt_convert_sync_batchnorm(j->model, j->group) ? wrap(j) : tt_last_status();
}

static tt_status update(void *user) {
    const job *j = user;
    tt_status status = tt_optimizer_step(j->optimizer);
    tt_optimizer_zero_grad(j->optimizer);
    return status;
}

/* Tell, if the victim is to be struck while it shadows the others' steps, that it has come to one. */
static tt_status before_shadowed_step(void *user) {
    const job *j = user;
    if (j->scene->in_join_wait && j->rank == j->scene->blow.victim)
        tell_under_way(j->store);
    return TT_OK;
}

static tt_status begin_join(job *j) {
    tt_status status = wrap(j);
    if (status)
        return status;
    j->join = tt_join_new(j->ddp, .before_step = before_shadowed_step, .after_step = update, .user = j);
    return last_status_of(j->join);
}

static tt_status begin_weighted_join(job *j) {
    tt_status status = wrap(j);
    if (status)
        return status;
    j->join =
        tt_join_new(j->ddp, .examples = BATCH, .before_step = before_shadowed_step, .after_step = update, .user = j);
    return last_status_of(j->join);
}

static tt_optimizer *make_adam(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_adam(p, 1e-3);
}

static tt_status begin_zero(job *j, int stage) {
    tt_status status = wrap(j);
    if (status)
        return status;
    tt_optimizer_free(j->optimizer);
    j->optimizer = tt_zero_optimizer(j->ddp, make_adam, NULL, .stage = stage);
    return last_status_of(j->optimizer);
}

static tt_status begin_zero_1(job *j) { return begin_zero(j, 1); }
static tt_status begin_zero_2(job *j) { return begin_zero(j, 2); }

static tt_status begin_sharded(job *j, bool keep) {
    static const char *const units[] = {"left", "right"}; /* the stem is the rest */
    j->model = branching_model();
    j->ddp = tt_fully_shard(j->model, j->group, .units = units, .unit_count = 2, .keep_after_forward = keep);
    if (!j->ddp)
        return tt_last_status();
    j->optimizer = tt_zero_optimizer(j->ddp, make_adam, NULL);
    return last_status_of(j->optimizer);
}

static tt_status begin_fully_sharded(job *j) { return begin_sharded(j, false); }
static tt_status begin_kept_whole(job *j) { return begin_sharded(j, true); }

/* Make what a rank trains by itself, where parameters are averaged, not gradients. */
static const tt_named_tensors *begin_alone(job *j) {
    j->model = branching_model();
    j->optimizer = tt_sgd(tt_module_parameters(j->model), 0.01);
    CHECK(j->optimizer);
    return tt_module_parameters(j->model);
}

static tt_status begin_periodic(job *j) {
    return tt_periodic_model_averager(&j->averager, j->group, begin_alone(j), 2);
}

static tt_status begin_hierarchical(job *j) {
    const tt_averaging_level pairs[] = {{1, 2}, {2, 4}}, whole[] = {{2, j->world}};
    const tt_named_tensors *p = begin_alone(j);
    return j->world == 4 ? tt_hierarchical_model_averager(&j->averager, j->group, p, pairs, 2)
                         : tt_hierarchical_model_averager(&j->averager, j->group, p, whole, 1);
}

static tt_status begin_diloco(job *j) { return tt_diloco(&j->averager, j->group, begin_alone(j), 3, 0.7, 0.9); }

static tt_status begin_post_local(job *j) {
    tt_status status = wrap(j);
    return status ? status : tt_post_local_sgd(&j->averager, j->ddp, 3, 2, .no_local_averaging = true);
}

/* Gradients are averaged by pairs: the others hear of a failure when all average parameters. */
static tt_status begin_post_local_pairs(job *j) {
    tt_status status = wrap(j);
    if (!status)
        status = tt_group_split(&j->subgroup, j->group, j->rank / 2, 0);
    return status ? status : tt_post_local_sgd(&j->averager, j->ddp, 1, 4, .subgroup = j->subgroup);
}

/* ---- steps */

static tt_status pass(const job *j) {
    TT_AUTO_SCOPE;
    tt_tensor *x = j->reads_rows ? tt_randint(0, ROWS, TT_SHAPE(BATCH, IN), NULL) : tt_randn(TT_SHAPE(BATCH, IN), NULL);
    return tt_backward(tt_mean(tt_module_forward(j->ddp ? j->ddp : j->model, x)));
}

static tt_status plain_step(job *j) {
    branches = 3;
    tt_status status = pass(j);
    return status ? status : update(j);
}

/* Each rank leaves out what it likes. */
static tt_status unused_step(job *j) {
    uint64_t draw = (uint64_t)j->step * 64 + (uint64_t)j->rank;
    branches = (unsigned)storm_below(&draw, 4);
    tt_status status = pass(j);
    return status ? status : update(j);
}

static tt_status accumulating_step(job *j) {
    tt_status status = tt_ddp_set_sync(j->ddp, false);
    for (int i = 0; i < 2 && !status; i++)
        status = pass(j);
    if (!status)
        status = tt_ddp_set_sync(j->ddp, true);
    return status ? status : plain_step(j);
}

/* The pass has stepped. */
static tt_status step_in_backward(job *j) {
    uint64_t draw = (uint64_t)j->step * 64 + (uint64_t)j->rank;
    branches = (unsigned)storm_below(&draw, 4);
    return pass(j);
}

static tt_status clipped_step(job *j) {
    branches = 3;
    tt_status status = pass(j);
    status = status ? status : pass(j);
    status = status ? status : tt_zero_clip_grad_norm_(j->optimizer, 0.1);
    return status ? status : update(j);
}

/* Whole parameters and state come to a rank between steps, as for a checkpoint. */
static tt_status gathering_step(job *j) {
    tt_status status = plain_step(j);
    const int root = (int)(j->step % (j->world + 1)) - 1; /* or all */
    status = status ? status : tt_fully_shard_gather(j->ddp, root);
    status = status ? status : tt_zero_consolidate(j->optimizer, root);
    return status ? status : tt_fully_shard_scatter(j->ddp);
}

static tt_status virtual_step(job *j) {
    tt_status status = TT_OK;
    for (int shard = tt_ddp_shards(j->ddp, NULL); shard > 0 && !status; shard--)
        status = pass(j);
    return status ? status : update(j);
}

static tt_status averaged_step(job *j) {
    tt_status status = plain_step(j);
    return status ? status : tt_model_averager_step(j->averager);
}

/* Ranks take turns in having most data. The victim that is to be struck while it shadows has least. */
static int batches_of_epoch(const job *j) {
    if (j->scene->in_join_wait)
        return j->rank == j->scene->blow.victim ? 1 : 1000000;
    return 1 + 3 * ((j->rank + j->epoch) % j->world);
}

static tt_status joined_step(job *j) {
    if (j->left == 0) {
        if (j->epoch++ > 0) {
            tt_status status = tt_join_wait(j->join);
            if (status)
                return status;
        }
        j->left = batches_of_epoch(j);
    }
    j->left--;
    return plain_step(j);
}

static tt_status weighted_step(job *j) {
    tt_status status = tt_join_set_examples(j->join, 1 + j->step % BATCH);
    return status ? status : joined_step(j);
}

/* ---- hooks */

static tt_status set_int8(tt_module *ddp) { return tt_int8_hook(ddp, .block = 64); }
static tt_status set_top_k(tt_module *ddp) { return tt_top_k_hook(ddp, .density = 0.05); }
static tt_status set_power(tt_module *ddp) { return tt_powersgd_hook(ddp, .rank = 2, .start = 2); }

/* One of a user's, in two stages: the sum, then its largest number, by which it would be judged. */
static tt_status staged_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    float *largest = state;
    if (stage == 0)
        return tt_all_reduce(b->group, b->data, b->count, b->dtype, TT_AVG, .work = work);
    if (stage == 1)
        return tt_all_reduce(b->group, largest, 1, TT_F32, TT_MAX, .work = work);
    return TT_OK;
}

static tt_status set_staged(tt_module *ddp) {
    static const tt_comm_hook staged = {.size = sizeof staged, .name = "staged", .stages = 2, .next = staged_next};
    float *largest = calloc(1, sizeof *largest);
    CHECK(largest);
    return tt_ddp_register_comm_hook(ddp, &staged, largest, .destroy = free);
}

/* ---- the features */

static const feature features[] = {
    {"plain", wrap, plain_step, NULL},
    {"unused parameters", wrap, unused_step, NULL},
    {"accumulation", wrap, accumulating_step, NULL},
    {"all_reduce hook", begin_hook, plain_step, tt_all_reduce_hook},
    {"bf16 hook", begin_hook, plain_step, tt_bf16_hook},
    {"f16 hook", begin_hook, unused_step, tt_f16_hook},
    {"int8 hook", begin_hook, plain_step, set_int8},
    {"int8 hook, unused parameters", begin_hook, unused_step, set_int8},
    {"top-k hook", begin_hook, plain_step, set_top_k},
    {"PowerSGD hook", begin_hook, plain_step, set_power},
    {"PowerSGD hook, accumulation", begin_hook, accumulating_step, set_power},
    {"a user's hook in stages", begin_hook, unused_step, set_staged},
    {"sparse gradients", begin_sparse, plain_step, NULL},
    {"sparse gradients, accumulation", begin_sparse, accumulating_step, NULL},
    {"step in backward", begin_step_in_backward, step_in_backward, NULL},
    {"join", begin_join, joined_step, NULL},
    {"join by examples", begin_weighted_join, weighted_step, NULL},
    {"virtual ranks", begin_virtual, virtual_step, NULL},
    {"SyncBatchNorm", begin_sync_norm, plain_step, NULL},
    {"ZeRO-1", begin_zero_1, unused_step, NULL},
    {"ZeRO-2", begin_zero_2, accumulating_step, NULL},
    {"fully sharded", begin_fully_sharded, plain_step, NULL},
    {"fully sharded, clipped", begin_fully_sharded, clipped_step, NULL},
    {"fully sharded, gathered", begin_fully_sharded, gathering_step, NULL},
    {"kept whole after forward", begin_kept_whole, plain_step, NULL},
    {"kept whole, clipped", begin_kept_whole, clipped_step, NULL},
    {"periodic averager", begin_periodic, averaged_step, NULL},
    {"hierarchical averager", begin_hierarchical, averaged_step, NULL},
    {"DiLoCo", begin_diloco, averaged_step, NULL},
    {"post-local SGD", begin_post_local, averaged_step, NULL},
    {"post-local SGD by pairs", begin_post_local_pairs, averaged_step, NULL},
};
enum { FEATURES = sizeof features / sizeof *features };

/* ---- a rank */

/* Until something goes wrong; returns what. */
static tt_status train(job *j) {
    bool tells = j->rank == j->scene->blow.victim && !j->scene->in_join_wait;
    if (tells && j->scene->steps == 0)
        tell_under_way(j->store);
    tt_status status = j->scene->feature->begin(j);
    while (!status) {
        if (++j->step == j->scene->steps && tells)
            tell_under_way(j->store);
        status = j->scene->feature->step(j);
    }
    return status;
}

static void end_job(job *j) {
    tt_join_free(j->join);
    tt_model_averager_free(j->averager);
    tt_optimizer_free(j->optimizer);
    tt_module_free(j->ddp);
    tt_module_free(j->model);
    tt_destroy_process_group(j->subgroup);
    tt_destroy_process_group(j->group);
}

/* Is the error the right one, and does every later call fail, too? A rank that averages with others than the victim
 * gets TT_ERR_ABORTED from one that averages with it. */
static void check_error(const scene *scene, job *j, tt_status status) {
    char who[40];
    bool in_parts = scene->feature->begin == begin_hierarchical || scene->feature->begin == begin_post_local_pairs;
    bool told = in_parts && status == TT_ERR_ABORTED;
    snprintf(who, sizeof who, "rank %d (", scene->blow.victim);
    CHECK(status == TT_ERR_PEER || told);
    CHECK_TEXT(who);
    CHECK_TEXT(scene->blow.stops ? "frozen" : scene->transport ? "is gone" : "ended");
    int64_t begin = tt__now_ms();
    CHECK(tt_barrier(j->group) != TT_OK);
    if (j->ddp && !j->averager && !j->join && j->optimizer) {
        branches = 3;
        CHECK(pass(j) != TT_OK);
    }
    CHECK(!j->join || tt_join_wait(j->join) != TT_OK);
    CHECK(!j->averager || tt_model_averager_average(j->averager) != TT_OK);
    CHECK(tt__now_ms() - begin < PATIENCE_MS / 2);
}

static void check_left(const holdings *before, long blocks) {
    char left[200];
    compare_holdings(before, left, sizeof left);
    tt__pool_trim();
    if (*left || inject_live_blocks() != blocks)
        fprintf(stderr, "blocks of memory %ld -> %ld %s\n", blocks, inject_live_blocks(), left);
    CHECK(!*left && inject_live_blocks() == blocks);
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    start_first_thread();
    { /* what stays for the life of a process is there before the first look */
        TT_AUTO_SCOPE;
        CHECK(tt_matmul(tt_ones(TT_SHAPE(8, 8), TT_F32), tt_ones(TT_SHAPE(8, 8), TT_F32)));
    }
    tt__pool_trim();
    const holdings before = look_at_holdings();
    const long blocks = inject_live_blocks();
    job j = {.scene = scene, .store = store, .rank = rank, .world = world};
    j.group = join_watchful(store, rank, world, scene->transport);
    tt_status status = train(&j);
    int64_t now = tt__now_ns();
    CHECK(rank != scene->blow.victim);
    check_error(scene, &j, status);
    end_job(&j);
    check_left(&before, blocks);
    tell_learned(store, rank, now);
    return 0;
}

/* ---- storms */

/* TT_STORM_FEATURE: part of the names of those that are tried; unset: all. Returns how many. */
static size_t choose_features(const feature **chosen) {
    const char *part = getenv("TT_STORM_FEATURE");
    size_t n = 0;
    for (int f = 0; f < FEATURES; f++)
        if (!part || strstr(features[f].name, part))
            chosen[n++] = &features[f];
    return n;
}

static long play(const scene *scene, const char *what) {
    const char *wrong = blow_strike(&scene->blow, body, (void *)(uintptr_t)scene);
    print_message("%s: %s, rank %d of %d %s after %d steps and %d us, by %s%s%s\n", what, scene->feature->name,
                  scene->blow.victim, scene->blow.world, scene->blow.stops ? "stopped" : "killed", scene->steps,
                  scene->blow.wait_us, scene->transport ? scene->transport : "shm", wrong ? ": " : "",
                  wrong ? wrong : "");
    return wrong != NULL;
}

/* No process, and no file in shared memory. */
static void nothing_is_left(void) {
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(count_names("/dev/shm", "tutti"), 0);
}

static void each_feature_once(void **state) {
    (void)state;
    long bad = 0;
    const feature *chosen[FEATURES];
    const int count = (int)choose_features(chosen);
    for (int f = 0; f < count; f++)
        bad += play(&(scene){.feature = chosen[f], .blow = {.world = 3, .victim = f % 3}, .steps = 4}, "each");
    nothing_is_left();
    assert_int_equal(bad, 0);
}

/* A rank without data of its own. */
static void a_rank_that_shadows(void **state) {
    (void)state;
    long bad = 0;
    const feature *chosen[FEATURES];
    const size_t count = choose_features(chosen);
    for (size_t f = 0; f < count; f++)
        for (int stops = 0; stops < 2 && (chosen[f]->begin == begin_join || chosen[f]->begin == begin_weighted_join);
             stops++)
            bad += play(&(scene){.feature = chosen[f],
                                 .blow = {.world = 3, .victim = 1, .stops = stops},
                                 .in_join_wait = true,
                                 .transport = stops ? "tcp" : NULL},
                        "shadow");
    nothing_is_left();
    assert_int_equal(bad, 0);
}

static void any_rank_at_any_moment(void **state) {
    (void)state;
    long bad = 0;
    const feature *chosen[FEATURES];
    const size_t count = choose_features(chosen);
    assert_true(count > 0);
    for (long number = 0; number < storm_cases(10); number++) {
        uint64_t draw = storm_case(number);
        char what[32];
        scene scene = {.feature = chosen[storm_below(&draw, count)],
                       .blow = {.world = 2 + (int)storm_below(&draw, 3)},
                       .steps = (int)storm_below(&draw, 8)};
        scene.blow.victim = (int)storm_below(&draw, (size_t)scene.blow.world);
        scene.blow.stops = storm_below(&draw, 4) == 0;
        scene.blow.wait_us = (int)storm_below(&draw, 6000);
        scene.transport = storm_below(&draw, 3) == 0 ? "tcp" : NULL;
        snprintf(what, sizeof what, "case %ld", number);
        if (!storm_skips(number))
            bad += play(&scene, what);
    }
    nothing_is_left();
    assert_int_equal(bad, 0);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_feature_once),
        cmocka_unit_test(a_rank_that_shadows),
        cmocka_unit_test(any_rank_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
