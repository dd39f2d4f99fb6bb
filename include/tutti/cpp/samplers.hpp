/* tutti/cpp/samplers.hpp: samplers. */
/* Made by tools/wrappers.py of tutti/samplers.h and tools/wrappers/samplers.hpp.in. */
#ifndef TUTTI_CPP_SAMPLERS_HPP
#define TUTTI_CPP_SAMPLERS_HPP

#include <tutti/cpp/tensor.hpp>
#include <tutti/samplers.h>

namespace tutti {

struct distributed_sampler_options {
    bool no_shuffle = false;
    std::uint64_t seed = 0;
    bool drop_last = false;
    bool exact = false;
    int virtual_ranks = 0;
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
    a.dataset_size = dataset_size, a.num_replicas = num_replicas, a.rank = rank, a.no_shuffle = o.no_shuffle;
    a.seed = o.seed, a.drop_last = o.drop_last, a.exact = o.exact, a.virtual_ranks = o.virtual_ranks;
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
inline sampler weighted_random_sampler(const std::vector<double> &weights, std::int64_t num_samples,
                                       bool no_replacement = false, tt_generator *generator = nullptr) {
    tt_weighted_random_sampler_args a = TT_WEIGHTED_RANDOM_SAMPLER_ARGS_INIT;
    a.weights = weights.data(), a.dataset_size = std::int64_t(weights.size()), a.num_samples = num_samples;
    a.no_replacement = no_replacement, a.generator = generator;
    return sampler(detail::call(tt_weighted_random_sampler_with, a));
}
inline sampler sequential_sampler(std::int64_t dataset_size) { return sampler(tt_sequential_sampler(dataset_size)); }
/* Cuts another sampler's order: loader(set, batch_sampler(order, 32)). */
inline sampler batch_sampler(const sampler &order, std::int64_t batch_size, bool drop_last = false) {
    tt_batch_sampler_args a = TT_BATCH_SAMPLER_ARGS_INIT;
    a.sampler = order.get(), a.batch_size = batch_size, a.drop_last = drop_last;
    return sampler(detail::call(tt_batch_sampler_with, a));
}
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

/* Give the batches of an epoch, and throw what goes wrong. */
using sampler_batches = std::function<std::vector<std::vector<std::int64_t>>(std::int64_t epoch)>;

namespace detail {
struct batch_sampler_source {
    std::int64_t batches, largest, size;
    sampler_batches fill;
    std::string name;

    tt_status write(std::int64_t epoch, std::int64_t *indices, std::int64_t n, std::int64_t *sizes,
                    std::int64_t most) const {
        auto made = fill(epoch);
        if (std::int64_t(made.size()) > most)
            return tt_fail(TT_ERR_INVALID, "expected at most %lld batches, got %zu", (long long)most, made.size());
        for (const auto &one : made) {
            if (std::int64_t(one.size()) > n)
                return tt_fail(TT_ERR_INVALID, "expected at most %lld examples an epoch", (long long)size);
            indices = std::copy(one.begin(), one.end(), indices);
            n -= std::int64_t(one.size());
            *sizes++ = std::int64_t(one.size());
        }
        return TT_OK;
    }
};
} // namespace detail

/* A batch sampler by callback: at most so many batches an epoch, of at most `largest` examples, at most `size` together
 * (0: as many as the data set has). It owns what the callback captures. `name` is for errors. */
inline sampler batch_sampler_from(std::int64_t dataset_size, std::int64_t batches, std::int64_t largest,
                                  sampler_batches fill, std::int64_t size = 0, std::string name = "a batch sampler") {
    using source = detail::batch_sampler_source;
    auto from = std::make_unique<source>(
        source{batches, largest, size ? size : dataset_size, std::move(fill), std::move(name)});
    tt_batch_sampler_class cls = {};
    cls.name = from->name.c_str();
    cls.batches = [](void *user) { return static_cast<source *>(user)->batches; };
    cls.largest = [](void *user) { return static_cast<source *>(user)->largest; };
    cls.size = [](void *user) { return static_cast<source *>(user)->size; };
    cls.fill = [](void *user, std::int64_t epoch, std::int64_t *indices, std::int64_t n, std::int64_t *sizes,
                  std::int64_t most) {
        return detail::guarded([&] { check(static_cast<source *>(user)->write(epoch, indices, n, sizes, most)); });
    };
    cls.destroy = detail::destroy<source>;
    tt_batch_sampler_new_args a = TT_BATCH_SAMPLER_NEW_ARGS_INIT;
    a.cls = &cls, a.cls_size = sizeof cls, a.user = from.release(), a.dataset_size = dataset_size;
    return sampler(detail::call(tt_batch_sampler_new_with, a));
}

} // namespace tutti

#endif
