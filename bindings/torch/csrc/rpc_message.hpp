// Convert a message of PyTorch's RPC to values of tutti/rpc.h and back: its type, its payload, a description of its
// tensors, and their storages.
#pragma once

#include "rpc_storage.hpp"

#include <torch/csrc/distributed/rpc/message.h>

#include <string>
#include <vector>

namespace tutti_torch {

using MessagePtr = c10::intrusive_ptr<torch::distributed::rpc::Message>;

// The signature of the function that takes a message and returns one.
constexpr char MESSAGE_SIGNATURE[] = "(int type, bytes payload, bytes tensors, tensor... storages) -> list";

// A message to be sent, and the values that borrow from it.
class PackedMessage {
  public:
    // Throws for tensors that are not in the host's memory.
    explicit PackedMessage(MessagePtr message);
    PackedMessage(const PackedMessage &) = delete;
    PackedMessage &operator=(const PackedMessage &) = delete;

    int type() const { return message_->type(); }
    tt_rpc_values args() const { return {values_.data(), static_cast<int64_t>(values_.size())}; }
    tt_rpc_value list() const { return tt_rpc_list(values_.data(), static_cast<int64_t>(values_.size())); }

  private:
    void describe_plainly();
    void pickle_tensors();

    const MessagePtr message_;
    std::string description_; // of the tensors
    std::vector<StoragePtr> storages_;
    std::vector<tt_rpc_value> values_;
};

// Make the message that `count` values describe, which takes their storages. Throws if they describe none.
MessagePtr unpack_message(const tt_rpc_value *const *values, int64_t count);

} // namespace tutti_torch
