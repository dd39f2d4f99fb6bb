/* Operations, and groups of them. */
#include "nccl_comm.h"
#include "stream.h"

struct open_group {
    int depth = 0;
    ncclComm_t comm = nullptr;
    void *stream = nullptr;
    std::vector<fake_operation> operations;
    ncclResult_t failed = ncclSuccess;
};

static thread_local open_group current;

static bool is_message(const fake_operation &o) { return o.name == "Send" || o.name == "Recv"; }

/* Messages connect the pair of ranks, collectives all of them, each once. */
static void connect(ncclComm_t comm, const std::vector<fake_operation> &operations) {
    fake_area *area = comm->core->area;
    int self = comm->core->rank;
    for (const fake_operation &o : operations)
        if (o.name == "Send")
            area->sends[self][o.peer] = true;
        else if (o.name == "Recv")
            area->receives[o.peer][self] = true;
        else if (!comm->connected)
            area->connected++, comm->connected = true;
}

static bool are_connected(const fake_core &core, const std::vector<fake_operation> &operations) {
    for (const fake_operation &o : operations) {
        int from = o.name == "Send" ? core.rank : o.peer, to = o.name == "Send" ? o.peer : core.rank;
        if (is_message(o) ? !core.area->sends[from][to] || !core.area->receives[from][to]
                          : core.area->connected < core.size)
            return false;
    }
    return true;
}

static bool put_on_stream(const std::shared_ptr<fake_core> &core, void *stream,
                          const std::vector<fake_operation> &operations) {
    core->queued++;
    const int error = fake_enqueue(stream, [=] {
        core->running++;
        if (!core->aborted)
            fake_nccl_run(*core, operations);
        core->running--;
        core->queued--;
    });
    if (error)
        core->queued--;
    return !error;
}

static ncclResult_t launch(ncclComm_t comm, void *stream, const std::vector<fake_operation> &operations) {
    std::shared_ptr<fake_core> core = comm->core;
    connect(comm, operations);
    bool breaks = false;
    for (const fake_operation &o : operations)
        breaks |= fake_nccl_is("FAKE_NCCL_ASYNC", o.name.c_str(), core->rank);
    return fake_proceed(
        comm, [=] { return are_connected(*core, operations); },
        [=] {
            if (!put_on_stream(core, stream, operations))
                comm->state = ncclUnhandledCudaError;
            if (!breaks)
                return;
            comm->state = ncclRemoteError;
            comm->last_error = "socket closed by peer";
        });
}

/* Of a stream that is not the group's, or nothing but messages beside another operation, NCCL takes more than this. */
static ncclResult_t add(ncclComm_t comm, void *stream, fake_operation o) {
    fake_call call(comm, o.name.c_str());
    if (call.result)
        return current.failed = call.result;
    if (comm->finalized)
        return current.failed = fake_misuse(o.name.c_str(), "the communicator was finalized");
    if (current.comm && (current.comm != comm || current.stream != stream))
        return current.failed = fake_misuse(o.name.c_str(), "a group has one communicator and one stream here");
    if (o.send)
        fake_window_used(comm, o.send, o.count * fake_nccl_size(o.type));
    o.hangs = fake_nccl_is("FAKE_NCCL_HANG", o.name.c_str(), comm->core->rank);
    if (o.op >= 5)
        o.factor = comm->factors[o.op];
    if (!current.depth)
        return launch(comm, stream, {o});
    current.comm = comm;
    current.stream = stream;
    current.operations.push_back(o);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
    current.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (!current.depth)
        return fake_misuse("GroupEnd", "there is no group");
    if (--current.depth)
        return ncclSuccess;
    open_group group = std::move(current);
    current = open_group();
    if (group.failed || group.operations.empty())
        return group.failed;
    fake_call call(group.comm, "GroupEnd");
    return call.result ? call.result : launch(group.comm, group.stream, group.operations);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t,
                                      ncclComm_t comm) {
    fake_call call(comm, "RedOpCreatePreMulSum");
    if (call.result)
        return call.result;
    int number = 5;
    while (comm->factors.count(number))
        number++;
    comm->factors[number] = fake_nccl_factor(scalar, type);
    *op = (ncclRedOp_t)number;
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    fake_call call(comm, "RedOpDestroy");
    if (call.result)
        return call.result;
    return comm->factors.erase(op) ? ncclSuccess : fake_misuse("RedOpDestroy", "there is no such op");
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {"AllReduce", send, recv, count, type, op, -1, 1, false});
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {"Reduce", send, recv, count, type, op, root, 1, false});
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {"ReduceScatter", send, recv, count, type, op, -1, 1, false});
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return add(comm, stream, {"Broadcast", send, recv, count, type, -1, root, 1, false});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return add(comm, stream, {"AllGather", send, recv, count, type, -1, -1, 1, false});
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add(comm, stream, {"Send", send, nullptr, count, type, -1, peer, 1, false});
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {"Recv", nullptr, recv, count, type, -1, peer, 1, false});
}
