/* tutti/cpp/model_parallel.hpp: a model whose parts live in different processes. */
#ifndef TUTTI_CPP_MODEL_PARALLEL_HPP
#define TUTTI_CPP_MODEL_PARALLEL_HPP

#include <tutti/cpp/comm.hpp>
#include <tutti/cpp/nn.hpp>
#include <tutti/model_parallel.h>

namespace tutti {

struct activation_options {
    int tag = 0;
    const tt_device *device = nullptr; /* of recv_activation() */
    std::int64_t timeout_ms = 0;
};

/* A zero, whose backward() receives the gradient of x, and goes on with it. */
inline tensor send_activation(const tensor &x, const group &g, int peer, const activation_options &o = {},
                              site where = site::here()) {
    tt_send_activation_args a = TT_SEND_ACTIVATION_ARGS_INIT;
    a.x = x.get(), a.group = g.get(), a.peer = peer, a.tag = o.tag, a.timeout_ms = o.timeout_ms;
    a.file = where.file, a.line = where.line;
    return tensor(detail::call(tt_send_activation_with, a));
}

inline tensor recv_activation(const group &g, int peer, const activation_options &o = {}, site where = site::here()) {
    tt_recv_activation_args a = TT_RECV_ACTIVATION_ARGS_INIT;
    a.group = g.get(), a.peer = peer, a.tag = o.tag, a.device = o.device, a.timeout_ms = o.timeout_ms;
    a.file = where.file, a.line = where.line;
    return tensor(detail::call(tt_recv_activation_with, a));
}

} // namespace tutti

#endif
