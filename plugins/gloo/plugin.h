// The gloo back end: what its files offer each other.
//
// gloo's collectives block, so each engine has a thread that runs them in the order in which they were begun. Its sends
// and receives are posted at once; a thread each waits for them, since gloo has no way to ask whether one is done. All
// that gloo throws is caught where it is called and reported by begin() or test().
#ifndef TUTTI_PLUGINS_GLOO_PLUGIN_H
#define TUTTI_PLUGINS_GLOO_PLUGIN_H

#include <tutti/backend.h>

#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tutti {

extern const tt_backend_host *host;

// One call under way. `run` is its work, in the thread that carries it out.
struct Request {
    std::function<void()> run;
    std::thread thread; // of a send or receive, as are the next two
    std::shared_ptr<gloo::transport::UnboundBuffer> buffer;
    int source = -1;
    bool done = false; // guarded, with the two below, by Engine::mutex
    tt_status status = TT_OK;
    std::string error;
};

struct Engine {
    int rank = 0, size = 0;
    std::shared_ptr<gloo::rendezvous::Context> context;
    uint32_t tag = 0; // of the next collective: the same on all ranks, which begin them in the same order

    std::mutex mutex;
    std::condition_variable begun, ended;
    std::deque<Request *> queue;                                        // collectives to be run
    std::set<std::shared_ptr<gloo::transport::UnboundBuffer>> messages; // under way
    bool closing = false, idle = false;                                 // told to end; the runner has ended
    std::atomic<bool> aborted{false};
    std::thread runner;

    bool stop(std::chrono::milliseconds limit); // end the runner; false: it waits in gloo, and is left alone
    void start(Request *request);               // in the engine's thread
    void start_own(Request *request);           // in a thread of its own
    void finish(Request *request, tt_status status, const std::string &error);
    void run(Request *request);
    void run_queue();
    void run_queue_to_end();
};

// What a collective of `call` does: it blocks until done, and throws.
std::function<void()> collective(Engine *engine, const tt_call &call);

// Post a send or receive; returns what waits for it.
std::function<void()> message(Engine *engine, const tt_call &call, Request *request);

// A store of gloo's that is one of Tutti's.
std::unique_ptr<gloo::rendezvous::Store> make_store(tt_store *store);

// Run f(T()) for the C++ type of `dtype`; of those that are only moved, an unsigned one of the same size.
template <typename F> void with_type(tt_dtype dtype, F f) {
    switch (dtype) {
    case TT_F32:
        return f(float());
    case TT_F64:
        return f(double());
    case TT_I32:
        return f(int32_t());
    case TT_I64:
        return f(int64_t());
    case TT_I8:
        return f(int8_t());
    case TT_I16:
        return f(int16_t());
    case TT_U8:
    case TT_BOOL:
        return f(uint8_t());
    case TT_F16:
    case TT_BF16:
        return f(uint16_t());
    }
}

// How elements of `dtype` are joined: out (n) := a (n) op b (n), as gloo wants it.
using Join = std::function<void(void *out, const void *a, const void *b, size_t n)>;
Join join(tt_dtype dtype, tt_reduce_op op);

} // namespace tutti

#endif
