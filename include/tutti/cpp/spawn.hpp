/* tutti/cpp/spawn.hpp: a callable of this program, run by several processes. */
#ifndef TUTTI_CPP_SPAWN_HPP
#define TUTTI_CPP_SPAWN_HPP

#include <tutti/cpp/base.hpp>
#include <tutti/spawn.h>

namespace tutti {

struct spawn_options {
    bool rendezvous = false;
    std::int64_t timeout_ms = 0;
    std::int64_t grace_ms = 0;
};

struct start_processes_options {
    bool rendezvous = false;
};

namespace detail {

/* Call F(rank), which may return an exit code. What it throws becomes the process's last error, and code 1. */
template <class F> int run_spawned(int rank, void *arg) {
    F &fn = *static_cast<F *>(arg);
    int code = 0;
    tt_status status = guarded([&] {
        if constexpr (std::is_void_v<std::invoke_result_t<F &, int>>)
            fn(rank);
        else
            code = fn(rank);
    });
    return status == TT_OK ? code : 1;
}

} // namespace detail

/* Run fn(rank) in `nprocs` processes and wait for them. A process has its own copy of `fn` and of all that it
 * captures. */
template <class F> void spawn(F fn, int nprocs, const spawn_options &o = {}) {
    tt_spawn_args a = TT_SPAWN_ARGS_INIT;
    a.fn = detail::run_spawned<F>;
    a.arg = &fn;
    a.nprocs = nprocs;
    a.rendezvous = o.rendezvous, a.timeout_ms = o.timeout_ms, a.grace_ms = o.grace_ms;
    check(detail::call(tt_spawn_with, a));
}

/* Processes that run beside the caller. What still runs is killed when it is destroyed. */
class process_context {
  public:
    explicit process_context(tt_process_context *owned) : context_(check(owned)) {}
    tt_process_context *get() const noexcept { return context_.get(); }

    /* Have all ended? Throws if one has failed. */
    bool join(std::int64_t timeout_ms = -1, std::int64_t grace_ms = -1) {
        bool all = false;
        check(tt_process_context_join(get(), timeout_ms, grace_ms, &all));
        return all;
    }
    std::vector<int> pids() const {
        std::int64_t n = 0;
        const int *all = tt_process_context_pids(get(), &n);
        return std::vector<int>(all, all + n);
    }
    void kill(int signal) { check(tt_process_context_kill(get(), signal)); }
    /* nullptr: none has failed, as far as join() knows */
    const tt_process_failure *failure() const { return tt_process_context_failure(get()); }

  private:
    detail::handle<tt_process_context, tt_process_context_free> context_;
};

template <class F> process_context start_processes(F fn, int nprocs, const start_processes_options &o = {}) {
    tt_process_context *made = nullptr;
    tt_start_processes_args a = TT_START_PROCESSES_ARGS_INIT;
    a.out = &made;
    a.fn = detail::run_spawned<F>;
    a.arg = &fn;
    a.nprocs = nprocs;
    a.rendezvous = o.rendezvous;
    check(detail::call(tt_start_processes_with, a));
    return process_context(made);
}

} // namespace tutti

#endif
