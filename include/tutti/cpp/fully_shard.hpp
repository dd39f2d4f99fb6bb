/* tutti/cpp/fully_shard.hpp: modules whose parameters, gradients and optimizer state are spread over the ranks. */
#ifndef TUTTI_CPP_FULLY_SHARD_HPP
#define TUTTI_CPP_FULLY_SHARD_HPP

#include <string>
#include <tutti/cpp/zero.hpp>
#include <tutti/fully_shard.h>
#include <vector>

namespace tutti {

/* Without `units`: found, as fully_shard.h says. */
struct fully_shard_options {
    std::vector<std::string> units;
    bool keep_after_forward = false, no_broadcast_buffers = false;
};

/* Its optimizer: zero_optimizer(). Collective. */
inline module fully_shard(const module &inner, group &g, const fully_shard_options &o = {}) {
    std::vector<const char *> names = detail::c_strings(o.units);
    tt_fully_shard_args a = TT_FULLY_SHARD_ARGS_INIT;
    a.module = inner.get(), a.group = g.get();
    a.units = names.empty() ? nullptr : names.data(), a.unit_count = static_cast<int64_t>(names.size());
    a.keep_after_forward = o.keep_after_forward, a.no_broadcast_buffers = o.no_broadcast_buffers;
    return module(detail::call(tt_fully_shard_with, a));
}

/* Whole parameters on `root`, or on all ranks; and back to slices. Collective. */
inline void fully_shard_gather(module &sharded, int root = TT_ALL_RANKS) {
    check(tt_fully_shard_gather(sharded.get(), root));
}
inline void fully_shard_scatter(module &sharded) { check(tt_fully_shard_scatter(sharded.get())); }

inline int64_t fully_shard_unit_count(module &sharded) { return tt_fully_shard_unit_count(sharded.get()); }

} // namespace tutti

#endif
