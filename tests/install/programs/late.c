/* A process that links nothing of Tutti, and loads it when its threads run already:
 *   late LIBTUTTI-COMM [LIBTUTTI]
 * Process groups come from the one library, training from the other; what one of them knows, the other knows. Runs as a
 * rank of a job. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { THREADS = 4, STEPS = 20 };

#define COMM_FUNCTIONS(X)         \
    X(tt_init_process_group_with) \
    X(tt_destroy_process_group)   \
    X(tt_all_reduce_with)         \
    X(tt_get_rank)                \
    X(tt_get_world_size)          \
    X(tt_last_status)             \
    X(tt_last_error)              \
    X(tt_report)
#define TENSOR_FUNCTIONS(X) \
    X(tt_manual_seed)       \
    X(tt_nn_linear_with)    \
    X(tt_ddp_with)          \
    X(tt_sgd_with)          \
    X(tt_module_parameters) \
    X(tt_module_forward)    \
    X(tt_module_free)       \
    X(tt_optimizer_step)    \
    X(tt_optimizer_free)    \
    X(tt_mse_loss_with)     \
    X(tt_matmul)            \
    X(tt_backward_with)     \
    X(tt_item)              \
    X(tt_full)              \
    X(tt_zero_grad)         \
    X(tt_scope_begin)       \
    X(tt_scope_end)

static struct {
#define POINTER(name) __typeof__(name) *name;
    COMM_FUNCTIONS(POINTER)
    TENSOR_FUNCTIONS(POINTER)
} in;

static const char *tensors_path; /* NULL: not asked for */
static pthread_barrier_t loaded;
static int failures;

static int fail(const char *what) {
    const char *text = in.tt_last_error ? in.tt_last_error() : "";
    fprintf(stderr, "FAILED: %s; the last error is \"%s\"\n", what, text);
    return -1;
}

static void *need(void *library, const char *name) {
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "FAILED: %s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    return found;
}

#define NEED(name) *(void **)&in.name = need(library, #name);
static void load_comm(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    COMM_FUNCTIONS(NEED)
}

static void load_tensors(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    TENSOR_FUNCTIONS(NEED)
}

static int sum_ranks(tt_group *world) {
    int64_t sum = in.tt_get_rank(world) + 1, n = in.tt_get_world_size(world);
    tt_all_reduce_args args = {.group = world, .buf = &sum, .count = 1, .dtype = TT_I64, .op = TT_SUM, .tt_end = 0};
    if (in.tt_all_reduce_with(&args, offsetof(tt_all_reduce_args, tt_end)))
        return fail("all_reduce");
    return sum == n * (n + 1) / 2 ? 0 : fail("the sum is wrong");
}

/* One step on inputs of all `rank + 1`, whose targets are twice that; the loss before it. */
static int step(tt_module *ddp, tt_optimizer *sgd, int rank, double *loss_value) {
    int scope = in.tt_scope_begin();
    const tt_named_tensors *parameters = in.tt_module_parameters(ddp);
    for (int64_t i = 0; i < parameters->count; i++)
        in.tt_zero_grad(parameters->tensors[i]);
    tt_tensor *x = in.tt_full(TT_SHAPE(8, 3), TT_F32, rank + 1);
    tt_tensor *y = in.tt_full(TT_SHAPE(8, 2), TT_F32, 2 * (rank + 1));
    tt_tensor *loss = in.tt_mse_loss(in.tt_module_forward(ddp, x), y);
    const tt_backward_args backward = {.y = loss, .tt_end = 0};
    bool failed = in.tt_item(loss, loss_value) || in.tt_backward_with(&backward, offsetof(tt_backward_args, tt_end)) ||
                  in.tt_optimizer_step(sgd);
    in.tt_scope_end(scope);
    return failed ? fail("a training step") : 0;
}

static int train(tt_group *world) {
    int rc = -1, rank = in.tt_get_rank(world);
    double first = 0, last = 0;
    in.tt_manual_seed(0);
    tt_nn_linear_args linear = {.in_features = 3, .out_features = 2, .tt_end = 0};
    tt_module *model = in.tt_nn_linear_with(&linear, offsetof(tt_nn_linear_args, tt_end));
    tt_ddp_args ddp_args = {.module = model, .group = world, .tt_end = 0};
    tt_module *ddp = in.tt_ddp_with(&ddp_args, offsetof(tt_ddp_args, tt_end));
    tt_sgd_args sgd_args = {.params = in.tt_module_parameters(ddp), .lr = 0.1, .tt_end = 0};
    tt_optimizer *sgd = in.tt_sgd_with(&sgd_args, offsetof(tt_sgd_args, tt_end));
    if (!model || !ddp || !sgd) {
        fail("making model, wrapper and optimizer");
        goto out;
    }
    for (int i = 0; i < STEPS; i++)
        if (step(ddp, sgd, rank, i ? &last : &first))
            goto out;
    rc = last < first / 2 ? 0 : fail("the loss did not fall");
out:
    in.tt_optimizer_free(sgd);
    in.tt_module_free(ddp);
    in.tt_module_free(model);
    return rc;
}

/* What fails in libtutti is the last error that libtutti-comm knows. */
static int share_the_last_error(void) {
    int scope = in.tt_scope_begin();
    tt_tensor *x = in.tt_full(TT_SHAPE(2, 3), TT_F32, 1);
    bool made = in.tt_matmul(x, x);
    in.tt_scope_end(scope);
    if (made || in.tt_last_status() != TT_ERR_SHAPE || !strstr(in.tt_last_error(), "matmul"))
        return fail("an error of libtutti is not the last error");
    return 0;
}

static int run_rank(void) {
    tt_group *world = NULL;
    tt_init_process_group_args args = {.out = &world, .timeout_ms = 60000, .tt_end = 0};
    if (in.tt_init_process_group_with(&args, offsetof(tt_init_process_group_args, tt_end)))
        return fail("init_process_group");
    int rc = sum_ranks(world);
    if (!rc && tensors_path)
        rc = train(world) || share_the_last_error();
    in.tt_destroy_process_group(world);
    return rc;
}

/* Started before the libraries are there. The last thread is the rank; the others fail, each with a last error of its
 * own. */
static void *thread_main(void *number) {
    pthread_barrier_wait(&loaded);
    if (number == (void *)(THREADS - 1)) {
        if (run_rank())
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    } else if (in.tt_last_status() || !in.tt_all_reduce_with(NULL, 0) || in.tt_last_status() != TT_ERR_INVALID) {
        fail("a thread has no last error of its own");
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    if (argc < 2 || pthread_barrier_init(&loaded, NULL, THREADS + 1))
        return EXIT_FAILURE;
    tensors_path = argc > 2 ? argv[2] : NULL;
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread_main, (void *)i))
            return EXIT_FAILURE;
    load_comm(argv[1]);
    if (tensors_path)
        load_tensors(tensors_path);
    pthread_barrier_wait(&loaded);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
