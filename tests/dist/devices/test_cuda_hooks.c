/* What hooks, SyncBatchNorm, sparse gradients, virtual ranks and tensor parallel layers do with parameters on CUDA
 * devices, on the fakes of CUDA and NCCL. Gradients that hooks are given are whole numbers, the same on every device:
 * over the native engine their averages have the host's bits. */
#include "support/cuda_ranks.h"
#include "support/nccl.h"

#include <math.h>

enum { IN = 24, OUT = 20, STEPS = 4, MOST = 3000, V = 30, C = 4 };

typedef struct result {
    float numbers[MOST];
    int64_t count;
} result;

static void keep(tt_tensor *x, result *out) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *near = x ? tt_contiguous(tt_to(tt_to_device(x, TT_CPU), TT_F32)) : NULL;
    CHECK(near && out->count + tt_tensor_numel(near) <= MOST);
    memcpy(out->numbers + out->count, tt_tensor_f32(near), (size_t)tt_tensor_numel(near) * sizeof(float));
    out->count += tt_tensor_numel(near);
}

static void check_near(const result *a, const result *b, double most) {
    CHECK(a->count > 0 && a->count == b->count);
    for (int64_t i = 0; i < a->count; i++)
        CHECK(fabs((double)a->numbers[i] - (double)b->numbers[i]) <= most * (1 + fabs((double)a->numbers[i])));
}

/* A body for run_ranks() and with_ranks(), with a group of either back end. */
typedef void (*both_fn)(tt_group *native, tt_group *nccl, int rank);

static int with_both(tt_store *store, int rank, int world, void *arg) {
    both_engines both = both_join(store, rank, world);
    tt_group *native = both.native, *nccl = both.nccl;
    (*(both_fn *)arg)(native, nccl, rank);
    both_leave(&both);
    return 0;
}

/* ---- hooks */

typedef enum hook { NONE, ALL_REDUCE, F16, BF16, POWERSGD, TOP_K, INT8, HOOKS } hook;

static tt_status set_hook(tt_module *ddp, hook hook) {
    switch (hook) {
    case ALL_REDUCE:
        return tt_all_reduce_hook(ddp);
    case F16:
        return tt_f16_hook(ddp);
    case BF16:
        return tt_bf16_hook(ddp);
    case POWERSGD:
        return tt_powersgd_hook(ddp, .rank = 2, .start = 1, .min_compression_rate = 1);
    case TOP_K:
        return tt_top_k_hook(ddp, .density = 0.1);
    case INT8:
        return tt_int8_hook(ddp, .block = 16);
    default:
        return TT_OK;
    }
}

/* The gradient of w (OUT, IN) in the sum of w x is the sum of x, and b's is their number. Every third step leaves out
 * a layer on some ranks. */
static void train_hooked(tt_group *group, int rank, const tt_device *device, hook hook, tt_dtype dtype, result *out) {
    tt_module *a = tt_nn_linear(IN, OUT), *b = tt_nn_linear(IN, 3), *both = tt_nn_sequential(a, b);
    CHECK(!tt_module_to(both, dtype) && !tt_module_to_device(both, device));
    tt_module *ddp = tt_ddp(both, group, .bucket_cap_bytes = 1024);
    CHECK(ddp);
    CHECK_OK(set_hook(ddp, hook));
    out->count = 0;
    tt_manual_seed((uint64_t)rank + 1);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_to(tt_randint(-9, 10, TT_SHAPE(6, IN), NULL), dtype);
        tt_tensor *far = tt_to_device(x, device), *loss = tt_sum(tt_module_forward(a, far));
        if (step % 3 < 2 || rank > 0)
            loss = tt_add(loss, tt_sum(tt_module_forward(b, far)));
        CHECK_OK(tt_backward(loss));
        for (int64_t i = 0; i < 4; i++) {
            keep(tt_grad(tt_module_parameters(both)->tensors[i]), out);
            tt_zero_grad(tt_module_parameters(both)->tensors[i]);
        }
    }
    tt_module_free(ddp);
    tt_module_free(both);
    CHECK(cuda_pinned_left() == 0);
}

static void hooked(tt_group *native, tt_group *nccl, int rank) {
    static result near, far;
    for (hook hook = NONE; hook < HOOKS; hook++) {
        train_hooked(native, rank, TT_CPU, hook, TT_F32, &near);
        train_hooked(native, rank, TT_CUDA(rank), hook, TT_F32, &far);
        CHECK(near.count > 0 && near.count == far.count);
        CHECK(!memcmp(near.numbers, far.numbers, (size_t)near.count * sizeof(float)));
    }
    for (hook hook = NONE; hook <= BF16; hook++) {
        train_hooked(native, rank, TT_CPU, hook, TT_F32, &near);
        train_hooked(nccl, rank, TT_CUDA(rank), hook, TT_F32, &far);
        check_near(&near, &far, hook == BF16 ? 3e-2 : hook == F16 ? 3e-3 : 1e-5);
    }
    train_hooked(native, rank, TT_CPU, NONE, TT_BF16, &near);
    train_hooked(nccl, rank, TT_CUDA(rank), BF16, TT_BF16, &far);
    check_near(&near, &far, 3e-2);
}

static void hooks_have_the_hosts_bits(void **state) {
    (void)state;
    both_fn fn = hooked;
    with_ranks(2, with_both, &fn);
    with_ranks(3, with_both, &fn);
}

/* ---- SyncBatchNorm */

static void train_synced(tt_group *group, int rank, const tt_device *device, result *out) {
    tt_manual_seed(5);
    tt_module *model = tt_nn_sequential(tt_nn_linear(6, 8), tt_nn_batch_norm1d(8), tt_nn_relu(), tt_nn_linear(8, 2));
    CHECK_OK(tt_module_to_device(model, device));
    CHECK(tt_convert_sync_batchnorm(model, group));
    tt_module *ddp = tt_ddp(model, group);
    CHECK(ddp);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1);
    tt_manual_seed((uint64_t)rank + 1);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_to_device(tt_randn(TT_SHAPE(3 + rank, 6), NULL), device);
        tt_tensor *y = tt_module_forward(ddp, x);
        CHECK(y);
        CHECK_OK(tt_backward(tt_sum(tt_mul(y, y))));
        CHECK_OK(tt_optimizer_step(sgd));
        tt_optimizer_zero_grad(sgd);
    }
    out->count = 0;
    for (int64_t i = 0; i < tt_module_state_dict(model)->count; i++)
        keep(tt_module_state_dict(model)->tensors[i], out);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void synced(tt_group *native, tt_group *nccl, int rank) {
    static result near, far;
    train_synced(native, rank, TT_CPU, &near);
    train_synced(native, rank, TT_CUDA(rank), &far);
    check_near(&near, &far, 1e-4);
    train_synced(nccl, rank, TT_CUDA(rank), &far);
    check_near(&near, &far, 1e-4);
}

static void sync_batch_norm_goes_over_nccl(void **state) {
    (void)state;
    both_fn fn = synced;
    with_ranks(1, with_both, &fn);
    with_ranks(3, with_both, &fn);
}

/* ---- sparse gradients: a table that each pass reads, one that some read, one that none does */

static tt_tensor *tables_forward(tt_module *self, tt_tensor *x) {
    const tt_device *device = tt_tensor_device(tt_module_parameters(self)->tensors[0]);
    const bool more = tt_tensor_i64(x)[0] % 3 == 0;
    x = tt_to_device(x, device);
    tt_tensor *y = tt_module_forward(tt_module_child(self, "always"), x);
    if (more)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "sometimes"), x));
    return tt_module_forward(tt_module_child(self, "head"), y);
}

static void train_sparse(tt_group *group, int rank, const tt_device *device, bool sparse, result *out) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Tables", .forward = tables_forward);
    static const char *const names[] = {"always", "sometimes", "never"};
    tt_manual_seed(3);
    tt_module *m = tt_module_new(&cls, NULL);
    for (int i = 0; i < 3; i++)
        CHECK_OK(tt_module_add_module(m, names[i], tt_nn_embedding(V, C, .sparse = sparse)));
    CHECK_OK(tt_module_add_module(m, "head", tt_nn_linear(C, 2)));
    CHECK_OK(tt_module_to_device(m, device));
    tt_module *ddp = tt_ddp(m, group, .bucket_cap_bytes = 8); /* buckets of tables alone have no elements */
    CHECK(ddp);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.5);
    for (int step = 0; step < 6; step++) {
        TT_AUTO_SCOPE;
        int64_t row[5];
        for (int i = 0; i < 5; i++)
            row[i] = (rank * 7 + step * 5 + i * i) % V;
        tt_tensor *y = tt_module_forward(ddp, tt_from_data(row, TT_SHAPE(5), TT_I64));
        CHECK(y);
        CHECK_OK(tt_backward(tt_mean(tt_mul(y, y))));
        CHECK_OK(tt_optimizer_step(sgd));
        tt_optimizer_zero_grad(sgd);
    }
    out->count = 0;
    for (int64_t i = 0; i < tt_module_parameters(m)->count; i++)
        keep(tt_module_parameters(m)->tensors[i], out);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(m);
    CHECK(cuda_pinned_left() == 0);
}

static void sparse(tt_group *native, tt_group *nccl, int rank) {
    static result near, far;
    train_sparse(native, rank, TT_CPU, false, &near);
    train_sparse(native, rank, TT_CUDA(0), true, &far);
    check_near(&near, &far, 1e-5);
    train_sparse(nccl, rank, TT_CUDA(rank), true, &far);
    check_near(&near, &far, 1e-5);
}

static void gradients_may_be_sparse(void **state) {
    (void)state;
    both_fn fn = sparse;
    with_ranks(2, with_both, &fn);
    with_ranks(3, with_both, &fn);
}

/* ---- virtual ranks: the bits of as many ranks, whatever their number */

enum { SHARDS = 4 };

static void train_shards(tt_group *group, int rank, const tt_device *device, result *out) {
    int first = 0;
    tt_manual_seed(3);
    tt_module *m = tt_nn_sequential(tt_nn_linear(9, 11), tt_nn_batch_norm1d(11), tt_nn_tanh(), tt_nn_dropout(0.2),
                                    tt_nn_linear(11, 2), tt_nn_linear(2, 2));
    CHECK_OK(tt_module_to_device(m, device));
    tt_module *ddp = tt_ddp(m, group, .bucket_cap_bytes = 256, .virtual_ranks = SHARDS, .shard_seed = 7);
    CHECK(ddp);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.1, .momentum = 0.9);
    const int count = tt_ddp_shards(ddp, &first);
    (void)rank;
    for (int step = 0; step < STEPS; step++) {
        tt_optimizer_zero_grad(sgd);
        for (int shard = first; shard < first + count; shard++) {
            TT_AUTO_SCOPE;
            tt_generator *g = tt_generator_new((uint64_t)(100 * step + shard + 1));
            tt_tensor *x = tt_to_device(tt_randn(TT_SHAPE(5, 9), g), device);
            tt_generator_free(g);
            tt_tensor *y = tt_module_forward(ddp, x);
            CHECK(y);
            CHECK_OK(tt_backward(tt_sum(tt_mul(y, y))));
        }
        CHECK_OK(tt_optimizer_step(sgd));
    }
    out->count = 0;
    for (int64_t i = 0; i < tt_module_state_dict(m)->count; i++)
        keep(tt_module_state_dict(m)->tensors[i], out);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(m);
    CHECK(cuda_pinned_left() == 0);
}

/* What a world of another size has left in the file, or the first leaves there. */
static void sharded(tt_group *group, int rank, void *user) {
    static result near, far, other;
    train_shards(group, rank, TT_CPU, &near);
    train_shards(group, rank, TT_CUDA(rank % 2), &far);
    check_near(&near, &far, 1e-4);
    const char *path = user;
    FILE *file = fopen(path, "rb");
    if (file) {
        CHECK(fread(&other, sizeof other, 1, file) == 1 && !memcmp(&other, &far, sizeof far));
        fclose(file);
    }
    CHECK_OK(tt_barrier(group));
    file = rank ? NULL : fopen(path, "wb");
    CHECK(rank || (file && fwrite(&far, sizeof far, 1, file) == 1 && !fclose(file)));
}

/* What goes over the host alone. */
static void refused(tt_group *native, tt_group *nccl, int rank) {
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_linear(2, 2);
    tt_pipeline *pipe = NULL;
    (void)native;
    CHECK_OK(tt_module_to_device(m, TT_CUDA(rank)));
    CHECK(!tt_ddp(m, nccl, .virtual_ranks = SHARDS) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("tt_ddp: .virtual_ranks are summed on the host, of which the back end nccl takes no memory");
    CHECK(tt_pipeline_new(&pipe, nccl, m, 2) == TT_ERR_UNSUPPORTED && !pipe);
    CHECK_TEXT("tt_pipeline_new: what goes between stages goes over cpu, of which the back end nccl takes no memory");
    tt_tensor *x = tt_requires_grad_(tt_to_device(tt_ones(TT_SHAPE(2, 2), TT_F32), TT_CUDA(rank)), true);
    CHECK(!tt_send_activation(x, nccl, 1 - rank) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("tt_send_activation of f32 (2, 2) to rank ");
    CHECK_TEXT("the back end nccl takes memory of cuda, and the call says cpu");
    tt_module_free(m);
}

static void virtual_ranks_have_the_same_bits(void **state) {
    (void)state;
    char path[] = "/tmp/test_cuda_hooks_XXXXXX";
    int fd = mkstemp(path), bad = 0;
    assert_true(fd >= 0 && !close(fd) && !unlink(path));
    for (int world = 1; world <= 4; world++)
        bad += run_ranks(world, sharded, path);
    unlink(path);
    assert_int_equal(bad, 0);
}

static void what_goes_over_the_host_is_refused(void **state) {
    (void)state;
    both_fn fn = refused;
    with_ranks(2, with_both, &fn);
}

/* ---- tensor parallel layers */

enum { WORDS = 24, WIDE = 12 };

static tt_module *whole_layers(void) {
    tt_manual_seed(9);
    return tt_nn_sequential(tt_nn_embedding(WORDS, WIDE), tt_nn_linear(WIDE, 2 * WIDE), tt_nn_gelu(),
                            tt_nn_linear(2 * WIDE, WIDE), tt_nn_linear(WIDE, WIDE), tt_nn_linear(WIDE, WORDS));
}

static tt_module *divided_layers(tt_group *tp) {
    tt_manual_seed(9);
    return tt_nn_sequential(tt_nn_vocab_parallel_embedding(WORDS, WIDE, tp),
                            tt_nn_column_parallel_linear(WIDE, 2 * WIDE, tp), tt_nn_gelu(),
                            tt_nn_row_parallel_linear(2 * WIDE, WIDE, tp),
                            tt_nn_column_parallel_linear(WIDE, WIDE, tp, .gather_output = true),
                            tt_nn_column_parallel_linear(WIDE, WORDS, tp));
}

static void train_layers(tt_module *m, tt_group *tp, const tt_device *device) {
    tt_optimizer *o = tt_adam(tt_module_parameters(m), 0.01);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_generator *g = tt_generator_new((uint64_t)step);
        tt_tensor *x = tt_to_device(tt_randint(0, WORDS, TT_SHAPE(6), g), device);
        tt_tensor *t = tt_to_device(tt_randint(0, WORDS, TT_SHAPE(6), g), device), *y = tt_module_forward(m, x);
        tt_generator_free(g);
        tt_tensor *loss = tp ? tt_tp_cross_entropy(y, t, tp) : tt_cross_entropy(y, t);
        CHECK(loss);
        tt_optimizer_zero_grad(o);
        CHECK_OK(tt_backward(loss));
        CHECK_OK(tt_optimizer_step(o));
    }
    tt_optimizer_free(o);
}

/* Train parts on a device, and join them in a module on the host. */
static void check_divided(tt_group *group, const tt_device *device, const result *whole) {
    static result joined;
    tt_module *parts = divided_layers(group), *full = whole_layers();
    CHECK(parts && !tt_module_to_device(parts, device));
    train_layers(parts, group, device);
    CHECK_OK(tt_tp_save_state_dict(parts, tt_module_state_dict(full)));
    CHECK_OK(tt_tp_load_state_dict(parts, tt_module_state_dict(full)));
    joined.count = 0;
    for (int64_t i = 0; i < tt_module_state_dict(full)->count; i++)
        keep(tt_module_state_dict(full)->tensors[i], &joined);
    check_near(whole, &joined, 1e-4);
    tt_module_free(parts);
    tt_module_free(full);
}

static void divided(tt_group *native, tt_group *nccl, int rank) {
    static result whole;
    tt_module *m = whole_layers();
    train_layers(m, NULL, TT_CPU);
    whole.count = 0;
    for (int64_t i = 0; i < tt_module_state_dict(m)->count; i++)
        keep(tt_module_state_dict(m)->tensors[i], &whole);
    tt_module_free(m);
    check_divided(native, TT_CPU, &whole);
    check_divided(native, TT_CUDA(rank % 2), &whole);
    check_divided(nccl, TT_CUDA(rank), &whole);
}

static void layers_may_be_divided(void **state) {
    (void)state;
    both_fn fn = divided;
    with_ranks(2, with_both, &fn);
    with_ranks(3, with_both, &fn);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_have_the_hosts_bits),
        cmocka_unit_test(sync_batch_norm_goes_over_nccl),
        cmocka_unit_test(gradients_may_be_sparse),
        cmocka_unit_test(virtual_ranks_have_the_same_bits),
        cmocka_unit_test(what_goes_over_the_host_is_refused),
        cmocka_unit_test(layers_may_be_divided),
    };
    nccl_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
