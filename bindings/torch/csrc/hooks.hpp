// What a program wants to hear of a back end's calls: that one has completed, that the group broke. It stays when
// reconfigure() exchanges the group.
#pragma once

#include "compat.hpp"
#include "errors.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace tutti_torch {

// Functions by number.
template <class... Args> class HookTable {
  public:
    using Hook = std::function<void(const Args &...)>;

    // `kind` and `add_name` are for errors: "an abort hook", "registerAbortHook".
    HookTable(const char *kind, const char *add_name, const char *remove_name)
        : kind_(kind), add_name_(add_name), remove_name_(remove_name) {}

    void add(int64_t id, Hook hook) {
        auto kept = std::make_shared<Hook>(std::move(hook));
        std::lock_guard<std::mutex> guard(lock_);
        if (!hooks_.emplace(id, std::move(kept)).second)
            refuse(c10::str(add_name_, ": expected a number of its own, got ", id, ", which another hook has"));
        any_.store(true, std::memory_order_relaxed);
    }

    void remove(int64_t id) {
        std::shared_ptr<Hook> hook; // released when the lock is
        std::lock_guard<std::mutex> guard(lock_);
        const auto at = hooks_.find(id);
        if (at == hooks_.end())
            refuse(c10::str(remove_name_, ": expected the number of a hook, got ", id));
        hook = std::move(at->second);
        hooks_.erase(at);
        any_.store(!hooks_.empty(), std::memory_order_relaxed);
    }

    bool any() const { return any_.load(std::memory_order_relaxed); }

    // Call each, in the order of their numbers. An exception of one is a warning.
    void run(const Args &...args) const {
        std::map<int64_t, std::shared_ptr<Hook>> hooks; // Python's may only be copied with the interpreter's lock held
        {
            std::lock_guard<std::mutex> guard(lock_);
            hooks = hooks_;
        }
        for (const auto &[id, hook] : hooks) {
            try {
                (*hook)(args...);
            } catch (const std::exception &e) {
                TORCH_WARN("the back end tutti: ", kind_, " failed: ", e.what());
            }
        }
    }

  private:
    const char *const kind_, *const add_name_, *const remove_name_;
    mutable std::mutex lock_;
    std::map<int64_t, std::shared_ptr<Hook>> hooks_;
    std::atomic<bool> any_{false};
};

// A call that has succeeded.
struct Completion {
    using Time = std::chrono::steady_clock::time_point;

    uint64_t key; // of its work
    c10d::OpType type;
    uint64_t sequence;          // as Work::getSequencenumber() has it
    Time begun, ended;          // the call was made, and its end was seen

    std::chrono::duration<float, std::milli> duration() const { return ended - begun; }
};

struct Hooks {
    HookTable<> abort{"an abort hook", "registerAbortHook", "unregisterAbortHook"};
    HookTable<Completion> completion{"a completion hook", "registerCompletionHook", "unregisterCompletionHook"};
    std::atomic<bool> timing{false}; // are calls timed? For Work::getDuration()

    // Is the end of each call to be seen as it comes, although nobody may wait for it?
    bool watch_calls() const { return timing.load(std::memory_order_relaxed) || completion.any(); }
};

} // namespace tutti_torch
