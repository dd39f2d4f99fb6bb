// PyTorch's store, any kind of it, as one that Tutti's ranks meet through.
#pragma once

#include "compat.hpp"

#include <tutti/store.h>

#include <memory>

namespace tutti_torch {

struct StoreFree {
    void operator()(tt_store *store) const { tt_store_free(store); }
};
using StorePtr = std::unique_ptr<tt_store, StoreFree>;

// `timeout_ms`: of each of its calls. Throws on failure.
StorePtr adapt_store(const c10::intrusive_ptr<c10d::Store> &store, int64_t timeout_ms);

} // namespace tutti_torch
