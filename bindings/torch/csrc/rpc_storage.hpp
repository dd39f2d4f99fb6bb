// Elements of PyTorch's tensors as the tensors of tutti/rpc.h: those are known by functions that libtutti gives
// (src/rpc/tensor_hooks.h), and in this module, which has libtutti-comm alone, by ours. So elements are sent from where
// they lie, and received where PyTorch's allocator has made room. A `tt_tensor` here is bytes of one storage.
#pragma once

#include <ATen/core/Tensor.h>

#include <tutti/rpc.h>

#include <memory>

namespace tutti_torch {

struct StorageFree {
    void operator()(tt_tensor *storage) const;
};
using StoragePtr = std::unique_ptr<tt_tensor, StorageFree>;

// Tell libtutti-comm of them: once, before the first worker is made.
void provide_storages();

// `bytes` at `data`, which are a part of the storage of a tensor in the host's memory, and keep it.
StoragePtr lend_storage(const at::Tensor &tensor, const void *data, size_t bytes);

// A value of it, which borrows it.
tt_rpc_value storage_value(const StoragePtr &storage);

// The memory of a storage that was received, or, where it is the sender's own, as in a call to itself, a copy of it.
at::DataPtr take_storage(tt_tensor *storage);
size_t storage_bytes(const tt_tensor *storage);

} // namespace tutti_torch
