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

inline void checkpoint_save(const std::string &path, module &model, optimizer &opt, const tt_progress &progress) {
    check(tt_checkpoint_save(path.c_str(), model.get(), opt.get(), &progress));
}
/* Without an optimizer: the model's tensors alone. */
inline void checkpoint_save(const std::string &path, module &model, const tt_progress &progress = tutti::progress()) {
    check(tt_checkpoint_save(path.c_str(), model.get(), nullptr, &progress));
}
inline tt_progress checkpoint_load(const std::string &path, module &model) {
    tt_progress progress = TT_PROGRESS_INIT;
    check(tt_checkpoint_load(path.c_str(), model.get(), nullptr, &progress));
    return progress;
}
inline tt_progress checkpoint_load(const std::string &path, module &model, optimizer &opt) {
    tt_progress progress = TT_PROGRESS_INIT;
    check(tt_checkpoint_load(path.c_str(), model.get(), opt.get(), &progress));
    return progress;
}

} // namespace tutti

#endif
