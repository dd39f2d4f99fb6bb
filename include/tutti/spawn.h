/* tutti/spawn.h: a function of this program, run by several processes. The counterpart of torch.multiprocessing.spawn
 * and start_processes.
 *
 *     static int train(int rank, void *arg) {
 *         tt_group *world;
 *         if (tt_init_process_group(&world))
 *             return 1;
 *         ...
 *     }
 *     if (tt_spawn(train, &settings, 4, .rendezvous = true))
 *         tt_report(); // "process 2 terminated with exit code 1 (pid 4711): TT_ERR_IO: can't open ..."
 *
 * Processes. They are made by fork(), without exec: the function and what `arg` points to are there as they are, as
 * copies, and nothing is pickled. None of them runs the function before all are started: if one can't be, the others
 * are gone again when the call returns its error. The function runs in a new thread of its process, so that OpenMP,
 * oneDNN and everything that belongs to a thread begin anew: the parent may have computed before. Memory on stacks of
 * other threads than the one that calls is not there in the processes. A lock that another thread holds at that moment,
 * of the program's or within a call of Tutti, stays locked in them, as after every fork(); those of malloc() and stdio
 * don't. PyTorch's processes begin with an empty interpreter instead (start_method="spawn"), or are forked from a
 * server ("forkserver"); in C there is nothing to begin again from, so start_method has no counterpart.
 *
 * Descriptors, stdin among them, are shared with the parent, and random generators stand where the parent's stood, in
 * all processes alike. The parent's groups can't be used (comm.h), signals that the parent catches have their default
 * effect (handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT and SIGSYS stay), ignored ones stay ignored,
 * and the signal mask is the caller's. stdio's streams are flushed before the fork (if another thread is reading from
 * stdin, stdout and stderr alone), so nothing is printed twice. tt_report() prints as ever, and what it says goes to
 * the parent, not to TORCHELASTIC_ERROR_FILE. Its lines, and those of the log, begin with the process's number.
 *
 * Ends. A process ends when the function returns, with exit code 0 if it returns 0; else the code is what it returned,
 * or 1 if that is none of 1..255. exit(n), in any of its threads, does the same with n, of which, as ever, the lower
 * eight bits count. Both flush the streams, and run the handlers that were registered (atexit) in the process, not
 * those of the parent. pthread_exit() in the function's thread counts as returning 0. Any other end is a failure:
 * _exit(), abort(), a signal.
 *
 * When the parent has ended, however it did, its processes get SIGTERM, and after 5 s SIGKILL: they never outlive it,
 * as with PyTorch's daemon=True. That watch ends where the function replaces its process (exec).
 *
 * Threads that compute: OMP_NUM_THREADS, where it is set; else the parent's CPUs are divided among the processes, at
 * least one each, for Tutti's operators and for OpenMP in the function's thread. What tt_set_num_threads() said in the
 * parent doesn't hold in them.
 *
 * The program may ignore SIGCHLD, or wait for all its children itself. Then the parent learns how a process ended from
 * what the process left in shared memory. After a signal or _exit() the kernel tells the parent, from Linux 6.15 on; on
 * older kernels the error says that the end isn't known. */
#ifndef TUTTI_SPAWN_H
#define TUTTI_SPAWN_H

#include <tutti/base.h>

TT_BEGIN_DECLS

/* The function that a process runs. rank: its number, from 0. Returns 0 for success, else an exit code, as main()
 * does. */
typedef int (*tt_spawn_fn)(int rank, void *arg);

#define TT_SPAWN_MAX_PROCESSES 1024

/* Give the processes all that tt_init_process_group(&world) without options needs: RANK, LOCAL_RANK, WORLD_SIZE and
 * LOCAL_WORLD_SIZE in their environments, and MASTER_ADDR, MASTER_PORT and TORCHELASTIC_USE_AGENT_STORE of a store that
 * the parent serves on a free port of this host until the processes have ended. Without it nothing is set, as with
 * PyTorch: the function makes its group by the `rank` that it gets and an address or a file that the program knows. */
#define TT_SPAWN_OPTIONS bool rendezvous

typedef struct tt_spawn_args {
    tt_spawn_fn fn; /* required */
    void *arg;      /* required, may be NULL: handed to fn, as a copy in each process */
    int nprocs;     /* required: 1..TT_SPAWN_MAX_PROCESSES */
    TT_OPTIONS;
    TT_SPAWN_OPTIONS;
    int64_t timeout_ms; /* how long they may take; 0 or less = without end */
    int64_t grace_ms;   /* from SIGTERM to SIGKILL, where they are ended; 0 = 30000, less = no SIGTERM. (As an option
                           that is left out, 0 is the default here; not so in tt_process_context_join().) */
    char tt_end;        /* not an option: see base.h */
} tt_spawn_args;

/* Run fn(rank, arg) in `nprocs` processes and wait until all have ended. PyTorch: torch.multiprocessing.spawn.
 *   tt_spawn(fn, &settings, 2)
 * Errors: TT_ERR_PROCESS one failed, the others were ended, and the text has what tt_process_failure has; TT_ERR_PEER
 * it failed because of a rank elsewhere; TT_ERR_TIMEOUT they took longer, and were ended; TT_ERR_INVALID no fn, or a
 * wrong number; TT_ERR_SYSTEM, TT_ERR_MEMORY they can't be started (the text says what there is too little of);
 * TT_ERR_UNSUPPORTED the kernel is older than Linux 5.4; with .rendezvous those of tt_store_server_new().
 * Any thread may call it, also several at once, and a process that was started so. */
TT_API TT_NODISCARD tt_status tt_spawn_with(const tt_spawn_args *args, size_t size);
#ifndef __cplusplus
#define tt_spawn(fn_, arg_, ...) \
    tt_spawn_with(TT_ARGS(tt_spawn_args, .fn = (fn_), .arg = (arg_), .nprocs = __VA_ARGS__))
#endif
#define TT_SPAWN_ARGS_INIT TT_ARGS_INIT

/* ---- processes that run beside the caller */

typedef struct tt_process_context tt_process_context;

typedef struct tt_start_processes_args {
    tt_process_context **out; /* required: receives the context, the caller's to end by tt_process_context_free() */
    tt_spawn_fn fn;           /* required */
    void *arg;                /* required, may be NULL. Copied with the process: the caller's may change at once */
    int nprocs;               /* required: 1..TT_SPAWN_MAX_PROCESSES */
    TT_OPTIONS;
    TT_SPAWN_OPTIONS;
    char tt_end; /* not an option: see base.h */
} tt_start_processes_args;

/* Start them and return. PyTorch: spawn(join=False), start_processes. Errors: those of tt_spawn that come before fn
 * runs; *out is NULL then. A context belongs to the process that made it: in a forked child calls on it fail
 * (TT_ERR_STATE), and freeing it ends the copy alone. Its calls must not overlap, but tt_process_context_kill() may
 * come from any thread while another is in tt_process_context_join(). */
TT_API TT_NODISCARD tt_status tt_start_processes_with(const tt_start_processes_args *args, size_t size);
#ifndef __cplusplus
#define tt_start_processes(out_, fn_, arg_, ...)                                                                       \
    tt_start_processes_with(TT_ARGS(tt_start_processes_args, .out = TT_PLACE(tt_process_context *, out_), .fn = (fn_), \
                                    .arg = (arg_), .nprocs = __VA_ARGS__))
#endif
#define TT_START_PROCESSES_ARGS_INIT TT_ARGS_INIT

/* Wait until all processes have ended, or one has failed, at most timeout_ms (0: have a look; less than 0: without
 * end). *all_ended (may be NULL) := have they? PyTorch: ProcessContext.join, which returns as soon as any process has
 * ended; a loop of `while not join()` is right for both.
 * Where one has failed the others get SIGTERM (and SIGCONT, should they be stopped), and after grace_ms SIGKILL (less
 * than 0: 30000; 0: SIGKILL at once). PyTorch's grace_period first leaves them alone for that long.
 * The failure told is the first cause: not a process that failed because another one did (its group's error was
 * TT_ERR_PEER), as long as that other one is found within 3 s; of ends at the same time, a crash before an exit code.
 * Errors: TT_ERR_PROCESS and TT_ERR_PEER as tt_spawn's, again at each later call; TT_ERR_INVALID; TT_ERR_STATE the
 * context is another process's. */
TT_API TT_NODISCARD tt_status tt_process_context_join(tt_process_context *context, int64_t timeout_ms, int64_t grace_ms,
                                                      bool *all_ended);

/* Process ids by rank, also of those that have ended, and in *count (may be NULL) how many there are. The context's;
 * NULL and 0 for NULL. PyTorch: ProcessContext.pids. */
TT_API const int *tt_process_context_pids(const tt_process_context *context, int64_t *count);

/* Send `signal` to those that have not ended. To tt_process_context_join() a process that ends because of it has
 * failed. PyTorch: Process.terminate, Process.kill. Errors: TT_ERR_INVALID no such signal, TT_ERR_STATE. */
TT_API TT_NODISCARD tt_status tt_process_context_kill(tt_process_context *context, int signal);

#define TT_EXIT_CODE_UNKNOWN INT32_MIN

/* A failure, as PyTorch's ProcessRaisedException and ProcessExitedException tell it. */
typedef struct tt_process_failure {
    int rank;                /* PyTorch: error_index */
    int pid;                 /* error_pid */
    int exit_code;           /* minus the signal's number where one ended it; TT_EXIT_CODE_UNKNOWN */
    const char *signal_name; /* "SIGSEGV"; NULL: it was none */
    tt_status status;        /* the last error of the thread that ended it; TT_OK if there was none */
    const char *text;        /* its text, or what tt_report() said, "TT_ERR_IO: can't open ..."; "" */
} tt_process_failure;

/* Which failure tt_process_context_join() returned; NULL: none. The context's. */
TT_API const tt_process_failure *tt_process_context_failure(const tt_process_context *context);

/* Release it. Processes that still run are killed (SIGKILL) first, and waited for, at most 10 s. NULL is allowed. */
TT_API void tt_process_context_free(tt_process_context *context);

TT_END_DECLS
#endif
