/* From MPI's processes to a group: joining, leaving, groups of some ranks. */
#include "plugin.h"

#include <stdlib.h>
#include <time.h>

/* Wait for both communicators of a new engine. */
static tt_status await(MPI_Request requests[2], int64_t deadline_ms) {
    MPI_Status ignored[2];
    for (int flag = 0; !flag;) {
        tt_status status = mpi_check(MPI_Testall(2, requests, &flag, ignored), "MPI_Comm_idup");
        if (status)
            return status;
        if (!flag && mpi_now_ms() > deadline_ms) {
            mpi_break("a group could not be made, since not all ranks came in time");
            return mpi_host->fail(TT_ERR_TIMEOUT, "mpi: not all ranks joined in time");
        }
        if (!flag)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return TT_OK;
}

static void free_communicator(MPI_Comm *comm) {
    if (*comm != MPI_COMM_NULL)
        MPI_Comm_free(comm);
}

/* Make an engine with two copies of `comm`. MPI returns errors to us instead of ending the program. */
static tt_status make_engine(void **out, MPI_Comm comm, int64_t timeout_ms) {
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    mpi_engine *e = calloc(1, sizeof *e);
    if (!e)
        return mpi_host->fail(TT_ERR_MEMORY, "mpi: no memory for a group");
    e->calls = e->messages = MPI_COMM_NULL;
    MPI_Comm_rank(comm, &e->rank);
    MPI_Comm_size(comm, &e->size);
    tt_status status = mpi_check(MPI_Comm_idup(comm, &e->calls, &requests[0]), "MPI_Comm_idup");
    if (!status)
        status = mpi_check(MPI_Comm_idup(comm, &e->messages, &requests[1]), "MPI_Comm_idup");
    if (!status)
        status = await(requests, mpi_now_ms() + timeout_ms);
    if (status) { /* MPI may still write to the engine */
        mpi_break("a group could not be made");
        return status;
    }
    MPI_Comm_set_errhandler(e->calls, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(e->messages, MPI_ERRORS_RETURN);
    *out = e;
    return TT_OK;
}

/* Check that the group's ranks are all of MPI's. */
static tt_status check_ranks(const tt_backend_member *member) {
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == member->rank && size == member->world_size)
        return TT_OK;
    if (size == 1)
        return mpi_host->fail(TT_ERR_UNSUPPORTED,
                              "this process is rank %d of %d, but MPI runs alone in it: MPI can be started once in a "
                              "process, and either mpirun or the first group of several ranks says how many there are",
                              member->rank, member->world_size);
    return mpi_host->fail(TT_ERR_UNSUPPORTED, "this process is rank %d of %d, but rank %d of %d of MPI_COMM_WORLD",
                          member->rank, member->world_size, rank, size);
}

tt_status mpi_open(void **engine, const tt_backend_member *member) {
    bool alone = member->world_size == 1;
    mpi_lock();
    tt_status status = mpi_start(member);
    if (!status) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        status = alone ? TT_OK : check_ranks(member);
    }
    if (!status)
        status = make_engine(engine, alone ? MPI_COMM_SELF : MPI_COMM_WORLD, member->timeout_ms);
    mpi_unlock();
    return status;
}

/* Abort: no more calls of MPI are made, since MPI can't cancel what was begun and would go on with it in any later
 * call. */
void mpi_abort(void *engine) {
    (void)engine;
    mpi_lock();
    mpi_break("one of its groups failed, or was left, while calls were under way");
    mpi_unlock();
}

/* Close the engine. Freeing a communicator is collective, but does not wait. */
void mpi_close(void *engine) {
    mpi_engine *e = engine;
    int finalized = 0;
    if (!e)
        return;
    mpi_lock();
    MPI_Finalized(&finalized);
    if (!finalized && mpi_usable() == TT_OK) {
        free_communicator(&e->calls);
        free_communicator(&e->messages);
    }
    free(e);
    mpi_unlock();
}

/* Check that MPI understands its launcher: under another MPI's, a process seems to be started alone. */
static tt_status check_launcher(int size) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *started = getenv(names[i]);
        if (size == 1 && started && atoi(started) > 1)
            return mpi_host->fail(
                TT_ERR_UNSUPPORTED,
                "the launcher started %s processes (%s), but MPI runs alone in this one: the launcher "
                "belongs to another MPI than the back end",
                started, names[i]);
    }
    return TT_OK;
}

tt_status mpi_ranks(int *rank, int *world_size) {
    mpi_lock();
    tt_status status = mpi_start(NULL);
    if (!status) {
        MPI_Comm_rank(MPI_COMM_WORLD, rank);
        MPI_Comm_size(MPI_COMM_WORLD, world_size);
        status = check_launcher(*world_size);
    }
    mpi_unlock();
    return status;
}

tt_status mpi_new_group(void **sub, void *engine, const int *ranks, int64_t count, int64_t timeout_ms) {
    const mpi_engine *e = engine;
    MPI_Comm comm = MPI_COMM_NULL;
    int key = -1;
    *sub = NULL;
    for (int64_t i = 0; i < count; i++)
        if (ranks[i] == e->rank)
            key = (int)i;
    mpi_lock();
    tt_status status = mpi_usable();
    if (!status)
        status = mpi_check(MPI_Comm_split(e->calls, key < 0 ? MPI_UNDEFINED : ranks[0], key, &comm), "MPI_Comm_split");
    if (!status && comm != MPI_COMM_NULL)
        status = make_engine(sub, comm, timeout_ms);
    if (!status)
        free_communicator(&comm);
    mpi_unlock();
    return status;
}
