// One-sided communication: each rank's tensor is a window that the others write to and, where they share memory, map.
//
// A window has a group of its own, of the same ranks. put() writes to a tensor in symmetric memory where it lies. To
// any other it sends a header and the elements, which a thread of that rank receives into the tensor. A signal is a
// message, which says how many such puts its sender made before; wait_signal() waits for these as well.
#pragma once

#include "process_group.hpp"

#if TUTTI_TORCH_2_15

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti_torch {

// What the thread that receives puts has in common with the calls.
struct ReceivedPuts {
    // Wait until `count` of rank's are written. False: they are not, at `end`. Throws why none will come.
    bool await(int rank, int64_t count, std::chrono::steady_clock::time_point end);

    void set_tensor(const at::Tensor &bytes); // undefined: there is none for a while
    at::Tensor tensor();                      // waits until there is one; undefined: the window is closed
    void close();

    std::mutex lock;
    std::condition_variable changed;
    std::vector<int64_t> written; // of each rank
    std::exception_ptr error;     // why the thread has ended

  private:
    at::Tensor bytes_;
    bool closed_ = false;
};

// A signal of another rank that is waited for.
class SignalWork final : public c10d::Work {
  public:
    SignalWork(ProcessGroupTutti &ranks, std::shared_ptr<ReceivedPuts> puts, int from, std::chrono::milliseconds limit);
    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override { return from_; }
    Tensors result() override { return {}; }
    void synchronize() override { wait(kNoTimeout); }
    bool wait(std::chrono::milliseconds timeout) override; // unset: that of wait_signal()
    FuturePtr getFuture() override;

  private:
    bool ends_within(std::chrono::milliseconds time);

    const std::shared_ptr<ReceivedPuts> puts_;
    const int from_;
    const std::chrono::milliseconds limit_;
    const at::Tensor sent_; // what the signal says: how many puts came before it
    const WorkPtr message_;
};

class TuttiWindow final : public c10d::Window {
  public:
    // Collective, over all ranks of `ranks`, which is the window's alone. `timeout`: of its calls.
    TuttiWindow(c10::intrusive_ptr<ProcessGroupTutti> ranks, std::chrono::milliseconds timeout,
                const std::optional<at::Tensor> &tensor);
    ~TuttiWindow() override;

    void tensor_register(const at::Tensor &tensor, bool owning) override;
    void tensor_deregister() override;
    WorkPtr put(const at::Tensor &tensor, int64_t rank, int64_t offset, bool async_op,
                const c10d::PutOptions &opts) override;
    at::Tensor map_remote_tensor(int64_t rank) override;
    WorkPtr signal(int64_t rank, bool async_op, const c10d::SignalOptions &opts) override;
    WorkPtr wait_signal(int64_t rank, bool async_op, const c10d::WaitSignalOptions &opts) override;
    c10d::WindowAttr get_attr(int64_t rank) override;

  private:
    struct Peer {
        int64_t offset = -1; // of its tensor in the memory that it shares; -1: it isn't there
        int64_t sent = 0;    // puts by messages
        WorkPtr late;        // a signal that did not come in time: the next wait_signal()'s
    };

    int rank_of(int64_t rank, const char *call) const;
    void require_tensor(const char *call) const;
    void agree(const std::optional<at::Tensor> &tensor, const char *call);
    void *reach(int rank) const; // nullptr: by messages
    void start_thread();
    void end_thread();
    static void serve(c10::intrusive_ptr<ProcessGroupTutti> ranks, std::shared_ptr<ReceivedPuts> puts);
    at::Tensor gathered(const at::Tensor &mine);
    WorkPtr sent(std::vector<WorkPtr> messages, bool async_op, std::chrono::milliseconds timeout, const char *call,
                 int rank);
    std::chrono::milliseconds limit_of(std::chrono::milliseconds timeout) const {
        return timeout.count() > 0 ? timeout : timeout_;
    }

    const c10::intrusive_ptr<ProcessGroupTutti> ranks_;
    const std::chrono::milliseconds timeout_;
    at::Tensor tensor_; // undefined: there is none
    std::vector<Peer> peers_;
    std::mutex lock_; // of the peers; header and elements of a put follow each other
    const std::shared_ptr<ReceivedPuts> puts_;
    std::thread thread_;
};

} // namespace tutti_torch

#endif
