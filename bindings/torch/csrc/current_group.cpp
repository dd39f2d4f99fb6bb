#include "current_group.hpp"

namespace tutti_torch {

std::shared_ptr<Group> CurrentGroup::exchange(std::shared_ptr<Group> next) {
    std::lock_guard<std::mutex> guard(lock_);
    std::shared_ptr<Group> before = all_.empty() ? nullptr : all_.back();
    if (next) {
        now_.store(next.get(), std::memory_order_release);
        all_.push_back(std::move(next));
    }
    return before;
}

void CurrentGroup::fail_none() {
    tt_ignore(tt_fail(TT_ERR_STATE, "the process group has no members before reconfigure(): it was made with "
                                    "enable_reconfigure=True"));
    raise(TT_ERR_STATE);
}

} // namespace tutti_torch
