/* tutti/cpp/nn.hpp: modules: trees of named parameters and buffers with a forward function. */
#ifndef TUTTI_CPP_NN_HPP
#define TUTTI_CPP_NN_HPP

#include <tutti/cpp/autograd.hpp>
#include <tutti/cpp/functional.hpp>
#include <tutti/nn.h>

namespace tutti {

/* ---- lists */

/* The tensor called `name`, lent; empty if there is none. */
inline tensor find(const tt_named_tensors *list, const std::string &name) {
    return tensor::lent(tt_named_tensors_find(list, name.c_str()));
}

/* A list of the program's own, of tensors that must outlive it, for calls that take one:
 *   sgd(named_tensors{{"w", w}, {"b", b}}, 0.1) */
class named_tensors {
  public:
    named_tensors() = default;
    named_tensors(std::initializer_list<std::pair<std::string, tensor_ref>> all) {
        for (const auto &[name, x] : all)
            add(name, x);
    }
    void add(const std::string &name, tensor_ref x) {
        names_.push_back(name);
        tensors_.push_back(x.get());
    }
    std::int64_t size() const noexcept { return std::int64_t(tensors_.size()); }
    operator const tt_named_tensors *() const {
        texts_ = detail::c_strings(names_);
        list_ = {sizeof list_, size(), texts_.data(), tensors_.data()};
        return &list_;
    }

  private:
    std::vector<std::string> names_;
    std::vector<tt_tensor *> tensors_;
    mutable std::vector<const char *> texts_;
    mutable tt_named_tensors list_ = {};
};

/* ---- modules */

class module;

/* Called before each forward of the module, and after it; may put other tensors into `inputs`, or `outputs`. What they
 * throw makes the forward fail. */
using forward_pre_hook = std::function<void(module &self, std::vector<tensor> &inputs)>;
using forward_hook = std::function<void(module &self, const std::vector<tensor> &inputs, std::vector<tensor> &outputs)>;

/* A module; the root of a tree frees it. One that was given to sequential() or add_module() belongs to its parent, and
 * child() lends it. */
class module {
  public:
    module() = default;
    explicit module(tt_module *owned) : owned_(check(owned)), module_(owned) {}
    /* What belongs to something else. */
    static module lent(tt_module *m) {
        tutti::module made;
        made.module_ = m;
        return made;
    }
    module(module &&other) noexcept { *this = std::move(other); }
    tutti::module &operator=(module &&other) noexcept {
        owned_ = std::move(other.owned_);
        module_ = std::exchange(other.module_, nullptr);
        return *this;
    }

    tt_module *get() const noexcept { return module_; }
    tt_module *release() noexcept {
        (void)owned_.release();
        return std::exchange(module_, nullptr);
    }

    tensor operator()(const tensor &x) const { return forward(x); }
    tensor forward(const tensor &x) const { return tensor::made_of(tt_module_forward(get(), x.get()), x.get()); }
    tensor recompute(const tensor &x) const { return tensor::made_of(tt_module_recompute(get(), x.get()), x.get()); }

    /* Several tensors to several: forward_many({x, h, c}, 2). */
    std::vector<tensor> forward_many(const tensor_list &inputs, std::int64_t output_count) const {
        std::vector<tt_tensor *> outputs(std::size_t(output_count < 0 ? 0 : output_count));
        check(tt_module_forward_many(get(), inputs.data(), inputs.size(), outputs.data(), output_count));
        std::vector<tensor> made;
        for (tt_tensor *x : outputs)
            made.push_back(own(x, inputs, made));
        return made;
    }

    /* Borrowed, until the tree changes. */
    const tt_named_tensors *parameters() const { return check(tt_module_parameters(get())); }
    const tt_named_tensors *buffers() const { return check(tt_module_buffers(get())); }
    const tt_named_tensors *state_dict() const { return check(tt_module_state_dict(get())); }
    const tt_named_modules *named_modules() const { return check(tt_module_named_modules(get())); }
    /* renames: {{"transformer.", ""}}; see nn.h. */
    void load_state_dict(const tt_named_tensors *state, bool strict = true,
                         const std::vector<std::pair<std::string, std::string>> &renames = {}) {
        std::vector<tt_rename> pairs;
        for (const auto &[from, to] : renames)
            pairs.push_back({from.c_str(), to.c_str()});
        tt_module_load_state_dict_args a = TT_MODULE_LOAD_STATE_DICT_ARGS_INIT;
        a.module = get(), a.state = state, a.not_strict = !strict;
        a.renames = detail::data_or_null(pairs), a.rename_count = std::int64_t(pairs.size());
        check(detail::call(tt_module_load_state_dict_with, a));
    }

    const char *class_name() const { return tt_module_class_name(get()); }
    std::int64_t child_count() const { return tt_module_child_count(get()); }
    tutti::module child(std::int64_t i) const { return lent(check(tt_module_child_at(get(), i))); }
    tutti::module child(const std::string &name) const { return lent(check(tt_module_child(get(), name.c_str()))); }
    std::string child_name(std::int64_t i) const {
        const char *name = tt_module_child_name(get(), i);
        return name ? name : "";
    }

    /* What is added becomes the module's; the result is it, lent. */
    tutti::module add_module(const std::string &name, module child) {
        tt_module *added = child.get();
        check(tt_module_add_module(get(), name.c_str(), child.release()));
        return lent(added);
    }
    tensor register_parameter(const std::string &name, tensor x) {
        check(tt_module_register_parameter(get(), name.c_str(), x.get()));
        return tensor::lent(x.release());
    }
    tensor register_buffer(const std::string &name, tensor x, bool non_persistent = false) {
        tt_module_register_buffer_args a = TT_MODULE_REGISTER_BUFFER_ARGS_INIT;
        a.module = get(), a.name = name.c_str(), a.buffer = x.get(), a.non_persistent = non_persistent;
        check(detail::call(tt_module_register_buffer_with, a));
        return tensor::lent(x.release());
    }

    void train() { tt_module_train(get()); }
    void eval() { tt_module_eval(get()); }
    bool training() const { return tt_module_training(get()); }
    void requires_grad_(bool requires_grad) { check(tt_module_requires_grad_(get(), requires_grad)); }
    void to(tt_dtype dtype) { check(tt_module_to(get(), dtype)); }
    void to(const tt_device *device) { check(tt_module_to_device(get(), device)); }

    /* A hook stays until it is removed, by the number that is returned, or until the module is freed. */
    inline std::int64_t register_forward_pre_hook(forward_pre_hook hook);
    inline std::int64_t register_forward_hook(forward_hook hook);
    void remove_hook(std::int64_t handle) { check(tt_module_remove_hook(get(), handle)); }

  private:
    /* An output that is an input or an earlier output is a view, so that each object owns its own. */
    static tensor own(tt_tensor *x, const tensor_list &inputs, const std::vector<tensor> &before) {
        bool known = false;
        for (std::int64_t i = 0; i < inputs.size(); i++)
            known = known || inputs.data()[i] == x;
        for (const tensor &other : before)
            known = known || other.get() == x;
        return known ? tensor::made_of(x, x) : tensor(x);
    }

    detail::handle<tt_module, tt_module_free> owned_;
    tt_module *module_ = nullptr;
};

inline std::int64_t module::register_forward_pre_hook(forward_pre_hook hook) {
    std::int64_t handle = 0;
    tt_module_register_forward_pre_hook_args a = TT_MODULE_REGISTER_FORWARD_PRE_HOOK_ARGS_INIT;
    a.handle = &handle, a.module = get();
    a.hook = [](tt_module *self, tt_tensor **inputs, std::int64_t n, void *user) {
        return detail::guarded([&] {
            tutti::module m = lent(self);
            std::vector<tensor> in = detail::lent(inputs, n);
            (*static_cast<forward_pre_hook *>(user))(m, in);
            detail::hand_over("a forward pre-hook", in, inputs, n);
        });
    };
    a.user = new forward_pre_hook(std::move(hook)), a.destroy = detail::destroy<forward_pre_hook>;
    check(detail::call(tt_module_register_forward_pre_hook_with, a));
    return handle;
}

inline std::int64_t module::register_forward_hook(forward_hook hook) {
    std::int64_t handle = 0;
    tt_module_register_forward_hook_args a = TT_MODULE_REGISTER_FORWARD_HOOK_ARGS_INIT;
    a.handle = &handle, a.module = get();
    a.hook = [](tt_module *self, tt_tensor *const *inputs, std::int64_t input_count, tt_tensor **outputs,
                std::int64_t output_count, void *user) {
        return detail::guarded([&] {
            tutti::module m = lent(self);
            const std::vector<tensor> in = detail::lent(inputs, input_count);
            std::vector<tensor> out = detail::lent(outputs, output_count);
            (*static_cast<forward_hook *>(user))(m, in, out);
            detail::hand_over("a forward hook", out, outputs, output_count);
        });
    };
    a.user = new forward_hook(std::move(hook)), a.destroy = detail::destroy<forward_hook>;
    check(detail::call(tt_module_register_forward_hook_with, a));
    return handle;
}

/* ---- containers */

namespace nn {

/* A module that is given to a container, with a name or without. */
class part {
  public:
    part(module &&given) : given_(std::move(given)) {}
    part(const char *name, module &&given) : name_(name), given_(std::move(given)) {}
    const char *name() const noexcept { return name_; }
    tt_module *release() const noexcept { return given_.release(); }

  private:
    const char *name_ = nullptr;
    mutable module given_;
};

} // namespace nn

namespace detail {

/* The container that `make` makes of these children; `who` begins errors. */
inline tt_module *contained(const char *who, decltype(&tt_nn_sequential_with) make,
                            std::initializer_list<nn::part> children) {
    std::vector<tt_module *> plain;
    std::vector<tt_named_child> named;
    plain.reserve(children.size()), named.reserve(children.size());
    bool names = children.size() > 0 && children.begin()->name();
    for (const nn::part &one : children)
        if (!one.name() == names)
            check(tt_fail(TT_ERR_INVALID, "%s: expected a name for all children or for none", who));
    for (const nn::part &one : children)
        if (names)
            named.push_back({one.name(), one.release()});
        else
            plain.push_back(one.release());
    tt_nn_sequential_args a = TT_NN_SEQUENTIAL_ARGS_INIT;
    a.children = names ? nullptr : data_or_null(plain), a.named = names ? named.data() : nullptr;
    a.count = std::int64_t(children.size());
    return call(make, a);
}

} // namespace detail

namespace nn {

/* nn::sequential{nn::linear(784, 512), nn::relu(), nn::linear(512, 10)}: in braces, which evaluate from left to right.
 * So initial weights are drawn in that order, as in C; parentheses, whose order is the compiler's, don't compile.
 * With names: nn::sequential{{"hidden", nn::linear(784, 512)}, {"out", nn::linear(512, 10)}}: all have one, or none. */
class sequential : public module {
  public:
    sequential(std::initializer_list<part> children)
        : module(detail::contained("sequential", tt_nn_sequential_with, children)) {}
};

/* nn::module_list blocks; blocks.append(nn::linear(4, 4)); nn::module_list{nn::linear(2, 3), nn::relu()} */
class module_list : public module {
  public:
    module_list() : module_list(std::initializer_list<part>{}) {}
    module_list(std::initializer_list<part> children)
        : module(detail::contained("module_list", tt_nn_module_list_with, children)) {}
    /* What is added becomes the list's; the result is it, lent. */
    module append(module given) {
        tt_module *added = given.get();
        check(tt_module_list_append(get(), given.release()));
        return lent(added);
    }
};

/* nn::module_dict{{"digit", nn::linear(64, 10)}, {"parity", nn::linear(64, 2)}} */
class module_dict : public module {
  public:
    module_dict() : module_dict(std::initializer_list<part>{}) {}
    module_dict(std::initializer_list<part> children)
        : module(detail::contained("module_dict", tt_nn_module_dict_with, children)) {}
};

} // namespace nn

/* ---- modules of one's own */

namespace detail {

template <class T, class = void> struct has_forward : std::false_type {};
template <class T>
struct has_forward<T, std::void_t<decltype(std::declval<T &>().forward(std::declval<const tensor &>()))>>
    : std::true_type {};
template <class T, class = void> struct has_forward_many : std::false_type {};
template <class T>
struct has_forward_many<
    T, std::void_t<decltype(std::declval<T &>().forward_many(std::declval<const std::vector<tensor> &>()))>>
    : std::true_type {};

} // namespace detail

/* What a module of the program's own derives from. It has a forward, a forward_many, or both, all public:
 *   struct residual : tutti::module_class<residual> {
 *       tutti::module expand, contract;
 *       residual(int width, int hidden)
 *           : module_class("Residual"), expand(add_module("expand", nn::linear(width, hidden))),
 *             contract(add_module("contract", nn::linear(hidden, width))) {}
 *       tutti::tensor forward(const tutti::tensor &x) { return x + contract(tutti::relu(expand(x))); }
 *   };
 *   tutti::module m = tutti::module_new<residual>(16, 32);
 * The module owns the object, and its children, parameters and buffers, which the object keeps lent. */
template <class T> class module_class {
  public:
    module_class(const module_class &) = delete;
    module_class &operator=(const module_class &) = delete;

    /* The module that this is the inside of. */
    tutti::module self() const { return module::lent(module_); }
    bool training() const { return tt_module_training(module_); }

    /* How many tensors forward_many takes and gives; T hides them with its own constants. 0: any number. */
    static constexpr std::int64_t inputs = 0, outputs = 0;

  protected:
    /* `name` is for errors. */
    explicit module_class(std::string name) : module_class(std::move(name), nullptr) {
        static_assert(detail::has_forward<T>::value || detail::has_forward_many<T>::value,
                      "expected a public forward(const tensor &) or forward_many(const std::vector<tensor> &)");
    }
    /* One that stands for `inner`: lists, state and training mode are that one's, and the forward where T has none. */
    module_class(std::string name, const module &inner) : module_class(std::move(name), check(inner.get())) {}
    ~module_class() {
        if (!given_) /* a constructor failed */
            tt_module_free(module_);
    }

    tutti::module add_module(const std::string &name, module child) {
        return self().add_module(name, std::move(child));
    }
    tensor register_parameter(const std::string &name, tensor x) {
        return self().register_parameter(name, std::move(x));
    }
    tensor register_buffer(const std::string &name, tensor x, bool non_persistent = false) {
        return self().register_buffer(name, std::move(x), non_persistent);
    }

  private:
    template <class U, class... Args> friend module module_new(Args &&...args);

    module_class(std::string name, tt_module *inner) : name_(std::move(name)), inner_(inner) {
        tt_module_class cls = {};
        cls.size = sizeof cls, cls.name = name_.c_str(), cls.destroy = destroy;
        if constexpr (detail::has_forward<T>::value)
            cls.forward = run;
        if constexpr (detail::has_forward_many<T>::value)
            cls.forward_many = run_many, cls.inputs = T::inputs, cls.outputs = T::outputs;
        if (inner)
            cls.wrapped = [](tt_module *m) { return of(m)->inner_; };
        module_ = check(tt_module_new(&cls, this));
    }

    static module_class *of(tt_module *m) { return static_cast<module_class *>(tt_module_user(m)); }
    static void destroy(tt_module *m) {
        if (of(m)->given_)
            delete static_cast<T *>(of(m));
    }
    static tt_tensor *run(tt_module *m, tt_tensor *x) {
        tt_tensor *y = nullptr;
        tt_status status = detail::guarded([&] {
            const tensor input = tensor::lent(x);
            y = tensor(static_cast<T *>(of(m))->forward(input)).hand_over();
        });
        return status == TT_OK ? y : nullptr;
    }
    static tt_status run_many(tt_module *m, tt_tensor *const *in, std::int64_t input_count, tt_tensor **out,
                              std::int64_t output_count) {
        return detail::guarded([&] {
            const std::vector<tensor> all = detail::lent(in, input_count);
            std::vector<tensor> made = static_cast<T *>(of(m))->forward_many(all);
            detail::hand_over(of(m)->name_.c_str(), made, out, output_count);
        });
    }

    std::string name_;
    tt_module *inner_;
    tt_module *module_ = nullptr;
    bool given_ = false; /* module_ owns this object */
};

/* Make a module of a class that derives from module_class. */
template <class T, class... Args> module module_new(Args &&...args) {
    T *made = new T(std::forward<Args>(args)...);
    module_class<T> *base = made;
    base->given_ = true;
    return module(base->module_);
}

} // namespace tutti

#include <tutti/cpp/layers.hpp>

#endif
