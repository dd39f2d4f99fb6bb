#include "symmetric.hpp"

#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace tutti_torch {
namespace {

void free_memory(void *memory) { tt__local_memory_free(static_cast<tt__local_memory *>(memory)); }

// Empty where there is none: ordinary memory is as good, only slower.
at::DataPtr symmetric_data(Group &group, size_t bytes) {
    if (group.is_inherited())
        return {};
    void *at = nullptr;
    tt__local_memory *memory = nullptr;
    tt_status status = TT_ERR_STATE;
    try {
        group.locked([&](tt_group *g) { status = tt__local_memory_alloc(g, bytes, &memory, &at); });
    } catch (const std::exception &) { // the group was destroyed
    }
    return status ? at::DataPtr() : at::DataPtr(at, memory, free_memory, at::Device(at::kCPU));
}

thread_local std::shared_ptr<Group> used;

// What differs between versions of PyTorch.
class BytesAllocator : public c10::Allocator {
  public:
#if TUTTI_TORCH_2
    at::DataPtr allocate(size_t bytes) final { return take(bytes); }
    void copy_data(void *to, const void *from, size_t bytes) const final { std::memcpy(to, from, bytes); }
#else
    at::DataPtr allocate(size_t bytes) const final { return take(bytes); }
#endif
    at::DeleterFnPtr raw_deleter() const final { return nullptr; } // each range has a context of its own

  private:
    virtual at::DataPtr take(size_t bytes) const = 0;
};

// PyTorch's own allocator, except where use_symmetric_memory() says otherwise.
class ChoosingAllocator final : public BytesAllocator {
  public:
    explicit ChoosingAllocator(c10::Allocator *plain) : plain_(plain) {}

  private:
    at::DataPtr take(size_t bytes) const override {
        at::DataPtr data;
        if (used && bytes)
            data = symmetric_data(*used, bytes);
        return data ? std::move(data) : plain_->allocate(bytes);
    }

    c10::Allocator *plain_;
};

class SymmetricAllocator final : public BytesAllocator {
  public:
    explicit SymmetricAllocator(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  private:
    at::DataPtr take(size_t bytes) const override {
        at::DataPtr data = symmetric_data(*group_, bytes);
        return data ? std::move(data) : c10::GetCPUAllocator()->allocate(bytes);
    }

    const std::shared_ptr<Group> group_;
};

// PyTorch has one allocator for the CPU. Ours stays once it is needed: tensors remember who made them.
void install_allocator() {
    static ChoosingAllocator *const made = [] {
        auto *allocator = new ChoosingAllocator(c10::GetCPUAllocator());
        c10::SetCPUAllocator(allocator, 100);
        return allocator;
    }();
    (void)made;
}

} // namespace

bool symmetric_memory_is_there(Group &group) {
    bool is_there = false;
    group.locked([&](tt_group *g) { is_there = tt__local_memory_is_there(g); });
    return is_there;
}

bool is_symmetric(Group &group, const at::Tensor &x) {
    if (x.layout() != at::kStrided || x.device().type() != at::kCPU)
        return false;
    bool lies_there = false;
    const auto &memory = x.storage();
    group.locked([&](tt_group *g) { lies_there = tt__is_symmetric(g, memory.data_ptr().get(), memory.nbytes()); });
    return lies_there;
}

std::shared_ptr<c10::Allocator> symmetric_allocator(std::shared_ptr<Group> group) {
    return std::make_shared<SymmetricAllocator>(std::move(group));
}

tt__shared_bytes shared_bytes(Group &group) {
    tt__shared_bytes bytes = {};
    group.locked([&](tt_group *g) { bytes = tt__group_shared_bytes(g); });
    return bytes;
}

int64_t symmetric_offset(Group &group, const at::Tensor &x) {
    if (!is_symmetric(group, x))
        return -1;
    const char *base = nullptr;
    group.locked([&](tt_group *g) { base = static_cast<const char *>(tt__peer_memory(g, tt_get_rank(g), 0)); });
    return base ? static_cast<const char *>(x.data_ptr()) - base : -1;
}

void *memory_of(Group &group, int rank, int64_t offset) {
    const void *at = nullptr;
    group.locked([&](tt_group *g) { at = tt__peer_memory(g, rank, offset); });
    return const_cast<void *>(at);
}

// It can be resized, as some hooks of DDP's do with its buckets, and lies in ordinary memory then.
at::Tensor symmetric_tensor(const std::shared_ptr<Group> &group, int64_t numel, const at::TensorOptions &options) {
    const size_t bytes = numel * options.dtype().itemsize();
    at::DataPtr data = symmetric_data(*group, bytes);
    if (!data)
        return at::empty({numel}, options);
    const at::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                                    std::move(data), c10::GetCPUAllocator(), true));
    return at::empty({0}, options).set_(storage, 0, {numel}, {1});
}

std::shared_ptr<Group> use_symmetric_memory(std::shared_ptr<Group> group) {
    install_allocator();
    std::swap(used, group);
    return group;
}

} // namespace tutti_torch
