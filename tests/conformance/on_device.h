/* The suite's calls on tensors of CUDA devices, in place of the host's memory: each copies its buffers there, calls
 * tt_tensor_...(), and copies back when it has ended. */
#ifndef TESTS_CONFORMANCE_ON_DEVICE_H
#define TESTS_CONFORMANCE_ON_DEVICE_H

#include <tutti/backend.h>
#include <tutti/comm.h>

typedef struct device_call {
    tt_op op;
    tt_group *group;
    const void *send;
    void *recv;
    size_t count;
    tt_dtype dtype;
    tt_reduce_op reduce;
    int root;
    double factor;
    tt_work **work;
} device_call;

tt_status call_on_device(device_call call);

/* Of what comm.h has, does the back end? */
bool device_has(tt_dtype dtype, tt_reduce_op op);

/* fill(), but where it is the back end's choice whether NaN wins there is none. */
void device_fill(void *buf, size_t from, size_t count, tt_dtype dtype, tt_reduce_op op, int r, unsigned seed);

#undef tt_all_reduce
#undef tt_reduce
#undef tt_reduce_scatter
#undef tt_broadcast
#undef tt_all_gather
#undef tt_gather
#undef tt_scatter
#undef tt_all_to_all
#define ON_DEVICE(op_, group_, send_, recv_, count_, ...) \
    call_on_device((device_call){                         \
        .op = (op_), .group = (group_), .send = (send_), .recv = (recv_), .count = (count_), __VA_ARGS__})
#define tt_all_reduce(group, buf, n, type, ...) \
    ON_DEVICE(TT_OP_ALL_REDUCE, group, NULL, buf, n, .dtype = (type), .reduce = __VA_ARGS__)
#define tt_reduce(group, buf, n, type, how, ...) \
    ON_DEVICE(TT_OP_REDUCE, group, NULL, buf, n, .dtype = (type), .reduce = (how), .root = __VA_ARGS__)
#define tt_reduce_scatter(group, in, out, n, type, ...) \
    ON_DEVICE(TT_OP_REDUCE_SCATTER, group, in, out, n, .dtype = (type), .reduce = __VA_ARGS__)
#define tt_broadcast(group, buf, n, type, ...) \
    ON_DEVICE(TT_OP_BROADCAST, group, NULL, buf, n, .dtype = (type), .root = __VA_ARGS__)
#define tt_all_gather(group, in, out, n, ...) ON_DEVICE(TT_OP_ALL_GATHER, group, in, out, n, .dtype = __VA_ARGS__)
#define tt_gather(group, in, out, n, type, ...) \
    ON_DEVICE(TT_OP_GATHER, group, in, out, n, .dtype = (type), .root = __VA_ARGS__)
#define tt_scatter(group, in, out, n, type, ...) \
    ON_DEVICE(TT_OP_SCATTER, group, in, out, n, .dtype = (type), .root = __VA_ARGS__)
#define tt_all_to_all(group, in, out, n, ...) ON_DEVICE(TT_OP_ALL_TO_ALL, group, in, out, n, .dtype = __VA_ARGS__)

#define fill device_fill
#define is_allowed(dtype, op) (is_allowed(dtype, op) && device_has(dtype, op))

#endif
