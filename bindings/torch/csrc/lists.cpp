// Collectives on lists of tensors. A list travels as one array, in a temporary tensor unless the list's tensors lie one
// after the other in memory already, as views of one tensor do.
#include "errors.hpp"
#include "process_group.hpp"

#include <cctype>

namespace tutti_torch {

using c10d::OpType;

namespace {

// A list of one tensor a rank; `name` is "input" or "output".
void check_list(const Tensors &list, const at::Tensor &like, int ranks, const char *call, const char *name) {
    if (static_cast<int>(list.size()) != ranks)
        refuse(c10::str(call, ": Incorrect ", name, " list size ", list.size(), ". ",
                        static_cast<char>(std::toupper(name[0])), name + 1, " list size should be ", ranks,
                        ", one tensor a rank"));
    check_types(list, like, call);
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
    Tensors parts;
    int64_t at = 0;
    for (const at::Tensor &x : list) {
        parts.push_back(f.array.narrow(0, at, x.numel()).view(x.sizes()));
        at += x.numel();
    }
    return copy_back(list, parts);
}

// Counts and offsets in the elements that travel: bytes, where Tutti has no such type.
void scale(std::vector<int64_t> &counts, const at::Tensor &x, const Buffer &b) {
    const int64_t unit = unit_of(x, b);
    for (int64_t &n : counts)
        n *= unit;
}

} // namespace

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
        check_sizes(list, input, "gather");
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
    Task task{OpType::SCATTER, "tutti:scatter", {to, output}, {outputs}, copy_back(output, to), opts.timeout};
    if (root) {
        Tensors &list = inputs[0];
        check_list(list, output, getSize(), "scatter", "input");
        check_sizes(list, output, "scatter");
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
        tt_reduce_scatter_args a = TT_ARGS_INIT;
        a.send = from.array.data_ptr();
        a.recv = to.data_ptr();
        a.count = output.numel();
        a.dtype = dtype;
        a.op = r.op;
        a.factor = r.factor;
        return start({OpType::REDUCE_SCATTER, "tutti:reduce_scatter", {from.array, to, output}, {outputs},
                      copy_back(output, to), opts.timeout},
                     list, a, tt_reduce_scatter_with);
    }
    Tensors parts; // of several sizes: one reduction to each rank, of a copy, as a root's buffer is overwritten
    for (const at::Tensor &x : list)
        parts.push_back(x.clone(at::MemoryFormat::Contiguous));
    auto finish = copy_back(output, parts[rank].view(output.sizes()));
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
                          set_call_options(a, t.timeout, site, handle);
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

} // namespace tutti_torch
