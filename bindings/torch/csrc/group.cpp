#include "group.hpp"

#include "deadline.hpp"
#include "errors.hpp"
#include "interpreter.hpp"

#include <algorithm>
#include <atomic>
#include <set>

#include <pthread.h>
#include <unistd.h>

namespace tutti_torch {
namespace {

// All groups that are open, for shutdown_all().
std::mutex all_lock;
std::atomic<int> joining_process{0};
std::atomic<int> forks{0}; // between the process that loaded this and the one that it runs in
const int counts_forks = pthread_atfork(nullptr, nullptr, [] { forks++; });

std::set<Group *> &all_groups() {
    static auto *all = new std::set<Group *>;
    return *all;
}

} // namespace

Group::Group(std::shared_ptr<Hooks> hooks) : hooks_(std::move(hooks)), health_(hooks_), forks_(forks) {
    (void)counts_forks;
}

std::shared_ptr<Group> Group::join(const c10::intrusive_ptr<c10d::Store> &store, int rank, int world_size,
                                   std::chrono::milliseconds timeout, std::shared_ptr<Hooks> hooks,
                                   const char *timeout_hint, std::function<bool()> in_vain) {
    joining_process = getpid();
    std::shared_ptr<Group> made = make(std::move(hooks));
    made->store_ = adapt_store(store, timeout.count());
    tt_init_process_group_args a = TT_INIT_PROCESS_GROUP_ARGS_INIT;
    a.out = &made->group_;
    a.store = made->store_.get();
    a.rank = rank;
    a.world_size = world_size;
    a.timeout_ms = timeout.count();
    const Interruption interruption(std::move(in_vain));
    const tt_status status = tt_init_process_group_with(&a, offsetof(tt_init_process_group_args, tt_end));
    interruption.rethrow();
    tutti_torch::check(status, timeout_hint);
    return known(std::move(made));
}

// A forked child's copy is left as it is: its locks may be held, and its threads are not there.
std::shared_ptr<Group> Group::make(std::shared_ptr<Hooks> hooks) {
    return std::shared_ptr<Group>(new Group(std::move(hooks)), [](Group *group) {
        if (!group->is_inherited())
            delete group;
    });
}

std::shared_ptr<Group> Group::child(tt_group *made) {
    std::shared_ptr<Group> group = make(std::make_shared<Hooks>());
    group->group_ = made;
    group->store_ = store_;
    return known(std::move(group));
}

std::shared_ptr<Group> Group::known(std::shared_ptr<Group> made) {
    Health::forget_first_error();
    std::lock_guard<std::mutex> guard(all_lock);
    all_groups().insert(made.get());
    return made;
}

void Group::fail(tt_status status) {
    const std::exception_ptr error = last_error(status); // before hooks, which may fail themselves
    health_.note(status);
    attend_to_python();
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

bool Group::is_inherited() const { return forks_ != forks; }

void Group::fail_closed() {
    tt_ignore(tt_fail(TT_ERR_STATE, "the process group was destroyed or aborted before"));
    raise(TT_ERR_STATE);
}

// ---- threads within

bool Group::enter() {
    if (!(users_.fetch_add(1) & CLOSED))
        return true;
    leave();
    return false;
}

void Group::leave() {
    if (users_.fetch_sub(1) != (CLOSED | 1))
        return;
    std::lock_guard<std::mutex> guard(lock_);
    left_.notify_all();
}

bool Group::await_users(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> guard(lock_);
    return left_.wait_for(guard, time, [&] { return users_.load() == CLOSED; });
}

void Group::await_end() {
    std::unique_lock<std::mutex> guard(lock_);
    left_.wait(guard, [&] { return ended_; });
}

// ---- works

bool Group::is_completed(tt_work *work) {
    if (!enter()) {
        std::lock_guard<std::mutex> guard(lock_);
        return ended_;
    }
    const bool done = tt_work_is_completed(work);
    leave();
    return done;
}

bool Group::wait_for(tt_work *work, std::chrono::milliseconds time) {
    const auto end = deadline_in(time);
    for (bool done = false;;) {
        const auto left = left_until(end, std::chrono::milliseconds(ATTENTION_MS));
        if (!enter()) {
            await_end();
            return true;
        }
        tt_ignore(tt_work_wait_for(work, left.count(), &done));
        const bool over = done || left.count() == 0;
        if (!over)
            waiting_++; // before it leaves, so that whoever closes the group sees it
        leave();
        if (over)
            return done;
        struct Back {
            std::atomic<int> &count;
            ~Back() { count--; }
        } back{waiting_};
        attend_to_python();
    }
}

bool Group::add_callback(tt_work *work, tt_work_fn callback, void *user) {
    if (!enter())
        return false;
    const bool added = tt_work_add_done_callback(work, callback, user) == TT_OK;
    leave();
    return added;
}

void Group::release(tt_work *work) {
    if (enter()) {
        tt_work_free(work);
        leave();
        return;
    }
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (!ended_) {
            left_over_.push_back(work);
            return;
        }
    }
    tt_work_free(work);
}

// ---- settings

void Group::set_timeout(std::chrono::milliseconds timeout) {
    locked([&](tt_group *g) { tt_group_set_timeout_ms(g, timeout.count()); });
}

void Group::abort(const char *reason) {
    if (is_inherited())
        return;
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (is_closed())
            return;
        tt_group_abort(group_, reason);
    }
    health_.note(TT_ERR_ABORTED);
}

// ---- the end

void Group::shutdown(std::chrono::milliseconds drain) { leave_for_good(drain, ""); }

void Group::leave_for_good(std::chrono::milliseconds drain, const std::string &failure) {
    constexpr std::chrono::milliseconds MOMENT{100}; // for those whose works are done
    constexpr std::chrono::seconds LONG{60};         // for those whose calls were aborted
    if (is_inherited() || is_closed())
        return;
    const bool idle = watch_.drain(drain);
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (users_.fetch_or(CLOSED) & CLOSED)
            return;
    }
    if (!idle || waiting_ || !await_users(MOMENT))
        tt_group_abort(group_, failure.empty() ? "its process group was destroyed while calls were under way"
                                               : failure.c_str());
    if (!await_users(LONG)) { // never seen; what they use must stay
        TORCH_WARN("the back end tutti: a call on a process group does not end, so the group is left as it is");
        std::lock_guard<std::mutex> guard(lock_);
        ended_ = true; // its works have, by the abort
        left_.notify_all();
        return;
    }
    destroy(failure);
    watch_.stop();
}

void Group::destroy(const std::string &failure) {
    tt_clear_error(); // the others are told this thread's last one
    if (!failure.empty())
        tt_ignore(tt_fail(TT_ERR_PROCESS, "%s", failure.c_str()));
    else
        Health::recall_first_error();
    tt_destroy_process_group(group_);
    std::vector<tt_work *> works;
    {
        std::lock_guard<std::mutex> guard(lock_);
        group_ = nullptr;
        ended_ = true;
        works.swap(left_over_);
        left_.notify_all();
    }
    for (tt_work *work : works)
        tt_work_free(work);
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
    Watch::await_callbacks(std::chrono::seconds(5)); // Python ends threads that come back to it later, and the process
    python_ends();
}

} // namespace tutti_torch
