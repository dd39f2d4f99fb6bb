/* MPI in this process: started once, at the first group, and ended at exit if we started it. */
#include "plugin.h"
#include "pmi.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
enum { END_MS = 60000 /* how long a process waits for the others before it ends without MPI_Finalize() */ };

static _Atomic(pthread_t) holder; /* of the lock; 0: none */
static bool launched;             /* by an mpirun */
static pid_t starter;             /* the process that started MPI; 0: none of ours did */
static char broken[256];          /* why MPI can't be used any more */
static int tag_max = 32767;       /* what the standard promises */

void mpi_lock(void) {
    pthread_mutex_lock(&lock);
    atomic_store_explicit(&holder, pthread_self(), memory_order_relaxed);
}

void mpi_unlock(void) {
    atomic_store_explicit(&holder, 0, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

/* MPI may write to a rank that has ended, by Open MPI's sockets, and SIGPIPE would end this process: ignore it inside
 * MPI. Outside of MPI it ends the process. */
static void note_broken_pipe(int sig) {
    if (pthread_equal(atomic_load_explicit(&holder, memory_order_relaxed), pthread_self()))
        return;
    signal(sig, SIG_DFL);
    raise(sig); /* takes effect when this handler has returned */
}

/* A handler costs calls nothing; a signal mask would take two system calls each. A program's own handler stays. */
static void survive_broken_pipes(void) {
    struct sigaction now;
    const struct sigaction ours = {.sa_handler = note_broken_pipe, .sa_flags = SA_RESTART | SA_ONSTACK};
    if (!sigaction(SIGPIPE, NULL, &now) && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
        sigaction(SIGPIPE, &ours, NULL);
}

int mpi_tag_max(void) { return tag_max; }

int64_t mpi_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

tt_status mpi_check(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return TT_OK;
    MPI_Error_string(code, text, &length);
    return mpi_host->fail(TT_ERR_NET, "%s: MPI says: %s", what, text);
}

void mpi_break(const char *why) {
    if (!broken[0])
        snprintf(broken, sizeof broken, "%s", why);
}

tt_status mpi_usable(void) {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized)
        return mpi_host->fail(TT_ERR_STATE, "MPI was ended by MPI_Finalize()");
    return broken[0] ? mpi_host->fail(TT_ERR_STATE, "MPI can't be used any more in this process: %s", broken) : TT_OK;
}

/* Did a launcher of this MPI start the process? */
static bool has_launcher(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMI_RANK", "PMI_PORT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return true;
    return false;
}

/* Wait until all ranks are here, so that none needs another any more. Under mpirun wait without limit, as MPI does,
 * since mpirun ends ranks that wait for a failed one. Elsewhere a rank may have ended without notice. */
static bool all_are_through(void) {
    int64_t deadline_ms = mpi_now_ms() + END_MS;
    MPI_Request request;
    int done = 0;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS)
        return false;
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        if (!launched && mpi_now_ms() > deadline_ms)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return done;
}

/* End MPI, unless it is broken: then it would wait forever. */
static void finalize(void) {
    int finalized = 0;
    atomic_store_explicit(&holder, pthread_self(), memory_order_relaxed); /* no other thread uses MPI any more */
    MPI_Finalized(&finalized);
    if (!finalized && !broken[0] && getpid() == starter && all_are_through())
        MPI_Finalize();
    atomic_store_explicit(&holder, 0, memory_order_relaxed);
}

static tt_status check_level(int level) {
    if (level >= MPI_THREAD_SERIALIZED)
        return TT_OK;
    return mpi_host->fail(TT_ERR_UNSUPPORTED,
                          "MPI runs without support for threads (level %d); call MPI_Init_thread() with at least "
                          "MPI_THREAD_SERIALIZED, or leave starting MPI to Tutti",
                          level);
}

static void ask_tag_max(void) {
    int *value, there = 0;
    if (MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &there) == MPI_SUCCESS && there)
        tag_max = *value;
}

static tt_status init(void) {
    int level = 0;
    sigset_t pipe, before;
    starter = getpid();
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before); /* for the threads that MPI starts */
    tt_status status = mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status)
        return status;
    if (atexit(finalize))
        return mpi_host->fail(TT_ERR_MEMORY, "mpi: no memory to register the end of MPI");
    return check_level(level);
}

tt_status mpi_start(const tt_backend_member *member) {
    int initialized = 0, level = 0;
    survive_broken_pipes();
    MPI_Initialized(&initialized);
    if (initialized) {
        ask_tag_max();
        MPI_Query_thread(&level);
        return starter ? mpi_usable() : check_level(level);
    }
    launched = has_launcher();
    bool meets = member && member->store && member->world_size > 1 && !launched;
    tt_status status = meets ? pmi_begin(member) : TT_OK;
    if (!status)
        status = init();
    if (meets)
        pmi_end();
    if (!status)
        ask_tag_max();
    return status;
}
