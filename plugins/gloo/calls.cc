// Carries out each call of Tutti's by one function of gloo's. Two things that gloo lacks are made of others:
// reduce_scatter of an all-to-all, offsets of uneven calls by copying.
#include "plugin.h"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace tutti {
namespace {

using Bytes = std::vector<uint8_t>;
using Sizes = std::vector<size_t>;

// gloo's own deadline comes after Tutti's, which has the better text.
std::chrono::milliseconds deadline(const tt_call &call) { return std::chrono::milliseconds(call.timeout_ms + 60000); }

// A call with what it needs after begin() has returned, and its sizes in bytes.
struct Task {
    Engine *engine;
    tt_call call;
    uint32_t tag;
    size_t bytes;                                               // of call.count elements
    Sizes send_counts, send_offsets, recv_counts, recv_offsets; // of uneven calls, in bytes

    uint8_t *send() const { return static_cast<uint8_t *>(const_cast<void *>(call.send)); }
    uint8_t *recv() const { return static_cast<uint8_t *>(call.recv); }
    size_t size() const { return size_t(engine->size); }
    bool is_root() const { return engine->rank == call.root; }

    template <typename Options> void common(Options &options) const {
        options.setTag(tag);
        options.setTimeout(deadline(call));
    }
};

void barrier(const Task &t) {
    gloo::BarrierOptions options(t.engine->context);
    t.common(options);
    gloo::barrier(options);
}

void all_reduce(const Task &t) {
    gloo::AllreduceOptions options(t.engine->context);
    t.common(options);
    with_type(t.call.dtype,
              [&](auto zero) { options.setOutput(static_cast<decltype(zero) *>(t.call.recv), t.call.count); });
    options.setReduceFunction(join(t.call.dtype, t.call.reduce_op));
    gloo::allreduce(options);
}

// gloo writes to every rank's output, so all but the root give it memory of its own.
void reduce(const Task &t) {
    gloo::ReduceOptions options(t.engine->context);
    Bytes scratch;
    void *out = t.call.recv;
    if (!t.is_root()) {
        scratch.assign(t.send(), t.send() + t.bytes);
        out = scratch.data();
    }
    t.common(options);
    options.setRoot(t.call.root);
    with_type(t.call.dtype, [&](auto zero) { options.setOutput(static_cast<decltype(zero) *>(out), t.call.count); });
    options.setReduceFunction(join(t.call.dtype, t.call.reduce_op));
    gloo::reduce(options);
}

void exchange(const Task &t, uint8_t *recv) {
    gloo::AlltoallOptions options(t.engine->context);
    t.common(options);
    options.setInput(t.send(), t.bytes * t.size());
    options.setOutput(recv, t.bytes * t.size());
    gloo::alltoall(options);
}

void all_to_all(const Task &t) { exchange(t, t.recv()); }

// Gather all ranks' parts for this rank, and sum them in the order of ranks.
void reduce_scatter(const Task &t) {
    Bytes parts(t.bytes * t.size());
    Join sum = join(t.call.dtype, t.call.reduce_op);
    exchange(t, parts.data());
    for (size_t r = 1; r < t.size(); r++)
        sum(parts.data(), parts.data(), parts.data() + r * t.bytes, t.call.count);
    std::memcpy(t.recv(), parts.data(), t.bytes);
}

void broadcast(const Task &t) {
    gloo::BroadcastOptions options(t.engine->context);
    t.common(options);
    options.setRoot(t.call.root);
    options.setOutput(t.recv(), t.bytes);
    gloo::broadcast(options);
}

void all_gather(const Task &t) {
    gloo::AllgatherOptions options(t.engine->context);
    t.common(options);
    if (t.send() != t.recv() + size_t(t.engine->rank) * t.bytes)
        options.setInput(t.send(), t.bytes);
    options.setOutput(t.recv(), t.bytes * t.size());
    gloo::allgather(options);
}

void gather(const Task &t) {
    gloo::GatherOptions options(t.engine->context);
    t.common(options);
    options.setRoot(t.call.root);
    options.setInput(t.send(), t.bytes);
    if (t.is_root())
        options.setOutput(t.recv(), t.bytes * t.size());
    gloo::gather(options);
}

void scatter(const Task &t) {
    gloo::ScatterOptions options(t.engine->context);
    t.common(options);
    options.setRoot(t.call.root);
    if (t.is_root()) {
        std::vector<uint8_t *> parts;
        for (size_t r = 0; r < t.size(); r++)
            parts.push_back(t.send() + r * t.bytes);
        options.setInputs(parts, t.bytes);
    }
    options.setOutput(t.recv(), t.bytes);
    gloo::scatter(options);
}

size_t total(const Sizes &counts) { return std::accumulate(counts.begin(), counts.end(), size_t(0)); }

// dense: parts one after the other; sparse: at their offsets.
void unpack(uint8_t *sparse, const uint8_t *dense, const Sizes &counts, const Sizes &offsets) {
    for (size_t r = 0; r < counts.size(); dense += counts[r++])
        if (counts[r])
            std::memcpy(sparse + offsets[r], dense, counts[r]);
}

void pack(uint8_t *dense, const uint8_t *sparse, const Sizes &counts, const Sizes &offsets) {
    for (size_t r = 0; r < counts.size(); dense += counts[r++])
        if (counts[r])
            std::memcpy(dense, sparse + offsets[r], counts[r]);
}

// Our own buffers have one byte more than is needed: an empty vector may be at NULL, which gloo refuses.
void all_gather_v(const Task &t) {
    gloo::AllgathervOptions options(t.engine->context);
    Bytes own(t.bytes + 1), dense(total(t.recv_counts) + 1);
    if (t.bytes)
        std::memcpy(own.data(), t.send(), t.bytes);
    t.common(options);
    options.setInput(own.data(), t.bytes);
    options.setOutput(dense.data(), t.recv_counts);
    gloo::allgatherv(options);
    unpack(t.recv(), dense.data(), t.recv_counts, t.recv_offsets);
}

void all_to_all_v(const Task &t) {
    gloo::AlltoallvOptions options(t.engine->context);
    Bytes out(total(t.send_counts) + 1), in(total(t.recv_counts) + 1);
    auto lengths = [](const Sizes &counts) { return std::vector<int64_t>(counts.begin(), counts.end()); };
    pack(out.data(), t.send(), t.send_counts, t.send_offsets);
    t.common(options);
    options.setInput(out.data(), lengths(t.send_counts));
    options.setOutput(in.data(), lengths(t.recv_counts));
    gloo::alltoallv(options);
    unpack(t.recv(), in.data(), t.recv_counts, t.recv_offsets);
}

void (*function_of(tt_op op))(const Task &) {
    switch (op) {
    case TT_OP_BARRIER:
        return barrier;
    case TT_OP_ALL_REDUCE:
        return all_reduce;
    case TT_OP_REDUCE:
        return reduce;
    case TT_OP_REDUCE_SCATTER:
        return reduce_scatter;
    case TT_OP_BROADCAST:
        return broadcast;
    case TT_OP_ALL_GATHER:
        return all_gather;
    case TT_OP_ALL_GATHER_V:
        return all_gather_v;
    case TT_OP_GATHER:
        return gather;
    case TT_OP_SCATTER:
        return scatter;
    case TT_OP_ALL_TO_ALL:
        return all_to_all;
    case TT_OP_ALL_TO_ALL_V:
        return all_to_all_v;
    default:
        throw std::logic_error("not a collective");
    }
}

// A message's slot. Its first byte is larger than that of any collective's slot. gloo ends the process if a message
// does not fit the receive, so the size is part of the slot. Empty messages are sent as one byte.
uint64_t slot_of(int tag, size_t bytes) {
    return UINT64_C(1) << 63 | uint64_t(uint32_t(tag)) << 31 | (bytes & 0x7fffffff);
}

// gloo's waits for messages return false when they were told to stop.
void must(bool came) {
    if (!came)
        throw gloo::IoException("the message was given up");
}

} // namespace

std::function<void()> collective(Engine *engine, const tt_call &call) {
    size_t element = host->dtype_size(call.dtype);
    auto in_bytes = [&](const int64_t *list) {
        Sizes sizes;
        for (int r = 0; list && r < engine->size; r++)
            sizes.push_back(list[r] * element);
        return sizes;
    };
    Task t{engine,
           call,
           engine->tag++,
           call.count * element,
           in_bytes(call.send_counts),
           in_bytes(call.send_offsets),
           in_bytes(call.recv_counts),
           in_bytes(call.recv_offsets)};
    return [function = function_of(call.op), t = std::move(t)] { function(t); };
}

std::function<void()> message(Engine *engine, const tt_call &call, Request *request) {
    static uint8_t empty[2];
    bool is_send = call.op == TT_OP_SEND;
    size_t bytes = call.count * host->dtype_size(call.dtype);
    uint64_t slot = slot_of(call.tag, bytes);
    void *data = is_send ? const_cast<void *>(call.send) : call.recv;
    request->buffer = engine->context->createUnboundBuffer(bytes ? data : &empty[is_send], bytes ? bytes : 1);
    auto buffer = request->buffer.get();
    if (is_send) {
        buffer->send(call.root, slot);
        return [buffer, limit = deadline(call)] { must(buffer->waitSend(nullptr, limit)); };
    }
    if (call.root == TT_ANY_SOURCE) {
        std::vector<int> others;
        for (int r = 0; r < engine->size; r++)
            if (r != engine->rank)
                others.push_back(r);
        buffer->recv(others, slot);
    } else {
        buffer->recv(call.root, slot);
    }
    return [buffer, request, limit = deadline(call)] { must(buffer->waitRecv(&request->source, limit)); };
}

} // namespace tutti
