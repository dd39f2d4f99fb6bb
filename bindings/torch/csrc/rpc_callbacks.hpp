// Threads in which futures of RPC end. Callbacks of PyTorch's futures take the interpreter's lock, run for long, and
// may wait for other futures; those of tutti/rpc.h must not wait. So there is a thread for each that runs.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace tutti_torch {

class CallbackThreads : public std::enable_shared_from_this<CallbackThreads> {
  public:
    // Call `f`, which must not throw, in a thread that runs nothing else: at once, unless no thread can be made.
    void run(std::function<void()> f);

    // Call `f` in a thread that has run nothing before. Throws if none can be made.
    void run_apart(std::function<void()> f);

    // Wait until all have returned.
    void drain();

    // No more come: let the threads end.
    void stop();

  private:
    void start();
    void serve();

    std::mutex lock_; // of all that follows
    std::condition_variable more_, drained_;
    std::deque<std::function<void()>> waiting_;
    size_t threads_ = 0, idle_ = 0;
    bool stopped_ = false;
};

} // namespace tutti_torch
