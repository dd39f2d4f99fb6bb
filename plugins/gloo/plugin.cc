// The gloo back end's table: engines, their threads, requests.
#include "plugin.h"

#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>

namespace tutti {

const tt_backend_host *host;

void Engine::finish(Request *request, tt_status status, const std::string &error) {
    std::lock_guard<std::mutex> lock(mutex);
    request->status = status;
    request->error = error;
    request->done = true;
    messages.erase(request->buffer);
    ended.notify_all();
}

// After an abort, whatever gloo says is a consequence of it.
void Engine::run(Request *request) {
    try {
        request->run();
        finish(request, TT_OK, "");
    } catch (const std::bad_alloc &) {
        finish(request, TT_ERR_MEMORY, "gloo: no memory");
    } catch (const gloo::IoException &e) {
        finish(request, aborted ? TT_ERR_ABORTED : TT_ERR_PEER, std::string("gloo says: ") + e.what());
    } catch (const std::exception &e) {
        finish(request, TT_ERR_NET, std::string("gloo says: ") + e.what());
    }
}

void Engine::run_queue() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
        begun.wait(lock, [this] { return closing || !queue.empty(); });
        if (queue.empty())
            return;
        Request *request = queue.front();
        queue.pop_front();
        lock.unlock();
        run(request);
        lock.lock();
    }
}

void Engine::start(Request *request) {
    std::lock_guard<std::mutex> lock(mutex);
    queue.push_back(request);
    begun.notify_one();
}

void Engine::start_own(Request *request) {
    {
        std::lock_guard<std::mutex> lock(mutex);
        messages.insert(request->buffer);
    }
    request->thread = std::thread([this, request] { run(request); });
}

void Engine::run_queue_to_end() {
    run_queue();
    std::lock_guard<std::mutex> lock(mutex);
    idle = true;
    ended.notify_all();
}

bool Engine::stop(std::chrono::milliseconds limit) {
    std::unique_lock<std::mutex> lock(mutex);
    closing = true;
    begun.notify_all();
    bool stopped = ended.wait_for(lock, limit, [this] { return idle && messages.empty(); });
    lock.unlock();
    if (stopped)
        runner.join();
    else
        runner.detach();
    return stopped;
}

namespace {

// gloo writes to sockets whose peer may be gone, which ends a process that does not ignore SIGPIPE. While this object
// lives, its thread blocks SIGPIPE, as do threads that it starts.
class WithoutSigpipe {
  public:
    WithoutSigpipe() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~WithoutSigpipe() {
        const timespec now = {};
        if (!sigismember(&before_, SIGPIPE))
            sigtimedwait(&pipe_, nullptr, &now);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    WithoutSigpipe(const WithoutSigpipe &) = delete;
    WithoutSigpipe &operator=(const WithoutSigpipe &) = delete;

  private:
    sigset_t pipe_, before_;
};

// Run `f`; what it throws becomes a status.
template <typename F> tt_status caught(const char *what, F f) {
    WithoutSigpipe guard;
    try {
        return f();
    } catch (const std::bad_alloc &) {
        return host->fail(TT_ERR_MEMORY, "gloo: %s: no memory", what);
    } catch (const gloo::IoException &e) {
        return host->fail(TT_ERR_PEER, "gloo: %s: %s", what, e.what());
    } catch (const std::exception &e) {
        return host->fail(TT_ERR_NET, "gloo: %s: %s", what, e.what());
    }
}

// Choose the address that peers connect to: that of the interface that TT_SOCKET_IFNAME names, else the host name's,
// else loopback.
std::shared_ptr<gloo::transport::Device> make_device() {
    gloo::transport::tcp::attr attr;
    const char *interface = std::getenv("TT_SOCKET_IFNAME");
    if (interface && *interface) {
        std::string names = interface;
        attr.iface = names.substr(0, names.find(','));
        return gloo::transport::tcp::CreateDevice(attr);
    }
    try {
        return gloo::transport::tcp::CreateDevice(attr);
    } catch (const std::exception &e) {
        host->log(TT_LOG_INFO, "gloo: this host's name is no address of its own (%s): using 127.0.0.1", e.what());
        attr.hostname = "127.0.0.1";
        return gloo::transport::tcp::CreateDevice(attr);
    }
}

tt_status open_engine(void **out, const tt_backend_member *member) {
    return caught("joining", [&] {
        auto engine = std::make_unique<Engine>();
        engine->rank = member->rank;
        engine->size = member->world_size;
        engine->context = std::make_shared<gloo::rendezvous::Context>(member->rank, member->world_size);
        engine->context->setTimeout(std::chrono::milliseconds(member->timeout_ms));
        auto device = make_device();
        auto store = make_store(member->store);
        engine->context->connectFullMesh(*store, device);
        host->log(TT_LOG_INFO, "gloo: rank %d of %d uses %s", engine->rank, engine->size, device->str().c_str());
        engine->runner = std::thread([e = engine.get()] { e->run_queue_to_end(); });
        *out = engine.release();
        return TT_OK;
    });
}

// Closing gloo's connections does not wake waiting calls. A wait that times out breaks all connections, and so wakes
// them, except for receives from any source; so messages are aborted one by one.
void abort_engine(void *engine) {
    auto e = static_cast<Engine *>(engine);
    static uint8_t nothing;
    if (e->aborted.exchange(true))
        return;
    try {
        e->context->createUnboundBuffer(&nothing, 1)->waitRecv(nullptr, std::chrono::milliseconds(1));
    } catch (const std::exception &) {
        // as it should be
    }
    std::lock_guard<std::mutex> lock(e->mutex);
    for (auto &buffer : e->messages) {
        buffer->abortWaitSend();
        buffer->abortWaitRecv();
    }
}

// By now no call is under way, or all were aborted. gloo may forget a send when its connection breaks, and wait for
// this send until its own deadline: then the engine stays, for the waiting thread.
void close_engine(void *engine) {
    auto e = static_cast<Engine *>(engine);
    if (e->stop(std::chrono::seconds(1)))
        delete e;
    else
        host->log(TT_LOG_INFO, "gloo: a connection broke in a call; a thread stays behind until gloo gives it up");
}

tt_status begin(void *engine, const tt_call *call, void **out) {
    auto e = static_cast<Engine *>(engine);
    bool message = call->op == TT_OP_SEND || call->op == TT_OP_RECV;
    if (message && call->root == e->rank)
        return host->fail(TT_ERR_UNSUPPORTED, "gloo has no messages from a rank to itself");
    return caught(host->op_name(call->op), [&] {
        auto request = std::make_unique<Request>();
        request->run = message ? tutti::message(e, *call, request.get()) : collective(e, *call);
        if (message)
            e->start_own(request.get());
        else
            e->start(request.get());
        *out = request.release();
        return TT_OK;
    });
}

tt_status test(void *engine, void *request, bool *done, int *source) {
    auto e = static_cast<Engine *>(engine);
    auto r = static_cast<Request *>(request);
    {
        std::lock_guard<std::mutex> lock(e->mutex);
        *done = r->done;
    }
    if (!*done)
        return TT_OK;
    if (r->thread.joinable())
        r->thread.join();
    *source = r->source;
    tt_status status = r->status;
    if (status)
        host->fail(status, "%s", r->error.c_str());
    delete r;
    return status;
}

void wait(void *engine, void *request, int64_t ms) {
    auto e = static_cast<Engine *>(engine);
    std::unique_lock<std::mutex> lock(e->mutex);
    e->ended.wait_for(lock, std::chrono::milliseconds(ms), [&] { return static_cast<Request *>(request)->done; });
}

tt_backend make_table() {
    tt_backend table = {};
    table.abi = TT_BACKEND_ABI;
    table.size = sizeof table;
    table.name = "gloo";
    table.open = open_engine;
    table.close = close_engine;
    for (auto &slot : table.begin)
        slot = begin;
    table.test = test;
    table.wait = wait;
    table.abort = abort_engine;
    return table;
}

} // namespace
} // namespace tutti

const tt_backend *tutti_backend(const tt_backend_host *host) {
    static const tt_backend table = tutti::make_table();
    tutti::host = host;
    return &table;
}
