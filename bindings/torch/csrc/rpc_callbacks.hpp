// Threads that complete PyTorch's futures. Callbacks of these take the interpreter's lock, may run for long, and may
// wait for other futures, but callbacks of tutti/rpc.h must not wait. So each callback runs in a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace tutti_torch {

class CallbackThreads : public std::enable_shared_from_this<CallbackThreads> {
  public:
    // Call `f`, which must not throw, in a thread that runs nothing else meanwhile. If no thread can be made, it waits
    // for one of those that there are.
    void run(std::function<void()> f);

    // Call `f` in a new thread. Throws if none can be made.
    void run_apart(std::function<void()> f);

    // Wait until all calls have returned.
    void drain();

    // Let the threads end: no more calls come.
    void stop();

  private:
    void start();
    void serve();

    std::mutex lock_; // guards all that follows
    std::condition_variable more_, drained_;
    std::deque<std::function<void()>> waiting_;
    size_t threads_ = 0, idle_ = 0;
    bool stopped_ = false;
};

} // namespace tutti_torch
