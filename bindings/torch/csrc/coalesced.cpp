// Calls that take several tensors of each rank.
#include "errors.hpp"
#include "process_group.hpp"

#include <algorithm>
#include <cstring>

namespace tutti_torch {

using c10d::OpType;

namespace {

int64_t bytes_of(const Tensors &list) {
    int64_t bytes = 0;
    for (const at::Tensor &x : list)
        bytes += static_cast<int64_t>(x.nbytes());
    return bytes;
}

// Give the list's tensors the bytes from `next` on; returns where they end.
uint8_t *unpack_bytes(Tensors &list, uint8_t *next) {
    for (at::Tensor &x : list) {
        if (x.numel())
            x.copy_(at::from_blob(next, x.sizes(), x.options()));
        next += x.nbytes();
    }
    return next;
}

} // namespace

WorkPtr ProcessGroupTutti::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) {
    if (tensors.empty())
        refuse("all_reduce_coalesced: requires non-empty tensor list");
    for (size_t i = 1; i < tensors.size(); i++)
        if (tensors[i].layout() != tensors[0].layout())
            refuse(c10::str("all_reduce_coalesced: invalid tensor layout at index ", i, ": expected ",
                            tensors[0].layout(), ", got ", tensors[i].layout()));
    Tensors flat;
    std::vector<void *> bufs;
    std::vector<int64_t> counts;
    for (const at::Tensor &x : tensors) {
        check_tensor(x, "all_reduce_coalesced");
        if (x.scalar_type() != tensors[0].scalar_type())
            refuse(c10::str("all_reduce_coalesced: tensors must all have the same type, got ",
                            tensors[0].scalar_type(), " and ", x.scalar_type()));
        flat.push_back(packed(x));
        bufs.push_back(flat.back().data_ptr());
        counts.push_back(x.numel());
    }
    const Reduction r = reduction(opts.reduceOp);
    tt_all_reduce_coalesced_args a = TT_ARGS_INIT;
    a.bufs = bufs.data(); // both lists are copied
    a.counts = counts.data();
    a.buffers = static_cast<int64_t>(bufs.size());
    a.dtype = reduced_dtype(flat[0], "all_reduce_coalesced");
    a.op = r.op;
    a.factor = r.factor;
    return start({OpType::ALLREDUCE_COALESCED, "tutti:all_reduce", flat, {tensors}, copy_back(tensors, flat),
                  opts.timeout},
                 tensors, a, tt_all_reduce_coalesced_with);
}

// ---- gathered as bytes: inputs of several sizes and types

WorkPtr ProcessGroupTutti::gather_bytes(Task task, Tensors &inputs, const at::Tensor &to) {
    at::Tensor from = at::empty({bytes_of(inputs)}, at::kByte);
    auto *next = from.data_ptr<uint8_t>();
    for (const at::Tensor &x : inputs) {
        if (x.nbytes())
            std::memcpy(next, packed(x).data_ptr(), x.nbytes());
        next += x.nbytes();
    }
    task.kept = {from, to};
    tt_all_gather_args a = TT_ARGS_INIT;
    a.send = from.data_ptr();
    a.recv = to.data_ptr();
    a.count = from.numel();
    a.dtype = TT_U8;
    return start(std::move(task), inputs, a, tt_all_gather_with);
}

// Several inputs a rank, each with an output list of its own: each list gets all inputs of all ranks.
WorkPtr ProcessGroupTutti::allgather_lists(std::vector<Tensors> &outputs, Tensors &inputs,
                                           const c10d::AllgatherOptions &opts) {
    static const char call[] = "all_gather";
    for (size_t i = 0; i < outputs.size(); i++) {
        check_types(outputs[i], inputs[0], call);
        check_sizes(outputs[i], inputs[0], call);
        std::for_each(outputs[i].begin(), outputs[i].end(), check_writable);
    }
    at::Tensor to = at::empty({getSize() * bytes_of(inputs)}, at::kByte);
    auto finish = [outputs, to]() mutable {
        for (Tensors &list : outputs)
            unpack_bytes(list, to.data_ptr<uint8_t>());
    };
    return gather_bytes({OpType::ALLGATHER, "tutti:all_gather", {}, outputs, finish, opts.timeout}, inputs, to);
}

// outputs[r][i]: rank r's inputs[i]. All inputs travel as one array of bytes.
WorkPtr ProcessGroupTutti::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                               const c10d::AllgatherOptions &opts) {
    static const char call[] = "all_gather_coalesced";
    if (inputs.empty())
        refuse(c10::str(call, ": requires non-empty input tensor list"));
    if (static_cast<int>(outputs.size()) != getSize())
        refuse(c10::str(call, ": output lists should be equal to world size, ", getSize(), ", got ", outputs.size()));
    for (const Tensors &list : outputs) {
        if (list.size() != inputs.size())
            refuse(c10::str(call, ": expected ", inputs.size(), " outputs a rank, got ", list.size()));
        for (size_t i = 0; i < list.size(); i++) {
            check_tensor(list[i], call);
            check_tensor(inputs[i], call);
            check_writable(list[i]);
            if (list[i].numel() != inputs[i].numel())
                refuse(c10::str(call, ": invalid size of output tensor at index ", i, ": expected the input's ",
                                inputs[i].numel(), " elements, got ", list[i].numel()));
            if (list[i].scalar_type() != inputs[i].scalar_type())
                refuse(c10::str(call, ": invalid tensor type at index ", i, ": expected the input's ",
                                inputs[i].scalar_type(), ", got ", list[i].scalar_type()));
        }
    }
    at::Tensor to = at::empty({getSize() * bytes_of(inputs)}, at::kByte);
    auto finish = [outputs, to]() mutable {
        auto *next = to.data_ptr<uint8_t>();
        for (Tensors &list : outputs)
            next = unpack_bytes(list, next);
    };
    return gather_bytes({OpType::ALLGATHER_COALESCED, "tutti:all_gather", {}, outputs, finish, opts.timeout},
                        inputs, to);
}

// ---- one call a tensor, and one work

#if TUTTI_TORCH_2

WorkPtr ProcessGroupTutti::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::AllgatherOptions &opts) {
    static const char call[] = "all_gather_into_tensor_coalesced";
    if (outputs.size() != inputs.size() || inputs.empty())
        refuse(c10::str(call, ": expected as many outputs as inputs, got ", outputs.size(), " and ", inputs.size()));
    Tensors from, to, kept;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_parts(outputs[i], inputs[i], getSize(), call, c10::str("output ", i));
        from.push_back(packed(inputs[i]));
        to.push_back(room_for(outputs[i]));
        kept.insert(kept.end(), {from[i], to[i]});
    }
    return start_many({OpType::ALLGATHER_INTO_TENSOR_COALESCED, "tutti:all_gather_into_tensor_coalesced", kept,
                       {outputs}, copy_back(outputs, to), opts.timeout},
                      inputs, from.size(),
                      [&](size_t i, tt_group *g, const Task &t, const CallSite &site, tt_work **handle) {
                          const Buffer b = moved(from[i]);
                          tt_all_gather_args a = TT_ARGS_INIT;
                          a.group = g;
                          a.send = b.data;
                          a.recv = to[i].data_ptr();
                          a.count = b.count;
                          a.dtype = b.dtype;
                          set_call_options(a, t.timeout, site, handle);
                          return tt_all_gather_with(&a, offsetof(tt_all_gather_args, tt_end));
                      });
}

WorkPtr ProcessGroupTutti::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::ReduceScatterOptions &opts) {
    static const char call[] = "reduce_scatter_tensor_coalesced";
    if (outputs.size() != inputs.size() || inputs.empty())
        refuse(c10::str(call, ": expected as many outputs as inputs, got ", outputs.size(), " and ", inputs.size()));
    const Reduction r = reduction(opts.reduceOp);
    Tensors from, to, kept;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_parts(inputs[i], outputs[i], getSize(), call, c10::str("input ", i));
        from.push_back(packed(inputs[i]));
        to.push_back(room_for(outputs[i]));
        reduced_dtype(to[i], call);
        kept.insert(kept.end(), {from[i], to[i]});
    }
    return start_many({OpType::REDUCE_SCATTER_TENSOR_COALESCED, "tutti:reduce_scatter_tensor_coalesced", kept,
                       {outputs}, copy_back(outputs, to), opts.timeout},
                      inputs, from.size(),
                      [&](size_t i, tt_group *g, const Task &t, const CallSite &site, tt_work **handle) {
                          const Buffer b = reduced(to[i], call);
                          tt_reduce_scatter_args a = TT_ARGS_INIT;
                          a.group = g;
                          a.send = from[i].data_ptr();
                          a.recv = b.data;
                          a.count = b.count;
                          a.dtype = b.dtype;
                          a.op = r.op;
                          a.factor = r.factor;
                          set_call_options(a, t.timeout, site, handle);
                          return tt_reduce_scatter_with(&a, offsetof(tt_reduce_scatter_args, tt_end));
                      });
}

#endif

} // namespace tutti_torch
