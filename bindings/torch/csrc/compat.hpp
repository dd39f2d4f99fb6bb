// What differs between the versions of PyTorch that the back end is built for: from 2.0 on a back end derives from
// c10d::Backend, before that from c10d::ProcessGroup.
#pragma once

#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#define TUTTI_TORCH_2 1
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#define TUTTI_TORCH_2 0
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

// What Backend has had since about 2.13: groups made by split and shrink, abort hooks, time lent to calls.
#ifdef C10D_BACKEND_HAS_HOOKS
#define TUTTI_TORCH_NEWEST 1
#else
#define TUTTI_TORCH_NEWEST 0
#endif

// Completion hooks, windows, timing and estimates of calls, as 2.15 has them.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15)
#define TUTTI_TORCH_2_15 1
#else
#define TUTTI_TORCH_2_15 0
#endif

#include <vector>

namespace tutti_torch {

#if TUTTI_TORCH_2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

} // namespace tutti_torch
