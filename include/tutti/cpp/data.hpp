/* tutti/cpp/data.hpp: data sets, samplers, loaders. */
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
    tt_dataset_new_args a = TT_DATASET_NEW_ARGS_INIT;
    a.cls = &cls, a.cls_size = sizeof cls, a.x = x, a.y = from->options.y, a.user = from.release();
    return dataset(detail::call(tt_dataset_new_with, a));
}
inline dataset dataset_from(std::int64_t size, dataset_get get, tt_tensor_spec x, tt_tensor_spec y = {}) {
    dataset_options o;
    o.y = y;
    return dataset_from(size, std::move(get), x, std::move(o));
}

/* ---- samplers */

struct distributed_sampler_options {
    bool no_shuffle = false;
    std::uint64_t seed = 0;
    bool drop_last = false;
};

struct random_sampler_options {
    bool replacement = false;
    std::int64_t num_samples = 0;
    tt_generator *generator = nullptr;
};

class sampler {
  public:
    explicit sampler(tt_sampler *owned) : sampler_(check(owned)) {}
    tt_sampler *get() const noexcept { return sampler_.get(); }
    void set_epoch(std::int64_t epoch) { tt_sampler_set_epoch(get(), epoch); }
    std::int64_t size() const { return tt_sampler_size(get()); }
    std::uint64_t seed() const { return tt_sampler_seed(get()); }
    std::vector<std::int64_t> indices() const {
        const std::int64_t *all = check(tt_sampler_indices(get()));
        return {all, all + size()};
    }

  private:
    detail::handle<tt_sampler, tt_sampler_free> sampler_;
};

inline sampler distributed_sampler(std::int64_t dataset_size, int num_replicas, int rank,
                                   const distributed_sampler_options &o = {}) {
    tt_distributed_sampler_args a = TT_DISTRIBUTED_SAMPLER_ARGS_INIT;
    a.dataset_size = dataset_size, a.num_replicas = num_replicas, a.rank = rank;
    a.no_shuffle = o.no_shuffle, a.seed = o.seed, a.drop_last = o.drop_last;
    return sampler(detail::call(tt_distributed_sampler_with, a));
}
inline sampler random_sampler(std::int64_t dataset_size, const random_sampler_options &o = {}) {
    tt_random_sampler_args a = TT_RANDOM_SAMPLER_ARGS_INIT;
    a.dataset_size = dataset_size, a.replacement = o.replacement, a.num_samples = o.num_samples;
    a.generator = o.generator;
    return sampler(detail::call(tt_random_sampler_with, a));
}
inline sampler subset_random_sampler(std::int64_t dataset_size, const std::vector<std::int64_t> &indices,
                                     tt_generator *generator = nullptr) {
    tt_subset_random_sampler_args a = TT_SUBSET_RANDOM_SAMPLER_ARGS_INIT;
    a.dataset_size = dataset_size, a.indices = indices.data(), a.n = std::int64_t(indices.size());
    a.generator = generator;
    return sampler(detail::call(tt_subset_random_sampler_with, a));
}
inline sampler sequential_sampler(std::int64_t dataset_size) { return sampler(tt_sequential_sampler(dataset_size)); }
inline sampler in_order() { return sampler(tt_in_order()); }
inline sampler shuffled() { return sampler(tt_shuffled()); }

/* Write the n indices of an epoch, in the order of their visits, and throw what goes wrong. */
using sampler_order = std::function<void(std::int64_t epoch, std::int64_t *indices, std::int64_t n)>;

namespace detail {
struct sampler_source {
    std::int64_t size;
    sampler_order order;
    std::string name;
};
} // namespace detail

/* A sampler by callback: sampler_from(1000, 100, order). It owns what the callback captures. `name` is for errors. */
inline sampler sampler_from(std::int64_t dataset_size, std::int64_t size, sampler_order order,
                            std::string name = "a sampler") {
    using source = detail::sampler_source;
    auto from = std::make_unique<source>(source{size, std::move(order), std::move(name)});
    tt_sampler_class cls = {};
    cls.name = from->name.c_str();
    cls.size = [](void *user) { return static_cast<source *>(user)->size; };
    cls.order = [](void *user, std::int64_t epoch, std::int64_t *indices, std::int64_t n) {
        return detail::guarded([&] { static_cast<source *>(user)->order(epoch, indices, n); });
    };
    cls.destroy = detail::destroy<source>;
    tt_sampler_new_args a = TT_SAMPLER_NEW_ARGS_INIT;
    a.cls = &cls, a.cls_size = sizeof cls, a.user = from.release(), a.dataset_size = dataset_size;
    return sampler(detail::call(tt_sampler_new_with, a));
}

/* ---- loaders */

/* Lent by the loader until the next one; tensor::keep() makes x or y the program's. */
struct batch {
    tensor x, y;
    std::int64_t size = 0;
    const std::int64_t *indices = nullptr;
};

struct loader_options {
    bool drop_last = false;
};

/* for (tutti::batch &batch : loader): one epoch. Each loop begins an epoch of its own. */
class loader {
  public:
    loader(const dataset &set, std::int64_t batch_size, const sampler &order, const loader_options &o = {}) {
        tt_loader_new_args a = TT_LOADER_NEW_ARGS_INIT;
        a.dataset = set.get(), a.batch_size = batch_size, a.sampler = order.get(), a.drop_last = o.drop_last;
        loader_.reset(check(detail::call(tt_loader_new_with, a)));
    }

    tt_loader *get() const noexcept { return loader_.get(); }
    std::int64_t batches() const { return tt_loader_batches(get()); }

    /* The next batch of the epoch; nullptr at its end. */
    batch *next() {
        tt_batch raw = {};
        int found = tt_loader_next_with(get(), &raw, sizeof raw);
        if (found < 0)
            check(tt_last_status());
        batch_ = batch{tensor::lent(raw.x), tensor::lent(raw.y), raw.size, raw.indices};
        return found ? &batch_ : nullptr;
    }

    class iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = batch;
        using difference_type = std::ptrdiff_t;
        using pointer = batch *;
        using reference = batch &;
        explicit iterator(loader *from = nullptr) : from_(from), at_(from ? from->next() : nullptr) {}
        batch &operator*() const { return *at_; }
        batch *operator->() const { return at_; }
        iterator &operator++() {
            at_ = from_->next();
            return *this;
        }
        bool operator==(const iterator &other) const { return at_ == other.at_; }
        bool operator!=(const iterator &other) const { return at_ != other.at_; }

      private:
        loader *from_;
        batch *at_;
    };
    /* Make next() start an epoch anew. */
    void restart() { tt_loader_restart(get()); }

    iterator begin() {
        restart();
        return iterator(this);
    }
    iterator end() { return iterator(); }

  private:
    batch batch_;
    detail::handle<tt_loader, tt_loader_free> loader_;
};

} // namespace tutti

#endif
