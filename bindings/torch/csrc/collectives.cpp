// Collectives on single tensors.
#include "errors.hpp"
#include "process_group.hpp"

#include <numeric>

namespace tutti_torch {

using c10d::OpType;

// Several tensors of a rank get the same.
static std::function<void()> copy_to_all(const Tensors &list, const at::Tensor &from) {
    return list.size() == 1 ? copy_back(list[0], from) : copy_back(list, Tensors(list.size(), from));
}

// One tensor of all that a rank has of its own, for the list forms.
static at::Tensor folded(const Tensors &tensors, const c10d::ReduceOp &op) {
    const at::NoGradGuard plain;
    at::Tensor all = tensors[0].clone(at::MemoryFormat::Contiguous);
    for (size_t i = 1; i < tensors.size(); i++) {
        const at::Tensor &x = tensors[i];
        switch (op.op_) {
        case c10d::ReduceOp::SUM: all.add_(x); break;
        case c10d::ReduceOp::PRODUCT: all.mul_(x); break;
        case c10d::ReduceOp::MIN: at::minimum_out(all, all, x); break;
        case c10d::ReduceOp::MAX: at::maximum_out(all, all, x); break;
        case c10d::ReduceOp::BAND: all.bitwise_and_(x); break;
        case c10d::ReduceOp::BOR: all.bitwise_or_(x); break;
        case c10d::ReduceOp::BXOR: all.bitwise_xor_(x); break;
        default:
            refuse("all_reduce: several tensors a rank are reduced by SUM, PRODUCT, MIN, MAX, BAND, BOR or BXOR; "
                   "AVG and PREMUL_SUM take one tensor");
        }
    }
    return all;
}

bool ProcessGroupTutti::is_root(int64_t root, const char *call) const {
    if (root < 0 || root >= getSize())
        refuse(c10::str(call, ": invalid root rank ", root, ": expected 0 to ", getSize() - 1));
    return root == getRank();
}

WorkPtr ProcessGroupTutti::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) {
    const bool root = is_root(opts.rootRank, "broadcast");
    if (opts.rootTensor < 0 || opts.rootTensor >= static_cast<int64_t>(tensors.size()))
        refuse(c10::str("broadcast: invalid root tensor ", opts.rootTensor, " of a list of ", tensors.size()));
    check_alike(tensors, "broadcast");
    at::Tensor &x = tensors[opts.rootTensor];
    check_tensor(x, "broadcast");
    at::Tensor flat = packed(x);
    const Buffer b = moved(flat);
    tt_broadcast_args a = TT_ARGS_INIT;
    a.buf = b.data;
    a.count = b.count;
    a.dtype = b.dtype;
    a.root = static_cast<int>(opts.rootRank);
    const bool changes = !root || tensors.size() > 1;
    return start({OpType::BROADCAST, "tutti:broadcast", {flat, x}, {tensors},
                  changes ? copy_to_all(tensors, flat) : nullptr, opts.timeout},
                 tensors, a, tt_broadcast_with);
}

WorkPtr ProcessGroupTutti::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    check_alike(tensors, "all_reduce");
    if (tensors[0].layout() == at::kSparse)
        return allreduce_rows(tensors, opts);
    check_tensor(tensors[0], "all_reduce");
    at::Tensor flat = tensors.size() == 1 ? packed(tensors[0]) : folded(tensors, opts.reduceOp);
    const Buffer b = reduced(flat, "all_reduce");
    const Reduction r = reduction(opts.reduceOp);
    tt_all_reduce_args a = TT_ARGS_INIT;
    a.buf = b.data;
    a.count = b.count;
    a.dtype = b.dtype;
    a.op = r.op;
    a.factor = r.factor;
    return start({OpType::ALLREDUCE, "tutti:all_reduce", {flat}, {tensors}, copy_to_all(tensors, flat), opts.timeout},
                 tensors, a, tt_all_reduce_with);
}

WorkPtr ProcessGroupTutti::reduce(Tensors &tensors, const c10d::ReduceOptions &opts) {
    const bool root = is_root(opts.rootRank, "reduce");
    if (opts.rootTensor != 0)
        refuse(c10::str("reduce: invalid root tensor ", opts.rootTensor, ": expected 0, as there is one tensor"));
    at::Tensor &x = only(tensors, "reduce");
    at::Tensor flat = packed(x);
    const Buffer b = reduced(flat, "reduce");
    const Reduction r = reduction(opts.reduceOp);
    tt_reduce_args a = TT_ARGS_INIT;
    a.buf = b.data;
    a.count = b.count;
    a.dtype = b.dtype;
    a.op = r.op;
    a.factor = r.factor;
    a.root = static_cast<int>(opts.rootRank);
    return start({OpType::REDUCE, "tutti:reduce", {flat, x}, {tensors}, root ? copy_back(x, flat) : nullptr,
                  opts.timeout},
                 tensors, a, tt_reduce_with);
}

WorkPtr ProcessGroupTutti::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) {
    static const char call[] = "all_gather_into_tensor";
    check_parts(output, input, getSize(), call, "an output");
    at::Tensor from = packed(input), to = room_for(output);
    const Buffer b = moved(from);
    tt_all_gather_args a = TT_ARGS_INIT;
    a.send = b.data;
    a.recv = to.data_ptr();
    a.count = b.count;
    a.dtype = b.dtype;
    return start({OpType::_ALLGATHER_BASE, "tutti:all_gather_into_tensor", {from, to, output}, {{output}},
                  copy_back(output, to), opts.timeout},
                 {input}, a, tt_all_gather_with);
}

WorkPtr ProcessGroupTutti::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                const c10d::ReduceScatterOptions &opts) {
    static const char call[] = "reduce_scatter_tensor";
    check_parts(input, output, getSize(), call, "an input");
    at::Tensor from = packed(input), to = room_for(output);
    const Buffer b = reduced(to, call);
    const Reduction r = reduction(opts.reduceOp);
    tt_reduce_scatter_args a = TT_ARGS_INIT;
    a.send = from.data_ptr();
    a.recv = b.data;
    a.count = b.count;
    a.dtype = b.dtype;
    a.op = r.op;
    a.factor = r.factor;
    return start({OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter_tensor", {from, to, output}, {{output}},
                  copy_back(output, to), opts.timeout},
                 {input}, a, tt_reduce_scatter_with);
}

// Elements a rank from sizes in dimension 0; no sizes: equal parts.
static std::vector<int64_t> split_counts(const at::Tensor &x, const std::vector<int64_t> &splits, int ranks,
                                         const char *name) {
    const int64_t rows = x.dim() ? x.size(0) : 1, row = rows ? x.numel() / rows : 0;
    if (splits.empty()) {
        if (rows % ranks)
            refuse(c10::str("all_to_all_single: expected an ", name, " whose dimension 0 divides by ", ranks,
                            " ranks, or split sizes, got ", rows));
        return std::vector<int64_t>(ranks, rows / ranks * row);
    }
    const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    if (static_cast<int>(splits.size()) != ranks || sum != rows)
        refuse(c10::str("all_to_all_single: expected ", ranks, " ", name, " split sizes with a sum of ", rows, ", got ",
                        splits.size(), " with a sum of ", sum));
    for (int64_t n : splits)
        if (n < 0)
            refuse(c10::str("all_to_all_single: expected ", name, " split sizes, no negative ones, got ", n));
    std::vector<int64_t> counts;
    for (int64_t n : splits)
        counts.push_back(n * row);
    return counts;
}

WorkPtr ProcessGroupTutti::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                         std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts) {
    static const char call[] = "all_to_all_single";
    check_tensor(output, call);
    check_tensor(input, call);
    if (output.scalar_type() != input.scalar_type())
        refuse(c10::str(call, ": expected output and input of one element type, got ", output.scalar_type(), " and ",
                        input.scalar_type()));
    std::vector<int64_t> out = split_counts(output, output_splits, getSize(), "output");
    std::vector<int64_t> in = split_counts(input, input_splits, getSize(), "input");
    at::Tensor from = packed(input), to = room_for(output);
    const Buffer b = moved(from);
    const int64_t unit = unit_of(from, b);
    for (int64_t &n : out)
        n *= unit;
    for (int64_t &n : in)
        n *= unit;
    tt_all_to_all_v_args a = TT_ARGS_INIT;
    a.send = b.data;
    a.send_counts = in.data(); // lists are copied
    a.recv = to.data_ptr();
    a.recv_counts = out.data();
    a.dtype = b.dtype;
    return start({OpType::ALLTOALL_BASE, "tutti:all_to_all_single", {from, to, output}, {{output}},
                  copy_back(output, to), opts.timeout},
                 {input}, a, tt_all_to_all_v_with);
}

WorkPtr ProcessGroupTutti::barrier(const c10d::BarrierOptions &opts) {
    tt_barrier_args a = TT_ARGS_INIT;
    return start({OpType::BARRIER, "tutti:barrier", {}, {}, nullptr, opts.timeout}, {}, a, tt_barrier_with);
}

#if TUTTI_TORCH_2

WorkPtr ProcessGroupTutti::gather_into_tensor(at::Tensor &output, at::Tensor &input,
                                              const c10d::GatherOptions &opts) {
    static const char call[] = "gather_into_tensor";
    const bool root = is_root(opts.rootRank, call);
    check_tensor(input, call);
    at::Tensor from = packed(input), to;
    if (root) {
        check_parts(output, input, getSize(), call, "an output");
        to = room_for(output);
    }
    const Buffer b = moved(from);
    tt_gather_args a = TT_ARGS_INIT;
    a.send = b.data;
    a.recv = root ? to.data_ptr() : nullptr;
    a.count = b.count;
    a.dtype = b.dtype;
    a.root = static_cast<int>(opts.rootRank);
    Tensors outputs = root ? Tensors{output} : Tensors{};
    return start({OpType::GATHER, "tutti:gather_into_tensor", {from, to, output}, {outputs},
                  root ? copy_back(output, to) : nullptr, opts.timeout},
                 {input}, a, tt_gather_with);
}

#endif

} // namespace tutti_torch
