#include "rpc_faults.hpp"

#include <torch/csrc/distributed/rpc/utils.h>

#include <thread>

namespace tutti_torch {

bool FaultyAgent::is_to_fail(const trpc::Message &message) {
    if (!faults_.failing.count(message.type()))
        return false;
    std::lock_guard<std::mutex> guard(lock_);
    int &failed = failed_[std::string(message.payload().begin(), message.payload().end())];
    return failed < faults_.times && ++failed;
}

c10::intrusive_ptr<trpc::JitFuture> FaultyAgent::send(const trpc::WorkerInfo &to, MessagePtr message, float seconds,
                                                      const trpc::DeviceMap &map) {
    if (is_to_fail(*message))
        return failed_request(
            trpc::makeRPCError("Send attempt failed intentionally", trpc::RPCErrorType::INTENTIONAL_FAILURE));
    const auto delay = faults_.delays.find(message->type());
    if (delay == faults_.delays.end())
        return AgentTutti::send(to, std::move(message), seconds, map);
    std::this_thread::sleep_for(std::chrono::duration<float>(delay->second)); // as TensorPipe's does
    const std::chrono::milliseconds timeout = timeout_of(seconds), late(std::llround(delay->second * 1000));
    if (!timeout.count() || timeout > late)
        return AgentTutti::send(to, std::move(message), timeout.count() ? (timeout - late).count() / 1000.0f : 0.0f,
                                map);
    AgentTutti::send(to, std::move(message), 0, map); // it comes, but nobody waits for the response any more
    return failed_request(timeout_text(timeout));
}

} // namespace tutti_torch
