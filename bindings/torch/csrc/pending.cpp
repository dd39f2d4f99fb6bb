#include "pending.hpp"

#include "errors.hpp"
#include "group.hpp"
#include "interpreter.hpp"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tutti_torch {

// ---- the call

static std::atomic<uint64_t> calls{0};

Pending::Pending(std::shared_ptr<Group> group, Task task)
    : group_(std::move(group)), task_(std::move(task)), key_(calls.fetch_add(1, std::memory_order_relaxed) + 1) {}

Pending::~Pending() {
    for (tt_work *work : handles)
        group_->release(work);
}

bool Pending::is_collective() const {
    return task_.type != c10d::OpType::SEND && task_.type != c10d::OpType::RECV &&
           task_.type != c10d::OpType::RECVANYSOURCE;
}

void Pending::set_limit(std::chrono::milliseconds more, std::chrono::milliseconds of_group) {
    limit_ = task_.timeout.count() > 0 ? task_.timeout : of_group;
    if (more.count() > 0)
        task_.timeout = limit_ = limit_ + more;
}

void Pending::drop_results() {
    std::lock_guard<std::mutex> guard(lock_);
    task_.finish = nullptr;
}

void Pending::settle() {
    FuturePtr future;
    tt_status status = TT_OK;
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (is_done())
            return;
        for (tt_work *work : handles) // they have ended: this waits for none, and finds the first failure
            if (!status)
                status = tt_work_wait(work);
        try {
            if (status)
                raise(status, task_.timeout.count() > 0 ? "" : TIMEOUT_OF_GROUP);
            if (task_.finish) {
                // a write, also to parameters and to an inference's tensors, which no mode of this thread is to see
                c10::impl::ExcludeDispatchKeyGuard plain(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                                         c10::python_ks);
                task_.finish();
            }
        } catch (...) {
            error_ = std::current_exception();
        }
        task_.finish = nullptr;
        future = future_;
        if (begun != Completion::Time())
            ended_ = std::chrono::steady_clock::now();
        done_.store(true, std::memory_order_release);
    }
    group_->health().note(status);
    if (on_end)
        on_end();
    if (!error_ && begun != Completion::Time())
        group_->hooks()->completion.run({key_, task_.type, sequence, begun, ended_});
    if (future)
        complete_future(future);
}

float Pending::duration_ms() const {
    if (begun == Completion::Time())
        refuse(c10::str(task_.name(), ": Work.getDuration: expected _enable_collectives_timing() before the call"));
    if (!is_done())
        refuse(c10::str(task_.name(), ": Work.getDuration: expected a call that has ended: wait() for it first"));
    return Completion{key_, task_.type, sequence, begun, ended_}.duration().count();
}

bool Pending::is_over() {
    for (tt_work *work : handles)
        if (!group_->is_completed(work))
            return false;
    return true;
}

bool Pending::poll() {
    if (is_done())
        return true;
    if (!is_over())
        return false;
    settle();
    return true;
}

void Pending::wait() {
    if (is_done())
        return;
    wait_for(std::chrono::milliseconds::max());
}

bool Pending::await_for(std::chrono::milliseconds time) {
    const auto begun = std::chrono::steady_clock::now();
    bool all = true;
    for (size_t i = 0; i < handles.size() && all; i++) {
        const auto waited = std::chrono::steady_clock::now() - begun;
        all = group_->wait_for(handles[i], time - std::chrono::duration_cast<std::chrono::milliseconds>(waited));
    }
    stay_if_python_ends();
    return all;
}

void Pending::await() { await_for(std::chrono::milliseconds::max()); }

bool Pending::wait_for(std::chrono::milliseconds time) {
    if (poll())
        return true;
    WithoutGil unlocked; // synchronize() comes with the lock, and whoever makes the missing call may need it
    if (!await_for(time))
        return false;
    settle();
    return true;
}

std::exception_ptr Pending::error() const {
    std::lock_guard<std::mutex> guard(lock_);
    return error_;
}

int Pending::source_rank() const { return handles.empty() ? -1 : tt_work_source_rank(handles[0]); }

// ---- its future

void Pending::complete_future(const FuturePtr &future) {
    if (error_)
        future->setError(error_);
    else if (task_.outputs.size() > 1)
        future->markCompleted(c10::IValue(task_.outputs));
    else
        future->markCompleted(c10::IValue(task_.outputs.empty() ? Tensors() : task_.outputs[0]));
}

void Pending::let_go() {
    if (!group_->is_inherited() && !poll())
        group_->watch().add(shared_from_this(), group_);
}

static FuturePtr new_future(bool lists) {
    c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
    return c10::make_intrusive<c10::ivalue::Future>(lists ? c10::ListType::create(type) : type);
}

FuturePtr Pending::future() {
    bool watch = false, done;
    {
        std::lock_guard<std::mutex> guard(lock_);
        done = is_done();
        if (!future_) {
            future_ = new_future(task_.outputs.size() > 1);
            watch = !done;
        } else {
            done = false; // whoever ended it has completed it, or is about to
        }
    }
    if (done)
        complete_future(future_);
    if (watch && !poll() && !group_->watch().add(shared_from_this(), group_))
        wait(); // there are no threads, or the group is being left
    return future_;
}

// ---- what PyTorch is given

TuttiWork::TuttiWork(int rank, std::shared_ptr<Pending> pending, const Tensors &inputs)
    : c10d::Work(rank, pending->task().type, pending->task().title, c10::optional<std::vector<at::Tensor>>(inputs)),
      pending_(std::move(pending)) {
    pending_->on_end = std::move(recordFunctionEndCallback_);
    recordFunctionEndCallback_ = nullptr;
}

TuttiWork::~TuttiWork() { // the call goes on, with all that it needs
    pending_->let_go();
}

bool TuttiWork::isCompleted() { return pending_->poll(); }

bool TuttiWork::isSuccess() const { return pending_->is_done() && !pending_->error(); }

std::exception_ptr TuttiWork::exception() const { return pending_->is_done() ? pending_->error() : nullptr; }

int TuttiWork::sourceRank() const { return pending_->source_rank(); }

Tensors TuttiWork::result() {
    if (!pending_->poll())
        refuse("Work.result: expected a call that has ended: wait() for it first");
    const auto &outputs = pending_->task().outputs;
    if (outputs.size() > 1)
        refuse("Work.result: this call gives lists of lists of tensors, which are in the output lists");
    return outputs.empty() ? Tensors() : outputs[0];
}

void TuttiWork::synchronize() { wait(kNoTimeout); }

bool TuttiWork::wait(std::chrono::milliseconds timeout) {
    if (!ends_within(timeout == kNoTimeout ? std::chrono::milliseconds::max() : timeout)) {
        tt_ignore(tt_fail(TT_ERR_TIMEOUT, "%s: Work.wait: not done after the %lld ms that it was to wait; it goes on",
                          pending_->task().name(), static_cast<long long>(timeout.count())));
        raise(TT_ERR_TIMEOUT);
    }
    return true;
}

bool TuttiWork::ends_within(std::chrono::milliseconds time) {
    if (!pending_->is_done() && !pending_->wait_for(time))
        return false;
    if (auto error = pending_->error()) {
        attend_to_python();
        std::rethrow_exception(error);
    }
    return true;
}

void TuttiWork::abort() { refuse("Work.abort: a single call can't be aborted, only its group: ProcessGroup.abort()"); }

FuturePtr TuttiWork::getFuture() { return pending_->future(); }

#if TUTTI_TORCH_2
// PyTorch: a future of WorkResult, which never carries an error.
FuturePtr TuttiWork::getFutureResult() {
    auto result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    pending_->future()->addCallback([result](c10::ivalue::Future &f) {
        result->markCompleted(
            c10::IValue(static_cast<int64_t>(f.hasError() ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS)));
    });
    return result;
}
#endif

} // namespace tutti_torch
