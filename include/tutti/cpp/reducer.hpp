/* tutti/cpp/reducer.hpp: bucketed, overlapped averaging of gradients over a group, for any training loop. */
#ifndef TUTTI_CPP_REDUCER_HPP
#define TUTTI_CPP_REDUCER_HPP

#include <tutti/cpp/comm.hpp>
#include <tutti/reducer.h>

namespace tutti {

/* ---- reducer */

struct reducer_param {
    std::string name;
    std::int64_t count;
    tt_dtype dtype = TT_F32;
};

/* What happens in a step: called in the thread that caused the event. What it throws is thrown by the call of the
 * reducer that caused the event, when that is through. */
using reducer_trace = std::function<void(const tt_reducer_event &event)>;

/* What averages buckets: see tutti/reducer.h. Calls come in the thread that calls the reducer; what they throw is
 * thrown by that call.
 *   comm_hook own;
 *   own.name = "own";
 *   own.next = [](const tt_bucket &b, int stage) {
 *       work made;
 *       if (stage == 0) {
 *           call_options o;
 *           o.work = &made;
 *           all_reduce(group::lent(b.group), {b.data, b.count, b.dtype}, TT_AVG, o);
 *       }
 *       return made;
 *   }; */
struct comm_hook {
    std::string name;
    int stages = 1;
    /* none: no hook. An empty work: nothing to wait for */
    std::function<work(const tt_bucket &bucket, int stage)> next;
    std::function<void(const tt_bucket *buckets, std::int64_t count)> attach; /* may be left out */
    std::function<void()> detach;                                             /* likewise; what it throws is dropped */
    std::function<tt_group *()> told_over; /* likewise; where it throws, the use of parameters is not told */
    std::string settings;                  /* what else must be alike on all ranks */
};

namespace detail {

/* A hook with the table that C has of it. */
struct hook_box {
    comm_hook hook;
    tt_comm_hook table;

    explicit hook_box(comm_hook given) : hook(std::move(given)), table() {
        table.size = sizeof table, table.name = hook.name.c_str(), table.stages = hook.stages;
        table.next = [](void *state, const tt_bucket *bucket, int stage, tt_work **made) {
            return guarded([&] { *made = static_cast<hook_box *>(state)->hook.next(*bucket, stage).release(); });
        };
        if (hook.attach)
            table.attach = [](void *state, const tt_bucket *buckets, std::int64_t count) {
                return guarded([&] { static_cast<hook_box *>(state)->hook.attach(buckets, count); });
            };
        if (hook.detach)
            table.detach = [](void *state) {
                tt_ignore(guarded([&] { static_cast<hook_box *>(state)->hook.detach(); }));
            };
        if (hook.told_over)
            table.told_over = [](void *state) {
                tt_group *over = nullptr;
                tt_ignore(guarded([&] { over = static_cast<hook_box *>(state)->hook.told_over(); }));
                return over;
            };
    }
};

/* Give a hook to C, which owns it from then on. */
template <class Args, class Call> void give_hook(Call function, Args &a, comm_hook hook) {
    std::string settings = hook.settings;
    if (hook.next) {
        hook_box *box = new hook_box(std::move(hook));
        a.hook = &box->table, a.state = box, a.destroy = destroy<hook_box>;
        a.settings = settings.empty() ? nullptr : settings.c_str();
    }
    check(call(function, a));
}

} // namespace detail

/* Must be freed on all ranks alike, as tt_reducer_free(). */
class reducer {
  public:
    reducer(const group &g, const std::vector<reducer_param> &params, std::size_t bucket_cap_bytes = 0) {
        std::vector<tt_reducer_param> list;
        for (const reducer_param &param : params)
            list.push_back({param.name.c_str(), param.count, param.dtype});
        tt_reducer_new_args a = TT_REDUCER_NEW_ARGS_INIT;
        a.out = &reducer_, a.group = g.get(), a.params = list.data(), a.count = std::int64_t(list.size());
        a.bucket_cap_bytes = bucket_cap_bytes;
        check(detail::call(tt_reducer_new_with, a));
        owned_.reset(reducer_);
    }
    /* What belongs to something else. */
    static reducer lent(tt_reducer *r) { return reducer(r); }

    reducer(reducer &&other) noexcept { *this = std::move(other); }
    reducer &operator=(reducer &&other) noexcept {
        owned_ = std::move(other.owned_);
        reducer_ = std::exchange(other.reducer_, nullptr);
        return *this;
    }

    tt_reducer *get() const noexcept { return reducer_; }
    template <class T = float> T *gradient(std::int64_t i) {
        return static_cast<T *>(check(tt_reducer_gradient(get(), i)));
    }
    void mark_ready(std::int64_t i) {
        detail::then_rethrow([&] { check(tt_reducer_mark_ready(get(), i)); });
    }
    void mark_unused(std::int64_t i) {
        detail::then_rethrow([&] { check(tt_reducer_mark_unused(get(), i)); });
    }
    bool was_used(std::int64_t i) const { return tt_reducer_was_used(get(), i); }
    void finish() {
        detail::then_rethrow([&] { check(tt_reducer_finish(get())); });
    }
    /* One without `next`: average again as without a hook. */
    void set_comm_hook(comm_hook hook) {
        tt_reducer_set_comm_hook_args a = TT_REDUCER_SET_COMM_HOOK_ARGS_INIT;
        a.reducer = get();
        detail::give_hook(tt_reducer_set_comm_hook_with, a, std::move(hook));
    }
    std::int64_t bucket_count() const { return tt_reducer_bucket_count(get()); }
    std::int64_t bucket_of(std::int64_t i) const { return tt_reducer_bucket_of(get(), i); }
    std::int64_t bucket_bytes(std::int64_t b) const { return tt_reducer_bucket_bytes(get(), b); }

    /* None ends it. Not to be called from inside a trace. */
    void set_trace(reducer_trace trace) {
        tt_reducer_set_trace_args a = TT_REDUCER_SET_TRACE_ARGS_INIT;
        a.reducer = get();
        if (trace) {
            a.trace = [](const tt_reducer_event *event, void *user) {
                tt_ignore(detail::guarded([&] { (*static_cast<reducer_trace *>(user))(*event); }));
            };
            a.user = new reducer_trace(std::move(trace)), a.destroy = detail::destroy<reducer_trace>;
        }
        detail::call(tt_reducer_set_trace_with, a);
    }

  private:
    explicit reducer(tt_reducer *r) : reducer_(r) {}
    detail::handle<tt_reducer, tt_reducer_free> owned_;
    tt_reducer *reducer_ = nullptr;
};

} // namespace tutti

#endif
