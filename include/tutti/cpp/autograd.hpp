/* tutti/cpp/autograd.hpp: backward, operators of one's own. */
#ifndef TUTTI_CPP_AUTOGRAD_HPP
#define TUTTI_CPP_AUTOGRAD_HPP

#include <tutti/autograd.h>
#include <tutti/cpp/tensor.hpp>

namespace tutti {

/* ---- backward */

/* Nothing is recorded in this thread until the enclosing block is left, as with TT_NO_GRAD. */
class no_grad {
  public:
    no_grad() : before_(tt_no_grad_begin()) {}
    ~no_grad() { tt_no_grad_end(before_); }
    no_grad(const no_grad &) = delete;
    no_grad &operator=(const no_grad &) = delete;

  private:
    bool before_;
};

/* The reverse, inside of the former. */
class enable_grad {
  public:
    enable_grad() : before_(tt_enable_grad_begin()) {}
    ~enable_grad() { tt_no_grad_end(before_); }
    enable_grad(const enable_grad &) = delete;
    enable_grad &operator=(const enable_grad &) = delete;

  private:
    bool before_;
};

/* What backward() left to do, from any thread: backward_deferred(rest). */
class deferred_backward {
  public:
    deferred_backward() = default;
    explicit deferred_backward(tt_deferred_backward *owned) : deferred_(owned) {}
    tt_deferred_backward *get() const noexcept { return deferred_.get(); }

  private:
    detail::handle<tt_deferred_backward, tt_deferred_backward_free> deferred_;
};

inline void backward_deferred(deferred_backward &deferred) {
    detail::then_rethrow([&] { check(tt_backward_deferred(deferred.get())); });
}

inline void tensor::backward(const backward_options &o) const {
    tt_deferred_backward *rest = nullptr;
    tt_backward_args a = TT_BACKWARD_ARGS_INIT;
    a.y = x_, a.gradient = o.gradient ? o.gradient->x_ : nullptr, a.retain_graph = o.retain_graph;
    a.inputs = o.inputs.data(), a.input_count = o.inputs.size(), a.deferred = o.deferred ? &rest : nullptr;
    detail::then_rethrow([&] { check(detail::call(tt_backward_with, a)); });
    if (o.deferred)
        *o.deferred = deferred_backward(rest);
}
inline void backward(const tensor &y, const backward_options &o = {}) { y.backward(o); }

inline void tensor::register_post_accumulate_grad_hook(grad_hook hook) {
    tt_register_post_accumulate_grad_hook_args a = TT_REGISTER_POST_ACCUMULATE_GRAD_HOOK_ARGS_INIT;
    a.x = x_, a.hook = [](tt_tensor *x, void *user) {
        return detail::guarded([&] {
            tensor leaf = lent(x);
            (*static_cast<grad_hook *>(user))(leaf);
        });
    };
    a.user = new grad_hook(std::move(hook)), a.destroy = detail::destroy<grad_hook>;
    check(detail::call(tt_register_post_accumulate_grad_hook_with, a));
}

/* The leaves that a pass from y would reach, lent. */
inline std::vector<tensor> reachable_leaves(const tensor &y) {
    std::int64_t n = tt_reachable_leaves(y.get(), nullptr, 0);
    std::vector<tt_tensor *> leaves(std::size_t(n < 0 ? 0 : n));
    if (n < 0 || tt_reachable_leaves(y.get(), leaves.data(), n) < 0)
        check(tt_last_status());
    return detail::lent(leaves.data(), n);
}

/* ---- autocast */

struct autocast_options {
    bool disabled = false, no_cache = false;
};

/* Operators choose their types until the enclosing block is left, as with TT_AUTOCAST: autocast low(TT_BF16). */
class autocast {
  public:
    explicit autocast(tt_dtype dtype, const autocast_options &o = {}) : before_(begin(dtype, o)) {}
    ~autocast() { tt_autocast_end(before_); }
    autocast(const autocast &) = delete;
    autocast &operator=(const autocast &) = delete;

  private:
    static int begin(tt_dtype dtype, const autocast_options &o) {
        tt_autocast_begin_args a = TT_AUTOCAST_BEGIN_ARGS_INIT;
        a.dtype = dtype, a.disabled = o.disabled, a.no_cache = o.no_cache;
        return detail::call(tt_autocast_begin_with, a);
    }
    int before_;
};

inline bool is_autocast_enabled() { return tt_is_autocast_enabled(); }
inline tt_dtype get_autocast_dtype() { return tt_get_autocast_dtype(); }
inline void clear_autocast_cache() { tt_clear_autocast_cache(); }

/* ---- anomaly mode, recomputation */

inline void set_detect_anomaly(bool on) { tt_set_detect_anomaly(on); }
inline bool is_anomaly_enabled() { return tt_is_anomaly_enabled(); }

/* What `forward` makes of the inputs (tensor(const std::vector<tensor> &)), run again in backward: it is borrowed until
 * then. */
template <class Forward, class... Tensors> tensor recompute(Forward &forward, const Tensors &...in) {
    tt_segment run = [](void *arg, tt_tensor *const *inputs, std::int64_t n) {
        tt_tensor *y = nullptr;
        tt_status status = detail::guarded([&] {
            detail::in_scope_of_c inside;
            y = tensor((*static_cast<Forward *>(arg))(detail::lent(inputs, n))).hand_over();
        });
        return status ? nullptr : y;
    };
    tt_tensor *raw[] = {in.get()...}, *y = nullptr;
    detail::then_rethrow([&] { y = tt_recompute_with(run, &forward, raw, sizeof...(in)); });
    return tensor(y);
}

/* ---- operators of one's own */

/* A recorded call of one, while its forward or backward runs. */
class node {
  public:
    explicit node(tt_node *borrowed) : node_(borrowed) {}
    tt_node *get() const noexcept { return node_; }

    /* In forward: keep x for backward, as number 0, 1, ...; `name` is for errors, and borrowed. */
    void save(const tensor &x, const char *name) { check(tt_node_save(node_, x.get(), name)); }

    /* In backward: what was saved; the gradient of an output, empty if it got none, which means zeros; whether an input
     * wants a gradient; here it is. */
    tensor saved(int i) const { return tensor::lent(check(tt_node_saved(node_, i))); }
    tensor grad(int output = 0) const { return tensor::lent(tt_node_grad(node_, output)); }
    bool wants(int input) const { return tt_node_wants(node_, input); }
    void give(int input, const tensor &gradient) { check(tt_node_give(node_, input, gradient.get())); }

  private:
    tt_node *node_;
};

namespace detail {

template <class Op, class = void> struct outputs_of { static constexpr int value = 1; };
template <class Op> struct outputs_of<Op, std::void_t<decltype(Op::outputs)>> {
    static constexpr int value = Op::outputs;
};
template <class Op, class = void> struct has_backward : std::false_type {};
template <class Op>
struct has_backward<Op, std::void_t<decltype(std::declval<Op &>().backward(std::declval<node &>()))>> : std::true_type {
};

/* What tt_apply_many() hands to forward. */
template <class Op> struct applied {
    const Op *op;
    std::int64_t inputs;
};

/* The functions of an operator. Each record has a copy of the Op; its state is a pointer to that. */
template <class Op> struct operator_functions {
    static Op *&of(tt_node *raw) { return *static_cast<Op **>(tt_node_state(raw)); }

    static tt_status forward(tt_node *raw, tt_tensor *const *in, tt_tensor **out) {
        return guarded([&] {
            in_scope_of_c inside;
            const auto *call = static_cast<const applied<Op> *>(tt_node_arg(raw));
            Op &op = *(of(raw) = new Op(*call->op));
            node n(raw);
            const std::vector<tensor> inputs = lent(in, call->inputs);
            if constexpr (outputs_of<Op>::value == 1) {
                out[0] = tensor(op.forward(n, inputs)).hand_over();
            } else {
                std::vector<tensor> outputs = op.forward(n, inputs);
                detail::hand_over(Op::name, outputs, out, outputs_of<Op>::value);
            }
        });
    }
    static tt_status backward(tt_node *raw) {
        return guarded([&] {
            in_scope_of_c inside;
            node n(raw);
            if constexpr (has_backward<Op>::value)
                of(raw)->backward(n);
        });
    }
    static void destroy(void *state) { delete *static_cast<Op **>(state); }

    static const tt_function *table() {
        static const tt_function function = [] {
            tt_function f = {};
            f.size = sizeof f, f.name = Op::name, f.forward = forward, f.destroy = destroy;
            f.backward = has_backward<Op>::value ? backward : nullptr;
            f.outputs = outputs_of<Op>::value, f.state_bytes = sizeof(Op *);
            return f;
        }();
        return &function;
    }
};

} // namespace detail

/* Run an operator of the program's own on tensors, and record it if one of them requires a gradient. An operator is a
 * class that can be copied; each record has a copy, whose members are what forward tells backward:
 *   struct swish {
 *       static constexpr const char *name = "swish";
 *       double b;
 *       tutti::tensor forward(tutti::node &node, const std::vector<tutti::tensor> &in);
 *       void backward(tutti::node &node);
 *   };
 *   tutti::tensor y = tutti::apply(swish{1.5}, x);
 * One without backward makes results that require no gradient. One with `static constexpr int outputs = 2` has a
 * forward that returns a std::vector of tensors, and so has apply(). nullptr is an input that is missing. */
template <class Op, class... X> auto apply(const Op &op, const X &...inputs) {
    tt_tensor *in[] = {tensor_ref(inputs).get()..., nullptr};
    const detail::applied<Op> call = {&op, std::int64_t(sizeof...(X))};
    tt_tensor *out[detail::outputs_of<Op>::value] = {};
    check(tt_apply_many(detail::operator_functions<Op>::table(), &call, in, call.inputs, out));
    if constexpr (detail::outputs_of<Op>::value == 1) {
        return tensor(out[0]);
    } else {
        std::vector<tensor> made;
        for (tt_tensor *x : out)
            made.emplace_back(x);
        return made;
    }
}

} // namespace tutti

#endif
