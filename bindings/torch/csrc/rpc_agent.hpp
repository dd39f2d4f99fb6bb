// An agent of PyTorch's torch.distributed.rpc that sends its messages by tutti/rpc.h. Remote references, autograd and
// optimizers above it are PyTorch's own.
//
// Each message is one call of the function "torch.rpc", which gives it to PyTorch's callback, and replies as soon as
// that has a response. The future of a request is completed by a thread of its own (rpc_callbacks.hpp).
#pragma once

#include "group.hpp"
#include "rpc_callbacks.hpp"
#include "rpc_deadlines.hpp"
#include "rpc_message.hpp"

#include <torch/csrc/distributed/rpc/rpc_agent.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace tutti_torch {

namespace trpc = torch::distributed::rpc;

struct AgentOptions {
    std::string name;
    int rank = 0;
    int world_size = 0; // 0: workers come and go
    int threads = trpc::kDefaultNumWorkerThreads;
    float timeout = trpc::kDefaultRpcTimeoutSeconds; // of calls, in seconds; 0: none
};

class AgentTutti : public trpc::RpcAgent {
  public:
    // Join the other workers, which meet through `store`. Throws.
    AgentTutti(const c10::intrusive_ptr<c10d::Store> &store, const AgentOptions &options);
    ~AgentTutti() override;
    AgentTutti(const AgentTutti &) = delete;
    AgentTutti &operator=(const AgentTutti &) = delete;

    c10::intrusive_ptr<trpc::JitFuture> send(const trpc::WorkerInfo &to, MessagePtr message,
                                             const float timeout = trpc::kUnsetRpcTimeout,
                                             const trpc::DeviceMap &deviceMap = {}) override;

    // In a static world, where all workers call it together: wait until no worker has a call under way. If workers come
    // and go: wait until this one has none. `timeout`: in seconds; 0: as long as the others live.
    void join(bool shutdown = false, float timeout = 0) override;
    void sync() override;
    void startImpl() override;
    void shutdownImpl() override;

    const trpc::WorkerInfo &getWorkerInfo(const std::string &name) const override;
    const trpc::WorkerInfo &getWorkerInfo(trpc::worker_id_t id) const override;
    std::vector<trpc::WorkerInfo> getWorkerInfos() const override;
    using trpc::RpcAgent::getWorkerInfo;
    std::unordered_map<std::string, std::string> getMetrics() override;
    bool is_static_group() const { return options_.world_size > 0; }

    // Between these two, the response to the thread's first call of a function is awaited in finish_call(), which also
    // completes its future. So no other thread has to wake this one, and Tutti knows that it waits.
    static void begin_call();
    static void finish_call();

    // Shut this process's agent down at once, if it has one of this kind: the interpreter is about to end.
    static void shutdown_current();

    // The function "torch.rpc": serve a message that another worker's send() has sent.
    static tt_status serve(tt_rpc_call *call) noexcept;

  protected:
    std::chrono::milliseconds timeout_of(float seconds) const; // of a call; 0: none
    static std::string timeout_text(std::chrono::milliseconds timeout);
    static c10::intrusive_ptr<trpc::JitFuture> failed_request(const std::string &text);

  private:
    struct Request;

    void addGilWaitTime(const std::chrono::microseconds time) override;
    void meet(const c10::intrusive_ptr<c10d::Store> &store);
    void meet_as_group(const c10::intrusive_ptr<c10d::Store> &store);
    void become_worker(tt_group *group);
    tt_rpc *open_rpc() const; // throws after the end
    const trpc::WorkerInfo &known_worker(int id) const;
    std::vector<int> worker_ids() const;
    void await_start();
    tt_status answer(tt_rpc_call *call);
    tt_status answer_later(tt_rpc_call *call, trpc::JitFuture &response);
    tt_status answer_profiled(tt_rpc_call *call, const MessagePtr &request);
    void end_later(tt_future *later, trpc::JitFuture &response);
    void count_later(int change);
    void end_where_it_waits(std::shared_ptr<Request> request, tt_future *sent);
    void end_when_done(std::shared_ptr<Request> request, tt_future *sent);
    static void on_done(tt_future *future, void *user);
    void end_request(Request &request, tt_future *future);
    void expire_request(Request &request);
    void count_request(int change);
    void await_own_requests(std::chrono::steady_clock::time_point end);
    void await_all(std::chrono::milliseconds timeout);
    bool all_are_idle(std::chrono::milliseconds timeout);

    const AgentOptions options_;
    const int process_;            // its id; in a forked child the agent does nothing
    StorePtr store_;               // if workers come and go: Tutti borrows it
    std::shared_ptr<Group> group_; // in a static world
    tt_rpc *rpc_ = nullptr;
    std::atomic<bool> left_{false}; // rpc_ was freed
    const std::shared_ptr<CallbackThreads> threads_ = std::make_shared<CallbackThreads>();
    const std::shared_ptr<Deadlines> deadlines_ = std::make_shared<Deadlines>(); // of requests

    mutable std::mutex workers_lock_; // guards workers_
    mutable std::unordered_map<int, trpc::WorkerInfo> workers_;

    std::mutex lock_; // guards all that follows
    std::condition_variable changed_;
    bool started_ = false;
    int64_t requests_ = 0;                  // requests of this worker that are under way
    int64_t later_ = 0;                     // requests of others whose function has returned without a response yet
    uint64_t gil_waits_ = 0, gil_time_ = 0; // us
};

} // namespace tutti_torch
