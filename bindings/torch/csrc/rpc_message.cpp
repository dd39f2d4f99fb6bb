#include "rpc_message.hpp"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/distributed/rpc/utils.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
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

// ---- tensors as most are: their description begins with this byte, which no pickle does

constexpr char PLAIN = 'T';
constexpr int64_t MOST_DIMS = 64;

struct PlainTensor {
    int8_t dtype;
    uint8_t requires_grad;
    uint16_t dims; // sizes and strides follow
};

bool is_plain(const at::Tensor &t) {
    return t.layout() == c10::kStrided && t.has_storage() && !t.is_quantized() && !t.is_conj() && !t.is_neg() &&
           t.dim() <= MOST_DIMS && !t.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python);
}

// The bytes between its first element and the end of its last one.
size_t span_of(const at::Tensor &t) {
    return at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.element_size(), 0);
}

// A view with large gaps is sent without them, as PyTorch does.
at::Tensor without_gaps(const at::Tensor &t) {
    constexpr size_t SMALL = 8192;
    const size_t span = span_of(t);
    return span >= SMALL && span >= 2 * t.nbytes() ? t.clone() : t;
}

template <class T> void append_bytes(std::string &to, const T *from, size_t count) {
    to.append(reinterpret_cast<const char *>(from), count * sizeof(T));
}

// What is left of a description.
struct Description {
    const char *at;
    size_t left;

    template <class T> void take(T *to, size_t count) {
        if (count * sizeof(T) > left)
            refuse_message("tensors whose description is cut off");
        std::memcpy(to, at, count * sizeof(T));
        at += count * sizeof(T);
        left -= count * sizeof(T);
    }
};

at::Tensor make_plain(Description &description, tt_tensor *storage) {
    PlainTensor head;
    description.take(&head, 1);
    if (head.dims > MOST_DIMS || head.dtype < 0 || head.dtype >= static_cast<int8_t>(c10::ScalarType::NumOptions))
        refuse_message("an impossible tensor");
    std::vector<int64_t> sizes(head.dims), strides(head.dims);
    description.take(sizes.data(), head.dims);
    description.take(strides.data(), head.dims);
    const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(head.dtype));
    const bool negative = std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n < 0; }) ||
                          std::any_of(strides.begin(), strides.end(), [](int64_t n) { return n < 0; });
    const size_t bytes = storage_bytes(storage);
    if (negative || at::detail::computeStorageNbytes(sizes, strides, type.itemsize(), 0) > bytes)
        refuse_message("a tensor that is larger than its storage");
    c10::Storage memory(c10::Storage::use_byte_size_t(), bytes, take_storage(storage), nullptr, false);
    at::Tensor tensor =
        at::detail::make_tensor<c10::TensorImpl>(std::move(memory), c10::DispatchKeySet(c10::DispatchKey::CPU), type);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    if (head.requires_grad)
        tensor.set_requires_grad(true);
    return tensor;
}

std::vector<at::Tensor> make_plain_ones(Description description, const tt_rpc_value *const *storages, int64_t count) {
    char kind;
    description.take(&kind, 1);
    std::vector<at::Tensor> tensors;
    for (int64_t i = 0; i < count; i++)
        tensors.push_back(make_plain(description, expect_value(storages[i], TT_RPC_TENSOR).tensor));
    return tensors;
}

// ---- all others: what PyTorch's pickle says of them

std::vector<at::Tensor> unpickle_tensors(Description description, const tt_rpc_value *const *storages, int64_t count) {
    const auto read = [&](char *to, size_t size) {
        const size_t n = std::min(size, description.left);
        description.take(to, n);
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

std::vector<at::Tensor> unpack_tensors(const tt_rpc_value &description, const tt_rpc_value *const *storages,
                                       int64_t count) {
    const Description whole{static_cast<const char *>(description.bytes.data), description.bytes.size};
    return *whole.at == PLAIN ? make_plain_ones(whole, storages, count) : unpickle_tensors(whole, storages, count);
}

} // namespace

PackedMessage::PackedMessage(MessagePtr message) : message_(std::move(message)) {
    const std::vector<at::Tensor> &tensors = message_->tensors();
    std::for_each(tensors.begin(), tensors.end(), expect_host_memory);
    if (!tensors.empty() && std::all_of(tensors.begin(), tensors.end(), is_plain))
        describe_plainly();
    else if (!tensors.empty())
        pickle_tensors();
    values_.reserve(STORAGES + storages_.size());
    values_.push_back(tt_rpc_int(message_->type()));
    values_.push_back(tt_rpc_bytes(message_->payload().data(), message_->payload().size()));
    values_.push_back(tt_rpc_bytes(description_.data(), description_.size()));
    for (const StoragePtr &storage : storages_)
        values_.push_back(storage_value(storage));
}

void PackedMessage::describe_plainly() {
    description_ = PLAIN;
    for (const at::Tensor &tensor : message_->tensors()) {
        const at::Tensor sent = lasting(without_gaps(tensor));
        const PlainTensor head{static_cast<int8_t>(sent.scalar_type()), tensor.requires_grad(),
                               static_cast<uint16_t>(sent.dim())};
        append_bytes(description_, &head, 1);
        append_bytes(description_, sent.sizes().data(), sent.sizes().size());
        append_bytes(description_, sent.strides().data(), sent.strides().size());
        storages_.push_back(lend_storage(sent, sent.const_data_ptr(), span_of(sent)));
    }
}

void PackedMessage::pickle_tensors() {
    torch::jit::Pickler pickler([&](const char *data, size_t size) { description_.append(data, size); });
    pickler.protocol();
    pickler.pushIValue(torch::distributed::rpc::cloneSparseTensors(message_->tensors()));
    pickler.stop();
    for (const at::Tensor &tensor : pickler.tensorData()) {
        const at::Tensor sent = lasting(tensor);
        storages_.push_back(lend_storage(sent, sent.storage().data(), sent.storage().nbytes()));
    }
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
