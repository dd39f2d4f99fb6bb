#include "health.hpp"

#include "pending.hpp"

#include <algorithm>

namespace tutti_torch {

static bool leaves_the_group(tt_status status) {
    return status == TT_OK || status == TT_ERR_INVALID || status == TT_ERR_UNSUPPORTED || status == TT_ERR_MEMORY ||
           status == TT_ERR_STATE;
}

// ---- the first error of the process

namespace {

struct FirstError {
    std::mutex lock;
    tt_status status = TT_OK;
    std::string text;
};

FirstError &first_error() {
    static auto *first = new FirstError;
    return *first;
}

void remember(tt_status status, const char *text) {
    FirstError &first = first_error();
    std::lock_guard<std::mutex> guard(first.lock);
    if (first.status || status == TT_ERR_ABORTED) // which the program may have asked for
        return;
    first.status = status;
    first.text = text;
}

} // namespace

void Health::recall_first_error() {
    FirstError &first = first_error();
    std::lock_guard<std::mutex> guard(first.lock);
    if (first.status)
        tt_ignore(tt_fail(first.status, "%s", first.text.c_str()));
}

void Health::forget_first_error() {
    FirstError &first = first_error();
    std::lock_guard<std::mutex> guard(first.lock);
    first.status = TT_OK;
}

// ---- this group

void Health::note(tt_status status) {
    tt_status works = TT_OK;
    if (leaves_the_group(status) || !broken_by_.compare_exchange_strong(works, status))
        return;
    remember(status, tt_last_status() == status ? tt_last_error() : tt_status_text(status));
    hooks_->abort.run();
}

void Health::extend(std::chrono::milliseconds by) {
    std::lock_guard<std::mutex> guard(lock_);
    extensions_.push_back({by, {}, false});
    extended_.store(true, std::memory_order_relaxed);
}

std::chrono::milliseconds Health::extension_now(const std::shared_ptr<Pending> &call) {
    std::vector<std::shared_ptr<Pending>> looked_at; // each may be the last reference: released when the lock is
    std::lock_guard<std::mutex> guard(lock_);
    auto is_over = [&](const Extension &e) {
        looked_at.push_back(e.first.lock());
        return e.begun && (!looked_at.back() || looked_at.back()->is_done());
    };
    extensions_.erase(std::remove_if(extensions_.begin(), extensions_.end(), is_over), extensions_.end());
    extended_.store(!extensions_.empty(), std::memory_order_relaxed);
    std::chrono::milliseconds sum(0);
    for (Extension &e : extensions_) {
        sum += e.by;
        if (!e.begun)
            e.first = call;
        e.begun = true;
    }
    return sum;
}

} // namespace tutti_torch
