// The back end as PyTorch sees it: each call of c10d is one call of Tutti's (collectives.cpp, lists.cpp,
// point_to_point.cpp), or several under one work (coalesced.cpp, sparse.cpp).
//
// A call makes works of Tutti's and a Pending, which holds its tensors and ends exactly once (pending.hpp).
// libtutti-comm is linked into this module with none of its symbols visible, so the process may have another one.
#pragma once

#include "batch.hpp"
#include "call_site.hpp"
#include "compat.hpp"
#include "current_group.hpp"
#include "elements.hpp"

#include "elastic/job_rounds.h"

#include <cstddef>

namespace tutti_torch {

// How long a group that is left waits for calls that only its own threads wait for, as sends that were dropped.
constexpr std::chrono::milliseconds kDrain{2000};

#if TUTTI_TORCH_2
// Under TUTTI_TORCH_AS_GLOO PyTorch's logger of DistributedDataParallel takes whatever is called "gloo" for its own
// ProcessGroupGloo, without asking, and reads the number of threads from its options. So ours have that, too, and the
// pointer to them is where that class has its own: behind the base and 16 bytes.
struct TuttiOptions : Base::Options {
    explicit TuttiOptions(std::chrono::milliseconds timeout) : Options("tutti", timeout) {}
#if TUTTI_TORCH_2_15
    c10::intrusive_ptr<Options> clone() const override { return c10::make_intrusive<TuttiOptions>(*this); }
#endif
    std::vector<std::shared_ptr<void>> devices;
    int threads = 0;
};
#endif

// What a handle of get_reconfigure_handle() says of this rank: reconfigure.cpp.
struct Membership {
    Membership();

    const std::string nonce; // no other back end has it
    int64_t uuid = -1;       // of the last reconfigure() that succeeded
    int resumes = 0;         // since
    std::mutex changing;     // held by reconfigure(), suspend() and resume()
};

class ProcessGroupTutti : public Base {
  public:
    ProcessGroupTutti(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                      std::chrono::milliseconds timeout);
    // `group`: nullptr where reconfigure() makes it.
    ProcessGroupTutti(std::shared_ptr<Group> group, const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                      std::chrono::milliseconds timeout);
    ~ProcessGroupTutti() override;

    const std::string getBackendName() const override { return "tutti"; }

    // collectives.cpp
    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;

    // lists.cpp
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;

    // coalesced.cpp
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;

    // point_to_point.cpp
    WorkPtr send(Tensors &tensors, int peer, int tag) override;
    WorkPtr recv(Tensors &tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;

    // Receive from `peer`, or from any rank (TT_ANY_SOURCE), however long that may take. `into` is contiguous.
    WorkPtr await_message(at::Tensor into, int peer, int tag);

    std::shared_ptr<Group> group() const { return group_.get(); }

    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override { return sequence_; }

#if TUTTI_TORCH_2
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override;
    WorkPtr gather_into_tensor(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &opts) override;
    void setTimeout(std::chrono::milliseconds timeout) override;
    c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
    bool supportsCoalescing() const override { return true; }
    void startCoalescing() override;
    WorkPtr endCoalescing() override;
    void abort() override;
    void shutdown() override;
#endif

#if TUTTI_TORCH_NEWEST
    // subgroups.cpp
    bool supportsSplitting() const override { return true; }
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &opts) override;
    c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store> &store,
                                            const c10::intrusive_ptr<Options> &opts, const int &rank,
                                            const int &size) override;
    bool supportsShrinking() const override { return true; }
    c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t> &excluded, int flags,
                                             const c10::intrusive_ptr<Options> &opts) override;
    c10d::ErrorType getError() override;

    // reconfigure.cpp
    bool supportsReconfigure() const override { return true; }
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    WorkPtr reconfigure(const c10d::ReconfigureOptions &opts) override;
    // The same without handles: the ranks that have this store meet. `rounds`: of the launcher that chose them, or
    // NULL.
    void meet(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout,
              const tt__job_rounds *rounds);

#if TUTTI_TORCH_2_15
    bool isInitialized() override { return group_.find() != nullptr; }
    void suspend() override;
    void resume() override;
    std::unordered_map<std::string, uint64_t> getMemoryStats() override;
    std::shared_ptr<c10::Allocator> getMemAllocator() override;
#endif

    bool supportsAbortHooks() const override { return true; }
    void registerAbortHook(int64_t id, c10d::AbortHook hook) override { hooks_->abort.add(id, std::move(hook)); }
    void unregisterAbortHook(int64_t id) override { hooks_->abort.remove(id); }

    // window.cpp
    bool supportsWindow() const override { return true; }
    c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor> &tensor) override;

    // observed.cpp
    void enableCollectivesTiming() override;
    void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) override;
    void waitForPendingWorks() override;
#if TUTTI_TORCH_2_15
    bool supportsCompletionHooks() const override { return true; }
    void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override;
    void unregisterCompletionHook(int64_t id) override;
#endif
    bool supportsTensorAlloc(c10::DeviceIndex device) override; // DDP's reducer asks for its buckets
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;
    void addEphemeralTimeout(const std::chrono::milliseconds &by) override { group_->health().extend(by); }
#endif

  private:
    // Begin a call: fill in what all calls have, and give back its work. `Args` has work, timeout_ms, file and line.
    template <class Args, class F> WorkPtr start(Task task, const Tensors &profiled, Args args, F call);

    // The same for several calls that are one work; `begin` begins the one of a number.
    template <class F> WorkPtr start_many(Task task, const Tensors &profiled, size_t count, F begin);

    // coalesced.cpp: gather all ranks' inputs as bytes in `to`; the task's finish() deals them out.
    WorkPtr gather_bytes(Task task, Tensors &inputs, const at::Tensor &to);
    WorkPtr allgather_lists(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts);

    WorkPtr done(Task task, const Tensors &profiled); // there is nothing to send
    template <class Args, class F>
    void run(Tensors kept, Args args, F call_it, std::chrono::milliseconds timeout); // sparse.cpp
    at::Tensor gather_rows(const at::Tensor &part, std::vector<int64_t> counts, int64_t row,
                           std::chrono::milliseconds timeout);
    WorkPtr allreduce_rows(Tensors &tensors, const c10d::AllreduceOptions &opts);
    bool is_root(int64_t root, const char *call) const;
#if TUTTI_TORCH_NEWEST
    void become(std::shared_ptr<Group> next, int rank, int size); // reconfigure.cpp
#endif

    std::shared_ptr<Hooks> hooks_; // the first two stay where they are: TuttiOptions
#if TUTTI_TORCH_2
    c10::intrusive_ptr<TuttiOptions> options_;
#endif
    CurrentGroup group_;
    c10::intrusive_ptr<c10d::Store> store_; // to meet again
    std::atomic<uint64_t> sequence_{0};     // of collectives: sends and receives don't count
    std::atomic<int> shrinks_{0};
#if TUTTI_TORCH_NEWEST
    Membership membership_;
#endif
#if TUTTI_TORCH_2
    void note_in_batch(const WorkPtr &work);
    std::mutex batch_lock_;
    std::unique_ptr<std::vector<WorkPtr>> batch_; // calls since startCoalescing()
#endif
};

// ---- how calls begin

// An unset timeout is the group's.
template <class Args>
void set_call_options(Args &args, std::chrono::milliseconds timeout, const CallSite &site, tt_work **work) {
    args.work = work;
    args.timeout_ms = timeout.count() > 0 ? timeout.count() : 0;
    args.file = site.file;
    args.line = site.line;
}

template <class F> WorkPtr ProcessGroupTutti::start_many(Task task, const Tensors &profiled, size_t count, F begin) {
    const CallSite site = call_site(task.title);
    const std::shared_ptr<Group> group = group_.get();
    auto pending = std::make_shared<Pending>(group, std::move(task));
    auto work = c10::make_intrusive<TuttiWork>(getRank(), pending, profiled);
    tt_status status = TT_OK;
    struct NoResults { // of a call that has not begun: what stands in for outputs holds nothing
        Pending *of;
        ~NoResults() {
            if (of)
                of->drop_results();
        }
    } unless_begun{pending.get()};
    const bool watched = hooks_->watch_calls();
    if (watched)
        pending->begun = std::chrono::steady_clock::now();
    group->locked([&](tt_group *g) {
        pending->sequence = pending->is_collective() ? ++sequence_ : sequence_.load();
        pending->set_limit(group->health().extension(pending), std::chrono::milliseconds(tt_group_timeout_ms(g)));
        for (size_t i = 0; i < count && !status; i++) {
            tt_work *handle = nullptr;
            status = begin(i, g, pending->task(), site, &handle);
            if (handle)
                pending->handles.push_back(handle);
        }
#if TUTTI_TORCH_2
        if (!status)
            note_in_batch(work);
#endif
    });
    group->check(status); // outside of the lock, as hooks may run
    unless_begun.of = nullptr;
    if (watched)
        group->watch().add(pending, group);
    return work;
}

template <class Args, class F> WorkPtr ProcessGroupTutti::start(Task task, const Tensors &profiled, Args args, F call) {
    return start_many(std::move(task), profiled, 1,
                      [&](size_t, tt_group *g, const Task &t, const CallSite &site, tt_work **handle) {
                          args.group = g;
                          set_call_options(args, t.timeout, site, handle);
                          return call(&args, offsetof(Args, tt_end));
                      });
}

} // namespace tutti_torch
