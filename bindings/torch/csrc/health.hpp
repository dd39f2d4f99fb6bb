// Whether a group still works, and time that PyTorch lends to calls for a while.
#pragma once

#include "hooks.hpp"

#include <tutti/base.h>

#include <atomic>
#include <mutex>

namespace tutti_torch {

class Pending;

class Health {
  public:
    explicit Health(std::shared_ptr<Hooks> hooks) : hooks_(std::move(hooks)) {}

    // A call has failed. Errors that leave the group as it was are none of its own. Runs the abort hooks when it
    // breaks. This thread's last error is the call's.
    void note(tt_status status);
    tt_status broken_by() const { return broken_by_.load(std::memory_order_acquire); } // TT_OK: it works

    // Calls that begin from now on may take so much longer, until the first of them has ended. Several add up.
    void extend(std::chrono::milliseconds by);

    // What a call that begins now may take longer; it is the first of those extensions that have none yet.
    std::chrono::milliseconds extension(const std::shared_ptr<Pending> &call) {
        return extended_.load(std::memory_order_relaxed) ? extension_now(call) : std::chrono::milliseconds(0);
    }

    // Whoever leaves another group of the process, although that one works, tells its ranks why: make the first error
    // that broke a group this thread's last one. A group that is made after it means that the process goes on.
    static void recall_first_error();
    static void forget_first_error();

  private:
    struct Extension {
        std::chrono::milliseconds by;
        std::weak_ptr<Pending> first;
        bool begun;
    };
    std::chrono::milliseconds extension_now(const std::shared_ptr<Pending> &call);

    std::atomic<tt_status> broken_by_{TT_OK};
    std::atomic<bool> extended_{false};
    const std::shared_ptr<Hooks> hooks_;
    std::mutex lock_; // of what follows
    std::vector<Extension> extensions_;
};

} // namespace tutti_torch
