// monitored_barrier: its error has Tutti's text, which names ranks of the job, and after it the words of PyTorch's own
// monitoredBarrier, which name those of the group, and which scripts look for.
#include "errors.hpp"
#include "process_group.hpp"

#include <cctype>

namespace tutti_torch {

namespace {

// "ranks 1-3 and 5 did not come ...": the job's ranks 1, 2, 3 and 5, as the group numbers them; empty: none is named.
std::vector<int> missing_ranks(const tt_group *group, const std::string &text) {
    const size_t end = text.find(" did not come");
    std::vector<int> ranks;
    bool range = false; // the number before ended in '-'
    for (size_t at = 0; end != std::string::npos && at < end; at++) {
        if (!std::isdigit(static_cast<unsigned char>(text[at])))
            continue;
        size_t digits;
        const int rank = std::stoi(text.substr(at, end - at), &digits);
        for (int r = range ? ranks.back() + 1 : rank; r <= rank; r++)
            ranks.push_back(r);
        at += digits;
        range = text[at] == '-';
    }
    for (int &r : ranks)
        r = tt_get_group_rank(group, r);
    return ranks;
}

std::string verdict(const tt_group *group, int rank, const std::string &text) {
    if (rank)
        return c10::str("Rank ", rank, " successfully reached monitoredBarrier, but received errors while waiting for "
                        "send/recv from rank 0");
    const std::vector<int> missing = missing_ranks(group, text);
    return c10::str("Rank 0 timed out in monitoredBarrier: Rank", missing.size() == 1 ? " " : "s ",
                    c10::Join(", ", missing), " failed to pass monitoredBarrier");
}

} // namespace

void ProcessGroupTutti::monitoredBarrier(const c10d::BarrierOptions &opts, bool) {
    const CallSite site = call_site("monitored_barrier");
    tt_barrier_args a = TT_ARGS_INIT;
    a.timeout_ms = opts.timeout.count() >= 0 ? std::max<int64_t>(opts.timeout.count(), 1) : 0; // 0 would be the group's
    a.file = site.file;
    a.line = site.line;
    ++sequence_;
    tt_status status = TT_OK;
    group_->blocking([&](tt_group *g) {
        a.group = g;
        status = tt_monitored_barrier_with(&a, offsetof(tt_barrier_args, tt_end));
        if (status == TT_ERR_TIMEOUT) {
            const std::string text = tt_last_error();
            tt_ignore(tt_fail(status, "%s. %s", text.c_str(), verdict(g, getRank(), text).c_str()));
        }
    });
    if (status == TT_ERR_TIMEOUT && !getRank()) // which leaves the group as it was
        raise(status);
    group_->check(status);
}

} // namespace tutti_torch
