/* tutti/elastic.h: ranks that survive the loss of others. The lost rank is replaced, or the job goes on with fewer or
 * more ranks, in the processes that still run: they keep their memory, agree on the newest state that one of them has,
 * and hand it to those that lack it. Nothing is read from disk, and the step that was interrupted is made again.
 *
 * A job has rounds: a set of ranks, and their group. Round 0 is the first; when a rank is lost, or others want to join,
 * the launcher announces the next one, with each rank's new number. A program
 *
 *   tt_elastic_new(&e)                              joins its round, in place of tt_init_process_group()
 *   tt_elastic_add(e, "epoch", &epoch, sizeof epoch)   says what its state is; tutti/elastic_training.h adds modules,
 *                                                   optimizers, loaders
 *   tt_elastic_restore(e)                           takes the state, as it is when the job begins, or of the peers
 *   for each step:
 *     train, with tt_elastic_group(e)
 *     tt_elastic_commit(e)                          notes that the state is whole
 *     tt_elastic_should_stop(e, &signal)            asks whether to stop
 *   if any of these fails: tt_elastic_restore(e) again, and go on from the state that it sets
 *
 * A process that joins later runs the same program from its beginning. So between tt_elastic_new() and the first
 * tt_elastic_restore() nothing may be called that waits for other ranks: they are in the middle of the program. Groups
 * made of the group (tt_new_group()) end with their round: destroy them and make them again.
 *
 * Threads. One thread at a time; the calls that wait for others are calls on the group. The model is Horovod's elastic
 * state (commit, restore, check_host_updates), with PyTorch's names where there are any. docs/elastic.md teaches all
 * this. */
#ifndef TUTTI_ELASTIC_H
#define TUTTI_ELASTIC_H

#include <tutti/comm.h>

TT_BEGIN_DECLS

typedef struct tt_elastic tt_elastic;

typedef struct tt_elastic_new_args {
    tt_elastic **out; /* required: receives the object */
    TT_OPTIONS;
    int64_t timeout_ms;    /* of joining and of every call on a group, as tt_init_process_group() has it */
    int64_t heartbeat_ms;  /* as tt_init_process_group() has it */
    int64_t round_wait_ms; /* how long tt_elastic_restore() waits for the next round; 0 or less = timeout_ms */
    const char *transport; /* as tt_init_process_group() has it */
    const char *algorithms;
    bool or_alone;        /* where no launcher has set anything, be a world of one */
    bool stop_on_signals; /* once joined, SIGTERM and SIGUSR1 ask for a stop: see tt_elastic_should_stop() */
    bool disabled;        /* for a program with a flag: ranks survive nothing, and signals kill */
    char tt_end;          /* not an option: see base.h */
} tt_elastic_new_args;

/* Join the group of this process's round, of the native back end. From now on the launcher knows that this process
 * survives the end of others. Blocks until all ranks of the round came; if one of them is lost meanwhile, it joins the
 * round after that.
 *   tt_elastic_new(&e, .timeout_ms = 60000)
 * Success: *out is the caller's, end it with tt_elastic_free(). Failure: *out is NULL. A disabled one joins as
 * tt_init_process_group(); its commits cost nothing, tt_elastic_should_stop() is always 0, and a tt_elastic_restore()
 * after a failure returns that failure, so that one loop serves both. Errors: those of tt_init_process_group() and of
 * tt_elastic_restore(); TT_ERR_STATE there is one already in this process. */
TT_API TT_NODISCARD tt_status tt_elastic_new_with(const tt_elastic_new_args *args, size_t size);
#ifndef __cplusplus
#define tt_elastic_new(...) tt_elastic_new_with(TT_ARGS(tt_elastic_new_args, .out = __VA_ARGS__))
#endif
#define TT_ELASTIC_NEW_ARGS_INIT TT_ARGS_INIT

/* Leave the job: let go of all parts, and of the group. Never waits. Registered objects are the program's, and live on.
 * NULL is allowed. */
TT_API void tt_elastic_free(tt_elastic *elastic);

/* The group of the present round (borrowed): ask again after each tt_elastic_restore(), the first one too, which may
 * end the one before. NULL for NULL, and after a tt_elastic_restore() that failed, unless it is disabled. */
TT_API tt_group *tt_elastic_group(const tt_elastic *elastic);

/* ---- what the state is made of
 *
 * Parts have names, all of them different, and are registered in the same order on all ranks, before the first
 * tt_elastic_restore(). */

/* Register `size` bytes of plain memory, without pointers in it: counters, positions. Borrowed until tt_elastic_free().
 *   tt_elastic_add(e, "epoch", &epoch, sizeof epoch)
 * Errors: TT_ERR_INVALID NULL, or a name that is empty or taken; TT_ERR_STATE after the first restore;
 * TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_elastic_add(tt_elastic *elastic, const char *name, void *ptr, size_t size);

/* Where a part's state is written, by tt_elastic_write() from inside its `save`. */
typedef struct tt_elastic_writer tt_elastic_writer;

/* Append `size` bytes, which are copied. When memory is out, the commit fails. NULL is ignored. */
TT_API void tt_elastic_write(tt_elastic_writer *writer, const void *data, size_t size);

/* The functions of a kind of part, for state that is no plain memory. `save` and `load` are required. */
typedef struct tt_elastic_part_class {
    /* Write the state as it is now. Called by tt_elastic_commit() and before the first restore. */
    tt_status (*save)(void *user, tt_elastic_writer *writer);
    /* Set the state to what `save` wrote, here or on another rank. */
    tt_status (*load)(void *user, const void *data, size_t size);
    /* Make what stands on the group, before `load`; collective, so it may make calls on the group. With `group` NULL:
     * let go of the group, which may have failed; must not wait, and its status is ignored. No bind = nothing stands on
     * the group. */
    tt_status (*bind)(void *user, tt_group *group);
    void (*destroy)(void *user); /* by tt_elastic_free(), after bind(user, NULL); NULL = nothing */
} tt_elastic_part_class;

typedef struct tt_elastic_add_part_args {
    tt_elastic *elastic;              /* required */
    const char *name;                 /* required: copied */
    const tt_elastic_part_class *cls; /* required: copied */
    size_t cls_size;                  /* required: sizeof(tt_elastic_part_class), which the macro fills in */
    void *user;                       /* required: handed to the functions; taken over if the class has `destroy` */
    TT_OPTIONS;
    char tt_end; /* not an option: see base.h */
} tt_elastic_add_part_args;

/* Register a part of this class: tt_elastic_add_part(e, "table", &table_class, &table). `user` is destroyed on failure,
 * too, unless the class itself is NULL. Errors: as tt_elastic_add(). */
TT_API TT_NODISCARD tt_status tt_elastic_add_part_with(const tt_elastic_add_part_args *args, size_t size);
#ifndef __cplusplus
#define tt_elastic_add_part(elastic_, name_, cls_, ...)                                                               \
    tt_elastic_add_part_with(TT_ARGS(tt_elastic_add_part_args, .elastic = (elastic_), .name = (name_), .cls = (cls_), \
                                     .cls_size = sizeof *(cls_), .user = __VA_ARGS__))
#endif
#define TT_ELASTIC_ADD_PART_ARGS_INIT TT_ARGS_INIT

/* ---- the loop */

/* Keep a copy of the state, as it is now, in this process's memory. Local: it waits for nobody. To be called by all
 * ranks after the same steps, behind at least one collective of the step (the averaging of gradients is one): so no
 * rank is ahead of another by more than one commit. Costs a copy of all registered state; two copies are held.
 * Errors: those of the parts; then the copy before stays. TT_ERR_STATE before the first restore; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_elastic_commit(tt_elastic *elastic);

/* Commits since the job began, the same on all ranks between steps; 0 after the first restore of a new job; -1 before
 * it, and for NULL. */
TT_API int64_t tt_elastic_commits(const tt_elastic *elastic);

/* Begin, or recover. The first call, before the first step, gives every rank the same state: that of rank 0 when the
 * job begins, and for a rank that joins a running job the one that the others have. Later, after a call that failed:
 * wait for the next round, join its group, take the newest commit that a rank has (from the lowest rank that has it),
 * set all registered state, and bind it to the new group. If a rank is lost meanwhile, too, it does so again.
 *   if (status && tt_elastic_restore(e)) return tt_last_status();
 * After success the program goes on with the same objects, at the state that was set; tt_elastic_changed() tells what
 * is different. After a failure the state is undefined, unless a signal ended the wait.
 * Errors: the error of the call before, if no other round mends it (an error of this rank alone, or TT_ERR_MISMATCH of
 * a call), or if the launcher says that no round follows, as when no restarts are left; TT_ERR_TIMEOUT no next round
 * within .round_wait_ms; TT_ERR_UNSUPPORTED no launcher of ours; TT_ERR_NET its store is gone; TT_ERR_PEER this rank is
 * not in the next round; TT_ERR_STATE commits of ranks that differ by more than one; TT_ERR_MISMATCH another rank
 * registered other parts; TT_ERR_ABORTED a signal came while it waited (.stop_on_signals): the state is that of this
 * rank's last commit and can be saved; and those of the parts.
 * Collective. Blocks. */
TT_API TT_NODISCARD tt_status tt_elastic_restore(tt_elastic *elastic);

/* Agree on whether to stop. *signal := 0, or the signal for which all ranks stop now, since one of them got it
 * (.stop_on_signals); the launcher then doesn't count the end of the processes as a failure. Save what is to be saved,
 * and end with 128 + signal. Collective, of a few microseconds; to be called behind tt_elastic_commit(), not
 * necessarily in each step.
 * Errors: TT_ERR_ABORTED, on all ranks: the launcher has another round, as others want to join: go on with
 * tt_elastic_restore(), as after every error; those of a collective. */
TT_API TT_NODISCARD tt_status tt_elastic_should_stop(tt_elastic *elastic, int *signal);

/* How a round changed this process. */
typedef struct tt_elastic_change {
    int round;                    /* the present one */
    int rank, world_size;         /* in it */
    int old_rank, old_world_size; /* before the tt_elastic_restore() that told it; -1 and 0 for one that just joined */
    /* the launcher's words: "rank 2 (pid 7) was killed by SIGKILL"; "" in a process's first round */
    const char *reason;
} tt_elastic_change;

/* What the last tt_elastic_restore() changed (borrowed until the next one); NULL if it joined no new round, and for
 * NULL. */
TT_API const tt_elastic_change *tt_elastic_changed(const tt_elastic *elastic);

/* Return a seed for this rank's draws in the step after the last commit. It depends on `seed`, the commit and the rank
 * alone. So a step that is made again, also by the process that replaces a rank, draws the same:
 *   tt_manual_seed(tt_elastic_step_seed(e, 7)) at the beginning of each step */
TT_API uint64_t tt_elastic_step_seed(const tt_elastic *elastic, uint64_t seed);

TT_END_DECLS
#endif
