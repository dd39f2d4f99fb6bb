/* tutti/cpp/tensor.hpp: tensors, devices, scopes, threads, random numbers. */
#ifndef TUTTI_CPP_TENSOR_HPP
#define TUTTI_CPP_TENSOR_HPP

#include <algorithm>
#include <initializer_list>
#include <string>

#include <tutti/autograd.h>
#include <tutti/cpp/base.hpp>
#include <tutti/tensor.h>

namespace tutti {

/* ---- shapes and devices */

/* TT_SHAPE(20, 10) is shape(20, 10); shape() is a scalar's. */
template <class... N> constexpr tt_shape shape(N... sizes) {
    static_assert(sizeof...(N) <= TT_MAX_DIMS, "expected at most TT_MAX_DIMS dimensions");
    return tt_shape{int(sizeof...(N)), {std::int64_t(sizes)...}};
}

namespace detail {

/* A list of numbers as an argument. List is a C struct, which by itself would take {20, 10} for its members: 20
 * dimensions, of which the first is 10. */
template <class List, class Number> class number_list {
  public:
    number_list() : list_{} {}
    number_list(const List &list) : list_(list) {}
    number_list(std::initializer_list<Number> numbers) : list_{int(numbers.size()), {}} {
        if (numbers.size() > TT_MAX_DIMS)
            throw error(TT_ERR_INVALID, "expected at most " + std::to_string(TT_MAX_DIMS) + " dimensions, got " +
                                            std::to_string(numbers.size()));
        std::copy(numbers.begin(), numbers.end(), list_.dim);
    }
    operator List() const { return list_; }

  private:
    List list_;
};

} // namespace detail

/* shape(20, 10), {20, 10}, or the shape of a tensor. */
using size_list = detail::number_list<tt_shape, std::int64_t>;

/* dims(0, -1) or {0, -1}. */
using dim_list = detail::number_list<tt_dims, int>;

/* "cpu", "reference", and what else was loaded; lives as long as the process. */
inline const tt_device *device(const std::string &name) { return check(tt_device_get(name.c_str())); }
inline const tt_device *device(tt_device_type type, std::int64_t index) { return check(tt_device_of(type, index)); }
inline std::int64_t device_count(tt_device_type type) { return tt_device_count(type); }
inline void synchronize(const tt_device *device) { check(tt_device_synchronize(device)); }
inline void *device_stream(const tt_device *device) { return tt_device_stream(device); }
inline const char *device_name(const tt_device *device) { return tt_device_name(device); }

/* TT_DIMS(0, -1) is dims(0, -1). */
template <class... N> constexpr tt_dims dims(N... numbers) {
    static_assert(sizeof...(N) <= TT_MAX_DIMS, "expected at most TT_MAX_DIMS dimensions");
    return tt_dims{int(sizeof...(N)), {int(numbers)...}};
}

/* Which dimensions are reduced (none: all), and whether they stay, with size 1. */
struct reduction_options {
    dim_list dim;
    bool keepdim = false;
};

/* ---- scopes */

/* What this thread makes in the enclosing block is recycled when the block is left, as with TT_AUTO_SCOPE; a tensor
 * that shall live longer is kept by tensor::keep(). */
class scope {
  public:
    scope() : id_(tt_scope_begin()), before_(detail::open_scopes) {
        if (!id_)
            check(tt_last_status());
        detail::open_scopes++;
    }
    ~scope() {
        tt_scope_end(id_);
        detail::open_scopes = before_;
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    int id_, before_;
};

/* A scope for what doesn't nest (tt_scope_new()): what this thread makes between enter() and leave() lives until the
 * object is destroyed, which may be in another order than it was made in, and in another thread. */
class scope_object {
  public:
    scope_object() : scope_(check(tt_scope_new())) {}
    ~scope_object() { end(); }
    scope_object(scope_object &&other) noexcept
        : scope_(std::move(other.scope_)), entered_(std::exchange(other.entered_, false)) {}
    scope_object &operator=(scope_object &&other) noexcept {
        if (this != &other) {
            end();
            scope_ = std::move(other.scope_), entered_ = std::exchange(other.entered_, false);
        }
        return *this;
    }
    tt_scope *get() const noexcept { return scope_.get(); }
    void enter() {
        check(tt_scope_enter(get()));
        entered_ = true;
        detail::open_scopes++;
    }
    void leave() {
        check(tt_scope_leave(get()));
        entered_ = false;
        detail::open_scopes--;
    }

  private:
    void end() noexcept {
        if (entered_ && tt_scope_leave(get()) == TT_OK)
            detail::open_scopes--;
        scope_.reset();
    }
    detail::handle<tt_scope, tt_scope_free> scope_;
    bool entered_ = false;
};

/* ---- tensors */

/* A tensor that is lent for a call; an empty one and nullptr are "none". */
class tensor_ref {
  public:
    tensor_ref(const tensor &x) noexcept;
    tensor_ref(std::nullptr_t) noexcept : x_(nullptr) {}
    tt_tensor *get() const noexcept { return x_; }

  private:
    tt_tensor *x_;
};

/* Tensors that are lent for a call: {x, h, c}, or a std::vector of tensors. */
class tensor_list {
  public:
    tensor_list(std::initializer_list<tensor_ref> all) {
        for (const tensor_ref &x : all)
            all_.push_back(x.get());
    }
    tensor_list(const std::vector<tensor> &all);
    tt_tensor *const *data() const noexcept { return all_.empty() ? nullptr : all_.data(); }
    std::int64_t size() const noexcept { return std::int64_t(all_.size()); }

  private:
    std::vector<tt_tensor *> all_;
};

class deferred_backward;

struct backward_options {
    const tensor *gradient = nullptr;
    bool retain_graph = false;
    tensor_list inputs = {};               /* none: all leaves */
    deferred_backward *deferred = nullptr; /* not NULL: receives what is left to do for the other leaves */
};

/* Called when the gradient of leaf x is final; what it throws ends the pass. */
using grad_hook = std::function<void(tensor &x)>;

/* A tensor. It is freed with its last use; inside a scope the scope owns it; one that belongs to a module, a data set
 * or a loader is only lent. What a module or a hook makes on its way to a result belongs to the open scope alone, so a
 * training loop has a scope in each step. */
class tensor {
  public:
    tensor() = default;

    /* What a C call made just now. */
    explicit tensor(tt_tensor *made) : x_(check(made)) {
        if (!detail::open_scopes)
            owned_.reset(tt_keep(x_));
    }
    /* What a C call made of x, or x itself where there was nothing to do: then a view, so that each object owns its
     * own. */
    static tensor made_of(tt_tensor *made, tt_tensor *x) {
        return tensor(made == x && made ? tt_view(x, tt_tensor_shape(x)) : made);
    }
    /* What belongs to something else. */
    static tensor lent(tt_tensor *x) {
        tensor made;
        made.x_ = x;
        return made;
    }
    /* What the caller owns, whatever scope is open. */
    static tensor owned(tt_tensor *x) {
        tensor made = lent(check(x));
        made.owned_.reset(x);
        return made;
    }

    tensor(tensor &&other) noexcept { *this = std::move(other); }
    tensor &operator=(tensor &&other) noexcept {
        owned_ = std::move(other.owned_);
        x_ = std::exchange(other.x_, nullptr);
        return *this;
    }

    template <class T> static tensor from_data(const std::vector<T> &data, size_list shape) {
        const_buffer all(data);
        check_count("from_data", all.count, shape);
        return tensor(tt_from_data(all.data, shape, all.dtype));
    }
    /* Over memory of the program's, which must outlive every tensor that uses it. */
    static tensor from_blob(buffer memory, size_list shape) {
        check_count("from_blob", memory.count, shape);
        return tensor(tt_from_blob(memory.data, shape, memory.dtype));
    }

    tt_tensor *get() const noexcept { return x_; }
    explicit operator bool() const noexcept { return x_; }

    /* Take it out of its scope. */
    tensor &keep() {
        if (x_ && !owned_)
            owned_.reset(tt_keep(x_));
        return *this;
    }
    /* Give it to a C call that takes it over. */
    tt_tensor *release() noexcept {
        (void)owned_.release();
        return std::exchange(x_, nullptr);
    }
    /* Give it to C as the result of a callback: the open scope's, or the caller's where there is none. */
    tt_tensor *hand_over() {
        return owned_ && detail::open_scopes ? check(tt_view(x_, tt_tensor_shape(x_))) : release();
    }

    tt_dtype dtype() const { return tt_tensor_dtype(x_); }
    int dim() const { return tt_tensor_dim(x_); }
    std::int64_t size(int d) const { return tt_tensor_size(x_, d); }
    std::int64_t stride(int d) const { return tt_tensor_stride(x_, d); }
    std::int64_t numel() const { return tt_tensor_numel(x_); }
    tt_shape shape() const { return tt_tensor_shape(x_); }
    bool is_contiguous() const { return tt_is_contiguous(x_); }
    const tt_device *device() const { return tt_tensor_device(x_); }
    std::string describe() const {
        char text[160];
        return tt_tensor_describe(x_, text, sizeof text);
    }

    /* With its elements, as PyTorch prints it. */
    std::string text() const {
        std::size_t length = tt_tensor_text(x_, nullptr, 0);
        std::string text(length + 1, '\0');
        tt_tensor_text(x_, &text[0], text.size());
        text.resize(length);
        return text;
    }

    /* First element; for a contiguous tensor all, in row-major order. data_ptr() is of any element type. */
    template <class T> T *data() const {
        if (dtype_of<T>() != dtype())
            check(tt_fail(TT_ERR_DTYPE, "data: expected %s elements, but the tensor is %s",
                          tt_dtype_name(dtype_of<T>()), tt_dtype_name(dtype())));
        return static_cast<T *>(data_ptr());
    }
    void *data_ptr() const { return check(tt_tensor_data(x_)); }
    double item() const {
        double value = 0;
        check(tt_item(x_, &value));
        return value;
    }

    tensor view(size_list shape) const { return tensor(tt_view(x_, shape)); }
    tensor reshape(size_list shape) const { return made_of(tt_reshape(x_, shape), x_); }
    tensor flatten(int start_dim = 0) const { return made_of(tt_flatten(x_, start_dim), x_); }
    tensor transpose(int a, int b) const { return made_of(tt_transpose(x_, a, b), x_); }
    tensor narrow(int dim, std::int64_t start, std::int64_t length) const {
        return made_of(tt_narrow(x_, dim, start, length), x_);
    }
    tensor permute(size_list dims) const { return tensor(tt_permute(x_, dims)); }
    tensor movedim(int source, int destination) const { return tensor(tt_movedim(x_, source, destination)); }
    tensor expand(size_list shape) const { return tensor(tt_expand(x_, shape)); }
    tensor squeeze() const { return tensor(tt_squeeze_all(x_)); }
    tensor squeeze(int dim) const { return tensor(tt_squeeze(x_, dim)); }
    tensor unsqueeze(int dim) const { return tensor(tt_unsqueeze(x_, dim)); }
    tensor slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const {
        return tensor(tt_slice(x_, dim, start, end, step));
    }
    tensor select(int dim, std::int64_t index) const { return tensor(tt_select(x_, dim, index)); }
    inline std::vector<tensor> split(std::int64_t split_size, int dim = 0) const;
    inline std::vector<tensor> chunk(std::int64_t chunks, int dim = 0) const;
    inline std::vector<tensor> unbind(int dim = 0) const;
    tensor contiguous() const { return made_of(tt_contiguous(x_), x_); }
    tensor to(tt_dtype dtype) const { return made_of(tt_to(x_, dtype), x_); }
    tensor to(const tt_device *device) const { return made_of(tt_to_device(x_, device), x_); }
    tensor to(tt_memory_format format) const { return made_of(tt_to_memory_format(x_, format), x_); }
    tensor clone() const { return tensor(tt_clone(x_)); }
    tensor detach() const { return made_of(tt_detach(x_), x_); }
    tensor argmax(int dim) const { return tensor(tt_argmax(x_, dim)); }
    void copy_(const tensor &from) { check(tt_copy(x_, from.x_)); }
    tensor &uniform_(double low, double high, tt_generator *generator = nullptr) {
        check(tt_uniform_(x_, low, high, generator));
        return *this;
    }
    tensor &normal_(double mean, double std, tt_generator *generator = nullptr) {
        check(tt_normal_(x_, mean, std, generator));
        return *this;
    }

    /* Gradients: autograd.h. */
    tensor &requires_grad_(bool requires_grad = true) {
        check(tt_requires_grad_(x_, requires_grad));
        return *this;
    }
    bool requires_grad() const { return tt_requires_grad(x_); }
    /* Empty: none was computed. */
    tensor grad() const { return lent(tt_grad(x_)); }
    tensor sparse_grad_indices() const { return lent(tt_sparse_grad_indices(x_)); }
    tensor sparse_grad_values() const { return lent(tt_sparse_grad_values(x_)); }
    void zero_grad() { tt_zero_grad(x_); }
    inline void backward(const backward_options &o = {}) const;
    inline void register_post_accumulate_grad_hook(grad_hook hook);

  private:
    static void check_count(const char *name, std::int64_t given, const tt_shape &shape) {
        std::int64_t wanted = 1;
        for (int d = 0; d < shape.ndim; d++)
            wanted *= shape.dim[d];
        if (wanted != given)
            check(tt_fail(TT_ERR_SHAPE, "%s: the shape has %lld elements, but %lld were given", name,
                          static_cast<long long>(wanted), static_cast<long long>(given)));
    }

    detail::handle<tt_tensor, tt_tensor_free> owned_;
    tt_tensor *x_ = nullptr;
};

inline tensor_ref::tensor_ref(const tensor &x) noexcept : x_(x.get()) {}
inline tensor_list::tensor_list(const std::vector<tensor> &all) {
    for (const tensor &x : all)
        all_.push_back(x.get());
}

namespace detail {

inline std::vector<tensor> lent(tt_tensor *const *all, std::int64_t n) {
    std::vector<tensor> made;
    for (std::int64_t i = 0; i < n; i++)
        made.push_back(tensor::lent(all[i]));
    return made;
}

/* Give a callback's results to C. Where it left a tensor that C lent it, nothing changes. */
inline void hand_over(const char *name, std::vector<tensor> &from, tt_tensor **to, std::int64_t n) {
    if (std::int64_t(from.size()) != n)
        check(tt_fail(TT_ERR_INVALID, "%s: expected %lld tensors, got %zu", name, static_cast<long long>(n),
                      from.size()));
    for (std::int64_t i = 0; i < n; i++)
        if (from[std::size_t(i)].get() != to[i])
            to[i] = from[std::size_t(i)].hand_over();
}

/* What a C call made just now, several at once. */
inline std::vector<tensor> all_made(const std::vector<tt_tensor *> &all) {
    std::vector<tensor> made;
    for (tt_tensor *x : all)
        made.push_back(tensor(x));
    return made;
}

} // namespace detail

inline std::vector<tensor> tensor::split(std::int64_t split_size, int dim) const {
    std::int64_t n = size(dim);
    std::vector<tt_tensor *> out(std::size_t(split_size > 0 && n ? (n - 1) / split_size + 1 : 1));
    check(tt_split(out.data(), std::int64_t(out.size()), x_, split_size, dim));
    return detail::all_made(out);
}
/* At most this many, as in PyTorch. */
inline std::vector<tensor> tensor::chunk(std::int64_t chunks, int dim) const {
    std::int64_t n = size(dim), each = chunks > 0 ? n / chunks + (n % chunks != 0) : 0;
    std::int64_t made = each > 0 ? (n - 1) / each + 1 : chunks;
    std::vector<tt_tensor *> out(std::size_t(made > 0 ? made : 1));
    check(tt_chunk(out.data(), made, x_, dim));
    return detail::all_made(out);
}
inline std::vector<tensor> tensor::unbind(int dim) const {
    std::vector<tt_tensor *> out(std::size_t(size(dim)) + 1);
    check(tt_unbind(out.data(), size(dim), x_, dim));
    return detail::all_made({out.begin(), out.end() - 1});
}

/* ---- making tensors */

template <class T> tensor from_data(const std::vector<T> &data, size_list shape) {
    return tensor::from_data(data, shape);
}
inline tensor from_blob(buffer memory, size_list shape) { return tensor::from_blob(memory, shape); }
inline tensor empty(size_list shape, tt_dtype dtype = TT_F32) { return tensor(tt_empty(shape, dtype)); }
inline tensor empty_like(const tensor &x) { return tensor(tt_empty_like(x.get())); }
inline tensor zeros(size_list shape, tt_dtype dtype = TT_F32) { return tensor(tt_zeros(shape, dtype)); }
inline tensor ones(size_list shape, tt_dtype dtype = TT_F32) { return tensor(tt_ones(shape, dtype)); }
inline tensor full(size_list shape, double value, tt_dtype dtype = TT_F32) {
    return tensor(tt_full(shape, dtype, value));
}
inline tensor arange(std::int64_t n) { return tensor(tt_arange(n)); }
inline tensor arange(double start, double end, double step = 1, tt_dtype dtype = TT_F32) {
    return tensor(tt_arange_from(start, end, step, dtype));
}
inline tensor linspace(double start, double end, std::int64_t steps, tt_dtype dtype = TT_F32) {
    return tensor(tt_linspace(start, end, steps, dtype));
}
inline tensor eye(std::int64_t n, std::int64_t m, tt_dtype dtype = TT_F32) { return tensor(tt_eye(n, m, dtype)); }
inline tensor eye(std::int64_t n, tt_dtype dtype = TT_F32) { return eye(n, n, dtype); }
inline tensor zeros_like(const tensor &x) { return tensor(tt_zeros_like(x.get())); }
inline tensor ones_like(const tensor &x) { return tensor(tt_ones_like(x.get())); }
inline tensor full_like(const tensor &x, double value) { return tensor(tt_full_like(x.get(), value)); }
inline tensor one_hot(const tensor &x, std::int64_t num_classes) { return tensor(tt_one_hot(x.get(), num_classes)); }
inline tensor any(const tensor &x, const reduction_options &o = {}) {
    tt_any_args a = TT_ANY_ARGS_INIT;
    a.x = x.get(), a.dim = o.dim, a.keepdim = o.keepdim;
    return tensor(detail::call(tt_any_with, a));
}
inline tensor all(const tensor &x, const reduction_options &o = {}) {
    tt_any_args a = TT_ANY_ARGS_INIT;
    a.x = x.get(), a.dim = o.dim, a.keepdim = o.keepdim;
    return tensor(detail::call(tt_all_with, a));
}
/* Element by element: bools. */
inline tensor eq(const tensor &a, const tensor &b) { return tensor(tt_eq(a.get(), b.get())); }
inline tensor eq(const tensor &x, double number) { return tensor(tt_eq_scalar(x.get(), number)); }
inline tensor ne(const tensor &a, const tensor &b) { return tensor(tt_ne(a.get(), b.get())); }
inline tensor ne(const tensor &x, double number) { return tensor(tt_ne_scalar(x.get(), number)); }
inline tensor lt(const tensor &a, const tensor &b) { return tensor(tt_lt(a.get(), b.get())); }
inline tensor lt(const tensor &x, double number) { return tensor(tt_lt_scalar(x.get(), number)); }
inline tensor le(const tensor &a, const tensor &b) { return tensor(tt_le(a.get(), b.get())); }
inline tensor le(const tensor &x, double number) { return tensor(tt_le_scalar(x.get(), number)); }
inline tensor gt(const tensor &a, const tensor &b) { return tensor(tt_gt(a.get(), b.get())); }
inline tensor gt(const tensor &x, double number) { return tensor(tt_gt_scalar(x.get(), number)); }
inline tensor ge(const tensor &a, const tensor &b) { return tensor(tt_ge(a.get(), b.get())); }
inline tensor ge(const tensor &x, double number) { return tensor(tt_ge_scalar(x.get(), number)); }
inline bool equal(const tensor &a, const tensor &b) { return tt_equal(a.get(), b.get()); }

/* ---- threads */

inline void set_num_threads(int threads) { check(tt_set_num_threads(threads)); }
inline int get_num_threads() { return tt_get_num_threads(); }

/* ---- random numbers */

/* A generator of one's own, or the thread's: default_generator(). Stands where a C call takes one. */
class generator {
  public:
    explicit generator(std::uint64_t seed) : owned_(check(tt_generator_new(seed))) {}
    static generator lent(tt_generator *g) { return generator(g); }
    tt_generator *get() const noexcept { return owned_ ? owned_.get() : lent_; }
    operator tt_generator *() const noexcept { return get(); }
    void seed(std::uint64_t seed) { tt_generator_seed(get(), seed); }
    std::uint32_t random() { return tt_generator_random(get()); }
    std::uint64_t random64() { return tt_generator_random64(get()); }
    tensor get_state() const { return tensor(tt_generator_get_state(get())); }
    void set_state(const tensor &state) { check(tt_generator_set_state(get(), state.get())); }

  private:
    explicit generator(tt_generator *g) : lent_(g) {}
    detail::handle<tt_generator, tt_generator_free> owned_;
    tt_generator *lent_ = nullptr;
};

inline generator default_generator() { return generator::lent(tt_default_generator()); }
inline void manual_seed(std::uint64_t seed) { tt_manual_seed(seed); }

inline tensor rand(size_list shape, tt_generator *generator = nullptr) { return tensor(tt_rand(shape, generator)); }
inline tensor randn(size_list shape, tt_generator *generator = nullptr) { return tensor(tt_randn(shape, generator)); }
inline tensor randint(std::int64_t low, std::int64_t high, size_list shape, tt_generator *generator = nullptr) {
    return tensor(tt_randint(low, high, shape, generator));
}
inline std::vector<std::int64_t> randperm(std::int64_t n, tt_generator *generator = nullptr) {
    if (n < 0)
        check(tt_fail(TT_ERR_INVALID, "randperm: expected a number of elements, got %lld", static_cast<long long>(n)));
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    tt_randperm(order.data(), n, generator);
    return order;
}

} // namespace tutti

#endif
