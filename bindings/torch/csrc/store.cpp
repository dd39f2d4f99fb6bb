#include "store.hpp"

#include "errors.hpp"
#include "interpreter.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace tutti_torch {
namespace {

thread_local Interruption *listening = nullptr;

struct Interrupted {};
struct InVain {};

using Bytes = std::vector<uint8_t>;
using Ref = c10::intrusive_ptr<c10d::Store>;

c10d::Store &store_of(void *user) { return **static_cast<Ref *>(user); }

Bytes bytes_of(const void *data, size_t size) {
    const auto *at = static_cast<const uint8_t *>(data);
    return at ? Bytes(at, at + size) : Bytes();
}

std::vector<std::string> names_of(const char *const *keys, int64_t n) { return {keys, keys + n}; }

// PyTorch tells a timeout from a broken connection in words alone.
tt_status fail_with(const char *call, const char *text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    bool late = lower.find("timeout") != std::string::npos || lower.find("timed out") != std::string::npos;
    return tt_fail(late ? TT_ERR_TIMEOUT : TT_ERR_NET, "PyTorch's store, %s: %s", call, text);
}

template <class F> tt_status guarded(const char *call, F f) {
    try {
        return f();
    } catch (const Interrupted &) {
        return tt_fail(TT_ERR_ABORTED, "a handler of a signal raised an exception in PyTorch's store, %s", call);
    } catch (const InVain &) {
        return tt_fail(TT_ERR_ABORTED, "the launcher has another round for this job, or has ended");
    } catch (const c10::Error &e) {
        return fail_with(call, e.what_without_backtrace());
    } catch (const std::exception &e) {
        return fail_with(call, e.what());
    } catch (...) {
        return fail_with(call, "an exception of unknown type");
    }
}

// Values end in a NUL that is not counted: tt_store_value.
tt_status give(const char *call, const Bytes &from, tt_store_value *to) {
    to->data = std::malloc(from.size() + 1);
    if (!to->data)
        return tt_fail(TT_ERR_MEMORY, "PyTorch's store, %s: no memory for %zu bytes", call, from.size());
    if (!from.empty())
        std::memcpy(to->data, from.data(), from.size());
    static_cast<char *>(to->data)[from.size()] = 0;
    to->size = from.size();
    return TT_OK;
}

tt_status store_set(void *user, const char *key, const void *value, size_t size) {
    return guarded("set", [&] { return store_of(user).set(key, bytes_of(value, size)), TT_OK; });
}

void attend() {
    static thread_local auto next = std::chrono::steady_clock::now();
    if (!listening || std::chrono::steady_clock::now() < next)
        return;
    try {
        attend_to_python();
    } catch (...) {
        listening->raised = std::current_exception();
        throw Interrupted();
    }
    next = std::chrono::steady_clock::now() + std::chrono::milliseconds(ATTENTION_MS);
}

// Stores are asked now and then rather than told to wait: TCPStore warns on stderr of each wait that is not answered in
// time, and before PyTorch 2.0 the answer still comes then, is taken for the next call's, and that may wait for ever.
void wait_for_keys(c10d::Store &store, const std::vector<std::string> &keys, std::chrono::milliseconds timeout) {
    using std::chrono::milliseconds;
    constexpr milliseconds SHORTEST{1}, LONGEST{20};
    const auto begun = std::chrono::steady_clock::now();
    while (!store.check(keys)) {
        const auto waited = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
        if (waited >= timeout)
            throw std::runtime_error(c10::str("timeout after ", timeout.count(), " ms"));
        std::this_thread::sleep_for(std::clamp(waited / 10, SHORTEST, LONGEST));
        attend();
        if (listening && listening->in_vain && listening->in_vain())
            throw InVain();
    }
}

tt_status store_get(void *user, const char *key, int64_t timeout_ms, tt_store_value *value) {
    return guarded("get", [&] {
        wait_for_keys(store_of(user), {key}, std::chrono::milliseconds(timeout_ms));
        return give("get", store_of(user).get(key), value);
    });
}

tt_status store_add(void *user, const char *key, int64_t delta, int64_t *result) {
    return guarded("add", [&] { return *result = store_of(user).add(key, delta), TT_OK; });
}

tt_status store_wait(void *user, const char *const *keys, int64_t n, int64_t timeout_ms) {
    return guarded("wait", [&] {
        return wait_for_keys(store_of(user), names_of(keys, n), std::chrono::milliseconds(timeout_ms)), TT_OK;
    });
}

tt_status store_check(void *user, const char *const *keys, int64_t n, bool *all) {
    return guarded("check", [&] { return *all = store_of(user).check(names_of(keys, n)), TT_OK; });
}

tt_status store_compare_set(void *user, const char *key, const void *expected, size_t expected_size,
                            const void *desired, size_t desired_size, tt_store_value *value) {
    return guarded("compare_set", [&] {
        Bytes now =
            store_of(user).compareSet(key, bytes_of(expected, expected_size), bytes_of(desired, desired_size));
        return give("compare_set", now, value);
    });
}

tt_status store_delete_key(void *user, const char *key, bool *deleted) {
    return guarded("delete_key", [&] { return *deleted = store_of(user).deleteKey(key), TT_OK; });
}

tt_status store_num_keys(void *user, int64_t *count) {
    return guarded("num_keys", [&] { return *count = store_of(user).getNumKeys(), TT_OK; });
}

void store_destroy(void *user) { delete static_cast<Ref *>(user); }

tt_store_class store_class() {
    tt_store_class c = {};
    c.name = "PyTorch's store";
    c.set = store_set;
    c.get = store_get;
    c.add = store_add;
    c.wait = store_wait;
    c.check = store_check;
    c.compare_set = store_compare_set;
    c.delete_key = store_delete_key;
    c.num_keys = store_num_keys;
    c.destroy = store_destroy;
    return c;
}

} // namespace

Interruption::Interruption(std::function<bool()> in_vain) : in_vain(std::move(in_vain)) { listening = this; }

Interruption::~Interruption() { listening = nullptr; }

StorePtr adapt_store(const Ref &store, int64_t timeout_ms) {
    const tt_store_class c = store_class();
    tt_store *made = nullptr;
    tt_store_new_args a = TT_STORE_NEW_ARGS_INIT;
    a.out = &made;
    a.cls = &c;
    a.cls_size = sizeof c;
    a.user = new Ref(store); // destroyed with the store, or at once if that fails
    a.timeout_ms = timeout_ms;
    check(tt_store_new_with(&a, offsetof(tt_store_new_args, tt_end)));
    return StorePtr(made);
}

} // namespace tutti_torch
