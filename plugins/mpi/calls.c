/* One call of Tutti's, one non-blocking call of MPI's. */
#include "plugin.h"

#include <limits.h>
#include <stdlib.h>

/* Counts and offsets of uneven calls as MPI wants them: send counts, send displacements, receive counts, receive
 * displacements, each (size). */
static tt_status take_numbers(mpi_request *r, const tt_call *call, int size) {
    const int64_t *const lists[] = {call->send_counts, call->send_offsets, call->recv_counts, call->recv_offsets};
    for (int l = 0; l < 4; l++)
        for (int i = 0; lists[l] && i < size; i++) {
            if (lists[l][i] > INT_MAX)
                return mpi_host->fail(TT_ERR_UNSUPPORTED,
                                      "mpi: %s: element %lld of a buffer: MPI counts to %d; use several calls",
                                      mpi_host->op_name(call->op), (long long)lists[l][i], INT_MAX);
            r->numbers[l * size + i] = (int)lists[l][i];
        }
    return TT_OK;
}

static tt_status new_request(mpi_request **out, const tt_call *call, int size) {
    bool uneven = call->op == TT_OP_ALL_GATHER_V || call->op == TT_OP_ALL_TO_ALL_V;
    *out = NULL;
    if (call->count > INT_MAX)
        return mpi_host->fail(TT_ERR_UNSUPPORTED, "mpi: %s of %lld elements: MPI counts to %d; use several calls",
                              mpi_host->op_name(call->op), (long long)call->count, INT_MAX);
    mpi_request *r = malloc(sizeof *r + (uneven ? 4 * (size_t)size * sizeof r->numbers[0] : 0));
    if (!r)
        return mpi_host->fail(TT_ERR_MEMORY, "mpi: no memory for a request");
    *r = (mpi_request){.request = MPI_REQUEST_NULL, .bytes = SIZE_MAX};
    tt_status status = uneven ? take_numbers(r, call, size) : TT_OK;
    if (status)
        free(r);
    else
        *out = r;
    return status;
}

/* Return part r of a buffer of equal parts. */
static void *part(const void *buffer, const tt_call *call, int r) {
    return (unsigned char *)(uintptr_t)buffer + (size_t)r * call->count * mpi_host->dtype_size(call->dtype);
}

static int start_reduction(const mpi_engine *e, const tt_call *call, MPI_Op op, MPI_Request *request) {
    MPI_Datatype type = mpi_type(call->dtype);
    int n = (int)call->count;
    bool root = e->rank == call->root;
    switch (call->op) {
    case TT_OP_ALL_REDUCE:
        return MPI_Iallreduce(MPI_IN_PLACE, call->recv, n, type, op, e->calls, request);
    case TT_OP_REDUCE:
        return MPI_Ireduce(root ? MPI_IN_PLACE : call->send, root ? call->recv : NULL, n, type, op, call->root,
                           e->calls, request);
    default:
        return MPI_Ireduce_scatter_block(call->send, call->recv, n, type, op, e->calls, request);
    }
}

/* Start a gathering call, in place where a rank's own part lies at its place. */
static int start_gather(const mpi_engine *e, const tt_call *call, mpi_request *r) {
    MPI_Datatype type = mpi_type(call->dtype);
    int n = (int)call->count;
    const int *counts = r->numbers + 2 * e->size, *offsets = counts + e->size;
    const void *send = call->send, *here = part(call->recv, call, e->rank);
    if (call->op == TT_OP_ALL_GATHER_V)
        here = (unsigned char *)call->recv + call->recv_offsets[e->rank] * mpi_host->dtype_size(call->dtype);
    if (send == here && (call->op != TT_OP_GATHER || e->rank == call->root))
        send = MPI_IN_PLACE;
    switch (call->op) {
    case TT_OP_ALL_GATHER:
        return MPI_Iallgather(send, n, type, call->recv, n, type, e->calls, &r->request);
    case TT_OP_ALL_GATHER_V:
        return MPI_Iallgatherv(send, n, type, call->recv, counts, offsets, type, e->calls, &r->request);
    default:
        return MPI_Igather(send, n, type, call->recv, n, type, call->root, e->calls, &r->request);
    }
}

static int start_scatter(const mpi_engine *e, const tt_call *call, mpi_request *r) {
    MPI_Datatype type = mpi_type(call->dtype);
    int n = (int)call->count;
    const int *numbers = r->numbers;
    bool in_place = e->rank == call->root && call->recv == part(call->send, call, e->rank);
    switch (call->op) {
    case TT_OP_BROADCAST:
        return MPI_Ibcast(call->recv, n, type, call->root, e->calls, &r->request);
    case TT_OP_SCATTER:
        return MPI_Iscatter(call->send, n, type, in_place ? MPI_IN_PLACE : call->recv, n, type, call->root, e->calls,
                            &r->request);
    case TT_OP_ALL_TO_ALL:
        return MPI_Ialltoall(call->send, n, type, call->recv, n, type, e->calls, &r->request);
    default:
        return MPI_Ialltoallv(call->send, numbers, numbers + e->size, type, call->recv, numbers + 2 * e->size,
                              numbers + 3 * e->size, type, e->calls, &r->request);
    }
}

/* Start a send or receive, of bytes. Tutti's own messages have negative tags, which MPI lacks. */
static int start_message(const mpi_engine *e, const tt_call *call, mpi_request *r) {
    size_t bytes = call->count * mpi_host->dtype_size(call->dtype);
    MPI_Comm comm = call->tag < 0 ? e->calls : e->messages;
    MPI_Datatype type = mpi_type(call->dtype);
    int tag = call->tag < 0 ? -1 - call->tag : call->tag;
    if (call->op == TT_OP_SEND)
        return MPI_Isend(call->send, (int)call->count, type, call->root, tag, comm, &r->request);
    r->bytes = bytes;
    return MPI_Irecv(call->recv, (int)call->count, type, call->root == TT_ANY_SOURCE ? MPI_ANY_SOURCE : call->root, tag,
                     comm, &r->request);
}

static int start(const mpi_engine *e, const tt_call *call, MPI_Op op, mpi_request *r) {
    switch (call->op) {
    case TT_OP_BARRIER:
        return MPI_Ibarrier(e->calls, &r->request);
    case TT_OP_ALL_REDUCE:
    case TT_OP_REDUCE:
    case TT_OP_REDUCE_SCATTER:
        return start_reduction(e, call, op, &r->request);
    case TT_OP_ALL_GATHER:
    case TT_OP_ALL_GATHER_V:
    case TT_OP_GATHER:
        return start_gather(e, call, r);
    case TT_OP_SEND:
    case TT_OP_RECV:
        return start_message(e, call, r);
    default:
        return start_scatter(e, call, r);
    }
}

tt_status mpi_begin(void *engine, const tt_call *call, void **request) {
    const mpi_engine *e = engine;
    mpi_request *r = NULL;
    MPI_Op op = MPI_OP_NULL;
    mpi_lock();
    tt_status status = mpi_usable();
    if (!status && call->tag > mpi_tag_max())
        status =
            mpi_host->fail(TT_ERR_UNSUPPORTED, "mpi: the tag %d: this MPI's go up to %d", call->tag, mpi_tag_max());
    if (!status && (call->op == TT_OP_ALL_REDUCE || call->op == TT_OP_REDUCE || call->op == TT_OP_REDUCE_SCATTER))
        status = mpi_reduce_op(&op, call->dtype, call->reduce_op);
    if (!status)
        status = new_request(&r, call, e->size);
    if (!status)
        status = mpi_check(start(e, call, op, r), mpi_host->op_name(call->op));
    if (status)
        free(r);
    mpi_unlock();
    if (!status)
        *request = r;
    return status;
}

/* Fail for a message that is shorter or longer than expected. */
static tt_status check_size(const mpi_request *r, int code, const MPI_Status *got) {
    int bytes = 0, class = MPI_SUCCESS;
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE && r->bytes != SIZE_MAX)
        return mpi_host->fail(TT_ERR_MISMATCH, "rank %d sent more than the %zu bytes that were to be received",
                              got->MPI_SOURCE, r->bytes);
    tt_status status = mpi_check(code, "a call");
    if (status || r->bytes == SIZE_MAX)
        return status;
    MPI_Get_count(got, MPI_BYTE, &bytes);
    if ((size_t)bytes == r->bytes)
        return TT_OK;
    return mpi_host->fail(TT_ERR_MISMATCH, "rank %d sent %d bytes, %zu were to be received", got->MPI_SOURCE, bytes,
                          r->bytes);
}

tt_status mpi_test(void *engine, void *request, bool *done, int *source) {
    mpi_request *r = request;
    MPI_Status got;
    int flag = 0;
    (void)engine;
    mpi_lock();
    tt_status status = mpi_usable();
    if (!status) {
        int code = MPI_Test(&r->request, &flag, &got);
        status = flag || code != MPI_SUCCESS ? check_size(r, code, &got) : TT_OK;
    }
    *done = flag && !status;
    if (*done && r->bytes != SIZE_MAX)
        *source = got.MPI_SOURCE;
    mpi_unlock();
    if (*done || status)
        free(r);
    return status;
}

/* Let MPI progress: messages that are complete for the sender may still wait for a call of MPI. */
void mpi_progress(void *engine) {
    const mpi_engine *e = engine;
    int flag = 0;
    mpi_lock();
    if (mpi_usable() == TT_OK)
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, e->messages, &flag, MPI_STATUS_IGNORE);
    mpi_unlock();
}
