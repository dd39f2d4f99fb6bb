/* tutti/cpp/parallel.hpp: collectives on tensors, and training a module on all ranks of a group. */
#ifndef TUTTI_CPP_PARALLEL_HPP
#define TUTTI_CPP_PARALLEL_HPP

#include <tutti/cpp/comm.hpp>
#include <tutti/cpp/nn.hpp>
#include <tutti/cpp/optim.hpp>
#include <tutti/cpp/reducer.hpp>
#include <tutti/parallel.h>

namespace tutti {

/* ---- collectives on tensors */

inline void all_reduce(const group &g, tensor &x, tt_reduce_op op, const call_options &o = {},
                       site where = site::here()) {
    detail::on_group<tt_tensor_all_reduce_args>(
        tt_tensor_all_reduce_with, g, o, where,
        [&](tt_tensor_all_reduce_args &a) { a.x = x.get(), a.op = op, a.factor = o.factor; });
}

inline void reduce(const group &g, tensor &x, tt_reduce_op op, int root, const call_options &o = {},
                   site where = site::here()) {
    detail::on_group<tt_tensor_reduce_args>(tt_tensor_reduce_with, g, o, where, [&](tt_tensor_reduce_args &a) {
        a.x = x.get(), a.op = op, a.root = root, a.factor = o.factor;
    });
}

inline void broadcast(const group &g, tensor &x, int root, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_tensor_broadcast_args>(tt_tensor_broadcast_with, g, o, where,
                                               [&](tt_tensor_broadcast_args &a) { a.x = x.get(), a.root = root; });
}

inline void all_gather(const group &g, const tensor &x, tensor &out, const call_options &o = {},
                       site where = site::here()) {
    detail::on_group<tt_tensor_all_gather_args>(
        tt_tensor_all_gather_with, g, o, where,
        [&](tt_tensor_all_gather_args &a) { a.x = x.get(), a.out = out.get(); });
}

inline void gather(const group &g, const tensor &x, tensor &out, int root, const call_options &o = {},
                   site where = site::here()) {
    detail::on_group<tt_tensor_gather_args>(tt_tensor_gather_with, g, o, where, [&](tt_tensor_gather_args &a) {
        a.x = x.get(), a.out = out.get(), a.root = root;
    });
}

inline void scatter(const group &g, const tensor &x, tensor &out, int root, const call_options &o = {},
                    site where = site::here()) {
    detail::on_group<tt_tensor_scatter_args>(tt_tensor_scatter_with, g, o, where, [&](tt_tensor_scatter_args &a) {
        a.x = x.get(), a.out = out.get(), a.root = root;
    });
}

inline void reduce_scatter(const group &g, const tensor &x, tensor &out, tt_reduce_op op, const call_options &o = {},
                           site where = site::here()) {
    detail::on_group<tt_tensor_reduce_scatter_args>(
        tt_tensor_reduce_scatter_with, g, o, where,
        [&](tt_tensor_reduce_scatter_args &a) { a.x = x.get(), a.out = out.get(), a.op = op, a.factor = o.factor; });
}

inline void all_to_all(const group &g, const tensor &x, tensor &out, const call_options &o = {},
                       site where = site::here()) {
    detail::on_group<tt_tensor_all_to_all_args>(
        tt_tensor_all_to_all_with, g, o, where,
        [&](tt_tensor_all_to_all_args &a) { a.x = x.get(), a.out = out.get(); });
}

inline void send(const group &g, const tensor &x, int peer, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_tensor_send_args>(tt_tensor_send_with, g, o, where,
                                          [&](tt_tensor_send_args &a) { a.x = x.get(), a.peer = peer, a.tag = o.tag; });
}

inline void recv(const group &g, tensor &x, int peer, const call_options &o = {}, site where = site::here()) {
    detail::on_group<tt_tensor_recv_args>(tt_tensor_recv_with, g, o, where, [&](tt_tensor_recv_args &a) {
        a.x = x.get(), a.peer = peer, a.tag = o.tag, a.source = o.source;
    });
}

/* isend and irecv of tensors. */
inline work isend(const group &g, const tensor &x, int peer, call_options o = {}, site where = site::here()) {
    work made;
    o.work = &made;
    send(g, x, peer, o, where);
    return made;
}
inline work irecv(const group &g, tensor &x, int peer, call_options o = {}, site where = site::here()) {
    work made;
    o.work = &made;
    recv(g, x, peer, o, where);
    return made;
}

/* ---- distributed data-parallel training */

struct ddp_options {
    std::size_t bucket_cap_bytes = 0;
    bool no_broadcast_buffers = false;
    int virtual_ranks = 0;
    std::uint64_t shard_seed = 0;
    std::vector<std::string> ignored, delay_all_reduce;
};

/* Wrapper and wrapped are freed in any order, on all ranks alike. */
inline module ddp(module &wrapped, const group &g, const ddp_options &o = {}) {
    tt_ddp_args a = TT_DDP_ARGS_INIT;
    a.module = wrapped.get(), a.group = g.get();
    a.bucket_cap_bytes = o.bucket_cap_bytes, a.no_broadcast_buffers = o.no_broadcast_buffers;
    a.virtual_ranks = o.virtual_ranks, a.shard_seed = o.shard_seed;
    std::vector<const char *> ignored = detail::c_strings(o.ignored), delayed = detail::c_strings(o.delay_all_reduce);
    ignored.push_back(nullptr), delayed.push_back(nullptr);
    a.ignored = ignored.data(), a.delay_all_reduce = delayed.data();
    return module(detail::call(tt_ddp_with, a));
}

/* How many passes a step has on this rank, with virtual ranks, and the first one's shard; the steps done. */
struct shard_range {
    int first = 0, count = 0;
};
inline shard_range ddp_shards(module &ddp) {
    shard_range r;
    r.count = tt_ddp_shards(ddp.get(), &r.first);
    return r;
}
inline void ddp_set_step(module &ddp, std::int64_t step) { check(tt_ddp_set_step(ddp.get(), step)); }

/* The reducer behind a wrapper, lent, for tracing. */
inline reducer ddp_reducer(module &ddp) {
    tt_reducer *r = tt_ddp_reducer(ddp.get());
    if (!r)
        check(tt_fail(TT_ERR_INVALID, "ddp_reducer: expected a wrapper that ddp() made"));
    return reducer::lent(r);
}

inline tt_ddp_logging_data ddp_logging_data(module &ddp) {
    tt_ddp_logging_data data;
    check(tt_ddp_get_logging_data(ddp.get(), &data));
    return data;
}

/* Average a wrapper's gradients by this hook; one without `next`: as without a hook. */
inline void ddp_register_comm_hook(module &ddp, comm_hook hook) {
    tt_ddp_register_comm_hook_args a = TT_DDP_REGISTER_COMM_HOOK_ARGS_INIT;
    a.ddp = ddp.get();
    detail::give_hook(tt_ddp_register_comm_hook_with, a, std::move(hook));
}

/* Step an optimizer inside the wrapper's backward passes, until it is ended or the optimizer goes. */
inline void ddp_step_in_backward(module &ddp, optimizer &o, bool zero_grad = false) {
    tt_ddp_step_in_backward_args a = TT_DDP_STEP_IN_BACKWARD_ARGS_INIT;
    a.ddp = ddp.get(), a.optimizer = o.get(), a.zero_grad = zero_grad;
    check(detail::call(tt_ddp_step_in_backward_with, a));
}
inline void ddp_end_step_in_backward(module &ddp) {
    tt_ddp_step_in_backward_args a = TT_DDP_STEP_IN_BACKWARD_ARGS_INIT;
    a.ddp = ddp.get();
    check(detail::call(tt_ddp_step_in_backward_with, a));
}

/* Backward passes through a wrapper average nothing until the enclosing block is left. PyTorch: no_sync. */
class no_sync {
  public:
    explicit no_sync(module &ddp) : ddp_(ddp.get()) { check(tt_ddp_set_sync(ddp_, false)); }
    ~no_sync() { tt_ignore(tt_ddp_set_sync(ddp_, true)); }
    no_sync(const no_sync &) = delete;
    no_sync &operator=(const no_sync &) = delete;

  private:
    tt_module *ddp_;
};

} // namespace tutti

#endif
