/* tutti/cpp/sync_batch_norm.hpp: batch normalisation over the batches of all ranks. */
#ifndef TUTTI_CPP_SYNC_BATCH_NORM_HPP
#define TUTTI_CPP_SYNC_BATCH_NORM_HPP

#include <tutti/cpp/comm.hpp>
#include <tutti/cpp/layers.hpp>
#include <tutti/sync_batch_norm.h>

namespace tutti {

namespace nn {

inline module sync_batch_norm(const group &g, std::int64_t num_features, const batch_norm_module_options &o = {}) {
    tt_nn_sync_batch_norm_args a = TT_NN_SYNC_BATCH_NORM_ARGS_INIT;
    a.group = g.get(), a.num_features = num_features, a.momentum = o.momentum, a.eps = o.eps;
    a.no_affine = o.no_affine, a.no_running_stats = o.no_running_stats, a.dtype = o.dtype;
    return module(detail::call(tt_nn_sync_batch_norm_with, a));
}

} // namespace nn

/* In place: every batch norm of the tree becomes a SyncBatchNorm. */
inline void convert_sync_batchnorm(module &m, const group &g) {
    if (!tt_convert_sync_batchnorm(m.get(), g.get()))
        check(tt_last_status());
}

} // namespace tutti

#endif
