#include "group.hpp"

#include "errors.hpp"
#include "interpreter.hpp"

#include <algorithm>
#include <atomic>
#include <set>

#include <unistd.h>

namespace tutti_torch {
namespace {

// All groups that are open, for shutdown_all().
std::mutex all_lock;
std::atomic<int> joining_process{0};
std::set<Group *> &all_groups() {
    static auto *all = new std::set<Group *>;
    return *all;
}

} // namespace

std::shared_ptr<Group> Group::join(const c10::intrusive_ptr<c10d::Store> &store, int rank, int world_size,
                                   std::chrono::milliseconds timeout) {
    joining_process = getpid();
    std::shared_ptr<Group> made = make();
    made->store_ = adapt_store(store, timeout.count());
    tt_init_process_group_args a = TT_INIT_PROCESS_GROUP_ARGS_INIT;
    a.out = &made->group_;
    a.store = made->store_.get();
    a.rank = rank;
    a.world_size = world_size;
    a.timeout_ms = timeout.count();
    tutti_torch::check(tt_init_process_group_with(&a, offsetof(tt_init_process_group_args, tt_end)));
    return known(std::move(made));
}

// A forked child's copy is left as it is: its locks may be held, and its threads are not there.
std::shared_ptr<Group> Group::make() {
    return std::shared_ptr<Group>(new Group, [](Group *group) {
        if (!group->is_inherited())
            delete group;
    });
}

std::shared_ptr<Group> Group::child(tt_group *made) {
    std::shared_ptr<Group> group = make();
    group->group_ = made;
    group->store_ = store_;
    return known(std::move(group));
}

std::shared_ptr<Group> Group::known(std::shared_ptr<Group> made) {
    std::lock_guard<std::mutex> guard(all_lock);
    all_groups().insert(made.get());
    return made;
}

void Group::fail(tt_status status) {
    const std::exception_ptr error = last_error(status); // before hooks, which may fail themselves
    health_.note(status);
    std::rethrow_exception(error);
}

bool Group::has_joined() { return joining_process == getpid(); }

Group::~Group() {
    {
        std::lock_guard<std::mutex> guard(all_lock);
        all_groups().erase(this);
    }
    tt_destroy_process_group(group_); // if shutdown() has not
}

bool Group::is_inherited() const { return owner_ != getpid(); }

void Group::require_open() const {
    if (closed_) {
        tt_ignore(tt_fail(TT_ERR_STATE, "the process group was destroyed or aborted before"));
        raise(TT_ERR_STATE);
    }
}

void Group::enter() {
    std::lock_guard<std::mutex> guard(lock_);
    require_open();
    inside_++;
}

void Group::leave() {
    std::lock_guard<std::mutex> guard(lock_);
    if (--inside_ == 0)
        left_.notify_all();
}

bool Group::wait_for(tt_work *work, std::chrono::milliseconds time) {
    using namespace std::chrono;
    struct Waiting {
        std::atomic<int> &count;
        explicit Waiting(std::atomic<int> &c) : count(c) { count++; }
        ~Waiting() { count--; }
    } waiting(waiting_);
    const auto end = time < hours(24 * 365) ? steady_clock::now() + time : steady_clock::time_point::max();
    for (bool done = false;;) {
        const auto left = end == steady_clock::time_point::max() ? milliseconds(ATTENTION_MS)
                                                                 : ceil<milliseconds>(end - steady_clock::now());
        blocking([&](tt_group *) {
            tt_ignore(tt_work_wait_for(work, std::min<int64_t>(left.count(), ATTENTION_MS), &done));
        });
        if (done || left.count() <= 0)
            return done;
        attend_to_python();
    }
}

void Group::set_timeout(std::chrono::milliseconds timeout) {
    locked([&](tt_group *g) { tt_group_set_timeout_ms(g, timeout.count()); });
}

void Group::abort(const char *reason) {
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (closed_)
            return;
        tt_group_abort(group_, reason);
    }
    health_.note(TT_ERR_ABORTED);
}

// ---- calls whose ends are watched

namespace {

// Of every handle; the last one that is done tells the group.
struct DoneNote {
    std::shared_ptr<Pending> pending;
    std::shared_ptr<Group> group;
};

void on_done(tt_status, int, void *user) {
    std::unique_ptr<DoneNote> note(static_cast<DoneNote *>(user));
    note->group->note_done(std::move(note->pending));
}

} // namespace

void Group::note_done(std::shared_ptr<Pending> pending) {
    std::lock_guard<std::mutex> guard(watch_lock_);
    done_.push_back(std::move(pending));
    watch_changed_.notify_all();
}

bool Group::is_served_here(const Pending &pending) {
    std::lock_guard<std::mutex> guard(watch_lock_);
    return std::this_thread::get_id() == (pending.is_collective() ? advancing_ : settling_).get_id();
}

void Group::watch(const std::shared_ptr<Pending> &pending) {
    bool tell;
    {
        std::lock_guard<std::mutex> guard(watch_lock_);
        watched_.push_back(pending);
        if (!advancing_.joinable() && !stopping_)
            advancing_ = std::thread([self = shared_from_this()] { self->advance(); });
        if (!pending->is_collective() && !settling_.joinable() && !stopping_)
            settling_ = std::thread([self = shared_from_this()] { self->settle(); });
        tell = settling_.joinable();
        watch_changed_.notify_all();
    }
    for (tt_work *work : pending->handles) {
        if (!tell)
            break;
        auto note = std::make_unique<DoneNote>(DoneNote{pending, shared_from_this()});
        if (tt_work_add_done_callback(work, on_done, note.get()) == TT_OK)
            note.release();
    }
}

void Group::forget(const std::shared_ptr<Pending> &pending) {
    watched_.erase(std::remove(watched_.begin(), watched_.end(), pending), watched_.end());
    watch_changed_.notify_all();
}

void Group::advance() {
    std::unique_lock<std::mutex> guard(watch_lock_);
    for (;;) {
        watch_changed_.wait(guard, [&] { return stopping_ || !watched_.empty(); });
        if (watched_.empty())
            return;
        std::shared_ptr<Pending> oldest = watched_.front();
        guard.unlock();
        oldest->wait();
        guard.lock();
        forget(oldest);
        guard.unlock();
        oldest.reset(); // frees tensors, for which it may wait for the interpreter: not with the lock held
        guard.lock();
    }
}

void Group::settle() {
    std::unique_lock<std::mutex> guard(watch_lock_);
    for (;;) {
        watch_changed_.wait(guard, [&] { return stopping_ || !done_.empty(); });
        if (done_.empty())
            return;
        std::shared_ptr<Pending> ended = done_.front();
        done_.pop_front();
        guard.unlock();
        bool all = ended->poll(); // of several handles, the last one counts
        guard.lock();
        if (all)
            forget(ended);
        guard.unlock();
        ended.reset(); // as above
        guard.lock();
    }
}

// ---- the end

void Group::stop_threads() {
    std::thread threads[2];
    {
        std::lock_guard<std::mutex> guard(watch_lock_);
        stopping_ = true;
        watch_changed_.notify_all();
        threads[0].swap(advancing_);
        threads[1].swap(settling_);
    }
    for (std::thread &t : threads) {
        if (t.joinable() && t.get_id() == std::this_thread::get_id())
            t.detach(); // a future's callback has dropped the group
        else if (t.joinable())
            t.join();
    }
}

// One that has ended may still run its future's callbacks, within which a group may be destroyed.
bool Group::is_idle() const {
    return std::all_of(watched_.begin(), watched_.end(), [](const auto &each) { return each->is_done(); });
}

void Group::shutdown(std::chrono::milliseconds drain) { leave_for_good(drain, ""); }

void Group::leave_for_good(std::chrono::milliseconds drain, const std::string &failure) {
    if (is_inherited())
        return;
    bool idle;
    {
        std::unique_lock<std::mutex> guard(watch_lock_);
        idle = watch_changed_.wait_for(guard, drain, [&] { return is_idle(); });
    }
    {
        std::unique_lock<std::mutex> guard(lock_);
        if (closed_)
            return;
        closed_ = true;
        if (!idle || inside_ || waiting_)
            tt_group_abort(group_, failure.empty() ? "its process group was destroyed while calls were under way"
                                                   : failure.c_str());
        left_.wait(guard, [&] { return inside_ == 0; });
    }
    stop_threads();
    tt_group *left = nullptr;
    {
        std::lock_guard<std::mutex> guard(lock_);
        std::swap(left, group_);
    }
    tt_clear_error(); // the others are told this thread's last one
    if (!failure.empty())
        tt_ignore(tt_fail(TT_ERR_PROCESS, "%s", failure.c_str()));
    tt_destroy_process_group(left);
}

void Group::shutdown_all(const std::string &failure) {
    std::vector<std::shared_ptr<Group>> open;
    {
        std::lock_guard<std::mutex> guard(all_lock);
        for (Group *g : all_groups())
            if (auto alive = g->is_inherited() ? nullptr : g->weak_from_this().lock())
                open.push_back(std::move(alive));
    }
    for (const auto &g : open)
        g->leave_for_good(std::chrono::milliseconds(0), failure);
}

} // namespace tutti_torch
