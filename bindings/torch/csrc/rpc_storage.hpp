// Bytes of PyTorch's storages as tensors of tutti/rpc.h. libtutti-comm knows tensors only by hooks
// (src/rpc/values/tensor_hooks.h). libtutti has set them elsewhere; in this module, which has no libtutti, they are
// ours, and a `tt_tensor` is bytes of one storage. So elements are sent from PyTorch's memory, and received into memory
// of its allocator, without a copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <tutti/rpc.h>

#include <memory>

namespace tutti_torch {

struct StorageFree {
    void operator()(tt_tensor *storage) const;
};
using StoragePtr = std::unique_ptr<tt_tensor, StorageFree>;

// Set the hooks: once, before the first worker is made.
void provide_storages();

// Make a tt_tensor of `bytes` at `data`, a part of the storage of `tensor`, which is in the host's memory and is kept.
StoragePtr lend_storage(const at::Tensor &tensor, const void *data, size_t bytes);

// Make a value that borrows it.
tt_rpc_value storage_value(const StoragePtr &storage);

// Take the memory of a storage that was received. In a call to itself the storage is the sender's own, and is copied.
at::DataPtr take_storage(tt_tensor *storage);
size_t storage_bytes(const tt_tensor *storage);

} // namespace tutti_torch
