// PyTorch's store, any kind of it, as one that Tutti's ranks meet through.
#pragma once

#include "compat.hpp"

#include <tutti/store.h>

#include <exception>
#include <functional>
#include <memory>

namespace tutti_torch {

struct StoreFree {
    void operator()(tt_store *store) const { tt_store_free(store); }
};
using StorePtr = std::unique_ptr<tt_store, StoreFree>;

// `timeout_ms`: of each of its calls. Throws on failure.
StorePtr adapt_store(const c10::intrusive_ptr<c10d::Store> &store, int64_t timeout_ms);

// While there is one, this thread's waits in stores run handlers of signals (interpreter.hpp), and end where one raises
// an exception. That is kept here, as the library between is in C. They also end where `in_vain` says so.
class Interruption {
  public:
    explicit Interruption(std::function<bool()> in_vain = {});
    ~Interruption();
    Interruption(const Interruption &) = delete;
    Interruption &operator=(const Interruption &) = delete;
    void rethrow() const { // if there was one
        if (raised)
            std::rethrow_exception(raised);
    }
    std::exception_ptr raised;
    const std::function<bool()> in_vain;
};

} // namespace tutti_torch
