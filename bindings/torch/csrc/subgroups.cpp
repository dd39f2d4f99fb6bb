// Groups made of a group: by dividing it, without a new meeting; by a meeting of those that are left of it.
#include "errors.hpp"
#include "process_group.hpp"

#if TUTTI_TORCH_NEWEST

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

namespace tutti_torch {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;

static void check_ranks(const std::vector<int> &ranks, int size) {
    for (size_t i = 0; i < ranks.size(); i++) {
        if (ranks[i] < 0 || ranks[i] >= size)
            refuse(c10::str("split_group: expected ranks of 0 to ", size - 1, ", got ", ranks[i]));
        if (std::find(ranks.begin(), ranks.begin() + i, ranks[i]) != ranks.begin() + i)
            refuse(c10::str("split_group: expected different ranks, got ", ranks[i], " twice"));
    }
}

// All ranks of this group call it; `ranks` has this one, or this one is in no part and gets nothing.
BackendPtr ProcessGroupTutti::split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                    const OptionsPtr &opts) {
    check_ranks(ranks, getSize());
    const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
    const bool member = mine != ranks.end();
    const CallSite site = call_site("split_group");
    const auto timeout = opts ? opts->timeout : options_->timeout;
    tt_group *made = nullptr;
    tt_group_split_args a = TT_GROUP_SPLIT_ARGS_INIT;
    a.out = &made;
    a.color = member ? ranks[0] : -1;
    a.key = static_cast<int>(mine - ranks.begin());
    a.timeout_ms = timeout.count();
    a.file = site.file;
    a.line = site.line;
    tt_status status = TT_OK;
    group_->blocking([&](tt_group *g) {
        a.group = g;
        status = tt_group_split_with(&a, offsetof(tt_group_split_args, tt_end));
    });
    group_->check(status);
    if (!member)
        return nullptr;
    return c10::make_intrusive<ProcessGroupTutti>(group_->child(made), store, a.key, static_cast<int>(ranks.size()),
                                                  timeout);
}

BackendPtr ProcessGroupTutti::merge(const c10::intrusive_ptr<c10d::Store> &store, const OptionsPtr &opts,
                                    const int &rank, const int &size) {
    return c10::make_intrusive<ProcessGroupTutti>(store, rank, size, opts ? opts->timeout : options_->timeout);
}

// Those that are left meet anew through the store, since the others, which may be dead, don't call.
BackendPtr ProcessGroupTutti::shrink(const std::vector<int64_t> &excluded, int flags, const OptionsPtr &opts) {
    constexpr int kAbort = 1; // dist.SHRINK_ABORT
    int rank = 0, left = 0;
    for (int r = 0; r < getSize(); r++) {
        if (std::find(excluded.begin(), excluded.end(), r) != excluded.end())
            continue;
        left++;
        rank += r < getRank();
    }
    const bool mine = std::find(excluded.begin(), excluded.end(), getRank()) != excluded.end();
    if (mine || left + static_cast<int>(excluded.size()) != getSize())
        refuse(c10::str("shrink: expected different ranks of 0 to ", getSize() - 1, " without this one (", getRank(),
                        "), got ", c10::Join(", ", excluded)));
    if (flags & kAbort)
        group_->abort("shrink_group(SHRINK_ABORT)");
    const std::string prefix = c10::str("tutti_shrink_", shrinks_++);
    return c10::make_intrusive<ProcessGroupTutti>(c10::make_intrusive<c10d::PrefixStore>(prefix, store_), rank, left,
                                                  opts ? opts->timeout : options_->timeout);
}

c10d::ErrorType ProcessGroupTutti::getError() {
    const Group *group = group_.find();
    switch (group ? group->health().broken_by() : TT_OK) {
    case TT_OK:
        return c10d::ErrorType::SUCCESS;
    case TT_ERR_TIMEOUT:
        return c10d::ErrorType::TIMEOUT;
    case TT_ERR_PEER:
        return c10d::ErrorType::REMOTE_ERROR;
    default:
        return c10d::ErrorType::COMM_ERROR;
    }
}

} // namespace tutti_torch

#endif
