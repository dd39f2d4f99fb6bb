#include "process_group.hpp"

#include "errors.hpp"
#include "interpreter.hpp"

namespace tutti_torch {

namespace {

// How long a group that is destroyed waits for sends that nobody waits for.
constexpr std::chrono::milliseconds kDrain{2000};

} // namespace

ProcessGroupTutti::ProcessGroupTutti(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                                     std::chrono::milliseconds timeout)
    : Base(rank, size), group_(Group::join(store, rank, size, timeout)) {
#if TUTTI_TORCH_2
    options_ = c10::make_intrusive<Options>("tutti", timeout);
#endif
    init();
}

ProcessGroupTutti::~ProcessGroupTutti() {
    WithoutGil unlocked;
    group_->shutdown(kDrain);
}

#if TUTTI_TORCH_2
void ProcessGroupTutti::shutdown() {
    WithoutGil unlocked;
    group_->shutdown(kDrain);
}
#endif

} // namespace tutti_torch
