/* One rank has no memory for something, anywhere within the calls that ranks make together: each of its allocations
 * fails in turn. The others learn at once that it was this rank, also while it stays and keeps its groups. */
#include "support/inject.h"
#include "support/nccl.h"
#include "support/ranks.h"

#include "base/machine/clock.h"
#include "tensor/core/pool.h"

#include <tutti/tutti.h>

enum { WORLD = 3, VICTIM = 1, WIDTH = 6, WORST = 3 };

/* What the ranks make and do together. */
typedef struct job {
    tt_group *group;
    tt_module *model, *wrapper;
    tt_optimizer *optimizer;
    tt_model_averager *averager;
    tt_pipeline *pipe;
    tt_join *join;
    tt_tensor *x, *y, *ones; /* a batch, what comes of it, and the gradient of that; held */
} job;

typedef struct deed {
    const char *name;
    void (*prepare)(job *job); /* with memory */
    tt_status (*run)(job *job);
    tt_status (*next)(job *job); /* the call in which a failure at the very end of run() is heard of; NULL: a barrier */
} deed;

static tt_status status_of(const void *made) { return made ? TT_OK : tt_last_status(); }

static tt_module *small_model(void) {
    tt_manual_seed(1);
    return tt_nn_sequential(tt_nn_linear(WIDTH, WIDTH), tt_nn_batch_norm1d(WIDTH), tt_nn_linear(WIDTH, WIDTH));
}

static void have_model(job *j) { CHECK(j->model = small_model()); }

static void have_batch(job *j) {
    TT_AUTO_SCOPE;
    CHECK(j->x = tt_keep(tt_ones(TT_SHAPE(4, WIDTH), TT_F32)));
    CHECK(j->ones = tt_keep(tt_ones(TT_SHAPE(4, WIDTH), TT_F32)));
    tt_requires_grad_(j->x, true);
}

/* What a program computes itself has memory. */
static void go_forward(job *j) {
    tt_tensor_free(j->y);
    CHECK(j->y = tt_keep(tt_module_forward(j->wrapper ? j->wrapper : j->model, j->x)));
}

/* ---- SyncBatchNorm */

static tt_status convert_norms(job *j) { return status_of(tt_convert_sync_batchnorm(j->model, j->group)); }

static void have_norm(job *j) {
    CHECK(j->model = tt_nn_sync_batch_norm(j->group, WIDTH));
    have_batch(j);
}

static tt_status norm_forward(job *j) {
    TT_AUTO_SCOPE;
    return status_of(tt_module_forward(j->model, j->x));
}

static void have_norm_output(job *j) {
    have_norm(j);
    go_forward(j);
}

static tt_status go_back(job *j) { return tt_backward(j->y, .gradient = j->ones); }

/* ---- averagers */

static const tt_named_tensors *params(const job *j) { return tt_module_parameters(j->model); }

static tt_status make_periodic(job *j) { return tt_periodic_model_averager(&j->averager, j->group, params(j), 1); }
static tt_status make_diloco(job *j) {
    return tt_diloco(&j->averager, j->group, params(j), 1, 0.7, 0.9, .send_as = TT_BF16);
}
static tt_status make_hierarchical(job *j) {
    static const tt_averaging_level levels[] = {{1, 1}, {2, WORLD}};
    return tt_hierarchical_model_averager(&j->averager, j->group, params(j), levels, 2);
}

static void wrap(job *j) {
    have_model(j);
    CHECK(j->wrapper = tt_ddp(j->model, j->group));
}

static tt_status make_post_local(job *j) { return tt_post_local_sgd(&j->averager, j->wrapper, 1, 1); }

static void have_periodic(job *j) {
    have_model(j);
    CHECK_OK(make_periodic(j));
}

static void have_diloco(job *j) {
    have_model(j);
    CHECK_OK(make_diloco(j));
}

static tt_status average(job *j) {
    tt_status status = tt_model_averager_step(j->averager);
    return status ? status : tt_model_averager_step(j->averager);
}

/* ---- DDP and what stands on it */

static tt_status wrap_model(job *j) { return status_of(j->wrapper = tt_ddp(j->model, j->group)); }

static void wrap_and_forward(job *j) {
    wrap(j);
    have_batch(j);
    go_forward(j);
}

static void train(job *j, int passes) {
    have_batch(j);
    for (int i = 0; i < passes; i++) {
        go_forward(j);
        CHECK_OK(go_back(j));
    }
    go_forward(j);
}

static tt_status set_power(job *j) { return tt_powersgd_hook(j->wrapper, .rank = 1, .start = 2); }
static tt_status set_top_k(job *j) { return tt_top_k_hook(j->wrapper, .density = 0.1); }

static void have_power(job *j) {
    wrap(j);
    CHECK_OK(set_power(j));
    train(j, 2);
}

static void have_top_k(job *j) {
    wrap(j);
    CHECK_OK(set_top_k(j));
    train(j, 1);
}

static tt_optimizer *make_sgd(const tt_named_tensors *p, void *user) {
    (void)user;
    return tt_sgd(p, 0.01, .momentum = 0.9);
}

static tt_status make_zero_of(job *j, int stage) {
    return status_of(j->optimizer = tt_zero_optimizer(j->wrapper, make_sgd, NULL, .stage = stage));
}

static tt_status make_zero_1(job *j) { return make_zero_of(j, 1); }
static tt_status make_zero_2(job *j) { return make_zero_of(j, 2); }

static void have_zero_2(job *j) {
    wrap(j);
    CHECK_OK(make_zero_of(j, 2));
    train(j, 1);
}

static tt_status zero_step(job *j) {
    tt_status status = go_back(j);
    status = status ? status : tt_optimizer_step(j->optimizer);
    return status ? status : tt_zero_consolidate(j->optimizer, -1);
}

static tt_status no_update(void *user) {
    (void)user;
    return TT_OK;
}

static tt_status make_join(job *j) { return status_of(j->join = tt_join_new(j->wrapper, .after_step = no_update)); }

static tt_status step_in_backward(job *j) { return tt_ddp_step_in_backward(j->wrapper, j->optimizer); }

static void have_sgd(job *j) {
    wrap(j);
    CHECK(j->optimizer = make_sgd(tt_module_parameters(j->wrapper), NULL));
}

/* ---- sharded modules */

static tt_status shard(job *j) {
    static const char *const units[] = {"0"};
    return status_of(j->wrapper = tt_fully_shard(j->model, j->group, .units = units, .unit_count = 1));
}

static void have_shards(job *j) {
    have_model(j);
    CHECK_OK(shard(j));
    train(j, 1);
}

static tt_status make_sharded_zero(job *j) {
    return status_of(j->optimizer = tt_zero_optimizer(j->wrapper, make_sgd, NULL));
}

static void have_sharded_zero(job *j) {
    have_model(j);
    CHECK_OK(shard(j));
    CHECK_OK(make_sharded_zero(j));
    train(j, 1);
}

static tt_status gather_and_scatter(job *j) {
    tt_status status = tt_fully_shard_gather(j->wrapper, TT_ALL_RANKS);
    return status ? status : tt_fully_shard_scatter(j->wrapper);
}

/* ---- sparse gradients */

static void wrap_table(job *j) {
    TT_AUTO_SCOPE;
    tt_manual_seed(1);
    CHECK(j->model = tt_nn_embedding(20, WIDTH, .sparse = true));
    CHECK(j->wrapper = tt_ddp(j->model, j->group));
    CHECK(j->x = tt_keep(tt_ones(TT_SHAPE(4), TT_I64)));
    CHECK(j->ones = tt_keep(tt_ones(TT_SHAPE(4, WIDTH), TT_F32)));
}

static void have_table(job *j) {
    wrap_table(j);
    go_forward(j);
}

/* ---- pipelines, meshes */

static tt_tensor *own_loss(tt_tensor *y, tt_tensor *target, void *user) {
    (void)user;
    return tt_mse_loss(y, target);
}

static tt_status make_pipe(job *j) { return tt_pipeline_new(&j->pipe, j->group, j->model, 4, .loss = own_loss); }

static void have_pipe(job *j) {
    have_model(j);
    CHECK_OK(make_pipe(j));
    have_batch(j);
}

static tt_status pipe_step(job *j) {
    tt_status status = tt_pipeline_step(j->pipe, j->x, j->ones);
    return status ? status : tt_pipeline_step(j->pipe, j->x, j->ones);
}

static void nothing(job *j) { (void)j; }

static tt_status make_mesh(job *j) {
    tt_mesh *mesh = NULL;
    tt_status status = tt_init_device_mesh(&mesh, j->group, {"dp", -1});
    tt_mesh_free(mesh);
    return status;
}

static tt_status split(job *j) {
    tt_group *half = NULL;
    tt_status status = tt_group_split(&half, j->group, 0, 0);
    tt_destroy_process_group(half);
    return status;
}

/* On the back end nccl. */
static const deed nccl_deeds[] = {{"nccl, a group's group made", nothing, split, NULL}};

static const deed deeds[] = {
    {"SyncBatchNorm, made", have_model, convert_norms, NULL},
    {"SyncBatchNorm, forward", have_norm, norm_forward, norm_forward},
    {"SyncBatchNorm, backward", have_norm_output, go_back, norm_forward},
    {"periodic averager, made", have_model, make_periodic, NULL},
    {"hierarchical averager, made", have_model, make_hierarchical, NULL},
    {"DiLoCo, made", have_model, make_diloco, NULL},
    {"post-local SGD, made", wrap, make_post_local, NULL},
    {"averaging", have_periodic, average, NULL},
    {"outer step", have_diloco, average, NULL},
    {"wrapper, made", have_model, wrap_model, NULL},
    {"wrapper, passes", wrap_and_forward, go_back, NULL},
    {"PowerSGD, set", wrap, set_power, NULL},
    {"PowerSGD, passes", have_power, go_back, NULL},
    {"top-k, passes", have_top_k, go_back, NULL},
    {"top-k, set", wrap, set_top_k, NULL},
    {"ZeRO-1, made", wrap, make_zero_1, NULL},
    {"ZeRO-2, made", wrap, make_zero_2, NULL},
    {"ZeRO-2, steps", have_zero_2, zero_step, NULL},
    {"join, made", wrap, make_join, NULL},
    {"step in backward, set", have_sgd, step_in_backward, NULL},
    {"fully sharded, made", have_model, shard, NULL},
    {"fully sharded, passes", have_shards, go_back, NULL},
    {"fully sharded, optimizer made", have_shards, make_sharded_zero, NULL},
    {"fully sharded, steps", have_sharded_zero, zero_step, NULL},
    {"fully sharded, gathered", have_shards, gather_and_scatter, NULL},
    {"sparse gradients, passes", have_table, go_back, NULL},
    {"pipeline, made", have_model, make_pipe, NULL},
    {"pipeline, steps", have_pipe, pipe_step, NULL},
    {"mesh, made", nothing, make_mesh, NULL},
};

/* ---- the rounds */

static void end_job(job *j) {
    tt_tensor_free(j->y);
    tt_tensor_free(j->x);
    tt_tensor_free(j->ones);
    tt_join_free(j->join);
    tt_pipeline_free(j->pipe);
    tt_model_averager_free(j->averager);
    tt_optimizer_free(j->optimizer);
    tt_module_free(j->wrapper);
    tt_module_free(j->model);
    tt_destroy_process_group(j->group);
}

/* How a round ended on a rank. */
typedef struct outcome {
    tt_status status;
    bool struck, well;
    int took_ms;
} outcome;

typedef struct rounds {
    const deed *deed;
    tt_store *store;
    tt_group *world;
    int rank, round;
} rounds;

/* Let the others know, and learn how it was with them: by the store, as whoever waits in a group is to hear of the
 * failure there, not of a call that comes behind it. */
static void exchange(const rounds *r, const char *what, const outcome *mine, outcome all[WORLD]) {
    char key[64];
    tt_store_value value;
    snprintf(key, sizeof key, "%d %s %d", r->round, what, r->rank);
    CHECK_OK(tt_store_set(r->store, key, mine, sizeof *mine));
    for (int rank = 0; rank < WORLD; rank++) {
        snprintf(key, sizeof key, "%d %s %d", r->round, what, rank);
        CHECK_OK(tt_store_get(r->store, key, &value));
        CHECK(value.size == sizeof *mine);
        memcpy(&all[rank], value.data, sizeof *mine);
        tt_store_value_free(&value);
    }
}

static bool ended_well(const outcome *mine, const outcome *victim, int rank, const char *text) {
    if (rank == VICTIM || !victim->status)
        return rank == VICTIM ? !mine->status || *text : !mine->status;
    return mine->status && mine->took_ms < PATIENCE_MS / 2 && strstr(text, "rank 1");
}

/* Fail the nth allocation. *struck: there was one. Returns whether all went well. */
static bool play_round(rounds *r, long nth, bool *struck) {
    job j = {0};
    outcome all[WORLD], mine = {0};
    r->round++;
    CHECK_OK(tt_group_split(&j.group, r->world, 0, r->rank));
    r->deed->prepare(&j);
    tt__pool_trim();
    CHECK_OK(tt_barrier(j.group));
    tt_clear_error();
    int64_t begin = tt__now_ms();
    if (r->rank == VICTIM)
        inject_arm(INJECT_MEMORY, nth);
    mine.status = r->deed->run(&j);
    mine.struck = r->rank == VICTIM && inject_disarm();
    mine.took_ms = (int)(tt__now_ms() - begin);
    char text[2048];
    snprintf(text, sizeof text, "%s", tt_last_error());
    exchange(r, "status", &mine, all);
    if (!mine.status && all[VICTIM].status && r->rank != VICTIM) {
        begin = tt__now_ms();
        mine.status = r->deed->next ? r->deed->next(&j) : tt_barrier(j.group);
        mine.took_ms = (int)(tt__now_ms() - begin);
        snprintf(text, sizeof text, "%s", tt_last_error());
    }
    mine.well = ended_well(&mine, &all[VICTIM], r->rank, text);
    *struck = all[VICTIM].struck;
    exchange(r, "end", &mine, all);
    bool well = true;
    for (int rank = 0; rank < WORLD; rank++)
        well &= all[rank].well;
    if (!well)
        fprintf(stderr, "%s, allocation %ld: rank %d after %d ms: %s: %s\n", r->deed->name, nth, r->rank, mine.took_ms,
                tt_status_name(mine.status), text);
    end_job(&j);
    return well;
}

static bool is_on_nccl(const deed *d) {
    return d >= nccl_deeds && d < nccl_deeds + sizeof nccl_deeds / sizeof *nccl_deeds;
}

static int fail_each(tt_store *store, int rank, int world, void *arg) {
    rounds r = {.deed = arg, .store = store, .rank = rank};
    r.world = is_on_nccl(arg) ? nccl_join(store, rank, world) : join_group(store, rank, world);
    bool struck = true;
    int bad = 0;
    for (int warm = 0; warm < 2; warm++) /* what stays for the life of a process is made before */
        CHECK(play_round(&r, 1L << 40, &struck) && !struck);
    long nth = 0;
    for (struck = true; struck && bad < WORST; nth++)
        bad += !play_round(&r, nth, &struck);
    if (rank == VICTIM)
        printf("%s: %ld allocations\n", r.deed->name, nth - 1);
    tt_destroy_process_group(r.world);
    return bad;
}

static void play(const deed *list, size_t count) {
    int bad = 0;
    for (size_t i = 0; i < count; i++) {
        ranks ranks;
        start_ranks(&ranks, WORLD, fail_each, (void *)(uintptr_t)&list[i]);
        bad += count_bad_ranks(&ranks) != 0;
    }
    assert_int_equal(bad, 0);
}

static void each_allocation_fails_once(void **state) {
    (void)state;
    play(deeds, sizeof deeds / sizeof *deeds);
}

static void each_allocation_of_a_plug_ins_group(void **state) {
    (void)state;
    play(nccl_deeds, sizeof nccl_deeds / sizeof *nccl_deeds);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_fails_once),
                                       cmocka_unit_test(each_allocation_of_a_plug_ins_group)};
    nccl_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
