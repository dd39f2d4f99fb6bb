/* tutti/cpp/elastic_training.hpp: what a training program registers with an elastic job. */
/* Made by tools/wrappers.py of tutti/elastic_training.h and tools/wrappers/elastic_training.hpp.in. */
#ifndef TUTTI_CPP_ELASTIC_TRAINING_HPP
#define TUTTI_CPP_ELASTIC_TRAINING_HPP

#include <tutti/cpp/amp.hpp>
#include <tutti/cpp/elastic.hpp>
#include <tutti/cpp/loader.hpp>
#include <tutti/cpp/optim.hpp>
#include <tutti/cpp/parallel.hpp>
#include <tutti/elastic_training.h>

namespace tutti {

/* What is registered must live as long as commit() and restore() are called; it may be destroyed before or after the
 * job. */

/* Register a module, and wrap it for all groups that the job will have. */
struct elastic_ddp_options {
    std::size_t bucket_cap_bytes = 0;
    bool no_broadcast_buffers = false;
    int virtual_ranks = 0;
    std::uint64_t shard_seed = 0;
    bool sync_batch_norm = false;
};

inline module elastic_ddp(elastic &job, const std::string &name, module &wrapped, const elastic_ddp_options &o = {}) {
    tt_elastic_ddp_args a = TT_ELASTIC_DDP_ARGS_INIT;
    a.elastic = job.get(), a.name = name.c_str(), a.module = wrapped.get(), a.bucket_cap_bytes = o.bucket_cap_bytes;
    a.no_broadcast_buffers = o.no_broadcast_buffers, a.virtual_ranks = o.virtual_ranks, a.shard_seed = o.shard_seed;
    a.sync_batch_norm = o.sync_batch_norm;
    return module(detail::call(tt_elastic_ddp_with, a));
}

inline void elastic_add(elastic &job, const std::string &name, module &m) {
    check(tt_elastic_add_module(job.get(), name.c_str(), m.get()));
}
inline void elastic_add(elastic &job, const std::string &name, optimizer &o) {
    check(tt_elastic_add_optimizer(job.get(), name.c_str(), o.get()));
}
inline void elastic_add(elastic &job, const std::string &name, lr_scheduler &s) {
    check(tt_elastic_add_lr_scheduler(job.get(), name.c_str(), s.get()));
}
inline void elastic_add(elastic &job, const std::string &name, grad_scaler &s) {
    check(tt_elastic_add_grad_scaler(job.get(), name.c_str(), s.get()));
}
inline void elastic_add(elastic &job, const std::string &name, ema &averages) {
    check(tt_elastic_add_ema(job.get(), name.c_str(), averages.get()));
}
inline void elastic_add(elastic &job, const std::string &name, const generator &g) {
    check(tt_elastic_add_generator(job.get(), name.c_str(), g.get()));
}
inline void elastic_add(elastic &job, const std::string &name, loader &l) {
    check(tt_elastic_add_loader(job.get(), name.c_str(), l.get()));
}

} // namespace tutti

#endif
