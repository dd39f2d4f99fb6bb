// A group of Tutti's with what PyTorch's rules add: calls from several threads, futures that complete although nobody
// waits (watch.hpp), and leaving it while threads wait.
#pragma once

#include "errors.hpp"
#include "health.hpp"
#include "interpreter.hpp"
#include "store.hpp"
#include "watch.hpp"

#include <atomic>
#include <condition_variable>
#include <string>
#include <vector>

namespace tutti_torch {

class Group : public std::enable_shared_from_this<Group> {
  public:
    // Meet the others. Blocks at most `timeout`. Throws; `timeout_hint` says what gives a longer one.
    static std::shared_ptr<Group> join(const c10::intrusive_ptr<c10d::Store> &store, int rank, int world_size,
                                       std::chrono::milliseconds timeout,
                                       std::shared_ptr<Hooks> hooks = std::make_shared<Hooks>(),
                                       const char *timeout_hint = TIMEOUT_OF_GROUP,
                                       std::function<bool()> in_vain = {});
    // A group of ranks of this one, which it may outlive.
    std::shared_ptr<Group> child(tt_group *made);
    ~Group();
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    // Call `begin`, which must not block, with the group, one at a time. In a forked child, where the lock may be held,
    // Tutti refuses the call.
    template <class F> void locked(F begin) {
        if (is_inherited())
            return begin(group_);
        std::lock_guard<std::mutex> guard(lock_);
        require_open();
        begin(group_);
    }

    // Call `f`, which may block, with the group: it is not destroyed meanwhile.
    template <class F> void blocking(F f) {
        if (!enter())
            fail_closed();
        struct Leave {
            Group *group;
            ~Leave() {
                group->leave();
                stay_if_python_ends();
            }
        } leave_in_the_end{this};
        f(group_);
    }

    // ---- works: calls on one must have ended, too, before the group is destroyed, which ends all works

    bool is_completed(tt_work *work); // never waits
    // Wait for the work, at most `time`. False: it is not done. Throws only what a handler of a signal raises; how the
    // work ended is not told.
    bool wait_for(tt_work *work, std::chrono::milliseconds time);
    bool add_callback(tt_work *work, tt_work_fn callback, void *user); // false: it was not
    void release(tt_work *work);

    // Throw unless the call succeeded, and note what has become of the group.
    void check(tt_status status) {
        if (status)
            fail(status);
    }
    Health &health() { return health_; }
    const Health &health() const { return health_; }
    const std::shared_ptr<Hooks> &hooks() const { return hooks_; }
    Watch &watch() { return watch_; }

    void set_timeout(std::chrono::milliseconds timeout);
    void abort(const char *reason);

    // Wait at most `drain` for calls whose works were dropped, or whose futures were asked for, and leave. Later calls
    // throw. Where another thread leaves the group already, it returns at once.
    void shutdown(std::chrono::milliseconds drain);

    // Leave all groups that are there, without waiting: the process is about to exit. `failure`: of what, which the
    // other ranks are told; "": of nothing. In a forked child, which is no rank, it does nothing.
    static void shutdown_all(const std::string &failure);

    static bool has_joined(); // was it tried, in this process?
    bool is_inherited() const; // from the process of which this is a forked child

  private:
    explicit Group(std::shared_ptr<Hooks> hooks);
    static std::shared_ptr<Group> known(std::shared_ptr<Group> made);
    [[noreturn]] void fail(tt_status status);
    [[noreturn]] static void fail_closed();
    void require_open() const { // lock_ held
        if (is_closed())
            fail_closed();
    }
    bool is_closed() const { return users_.load(std::memory_order_acquire) & CLOSED; }
    bool enter(); // false: the group is closed
    void leave();
    void await_end(); // of a group that is closed
    bool await_users(std::chrono::milliseconds time);
    void destroy(const std::string &failure);
    void leave_for_good(std::chrono::milliseconds drain, const std::string &failure);
    static std::shared_ptr<Group> make(std::shared_ptr<Hooks> hooks);

    std::shared_ptr<tt_store> store_; // also of its children: Tutti borrows it
    const std::shared_ptr<Hooks> hooks_;
    Health health_;
    tt_group *group_ = nullptr;
    const int forks_; // of the process that joined
    Watch watch_;
    static constexpr uint32_t CLOSED = UINT32_C(1) << 31;
    std::atomic<uint32_t> users_{0}; // threads within calls that block or are on works; CLOSED: no more may come
    std::atomic<int> waiting_{0};    // threads that wait for a work, and look at something else just now
    std::mutex lock_;                // of calls that begin, of closing, and of what follows
    std::condition_variable left_;   // users_ is CLOSED alone, or all works have ended
    bool ended_ = false; // all works have, as the group was destroyed
    std::vector<tt_work *> left_over_; // to be freed when it is
};

} // namespace tutti_torch
