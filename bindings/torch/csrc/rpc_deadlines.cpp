#include "rpc_deadlines.hpp"

#include <thread>

namespace tutti_torch {

Deadlines::Entry Deadlines::call_at(Time time, std::function<void()> f) {
    std::lock_guard<std::mutex> guard(lock_);
    if (stopped_)
        return {};
    if (!started_)
        std::thread([self = shared_from_this()] { self->serve(); }).detach();
    started_ = true;
    const Entry entry{time, ++last_number_};
    const auto place = waiting_.emplace(entry, std::move(f)).first;
    if (place == waiting_.begin())
        changed_.notify_one();
    return entry;
}

void Deadlines::drop(const Entry &entry) {
    std::lock_guard<std::mutex> guard(lock_);
    waiting_.erase(entry);
}

void Deadlines::serve() {
    std::unique_lock<std::mutex> guard(lock_);
    while (!stopped_) {
        if (waiting_.empty()) {
            changed_.wait(guard);
        } else if (const auto next = waiting_.begin()->first.time; next > std::chrono::steady_clock::now()) {
            changed_.wait_until(guard, next);
        } else {
            const auto node = waiting_.extract(waiting_.begin());
            calling_ = true;
            guard.unlock();
            node.mapped()();
            guard.lock();
            calling_ = false;
            called_.notify_all();
        }
    }
}

void Deadlines::stop() {
    std::unique_lock<std::mutex> guard(lock_);
    stopped_ = true;
    waiting_.clear();
    changed_.notify_one();
    called_.wait(guard, [&] { return !calling_; });
}

} // namespace tutti_torch
