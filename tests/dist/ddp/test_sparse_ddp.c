/* Sparse gradients over ranks: the same training with embeddings whose gradients are whole is what they are compared
 * with, and what cannot take them says so on all ranks, by the parameter's name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/fully_shard.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { V = 40, C = 5, READ = 6, STEPS = 9, WORLDS = 4 };

static const bool is_sparse = true, is_dense = false;

/* ---- what is trained: a table that each pass reads, one that some read, one that none does */

static tt_tensor *tables_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *y = tt_module_forward(tt_module_child(self, "always"), x);
    if (tt_tensor_i64(x)[0] % 3 == 0)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "sometimes"), x));
    return tt_module_forward(tt_module_child(self, "head"), y);
}

static tt_module *tables(bool sparse) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Tables", .forward = tables_forward);
    tt_manual_seed(3);
    tt_module *m = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_add_module(m, "always", tt_nn_embedding(V, C, .sparse = sparse)));
    CHECK_OK(tt_module_add_module(m, "sometimes", tt_nn_embedding(V, C, .sparse = sparse)));
    CHECK_OK(tt_module_add_module(m, "never", tt_nn_embedding(V, C, .sparse = sparse)));
    CHECK_OK(tt_module_add_module(m, "head", tt_nn_linear(C, 2)));
    return m;
}

/* Rows of this step, some of them several times. */
static tt_tensor *rows_read(int rank, int step, int n) {
    int64_t row[READ];
    for (int i = 0; i < n; i++)
        row[i] = (rank * 7 + step * 5 + i * i) % V;
    return tt_from_data(row, TT_SHAPE(n), TT_I64);
}

static tt_tensor *loss_of(tt_module *ddp, int rank, int step, int n) {
    tt_tensor *y = tt_module_forward(ddp, rows_read(rank, step, n));
    return tt_mean(tt_mul(y, y));
}

static tt_status after_step(void *user) {
    tt_optimizer *o = user;
    tt_status status = o ? tt_optimizer_step(o) : TT_OK;
    if (o)
        tt_optimizer_zero_grad(o);
    return status;
}

/* ---- kinds of training: each takes STEPS steps on this rank */

typedef void (*way)(tt_module *ddp, tt_optimizer *sgd, int rank);

static void plainly(tt_module *ddp, tt_optimizer *sgd, int rank) {
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_backward(loss_of(ddp, rank, step, READ)));
        CHECK_OK(after_step(sgd));
    }
}

static void accumulating(tt_module *ddp, tt_optimizer *sgd, int rank) {
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_ddp_set_sync(ddp, step % 3 == 2));
        CHECK_OK(tt_backward(loss_of(ddp, rank, step, READ)));
        if (step % 3 == 2)
            CHECK_OK(after_step(sgd));
    }
}

/* Gradients are not zeroed in between: an average goes into the next one. */
static void adding_up(tt_module *ddp, tt_optimizer *sgd, int rank) {
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_backward(loss_of(ddp, rank, step, READ)));
        CHECK_OK(tt_optimizer_step(sgd));
    }
}

static void clipping(tt_module *ddp, tt_optimizer *sgd, int rank) {
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_backward(loss_of(ddp, rank, step, READ)));
        double norm = 0;
        CHECK_OK(tt_clip_grad_norm_(tt_module_parameters(ddp), 1e-3, .total_norm = &norm));
        CHECK(norm > 1e-3);
        CHECK_OK(after_step(sgd));
    }
}

static void in_backward(tt_module *ddp, tt_optimizer *sgd, int rank) {
    CHECK_OK(tt_ddp_step_in_backward(ddp, sgd, .zero_grad = true));
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_backward(loss_of(ddp, rank, step, READ)));
    }
}

static void join_with(tt_join *join, tt_module *ddp, tt_optimizer *sgd, int rank, bool weighted) {
    CHECK(join);
    for (int step = 0; step < STEPS - 3 * rank; step++) {
        TT_AUTO_SCOPE;
        int n = weighted ? READ - step % 2 : READ;
        CHECK(!weighted || !tt_join_set_examples(join, n));
        CHECK_OK(tt_backward(loss_of(ddp, rank, step, n)));
        CHECK_OK(after_step(sgd));
    }
    CHECK_OK(tt_join_wait(join));
    tt_join_free(join);
}

static void joining(tt_module *ddp, tt_optimizer *sgd, int rank) {
    join_with(tt_join_new(ddp, .after_step = after_step, .user = sgd), ddp, sgd, rank, false);
}

static void joining_present(tt_module *ddp, tt_optimizer *sgd, int rank) {
    join_with(tt_join_new(ddp, .after_step = after_step, .user = sgd, .divide_by_present = true), ddp, sgd, rank,
              false);
}

static void joining_weighted(tt_module *ddp, tt_optimizer *sgd, int rank) {
    join_with(tt_join_new(ddp, .after_step = after_step, .user = sgd, .examples = READ), ddp, sgd, rank, true);
}

/* ---- compared */

static void check_same_bits_everywhere(tt_group *group, const tt_module *m) {
    const tt_named_tensors *all = tt_module_parameters((tt_module *)m);
    for (int64_t i = 0; i < all->count; i++) {
        const tt_tensor *x = all->tensors[i];
        const size_t bytes = (size_t)tt_tensor_numel(x) * sizeof(float);
        char *of_rank_0 = malloc(bytes);
        memcpy(of_rank_0, tt_tensor_f32(x), bytes);
        CHECK_OK(tt_broadcast(group, of_rank_0, (int64_t)bytes, TT_U8, 0));
        CHECK(!memcmp(of_rank_0, tt_tensor_f32(x), bytes));
        free(of_rank_0);
    }
}

static tt_module *trained(tt_group *group, bool sparse, way train) {
    tt_module *m = tables(sparse), *ddp = tt_ddp(m, group);
    CHECK(ddp);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.5);
    train(ddp, sgd, tt_get_rank(group));
    check_same_bits_everywhere(group, m);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    return m;
}

static void compare_with_whole(tt_group *group, int rank, void *user) {
    (void)rank;
    way train = *(const way *)user;
    tt_module *sparse = trained(group, is_sparse, train), *dense = trained(group, is_dense, train);
    const tt_named_tensors *a = tt_module_parameters(sparse), *b = tt_module_parameters(dense);
    for (int64_t i = 0; i < a->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(a->tensors[i]); k++) {
            double x = tt_tensor_f32(a->tensors[i])[k], y = tt_tensor_f32(b->tensors[i])[k];
            CHECK(fabs(x - y) <= 1e-6 * (1 + fabs(y)));
        }
    tt_module_free(sparse);
    tt_module_free(dense);
}

static void same_as_whole(void **state) {
    static const way ways[] = {plainly,     accumulating, adding_up,       clipping,
                               in_backward, joining,      joining_present, joining_weighted};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int world = 1; world <= WORLDS; world++)
            if (world_is_tried(world))
                assert_int_equal(run_ranks(world, compare_with_whole, (void *)&ways[i]), 0);
}

/* ---- gradients themselves */

static tt_tensor *gradient_row(const tt_module *m, int64_t number) {
    const tt_tensor *x = tt_module_parameters((tt_module *)m)->tensors[0];
    const tt_tensor *rows = tt_sparse_grad_indices(x);
    for (int64_t i = 0; i < tt_tensor_numel(rows); i++)
        if (tt_tensor_i64(rows)[i] == number)
            return tt_narrow(tt_sparse_grad_values(x), 0, i, 1);
    return NULL;
}

/* All ranks have the rows of all; a table alone is a model, too. */
static void all_have_all_rows(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    const int world = tt_get_world_size(group);
    tt_module *table = tt_nn_embedding(V, C, .sparse = true), *ddp = tt_ddp(table, group);
    CHECK(ddp);
    tt_tensor *read = tt_from_data(((int64_t[]){rank, V - 1}), TT_SHAPE(2), TT_I64);
    CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, read))));
    const tt_tensor *x = tt_module_parameters(table)->tensors[0];
    CHECK(!tt_grad(x) && tt_tensor_numel(tt_sparse_grad_indices(x)) == world + 1);
    for (int r = 0; r < world; r++)
        CHECK(fabsf(tt_tensor_f32(tt_contiguous(gradient_row(table, r)))[C - 1] - 1 / (float)world) < 1e-7F);
    CHECK(fabsf(tt_tensor_f32(tt_contiguous(gradient_row(table, V - 1)))[0] - 1) < 1e-6F);
    tt_module_free(ddp);
    CHECK(tt_tensor_numel(tt_sparse_grad_indices(x)) == world + 1); /* it stays when the wrapper goes */
    tt_module_free(table);
}

static void rows_of_all(void **state) {
    (void)state;
    for (int world = 1; world <= WORLDS; world++)
        if (world_is_tried(world))
            assert_int_equal(run_ranks(world, all_have_all_rows, NULL), 0);
}

/* What no rank used keeps the gradient that it has; what one used has none on the others before, and has one then. */
static void unused_stay(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *m = tables(true), *ddp = tt_ddp(m, group);
    tt_tensor *sometimes = tt_module_parameters(m)->tensors[1];
    for (int step = 0; step < 4; step++) {
        TT_AUTO_SCOPE;
        const int64_t first = step == 1 && rank == 1 ? 3 : 1; /* rank 1 alone reads the second table, once */
        CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, tt_full(TT_SHAPE(1), TT_I64, (double)first)))));
        const tt_tensor *rows = tt_sparse_grad_indices(sometimes);
        CHECK(step == 0 ? !rows : rows && tt_tensor_numel(rows) == 1 && tt_tensor_i64(rows)[0] == 3);
    }
    CHECK(!tt_sparse_grad_values(tt_module_parameters(m)->tensors[2]));
    tt_module_free(ddp);
    tt_module_free(m);
}

static void unused_tables(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, unused_stay, NULL), 0);
}

/* ---- pipelines beside each other */

static tt_tensor *class_loss(tt_tensor *y, tt_tensor *classes, void *user) {
    (void)user;
    return tt_cross_entropy(y, classes);
}

/* Two stages, the first of which has the table. Returns the sum of what is this rank's, weighted by place. */
static double piped(tt_group *stages, tt_group *replicas, bool sparse, tt_pipeline_schedule schedule) {
    tt_manual_seed(3);
    tt_module *m = tt_nn_sequential(tt_nn_embedding(V, C, .sparse = sparse), tt_nn_linear(C, 4));
    tt_pipeline *pipe = NULL;
    CHECK_OK(tt_pipeline_new(&pipe, stages, m, 4, .schedule = schedule, .loss = class_loss, .data_group = replicas));
    const tt_named_tensors *mine = tt_module_parameters(tt_pipeline_module(pipe));
    tt_optimizer *sgd = tt_sgd(mine, 0.5);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = rows_read(tt_get_rank(replicas), step, READ), *y = tt_full(TT_SHAPE(READ), TT_I64, step % 4);
        CHECK_OK(tt_pipeline_step(pipe, x, y));
        CHECK_OK(after_step(sgd));
    }
    double sum = 0;
    for (int64_t i = 0; i < mine->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(mine->tensors[i]); k++)
            sum += tt_tensor_f32(mine->tensors[i])[k] * (double)(k % 7 + 1);
    tt_optimizer_free(sgd);
    tt_pipeline_free(pipe);
    tt_module_free(m);
    return sum;
}

static void pipe_rows(tt_group *group, int rank, void *user) {
    (void)user;
    static const tt_pipeline_schedule all[] = {TT_PIPELINE_GPIPE, TT_PIPELINE_1F1B, TT_PIPELINE_ZERO_BUBBLE};
    tt_group *stages = NULL, *replicas = NULL;
    CHECK_OK(tt_group_split(&stages, group, rank / 2, rank));
    CHECK_OK(tt_group_split(&replicas, group, rank % 2, rank));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK(fabs(piped(stages, replicas, true, all[i]) - piped(stages, replicas, false, all[i])) < 1e-4);
    tt_destroy_process_group(stages);
    tt_destroy_process_group(replicas);
}

static void pipelines(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, pipe_rows, NULL), 0);
}

/* ---- hooks act on the other gradients */

static tt_status with_f16(tt_module *ddp) { return tt_f16_hook(ddp); }
static tt_status with_int8(tt_module *ddp) { return tt_int8_hook(ddp); }
static tt_status with_top_k(tt_module *ddp) { return tt_top_k_hook(ddp); }
static tt_status with_powersgd(tt_module *ddp) { return tt_powersgd_hook(ddp, .rank = 1, .start = 2); }

static void train_hooked(tt_group *group, int rank, void *user) {
    tt_status (*const set)(tt_module *) = *(tt_status(*const *)(tt_module *))user;
    tt_module *m = tables(true), *ddp = tt_ddp(m, group);
    CHECK_OK(set(ddp));
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.1);
    plainly(ddp, sgd, rank);
    check_same_bits_everywhere(group, m);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(m);
}

static void hooks(void **state) {
    static tt_status (*const all[])(tt_module *) = {with_f16, with_int8, with_top_k, with_powersgd};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(run_ranks(2, train_hooked, (void *)&all[i]), 0);
}

/* ---- what doesn't fit */

static tt_optimizer *make_plain_sgd(const tt_named_tensors *slices, void *user) {
    (void)user;
    return tt_sgd(slices, 0.1);
}

static void refuse_by_name(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = tables(true), *differs = tables(rank == 1);
    CHECK(!tt_ddp(model, group, .virtual_ranks = 2) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("parameter \"always.weight\" is given sparse gradients, which don't go with .virtual_ranks");
    CHECK(!tt_fully_shard(model, group) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("parameter \"always.weight\" is given sparse gradients");
    CHECK(!tt_ddp(differs, group) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has parameter 0 \"always.weight\" f32 (40, 5) (.sparse)");
    tt_module *ddp = tt_ddp(model, group);
    CHECK(!tt_zero_optimizer(ddp, make_plain_sgd, NULL) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("tt_zero_optimizer: parameter \"always.weight\" of the wrapper is given sparse gradients");
    tt_model_averager *averager = NULL;
    CHECK(tt_post_local_sgd(&averager, ddp, 2, 2) == TT_ERR_UNSUPPORTED && !averager);
    CHECK_TEXT("parameter \"always.weight\" of the wrapper is given sparse gradients");
    tt_module *half = tt_nn_embedding(4, 2, .sparse = true);
    CHECK_OK(tt_module_to(half, TT_BF16));
    CHECK(!tt_ddp(half, group) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("parameter \"weight\" is given sparse gradients, which don't go with bf16");
    tt_module_free(half);
    plainly(ddp, NULL, rank); /* it is as it was: the gradients are averaged, and no optimizer is stepped */
    tt_module_free(ddp);
    tt_module_free(differs);
    tt_module_free(model);
}

/* Left out, a table is this rank's alone. */
static void left_out(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *model = tables(true);
    tt_module *ddp = tt_ddp(model, group, .ignored = TT_NAMES("always", "sometimes", "never"));
    CHECK(ddp);
    TT_AUTO_SCOPE;
    CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, tt_full(TT_SHAPE(1), TT_I64, rank + 1)))));
    const tt_tensor *rows = tt_sparse_grad_indices(tt_module_parameters(model)->tensors[0]);
    CHECK(rows && tt_tensor_numel(rows) == 1 && tt_tensor_i64(rows)[0] == rank + 1);
    tt_module_free(ddp);
    tt_module_free(model);
}

/* A table that nobody has said to be sparse, until it is read so. */
static void refuse_in_the_pass(tt_group *group, int rank, void *user) {
    (void)user, (void)rank;
    tt_module *model = tables(false);
    tt_module *ddp = tt_ddp(model, group);
    TT_AUTO_SCOPE;
    tt_tensor *read = tt_zeros(TT_SHAPE(1), TT_I64);
    tt_tensor *y = tt_embedding(tt_module_parameters(model)->tensors[0], read, .sparse = true);
    CHECK(tt_backward(tt_sum(y)) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("f32 (40, 5) gets a sparse gradient, and its gradient lies in the memory of a wrapper");
    tt_module_free(ddp);
    tt_module_free(model);
}

static void all_ranks_refuse(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refuse_by_name, NULL), 0);
}

static void ignored_tables(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, left_out, NULL), 0);
}

static void passes_refuse(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refuse_in_the_pass, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_whole), cmocka_unit_test(rows_of_all),      cmocka_unit_test(unused_tables),
        cmocka_unit_test(hooks),         cmocka_unit_test(all_ranks_refuse), cmocka_unit_test(ignored_tables),
        cmocka_unit_test(passes_refuse), cmocka_unit_test(pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
