// A group of Tutti's with what PyTorch's rules add: calls from several threads, and futures that complete although
// nobody waits.
//
// Two threads serve such futures, made when the first is asked for. The advancing one waits for the oldest call; the
// settling one, needed once a send or receive is among them, completes those that end out of order. Both only live
// while the group is open.
#pragma once

#include "errors.hpp"
#include "health.hpp"
#include "pending.hpp"
#include "store.hpp"

#include <condition_variable>
#include <deque>
#include <string>
#include <thread>

#include <unistd.h>

namespace tutti_torch {

class Group : public std::enable_shared_from_this<Group> {
  public:
    // Meet the others. Blocks at most `timeout`. Throws.
    static std::shared_ptr<Group> join(const c10::intrusive_ptr<c10d::Store> &store, int rank, int world_size,
                                       std::chrono::milliseconds timeout);
    // A group of ranks of this one, which it may outlive.
    std::shared_ptr<Group> child(tt_group *made);
    ~Group();
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    // Call `begin`, which must not block, with the group, one at a time.
    template <class F> void locked(F begin) {
        std::lock_guard<std::mutex> guard(lock_);
        require_open();
        begin(group_);
    }

    // Call `f`, which may block, with the group: it is not freed meanwhile.
    template <class F> void blocking(F f) {
        enter();
        struct Leave {
            Group *group;
            ~Leave() { group->leave(); }
        } leave_in_the_end{this};
        f(group_);
    }

    // Wait for the work, at most `time`. False: it is not done. Throws if the group is closed, and what a handler of a
    // signal raises; how the work ended is not told.
    bool wait_for(tt_work *work, std::chrono::milliseconds time);

    // Have the group's threads see to it that `pending` ends.
    void watch(const std::shared_ptr<Pending> &pending);
    // Is this the thread that would complete the call's future?
    bool is_served_here(const Pending &pending);
    void note_done(std::shared_ptr<Pending> pending);

    // Throw unless the call succeeded, and note what has become of the group.
    void check(tt_status status) {
        if (status)
            fail(status);
    }
    Health &health() { return health_; }

    void set_timeout(std::chrono::milliseconds timeout);
    void abort(const char *reason);

    // Wait at most `drain` for calls that nobody waits for, and leave. Later calls throw.
    void shutdown(std::chrono::milliseconds drain);

    // Leave all groups that are there, without waiting: the process is about to exit. `failure`: of what, which the
    // other ranks are told; "": of nothing. In a forked child, which is no rank, it does nothing.
    static void shutdown_all(const std::string &failure);

    static bool has_joined(); // was it tried, in this process?
    bool is_inherited() const; // from the process of which this is a forked child

  private:
    Group() = default;
    static std::shared_ptr<Group> known(std::shared_ptr<Group> made);
    [[noreturn]] void fail(tt_status status);
    void require_open() const;
    void enter();
    void leave();
    void advance();
    void settle();
    void forget(const std::shared_ptr<Pending> &pending); // watch_lock_ held
    void stop_threads();
    void leave_for_good(std::chrono::milliseconds drain, const std::string &failure);
    static std::shared_ptr<Group> make();
    bool is_idle() const; // watch_lock_ held

    std::shared_ptr<tt_store> store_; // also of its children: Tutti borrows it
    Health health_;
    tt_group *group_ = nullptr;
    const int owner_ = getpid(); // the process that joined
    bool closed_ = false;
    int inside_ = 0;               // threads in calls that block
    std::atomic<int> waiting_{0};  // threads in wait_for(), which are not inside all the time
    std::mutex lock_; // of the three above, and of the calls that begin
    std::condition_variable left_;

    std::mutex watch_lock_; // of what follows
    std::condition_variable watch_changed_;
    std::deque<std::shared_ptr<Pending>> watched_, done_;
    std::thread advancing_, settling_;
    bool stopping_ = false;
};

} // namespace tutti_torch
