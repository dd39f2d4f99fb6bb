#include "process_group.hpp"

#include "errors.hpp"
#include "interpreter.hpp"
#include "symmetric.hpp"

namespace tutti_torch {

ProcessGroupTutti::ProcessGroupTutti(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                                     std::chrono::milliseconds timeout)
    : ProcessGroupTutti(Group::join(store, rank, size, timeout), store, rank, size, timeout) {}

ProcessGroupTutti::ProcessGroupTutti(std::shared_ptr<Group> group, const c10::intrusive_ptr<c10d::Store> &store,
                                     int rank, int size, std::chrono::milliseconds timeout)
    : Base(rank, size), hooks_(group ? group->hooks() : std::make_shared<Hooks>()), group_(group), store_(store) {
#if TUTTI_TORCH_2
    options_ = c10::make_intrusive<TuttiOptions>(timeout);
#endif
    init();
}

ProcessGroupTutti::~ProcessGroupTutti() {
    WithoutGil unlocked;
    if (Group *group = group_.find())
        group->shutdown(kDrain);
}

#if TUTTI_TORCH_2
void ProcessGroupTutti::shutdown() {
    WithoutGil unlocked;
    if (Group *group = group_.find())
        group->shutdown(kDrain);
}

void ProcessGroupTutti::abort() {
    if (Group *group = group_.find())
        group->abort("ProcessGroup.abort()");
}

void ProcessGroupTutti::setTimeout(std::chrono::milliseconds timeout) {
    if (Group *group = group_.find())
        group->set_timeout(timeout);
    options_->timeout = timeout;
}

void ProcessGroupTutti::startCoalescing() {
    std::lock_guard<std::mutex> guard(batch_lock_);
    batch_ = std::make_unique<std::vector<WorkPtr>>(); // one that is there was left open by an exception
}

void ProcessGroupTutti::note_in_batch(const WorkPtr &work) {
    std::lock_guard<std::mutex> guard(batch_lock_);
    if (batch_)
        batch_->push_back(work);
}

WorkPtr ProcessGroupTutti::endCoalescing() {
    std::lock_guard<std::mutex> guard(batch_lock_);
    if (!batch_)
        refuse("endCoalescing: expected startCoalescing() before");
    auto works = std::move(batch_); // also of a group that was aborted meanwhile
    return c10::make_intrusive<BatchWork>(getRank(), std::move(*works));
}
#endif

#if TUTTI_TORCH_NEWEST
bool ProcessGroupTutti::supportsTensorAlloc(c10::DeviceIndex) {
    return group_.find() && symmetric_memory_is_there(*group_.get());
}

at::Tensor ProcessGroupTutti::allocateTensor(long size, at::TensorOptions options) {
    if (size < 0 || options.device().type() != at::kCPU)
        refuse(c10::str("allocateTensor: expected 0 or more elements in the host's memory, got ", size, " on ",
                        options.device()));
    return symmetric_tensor(group_.get(), size, options);
}

#if TUTTI_TORCH_2_15
std::shared_ptr<c10::Allocator> ProcessGroupTutti::getMemAllocator() { return symmetric_allocator(group_.get()); }
#endif
#endif

} // namespace tutti_torch
