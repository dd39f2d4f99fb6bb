/* The mpi back end's table. */
#include "plugin.h"

const tt_backend_host *mpi_host;

static const tt_backend backend = {
    .abi = TT_BACKEND_ABI,
    .size = sizeof(tt_backend),
    .name = "mpi",
    .open = mpi_open,
    .close = mpi_close,
    .begin = {[TT_OP_BARRIER] = mpi_begin,
              [TT_OP_ALL_REDUCE] = mpi_begin,
              [TT_OP_REDUCE] = mpi_begin,
              [TT_OP_REDUCE_SCATTER] = mpi_begin,
              [TT_OP_BROADCAST] = mpi_begin,
              [TT_OP_ALL_GATHER] = mpi_begin,
              [TT_OP_ALL_GATHER_V] = mpi_begin,
              [TT_OP_GATHER] = mpi_begin,
              [TT_OP_SCATTER] = mpi_begin,
              [TT_OP_ALL_TO_ALL] = mpi_begin,
              [TT_OP_ALL_TO_ALL_V] = mpi_begin,
              [TT_OP_SEND] = mpi_begin,
              [TT_OP_RECV] = mpi_begin},
    .test = mpi_test,
    .new_group = mpi_new_group,
    .abort = mpi_abort,
    .progress = mpi_progress,
    .finds_ranks = true,
    .ranks = mpi_ranks,
};

const tt_backend *tutti_backend(const tt_backend_host *host) {
    mpi_host = host;
    return &backend;
}
