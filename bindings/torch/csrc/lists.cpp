// Collectives on lists of tensors. A list travels as one array, in a temporary tensor unless the list's tensors lie one
// after the other in memory already, as views of one tensor do.
#include "errors.hpp"
#include "process_group.hpp"

#include <cctype>
#include <cstring>

namespace tutti_torch {

using c10d::OpType;

namespace {

void check_types(const Tensors &list, const at::Tensor &like, const char *call) {
    for (size_t i = 0; i < list.size(); i++) {
        check_tensor(list[i], call);
        if (list[i].scalar_type() != like.scalar_type())
            refuse(c10::str(call, ": invalid tensor type at index ", i, ": expected ", like.scalar_type(), ", got ",
                            list[i].scalar_type()));
    }
}

// A list of one tensor a rank; `name` is "input" or "output".
void check_list(const Tensors &list, const at::Tensor &like, int ranks, const char *call, const char *name) {
    if (static_cast<int>(list.size()) != ranks)
        refuse(c10::str(call, ": Incorrect ", name, " list size ", list.size(), ". ",
                        static_cast<char>(std::toupper(name[0])), name + 1, " list size should be ", ranks,
                        ", one tensor a rank"));
    check_types(list, like, call);
}

void expect_sizes(const Tensors &list, const at::Tensor &like, const char *call) {
    for (size_t i = 0; i < list.size(); i++)
        if (list[i].numel() != like.numel())
            refuse(c10::str(call, ": invalid tensor size at index ", i, ": expected ", like.numel(),
                            " elements, got ", list[i].numel()));
}

bool is_even(const Tensors &list, const at::Tensor &like) {
    for (const at::Tensor &x : list)
        if (x.numel() != like.numel())
            return false;
    return true;
}

bool lies_flat(const Tensors &list) {
    const char *at = static_cast<const char *>(list[0].data_ptr());
    for (const at::Tensor &x : list) {
        if (!lies_packed(x) || x.data_ptr() != at)
            return false;
        at += x.nbytes();
    }
    return true;
}

std::vector<int64_t> counts_of(const Tensors &list) {
    std::vector<int64_t> counts;
    for (const at::Tensor &x : list)
        counts.push_back(x.numel());
    return counts;
}

int64_t sum_of(const std::vector<int64_t> &counts) {
    int64_t sum = 0;
    for (int64_t n : counts)
        sum += n;
    return sum;
}

// One array for all of a list.
struct Flat {
    at::Tensor array; // as many elements as the list has
    bool own;         // it is not the list's own memory
};

Flat flat_for(const Tensors &list) {
    if (lies_flat(list)) // a view that begins at the first one's storage offset
        return {at::from_blob(list[0].data_ptr(), {sum_of(counts_of(list))}, [keep = list](void *) {},
                              list[0].options()),
                false};
    return {at::empty({sum_of(counts_of(list))}, list[0].options().memory_format(at::MemoryFormat::Contiguous)), true};
}

Flat flat_with(const Tensors &list) {
    const at::NoGradGuard plain;
    Flat f = flat_for(list);
    int64_t at = 0;
    for (const at::Tensor &x : list) {
        if (f.own)
            f.array.narrow(0, at, x.numel()).copy_(x.reshape({-1}));
        at += x.numel();
    }
    return f;
}

// Give the list's tensors what has come.
std::function<void()> unpack(const Tensors &list, const Flat &f) {
    if (!f.own)
        return nullptr;
    return [list = Tensors(list), array = f.array]() mutable {
        int64_t at = 0;
        for (at::Tensor &x : list) {
            x.copy_(array.narrow(0, at, x.numel()).view(x.sizes()));
            at += x.numel();
        }
    };
}

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

// Counts and offsets in the elements that travel: bytes, where Tutti has no such type.
void scale(std::vector<int64_t> &counts, const at::Tensor &x, const Buffer &b) {
    const int64_t unit = unit_of(x, b);
    for (int64_t &n : counts)
        n *= unit;
}

} // namespace

// Several inputs a rank, each with an output list of its own: each list gets all inputs of all ranks.
WorkPtr ProcessGroupTutti::allgather_lists(std::vector<Tensors> &outputs, Tensors &inputs,
                                           const c10d::AllgatherOptions &opts) {
    static const char call[] = "all_gather";
    for (size_t i = 0; i < outputs.size(); i++) {
        check_types(outputs[i], inputs[0], call);
        expect_sizes(outputs[i], inputs[0], call);
    }
    at::Tensor to = at::empty({getSize() * bytes_of(inputs)}, at::kByte);
    auto finish = [outputs, to]() mutable {
        for (Tensors &list : outputs)
            unpack_bytes(list, to.data_ptr<uint8_t>());
    };
    return gather_bytes({OpType::ALLGATHER, "tutti:all_gather", {}, outputs, finish, opts.timeout}, inputs, to);
}

WorkPtr ProcessGroupTutti::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                     const c10d::AllgatherOptions &opts) {
    if (inputs.empty())
        refuse("all_gather: requires non-empty input tensor list");
    if (outputs.size() != inputs.size())
        refuse(c10::str("all_gather: requires input/output tensor lists to have the same length, got ", inputs.size(),
                        " and ", outputs.size()));
    for (size_t i = 0; i < outputs.size(); i++)
        if (outputs[i].size() != inputs.size() * getSize())
            refuse(c10::str("all_gather: invalid output tensor list at index ", i, ": expected one of ",
                            inputs.size() * getSize(), ", got one of ", outputs[i].size()));
    check_alike(inputs, "all_gather");
    at::Tensor &input = inputs[0];
    check_tensor(input, "all_gather");
    if (inputs.size() > 1)
        return allgather_lists(outputs, inputs, opts);
    Tensors &list = outputs[0];
    check_types(list, input, "all_gather");
    if (list[getRank()].numel() != input.numel())
        refuse(c10::str("all_gather: invalid tensor size at index ", getRank(), ", which is this rank's own: expected ",
                        "the input's ", input.numel(), " elements, got ", list[getRank()].numel()));
    at::Tensor from = packed(input);
    Flat to = flat_for(list);
    const Buffer b = moved(from), all = moved(to.array);
    Task task{OpType::ALLGATHER, "tutti:all_gather", list, outputs, unpack(list, to), opts.timeout};
    task.kept.push_back(from);
    task.kept.push_back(to.array);
    if (is_even(list, input)) {
        tt_all_gather_args a = TT_ARGS_INIT;
        a.send = b.data;
        a.recv = all.data;
        a.count = b.count;
        a.dtype = b.dtype;
        return start(std::move(task), inputs, a, tt_all_gather_with);
    }
    std::vector<int64_t> counts = counts_of(list);
    scale(counts, to.array, all);
    tt_all_gather_v_args a = TT_ARGS_INIT;
    a.send = b.data;
    a.recv = all.data;
    a.counts = counts.data(); // copied
    a.dtype = b.dtype;
    return start(std::move(task), inputs, a, tt_all_gather_v_with);
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

WorkPtr ProcessGroupTutti::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) {
    const bool root = is_root(opts.rootRank, "gather");
    at::Tensor &input = only(inputs, "gather", "input tensor list");
    if (root && outputs.size() != 1)
        refuse(c10::str("gather: requires a single-element output list on the root, got one of ", outputs.size()));
    if (!root && outputs.size() && !(outputs.size() == 1 && outputs[0].empty()))
        refuse(c10::str("gather: requires empty output on non-root, got ", outputs.size(), " lists"));
    at::Tensor from = packed(input);
    const Buffer b = moved(from);
    tt_gather_args a = TT_ARGS_INIT;
    a.send = b.data;
    a.count = b.count;
    a.dtype = b.dtype;
    a.root = static_cast<int>(opts.rootRank);
    Task task{OpType::GATHER, "tutti:gather", {from}, root ? outputs : std::vector<Tensors>{}, nullptr, opts.timeout};
    if (root) {
        Tensors &list = outputs[0];
        check_list(list, input, getSize(), "gather", "output");
        expect_sizes(list, input, "gather");
        Flat to = flat_for(list);
        a.recv = to.array.data_ptr();
        task.finish = unpack(list, to);
        task.kept.insert(task.kept.end(), list.begin(), list.end());
        task.kept.push_back(to.array);
    }
    return start(std::move(task), inputs, a, tt_gather_with);
}

WorkPtr ProcessGroupTutti::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts) {
    const bool root = is_root(opts.rootRank, "scatter");
    at::Tensor &output = only(outputs, "scatter", "output tensor list");
    if (root && inputs.size() != 1)
        refuse(c10::str("scatter: requires a single-element input list on the root, got one of ", inputs.size()));
    if (!root && inputs.size() && !(inputs.size() == 1 && inputs[0].empty()))
        refuse(c10::str("scatter: requires empty input on non-root, got ", inputs.size(), " lists"));
    at::Tensor to = room_for(output);
    const Buffer b = moved(to);
    tt_scatter_args a = TT_ARGS_INIT;
    a.recv = b.data;
    a.count = b.count;
    a.dtype = b.dtype;
    a.root = static_cast<int>(opts.rootRank);
    Task task{OpType::SCATTER, "tutti:scatter", {to, output}, {outputs}, nullptr, opts.timeout};
    if (!to.is_same(output))
        task.finish = [output, to]() mutable { output.copy_(to); };
    if (root) {
        Tensors &list = inputs[0];
        check_list(list, output, getSize(), "scatter", "input");
        expect_sizes(list, output, "scatter");
        Flat from = flat_with(list);
        a.send = from.array.data_ptr();
        task.kept.push_back(from.array);
    }
    return start(std::move(task), root ? inputs[0] : Tensors{}, a, tt_scatter_with);
}

WorkPtr ProcessGroupTutti::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                          const c10d::ReduceScatterOptions &opts) {
    static const char call[] = "reduce_scatter";
    at::Tensor &output = only(outputs, call);
    if (inputs.size() != 1)
        refuse(c10::str(call, ": expected one list of inputs, got ", inputs.size()));
    Tensors &list = inputs[0];
    check_list(list, output, getSize(), call, "input");
    const Reduction r = reduction(opts.reduceOp);
    const int rank = getRank();
    if (list[rank].numel() != output.numel())
        refuse(c10::str(call, ": expected input ", rank, ", which is reduced to this rank, to have the output's ",
                        output.numel(), " elements, got ", list[rank].numel()));
    const tt_dtype dtype = reduced_dtype(output, call);
    if (is_even(list, output)) {
        Flat from = flat_with(list);
        at::Tensor to = room_for(output);
        std::function<void()> finish;
        if (!to.is_same(output))
            finish = [output, to]() mutable { output.copy_(to); };
        tt_reduce_scatter_args a = TT_ARGS_INIT;
        a.send = from.array.data_ptr();
        a.recv = to.data_ptr();
        a.count = output.numel();
        a.dtype = dtype;
        a.op = r.op;
        a.factor = r.factor;
        return start({OpType::REDUCE_SCATTER, "tutti:reduce_scatter", {from.array, to, output}, {outputs}, finish,
                      opts.timeout},
                     list, a, tt_reduce_scatter_with);
    }
    Tensors parts; // of several sizes: one reduction to each rank, of a copy, as a root's buffer is overwritten
    for (const at::Tensor &x : list)
        parts.push_back(x.clone(at::MemoryFormat::Contiguous));
    auto finish = [output, mine = parts[rank]]() mutable { output.copy_(mine.view(output.sizes())); };
    Tensors kept = parts;
    kept.push_back(output);
    return start_many({OpType::REDUCE_SCATTER, "tutti:reduce_scatter", kept, {outputs}, finish, opts.timeout}, list,
                      parts.size(),
                      [&](size_t i, tt_group *g, const Task &t, const CallSite &site, tt_work **handle) {
                          tt_reduce_args a = TT_ARGS_INIT;
                          a.group = g;
                          a.buf = parts[i].data_ptr();
                          a.count = parts[i].numel();
                          a.dtype = dtype;
                          a.op = r.op;
                          a.factor = r.factor;
                          a.root = static_cast<int>(i);
                          set_call_options(a, t, site, handle);
                          return tt_reduce_with(&a, offsetof(tt_reduce_args, tt_end));
                      });
}

WorkPtr ProcessGroupTutti::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) {
    if (inputs.empty())
        refuse("all_to_all: expected lists of tensors, got an empty one");
    check_list(inputs, inputs[0], getSize(), "all_to_all", "input");
    check_list(outputs, inputs[0], getSize(), "all_to_all", "output");
    Flat from = flat_with(inputs), to = flat_for(outputs);
    const Buffer s = moved(from.array), d = moved(to.array);
    std::vector<int64_t> in = counts_of(inputs), out = counts_of(outputs);
    scale(in, from.array, s);
    scale(out, to.array, d);
    tt_all_to_all_v_args a = TT_ARGS_INIT;
    a.send = s.data;
    a.send_counts = in.data(); // both copied
    a.recv = d.data;
    a.recv_counts = out.data();
    a.dtype = s.dtype;
    Tensors kept = outputs;
    kept.push_back(from.array);
    kept.push_back(to.array);
    return start({OpType::ALLTOALL, "tutti:all_to_all", kept, {outputs}, unpack(outputs, to), opts.timeout}, inputs, a,
                 tt_all_to_all_v_with);
}

#if TUTTI_TORCH_2

WorkPtr ProcessGroupTutti::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::AllgatherOptions &opts) {
    static const char call[] = "all_gather_into_tensor_coalesced";
    if (outputs.size() != inputs.size() || inputs.empty())
        refuse(c10::str(call, ": expected as many outputs as inputs, got ", outputs.size(), " and ", inputs.size()));
    Tensors from, to, kept;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_tensor(outputs[i], call);
        check_tensor(inputs[i], call);
        if (outputs[i].numel() != inputs[i].numel() * getSize() || outputs[i].scalar_type() != inputs[i].scalar_type())
            refuse(c10::str(call, ": expected output ", i, " of ", inputs[i].numel() * getSize(), " elements of ",
                            inputs[i].scalar_type(), ", got ", outputs[i].numel(), " of ", outputs[i].scalar_type()));
        from.push_back(packed(inputs[i]));
        to.push_back(room_for(outputs[i]));
        kept.insert(kept.end(), {from[i], to[i]});
    }
    auto finish = [outputs, to]() mutable {
        for (size_t i = 0; i < to.size(); i++)
            if (!to[i].is_same(outputs[i]))
                outputs[i].copy_(to[i]);
    };
    return start_many({OpType::ALLGATHER_INTO_TENSOR_COALESCED, "tutti:all_gather_into_tensor_coalesced", kept,
                       {outputs}, finish, opts.timeout},
                      inputs, from.size(),
                      [&](size_t i, tt_group *g, const Task &t, const CallSite &site, tt_work **handle) {
                          const Buffer b = moved(from[i]);
                          tt_all_gather_args a = TT_ARGS_INIT;
                          a.group = g;
                          a.send = b.data;
                          a.recv = to[i].data_ptr();
                          a.count = b.count;
                          a.dtype = b.dtype;
                          set_call_options(a, t, site, handle);
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
        check_tensor(outputs[i], call);
        check_tensor(inputs[i], call);
        if (inputs[i].numel() != outputs[i].numel() * getSize() || outputs[i].scalar_type() != inputs[i].scalar_type())
            refuse(c10::str(call, ": expected input ", i, " of ", outputs[i].numel() * getSize(), " elements of ",
                            outputs[i].scalar_type(), ", got ", inputs[i].numel(), " of ", inputs[i].scalar_type()));
        from.push_back(packed(inputs[i]));
        to.push_back(room_for(outputs[i]));
        reduced_dtype(to[i], call);
        kept.insert(kept.end(), {from[i], to[i]});
    }
    auto finish = [outputs, to]() mutable {
        for (size_t i = 0; i < to.size(); i++)
            if (!to[i].is_same(outputs[i]))
                outputs[i].copy_(to[i]);
    };
    return start_many({OpType::REDUCE_SCATTER_TENSOR_COALESCED, "tutti:reduce_scatter_tensor_coalesced", kept,
                       {outputs}, finish, opts.timeout},
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
                          set_call_options(a, t, site, handle);
                          return tt_reduce_scatter_with(&a, offsetof(tt_reduce_scatter_args, tt_end));
                      });
}

#endif

} // namespace tutti_torch
