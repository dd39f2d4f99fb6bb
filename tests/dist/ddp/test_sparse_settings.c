/* Embeddings with sparse gradients under tt_ddp(), beside the same training with gradients of the whole: by SGD both
 * come to the same parameters, with the same bits where both sum in the same order and divide exactly (up to two
 * ranks); and every rank has the same bits as the others. */
#include <math.h>
#include <string.h>
#include <tutti/tutti.h>

#include "support/ranks.h"

enum { V = 30, C = 5, OUT = 3, TOKENS = 8, STEPS = 6, FULL = 8 };

typedef struct setting {
    const char *name;
    int passes;     /* a step; all but the last without sync */
    bool unused;    /* ranks, and now and then all, leave a table out */
    bool alone;     /* nothing but one table is trained */
    bool frozen;    /* the first table is */
    bool in_pass;   /* the optimizer steps there */
    bool hooked;    /* by an all-reduce */
    bool deferred;  /* passes in two parts */
    bool joined;    /* ranks have different numbers of steps, */
    bool present;   /* divide by those that are there, */
    bool examples;  /* weigh by examples */
    double clip;    /* not 0: to this norm */
    tt_dtype dtype; /* 0: f32 */
} setting;

/* Which of the tables the next forward reads. */
static unsigned tables_read = 3;

static tt_tensor *tables_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *y = NULL;
    for (int i = 0; i < 2; i++) {
        tt_module *table = tt_module_child(self, i ? "second" : "first");
        if (!table || !(tables_read & 1U << i))
            continue;
        tt_tensor *rows = tt_module_forward(table, x);
        y = y ? tt_mul(y, rows) : rows;
    }
    tt_module *head = tt_module_child(self, "head");
    if (!y)
        y = tt_ones(TT_SHAPE(TOKENS, C), tt_tensor_dtype(tt_module_parameters(self)->tensors[0]));
    return head ? tt_module_forward(head, y) : y;
}

static tt_module *make_tables(const setting *s, bool sparse) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Tables", .forward = tables_forward);
    tt_manual_seed(5);
    tt_module *m = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_add_module(m, "first", tt_nn_embedding(V, C, .sparse = sparse)));
    if (!s->alone) {
        CHECK_OK(tt_module_add_module(m, "second", tt_nn_embedding(V, C, .sparse = sparse)));
        CHECK_OK(tt_module_add_module(m, "head", tt_nn_linear(C, OUT)));
    }
    if (s->dtype)
        CHECK_OK(tt_module_to(m, s->dtype));
    if (s->frozen)
        tt_requires_grad_(tt_module_parameters(m)->tensors[0], false);
    return m;
}

typedef struct training {
    const setting *setting;
    int rank;
    tt_module *model, *ddp;
    tt_optimizer *sgd;
    tt_join *join;
} training;

static tt_status update_tables(void *user) {
    const training *t = user;
    if (t->setting->in_pass)
        return TT_OK;
    double norm;
    if (t->setting->clip > 0)
        CHECK_OK(tt_clip_grad_norm_(tt_module_parameters(t->ddp), t->setting->clip, .total_norm = &norm));
    tt_status status = tt_optimizer_step(t->sgd);
    tt_optimizer_zero_grad(t->sgd);
    return status;
}

static tt_tensor *draw_tokens(void) {
    int64_t row[TOKENS];
    tt_tensor *drawn = tt_rand(TT_SHAPE(TOKENS), NULL);
    for (int i = 0; i < TOKENS; i++)
        row[i] = (int64_t)(tt_tensor_f32(drawn)[i] * V / 2) + i % 2; /* several tokens have the same row */
    return tt_from_data(row, TT_SHAPE(TOKENS), TT_I64);
}

static void pass_over_tables(const training *t, int step, int part) {
    TT_AUTO_SCOPE;
    tt_manual_seed((uint64_t)(1000 * t->rank + 10 * step + part));
    tables_read = t->setting->unused ? (unsigned)(step + t->rank * (step % 3 != 0)) % 4 : 3;
    tt_tensor *y = tt_module_forward(t->ddp, draw_tokens());
    tt_tensor *loss = tt_mean(tt_mul(y, y));
    if (t->setting->deferred) {
        tt_tensor *weight = tt_module_parameters(t->model)->tensors[2]; /* the head's: the tables come later */
        tt_deferred_backward *rest = NULL;
        CHECK_OK(tt_backward(loss, .inputs = &weight, .input_count = 1, .deferred = &rest));
        CHECK_OK(tt_backward_deferred(rest));
        tt_deferred_backward_free(rest);
        return;
    }
    CHECK_OK(tt_backward(loss));
}

static void train_tables(const training *t) {
    const setting *s = t->setting;
    const int steps = s->joined ? STEPS - 2 * t->rank : STEPS;
    for (int step = 0; step < steps; step++) {
        if (s->examples)
            CHECK_OK(tt_join_set_examples(t->join, step + 1 == steps ? FULL - 3 : FULL));
        for (int part = 0; part < s->passes; part++) {
            CHECK_OK(tt_ddp_set_sync(t->ddp, part + 1 == s->passes));
            pass_over_tables(t, step, part);
        }
        CHECK_OK(update_tables((void *)(uintptr_t)t));
    }
    if (t->join)
        CHECK_OK(tt_join_wait(t->join));
}

/* Return copies of what was trained, of all parameters one behind the other. */
static tt_tensor *trained_tables(const setting *s, tt_group *group, int rank, bool sparse) {
    tt_module *model = make_tables(s, sparse);
    training t = {.setting = s, .rank = rank, .model = model, .ddp = tt_ddp(model, group, .bucket_cap_bytes = 64)};
    CHECK(t.ddp);
    if (s->hooked)
        CHECK_OK(tt_all_reduce_hook(t.ddp));
    CHECK((t.sgd = tt_sgd(tt_module_parameters(t.ddp), 0.5)));
    if (s->in_pass)
        CHECK_OK(tt_ddp_step_in_backward(t.ddp, t.sgd, .zero_grad = true));
    if (s->joined)
        CHECK((t.join = tt_join_new(t.ddp, .divide_by_present = s->present, .examples = s->examples ? FULL : 0,
                                    .after_step = update_tables, .user = &t)));
    train_tables(&t);
    tt_ddp_logging_data log;
    CHECK_OK(tt_ddp_get_logging_data(t.ddp, &log));
    CHECK(log.parameters == (s->alone ? 1 : s->frozen ? 3 : 4) && log.steps >= STEPS);
    const tt_named_tensors *all = tt_module_parameters(model);
    tt_tensor *flat[4] = {NULL};
    for (int64_t i = 0; i < all->count; i++)
        flat[i] = tt_reshape(tt_detach(all->tensors[i]), TT_SHAPE(tt_tensor_numel(all->tensors[i])));
    tt_tensor *both = tt_keep(tt_cat(flat, (int)all->count, 0));
    tt_join_free(t.join);
    tt_optimizer_free(t.sgd);
    tt_module_free(t.ddp);
    tt_module_free(model);
    return both;
}

static void compare_tables(tt_group *group, int rank, void *user) {
    const setting *s = user;
    const int world = tt_get_world_size(group);
    TT_AUTO_SCOPE;
    tt_tensor *sparse = trained_tables(s, group, rank, true), *whole = trained_tables(s, group, rank, false);
    const size_t bytes = (size_t)tt_tensor_numel(sparse) * (s->dtype == TT_F64 ? 8 : 4);
    double apart;
    CHECK_OK(tt_item(tt_max(tt_abs(tt_sub(sparse, whole))), &apart));
    const double allowed = world > 2 || s->clip > 0 ? 1e-6 : 0;
    if (apart > allowed)
        fprintf(stderr, "%s: %g apart in a world of %d\n", s->name, apart, world);
    CHECK(apart <= allowed);
    const void *sparse_bits = tt_tensor_data(sparse);
    char *all = malloc((size_t)world * bytes);
    CHECK(all);
    CHECK_OK(tt_all_gather(group, sparse_bits, all, (int64_t)bytes, TT_U8));
    for (int r = 1; r < world; r++)
        CHECK(memcmp(all, all + (size_t)r * bytes, bytes) == 0);
    free(all);
    tt_tensor_free(sparse);
    tt_tensor_free(whole);
}

static void same_as_gradients_of_the_whole(void **state) {
    (void)state;
    static const setting settings[] = {
        {.name = "plain", .passes = 1},
        {.name = "f64", .passes = 1, .dtype = TT_F64},
        {.name = "several passes", .passes = 3},
        {.name = "unused tables", .passes = 1, .unused = true},
        {.name = "unused tables, several passes", .passes = 2, .unused = true},
        {.name = "one table", .passes = 1, .alone = true},
        {.name = "one table, a hook", .passes = 1, .alone = true, .hooked = true},
        {.name = "one table, stepped in backward", .passes = 1, .alone = true, .in_pass = true},
        {.name = "a frozen table", .passes = 1, .frozen = true},
        {.name = "a hook", .passes = 1, .hooked = true},
        {.name = "passes in two parts", .passes = 1, .deferred = true},
        {.name = "stepped in backward", .passes = 1, .in_pass = true},
        {.name = "stepped in backward, unused tables", .passes = 2, .in_pass = true, .unused = true},
        {.name = "clipped", .passes = 1, .clip = 0.05},
        {.name = "join", .passes = 1, .joined = true},
        {.name = "join, one table", .passes = 1, .joined = true, .alone = true},
        {.name = "join, unused tables", .passes = 2, .joined = true, .unused = true},
        {.name = "join, divided by those present", .passes = 1, .joined = true, .present = true},
        {.name = "join by examples", .passes = 2, .joined = true, .examples = true},
        {.name = "join, stepped in backward", .passes = 1, .joined = true, .in_pass = true},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (int world = 1; world <= 4 - settings[i].joined; world++)
            if (world_is_tried(world)) {
                print_message("%s, world of %d\n", settings[i].name, world);
                assert_int_equal(run_ranks(world, compare_tables, (void *)(uintptr_t)&settings[i]), 0);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_gradients_of_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
