// Threads that see to it that calls end of which only a future tells.
//
// One of them waits for the oldest call. Sends and receives, which end out of order, tell of themselves once one is
// there. Callbacks of futures run in these threads and may wait for other futures: so one more thread stands by, and
// takes over where calls are left alone.
#pragma once

#include "pending.hpp"

#include <condition_variable>
#include <deque>
#include <thread>

namespace tutti_torch {

class Watch {
  public:
    // The threads keep the group, whose watch this is.
    void add(const std::shared_ptr<Pending> &pending, const std::shared_ptr<Group> &group);
    bool is_served_here() const; // is this one of the threads?

    // Wait at most `time` until no call is under way. False: some are.
    bool drain(std::chrono::milliseconds time);
    void stop(); // when what is left of the calls has ended

  private:
    struct DoneNote; // of every handle; the last one that is done ends its call
    using Guard = std::unique_lock<std::mutex>;

    static void on_done(tt_status, int, void *user);
    void note_done(std::shared_ptr<Pending> pending);
    void start(const std::shared_ptr<Group> &group, void (Watch::*run)(const std::shared_ptr<Group> &));
    void serve(const std::shared_ptr<Group> &group);
    void stand_by(const std::shared_ptr<Group> &group);

    // lock_ held, by `guard` where it is given back meanwhile
    bool has_work() const { return !done_.empty() || (!led_ && !watched_.empty()); }
    bool is_idle() const;
    void forget(const std::shared_ptr<Pending> &pending);
    void lead(Guard &guard);
    void settle(Guard &guard);
    bool is_left_alone(Guard &guard);

    std::mutex lock_; // of all that follows
    std::condition_variable changed_, calm_, drained_; // for who serves, who stands by, and who leaves
    std::deque<std::shared_ptr<Pending>> watched_, done_;
    std::vector<std::thread> threads_;
    bool led_ = false;       // a thread waits for the oldest
    bool unordered_ = false; // there has been a send or receive
    bool dozes_ = false;     // the thread that stands by, as there has been nothing to watch for long
    bool stopping_ = false;
    size_t servers_ = 0, idle_ = 0;
    uint64_t rounds_ = 0; // of the servers
};

} // namespace tutti_torch
