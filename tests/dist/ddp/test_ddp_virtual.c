/* Virtual ranks: gradients of V shards on W ranks against a naive sum over V, to the bit; and what belongs to a
 * shard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { V_MAX = 24, PARAMS = 4, SEED = 5 };

/* Parameters of odd sizes, each multiplied with numbers of the shard and the step, which are then its gradients.
 * Parameter 2 takes part in odd shards alone, and there in the first of a shard's batches; parameter 3 in none. */
static const int64_t sizes[PARAMS] = {4099, 1, 333, 7};

typedef struct Probe {
    tt_tensor *p[PARAMS];
    tt_tensor *calls; /* a buffer: how often it was called, and by which shard's numbers last */
    tt_dtype dtype;
    int step, shard, part;
} Probe;

static bool takes_part(int param, int shard, int part) { return param < 2 || (param == 2 && shard % 2 && part == 0); }

/* The gradient of a parameter. Owned by the scope. */
static tt_tensor *numbers(const Probe *p, int param, int step, int shard, int part) {
    tt_generator *g = tt_generator_new((uint64_t)(1 + param + 100 * shard + 10000 * step + 1000000 * part));
    tt_tensor *x = tt_randn(TT_SHAPE(sizes[param]), g);
    tt_generator_free(g);
    return p->dtype == TT_F32 ? x : tt_to(x, p->dtype);
}

static tt_tensor *probe_forward(tt_module *self, tt_tensor *x) {
    Probe *p = tt_module_user(self);
    tt_tensor *loss = tt_scale(tt_sum(x), 0);
    for (int i = 0; i < PARAMS; i++)
        if (takes_part(i, p->shard, p->part))
            loss = tt_add(loss, tt_to(tt_sum(tt_mul(p->p[i], numbers(p, i, p->step, p->shard, p->part))), TT_F32));
    int64_t *calls = tt_tensor_i64(p->calls);
    calls[0]++;
    calls[1] = p->shard;
    return loss;
}

static const tt_module_class probe_class = TT_MODULE_CLASS(.name = "Probe", .forward = probe_forward);

static tt_module *probe_new(Probe *p, tt_dtype dtype) {
    tt_module *m = tt_module_new(&probe_class, p);
    p->dtype = dtype;
    for (int i = 0; i < PARAMS; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        CHECK_OK(tt_module_register_parameter(m, name, tt_zeros(TT_SHAPE(sizes[i]), dtype)));
        p->p[i] = tt_module_parameters(m)->tensors[i];
    }
    CHECK_OK(tt_module_register_buffer(m, "calls", tt_zeros(TT_SHAPE(2), TT_I64)));
    p->calls = tt_module_buffers(m)->tensors[0];
    return m;
}

typedef struct Case {
    int shards;
    size_t cap;
    tt_dtype dtype;
    int parts; /* batches of a shard */
} Case;

/* ---- the naive sum: leaves are scaled, the first fold in pairs, the rest is a balanced tree */

static void add_numbers(void *sum, const void *x, int64_t n, bool is_double) {
    for (int64_t i = 0; i < n; i++)
        if (is_double)
            ((double *)sum)[i] += ((const double *)x)[i];
        else
            ((float *)sum)[i] += ((const float *)x)[i];
}

/* A shard's own sum over its batches, scaled. */
static void *naive_leaf(const Probe *p, const Case *c, int param, int shard) {
    TT_AUTO_SCOPE;
    bool is_double = p->dtype == TT_F64;
    void *leaf = calloc((size_t)sizes[param], sizeof(double));
    CHECK(leaf);
    for (int part = 0; part < c->parts && takes_part(param, shard, part); part++) {
        tt_tensor *x = tt_to(numbers(p, param, p->step, shard, part), is_double ? TT_F64 : TT_F32);
        CHECK(x);
        add_numbers(leaf, tt_tensor_data(x), sizes[param], is_double);
    }
    for (int64_t i = 0; i < sizes[param]; i++)
        if (is_double)
            ((double *)leaf)[i] *= 1.0 / c->shards;
        else
            ((float *)leaf)[i] *= (float)(1.0 / c->shards);
    return leaf;
}

static void naive_join(void **leaf, int to, int from, int64_t n, bool is_double) {
    add_numbers(leaf[to], leaf[from], n, is_double);
    free(leaf[from]);
}

/* The average over the shards, as the bucket's type has it. */
static tt_tensor *naive_average(const Probe *p, const Case *c, int param) {
    void *leaf[V_MAX];
    int power = 1, units = 0, shards = c->shards;
    int64_t n = sizes[param];
    bool is_double = p->dtype == TT_F64;
    for (int s = 0; s < shards; s++)
        leaf[s] = naive_leaf(p, c, param, s);
    while (2 * power <= shards)
        power *= 2;
    for (int s = 0; s < shards; s++) {
        int at = s;
        if (s < 2 * (shards - power))
            naive_join(leaf, at, ++s, n, is_double);
        leaf[units++] = leaf[at];
    }
    for (; units > 1; units /= 2)
        for (int u = 0; u < units / 2; u++) {
            naive_join(leaf, 2 * u, 2 * u + 1, n, is_double);
            leaf[u] = leaf[2 * u];
        }
    tt_tensor *x = tt_from_data(leaf[0], TT_SHAPE(n), is_double ? TT_F64 : TT_F32);
    free(leaf[0]);
    return p->dtype != tt_tensor_dtype(x) ? tt_to(x, p->dtype) : x;
}

/* ---- the steps of a rank */

static void check_gradients(const Probe *p, const Case *c) {
    TT_AUTO_SCOPE;
    for (int i = 0; i < PARAMS; i++) {
        const tt_tensor *grad = tt_grad(p->p[i]);
        CHECK((grad != NULL) == (i < 3));
        if (!grad)
            continue;
        const tt_tensor *expected = naive_average(p, c, i);
        CHECK(expected);
        CHECK(!memcmp(tt_tensor_data(grad), tt_tensor_data(expected), (size_t)sizes[i] * tt_dtype_size(p->dtype)));
    }
}

/* Passes of a shard that average nothing. */
static void add_batches(Probe *p, tt_module *ddp, int count) {
    CHECK_OK(tt_ddp_set_sync(ddp, false));
    for (p->part = 0; p->part < count; p->part++) {
        TT_AUTO_SCOPE;
        double drawn;
        tt_tensor *loss = tt_module_forward(ddp, tt_ones(TT_SHAPE(1), TT_F32));
        CHECK_OK(tt_item(tt_randn(TT_SHAPE(1), NULL), &drawn));
        CHECK_OK(tt_backward(loss));
        CHECK(tt_ddp_set_step(ddp, 0) == TT_ERR_STATE);
    }
    CHECK_OK(tt_ddp_set_sync(ddp, true));
}

static void take_steps(tt_group *group, int rank, void *user) {
    const Case *c = user;
    Probe p = {.step = 0};
    int first = -1, world = tt_get_world_size(group);
    tt_module *m = probe_new(&p, c->dtype);
    tt_module *ddp = tt_ddp(m, group, .bucket_cap_bytes = c->cap, .virtual_ranks = c->shards, .shard_seed = SEED);
    CHECK(ddp);
    int count = tt_ddp_shards(ddp, &first);
    CHECK(first == c->shards * rank / world && count == c->shards * (rank + 1) / world - first);
    for (p.step = 0; p.step < 3; p.step++) {
        for (p.shard = first; p.shard < first + count; p.shard++) {
            add_batches(&p, ddp, c->parts - 1);
            TT_AUTO_SCOPE;
            tt_tensor *loss = tt_module_forward(ddp, tt_ones(TT_SHAPE(1), TT_F32));
            uint64_t number = (uint64_t)(p.step * c->shards + p.shard);
            tt_generator *own = tt_generator_new(SEED + number * 0x9e3779b97f4a7c15u);
            double drawn, due; /* the shard's, wherever it runs */
            CHECK_OK(tt_item(tt_randn(TT_SHAPE(1), NULL), &drawn));
            for (int i = 0; i < c->parts; i++) /* which goes on from one of its batches to the next */
                CHECK_OK(tt_item(tt_randn(TT_SHAPE(1), own), &due));
            CHECK(memcmp(&drawn, &due, sizeof due) == 0);
            tt_generator_free(own);
            CHECK(tt_tensor_i64(p.calls)[0] == c->parts * (p.step + 1)); /* each shard saw what shard 0 left */
            CHECK_OK(tt_backward(loss));
        }
        CHECK(tt_tensor_i64(p.calls)[0] == c->parts * (p.step + 1) && tt_tensor_i64(p.calls)[1] == 0); /* shard 0's */
        check_gradients(&p, c);
        for (int i = 0; i < PARAMS; i++)
            tt_zero_grad(p.p[i]);
    }
    tt_module_free(ddp);
    tt_module_free(m);
}

static void any_world_gives_the_naive_sums(void **state) {
    (void)state;
    static const int worlds[] = {1, 2, 3, 4, 5, 6, 8};
    static const Case cases[] = {{24, 0, TT_F32, 1}, {24, 2000, TT_F32, 1}, {12, 0, TT_BF16, 1},  {8, 0, TT_F16, 1},
                                 {9, 0, TT_F64, 1},  {8, 0, TT_F64, 2},     {12, 2000, TT_F32, 3}};
    const char *transports[] = {NULL, "tcp"};
    for (int t = 0; t < 2; t++) {
        assert_false(transports[t] ? setenv("TT_TRANSPORT", transports[t], 1) : unsetenv("TT_TRANSPORT"));
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
            for (size_t c = 0; c < sizeof cases / sizeof *cases && world_is_tried(worlds[w]); c++)
                if (t == 0 || (c % 2 == 0 && worlds[w] > 1)) {
                    Case copy = cases[c];
                    print_message("%s, %d ranks, case %zu\n", t ? "tcp" : "shm", worlds[w], c);
                    assert_int_equal(run_ranks(worlds[w], take_steps, &copy), 0);
                }
    }
    unsetenv("TT_TRANSPORT");
}

/* ---- refusals */

static void refuse(tt_group *group, int rank, void *user) {
    (void)user;
    Probe p = {.step = 0};
    tt_module *m = probe_new(&p, TT_F32);
    CHECK(!tt_ddp(m, group, .virtual_ranks = rank == 1 ? 6 : 8) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has .virtual_ranks 6");
    CHECK_TEXT("rank 0 has .virtual_ranks 8");
    CHECK(!tt_ddp(m, group, .virtual_ranks = 2) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("expected at least as many .virtual_ranks as ranks, got 2 for 3");
    CHECK(!tt_ddp(m, group, .virtual_ranks = 5000) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_ddp(m, group, .virtual_ranks = 6, .no_broadcast_buffers = true));
    CHECK_TEXT(".no_broadcast_buffers, got both");
    tt_module *normed = tt_nn_sequential(tt_nn_linear(2, 2), tt_nn_sync_batch_norm(group, 2));
    CHECK(!tt_ddp(normed, group, .virtual_ranks = 6) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("\"1\" is a SyncBatchNorm");
    tt_module_free(normed);
    tt_module *ddp = tt_ddp(m, group, .virtual_ranks = 6);
    CHECK(ddp && tt_ddp_set_sync(ddp, true) == TT_OK);
    CHECK(tt_ddp_register_comm_hook(ddp, NULL, NULL) == TT_ERR_UNSUPPORTED);
    CHECK(!tt_join_new(ddp) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK(tt_ddp_set_step(ddp, -1) == TT_ERR_INVALID && tt_ddp_set_step(m, 0) == TT_ERR_INVALID);
    CHECK(tt_ddp_shards(m, NULL) == 0 && tt_ddp_shards(ddp, NULL) == 2);
    for (p.shard = 2 * rank; p.shard < 2 * rank + 2; p.shard++) {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_backward(tt_module_forward(ddp, tt_ones(TT_SHAPE(1), TT_F32))));
        if (p.shard == 2 * rank)
            CHECK(tt_ddp_set_step(ddp, 1) == TT_ERR_STATE);
    }
    CHECK_OK(tt_ddp_set_step(ddp, 7));
    TT_AUTO_SCOPE;
    CHECK(!tt_module_forward(ddp, tt_ones(TT_SHAPE(1), TT_F32)) && tt_last_status() == TT_ERR_STATE);
    CHECK_TEXT("parameter \"p0\" has a gradient from the step before");
    tt_module_free(ddp);
    tt_module_free(m);
}

static void what_does_not_fit_is_refused_on_all(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, refuse, NULL), 0);
}

int main(void) {
    one_openmp_thread();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_world_gives_the_naive_sums),
        cmocka_unit_test(what_does_not_fit_is_refused_on_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
