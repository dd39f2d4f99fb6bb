/* The conformance suite's collectives on tensors of CUDA devices: conformance_cuda BACKEND [WORLD...]
 *
 * On the fake of CUDA, or with TT_CUDA_REAL=1 on the GPUs that are there. `native` copies by way of the host and gives
 * the reference's bits; its ranks share two devices. `nccl` has a device for each rank, and an order of its own. */
#include "conformance.h"

#include "support/cuda_ranks.h"

#include <math.h>
#include <tutti/tutti.h>

#include "on_device.h"

static const char *backend;
static const tt_device *device;

/* The call that is under way. */
static struct {
    tt_tensor *in, *out;
    void *recv;
} now;

void next_case(ctx *c) {
    c->cases++;
    c->async = c->cases / 3 % 2;
}

void *buffer(const ctx *c, int which) { return c->plain[which]; }

/* ---- calls */

bool device_has(tt_dtype dtype, tt_reduce_op op) {
    bool bitwise = op >= TT_BAND && op <= TT_BXOR;
    return strcmp(backend, "nccl") != 0 || (dtype != TT_I16 && (!bitwise || (dtype == TT_BOOL && op != TT_BXOR)));
}

#undef fill

static bool is_nan_at(const void *buf, size_t i, tt_dtype dtype) {
    switch (dtype) {
    case TT_F32:
        return isnan(((const float *)buf)[i]);
    case TT_F64:
        return isnan(((const double *)buf)[i]);
    case TT_F16:
        return (((const uint16_t *)buf)[i] & 0x7fff) > 0x7c00;
    case TT_BF16:
        return (((const uint16_t *)buf)[i] & 0x7fff) > 0x7f80;
    default:
        return false;
    }
}

void device_fill(void *buf, size_t from, size_t count, tt_dtype dtype, tt_reduce_op op, int r, unsigned seed) {
    const size_t size = tt_dtype_size(dtype);
    fill(buf, from, count, dtype, op, r, seed);
    if (strcmp(backend, "nccl") != 0 || (op != TT_MIN && op != TT_MAX))
        return;
    for (size_t i = from; i < from + count; i++)
        if (is_nan_at(buf, i, dtype))
            memset((char *)buf + i * size, 0, size);
}

/* `parts` times as many elements as the call counts. */
static tt_tensor *copy_there(const device_call *call, const void *bytes, int parts) {
    TT_AUTO_SCOPE;
    tt_tensor *host = tt_empty(TT_SHAPE((int64_t)call->count * parts), call->dtype);
    CHECK(host);
    if (tt_tensor_numel(host))
        memcpy(tt_tensor_data(host), bytes, (size_t)tt_tensor_numel(host) * tt_dtype_size(call->dtype));
    tt_tensor *there = tt_keep(tt_to_device(host, device));
    CHECK(there);
    return there;
}

/* Copy the result back, and free both. */
static void end_call(void) {
    if (now.out) {
        TT_AUTO_SCOPE;
        tt_tensor *host = tt_to_device(now.out, TT_CPU);
        CHECK(host);
        if (tt_tensor_numel(host))
            memcpy(now.recv, tt_tensor_data(host),
                   (size_t)tt_tensor_numel(host) * tt_dtype_size(tt_tensor_dtype(host)));
    }
    if (now.in != now.out)
        tt_tensor_free(now.in);
    tt_tensor_free(now.out);
    now.in = now.out = NULL;
}

static bool is_root(const device_call *call) { return tt_get_rank(call->group) == call->root; }

static void make_tensors(const device_call *call) {
    const int world = tt_get_world_size(call->group);
    const bool spreads = call->op == TT_OP_REDUCE_SCATTER || call->op == TT_OP_SCATTER || call->op == TT_OP_ALL_TO_ALL;
    const bool joins = call->op == TT_OP_ALL_GATHER || call->op == TT_OP_GATHER || call->op == TT_OP_ALL_TO_ALL;
    now.recv = call->recv;
    now.in = call->send ? copy_there(call, call->send, spreads ? world : 1) : NULL;
    now.out = call->recv ? copy_there(call, call->recv, joins ? world : 1) : NULL;
    CHECK(now.out || (call->op == TT_OP_GATHER && !is_root(call)));
}

static tt_status begin_call(const device_call *call) {
    switch (call->op) {
    case TT_OP_ALL_REDUCE:
        return tt_tensor_all_reduce(call->group, now.out, call->reduce, .factor = call->factor, .work = call->work);
    case TT_OP_REDUCE:
        return tt_tensor_reduce(call->group, now.out, call->reduce, call->root, .factor = call->factor,
                                .work = call->work);
    case TT_OP_REDUCE_SCATTER:
        return tt_tensor_reduce_scatter(call->group, now.in, now.out, call->reduce, .factor = call->factor,
                                        .work = call->work);
    case TT_OP_BROADCAST:
        return tt_tensor_broadcast(call->group, now.out, call->root, .work = call->work);
    case TT_OP_ALL_GATHER:
        return tt_tensor_all_gather(call->group, now.in, now.out, .work = call->work);
    case TT_OP_GATHER:
        return tt_tensor_gather(call->group, now.in, now.out, call->root, .work = call->work);
    case TT_OP_SCATTER:
        return tt_tensor_scatter(call->group, now.in, now.out, call->root, .work = call->work);
    default:
        return tt_tensor_all_to_all(call->group, now.in, now.out, .work = call->work);
    }
}

tt_status call_on_device(device_call call) {
    make_tensors(&call);
    tt_status status = begin_call(&call);
    if (status || !call.work)
        end_call();
    return status;
}

void finish(ctx *c, tt_work *work) {
    CHECK(work);
    while (c->cases % 2 && !tt_work_is_completed(work))
        ;
    CHECK_OK(tt_work_wait(work));
    tt_work_free(work);
    end_call();
}

/* ---- the program */

static unsigned char *memory(void) {
    unsigned char *at = malloc(MAX_BYTES);
    CHECK(at);
    return at;
}

static ctx open_ctx(tt_store *store, int rank, int world) {
    ctx c = {.rank = rank, .world = world, .native = !strcmp(backend, "native")};
    device = TT_CUDA(c.native ? rank % tt_device_count(TT_DEVICE_CUDA) : rank);
    CHECK(device);
    CHECK_OK(tt_init_process_group(&c.group, .backend = backend, .store = store, .rank = rank, .world_size = world,
                                   .timeout_ms = 2 * PATIENCE_MS, .heartbeat_ms = CALM_MS,
                                   .device = c.native ? TT_DEVICE_CPU : TT_DEVICE_CUDA,
                                   .device_index = c.native ? 0 : rank));
    for (int i = 0; i < 2; i++)
        c.plain[i] = memory();
    for (int r = 0; r < world; r++)
        c.inputs[r] = memory();
    return c;
}

static int run_all(tt_store *store, int rank, int world, void *arg) {
    static void (*const parts[])(ctx * c) = {test_all_reduce, test_reduce, test_reduce_scatter, test_broadcast,
                                             test_all_gather, test_gather, test_scatter,        test_all_to_all};
    ctx c = open_ctx(store, rank, world);
    (void)arg;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        parts[i](&c);
    tt_destroy_process_group(c.group);
    for (int i = 0; i < 2; i++)
        free(c.plain[i]);
    for (int r = 0; r < world; r++)
        free(c.inputs[r]);
    if (!rank)
        printf("world %d: ok, %u cases\n", world, c.cases);
    return 0;
}

int main(int argc, char **argv) {
    static const int usual[] = {1, 2, 3, 4, 8};
    if (argc < 2) {
        fprintf(stderr, "usage: conformance_cuda BACKEND [WORLD...]; TT_LONG=1 in all worlds\n");
        return 2;
    }
    backend = argv[1];
    rounds_each_step = !strcmp(backend, "nccl");
    if (!cuda_choose_any())
        return 1;
    setenv("FAKE_CUDA_DEVICES", strcmp(backend, "nccl") ? "2" : "8", 1);
    bool few = argc > 2 && !getenv("TT_LONG");
    for (int i = 2; few && i < argc; i++)
        with_ranks(atoi(argv[i]), run_all, NULL);
    for (size_t i = 0; !few && i < sizeof usual / sizeof *usual; i++)
        if (world_is_tried(usual[i]))
            with_ranks(usual[i], run_all, NULL);
    return 0;
}
