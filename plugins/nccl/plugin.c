/* The nccl back end's table. */
#include "plugin.h"

const tt_backend_host *nccl_host;

static const tt_backend backend = {
    .abi = TT_BACKEND_ABI,
    .size = sizeof(tt_backend),
    .name = "nccl",
    .open = nccl_open,
    .close = nccl_close,
    .begin = {[TT_OP_BARRIER] = nccl_begin,
              [TT_OP_ALL_REDUCE] = nccl_begin,
              [TT_OP_REDUCE] = nccl_begin,
              [TT_OP_REDUCE_SCATTER] = nccl_begin,
              [TT_OP_BROADCAST] = nccl_begin,
              [TT_OP_ALL_GATHER] = nccl_begin,
              [TT_OP_ALL_GATHER_V] = nccl_begin,
              [TT_OP_GATHER] = nccl_begin,
              [TT_OP_SCATTER] = nccl_begin,
              [TT_OP_ALL_TO_ALL] = nccl_begin,
              [TT_OP_ALL_TO_ALL_V] = nccl_begin,
              [TT_OP_SEND] = nccl_begin,
              [TT_OP_RECV] = nccl_begin},
    .test = nccl_test,
    .supports = nccl_supports,
    .new_group = nccl_new_group,
    .abort = nccl_abort,
    .progress = nccl_progress,
    .devices = TT_DEVICE_BIT(TT_DEVICE_CUDA),
    .stream_mark = nccl_stream_mark,
    .stream_wait = nccl_stream_wait,
    .set_watch = nccl_set_watch,
    .window_make = nccl_window_make,
    .window_free = nccl_window_free,
};

const tt_backend *tutti_backend(const tt_backend_host *host) {
    nccl_host = host;
    return nccl_open_libraries() ? NULL : &backend;
}
