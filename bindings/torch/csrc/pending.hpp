// A call that is under way. It ends exactly once: whoever sees first that Tutti's works are done (a wait, a question,
// the group's own thread) copies the results to where the caller wants them, notes the error if there is one, and
// completes the future. What it holds must live until then, also when nobody keeps the Work that PyTorch was given.
#pragma once

#include "hooks.hpp"

#include <tutti/comm.h>

#include <c10/util/SmallVector.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

namespace tutti_torch {

class Group;

struct Task {
    c10d::OpType type;
    const char *title;                 // "tutti:all_reduce", for the profiler and errors
    Tensors kept;                      // all that the call reads or writes
    std::vector<Tensors> outputs;      // what result() and the future give
    std::function<void()> finish;      // copy results out of temporary tensors; may be empty
    std::chrono::milliseconds timeout; // unset: the group's

    const char *name() const { return title + sizeof "tutti:" - 1; }
};

class Pending : public std::enable_shared_from_this<Pending> {
  public:
    Pending(std::shared_ptr<Group> group, Task task);
    ~Pending();
    Pending(const Pending &) = delete;
    Pending &operator=(const Pending &) = delete;

    c10::SmallVector<tt_work *, 1> handles; // these are set before anyone else sees it
    uint64_t sequence = 0;                  // of the group's collectives when it was made, this one included
    Completion::Time begun{};               // where its end is watched

    bool is_done() const { return done_.load(std::memory_order_acquire); }
    bool poll();                                   // has it ended? Never waits
    void wait();                                   // until it has; throws only what a handler of a signal raises
    void await();                                  // until its works are done; it may not have ended yet
    bool is_over();                                // are they? Never waits
    bool wait_for(std::chrono::milliseconds time); // false: it has not
    std::exception_ptr error() const;              // once it has ended
    int source_rank() const;
    FuturePtr future();
    void let_go(); // nobody has its work any more
    const Task &task() const { return task_; }
    uint64_t key() const { return key_; } // no other call of this process has it
    float duration_ms() const;            // once it has ended; throws where it was not timed
    bool is_collective() const;

    // The call, which has not begun, may take `more` than its timeout, or than the group's where it has none.
    void set_limit(std::chrono::milliseconds more, std::chrono::milliseconds of_group);
    std::chrono::milliseconds limit() const { return limit_; }
    void drop_results(); // leave the outputs as they are when it ends
    std::function<void()> on_end; // of the profiler; set before anyone else sees it

  private:
    bool await_for(std::chrono::milliseconds time);
    void settle(); // all handles are done
    void complete_future(const FuturePtr &future);

    std::shared_ptr<Group> group_;

    Task task_;
    const uint64_t key_;
    std::chrono::milliseconds limit_{0};
    mutable std::mutex lock_;
    std::atomic<bool> done_{false};
    Completion::Time ended_{}; // where its end is watched
    std::exception_ptr error_;
    FuturePtr future_;
};

// What PyTorch is given.
class TuttiWork : public c10d::Work {
  public:
    TuttiWork(int rank, std::shared_ptr<Pending> pending, const std::vector<at::Tensor> &inputs);
    ~TuttiWork() override;
    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    Tensors result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout) override;
    bool ends_within(std::chrono::milliseconds time); // false: it goes on. Throws what it failed with
    void abort() override;
    FuturePtr getFuture() override;
#if TUTTI_TORCH_2
    FuturePtr getFutureResult() override;
    uint64_t getSequencenumber() const override { return pending_->sequence; }
#endif
#if TUTTI_TORCH_NEWEST
    float getDuration() const override { return pending_->duration_ms(); }
#endif
#if TUTTI_TORCH_2_15
    uint64_t getCompletionKey() const override { return pending_->key(); }
    std::chrono::milliseconds getTimeout() const override { return pending_->limit(); }
#endif

  private:
    std::shared_ptr<Pending> pending_;
};

} // namespace tutti_torch
