#include "watch.hpp"

#include "group.hpp"

#include <algorithm>
#include <system_error>
#include <thread>

namespace tutti_torch {
namespace {

constexpr std::chrono::milliseconds LOOK{50}; // so long calls may be left alone
constexpr int LOOKS = 20;                     // at nothing, before who stands by dozes off

thread_local const Watch *served = nullptr;

// Callbacks that run, of all groups.
struct Callbacks {
    std::mutex lock;
    std::condition_variable ended;
    size_t running = 0;
};

Callbacks &callbacks() {
    static auto *all = new Callbacks; // threads outlive what main() destroys
    return *all;
}

struct DoneNote {
    std::shared_ptr<Pending> pending;
    std::shared_ptr<Group> group;
};

} // namespace

// ---- threads

// Nobody joins them: what one runs, a future's callback, may wait for whoever would.
void Watch::start(const std::shared_ptr<Group> &group, Run run) {
    std::thread([this, group, run] {
        served = this;
        (this->*run)(group);
    }).detach();
}

// A callback's own calls need another thread than the one that it runs in.
void Watch::start_missing(const std::shared_ptr<Group> &group) {
    const size_t wanted = (unordered_ ? 2 : 1) + (served == this && !idle_ ? calling_ : 0);
    try {
        for (; servers_ < wanted; servers_++)
            start(group, &Watch::serve);
        if (!stands_by_)
            start(group, &Watch::stand_by);
        stands_by_ = true;
    } catch (const std::system_error &) { // there are limits to threads; the next call that comes tries again
    }
}

void Watch::serve(const std::shared_ptr<Group> &) {
    Guard guard(lock_);
    for (;;) {
        idle_++;
        changed_.wait(guard, [&] { return stopping_ || has_work(); });
        idle_--;
        if (!has_work())
            break;
        rounds_++;
        if (done_.empty())
            lead(guard);
        else
            settle(guard);
    }
    servers_--;
    drained_.notify_all();
}

// Look for a while. Have all who serve been busy with what they had taken up before, and is there something to do?
bool Watch::is_left_alone(Guard &guard) {
    const uint64_t seen = rounds_;
    const bool had_work = has_work();
    calm_.wait_for(guard, LOOK, [&] { return stopping_; });
    return had_work && has_work() && rounds_ == seen && !idle_;
}

void Watch::stand_by(const std::shared_ptr<Group> &group) {
    Guard guard(lock_);
    for (int looks = 0; !is_left_alone(guard);) {
        if (stopping_)
            return;
        looks = watched_.empty() ? looks + 1 : 0;
        if (looks < LOOKS)
            continue;
        dozes_ = true;
        calm_.wait(guard, [&] { return stopping_ || !watched_.empty(); });
        dozes_ = false;
    }
    servers_++;
    stands_by_ = false;
    if (!stopping_)
        start_missing(group);
    guard.unlock();
    serve(group);
}

// ---- calls come, and end

void Watch::on_done(tt_status, int, void *user) {
    std::unique_ptr<DoneNote> note(static_cast<DoneNote *>(user));
    Watch &watch = note->group->watch();
    Guard guard(watch.lock_);
    watch.done_.push_back(std::move(note->pending));
    watch.changed_.notify_one();
}

bool Watch::add(const std::shared_ptr<Pending> &pending, const std::shared_ptr<Group> &group) {
    bool tell, is_served;
    {
        Guard guard(lock_);
        if (stopping_)
            return false;
        watched_.push_back(pending);
        unordered_ |= !pending->is_collective();
        start_missing(group);
        if (!led_)
            changed_.notify_one();
        if (dozes_)
            calm_.notify_one();
        tell = unordered_;
        is_served = servers_ > calling_ || stands_by_;
    }
    for (tt_work *work : pending->handles) {
        if (!tell)
            break;
        auto note = std::make_unique<DoneNote>(DoneNote{pending, group});
        if (group->add_callback(work, on_done, note.get()))
            note.release();
    }
    return is_served;
}

void Watch::forget(const std::shared_ptr<Pending> &pending) {
    const auto found = std::find(watched_.begin(), watched_.end(), pending); // mostly the oldest
    if (found != watched_.end())
        watched_.erase(found);
    drained_.notify_all();
}

// Complete the future of a call that has ended, which runs its callbacks.
void Watch::end(Guard &guard, std::shared_ptr<Pending> pending) {
    calling_++;
    drained_.notify_all();
    guard.unlock();
    Callbacks &all = callbacks();
    {
        std::lock_guard<std::mutex> counted(all.lock);
        all.running++;
    }
    pending->wait(); // for nothing
    pending.reset(); // frees tensors, for which it may wait for the interpreter: not with the lock held
    {
        std::lock_guard<std::mutex> counted(all.lock);
        all.running--;
        all.ended.notify_all();
    }
    guard.lock();
    calling_--;
    drained_.notify_all();
}

// Wait for the oldest call. Whoever else serves may wait for the next one while this one's callbacks run.
void Watch::lead(Guard &guard) {
    std::shared_ptr<Pending> oldest = watched_.front();
    led_ = true;
    guard.unlock();
    oldest->await();
    guard.lock();
    led_ = false;
    forget(oldest);
    if (idle_ && !watched_.empty())
        changed_.notify_one();
    end(guard, std::move(oldest));
}

// Each handle of a call tells of itself: the last one counts.
void Watch::settle(Guard &guard) {
    std::shared_ptr<Pending> ended = std::move(done_.front());
    done_.pop_front();
    guard.unlock();
    const bool all = ended->is_over();
    guard.lock();
    if (!all)
        return;
    forget(ended);
    end(guard, std::move(ended));
}

// ---- the end

bool Watch::is_idle() const {
    return std::all_of(watched_.begin(), watched_.end(), [](const auto &each) { return each->is_done(); });
}

bool Watch::drain(std::chrono::milliseconds time) {
    Guard guard(lock_);
    return drained_.wait_for(guard, time, [&] { return is_idle(); });
}

bool Watch::await_ends(std::chrono::milliseconds time) {
    Guard guard(lock_);
    return drained_.wait_for(guard, time, [&] { return watched_.empty() && calling_ == 0; });
}

void Watch::stop() {
    Guard guard(lock_);
    stopping_ = true;
    changed_.notify_all();
    calm_.notify_all();
    drained_.wait(guard, [&] { return servers_ == calling_; });
    while (!watched_.empty()) { // those that serve are all within callbacks, or could not be made
        std::shared_ptr<Pending> left = std::move(watched_.front());
        watched_.pop_front();
        end(guard, std::move(left));
    }
}

void Watch::await_callbacks(std::chrono::milliseconds time) {
    Callbacks &all = callbacks();
    std::unique_lock<std::mutex> guard(all.lock);
    all.ended.wait_for(guard, time, [&] { return all.running == 0; });
}

} // namespace tutti_torch
