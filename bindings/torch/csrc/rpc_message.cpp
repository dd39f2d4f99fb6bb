#include "rpc_message.hpp"

#include <torch/csrc/distributed/rpc/utils.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <cstring>

namespace tutti_torch {

using torch::distributed::rpc::Message;
using torch::distributed::rpc::MessageType;

namespace {

enum { TYPE, PAYLOAD, DESCRIPTION, STORAGES }; // the order of the values

void expect_host_memory(const at::Tensor &tensor) {
    TORCH_CHECK(tensor.device().is_cpu(), "the RPC back end TUTTI sends tensors of the host's memory, and got one on ",
                tensor.device(), ": move it by .cpu() first");
}

// What from_blob() was given without a deleter may be gone before it is sent.
at::Tensor lasting(const at::Tensor &tensor) {
    return tensor.storage().data_ptr().get_deleter() || !tensor.storage().nbytes() ? tensor : tensor.clone();
}

[[noreturn]] void refuse_message(const char *what) {
    throw std::runtime_error(c10::str("a message of PyTorch's RPC came with ", what));
}

const tt_rpc_value &expect_value(const tt_rpc_value *value, tt_rpc_kind kind) {
    if (!value || value->kind != kind)
        refuse_message("values of other kinds than expected");
    return *value;
}

std::vector<at::Tensor> unpack_tensors(const tt_rpc_value &description, const tt_rpc_value *const *storages,
                                       int64_t count) {
    const char *at = static_cast<const char *>(description.bytes.data);
    size_t left = description.bytes.size;
    const auto read = [&](char *to, size_t size) {
        const size_t n = std::min(size, left);
        std::memcpy(to, at, n);
        at += n;
        left -= n;
        return n;
    };
    const auto storage = [&](const std::string &name) {
        const int64_t index = std::stoll(name);
        if (index < 0 || index >= count)
            refuse_message("a tensor without its storage");
        return take_storage(expect_value(storages[index], TT_RPC_TENSOR).tensor);
    };
    torch::jit::Unpickler unpickler(read, nullptr, nullptr, storage, c10::Device(c10::kCPU));
    const at::IValue list = unpickler.parse_ivalue();
    std::vector<at::Tensor> tensors;
    for (at::Tensor tensor : list.toTensorList())
        tensors.push_back(std::move(tensor));
    return tensors;
}

} // namespace

PackedMessage::PackedMessage(MessagePtr message) : message_(std::move(message)) {
    if (!message_->tensors().empty())
        pack_tensors();
    values_.reserve(STORAGES + storages_.size());
    values_.push_back(tt_rpc_int(message_->type()));
    values_.push_back(tt_rpc_bytes(message_->payload().data(), message_->payload().size()));
    values_.push_back(tt_rpc_bytes(description_.data(), description_.size()));
    for (const StoragePtr &storage : storages_)
        values_.push_back(storage_value(storage));
}

void PackedMessage::pack_tensors() {
    for (const at::Tensor &tensor : message_->tensors())
        expect_host_memory(tensor);
    torch::jit::Pickler pickler([&](const char *data, size_t size) { description_.append(data, size); });
    pickler.protocol();
    pickler.pushIValue(torch::distributed::rpc::cloneSparseTensors(message_->tensors()));
    pickler.stop();
    for (const at::Tensor &tensor : pickler.tensorData())
        storages_.push_back(lend_storage(lasting(tensor)));
}

MessagePtr unpack_message(const tt_rpc_value *const *values, int64_t count) {
    if (count < STORAGES)
        refuse_message("too few values");
    const auto type = static_cast<MessageType>(expect_value(values[TYPE], TT_RPC_INT).integer);
    const auto &payload = expect_value(values[PAYLOAD], TT_RPC_BYTES).bytes;
    const tt_rpc_value &description = expect_value(values[DESCRIPTION], TT_RPC_BYTES);
    const char *data = static_cast<const char *>(payload.data);
    std::vector<char> bytes(data, data + payload.size);
    std::vector<at::Tensor> tensors;
    if (description.bytes.size)
        tensors = unpack_tensors(description, values + STORAGES, count - STORAGES);
    return c10::make_intrusive<Message>(std::move(bytes), std::move(tensors), type);
}

} // namespace tutti_torch
