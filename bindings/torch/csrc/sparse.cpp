// All-reduce of sparse tensors (COO): how many entries each rank has, then the entries of all, which each rank adds up
// in the order of ranks. It blocks, as what is sent second depends on what came first.
#include "errors.hpp"
#include "process_group.hpp"

namespace tutti_torch {

namespace {

const char call[] = "all_reduce of a sparse tensor";

// FNV-1a, the same on all ranks.
uint64_t hash_of(at::IntArrayRef sizes) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int64_t size : sizes)
        hash = (hash ^ static_cast<uint64_t>(size)) * UINT64_C(0x100000001b3);
    return hash;
}

} // namespace

// A call whose result is needed now. Its work keeps the tensors, also when a handler of a signal ends the wait.
template <class Args, class F> void ProcessGroupTutti::run(Tensors kept, Args args, F call_it,
                                                           std::chrono::milliseconds timeout) {
    start({c10d::OpType::ALLREDUCE, "tutti:all_reduce_sparse", std::move(kept), {}, nullptr, timeout}, {}, args,
          call_it)->wait();
}

// Gather each rank's `part`, of counts[r] rows of `row` elements, into one tensor.
at::Tensor ProcessGroupTutti::gather_rows(const at::Tensor &part, std::vector<int64_t> counts, int64_t row,
                                          std::chrono::milliseconds timeout) {
    int64_t rows = 0;
    for (int64_t &n : counts) {
        rows += n;
        n *= row;
    }
    at::Tensor all = at::empty({rows * row}, part.options());
    const Buffer from = moved(part), to = moved(all);
    for (int64_t &n : counts)
        n *= unit_of(part, from);
    tt_all_gather_v_args a = TT_ARGS_INIT;
    a.send = from.data;
    a.recv = to.data;
    a.counts = counts.data(); // copied
    a.dtype = from.dtype;
    run({part, all}, a, tt_all_gather_v_with, timeout);
    return all;
}

WorkPtr ProcessGroupTutti::done(Task task, const Tensors &profiled) {
    return start_many(std::move(task), profiled, 0,
                      [](size_t, tt_group *, const Task &, const CallSite &, tt_work **) { return TT_OK; });
}

// The tensors are alike; each gets the sum of all.
WorkPtr ProcessGroupTutti::allreduce_rows(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    if (opts.reduceOp != c10d::ReduceOp::SUM)
        refuse(c10::str(call, ": unsupported reduction operation: expected ReduceOp.SUM, got number ",
                        static_cast<int>(opts.reduceOp.op_)));
    const at::Tensor &x = tensors[0];
    if (x.device().type() != at::kCPU)
        refuse(c10::str(call, ": expected a tensor in the host's memory, got one on ", x.device()));
    const at::NoGradGuard plain;
    at::Tensor own = x;
    for (size_t i = 1; i < tensors.size(); i++)
        own = own + tensors[i];
    own = own.coalesce();
    at::Tensor indices = own.indices().t().contiguous(), values = own.values().contiguous(); // (n,D), (n,...)
    const int64_t dims = indices.size(1);
    constexpr int NUMBERS = 4; // entries, sparse dimensions, values of an entry, all sizes
    const at::Tensor numbers = at::empty({NUMBERS}, at::kLong), all = at::empty({NUMBERS * getSize()}, at::kLong);
    int64_t *mine = numbers.data_ptr<int64_t>();
    mine[0] = indices.size(0);
    mine[1] = dims;
    mine[2] = 1;
    mine[3] = static_cast<int64_t>(hash_of(x.sizes()));
    for (int64_t d = 1; d < values.dim(); d++)
        mine[2] *= values.size(d);
    std::vector<int64_t> counts;
    tt_all_gather_args a = TT_ARGS_INIT;
    a.send = mine;
    a.recv = all.data_ptr();
    a.count = NUMBERS;
    a.dtype = TT_I64;
    run({numbers, all}, a, tt_all_gather_with, opts.timeout);
    for (int r = 0; r < getSize(); r++) {
        const int64_t *theirs = all.data_ptr<int64_t>() + NUMBERS * r;
        if (theirs[1] != mine[1] || theirs[2] != mine[2] || theirs[3] != mine[3])
            refuse(c10::str(call, ": expected the same sizes on all ranks, got ", x.sizes(), " here with ", mine[1],
                            " sparse dimensions, and others with ", theirs[1], " on rank ", r));
        counts.push_back(theirs[0]);
    }
    at::Tensor all_indices = gather_rows(indices, counts, dims, opts.timeout);
    at::Tensor all_values = gather_rows(values, counts, mine[2], opts.timeout);
    std::vector<int64_t> shape(values.sizes().begin(), values.sizes().end());
    shape[0] = all_indices.numel() / std::max<int64_t>(dims, 1);
    at::Tensor sum =
        at::sparse_coo_tensor(all_indices.view({shape[0], dims}).t(), all_values.view(shape), x.sizes()).coalesce();
    for (at::Tensor &y : tensors)
        y.copy_(sum);
    return done({c10d::OpType::ALLREDUCE, "tutti:all_reduce_sparse", {}, {tensors}, nullptr, opts.timeout}, {});
}

#if TUTTI_TORCH_2
WorkPtr ProcessGroupTutti::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    check_alike(tensors, call);
    if (tensors[0].layout() != at::kSparse)
        refuse("all_reduce_sparse: expected sparse tensors, got dense ones");
    return allreduce_rows(tensors, opts);
}
#endif

} // namespace tutti_torch
