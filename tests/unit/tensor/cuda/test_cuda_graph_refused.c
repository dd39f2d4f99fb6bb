/* What no graph can repeat is refused by name, and the process goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "cuda_compare.h"
#include "cuda_training.h"
#include "unit/expect.h"

static tt_status read_loss(void *user) {
    training *t = user;
    double value;
    (void)!tt_item(t->loss, &value); /* not even if nobody looks */
    return TT_OK;
}
static tt_status copy_in(void *user) { return tt_copy(((training *)user)->x, tt_zeros(S(BATCH, 1, 8, 8), TT_F32)); }
static tt_status copy_out(void *user) { return here(((training *)user)->x) ? TT_OK : tt_last_status(); }
static tt_status draw_normal(void *user) { return tt_normal_(((training *)user)->x, 0, 1, NULL); }
static tt_status synchronize(void *user) {
    (void)user;
    return tt_device_synchronize(TT_CUDA(0));
}
static tt_status empty_cache(void *user) {
    (void)user;
    return tt_device_empty_cache(TT_CUDA(0));
}
static tt_status clip(void *user) { return tt_clip_grad_norm_(tt_module_parameters(((training *)user)->model), 0.5); }
static tt_status step_scaler(void *user) {
    training *t = user;
    return tt_grad_scaler_step(t->scaler, t->optimizer);
}
static tt_status step_anew(void *user) {
    training *t = user;
    tt_optimizer *other = tt_adam(tt_module_parameters(t->model), 0.1);
    tt_status status = tt_optimizer_step(other);
    tt_optimizer_free(other);
    return status;
}
static tt_status capture_again(void *user) {
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, synchronize, user);
    return graph ? TT_OK : tt_last_status();
}
static tt_status fail_by_itself(void *user) {
    (void)user;
    return tt_backward(tt_add(there(tt_ones(S(2), TT_F32)), NULL));
}
static tt_status fail_silently(void *user) {
    (void)user;
    return TT_ERR_IO;
}
static tt_status take_all_memory(void *user) {
    tt_tensor *x = tt_expand(((training *)user)->loss, S((int64_t)1 << 38));
    return tt_add_scalar(x, 1) ? TT_OK : tt_last_status();
}

static void what_no_replay_can_do_is_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const struct {
        tt_graph_fn function;
        tt_status status;
        const char *text;
    } cases[] = {
        {read_loss, TT_ERR_STATE, "tt_graph_capture: tt_item can't be captured in a graph"},
        {copy_in, TT_ERR_STATE, "tt_graph_capture: tt_copy can't be captured in a graph"},
        {copy_out, TT_ERR_STATE, "tt_graph_capture: tt_to_device can't be captured in a graph"},
        {draw_normal, TT_ERR_STATE, "tt_graph_capture: tt_normal_ can't be captured in a graph"},
        {synchronize, TT_ERR_STATE, "tt_graph_capture: waiting for cuda:0 can't be captured in a graph"},
        {empty_cache, TT_ERR_STATE, "tt_graph_capture: tt_device_empty_cache: waiting for cuda:0 can't be captured"},
        {clip, TT_ERR_STATE, "tt_graph_capture: tt_clip_grad_norm_ can't be captured in a graph"},
        {step_scaler, TT_ERR_STATE, "tt_graph_capture: tt_grad_scaler_step can't be captured in a graph"},
        {step_anew, TT_ERR_STATE, "tt_graph_capture: tt_optimizer_step: parameter 0 has no state yet"},
        {capture_again, TT_ERR_STATE, "tt_graph_capture: tt_graph_capture can't be captured in a graph"},
        {take_all_memory, TT_ERR_MEMORY, "tt_graph_capture: tt_add_scalar: no memory for f32"},
    };
    training t;
    begin(&t, &(program){"", mlp, adam, 0, TT_F32, 8});
    put_batch(&t, 0);
    assert_false(step(&t));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t before = allocated();
        tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, cases[i].function, &t);
        assert_null(graph);
        expect_error(cases[i].status, cases[i].text);
        assert_true(allocated() == before);
        assert_false(step(&t)); /* the process goes on */
    }
    for (int warmup = 0; warmup < 2; warmup++) { /* there is an error, although the function recorded none */
        tt_clear_error();
        assert_null(tt_graph_capture(TT_CUDA(0), warmup, fail_silently, &t));
        expect_error(TT_ERR_IO, "the captured function failed: ");
    }
    assert_null(tt_graph_capture(TT_CUDA(0), 0, fail_by_itself, &t));
    assert_false(tt_device_synchronize(TT_CUDA(0)));
    end(&t);
    assert_true(cuda_is_real || fake_count("fake_cuda_graphs") == 0);
}

static void arguments_are_checked(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    assert_null(tt_graph_capture(NULL, 0, step, NULL));
    expect_error(TT_ERR_INVALID, "tt_graph_capture: `device` is NULL");
    assert_null(tt_graph_capture(TT_CUDA(0), 0, NULL, NULL));
    expect_error(TT_ERR_INVALID, "tt_graph_capture: `function` is NULL");
    assert_null(tt_graph_capture(TT_CUDA(0), -1, step, NULL));
    expect_error(TT_ERR_INVALID, "tt_graph_capture: expected at least 0 warm-ups, got -1");
    assert_null(tt_graph_capture(TT_CPU, 3, step, NULL)); /* no warm-up is run */
    expect_error(TT_ERR_UNSUPPORTED, "tt_graph_capture: expected a device with graphs, as TT_CUDA(0), got cpu");
    assert_true(tt_graph_replay(NULL) == TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_graph_replay: the graph is NULL");
    tt_graph_free(NULL);
}

static void a_child_of_fork_has_no_graphs(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    training t;
    begin(&t, &(program){"", mlp, adam, 0, TT_F32, 0});
    put_batch(&t, 0);
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 1, step, &t);
    assert_non_null(graph);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        bool well = !tt_graph_capture(TT_CUDA(0), 0, step, &t) && tt_last_status() == TT_ERR_UNSUPPORTED &&
                    strstr(tt_last_error(), "tt_graph_capture: cuda:0 can't be used in this process");
        well = well && tt_graph_replay(graph) == TT_ERR_UNSUPPORTED;
        tt_graph_free(graph);
        _exit(!well);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(tt_graph_replay(graph));
    tt_graph_free(graph);
    end(&t);
}

/* ---- ranks */

typedef struct ranked {
    training t;
    tt_group *group;
    tt_module *ddp;
} ranked;

static tt_status average(void *user) {
    const ranked *r = user;
    return tt_backward(tt_cross_entropy(tt_module_forward(r->ddp, r->t.x), r->t.y));
}

static tt_status sum_over_ranks(void *user) {
    const ranked *r = user;
    return tt_tensor_all_reduce(r->group, r->t.x, TT_SUM);
}

static void what_waits_for_other_ranks_is_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    ranked r;
    tt_store *store = NULL;
    begin(&r.t, &(program){"", mlp, adam, 0, TT_F32, 0});
    put_batch(&r.t, 0);
    assert_false(tt_hash_store(&store, 10000));
    assert_false(tt_init_process_group(&r.group, .store = store, .rank = 0, .world_size = 1));
    r.ddp = tt_ddp(r.t.model, r.group);
    assert_true(r.ddp && !average(&r));
    assert_null(tt_graph_capture(TT_CUDA(0), 0, average, &r));
    expect_error(TT_ERR_STATE, "tt_graph_capture: tt_ddp can't be captured in a graph");
    assert_null(tt_graph_capture(TT_CUDA(0), 0, sum_over_ranks, &r));
    expect_error(TT_ERR_STATE, "tt_graph_capture: tt_tensor_all_reduce can't be captured in a graph");
    assert_false(average(&r));
    tt_module_free(r.ddp);
    tt_destroy_process_group(r.group);
    end(&r.t);
    tt_store_free(store);
}

static char logged[512];

static void keep_logged(tt_log_level level, const char *line, void *user) {
    (void)user;
    if (level == TT_LOG_WARNING)
        snprintf(logged, sizeof logged, "%s", line);
}

static tt_status add_one(void *user) { return tt_add_scalar(user, 1) ? TT_OK : tt_last_status(); }

static void an_empty_graph_is_told(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_set_log(keep_logged, NULL);
    tt_graph *graph = tt_graph_capture(TT_CUDA(0), 0, add_one, there(tt_ones(S(2), TT_F32)));
    assert_non_null(graph);
    assert_string_equal(logged, "");
    tt_graph_free(graph);
    graph = tt_graph_capture(TT_CUDA(0), 0, add_one, tt_ones(S(2), TT_F32)); /* on the host */
    tt_set_log(NULL, NULL);
    assert_non_null(graph);
    assert_non_null(
        strstr(logged, "tt_graph_capture: the graph is empty: the function has enqueued nothing on cuda:0"));
    assert_int_equal(tt_graph_replay(graph), TT_OK);
    tt_graph_free(graph);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_replay_can_do_is_refused),
        cmocka_unit_test(an_empty_graph_is_told),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(a_child_of_fork_has_no_graphs),
        cmocka_unit_test(what_waits_for_other_ranks_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
