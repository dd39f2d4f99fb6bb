// An agent that fails and delays requests on purpose, for PyTorch's own tests of retries and timeouts.
#pragma once

#include "rpc_agent.hpp"

#include <set>

namespace tutti_torch {

struct Faults {
    std::set<int> failing;                 // types of messages that fail, each message
    int times = 0;                         // this many times
    std::unordered_map<int, float> delays; // by type, in seconds
};

class FaultyAgent : public AgentTutti {
  public:
    FaultyAgent(const c10::intrusive_ptr<c10d::Store> &store, const AgentOptions &options, Faults faults)
        : AgentTutti(store, options), faults_(std::move(faults)) {}
    c10::intrusive_ptr<trpc::JitFuture> send(const trpc::WorkerInfo &to, MessagePtr message,
                                             const float timeout = trpc::kUnsetRpcTimeout,
                                             const trpc::DeviceMap &deviceMap = {}) override;

  private:
    bool is_to_fail(const trpc::Message &message);

    const Faults faults_;
    std::mutex lock_;                             // guards what follows
    std::unordered_map<std::string, int> failed_; // by payload: how many times
};

} // namespace tutti_torch
