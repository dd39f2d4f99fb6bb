#include "rpc_agent.hpp"

#include "deadline.hpp"
#include "errors.hpp"
#include "interpreter.hpp"

#include <torch/csrc/distributed/rpc/request_callback_impl.h>
#include <torch/csrc/distributed/rpc/utils.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include <unistd.h>

namespace tutti_torch {
namespace {

using std::chrono::milliseconds;

constexpr char FUNCTION[] = "torch.rpc";   // that carries messages
constexpr milliseconds LONGEST{INT32_MAX}; // as PyTorch's own groups for RPC wait

std::atomic<AgentTutti *> current_agent{nullptr}; // a process has one at a time

tt_status serve_message(tt_rpc_call *call) { return AgentTutti::serve(call); }
TT_RPC_FUNCTION_NAMED(serve_message, "torch.rpc", MESSAGE_SIGNATURE);

std::string text_of(tt_status status) {
    return std::string(tt_status_name(status)) + ": " +
           (tt_last_status() == status ? tt_last_error() : tt_status_text(status));
}

void fail_future(trpc::JitFuture &future, const std::string &text) {
    future.setError(std::make_exception_ptr(std::runtime_error(text)));
}

// The response that is sent for a future that is done.
MessagePtr response_of(trpc::JitFuture &done) {
    return done.hasError() ? trpc::createExceptionResponse(done.tryRetrieveErrorMessage(), 0)
                           : done.value().toCustomClass<trpc::Message>();
}

// Call `use` with the packed response, or with an exception if it can't be packed: it may have tensors on a device.
template <class F> void with_packed(const MessagePtr &response, F use) {
    std::optional<PackedMessage> packed;
    try {
        packed.emplace(response);
    } catch (const std::exception &e) {
        packed.emplace(trpc::createExceptionResponse(e, 0));
    }
    use(*packed);
}

// The call that this thread makes between begin_call() and finish_call().
thread_local struct {
    bool wanted;
    tt_future *sent;
    std::shared_ptr<void> request;
} called;

bool is_call(int type) {
    return type == trpc::MessageType::PYTHON_CALL || type == trpc::MessageType::SCRIPT_CALL ||
           type == trpc::MessageType::FORWARD_AUTOGRAD_REQ || type == trpc::MessageType::RUN_WITH_PROFILING_REQ;
}

// Let the call reply with a new future, which is the caller's to free. NULL, recorded: an error.
tt_future *reply_later(tt_rpc_call *call) {
    tt_future *later = tt_future_new();
    if (!later || !tt_rpc_return_future(call, later))
        return later;
    tt_future_free(later);
    return nullptr;
}

} // namespace

// ---- joining

AgentTutti::AgentTutti(const c10::intrusive_ptr<c10d::Store> &store, const AgentOptions &options)
    : RpcAgent(trpc::WorkerInfo(options.name, static_cast<int64_t>(options.rank)),
               std::make_unique<trpc::RequestCallbackImpl>(), milliseconds(std::llround(options.timeout * 1000))),
      options_(options), process_(getpid()) {
    provide_storages();
    AgentTutti *none = nullptr;
    if (!current_agent.compare_exchange_strong(none, this)) // before others can call
        throw std::runtime_error("RPC is already initialized: this process has an agent of the back end TUTTI");
    try {
        meet(store);
    } catch (...) {
        current_agent = nullptr;
        throw;
    }
}

AgentTutti::~AgentTutti() { shutdown(); }

void AgentTutti::meet(const c10::intrusive_ptr<c10d::Store> &store) {
    if (is_static_group())
        return meet_as_group(store);
    store_ = adapt_store(store, getRpcTimeout().count() ? getRpcTimeout().count() : TT_DEFAULT_TIMEOUT_MS);
    become_worker(nullptr);
}

void AgentTutti::meet_as_group(const c10::intrusive_ptr<c10d::Store> &store) {
    const milliseconds timeout = getRpcTimeout();
    group_ = Group::join(store, options_.rank, options_.world_size,
                         timeout.count() ? timeout : milliseconds(TT_DEFAULT_TIMEOUT_MS));
    group_->blocking([&](tt_group *group) { become_worker(group); });
    group_->set_timeout(LONGEST);
    for (const int id : worker_ids())
        known_worker(id);
}

void AgentTutti::become_worker(tt_group *group) {
    tt_rpc_init_args a = TT_RPC_INIT_ARGS_INIT;
    a.out = &rpc_;
    a.name = options_.name.c_str();
    a.group = group;
    a.store = store_.get();
    a.id = options_.rank;
    a.has_id = !group;
    a.threads = options_.threads;
    a.join_timeout_ms = getRpcTimeout().count();
    const Interruption interruption;
    const tt_status status = tt_rpc_init_with(&a, offsetof(tt_rpc_init_args, tt_end));
    interruption.rethrow();
    if (status == TT_ERR_EXISTS) // what TensorPipe's agent says of it
        throw std::runtime_error("RPC worker name " + options_.name + " is not unique: " + text_of(status));
    check(status);
}

void AgentTutti::startImpl() {
    std::lock_guard<std::mutex> guard(lock_);
    started_ = true;
    changed_.notify_all();
}

// Wait until PyTorch has called start(): other workers may call earlier, as soon as this one has joined.
void AgentTutti::await_start() {
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait(guard, [&] { return started_; });
}

// ---- workers

tt_rpc *AgentTutti::open_rpc() const {
    TORCH_CHECK(!left_, "RPC was shut down on worker ", workerInfo_.name_);
    return rpc_;
}

std::vector<int> AgentTutti::worker_ids() const {
    std::vector<int> ids;
    tt_rpc *rpc = open_rpc();
    for (size_t count = 64; count > ids.size();) {
        ids.resize(count);
        count = static_cast<size_t>(tt_rpc_workers(rpc, ids.data(), static_cast<int64_t>(ids.size())));
        if (count <= ids.size()) {
            ids.resize(count);
            break;
        }
    }
    return ids;
}

// References stay valid, as workers are never taken out.
const trpc::WorkerInfo &AgentTutti::known_worker(int id) const {
    {
        std::lock_guard<std::mutex> guard(workers_lock_);
        const auto found = workers_.find(id);
        if (found != workers_.end())
            return found->second;
    }
    char name[trpc::WorkerInfo::MAX_NAME_LEN];
    check(tt_rpc_worker_name(open_rpc(), id, name, sizeof name));
    std::lock_guard<std::mutex> guard(workers_lock_);
    return workers_.try_emplace(id, name, static_cast<int64_t>(id)).first->second;
}

const trpc::WorkerInfo &AgentTutti::getWorkerInfo(const std::string &name) const {
    {
        std::lock_guard<std::mutex> guard(workers_lock_);
        for (const auto &[id, worker] : workers_)
            if (worker.name_ == name)
                return worker;
    }
    int id = -1;
    const tt_status status = tt_rpc_find_worker(open_rpc(), name.c_str(), &id);
    if (status)
        throw std::runtime_error("could not find destination " + name + ": " + text_of(status));
    return known_worker(id);
}

const trpc::WorkerInfo &AgentTutti::getWorkerInfo(trpc::worker_id_t id) const { return known_worker(id); }

std::vector<trpc::WorkerInfo> AgentTutti::getWorkerInfos() const {
    std::vector<trpc::WorkerInfo> workers;
    for (const int id : worker_ids())
        workers.push_back(known_worker(id));
    return workers;
}

// ---- requests of this worker

std::string AgentTutti::timeout_text(milliseconds timeout) {
    return trpc::makeRPCError(
        c10::str("RPC ran for more than set timeout (", timeout.count(), " ms) and will now be marked with an error"),
        trpc::RPCErrorType::TIMEOUT);
}

c10::intrusive_ptr<trpc::JitFuture> AgentTutti::failed_request(const std::string &text) {
    auto future = c10::make_intrusive<trpc::JitFuture>(at::AnyClassType::get());
    fail_future(*future, text);
    return future;
}

// When its timeout passes, its future fails, and the call goes on: the message may carry references, which PyTorch's
// workers count by what arrives. Tutti would not begin a call that nobody waits for, so it is told of no timeout.
struct AgentTutti::Request {
    Request(AgentTutti *sender, MessagePtr message, milliseconds limit)
        : agent(sender), packed(std::move(message)), timeout(limit),
          deadline(deadline_in(limit.count() ? limit : milliseconds::max())) {}

    bool has_expired() const { return deadline <= std::chrono::steady_clock::now(); }

    AgentTutti *const agent;
    const PackedMessage packed; // what is sent borrows from it
    const milliseconds timeout; // 0: none
    const std::chrono::steady_clock::time_point deadline;
    const c10::intrusive_ptr<trpc::JitFuture> future = c10::make_intrusive<trpc::JitFuture>(at::AnyClassType::get());
    Deadlines::Entry expiry;
    std::atomic<bool> ended{false}; // its future has been, or is about to be
};

milliseconds AgentTutti::timeout_of(float seconds) const {
    return seconds == trpc::kUnsetRpcTimeout ? getRpcTimeout() : milliseconds(std::llround(seconds * 1000));
}

c10::intrusive_ptr<trpc::JitFuture> AgentTutti::send(const trpc::WorkerInfo &to, MessagePtr message,
                                                     const float seconds, const trpc::DeviceMap &) {
    TORCH_CHECK(message->isRequest(), "expected a request to send, got a message of type ", message->type());
    TORCH_CHECK(rpcAgentRunning_.load(), "worker ", workerInfo_.name_, " (id ", workerInfo_.id_,
                ") tried to send a request after RPC was shut down here");
    const auto request = std::make_shared<Request>(this, std::move(message), timeout_of(seconds));
    tt_rpc_sync_args a = TT_RPC_SYNC_ARGS_INIT;
    a.rpc = rpc_;
    a.to_id = to.id_;
    a.function = FUNCTION;
    a.args = request->packed.args();
    a.timeout_ms = -1;
    count_request(1);
    tt_future *sent = nullptr;
    const tt_status status = tt_rpc_async_with(&sent, &a, offsetof(tt_rpc_sync_args, tt_end));
    if (status) {
        count_request(-1);
        return failed_request(text_of(status));
    }
    end_where_it_waits(request, sent);
    return request->future;
}

void AgentTutti::end_where_it_waits(std::shared_ptr<Request> request, tt_future *sent) {
    if (called.wanted && !called.sent && is_call(request->packed.type())) {
        called.sent = sent;
        called.request = std::move(request);
    } else {
        end_when_done(std::move(request), sent);
    }
}

void AgentTutti::end_when_done(std::shared_ptr<Request> request, tt_future *sent) {
    if (request->timeout.count() && !request->ended)
        request->expiry = deadlines_->call_at(request->deadline, [request] {
            request->agent->threads_->run([request] { request->agent->expire_request(*request); });
        });
    auto held = std::make_unique<std::shared_ptr<Request>>(std::move(request));
    check(tt_future_add_callback(sent, on_done, held.get()));
    held.release();
}

void AgentTutti::begin_call() { called = {true, nullptr, nullptr}; }

void AgentTutti::finish_call() {
    const auto request = std::static_pointer_cast<Request>(called.request);
    tt_future *sent = called.sent;
    called = {};
    if (!sent)
        return;
    AgentTutti &agent = *request->agent;
    try {
        while (!tt_future_is_done(sent) && !request->has_expired()) {
            const milliseconds wait = left_until(request->deadline, milliseconds(ATTENTION_MS));
            if (tt_future_wait(sent, std::max(wait, milliseconds(1)).count()) == TT_ERR_STATE) // in a callback
                break;
            attend_to_python();
        }
    } catch (...) { // a handler of a signal: the call goes on
        agent.end_when_done(request, sent);
        throw;
    }
    if (tt_future_is_done(sent))
        return agent.end_request(*request, sent);
    if (request->has_expired())
        agent.expire_request(*request);
    agent.end_when_done(request, sent);
}

void AgentTutti::on_done(tt_future *future, void *user) {
    const std::unique_ptr<std::shared_ptr<Request>> held(static_cast<std::shared_ptr<Request> *>(user));
    (*held)->agent->threads_->run([request = *held, future] { request->agent->end_request(*request, future); });
}

void AgentTutti::expire_request(Request &request) {
    if (request.ended.exchange(true))
        return;
    fail_future(*request.future, timeout_text(request.timeout));
    count_request(-1);
}

void AgentTutti::end_request(Request &request, tt_future *done) {
    trpc::JitFuture &future = *request.future;
    if (request.expiry.number)
        deadlines_->drop(request.expiry);
    if (request.ended.exchange(true))
        return tt_future_free(done);
    try {
        const tt_rpc_value *value = tt_future_value(done);
        const tt_status status = value ? TT_OK : tt_last_status();
        if (status) {
            fail_future(future, text_of(status));
        } else {
            std::vector<const tt_rpc_value *> values;
            for (int64_t i = 0; i < value->list.count; i++)
                values.push_back(&value->list.items[i]);
            MessagePtr response = unpack_message(values.data(), value->list.count);
            if (response->type() == trpc::MessageType::EXCEPTION) {
                fail_future(future, std::string(response->payload().begin(), response->payload().end()));
            } else {
                auto storages = response->getStorages();
                future.markCompleted(std::move(response), std::move(storages));
            }
        }
    } catch (const std::exception &e) {
        future.setErrorIfNeeded(std::current_exception());
    }
    tt_future_free(done);
    count_request(-1); // after callbacks, which may have made more
}

void AgentTutti::count_request(int change) {
    std::lock_guard<std::mutex> guard(lock_);
    requests_ += change;
    if (!requests_)
        changed_.notify_all();
}

// ---- requests of others

tt_status AgentTutti::serve(tt_rpc_call *call) noexcept {
    AgentTutti *agent = current_agent;
    if (!agent)
        return tt_fail(TT_ERR_STATE, "this worker's agent of PyTorch's RPC has been shut down");
    agent->await_start();
    try {
        return agent->answer(call);
    } catch (const std::exception &e) {
        return tt_fail(TT_ERR_FORMAT, "%s", e.what());
    }
}

tt_status AgentTutti::answer(tt_rpc_call *call) {
    std::vector<const tt_rpc_value *> values;
    for (int64_t i = 0; i < tt_rpc_arg_count(call); i++)
        values.push_back(tt_rpc_arg(call, i));
    const MessagePtr request = unpack_message(values.data(), tt_rpc_arg_count(call));
    if (request->type() == trpc::MessageType::RUN_WITH_PROFILING_REQ)
        return answer_profiled(call, request);
    const auto response = (*cb_)(*request, {});
    tt_status status = TT_OK;
    if (!response->completed())
        return answer_later(call, *response);
    with_packed(response_of(*response),
                [&](const PackedMessage &packed) { status = tt_rpc_return(call, packed.list()); });
    return status;
}

tt_status AgentTutti::answer_later(tt_rpc_call *call, trpc::JitFuture &response) {
    tt_future *later = reply_later(call);
    if (!later)
        return tt_last_status();
    count_later(1);
    response.addCallback([this, later](trpc::JitFuture &done) { end_later(later, done); });
    return TT_OK;
}

void AgentTutti::end_later(tt_future *later, trpc::JitFuture &response) {
    with_packed(response_of(response),
                [&](const PackedMessage &packed) { tt_ignore(tt_future_set_value(later, packed.list())); });
    tt_future_free(later);
    count_later(-1);
}

// PyTorch's profiler (2.15) sends the events of a thread's first profiled request alone. TensorPipe's agent has 16
// threads, which take turns, and sends them 16 times.
tt_status AgentTutti::answer_profiled(tt_rpc_call *call, const MessagePtr &request) {
    tt_future *later = reply_later(call);
    if (!later)
        return tt_last_status();
    count_later(1);
    threads_->run_apart([this, later, request] {
        (*cb_)(*request, {})->addCallback([this, later](trpc::JitFuture &done) { end_later(later, done); });
    });
    return TT_OK;
}

void AgentTutti::count_later(int change) {
    std::lock_guard<std::mutex> guard(lock_);
    later_ += change;
}

// ---- the end

// Wait until this worker has no request under way. A request counts until the callbacks of its future have returned,
// since they may make further requests.
void AgentTutti::await_own_requests(std::chrono::steady_clock::time_point end) {
    std::unique_lock<std::mutex> guard(lock_);
    while (requests_) {
        const milliseconds left = left_until(end, milliseconds(ATTENTION_MS));
        TORCH_CHECK(left.count(), "rpc.shutdown(): the timeout passed while worker ", workerInfo_.name_, " had ",
                    requests_, " requests under way");
        changed_.wait_for(guard, left);
        guard.unlock();
        attend_to_python();
        guard.lock();
    }
}

void AgentTutti::await_all(milliseconds timeout) {
    tt_work *work = nullptr;
    group_->locked([&](tt_group *group) {
        tt_barrier_args a = TT_ARGS_INIT;
        a.group = group;
        a.timeout_ms = timeout.count();
        a.work = &work;
        group_->check(tt_barrier_with(&a, offsetof(tt_barrier_args, tt_end)));
    });
    struct Release {
        Group &group;
        tt_work *work;
        ~Release() { group.release(work); }
    } release{*group_, work};
    while (!group_->wait_for(work, LONGEST)) {
    }
    group_->blocking([&](tt_group *) { group_->check(tt_work_wait(work)); });
}

// Return whether no worker has a request under way; all workers call it together. They first meet in a barrier, so that
// lock_, which keeps the count from changing while it is summed, is held only for a short time.
bool AgentTutti::all_are_idle(milliseconds timeout) {
    await_all(timeout);
    int64_t requests = 0;
    group_->blocking([&](tt_group *group) {
        std::lock_guard<std::mutex> guard(lock_);
        requests = requests_;
        tt_all_reduce_args a = TT_ARGS_INIT;
        a.group = group;
        a.buf = &requests;
        a.count = 1;
        a.dtype = TT_I64;
        a.op = TT_SUM;
        a.timeout_ms = timeout.count();
        group_->check(tt_all_reduce_with(&a, offsetof(tt_all_reduce_args, tt_end)));
    });
    return !requests;
}

void AgentTutti::join(bool, float seconds) {
    const WithoutGil without;
    const milliseconds timeout = seconds > 0 ? milliseconds(std::llround(seconds * 1000)) : LONGEST;
    const auto end = deadline_in(timeout);
    do {
        await_own_requests(end);
    } while (is_static_group() && !all_are_idle(std::max(left_until(end, timeout), milliseconds(1))));
}

void AgentTutti::sync() { join(); }

void AgentTutti::shutdownImpl() {
    if (getpid() != process_ || left_.exchange(true))
        return;
    tt_rpc_shutdown_args a = TT_RPC_SHUTDOWN_ARGS_INIT;
    a.rpc = rpc_;
    a.at_once = true; // join() has waited before
    if (tt_rpc_shutdown_with(&a, offsetof(tt_rpc_shutdown_args, tt_end)))
        LOG(INFO) << "tutti: " << tt_last_error();
    current_agent = nullptr;
    deadlines_->stop();
    threads_->drain();
    threads_->stop();
    if (group_)
        group_->shutdown(milliseconds(0));
}

void AgentTutti::shutdown_current() {
    const auto agent = std::dynamic_pointer_cast<AgentTutti>(
        RpcAgent::isCurrentRpcAgentSet() ? RpcAgent::getCurrentRpcAgent() : nullptr);
    if (agent && agent->process_ == getpid())
        agent->shutdown();
}

// ---- metrics

void AgentTutti::addGilWaitTime(const std::chrono::microseconds time) {
    std::lock_guard<std::mutex> guard(lock_);
    gil_waits_++;
    gil_time_ += static_cast<uint64_t>(time.count());
}

std::unordered_map<std::string, std::string> AgentTutti::getMetrics() {
    tt_rpc_counts counts = {};
    check(tt_rpc_get_counts(open_rpc(), &counts));
    std::unordered_map<std::string, std::string> metrics;
    metrics["agent.thread_pool_size"] = std::to_string(options_.threads);
    metrics["agent.num_idle_threads"] = std::to_string(counts.idle);
    metrics["agent.server_active_calls"] = std::to_string(counts.serving);
    std::lock_guard<std::mutex> guard(lock_);
    metrics["agent.client_active_calls"] = std::to_string(requests_);
    metrics["agent.server_active_async_calls"] = std::to_string(later_);
    if (isGILProfilingEnabled())
        metrics["agent.gil_average_wait_time_us"] = std::to_string(gil_waits_ ? gil_time_ / gil_waits_ : 0);
    return metrics;
}

} // namespace tutti_torch
