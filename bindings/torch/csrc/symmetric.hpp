// Tensors in memory that the ranks of a host share, which collectives read and write where it lies.
#pragma once

#include "group.hpp"

#include "comm/native/peer_memory.h"

#include <c10/core/Allocator.h>

namespace tutti_torch {

// Does another rank of the group share memory with this one?
bool symmetric_memory_is_there(Group &group);

// A tensor of one dimension in the group's symmetric memory; in ordinary memory where the heap is full. It may
// outlive the group.
at::Tensor symmetric_tensor(const std::shared_ptr<Group> &group, int64_t numel, const at::TensorOptions &options);

// Do x's elements lie in the memory that this rank shares?
bool is_symmetric(Group &group, const at::Tensor &x);

// Gives memory of that kind, or ordinary one where it is full or the group was left.
std::shared_ptr<c10::Allocator> symmetric_allocator(std::shared_ptr<Group> group);

tt__shared_bytes shared_bytes(Group &group);

// Where x's elements begin in the memory that this rank shares; -1: they don't lie there.
int64_t symmetric_offset(Group &group, const at::Tensor &x);

// The memory that `rank` of the group shares, at that offset of its; nullptr: this rank can't reach it. Valid until the
// group is left.
void *memory_of(Group &group, int rank, int64_t offset);

// From now on this thread's new CPU tensors lie in the group's symmetric memory; no group: in ordinary memory. Returns
// the group that was set before.
std::shared_ptr<Group> use_symmetric_memory(std::shared_ptr<Group> group);

} // namespace tutti_torch
