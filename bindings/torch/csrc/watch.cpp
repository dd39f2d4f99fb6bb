#include "watch.hpp"

#include "group.hpp"

#include <algorithm>
#include <system_error>

namespace tutti_torch {
namespace {

constexpr std::chrono::milliseconds LOOK{50}; // so long calls may be left alone
constexpr int LOOKS = 20;                     // at nothing, before who stands by dozes off

thread_local const Watch *served = nullptr;

} // namespace

bool Watch::is_served_here() const { return served == this; }

// ---- calls come, and end

struct Watch::DoneNote {
    std::shared_ptr<Pending> pending;
    std::shared_ptr<Group> group;
};

void Watch::on_done(tt_status, int, void *user) {
    std::unique_ptr<DoneNote> note(static_cast<DoneNote *>(user));
    note->group->watch().note_done(std::move(note->pending));
}

void Watch::note_done(std::shared_ptr<Pending> pending) {
    Guard guard(lock_);
    done_.push_back(std::move(pending));
    changed_.notify_one();
}

void Watch::start(const std::shared_ptr<Group> &group, void (Watch::*run)(const std::shared_ptr<Group> &)) {
    threads_.emplace_back([this, group, run] {
        served = this;
        (this->*run)(group);
    });
}

void Watch::add(const std::shared_ptr<Pending> &pending, const std::shared_ptr<Group> &group) {
    bool tell;
    {
        Guard guard(lock_);
        if (stopping_) { // the group is being left, which ends all calls
            guard.unlock();
            pending->wait();
            return;
        }
        unordered_ |= !pending->is_collective();
        const size_t wanted = unordered_ ? 2 : 1;
        for (; servers_ < wanted; servers_++) {
            start(group, &Watch::serve);
            if (!servers_)
                start(group, &Watch::stand_by);
        }
        watched_.push_back(pending);
        if (!led_)
            changed_.notify_one();
        if (dozes_)
            calm_.notify_one();
        tell = unordered_;
    }
    for (tt_work *work : pending->handles) {
        if (!tell)
            break;
        auto note = std::make_unique<DoneNote>(DoneNote{pending, group});
        if (tt_work_add_done_callback(work, on_done, note.get()) == TT_OK)
            note.release();
    }
}

void Watch::forget(const std::shared_ptr<Pending> &pending) {
    watched_.erase(std::remove(watched_.begin(), watched_.end(), pending), watched_.end());
    drained_.notify_all();
}

// ---- who serves

void Watch::serve(const std::shared_ptr<Group> &) {
    Guard guard(lock_);
    for (;;) {
        idle_++;
        changed_.wait(guard, [&] { return stopping_ || has_work(); });
        idle_--;
        if (!has_work())
            return;
        rounds_++;
        if (done_.empty())
            lead(guard);
        else
            settle(guard);
    }
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
    guard.unlock();
    oldest->wait(); // for nothing, but that its future is completed
    oldest.reset(); // frees tensors, for which it may wait for the interpreter: not with the lock held
    guard.lock();
}

void Watch::settle(Guard &guard) {
    std::shared_ptr<Pending> ended = std::move(done_.front());
    done_.pop_front();
    guard.unlock();
    const bool all = ended->poll(); // of several handles, the last one counts
    guard.lock();
    if (all)
        forget(ended);
    guard.unlock();
    ended.reset(); // as above
    guard.lock();
}

// ---- who stands by

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
    try {
        if (!stopping_)
            start(group, &Watch::stand_by);
    } catch (const std::system_error &) { // no more threads: nobody stands by
    }
    servers_++;
    guard.unlock();
    serve(group);
}

// ---- the end

// One that has ended may still run its future's callbacks, within which a group may be destroyed.
bool Watch::is_idle() const {
    return std::all_of(watched_.begin(), watched_.end(), [](const auto &each) { return each->is_done(); });
}

bool Watch::drain(std::chrono::milliseconds time) {
    Guard guard(lock_);
    return drained_.wait_for(guard, time, [&] { return is_idle(); });
}

void Watch::stop() {
    std::vector<std::thread> threads;
    {
        Guard guard(lock_);
        stopping_ = true;
        changed_.notify_all();
        calm_.notify_all();
        threads.swap(threads_);
    }
    for (std::thread &t : threads) {
        if (t.get_id() == std::this_thread::get_id())
            t.detach(); // a future's callback has dropped the group
        else
            t.join();
    }
}

} // namespace tutti_torch
