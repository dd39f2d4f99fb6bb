#include "current_group.hpp"

namespace tutti_torch {

std::shared_ptr<Group> CurrentGroup::exchange(std::shared_ptr<Group> next) {
    std::lock_guard<std::mutex> guard(lock_);
    Group *before = now_.exchange(next.get(), std::memory_order_acq_rel);
    if (next)
        all_.push_back(std::move(next));
    return before ? before->shared_from_this() : nullptr;
}

void CurrentGroup::fail_none() const {
    tt_ignore(tt_fail(TT_ERR_STATE, all_.empty()
                                        ? "the process group has no members before reconfigure(): it was made with "
                                          "enable_reconfigure=True"
                                        : "the process group is suspended: all its ranks have to call resume() first"));
    raise(TT_ERR_STATE);
}

} // namespace tutti_torch
