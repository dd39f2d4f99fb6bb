/* tutti/cpp/elastic.hpp: ranks that survive the loss of others. */
#ifndef TUTTI_CPP_ELASTIC_HPP
#define TUTTI_CPP_ELASTIC_HPP

#include <tutti/cpp/comm.hpp>
#include <tutti/elastic.h>

namespace tutti {

struct elastic_options {
    std::int64_t timeout_ms = 0;
    std::int64_t heartbeat_ms = 0;
    std::int64_t round_wait_ms = 0;
    const char *transport = nullptr;
    const char *algorithms = nullptr;
    bool or_alone = false;
    bool stop_on_signals = false;
    bool disabled = false;
};

/* A part of the state that is no plain memory: `save` gives its bytes, `load` takes them; `bind` makes what stands on
 * the group, or lets go of it (an empty one). `bind` may be empty. */
struct elastic_part {
    std::function<std::string()> save;
    std::function<void(const std::string &)> load;
    std::function<void(const group &)> bind;
};

/* A job whose ranks survive the loss of others; leaves it when destroyed. A loop that recovers:
 *   try { step(); job.commit(); } catch (const tutti::error &) { job.restore(); } */
class elastic {
  public:
    explicit elastic(const elastic_options &o = {}) {
        tt_elastic *made = nullptr;
        tt_elastic_new_args a = TT_ELASTIC_NEW_ARGS_INIT;
        a.out = &made, a.timeout_ms = o.timeout_ms, a.heartbeat_ms = o.heartbeat_ms;
        a.round_wait_ms = o.round_wait_ms, a.transport = o.transport, a.algorithms = o.algorithms;
        a.or_alone = o.or_alone, a.stop_on_signals = o.stop_on_signals, a.disabled = o.disabled;
        check(detail::call(tt_elastic_new_with, a));
        elastic_.reset(made);
    }
    tt_elastic *get() const noexcept { return elastic_.get(); }

    /* Lent: ask again after restore(). */
    tutti::group group() const { return tutti::group::lent(tt_elastic_group(get())); }

    /* Register plain memory, which stays where it is. */
    template <class T> void add(const std::string &name, T &value) {
        static_assert(std::is_trivially_copyable_v<T>, "only plain memory can be copied: add_part() takes the rest");
        check(tt_elastic_add(get(), name.c_str(), &value, sizeof value));
    }
    void add_part(const std::string &name, elastic_part part) {
        tt_elastic_part_class cls = {};
        cls.save = [](void *user, tt_elastic_writer *writer) {
            return detail::guarded([&] {
                const std::string bytes = static_cast<elastic_part *>(user)->save();
                tt_elastic_write(writer, bytes.data(), bytes.size());
            });
        };
        cls.load = [](void *user, const void *data, std::size_t size) {
            return detail::guarded(
                [&] { static_cast<elastic_part *>(user)->load(std::string(static_cast<const char *>(data), size)); });
        };
        if (part.bind)
            cls.bind = [](void *user, tt_group *g) {
                return detail::guarded([&] { static_cast<elastic_part *>(user)->bind(tutti::group::lent(g)); });
            };
        cls.destroy = detail::destroy<elastic_part>;
        tt_elastic_add_part_args a = TT_ELASTIC_ADD_PART_ARGS_INIT;
        a.elastic = get(), a.name = name.c_str(), a.cls = &cls, a.cls_size = sizeof cls;
        a.user = new elastic_part(std::move(part));
        check(detail::call(tt_elastic_add_part_with, a));
    }

    void commit() { check(tt_elastic_commit(get())); }
    std::int64_t commits() const { return tt_elastic_commits(get()); }
    void restore() { check(tt_elastic_restore(get())); }
    /* 0: go on; else the signal for which all ranks stop. */
    int should_stop() {
        int signal = 0;
        check(tt_elastic_should_stop(get(), &signal));
        return signal;
    }
    /* Lent until the next restore(); nullptr: the last one changed nothing. */
    const tt_elastic_change *changed() const { return tt_elastic_changed(get()); }
    std::uint64_t step_seed(std::uint64_t seed) const { return tt_elastic_step_seed(get(), seed); }

  private:
    detail::handle<tt_elastic, tt_elastic_free> elastic_;
};

} // namespace tutti

#endif
