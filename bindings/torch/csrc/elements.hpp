// Tensors as Tutti's buffers: element types, reduce operations, and tensors whose elements don't lie one after the
// other.
#pragma once

#include "compat.hpp"

#include <tutti/comm.h>

#include <functional>
#include <string>

namespace tutti_torch {

// What a collective is called with: `count` elements at `data`.
struct Buffer {
    void *data;
    int64_t count;
    tt_dtype dtype;
};

// For reductions, whose elements are added up: TypeError for an element type that Tutti has none for.
tt_dtype reduced_dtype(const at::Tensor &x, const char *call);

// A contiguous tensor for calls that only move elements: types that Tutti has none for move as bytes.
Buffer moved(const at::Tensor &x);

// How many of b's elements one of x's is: its bytes, where Tutti has no such type.
inline int64_t unit_of(const at::Tensor &x, const Buffer &b) {
    return b.dtype == TT_U8 ? static_cast<int64_t>(x.element_size()) : 1;
}

// The same for reductions.
Buffer reduced(const at::Tensor &x, const char *call);

// Fail unless the tensor is dense and in the host's memory.
void check_tensor(const at::Tensor &x, const char *call);

// The one tensor of a list of one, checked. `list` is what the error calls the list.
at::Tensor &only(Tensors &tensors, const char *call, const char *list = "tensor list");

// Fail unless there is a tensor, and all are of one layout, element type and size.
void check_alike(const Tensors &tensors, const char *call);

// Fail unless all are dense, in the host's memory and of the type of `like`.
void check_types(const Tensors &list, const at::Tensor &like, const char *call);

// Fail unless all have as many elements as `like`.
void check_sizes(const Tensors &list, const at::Tensor &like, const char *call);

// Fail unless `large`, which the error calls `name`, has room for `part` of each rank.
void check_parts(const at::Tensor &large, const at::Tensor &part, int ranks, const char *call, const std::string &name);

// Whether x's memory holds its elements, one after the other: it may be a view that turns their signs.
bool lies_packed(const at::Tensor &x);

// A tensor of its own with x's elements, if these don't lie so; else x.
at::Tensor packed(const at::Tensor &x);

// Where x's new elements can come to lie one after the other: x itself, or a tensor to copy them from.
at::Tensor room_for(const at::Tensor &x);

// Fail unless elements can be copied to x: each has memory of its own. To be asked before anything is sent.
void check_writable(const at::Tensor &x);

// What gives x, which must be writable, the elements of `from`, which room_for() or packed() had stand in for it; empty
// where that is x itself.
std::function<void()> copy_back(const at::Tensor &x, const at::Tensor &from);

// The same for each of a list.
std::function<void()> copy_back(const Tensors &list, const Tensors &from);

struct Reduction {
    tt_reduce_op op;
    double factor; // of TT_PREMUL_SUM
};
Reduction reduction(const c10d::ReduceOp &op);

} // namespace tutti_torch
