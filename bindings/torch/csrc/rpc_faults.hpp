// An agent that fails and delays requests on purpose, for PyTorch's own tests of what stands above agents.
#pragma once

#include "rpc_agent.hpp"

#include <set>

namespace tutti_torch {

struct Faults {
    std::set<int> failing;                 // types of messages of which each is failed
    int times = 0;                         // so many times
    std::unordered_map<int, float> delays; // type -> seconds
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
    std::mutex lock_;                             // of what follows
    std::unordered_map<std::string, int> failed_; // by payload: how many times
};

} // namespace tutti_torch
