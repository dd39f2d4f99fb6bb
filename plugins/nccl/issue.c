/* Issues each call of Tutti's as one call, or one group of calls, of NCCL's. */
#include "plugin.h"

#include "base/dtype.h"

/* The type that NCCL sums in place of Tutti's; false: none. */
static bool summed_type(tt_dtype dtype, ncclDataType_t *type) {
    switch (dtype) {
    case TT_F32:
        *type = ncclFloat32;
        return true;
    case TT_F64:
        *type = ncclFloat64;
        return true;
    case TT_F16:
        *type = ncclFloat16;
        return true;
    case TT_BF16:
        *type = ncclBfloat16;
        return true;
    case TT_I8:
        *type = ncclInt8;
        return true;
    case TT_U8:
    case TT_BOOL:
        *type = ncclUint8;
        return true;
    case TT_I32:
        *type = ncclInt32;
        return true;
    case TT_I64:
        *type = ncclInt64;
        return true;
    default:
        return false;
    }
}

static bool is_float(tt_dtype dtype) {
    return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16;
}

/* Bools are bytes of 0 and 1: or is the maximum, and is the minimum. */
static bool bool_op(tt_reduce_op op, ncclRedOp_t *out) {
    bool any = op == TT_SUM || op == TT_MAX || op == TT_BOR, all = op == TT_PRODUCT || op == TT_MIN || op == TT_BAND;
    *out = any ? ncclMax : ncclMin;
    return any || all;
}

/* NCCL's op for all but TT_PREMUL_SUM, whose op is made for each call. */
static bool plain_op(tt_dtype dtype, tt_reduce_op op, ncclRedOp_t *out) {
    static const struct {
        tt_reduce_op op;
        ncclRedOp_t there;
    } ops[] = {{TT_SUM, ncclSum}, {TT_AVG, ncclAvg}, {TT_PRODUCT, ncclProd}, {TT_MIN, ncclMin}, {TT_MAX, ncclMax}};
    if (dtype == TT_BOOL)
        return bool_op(op, out);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (ops[i].op == op) {
            *out = ops[i].there;
            return true;
        }
    return false;
}

static bool reduces(tt_op op) { return op == TT_OP_ALL_REDUCE || op == TT_OP_REDUCE || op == TT_OP_REDUCE_SCATTER; }

bool nccl_supports(tt_op op, tt_dtype dtype, tt_reduce_op reduce_op, tt_device_type device) {
    ncclDataType_t type;
    ncclRedOp_t there;
    (void)device;
    if (!reduces(op))
        return true; /* moved as bytes */
    return summed_type(dtype, &type) &&
           (reduce_op == TT_PREMUL_SUM ? is_float(dtype) : plain_op(dtype, reduce_op, &there));
}

/* ---- reductions */

static ncclResult_t make_factor_op(const nccl_lane *lane, nccl_request *r, ncclDataType_t type) {
    union {
        double f64;
        float f32;
        uint16_t half;
    } factor = {.f64 = r->call.factor};
    if (r->call.dtype == TT_F32)
        factor.f32 = (float)r->call.factor;
    else if (r->call.dtype == TT_F16)
        factor.half = tt__f16_of_float((float)r->call.factor);
    else if (r->call.dtype == TT_BF16)
        factor.half = tt__bf16_of_float((float)r->call.factor);
    ncclResult_t result = nccl.RedOpCreatePreMulSum(&r->factor_op, &factor, type, ncclScalarHostImmediate, lane->comm);
    r->has_factor_op = result == ncclSuccess;
    return result;
}

static ncclResult_t issue_reduction(const nccl_engine *e, const nccl_lane *lane, nccl_request *r) {
    const tt_call *c = &r->call;
    ncclDataType_t type = ncclInt8;
    ncclRedOp_t op = ncclSum;
    summed_type(c->dtype, &type);
    if (c->reduce_op == TT_PREMUL_SUM) {
        ncclResult_t result = make_factor_op(lane, r, type);
        if (result != ncclSuccess)
            return result;
        op = r->factor_op;
    } else {
        plain_op(c->dtype, c->reduce_op, &op);
    }
    size_t n = (size_t)c->count;
    switch (c->op) {
    case TT_OP_ALL_REDUCE:
        return nccl.AllReduce(c->send, c->recv, n, type, op, lane->comm, lane->stream);
    case TT_OP_REDUCE:
        return nccl.Reduce(c->send, e->rank == c->root ? c->recv : NULL, n, type, op, c->root, lane->comm,
                           lane->stream);
    default:
        return nccl.ReduceScatter(c->send, c->recv, n, type, op, lane->comm, lane->stream);
    }
}

/* ---- what is made of sends and receives, within one group */

/* Where a part lies, in bytes. */
typedef struct piece {
    size_t at, bytes;
} piece;

static piece even(const tt_call *c, size_t size, int r) {
    return (piece){(size_t)r * (size_t)c->count * size, (size_t)c->count * size};
}

static piece uneven(const int64_t *counts, const int64_t *offsets, size_t size, int r) {
    return (piece){(size_t)offsets[r] * size, (size_t)counts[r] * size};
}

/* What this rank sends to rank r in an exchange, and what it gets from there. */
static piece sent_to(const nccl_engine *e, const tt_call *c, size_t size, int r) {
    switch (c->op) {
    case TT_OP_ALL_TO_ALL:
        return even(c, size, r);
    case TT_OP_ALL_TO_ALL_V:
        return uneven(c->send_counts, c->send_offsets, size, r);
    case TT_OP_GATHER:
        return r == c->root ? even(c, size, 0) : (piece){0, 0};
    case TT_OP_SCATTER:
        return e->rank == c->root ? even(c, size, r) : (piece){0, 0};
    default: /* all_gather_v */
        return (piece){0, (size_t)c->recv_counts[e->rank] * size};
    }
}

static piece got_from(const nccl_engine *e, const tt_call *c, size_t size, int r) {
    switch (c->op) {
    case TT_OP_ALL_TO_ALL:
        return even(c, size, r);
    case TT_OP_GATHER:
        return e->rank == c->root ? even(c, size, r) : (piece){0, 0};
    case TT_OP_SCATTER:
        return r == c->root ? even(c, size, 0) : (piece){0, 0};
    default:
        return uneven(c->recv_counts, c->recv_offsets, size, r);
    }
}

static bool goes_on(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

/* Exchange messages with rank r; a part of our own that is in place already isn't sent. */
static ncclResult_t exchange_with(const nccl_engine *e, const nccl_lane *lane, const tt_call *c, int r) {
    size_t size = nccl_host->dtype_size(c->dtype);
    piece out = sent_to(e, c, size, r), in = got_from(e, c, size, r);
    const char *from = (const char *)c->send + out.at;
    char *to = (char *)c->recv + in.at;
    if (r == e->rank && from == to)
        return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    if (out.bytes)
        result = nccl.Send(from, out.bytes, ncclInt8, r, lane->comm, lane->stream);
    if (in.bytes && goes_on(result))
        result = nccl.Recv(to, in.bytes, ncclInt8, r, lane->comm, lane->stream);
    return result;
}

/* A group must be ended, whatever its calls returned. */
static ncclResult_t issue_exchange(const nccl_engine *e, const nccl_lane *lane, const tt_call *c) {
    ncclResult_t result = nccl.GroupStart();
    if (!goes_on(result))
        return result;
    for (int r = 0; r < e->size && goes_on(result); r++)
        result = exchange_with(e, lane, c, r);
    ncclResult_t end = nccl.GroupEnd();
    return goes_on(result) ? end : result;
}

ncclResult_t nccl_issue(nccl_engine *e, nccl_lane *lane, nccl_request *r) {
    const tt_call *c = &r->call;
    size_t bytes = (size_t)c->count * nccl_host->dtype_size(c->dtype);
    void *word = (void *)(uintptr_t)e->word;
    switch (c->op) {
    case TT_OP_BARRIER:
        return nccl.AllReduce(word, word, 1, ncclInt32, ncclMax, lane->comm, lane->stream);
    case TT_OP_ALL_REDUCE:
    case TT_OP_REDUCE:
    case TT_OP_REDUCE_SCATTER:
        return issue_reduction(e, lane, r);
    case TT_OP_BROADCAST:
        return nccl.Broadcast(c->recv, c->recv, bytes, ncclInt8, c->root, lane->comm, lane->stream);
    case TT_OP_ALL_GATHER:
        return nccl.AllGather(c->send, c->recv, bytes, ncclInt8, lane->comm, lane->stream);
    case TT_OP_SEND:
        return nccl.Send(c->send, bytes, ncclInt8, c->root, lane->comm, lane->stream);
    case TT_OP_RECV:
        return nccl.Recv(c->recv, bytes, ncclInt8, c->root, lane->comm, lane->stream);
    default:
        return issue_exchange(e, lane, c);
    }
}
