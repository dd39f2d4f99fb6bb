// What a program may hear of calls: hooks of several generations of PyTorch, and times.
#include "deadline.hpp"
#include "errors.hpp"
#include "interpreter.hpp"
#include "process_group.hpp"

#if TUTTI_TORCH_NEWEST

#include <limits>

namespace tutti_torch {

namespace {

constexpr int64_t ON_COMPLETION = std::numeric_limits<int64_t>::min(); // the number of registerOnCompletionHook()'s

} // namespace

void ProcessGroupTutti::enableCollectivesTiming() { hooks_->timing = true; }

// The older kind: one a group, with times on the steady clock. As with NCCL it stays until the group ends.
void ProcessGroupTutti::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) {
    if (onCompletionHook_)
        refuse("registerOnCompletionHook: this process group has a hook already, and can have one");
    onCompletionHook_ = std::move(hook);
    hooks_->completion.add(ON_COMPLETION, [this](const Completion &call) {
        const std::chrono::duration<float> active = call.ended - call.begun;
        onCompletionHook_(std::make_shared<c10d::WorkInfo>(call.type, call.sequence, call.begun, call.ended, active));
    });
}

// Calls made since a hook was registered have ended, and it has been called for each.
void ProcessGroupTutti::waitForPendingWorks() {
    const std::shared_ptr<Group> group = group_.get();
    const auto end = deadline_in(options_->timeout);
    WithoutGil unlocked; // the hook takes the interpreter's lock
    while (!group->watch().await_ends(left_until(end, std::chrono::milliseconds(ATTENTION_MS)))) {
        if (std::chrono::steady_clock::now() >= end) {
            tt_ignore(tt_fail(TT_ERR_TIMEOUT, "waitForPendingWorks: calls of this process group have not ended in the "
                                              "%lld ms of its timeout; they go on",
                              static_cast<long long>(options_->timeout.count())));
            raise(TT_ERR_TIMEOUT);
        }
        attend_to_python();
    }
}

#if TUTTI_TORCH_2_15

void ProcessGroupTutti::registerCompletionHook(int64_t id, c10d::CompletionHook hook) {
    hooks_->completion.add(id, [hook = std::move(hook)](const Completion &call) {
        hook({call.key, call.duration().count()});
    });
}

void ProcessGroupTutti::unregisterCompletionHook(int64_t id) { hooks_->completion.remove(id); }

#endif

} // namespace tutti_torch

#endif
