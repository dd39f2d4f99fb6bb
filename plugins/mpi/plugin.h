/* The mpi back end: what its files offer each other.
 *
 * Every call becomes a non-blocking one of MPI (MPI_Iallreduce, ...), which MPI_Test() advances. MPI runs at
 * MPI_THREAD_SERIALIZED: one lock, mpi_lock(), is held around all calls of MPI, for groups of several threads. */
#ifndef TUTTI_PLUGINS_MPI_PLUGIN_H
#define TUTTI_PLUGINS_MPI_PLUGIN_H

#include <tutti/backend.h>

#include <mpi.h>

extern const tt_backend_host *mpi_host;

/* A group of ranks. Collectives and Tutti's own messages go over `calls`, the program's messages over `messages`, so
 * that they never meet. */
typedef struct mpi_engine {
    MPI_Comm calls, messages;
    int rank, size;
} mpi_engine;

/* One call under way. */
typedef struct mpi_request {
    MPI_Request request;
    size_t bytes;  /* of a receive: what it expects; SIZE_MAX: no receive */
    int numbers[]; /* counts and displacements, which MPI reads until the call is done */
} mpi_request;

/* ---- life.c. All but mpi_lock() are called with the lock held. */

void mpi_lock(void);
void mpi_unlock(void);

/* Start MPI in this process, if it is not running. `member` (may be NULL) has the store to meet through where no mpirun
 * started the process. */
tt_status mpi_start(const tt_backend_member *member);

/* Return TT_OK, or why no call of MPI can be made any more: something happened after which MPI might wait forever
 * (mpi_break()), or it was ended. */
tt_status mpi_usable(void);
void mpi_break(const char *why);

/* Record MPI's error code with its text for `what`; MPI_SUCCESS is TT_OK. */
tt_status mpi_check(int code, const char *what);

int64_t mpi_now_ms(void);

/* Return the largest tag. */
int mpi_tag_max(void);

/* ---- join.c */

tt_status mpi_open(void **engine, const tt_backend_member *member);
void mpi_close(void *engine);
void mpi_abort(void *engine);
tt_status mpi_ranks(int *rank, int *world_size);
tt_status mpi_new_group(void **sub, void *engine, const int *ranks, int64_t count, int64_t timeout_ms);

/* ---- reduce_ops.c */

MPI_Datatype mpi_type(tt_dtype dtype);

/* Errors: TT_ERR_UNSUPPORTED, or MPI's. */
tt_status mpi_reduce_op(MPI_Op *out, tt_dtype dtype, tt_reduce_op op);

/* ---- calls.c */

/* Any op. */
tt_status mpi_begin(void *engine, const tt_call *call, void **request);
tt_status mpi_test(void *engine, void *request, bool *done, int *source);
void mpi_progress(void *engine);

#endif
