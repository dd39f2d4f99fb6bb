#include "rpc_storage.hpp"

#include "rpc/values/tensor_hooks.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>

// Of this module's own, whatever libtutti's is.
struct tt_tensor {
    std::atomic<int> shares{1};
    at::Tensor lent;      // keeps what it has lent
    at::DataPtr received; // or its own memory
    void *data = nullptr;
    size_t bytes = 0;
};

namespace tutti_torch {
namespace {

char nothing; // where no bytes lie

tt_tensor *share_storage(tt_tensor *storage) {
    storage->shares.fetch_add(1, std::memory_order_relaxed);
    return storage;
}

void free_storage(tt_tensor *storage) {
    if (storage && storage->shares.fetch_sub(1, std::memory_order_acq_rel) == 1)
        delete storage;
}

void release_storage(void *keep) { free_storage(static_cast<tt_tensor *>(keep)); }

const void *describe_storage(tt_tensor *storage, tt__rpc_form *form, size_t *bytes, void **keep) {
    *form = {};
    form->dtype = TT_U8;
    form->device = TT_DEVICE_CPU;
    form->ndim = 1;
    form->shape[0] = static_cast<int64_t>(storage->bytes);
    *bytes = storage->bytes;
    *keep = share_storage(storage);
    return storage->data;
}

tt_tensor *make_storage(const tt__rpc_form *form, size_t bytes, void **data) {
    if (form->dtype != TT_U8 || form->ndim != 1 || form->shape[0] < 0 || static_cast<size_t>(form->shape[0]) != bytes) {
        tt_ignore(tt_fail(TT_ERR_PROTOCOL, "expected %zu bytes of a storage, got something else", bytes));
        return nullptr;
    }
    try {
        auto storage = std::make_unique<tt_tensor>();
        storage->received = c10::GetCPUAllocator()->allocate(bytes);
        storage->bytes = bytes;
        storage->data = *data = bytes ? storage->received.get() : &nothing;
        return storage.release();
    } catch (const std::exception &) {
        tt_ignore(tt_fail(TT_ERR_MEMORY, "no memory for a tensor of %zu bytes", bytes));
        return nullptr;
    }
}

tt_status storage_made(tt_tensor *, const tt__rpc_form *) { return TT_OK; }

// PyTorch's own autograd knows of its contexts: its messages carry them.
uint64_t no_context() { return 0; }
void enter_no_context(tt_rpc *, uint64_t) {}
void leave_no_context(uint64_t) {}
tt_status sending_nothing(tt_rpc *, int, tt__rpc_context *, tt_tensor *const *, int64_t) { return TT_OK; }
tt_status received_nothing(tt_rpc *, int, const tt__rpc_context *, tt_tensor **, int64_t) { return TT_OK; }

tt__rpc_tensor_hooks storage_hooks() {
    tt__rpc_tensor_hooks hooks = {};
    hooks.describe = describe_storage;
    hooks.release = release_storage;
    hooks.make = make_storage;
    hooks.made = storage_made;
    hooks.share = share_storage;
    hooks.free = free_storage;
    hooks.current = no_context;
    hooks.enter = enter_no_context;
    hooks.leave = leave_no_context;
    hooks.sending = sending_nothing;
    hooks.received = received_nothing;
    return hooks;
}

} // namespace

void StorageFree::operator()(tt_tensor *storage) const { free_storage(storage); }

void provide_storages() {
    static const tt__rpc_tensor_hooks hooks = storage_hooks();
    static std::once_flag once;
    std::call_once(once, [] { tt__rpc_set_tensor_hooks(&hooks); });
}

StoragePtr lend_storage(const at::Tensor &tensor, const void *data, size_t bytes) {
    StoragePtr storage(new tt_tensor);
    storage->lent = tensor;
    storage->bytes = bytes;
    storage->data = bytes ? const_cast<void *>(data) : &nothing;
    return storage;
}

tt_rpc_value storage_value(const StoragePtr &storage) {
    tt_rpc_value value = tt_rpc_none();
    value.kind = TT_RPC_TENSOR;
    value.tensor = storage.get();
    return value;
}

at::DataPtr take_storage(tt_tensor *storage) {
    if (storage->received)
        return std::move(storage->received);
    at::DataPtr copy = c10::GetCPUAllocator()->allocate(storage->bytes);
    if (storage->bytes)
        std::memcpy(copy.get(), storage->data, storage->bytes);
    return copy;
}

size_t storage_bytes(const tt_tensor *storage) { return storage->bytes; }

} // namespace tutti_torch
