/* tutti/cpp/checkpoint.hpp: tensors on disk, as safetensors or as PyTorch's .pt, and what a training run needs to go on
 * from there. */
#ifndef TUTTI_CPP_CHECKPOINT_HPP
#define TUTTI_CPP_CHECKPOINT_HPP

#include <tutti/checkpoint.h>
#include <tutti/cpp/amp.hpp>
#include <tutti/cpp/loader.hpp>
#include <tutti/cpp/nn.hpp>
#include <tutti/cpp/optim.hpp>

namespace tutti {

/* ---- safetensors files */

/* A file's tensors, sorted by name, and its metadata; all lent. */
class safetensors {
  public:
    explicit safetensors(tt_safetensors *owned) : file_(check(owned)) {}
    tt_safetensors *get() const noexcept { return file_.get(); }
    const tt_named_tensors *tensors() const { return check(tt_safetensors_tensors(get())); }
    /* NULL: there is no such key. */
    const char *metadata(const std::string &key) const { return tt_safetensors_metadata(get(), key.c_str()); }
    /* Names of what was left out; none unless that was asked for. */
    std::vector<std::string> skipped() const {
        std::int64_t count = 0;
        const char *const *names = tt_safetensors_skipped(get(), &count);
        return std::vector<std::string>(names, names + count);
    }

  private:
    detail::handle<tt_safetensors, tt_safetensors_free> file_;
};

/* skip_unsupported: leave out what there is no tensor for. */
inline safetensors safetensors_load(const std::string &path, bool skip_unsupported = false) {
    tt_safetensors *file = nullptr;
    tt_safetensors_load_args a = TT_SAFETENSORS_LOAD_ARGS_INIT;
    a.out = &file, a.path = path.c_str(), a.skip_unsupported = skip_unsupported;
    check(detail::call(tt_safetensors_load_with, a));
    return safetensors(file);
}
inline safetensors safetensors_parse(const void *data, std::size_t size, const std::string &name,
                                     bool skip_unsupported = false) {
    tt_safetensors *file = nullptr;
    tt_safetensors_parse_args a = TT_SAFETENSORS_PARSE_ARGS_INIT;
    a.out = &file, a.data = data, a.size = size, a.name = name.c_str(), a.skip_unsupported = skip_unsupported;
    check(detail::call(tt_safetensors_parse_with, a));
    return safetensors(file);
}
/* safetensors_save("w.safetensors", named_tensors{{"w", w}}, {{"note", "first"}}) */
inline void safetensors_save(const std::string &path, const tt_named_tensors *tensors,
                             const std::vector<std::pair<std::string, std::string>> &metadata = {}) {
    std::vector<tt_metadata> pairs;
    for (const auto &[key, value] : metadata)
        pairs.push_back({key.c_str(), value.c_str()});
    check(tt_safetensors_save(path.c_str(), tensors, detail::data_or_null(pairs), std::int64_t(pairs.size())));
}

/* max_shard_bytes: 0 is 5 GB. */
inline void safetensors_save_sharded(const std::string &path, const tt_named_tensors *tensors,
                                     std::uint64_t max_shard_bytes = 0) {
    tt_safetensors_save_sharded_args a = TT_SAFETENSORS_SAVE_SHARDED_ARGS_INIT;
    a.path = path.c_str(), a.tensors = tensors, a.max_shard_bytes = max_shard_bytes;
    check(detail::call(tt_safetensors_save_sharded_with, a));
}

/* ---- values, and PyTorch's .pt files */

/* A value that its tree lends; an empty one is "none": what was looked for is not there. */
class value_ref {
  public:
    value_ref(const tt_value *lent) noexcept : v_(lent) {}
    const tt_value *get() const noexcept { return v_; }
    explicit operator bool() const noexcept { return v_ != nullptr; }
    tt_value_type type() const { return tt_value_typeof(v_); }
    std::int64_t size() const { return tt_value_count(v_); }
    value_ref at(std::int64_t i) const { return check(tt_value_at(v_, i)); }
    value_ref key(std::int64_t i) const { return check(tt_value_key(v_, i)); }
    value_ref find(const std::string &key) const { return tt_value_find(v_, key.c_str()); }
    value_ref find(std::int64_t key) const { return tt_value_find_at(v_, key); }
    bool as_bool() const { return get_as<bool>(tt_value_get_bool); }
    std::int64_t as_int() const { return get_as<std::int64_t>(tt_value_get_int); }
    double as_float() const { return get_as<double>(tt_value_get_float); }
    tt_dtype as_dtype() const { return get_as<tt_dtype>(tt_value_get_dtype); }
    std::string as_string() const { return check(tt_value_string(v_)); }
    tensor as_tensor() const { return tensor::lent(check(tt_value_tensor(v_))); }
    /* All tensors below, under dotted names; lent. */
    const tt_named_tensors *tensors() const { return check(tt_value_tensors(v_)); }

  private:
    template <class T, class Getter> T get_as(Getter getter) const {
        T x{};
        check(getter(&x, v_));
        return x;
    }
    const tt_value *v_;
};

/* A tree of its own: value::dict().set("epoch", 3).set("model", model.state_dict()). A part is moved into its
 * container, which is filled before it becomes part of another. */
class value {
  public:
    value() : value(tt_value_of_none()) {}
    explicit value(tt_value *owned) : v_(check(owned)) {}
    value(bool x) : value(tt_value_of_bool(x)) {}
    value(int x) : value(tt_value_of_int(x)) {}
    value(std::int64_t x) : value(tt_value_of_int(x)) {}
    value(double x) : value(tt_value_of_float(x)) {}
    value(const char *text) : value(tt_value_of_string(text)) {}
    value(const std::string &text) : value(tt_value_of_string(text.c_str())) {}
    value(tt_dtype dtype) : value(tt_value_of_dtype(dtype)) {}
    value(const tensor &x) : value(tt_value_of_tensor(x.get())) {}
    value(const tt_named_tensors *tensors) : value(tt_value_of_tensors(tensors)) {}
    static value list() { return value(tt_value_list()); }
    static value tuple() { return value(tt_value_tuple()); }
    static value dict() { return value(tt_value_dict()); }

    tt_value *get() const noexcept { return v_.get(); }
    operator value_ref() const noexcept { return get(); }
    value_ref operator*() const noexcept { return get(); }
    value &append(value item) & { return check(tt_value_append(get(), item.v_.release())), *this; }
    value &set(const std::string &key, value item) & {
        return check(tt_value_set(get(), key.c_str(), item.v_.release())), *this;
    }
    value &set(std::int64_t key, value item) & { return check(tt_value_set_at(get(), key, item.v_.release())), *this; }
    value append(value item) && { return std::move(append(std::move(item))); }
    value set(const std::string &key, value item) && { return std::move(set(key, std::move(item))); }
    value set(std::int64_t key, value item) && { return std::move(set(key, std::move(item))); }

  private:
    detail::handle<tt_value, tt_value_free> v_;
};

/* An optimizer's state as PyTorch's Optimizer.state_dict() has it, and back. */
inline value optimizer_value(const optimizer &o) { return value(tt_value_of_optimizer(o.get())); }
inline void load_optimizer_value(const optimizer &o, value_ref state) {
    check(tt_optimizer_load_value(o.get(), state.get()));
}

inline value torch_load(const std::string &path) {
    tt_value *made = nullptr;
    check(tt_torch_load(&made, path.c_str()));
    return value(made);
}
inline value torch_parse(const void *data, std::size_t size, const std::string &name) {
    tt_value *made = nullptr;
    check(tt_torch_parse(&made, data, size, name.c_str()));
    return value(made);
}
inline void torch_save(const std::string &path, const value &what) { check(tt_torch_save(path.c_str(), what.get())); }

/* ---- training state */

inline tt_progress progress(std::int64_t epoch = 0, std::uint64_t sampler_seed = 0) {
    tt_progress made = TT_PROGRESS_INIT;
    made.epoch = epoch, made.sampler_seed = sampler_seed;
    return made;
}

inline void checkpoint_can_save(const std::string &path) { check(tt_checkpoint_can_save(path.c_str())); }

/* What a checkpoint holds beside the model: those that are NULL are left out. */
struct checkpoint_parts {
    optimizer *optim = nullptr;
    lr_scheduler *scheduler = nullptr;
    ema *average = nullptr;
    tutti::loader *loader = nullptr;
    tt_generator *generator = nullptr;
    grad_scaler *scaler = nullptr;
};

namespace detail {

inline tt_checkpoint_save_args save_args(const std::string &path, module &model, const checkpoint_parts &parts,
                                         const tt_progress &progress) {
    tt_checkpoint_save_args a = TT_CHECKPOINT_SAVE_ARGS_INIT;
    a.path = path.c_str(), a.model = model.get(), a.progress = &progress;
    a.optimizer = parts.optim ? parts.optim->get() : nullptr;
    a.scheduler = parts.scheduler ? parts.scheduler->get() : nullptr;
    a.ema = parts.average ? parts.average->get() : nullptr;
    a.loader = parts.loader ? parts.loader->get() : nullptr;
    a.generator = parts.generator;
    a.scaler = parts.scaler ? parts.scaler->get() : nullptr;
    return a;
}

} // namespace detail

inline void checkpoint_save(const std::string &path, module &model, const checkpoint_parts &parts,
                            const tt_progress &progress) {
    check(detail::call(tt_checkpoint_save_with, detail::save_args(path, model, parts, progress)));
}
inline void checkpoint_save(const std::string &path, module &model, optimizer &opt, const tt_progress &progress) {
    checkpoint_save(path, model, checkpoint_parts{&opt, nullptr, nullptr, nullptr}, progress);
}
/* Without an optimizer: the model's tensors alone. */
inline void checkpoint_save(const std::string &path, module &model, const tt_progress &progress = tutti::progress()) {
    checkpoint_save(path, model, checkpoint_parts(), progress);
}

inline tt_progress checkpoint_load(const std::string &path, module &model, const checkpoint_parts &parts) {
    tt_progress progress = TT_PROGRESS_INIT;
    tt_checkpoint_load_args a = TT_CHECKPOINT_LOAD_ARGS_INIT;
    a.path = path.c_str(), a.model = model.get(), a.progress = &progress;
    a.optimizer = parts.optim ? parts.optim->get() : nullptr;
    a.scheduler = parts.scheduler ? parts.scheduler->get() : nullptr;
    a.ema = parts.average ? parts.average->get() : nullptr;
    a.loader = parts.loader ? parts.loader->get() : nullptr;
    a.generator = parts.generator;
    a.scaler = parts.scaler ? parts.scaler->get() : nullptr;
    check(detail::call(tt_checkpoint_load_with, a));
    return progress;
}
/* How far a checkpoint's training was. */
inline tt_progress checkpoint_progress(const std::string &path) {
    tt_progress progress = TT_PROGRESS_INIT;
    check(tt_checkpoint_progress(path.c_str(), &progress));
    return progress;
}
inline tt_progress checkpoint_load(const std::string &path, module &model) {
    return checkpoint_load(path, model, checkpoint_parts());
}
inline tt_progress checkpoint_load(const std::string &path, module &model, optimizer &opt) {
    return checkpoint_load(path, model, checkpoint_parts{&opt, nullptr, nullptr, nullptr});
}

/* Saves beside training; its end waits for the last write. */
class checkpoint_saver {
  public:
    checkpoint_saver() : saver_(check(tt_checkpoint_saver_new())) {}
    void save(const std::string &path, module &model, const checkpoint_parts &parts, const tt_progress &progress) {
        tt_checkpoint_save_args a = detail::save_args(path, model, parts, progress);
        check(tt_checkpoint_saver_save_with(saver_.get(), &a, offsetof(tt_checkpoint_save_args, tt_end)));
    }
    void save(const std::string &path, module &model, const tt_progress &progress = tutti::progress()) {
        save(path, model, checkpoint_parts(), progress);
    }
    void wait() { check(tt_checkpoint_saver_wait(saver_.get())); }

  private:
    detail::handle<tt_checkpoint_saver, tt_checkpoint_saver_free> saver_;
};

} // namespace tutti

#endif
