/* tutti/cpp/datasets.hpp: data in files of other programs: NumPy's arrays, and data sets that stand on files. */
#ifndef TUTTI_CPP_DATASETS_HPP
#define TUTTI_CPP_DATASETS_HPP

#include <tutti/cpp/data.hpp>
#include <tutti/datasets.h>

namespace tutti {

/* ---- NumPy's files */

/* A tensor of the caller's, whatever scope is open. */
inline tensor npy_read(const std::string &path) {
    tt_tensor *read = nullptr;
    check(tt_npy_read(&read, path.c_str()));
    return tensor::owned(read);
}
inline void npy_write(const tensor &x, const std::string &path) { check(tt_npy_write(x.get(), path.c_str())); }

/* A file's arrays, lent. */
class npz {
  public:
    explicit npz(tt_npz *owned) : file_(check(owned)) {}
    tt_npz *get() const noexcept { return file_.get(); }
    const tt_named_tensors *tensors() const { return check(tt_npz_tensors(get())); }

  private:
    detail::handle<tt_npz, tt_npz_free> file_;
};

inline npz npz_read(const std::string &path) {
    tt_npz *read = nullptr;
    check(tt_npz_read(&read, path.c_str()));
    return npz(read);
}
inline void npz_write(const std::string &path, const tt_named_tensors *tensors) {
    check(tt_npz_write(path.c_str(), tensors));
}

/* ---- classes */

/* Names of what targets number; none: empty. */
inline std::vector<std::string> classes(const dataset &set) {
    std::int64_t count = 0;
    const char *const *names = tt_dataset_classes(set.get(), &count);
    return std::vector<std::string>(names, names + count);
}

/* ---- CIFAR */

inline dataset cifar10(const std::string &dir, bool train) { return dataset(tt_cifar10(dir.c_str(), train)); }

/* coarse: targets are the superclasses. */
inline dataset cifar100(const std::string &dir, bool train, bool coarse = false) {
    tt_cifar100_args a = TT_CIFAR100_ARGS_INIT;
    a.dir = dir.c_str(), a.train = train, a.coarse = coarse;
    return dataset(detail::call(tt_cifar100_with, a));
}

/* ---- tokens */

struct token_dataset_options {
    tt_token_type type = TT_TOKEN_U16;
    std::int64_t stride = 0;
    std::int64_t vocab_size = 0;
};

inline dataset token_dataset(const std::string &path, std::int64_t block_size, const token_dataset_options &o = {}) {
    tt_token_dataset_args a = TT_TOKEN_DATASET_ARGS_INIT;
    a.path = path.c_str(), a.block_size = block_size;
    a.type = o.type, a.stride = o.stride, a.vocab_size = o.vocab_size;
    return dataset(detail::call(tt_token_dataset_with, a));
}

/* stride: 0 is block_size. */
inline dataset window_dataset(tensor tokens, std::int64_t block_size, std::int64_t stride = 0) {
    tokens.keep();
    tt_window_dataset_args a = TT_WINDOW_DATASET_ARGS_INIT;
    a.tokens = tokens.release(), a.block_size = block_size, a.stride = stride;
    return dataset(detail::call(tt_window_dataset_with, a));
}

/* ---- pictures */

/* A tensor of the caller's, whatever scope is open. */
inline tensor image_read(const std::string &path) {
    tt_tensor *read = nullptr;
    check(tt_image_read(&read, path.c_str()));
    return tensor::owned(read);
}
inline void image_write_png(const tensor &x, const std::string &path) {
    check(tt_image_write_png(x.get(), path.c_str()));
}

/* resize: 0 makes each picture height x width, whatever its proportions. */
inline dataset image_folder(const std::string &dir, std::int64_t height, std::int64_t width, std::int64_t resize = 0) {
    tt_image_folder_args a = TT_IMAGE_FOLDER_ARGS_INIT;
    a.dir = dir.c_str(), a.height = height, a.width = width, a.resize = resize;
    return dataset(detail::call(tt_image_folder_with, a));
}

/* ---- texts */

/* A tensor of the caller's, whatever scope is open. */
inline tensor bytes_read(const std::string &path) {
    tt_tensor *read = nullptr;
    check(tt_bytes_read(&read, path.c_str()));
    return tensor::owned(read);
}

inline void bytes_write(const tensor &x, const std::string &path) { check(tt_bytes_write(x.get(), path.c_str())); }

class tokenizer {
  public:
    explicit tokenizer(tt_tokenizer *owned) : tokenizer_(check(owned)) {}
    tt_tokenizer *get() const noexcept { return tokenizer_.get(); }
    std::int64_t size() const { return tt_tokenizer_size(get()); }
    /* -1: there is no such token. */
    std::int64_t find(const std::string &text) const { return tt_tokenizer_find(get(), text.data(), text.size()); }
    /* A tensor of the caller's, whatever scope is open. */
    tensor encode(const std::string &text) const {
        tt_tensor *tokens = nullptr;
        check(tt_tokenizer_encode(&tokens, get(), text.data(), text.size()));
        return tensor::owned(tokens);
    }
    std::string decode(const std::vector<std::int64_t> &tokens) const {
        std::size_t length = 0;
        std::int64_t n = std::int64_t(tokens.size());
        check(tt_tokenizer_decode(&length, get(), tokens.data(), n, nullptr, 0));
        std::string text(length, '\0');
        check(tt_tokenizer_decode(&length, get(), tokens.data(), n, text.data(), length));
        return text;
    }

  private:
    detail::handle<tt_tokenizer, tt_tokenizer_free> tokenizer_;
};

inline tokenizer char_vocab(const std::string &text) { return tokenizer(tt_char_vocab(text.data(), text.size())); }
inline tokenizer gpt2_tokenizer(const std::string &vocab_path, const std::string &merges_path) {
    return tokenizer(tt_gpt2_tokenizer(vocab_path.c_str(), merges_path.c_str()));
}

} // namespace tutti

#endif
