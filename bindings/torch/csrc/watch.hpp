// Threads that see to it that calls end of which only a future tells.
//
// One of them waits for the oldest call. Sends and receives, which end out of order, tell of themselves once one is
// there. Callbacks of futures run in these threads; they may take long, make calls and wait for other futures. So a
// thread more stands by, and takes over where calls are left alone; and nobody waits for threads within callbacks.
#pragma once

#include "pending.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>

namespace tutti_torch {

class Watch {
  public:
    // The threads keep the group, whose watch this is. False: no thread can be made to see to it; the call is kept
    // until another one comes for which there is one, or the group is left.
    bool add(const std::shared_ptr<Pending> &pending, const std::shared_ptr<Group> &group);

    // Wait at most `time` until no call that was added is under way. False: some are.
    bool drain(std::chrono::milliseconds time);

    // Wait at most `time` until that is so, and the callbacks and hooks of those that were are done, too. Not from
    // within one of them. False: some are not.
    bool await_ends(std::chrono::milliseconds time);

    // After the end of the group's works: complete the futures that are left, and let the threads end.
    void stop();

    // Wait at most `time` for the callbacks that run in any group's threads: the interpreter is about to end.
    static void await_callbacks(std::chrono::milliseconds time);

  private:
    using Guard = std::unique_lock<std::mutex>;
    using Run = void (Watch::*)(const std::shared_ptr<Group> &);

    static void on_done(tt_status, int, void *user);

    // lock_ held, by `guard` where it is given back meanwhile
    void start(const std::shared_ptr<Group> &group, Run run);
    void start_missing(const std::shared_ptr<Group> &group);
    bool has_work() const { return !done_.empty() || (!led_ && !watched_.empty()); }
    bool is_idle() const;
    void forget(const std::shared_ptr<Pending> &pending);
    void end(Guard &guard, std::shared_ptr<Pending> pending);
    void lead(Guard &guard);
    void settle(Guard &guard);
    bool is_left_alone(Guard &guard);

    void serve(const std::shared_ptr<Group> &group);
    void stand_by(const std::shared_ptr<Group> &group);

    std::mutex lock_;                                  // of all that follows
    std::condition_variable changed_, calm_, drained_; // for who serves, who stands by, and who leaves
    std::deque<std::shared_ptr<Pending>> watched_, done_;
    bool led_ = false;       // a thread waits for the oldest
    bool unordered_ = false; // there has been a send or receive
    bool stands_by_ = false, dozes_ = false; // one thread; dozes: there has been nothing to watch for long
    bool stopping_ = false;
    size_t servers_ = 0, idle_ = 0, calling_ = 0; // threads that serve; of these those without work, or in callbacks
    uint64_t rounds_ = 0;                         // of the servers
};

} // namespace tutti_torch
