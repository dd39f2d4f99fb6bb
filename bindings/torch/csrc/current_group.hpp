// The group that a back end's calls go to. reconfigure() exchanges it, while other threads may be about to call.
#pragma once

#include "group.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti_torch {

class CurrentGroup {
  public:
    // nullptr: there is none before reconfigure().
    explicit CurrentGroup(std::shared_ptr<Group> first) { exchange(std::move(first)); }
    CurrentGroup(const CurrentGroup &) = delete;
    CurrentGroup &operator=(const CurrentGroup &) = delete;

    // Throws where there is none.
    std::shared_ptr<Group> get() const { return (*this)->shared_from_this(); }
    Group *operator->() const {
        Group *now = find();
        if (!now)
            fail_none();
        return now;
    }
    Group *find() const { return now_.load(std::memory_order_acquire); } // nullptr: there is none

    // Returns the one before, which has not been left yet. `next`: nullptr: there is none until resume().
    std::shared_ptr<Group> exchange(std::shared_ptr<Group> next);

  private:
    [[noreturn]] void fail_none() const;

    std::atomic<Group *> now_{nullptr};
    std::mutex lock_;
    // All that there were. A thread may hold one of them by its address; what is left of one is a few hundred bytes.
    std::vector<std::shared_ptr<Group>> all_;
};

} // namespace tutti_torch
