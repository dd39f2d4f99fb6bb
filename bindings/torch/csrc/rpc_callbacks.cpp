#include "rpc_callbacks.hpp"

#include <chrono>
#include <system_error>
#include <thread>

namespace tutti_torch {
namespace {

constexpr std::chrono::seconds IDLE_TIME{5}; // of a thread, before it ends

} // namespace

void CallbackThreads::run(std::function<void()> f) {
    std::lock_guard<std::mutex> guard(lock_);
    waiting_.push_back(std::move(f));
    if (idle_ >= waiting_.size())
        more_.notify_one();
    else
        start();
}

void CallbackThreads::start() {
    try {
        std::thread([self = shared_from_this()] { self->serve(); }).detach();
        threads_++;
    } catch (const std::system_error &) {
        more_.notify_one(); // those that there are take it in turn
    }
}

void CallbackThreads::run_apart(std::function<void()> f) {
    std::lock_guard<std::mutex> guard(lock_);
    std::thread([self = shared_from_this(), f = std::move(f)]() mutable {
        f();
        f = nullptr;
        std::lock_guard<std::mutex> end(self->lock_);
        self->threads_--;
        self->drained_.notify_all();
    }).detach();
    threads_++;
}

void CallbackThreads::serve() {
    std::unique_lock<std::mutex> guard(lock_);
    for (;;) {
        while (!waiting_.empty()) {
            std::function<void()> f = std::move(waiting_.front());
            waiting_.pop_front();
            guard.unlock();
            f();
            f = nullptr;
            guard.lock();
        }
        idle_++;
        if (idle_ == threads_)
            drained_.notify_all();
        const bool asked =
            more_.wait_for(guard, IDLE_TIME, [&] { return stopped_ || !waiting_.empty(); }) && !waiting_.empty();
        idle_--;
        if (!asked)
            break;
    }
    threads_--;
    drained_.notify_all();
}

void CallbackThreads::drain() {
    std::unique_lock<std::mutex> guard(lock_);
    drained_.wait(guard, [&] { return waiting_.empty() && idle_ == threads_; });
}

void CallbackThreads::stop() {
    std::lock_guard<std::mutex> guard(lock_);
    stopped_ = true;
    more_.notify_all();
}

} // namespace tutti_torch
