/* tutti/cpp/data.hpp: data sets. */
#ifndef TUTTI_CPP_DATA_HPP
#define TUTTI_CPP_DATA_HPP

#include <tutti/cpp/tensor.hpp>
#include <tutti/data.h>

namespace tutti {

/* ---- IDX files */

/* A tensor of the caller's, whatever scope is open. */
inline tensor idx_read(const std::string &path) {
    tt_tensor *read = nullptr;
    check(tt_idx_read(&read, path.c_str()));
    return tensor::owned(read);
}
inline void idx_write(const tensor &x, const std::string &path) { check(tt_idx_write(x.get(), path.c_str())); }

/* ---- data sets */

class dataset {
  public:
    explicit dataset(tt_dataset *owned) : dataset_(check(owned)) {}
    tt_dataset *get() const noexcept { return dataset_.get(); }
    std::int64_t size() const { return tt_dataset_size(get()); }
    tt_tensor_spec x() const { return tt_dataset_x(get()); }
    tt_tensor_spec y() const { return tt_dataset_y(get()); }

    /* Write one example to memory as large as the specs say. */
    void get_example(std::int64_t index, void *x, void *y = nullptr) { check((tt_dataset_get)(get(), index, x, y)); }
    /* All of a set that lies in memory, lent; empty for any other. */
    tensor inputs() const { return tensor::lent(tt_dataset_inputs(get())); }
    tensor targets() const { return tensor::lent(tt_dataset_targets(get())); }
    void normalize(double mean, double std) { check(tt_dataset_normalize(get(), mean, std)); }

  private:
    detail::handle<tt_dataset, tt_dataset_free> dataset_;
};

inline dataset digits(std::int64_t n, std::uint64_t seed) { return dataset(tt_digits(n, seed)); }
inline dataset mnist(const std::string &dir, bool train) { return dataset(tt_mnist(dir.c_str(), train)); }
inline dataset image_dataset(const std::string &images_path, const std::string &labels_path) {
    return dataset(tt_image_dataset(images_path.c_str(), labels_path.c_str()));
}
inline dataset tensor_dataset(tensor inputs, tensor targets = {}) {
    inputs.keep(), targets.keep();
    return dataset(tt_tensor_dataset(inputs.release(), targets.release()));
}
inline dataset subset(const dataset &base, std::int64_t begin, std::int64_t end) {
    return dataset(tt_subset(base.get(), begin, end));
}

/* The examples of one part after those of the other: concat_dataset({first, second}). */
inline dataset concat_dataset(const std::vector<std::reference_wrapper<const dataset>> &parts) {
    std::vector<tt_dataset *> all;
    for (const dataset &part : parts)
        all.push_back(part.get());
    return dataset(tt_concat_dataset(all.data(), std::int64_t(all.size())));
}

/* Write example `index` to x and y, as large as the specs say, and throw what goes wrong. The other writes n of them,
 * one behind the other. */
using dataset_get = std::function<void(std::int64_t index, void *x, void *y)>;
using dataset_get_batch = std::function<void(const std::int64_t *indices, std::int64_t n, void *x, void *y)>;

struct dataset_options {
    tt_tensor_spec y = {};            /* none: no targets */
    dataset_get_batch get_batch = {}; /* none: n calls of `get` */
    std::string name = {};            /* for errors */
    bool serial = false;              /* not in two threads at once */
};

namespace detail {
struct dataset_source {
    std::int64_t size;
    dataset_get get;
    dataset_options options;
};
} // namespace detail

/* A data set by callback: dataset_from(1000, get, tt_spec(TT_F32, shape(2)), {.y = tt_spec(TT_F32, shape(1))}). It owns
 * what the callbacks capture. */
inline dataset dataset_from(std::int64_t size, dataset_get get, tt_tensor_spec x, dataset_options o) {
    using source = detail::dataset_source;
    auto from = std::make_unique<source>(source{size, std::move(get), std::move(o)});
    tt_dataset_class cls = {};
    cls.name = from->options.name.empty() ? nullptr : from->options.name.c_str();
    cls.size = [](void *user) { return static_cast<source *>(user)->size; };
    cls.get = [](void *user, std::int64_t index, void *to_x, void *to_y) {
        return detail::guarded([&] { static_cast<source *>(user)->get(index, to_x, to_y); });
    };
    if (from->options.get_batch)
        cls.get_batch = [](void *user, const std::int64_t *indices, std::int64_t n, void *to_x, void *to_y) {
            return detail::guarded([&] { static_cast<source *>(user)->options.get_batch(indices, n, to_x, to_y); });
        };
    cls.destroy = detail::destroy<source>;
    cls.serial = from->options.serial;
    tt_dataset_new_args a = TT_DATASET_NEW_ARGS_INIT;
    a.cls = &cls, a.cls_size = sizeof cls, a.x = x, a.y = from->options.y, a.user = from.release();
    return dataset(detail::call(tt_dataset_new_with, a));
}
inline dataset dataset_from(std::int64_t size, dataset_get get, tt_tensor_spec x, tt_tensor_spec y = {}) {
    dataset_options o;
    o.y = y;
    return dataset_from(size, std::move(get), x, std::move(o));
}

} // namespace tutti

#endif
