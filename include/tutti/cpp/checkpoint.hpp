/* tutti/cpp/checkpoint.hpp: tensors on disk, as safetensors, and what a training run needs to go on from there. */
#ifndef TUTTI_CPP_CHECKPOINT_HPP
#define TUTTI_CPP_CHECKPOINT_HPP

#include <tutti/checkpoint.h>
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
};

inline void checkpoint_save(const std::string &path, module &model, const checkpoint_parts &parts,
                            const tt_progress &progress) {
    tt_checkpoint_save_args a = TT_CHECKPOINT_SAVE_ARGS_INIT;
    a.path = path.c_str(), a.model = model.get(), a.progress = &progress;
    a.optimizer = parts.optim ? parts.optim->get() : nullptr;
    a.scheduler = parts.scheduler ? parts.scheduler->get() : nullptr;
    a.ema = parts.average ? parts.average->get() : nullptr;
    check(detail::call(tt_checkpoint_save_with, a));
}
inline void checkpoint_save(const std::string &path, module &model, optimizer &opt, const tt_progress &progress) {
    checkpoint_save(path, model, checkpoint_parts{&opt, nullptr, nullptr}, progress);
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
    check(detail::call(tt_checkpoint_load_with, a));
    return progress;
}
inline tt_progress checkpoint_load(const std::string &path, module &model) {
    return checkpoint_load(path, model, checkpoint_parts());
}
inline tt_progress checkpoint_load(const std::string &path, module &model, optimizer &opt) {
    return checkpoint_load(path, model, checkpoint_parts{&opt, nullptr, nullptr});
}

} // namespace tutti

#endif
