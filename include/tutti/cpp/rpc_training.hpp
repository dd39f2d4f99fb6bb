/* tutti/cpp/rpc_training.hpp: training over workers that call each other (rpc.hpp): tensors as values, distributed
 * autograd, distributed optimizers, remote modules.
 *
 *   static const tutti::rpc_function make("make_encoder", [] { return tutti::module(nn::linear(20, 10)); });
 *
 *   tutti::remote_module encoder(self, "worker1", "make_encoder");
 *   tutti::dist_optimizer sgd(self, encoder.parameters(), "sgd", {{"lr", 0.1}});
 *   for (each batch) {
 *       tutti::scope scope;
 *       tutti::dist_autograd context(self);
 *       tutti::tensor loss = tutti::mse_loss(encoder(x), y);
 *       context.backward({loss});
 *       sgd.step(context.id());
 *   }
 */
#ifndef TUTTI_CPP_RPC_TRAINING_HPP
#define TUTTI_CPP_RPC_TRAINING_HPP

#include <tutti/cpp/nn.hpp>
#include <tutti/cpp/optim.hpp>
#include <tutti/cpp/rpc.hpp>
#include <tutti/rpc_training.h>

namespace tutti {

/* ---- tensors as values */

/* An empty tensor is sent as none. The tensor of an argument, a const value or rref::local() belongs to that. */
template <> struct rpc_type<tensor> {
    static std::string name() { return "tensor"; }
    static tt_rpc_value lend(const tensor &x, rpc_lists &) { return tt_rpc_tensor(x.get()); }
    static tensor read(const tt_rpc_value &v) {
        detail::expect_rpc_kind(v, TT_RPC_TENSOR);
        return tensor::lent(tt_rpc_value_tensor(&v));
    }
    static tensor read(tt_rpc_value &v) {
        detail::expect_rpc_kind(v, TT_RPC_TENSOR);
        return tensor(tt_rpc_take_tensor(&v));
    }
};

/* ---- distributed autograd */

struct dist_autograd_backward_options {
    bool retain_graph = false;
    std::int64_t timeout_ms = 0;
};

/* Return the id of the context that this thread is in, also in a function that was called in one; 0: none. */
inline std::int64_t dist_autograd_current() { return tt_dist_autograd_current(); }
inline std::int64_t dist_autograd_context_count(const rpc &self) { return tt_dist_autograd_context_count(self.get()); }

inline void dist_autograd_backward(const rpc &self, std::int64_t context, const tensor_list &roots,
                                   const dist_autograd_backward_options &o = {}) {
    tt_dist_autograd_backward_args a = TT_DIST_AUTOGRAD_BACKWARD_ARGS_INIT;
    a.rpc = self.get(), a.context = context, a.roots = roots.data(), a.count = roots.size();
    a.retain_graph = o.retain_graph, a.timeout_ms = o.timeout_ms;
    detail::then_rethrow([&] { check(detail::call(tt_dist_autograd_backward_with, a)); });
}

/* Return the gradient of a leaf of this worker, which is valid until the context's next pass or its end; empty:
 * none. */
inline tensor dist_autograd_grad(const rpc &self, std::int64_t context, const tensor &leaf) {
    return tensor::lent(tt_dist_autograd_grad(self.get(), context, leaf.get()));
}

/* A context of distributed autograd. This thread is in it until end(), which throws errors, or until the object is
 * destroyed, which drops them. */
class dist_autograd {
  public:
    explicit dist_autograd(const rpc &self) : rpc_(self.get()) { check(tt_dist_autograd_begin(&id_, rpc_)); }
    ~dist_autograd() {
        if (id_)
            tt_ignore(tt_dist_autograd_end(rpc_, id_));
    }
    dist_autograd(const dist_autograd &) = delete;
    dist_autograd &operator=(const dist_autograd &) = delete;
    std::int64_t id() const noexcept { return id_; }
    void backward(const tensor_list &roots, const dist_autograd_backward_options &o = {}) {
        dist_autograd_backward(rpc::lent(rpc_), id_, roots, o);
    }
    tensor grad(const tensor &leaf) const { return dist_autograd_grad(rpc::lent(rpc_), id_, leaf); }
    void end() { check(tt_dist_autograd_end(rpc_, std::exchange(id_, 0))); }

  private:
    tt_rpc *rpc_;
    std::int64_t id_ = 0;
};

/* ---- distributed optimizers */

/* An optimizer of parameters of any workers: dist_optimizer sgd(self, params, "sgd", {{"lr", 0.1}}). The last argument
 * has the options that differ from PyTorch's defaults. */
class dist_optimizer {
  public:
    dist_optimizer(const rpc &self, const std::vector<rref> &params, const std::string &kind,
                   const std::vector<std::pair<std::string, double>> &options = {}) {
        std::vector<tt_rref *> all;
        for (const rref &one : params)
            all.push_back(one.get());
        std::vector<tt_option> list;
        for (const auto &[name, value] : options)
            list.push_back({name.c_str(), value});
        list.push_back({nullptr, 0});
        tt_dist_optimizer *made = nullptr;
        tt_dist_optimizer_new_args a = TT_DIST_OPTIMIZER_NEW_ARGS_INIT;
        a.out = &made, a.rpc = self.get(), a.params = detail::data_or_null(all), a.count = std::int64_t(all.size());
        a.kind = kind.c_str(), a.options = list.data();
        check(detail::call(tt_dist_optimizer_new_with, a));
        optimizer_.reset(made);
    }
    tt_dist_optimizer *get() const noexcept { return optimizer_.get(); }
    void step(std::int64_t context) { check(tt_dist_optimizer_step(get(), context)); }
    void set_option(const std::string &name, double value) {
        check(tt_dist_optimizer_set_option(get(), name.c_str(), value));
    }

  private:
    detail::handle<tt_dist_optimizer, tt_dist_optimizer_free> optimizer_;
};

/* ---- remote modules */

namespace detail {

/* A function that returns a module can make a remote_module. */
template <> struct rpc_result<module> {
    static std::string name() { return " -> any"; }
    static void give(rpc_call &call, module m) { check(tt_rpc_return_module(call.get(), m.release())); }
};

} // namespace detail

/* Return the module that a reference leads to, on its owner. It belongs to the reference. */
inline module local_module(const rref &r) { return module::lent(check(tt_rref_local_module(r.get()))); }

/* A module that a worker has. PyTorch: RemoteModule. */
class remote_module {
  public:
    remote_module(const rpc &self, const std::string &to, const std::string &function, const rpc_args &args = {}) {
        tt_remote_module *made = nullptr;
        tt_remote_module_new_args a = TT_REMOTE_MODULE_NEW_ARGS_INIT;
        a.out = &made, a.rpc = self.get(), a.to = to.c_str(), a.function = function.c_str(), a.args = args.get();
        check(detail::call(tt_remote_module_new_with, a));
        module_.reset(made);
    }
    tt_remote_module *get() const noexcept { return module_.get(); }
    tensor operator()(const tensor &x) const { return forward(x); }
    tensor forward(const tensor &x) const { return tensor(tt_remote_module_forward(get(), x.get())); }
    std::vector<tensor> forward_many(const tensor_list &inputs, std::int64_t output_count) const {
        std::vector<tt_tensor *> outputs(std::size_t(output_count < 0 ? 0 : output_count));
        check(tt_remote_module_forward_many(get(), inputs.data(), inputs.size(), outputs.data(), output_count));
        return detail::all_made(outputs);
    }
    /* Run the module without waiting: forward_async({x}, 1).value<std::vector<tensor>>(). The inputs must stay
     * unchanged until the future is done. */
    future forward_async(const tensor_list &inputs, std::int64_t output_count) const {
        tt_future *made = nullptr;
        check(tt_remote_module_forward_async(&made, get(), inputs.data(), inputs.size(), output_count));
        return future(made);
    }
    std::vector<rref> parameters() const {
        tt_rref **params = nullptr;
        std::int64_t n = 0;
        check(tt_remote_module_parameters(get(), &params, &n));
        std::vector<rref> all;
        for (std::int64_t i = 0; i < n; i++)
            all.push_back(rref(tt_rref_share(params[i])));
        tt_rrefs_free(params, n);
        return all;
    }
    void train(bool training = true) { check(tt_remote_module_train(get(), training)); }
    void eval() { train(false); }
    rref reference() const { return rref(tt_rref_share(tt_remote_module_rref(get()))); }

  private:
    detail::handle<tt_remote_module, tt_remote_module_free> module_;
};

} // namespace tutti

#endif
