/* Averaging of parameters on real ranks, beside loops over all ranks' numbers in plain C. "Training" is an addition
 * that depends on rank, step and element, so that every rank knows what all others have. */
#include "support/hosts.h"
#include "support/ranks.h"

#include <math.h>
#include <tutti/tutti.h>

enum { NUMBERS = 3, WORLD_MAX = 4, STEPS = 40 };
static const int64_t sizes[NUMBERS] = {1, 7, 1500};
static const char *const names[NUMBERS] = {"bias", "scale", "weight"};

/* All numbers of all ranks. */
typedef struct numbers {
    double of[WORLD_MAX][NUMBERS][1500];
} numbers;

static double first_number(int rank, int p, int64_t i) { return 0.5 + 0.25 * rank - 0.125 * p + (double)(i % 16) / 64; }

static double trained(double x, int rank, int step, int64_t i) {
    return x + (double)((step * 5 + rank * 3 + (int)(i % 11)) % 13 - 6) / 64;
}

/* ---- a model of bare tensors */

typedef struct model {
    tt_tensor *tensors[NUMBERS];
    tt_named_tensors list;
} model;

/* Numbers of any type, by way of f64. */
static void put_numbers(tt_tensor *x, const double *from) {
    TT_AUTO_SCOPE;
    CHECK_OK(tt_copy(x, tt_to(tt_from_data(from, tt_tensor_shape(x), TT_F64), tt_tensor_dtype(x))));
}

static void get_numbers(tt_tensor *x, double *to) {
    TT_AUTO_SCOPE;
    memcpy(to, tt_tensor_data(tt_to(x, TT_F64)), (size_t)tt_tensor_numel(x) * sizeof *to);
}

static void make_model(model *m, tt_dtype dtype, int rank) {
    double x[1500];
    for (int p = 0; p < NUMBERS; p++) {
        m->tensors[p] = tt_empty(TT_SHAPE(sizes[p]), dtype);
        CHECK(m->tensors[p]);
        for (int64_t i = 0; i < sizes[p]; i++)
            x[i] = first_number(rank, p, i);
        put_numbers(m->tensors[p], x);
    }
    m->list = *TT_NAMED_TENSORS(NUMBERS, (const char **)names, m->tensors);
}

static void free_model(model *m) {
    for (int p = 0; p < NUMBERS; p++)
        tt_tensor_free(m->tensors[p]);
}

static void train_model(model *m, int rank, int step) {
    double x[1500];
    for (int p = 0; p < NUMBERS; p++) {
        get_numbers(m->tensors[p], x);
        for (int64_t i = 0; i < sizes[p]; i++)
            x[i] = trained(x[i], rank, step, i);
        put_numbers(m->tensors[p], x);
    }
}

/* Rank 0's on all of them. */
static void begin_numbers(numbers *n) {
    for (int r = 0; r < WORLD_MAX; r++)
        for (int p = 0; p < NUMBERS; p++)
            for (int64_t i = 0; i < sizes[p]; i++)
                n->of[r][p][i] = first_number(0, p, i);
}

static void train_numbers(numbers *n, int step) {
    for (int r = 0; r < WORLD_MAX; r++)
        for (int p = 0; p < NUMBERS; p++)
            for (int64_t i = 0; i < sizes[p]; i++)
                n->of[r][p][i] = trained(n->of[r][p][i], r, step, i);
}

static void average_numbers(numbers *n, int first, int count) {
    for (int p = 0; p < NUMBERS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            double sum = 0;
            for (int r = first; r < first + count; r++)
                sum += n->of[r][p][i];
            for (int r = first; r < first + count; r++)
                n->of[r][p][i] = sum / count;
        }
}

static void check_model(const model *m, const numbers *n, int rank, double tolerance) {
    double x[1500];
    for (int p = 0; p < NUMBERS; p++) {
        get_numbers(m->tensors[p], x);
        for (int64_t i = 0; i < sizes[p]; i++)
            CHECK(fabs(x[i] - n->of[rank][p][i]) <= tolerance * (1 + fabs(n->of[rank][p][i])));
    }
}

static double tolerance_of(tt_dtype dtype) {
    return dtype == TT_F64 ? 1e-12 : dtype == TT_F32 ? 1e-5 : dtype == TT_F16 ? 0.01 : 0.08;
}

static const tt_dtype dtypes[] = {TT_F32, TT_F64, TT_F16, TT_BF16};

/* ---- periodic averaging */

static void train_periodic(tt_group *group, int rank, tt_dtype dtype, int period, int warmup) {
    static numbers n;
    model m;
    tt_model_averager *averager = NULL;
    const int steps = dtype == TT_BF16 ? STEPS / 4 : STEPS; /* its rounding adds up */
    make_model(&m, dtype, rank);
    begin_numbers(&n);
    CHECK_OK(tt_periodic_model_averager(&averager, group, &m.list, period, .warmup_steps = warmup));
    check_model(&m, &n, rank, tolerance_of(dtype));
    for (int step = 0; step < steps; step++) {
        bool due = step >= warmup && (step - warmup) % period == 0;
        train_model(&m, rank, step);
        train_numbers(&n, step);
        if (due)
            average_numbers(&n, 0, tt_get_world_size(group));
        CHECK(tt_model_averager_is_due(averager) == due);
        CHECK_OK(tt_model_averager_step(averager));
        check_model(&m, &n, rank, tolerance_of(dtype));
    }
    CHECK(tt_model_averager_steps(averager) == steps);
    CHECK_OK(tt_model_averager_average(averager));
    average_numbers(&n, 0, tt_get_world_size(group));
    check_model(&m, &n, rank, tolerance_of(dtype));
    tt_model_averager_free(averager);
    free_model(&m);
}

static void periodic_ranks(tt_group *group, int rank, void *user) {
    (void)user;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        train_periodic(group, rank, dtypes[d], 4, 0);
        train_periodic(group, rank, dtypes[d], 3, 5);
    }
    train_periodic(group, rank, TT_F32, 1, 0);
}

static void periodic_averages(void **state) {
    (void)state;
    for (int world = 1; world <= WORLD_MAX; world++)
        if (world_is_tried(world))
            assert_int_equal(run_ranks(world, periodic_ranks, NULL), 0);
}

/* ---- hierarchical averaging */

static void hierarchical_ranks(tt_group *group, int rank, void *user) {
    static numbers n;
    model m;
    tt_model_averager *averager = NULL;
    const tt_averaging_level levels[] = {{2, 2}, {6, 4}};
    (void)user;
    make_model(&m, TT_F32, rank);
    begin_numbers(&n);
    CHECK_OK(tt_hierarchical_model_averager(&averager, group, &m.list, levels, 2, .warmup_steps = 3));
    for (int step = 0; step < STEPS; step++) {
        train_model(&m, rank, step);
        train_numbers(&n, step);
        if (step >= 3 && step % 6 == 0) {
            average_numbers(&n, 0, 4);
        } else if (step >= 3 && step % 2 == 0) {
            average_numbers(&n, 0, 2);
            average_numbers(&n, 2, 2);
        }
        CHECK(tt_model_averager_is_due(averager) == (step >= 3 && step % 2 == 0));
        CHECK_OK(tt_model_averager_step(averager));
        check_model(&m, &n, rank, 1e-5);
    }
    CHECK_OK(tt_model_averager_average(averager));
    average_numbers(&n, 0, 4);
    check_model(&m, &n, rank, 1e-5);
    tt_model_averager_free(averager);
    free_model(&m);
}

static void hierarchical_averages(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, hierarchical_ranks, NULL), 0);
}

/* ---- post-local SGD: one weight, whose gradient on each rank is the rank */

typedef struct lonely {
    tt_module *model, *ddp;
    tt_optimizer *sgd;
    tt_model_averager *averager;
} lonely;

static float weight_of(const lonely *l) { return tt_tensor_f32(tt_module_parameters(l->model)->tensors[0])[0]; }

static void make_lonely(lonely *l, tt_group *group, int64_t start, int64_t period, bool alone) {
    l->model = tt_nn_linear(1, 1, .no_bias = true);
    l->ddp = tt_ddp(l->model, group);
    l->sgd = tt_sgd(tt_module_parameters(l->model), 1);
    CHECK_OK(tt_init_zeros_(tt_module_parameters(l->model)->tensors[0]));
    CHECK_OK(tt_post_local_sgd(&l->averager, l->ddp, start, period, .no_local_averaging = alone));
}

static void step_lonely(const lonely *l, int rank) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(l->sgd);
    CHECK_OK(tt_backward(tt_sum(tt_module_forward(l->ddp, tt_full(TT_SHAPE(1, 1), TT_F32, rank)))));
    CHECK_OK(tt_optimizer_step(l->sgd));
}

static void free_lonely(lonely *l) {
    tt_model_averager_free(l->averager);
    tt_module_free(l->ddp);
    tt_optimizer_free(l->sgd);
    tt_module_free(l->model);
}

static void post_local_steps(tt_group *group, int rank, bool alone) {
    const double own = alone ? rank : rank < 2 ? 0.5 : 2.5; /* the gradient of a local step */
    lonely l;
    double want = 0, mean = 0;
    make_lonely(&l, group, 3, 2, alone);
    for (int step = 0; step < 10; step++) {
        step_lonely(&l, rank);
        CHECK_OK(tt_model_averager_step(l.averager));
        mean -= 1.5;
        want = step < 3 || (step - 3) % 2 == 0 ? mean : want - own;
        CHECK(fabs(weight_of(&l) - want) < 1e-4);
    }
    tt_model_averager_free(l.averager); /* the wrapper goes on as in its last step */
    l.averager = NULL;
    step_lonely(&l, rank);
    CHECK(fabs(weight_of(&l) - (want - own)) < 1e-4);
    CHECK_OK(tt_post_local_sgd(&l.averager, l.ddp, 100, 2)); /* takes rank 0's */
    step_lonely(&l, rank);
    tt_module_free(l.ddp); /* the wrapper first */
    l.ddp = NULL;
    CHECK_OK(tt_model_averager_step(l.averager));
    free_lonely(&l);
    tt_model_averager *none = NULL;
    CHECK(tt_post_local_sgd(&none, NULL, 1, 1) == TT_ERR_INVALID && !none);
    make_lonely(&l, group, 3, 2, false);
    CHECK(tt_post_local_sgd(&none, l.model, 1, 1) == TT_ERR_INVALID);
    CHECK(tt_post_local_sgd(&none, l.ddp, -1, 1) == TT_ERR_INVALID);
    CHECK_TEXT("start");
    CHECK(tt_post_local_sgd(&none, l.ddp, 1, rank == 2) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 2 has period 1 where rank 0 has period 0");
    free_lonely(&l);
}

/* Two hosts of two ranks. */
static int post_local_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    hosts_enter(HOSTS_PAIRS, rank);
    tt_group *group = join_group(store, rank, world);
    post_local_steps(group, rank, false);
    post_local_steps(group, rank, true);
    tt_destroy_process_group(group);
    return 0;
}

static void gradients_stay_within_a_host(void **state) {
    (void)state;
    with_ranks(4, post_local_body, NULL);
}

/* ---- DiLoCo */

enum { PERIOD = 5 };
static const double outer_lr = 0.7, outer_momentum = 0.9;

typedef struct outer {
    double anchor[NUMBERS][1500], momentum[NUMBERS][1500];
} outer;

static void begin_outer(outer *o, const numbers *n) {
    memset(o, 0, sizeof *o);
    memcpy(o->anchor, n->of[0], sizeof o->anchor);
}

/* The paper's outer step, one number after the other. */
static void step_outer(outer *o, numbers *n, int world) {
    for (int p = 0; p < NUMBERS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) {
            double delta = 0;
            for (int r = 0; r < world; r++)
                delta += (o->anchor[p][i] - n->of[r][p][i]) / world;
            o->momentum[p][i] = outer_momentum * o->momentum[p][i] + delta;
            o->anchor[p][i] -= outer_lr * (delta + outer_momentum * o->momentum[p][i]);
            for (int r = 0; r < world; r++)
                n->of[r][p][i] = o->anchor[p][i];
        }
}

static void diloco_steps(tt_model_averager *averager, model *m, numbers *n, outer *o, int first, int last, int rank,
                         int world, double tolerance) {
    for (int step = first; step < last; step++) {
        train_model(m, rank, step);
        train_numbers(n, step);
        if ((step + 1) % PERIOD == 0)
            step_outer(o, n, world);
        CHECK_OK(tt_model_averager_step(averager));
        check_model(m, n, rank, tolerance);
    }
}

static void train_diloco(tt_group *group, int rank, tt_dtype dtype, tt_dtype send_as) {
    const double tolerance = send_as == TT_F32 ? tolerance_of(dtype) : tolerance_of(send_as);
    static numbers n;
    static outer o;
    model m;
    tt_model_averager *averager = NULL;
    make_model(&m, dtype, rank);
    begin_numbers(&n);
    begin_outer(&o, &n);
    CHECK_OK(tt_diloco(&averager, group, &m.list, PERIOD, outer_lr, outer_momentum, .send_as = send_as));
    diloco_steps(averager, &m, &n, &o, 0, tolerance > 0.05 ? STEPS / 4 : STEPS, rank, tt_get_world_size(group),
                 tolerance);
    CHECK_OK(tt_model_averager_average(averager));
    step_outer(&o, &n, tt_get_world_size(group));
    check_model(&m, &n, rank, tolerance);
    tt_model_averager_free(averager);
    free_model(&m);
}

static void diloco_ranks(tt_group *group, int rank, void *user) {
    (void)user;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        train_diloco(group, rank, dtypes[d], TT_F32);
    train_diloco(group, rank, TT_F32, TT_F16);
    train_diloco(group, rank, TT_F32, TT_BF16);
    train_diloco(group, rank, TT_BF16, TT_BF16);
    train_diloco(group, rank, TT_F64, TT_F16); /* not rounded */
}

static void diloco_takes_the_papers_steps(void **state) {
    (void)state;
    for (int world = 1; world <= WORLD_MAX; world++)
        if (world_is_tried(world))
            assert_int_equal(run_ranks(world, diloco_ranks, NULL), 0);
}

/* ---- state: a run that is saved, and goes on with other objects, is the run that was not */

static void save_all(const char *path, const model *m, tt_model_averager *averager) {
    const tt_named_tensors *state = tt_model_averager_state_dict(averager);
    const char *all_names[16];
    tt_tensor *all[16];
    int64_t count = 0;
    CHECK(state && state->count == 1 + 2 * NUMBERS);
    for (int64_t i = 0; i < state->count; i++, count++)
        all_names[count] = state->names[i], all[count] = state->tensors[i];
    for (int p = 0; p < NUMBERS; p++, count++)
        all_names[count] = names[p], all[count] = m->tensors[p];
    CHECK_OK(tt_safetensors_save(path, TT_NAMED_TENSORS(count, all_names, all), NULL, 0));
}

static void load_all(const char *path, model *m, tt_model_averager *averager) {
    tt_safetensors *file;
    CHECK_OK(tt_safetensors_load(&file, path));
    const tt_named_tensors *all = tt_safetensors_tensors(file);
    const char *state_names[16];
    tt_tensor *state[16];
    int64_t count = 0;
    for (int64_t i = 0; i < all->count; i++)
        if (strchr(all->names[i], '.') || !strcmp(all->names[i], "step"))
            state_names[count] = all->names[i], state[count++] = all->tensors[i];
    CHECK_OK(tt_model_averager_load_state_dict(averager, TT_NAMED_TENSORS(count, state_names, state)));
    for (int p = 0; p < NUMBERS; p++)
        CHECK_OK(tt_copy(m->tensors[p], tt_named_tensors_find(all, names[p])));
    tt_safetensors_free(file);
}

static void resumed_ranks(tt_group *group, int rank, void *user) {
    static numbers n;
    static outer o;
    model m, other;
    tt_model_averager *averager = NULL, *resumed = NULL;
    char path[4096];
    int world = tt_get_world_size(group);
    snprintf(path, sizeof path, "%s/%d.safetensors", (const char *)user, rank);
    make_model(&m, TT_F32, rank);
    begin_numbers(&n);
    begin_outer(&o, &n);
    CHECK_OK(tt_diloco(&averager, group, &m.list, PERIOD, outer_lr, outer_momentum));
    diloco_steps(averager, &m, &n, &o, 0, 13, rank, world, 1e-5); /* amid a period */
    save_all(path, &m, averager);
    tt_model_averager_free(averager);
    free_model(&m);
    make_model(&other, TT_F32, rank + 1);
    CHECK_OK(tt_diloco(&resumed, group, &other.list, PERIOD, outer_lr, outer_momentum));
    load_all(path, &other, resumed);
    CHECK(tt_model_averager_steps(resumed) == 13);
    diloco_steps(resumed, &other, &n, &o, 13, STEPS, rank, world, 1e-5);
    tt_model_averager_free(resumed);
    free_model(&other);
}

static void state_goes_on(void **state) {
    (void)state;
    char folder[] = "/tmp/tutti-local-sgd-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(run_ranks(2, resumed_ranks, folder), 0);
    for (int r = 0; r < 2; r++) {
        snprintf(path, sizeof path, "%s/%d.safetensors", folder, r);
        unlink(path);
    }
    rmdir(folder);
}

static void state_ranks(tt_group *group, int rank, void *user) {
    model m;
    tt_model_averager *averager = NULL;
    int64_t three = 3, below = -1;
    float one = 1;
    (void)user;
    make_model(&m, TT_F32, rank);
    CHECK_OK(tt_periodic_model_averager(&averager, group, &m.list, 2));
    const tt_named_tensors *saved = tt_model_averager_state_dict(averager);
    CHECK(saved->count == 1 && !strcmp(saved->names[0], "step"));
    TT_AUTO_SCOPE;
    const char *step[] = {"step", "more"}, *steps[] = {"steps"};
    tt_tensor *good[] = {tt_from_data(&three, TT_SCALAR, TT_I64), tt_from_data(&three, TT_SCALAR, TT_I64)};
    tt_tensor *negative[] = {tt_from_data(&below, TT_SCALAR, TT_I64)},
              *real[] = {tt_from_data(&one, TT_SCALAR, TT_F32)};
    CHECK(tt_model_averager_load_state_dict(averager, TT_NAMED_TENSORS(2, step, good)) == TT_ERR_INVALID);
    CHECK(tt_model_averager_load_state_dict(averager, TT_NAMED_TENSORS(1, steps, good)) == TT_ERR_NOT_FOUND);
    CHECK_TEXT("\"step\"");
    CHECK(tt_model_averager_load_state_dict(averager, TT_NAMED_TENSORS(1, step, negative)) == TT_ERR_INVALID);
    CHECK(tt_model_averager_load_state_dict(averager, TT_NAMED_TENSORS(1, step, real)) == TT_ERR_SHAPE);
    tt_clear_error(); /* a NULL whose cause is recorded keeps that */
    CHECK(tt_model_averager_load_state_dict(averager, NULL) == TT_ERR_INVALID);
    CHECK(tt_model_averager_steps(averager) == 0);
    CHECK_OK(tt_model_averager_load_state_dict(averager, TT_NAMED_TENSORS(1, step, good)));
    CHECK(tt_model_averager_steps(averager) == 3 && !tt_model_averager_is_due(averager));
    tt_model_averager_free(averager);
    CHECK_OK(tt_diloco(&averager, group, &m.list, 2, 0.7, 0));
    saved = tt_model_averager_state_dict(averager);
    CHECK(saved->count == 7 && tt_named_tensors_find(saved, "anchor.weight") &&
          tt_named_tensors_find(saved, "momentum_buffer.scale"));
    const char *wrong_names[7];
    tt_tensor *wrong[7];
    for (int i = 0; i < 7; i++)
        wrong_names[i] = saved->names[i], wrong[i] = saved->tensors[i];
    wrong[1] = wrong[2];
    CHECK(tt_model_averager_load_state_dict(averager, TT_NAMED_TENSORS(7, wrong_names, wrong)) == TT_ERR_SHAPE);
    CHECK_TEXT("anchor.bias");
    tt_model_averager_free(averager);
    free_model(&m);
}

static void wrong_states_are_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, state_ranks, NULL), 0);
}

/* ---- what is refused, on every rank, by name; the group works on */

static void refused_values(tt_group *group, const model *m) {
    tt_model_averager *a;
    const tt_named_tensors *p = &m->list;
    const tt_averaging_level odd[] = {{2, 3}, {4, 4}}, falling[] = {{4, 2}, {2, 4}}, part[] = {{2, 2}},
                             uneven[] = {{0, 4}};
    CHECK(tt_periodic_model_averager(&a, group, p, 0) == TT_ERR_INVALID && !a);
    CHECK_TEXT("period");
    CHECK(tt_periodic_model_averager(&a, group, p, 2, .warmup_steps = -1) == TT_ERR_INVALID);
    CHECK_TEXT(".warmup_steps");
    CHECK(tt_diloco(&a, group, p, 0, 0.7, 0.9) == TT_ERR_INVALID);
    CHECK_TEXT("period");
    CHECK(tt_diloco(&a, group, p, 5, 0, 0.9) == TT_ERR_INVALID);
    CHECK_TEXT("outer_lr");
    CHECK(tt_diloco(&a, group, p, 5, NAN, 0.9) == TT_ERR_INVALID);
    CHECK(tt_diloco(&a, group, p, 5, 0.7, 1) == TT_ERR_INVALID);
    CHECK_TEXT("outer_momentum");
    CHECK(tt_diloco(&a, group, p, 5, 0.7, 0.9, .send_as = TT_I8) == TT_ERR_INVALID);
    CHECK_TEXT(".send_as");
    CHECK(tt_hierarchical_model_averager(&a, group, p, odd, 2) == TT_ERR_INVALID);
    CHECK_TEXT("level 0: expected groups of a size that divides 4");
    CHECK(tt_hierarchical_model_averager(&a, group, p, falling, 2) == TT_ERR_INVALID);
    CHECK_TEXT("level 1: expected a period of at least 5");
    CHECK(tt_hierarchical_model_averager(&a, group, p, part, 1) == TT_ERR_INVALID);
    CHECK_TEXT("all 4 ranks");
    CHECK(tt_hierarchical_model_averager(&a, group, p, uneven, 1) == TT_ERR_INVALID);
    CHECK_TEXT("level 0: expected a period");
    CHECK(tt_hierarchical_model_averager(&a, group, p, part, 0) == TT_ERR_INVALID && !a);
}

static void refused_differences(tt_group *group, model *m, int rank) {
    tt_model_averager *a;
    const tt_averaging_level levels[] = {{2, 2}, {rank == 3 ? 6 : 4, 4}};
    CHECK(tt_periodic_model_averager(&a, group, &m->list, rank == 2 ? 0 : 4) == TT_ERR_MISMATCH && !a);
    CHECK_TEXT("rank 2 has period 0 where rank 0 has period 4");
    CHECK(tt_diloco(&a, group, &m->list, 4, 0.7, rank == 1 ? 0.8 : 0.9) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has outer_momentum");
    CHECK(tt_hierarchical_model_averager(&a, group, &m->list, levels, 2) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 3 has level 1");
    CHECK(tt_hierarchical_model_averager(&a, group, &m->list, levels, rank == 1 ? 0 : 2) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has 0 levels");
    tt_named_tensors shorter = m->list;
    shorter.count -= rank == 1;
    CHECK(tt_diloco(&a, group, &shorter, 4, 0.7, 0.9) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1");
}

static void refused_ranks(tt_group *group, int rank, void *user) {
    model m;
    int64_t whole = 1;
    const char *const count[] = {"count"};
    tt_model_averager *a = NULL;
    (void)user;
    make_model(&m, TT_F32, rank);
    refused_values(group, &m);
    refused_differences(group, &m, rank);
    tt_tensor *counts[] = {tt_from_data(&whole, TT_SCALAR, TT_I64)};
    CHECK(tt_periodic_model_averager(&a, group, TT_NAMED_TENSORS(1, (const char **)count, counts), 2) == TT_ERR_DTYPE);
    CHECK_TEXT("\"count\"");
    tt_tensor_free(counts[0]);
    CHECK(tt_periodic_model_averager(&a, NULL, &m.list, 2) == TT_ERR_INVALID);
    CHECK(tt_periodic_model_averager(&a, group, NULL, 2) == TT_ERR_INVALID);
    CHECK(tt_periodic_model_averager(NULL, group, &m.list, 2) == TT_ERR_INVALID);
    CHECK(tt_model_averager_step(NULL) == TT_ERR_INVALID && tt_model_averager_average(NULL) == TT_ERR_INVALID);
    CHECK(!tt_model_averager_is_due(NULL) && !tt_model_averager_steps(NULL) && !tt_model_averager_state_dict(NULL));
    tt_model_averager_free(NULL);
    CHECK_OK(tt_barrier(group));
    /* in any order: the group first, then parameters, then the averager */
    CHECK_OK(tt_diloco(&a, group, &m.list, 1, 0.7, 0.9));
    CHECK_OK(tt_model_averager_step(a));
    tt_group *other = NULL;
    tt_model_averager *orphan = NULL;
    CHECK_OK(tt_group_split(&other, group, 0, 0));
    CHECK_OK(tt_periodic_model_averager(&orphan, other, &m.list, 1));
    tt_destroy_process_group(other);
    CHECK(tt_model_averager_step(orphan) == TT_ERR_STATE);
    free_model(&m);
    tt_model_averager_free(orphan);
    tt_model_averager_free(a);
}

static void wrong_calls_are_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, refused_ranks, NULL), 0);
}

/* ---- with modules and an optimizer: ranks begin alike, and are alike after an averaging, to the bit */

static void module_ranks(tt_group *group, int rank, void *user) {
    (void)user;
    tt_manual_seed((uint64_t)rank);
    tt_module *linear = tt_nn_linear(5, 3);
    tt_optimizer *adamw = tt_adamw(tt_module_parameters(linear), 0.01, 0.01);
    tt_model_averager *diloco = NULL;
    CHECK_OK(tt_diloco(&diloco, group, tt_module_parameters(linear), 10, 0.7, 0.9));
    for (int step = 0; step < 30; step++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(adamw);
        CHECK_OK(tt_backward(
            tt_mse_loss(tt_module_forward(linear, tt_randn(TT_SHAPE(4, 5), NULL)), tt_randn(TT_SHAPE(4, 3), NULL))));
        CHECK_OK(tt_optimizer_step(adamw));
        CHECK_OK(tt_model_averager_step(diloco));
    }
    tt_tensor *weight = tt_module_parameters(linear)->tensors[0];
    float own[15], first[15];
    memcpy(own, tt_tensor_f32(weight), sizeof own);
    memcpy(first, own, sizeof first);
    CHECK_OK(tt_broadcast(group, first, 15, TT_F32, 0));
    CHECK(!memcmp(own, first, sizeof own));
    CHECK_OK(tt_module_to(linear, TT_BF16));
    CHECK(tt_model_averager_average(diloco) == TT_ERR_STATE);
    CHECK_TEXT("weight");
    CHECK(tt_model_averager_step(diloco) == TT_ERR_STATE);
    tt_optimizer_free(adamw);
    tt_module_free(linear);
    tt_model_averager_free(diloco);
}

static void modules_are_alike(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, module_ranks, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(periodic_averages),
        cmocka_unit_test(hierarchical_averages),
        cmocka_unit_test(gradients_stay_within_a_host),
        cmocka_unit_test(diloco_takes_the_papers_steps),
        cmocka_unit_test(state_goes_on),
        cmocka_unit_test(wrong_states_are_refused),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(modules_are_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
