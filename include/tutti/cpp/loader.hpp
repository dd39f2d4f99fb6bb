/* tutti/cpp/loader.hpp: loaders. */
#ifndef TUTTI_CPP_LOADER_HPP
#define TUTTI_CPP_LOADER_HPP

#include <tutti/cpp/data.hpp>
#include <tutti/cpp/samplers.hpp>
#include <tutti/loader.h>

namespace tutti {

/* Lent by the loader until the next one; tensor::keep() makes x or y the program's. */
struct batch {
    tensor x, y;
    std::int64_t size = 0;
    const std::int64_t *indices = nullptr;
};

/* Make the x and y (or an empty tensor) of a batch, and throw what goes wrong. */
using collate = std::function<std::pair<tensor, tensor>(const tt_examples &examples)>;

struct loader_options {
    bool drop_last = false;
    int workers = 0;
    int prefetch = 0;
    tutti::collate collate = {}; /* none: one example behind the other */
};

/* for (tutti::batch &batch : loader): one epoch. Each loop begins an epoch of its own. */
class loader {
  public:
    loader(const dataset &set, std::int64_t batch_size, const sampler &order, const loader_options &o = {}) {
        tt_loader_new_args a = TT_LOADER_NEW_ARGS_INIT;
        a.dataset = set.get(), a.batch_size = batch_size, a.sampler = order.get();
        make(a, o);
    }
    /* Batches as a batch sampler says: batch_sampler(), batch_sampler_from(). */
    loader(const dataset &set, const sampler &batches, const loader_options &o = {}) {
        tt_loader_new_args a = TT_LOADER_NEW_ARGS_INIT;
        a.dataset = set.get(), a.batch_sampler = batches.get();
        make(a, o);
    }

    tt_loader *get() const noexcept { return loader_.get(); }
    std::int64_t batches() const { return tt_loader_batches(get()); }
    std::int64_t batches_left() const { return tt_loader_batches_left(get()); }
    /* Lent until the next call. */
    const tt_named_tensors *state_dict() { return check(tt_loader_state_dict(get())); }
    void load_state_dict(const tt_named_tensors *state) { check(tt_loader_load_state_dict(get(), state)); }
    /* The share of its time that the caller waited in this epoch. */
    double waited() const { return tt_loader_waited(get()); }

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
    void make(tt_loader_new_args &a, const loader_options &o) {
        a.drop_last = o.drop_last, a.workers = o.workers, a.prefetch = o.prefetch;
        if (o.collate) {
            collate_ = std::make_unique<tutti::collate>(o.collate);
            a.collate = collated, a.collate_user = collate_.get();
        }
        loader_.reset(check(detail::call(tt_loader_new_with, a)));
    }

    static tt_status collated(void *user, const tt_examples *examples, tt_tensor **x, tt_tensor **y) {
        return detail::guarded([&] {
            auto made = (*static_cast<tutti::collate *>(user))(*examples);
            made.first.keep(), made.second.keep();
            *x = made.first.release(), *y = made.second.release();
        });
    }

    batch batch_;
    std::unique_ptr<tutti::collate> collate_; /* which the loader calls until it ends */
    detail::handle<tt_loader, tt_loader_free> loader_;
};

} // namespace tutti

#endif
