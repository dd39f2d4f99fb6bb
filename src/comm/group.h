/* A group of ranks, and what the parts of the native engine offer each other.
 *
 * A call goes through five parts: agree.c publishes it and compares what the others published; queue.c keeps calls in order and runs their machines
 * (work.h); wait.c waits for arrivals, finished pieces and messages; failure.c finds out who will never come; collective/ moves the data. */
#ifndef TT_COMM_GROUP_H
#define TT_COMM_GROUP_H

#include "comm/backend/engine.h"
#include "comm/reduce_tree.h"
#include "comm/work.h"
#include "comm/world.h"

#include <tutti/comm.h>

/* What tt_group_alloc() gave. */
typedef struct tt__allocation {
    struct tt__allocation *next;
    tt__extent *extent; /* NULL: ordinary memory */
    void *at;
    uint32_t serial;
} tt__allocation;

/* Of a call that began on messages; of an inner group's, also the number of the call it is part of. */
typedef struct tt__begun {
    uint32_t seq, word, top_seq;
} tt__begun;

enum { TT__BEGUN = 64 };

struct tt_group {
    /* ---- of every engine */
    const tt__engine *engine;
    void *plugin; /* a plug-in engine's own */
    int rank, size;
    int *ranks;         /* (size): their ranks in the job */
    uint32_t id;        /* the same on all its ranks, unique in the job */
    int holders;        /* who still uses its memory: see tt__group_hold() */
    bool destroyed;     /* by its owner; released when the last holder lets go */
    _Atomic bool ended; /* failed, aborted or destroyed: look closer */
    uint32_t forks;     /* tt__forks of the process that made it: `owner` */
    pid_t owner;
    _Atomic uint32_t works; /* not yet done */
    int64_t timeout_ms;
    tt_status failed;
    char failure_text[760];
    tt_work *spare;   /* works to be used again */
    uint32_t owned;   /* works that callers have: they keep this struct, but nothing else of the group */
    bool freed;       /* all but the struct */
    int64_t *offsets; /* (2, size): room for lists that the caller left out */

    /* ---- native */
    tt__world *world;
    tt_group *next_group;    /* of the process */
    bool shared;             /* all its ranks share memory: shared-memory algorithms; else messages */
    tt__area **areas;        /* (size): rank r's area of this group; NULL if it is on another host */
    unsigned char **bases;   /* (size): rank r's memory, likewise */
    tt__extent *area_extent; /* where the own area lies */
    tt__allocation *allocations;
    uint32_t serial;  /* allocations so far */
    tt_group *parent; /* of an inner group */
    bool is_made;     /* by tt_new_group() or tt_group_split(), from the group of this id: */
    uint32_t origin;
    tt_group *local,
        *cross; /* for groups over several hosts, where useful: the ranks of this host; the ranks with this local number on all
                              hosts (only if all hosts have as many ranks). Inner groups, on which algorithms make calls */
    int *by_host;     /* (size): with `cross`, the ranks host by host (by first rank), those of a host by number */
    int *place;       /* (size): rank r is by_host[place[r]] */
    bool subtrees;    /* hosts are subtrees of the one summation order, so hosts may reduce first */
    uint32_t seq;     /* calls published so far */
    uint32_t step;    /* pieces of work planned so far, by all calls that were agreed on */
    bool only_agrees; /* it stands behind another engine's group (backend/plugin_control.c): collectives move nothing */
    bool spin;        /* ranks and CPUs are such that a short busy wait pays */
    bool at_once;     /* all_reduce_at_once.c may serve: all share memory and spin, no table names an algorithm */
    uint8_t turns[TT__MAX_WORLD]; /* the order in which this rank turns to the others, itself last: tt__turns() */
    bool turns_known, turns_by_place;
    _Atomic uintptr_t user;     /* the thread that used it last; 0: none yet */
    bool unrung;                /* something was published and those asleep for it were not rung yet */
    tt_work *queue, *queue_end; /* works not yet done, in order */
    tt_work *loose;             /* likewise, but in no order: sends and receives */
    tt_work alone;              /* of a synchronous call that finds the queue empty, on shared memory */
    tt__begun begun[TT__BEGUN]; /* the last calls on messages, by seq % TT__BEGUN */
    uint32_t differs;           /* another rank called something else as this number; 0: not known of any */
    bool asking;                /* a thread asks the peers why they differ, and then fails the group */
    uint32_t monitored;         /* monitored barriers so far */
    bool said;                  /* this process has told the others that it left or failed */

    /* all_reduce_at_once.c's kernels for two ranks, and the calls they are for; 0: none yet */
    tt__reduce_pair pair;
    uint32_t pair_kind;
};

/* ---- forked.c */

/* How many forks lie between this process and the first of its ancestors that made a group. */
extern uint32_t tt__forks;

/* From here on forks are counted. */
void tt__watch_forks(void);

/* The group was made by a process of which this is a forked child. */
static inline bool tt__is_inherited(const tt_group *group) { return group->forks != tt__forks; }

/* TT_ERR_STATE: the call can't be made in a child. */
tt_status tt__fail_inherited(const tt_group *group);

/* ---- group.c: what all engines share */

/* No further call can be made: tt__group_check() says why. */
static inline bool tt__group_has_ended(const tt_group *group) {
    return atomic_load_explicit(&group->ended, memory_order_relaxed) || tt__is_inherited(group);
}

/* TT_OK, or the failure that made the group unusable, recorded again. */
tt_status tt__group_check(tt_group *group);
static inline tt_status tt__group_usable(tt_group *group) {
    return __builtin_expect(group && !tt__group_has_ended(group), 1) ? TT_OK : tt__group_check(group);
}

/* Note the thread's last error as why the group is unusable, unless there is one already. */
void tt__group_note_failure(tt_group *group);

/* A group of `size` ranks without anything yet; `ranks` is copied. */
tt_group *tt__group_make(const tt__engine *engine, int rank, int size, const int *ranks, int64_t timeout_ms);

/* Free what tt__group_make() made, works included. */
void tt__group_free(tt_group *group);

/* The group's memory stays mapped from hold to let go, also when the group is destroyed in between: whoever has buffers there holds it. */
void tt__group_hold(tt_group *group);
void tt__group_let_go(tt_group *group);

/* A work for `call`, whose lists are copied: a spare one or a new one; NULL: no memory. Not queued anywhere. Its owner gives it back. */
tt_work *tt__work_take(tt_group *group, const tt_call *call);
void tt__work_give_back(tt_work *work);

/* The work is done. `status` TT_OK, or an error whose text is the group's (failed) or, else, the thread's last error. */
void tt__work_complete(tt_work *work, tt_status status);

/* The error of a work that is done and failed, recorded again. */
tt_status tt__work_error(const tt_work *work);

/* Advance without waiting what is under way in the group; the group's failure, if any. */
tt_status tt__group_progress(tt_group *group);

/* ---- agree.c */

/* Tell the others of the work's call, number ++group->seq. Doesn't wait. */
void tt__publish(tt_work *work, const tt__offer *offer);

/* All ranks have published the work's call: is it the same call? Sets work->symmetric: whether every rank's buffer is. TT_ERR_MISMATCH: recorded. */
tt_status tt__agree(tt_work *work);

/* Whether someone who has arrived at `seq` calls something else than this rank. */
bool tt__disagrees(const tt_group *group, uint32_t seq);

/* What rank r sent along with call `seq`, where its symmetric buffer is mapped here, and its factor. Valid until the next call. */
const void *tt__payload(const tt_group *group, int r, uint32_t seq, size_t bytes);
bool tt__is_symmetric(const tt_group *group, int r, uint32_t seq);
void *tt__symmetric(const tt_group *group, int r, uint32_t seq);
double tt__factor(const tt_group *group, int r, uint32_t seq);

/* 32 bits of the call's signature; of a child, its parent's is part. */
uint32_t tt__signature(const tt_work *work);

/* A record of the call in the process's flight recorder. */
tt__record *tt__record_call(tt_group *group, const tt_call *call, uint32_t seq, int flags);

/* "all_reduce(f32 x 512, sum) at train.c:88" as rank r published it; of this process's own work. */
void tt__call_text(const tt_group *group, int r, uint32_t seq, char *text, size_t size);
void tt__work_text(const tt_work *work, char *text, size_t size);

/* "the group", "the group of ranks 0-3"; `text` is returned. */
const char *tt__group_text(const tt_group *group, char *text, size_t size);

/* "0-3, 8": the group's ranks. */
const char *tt__group_list(const tt_group *group, char *text, size_t size);

/* What rank r of the job, of this host, called as number `seq` of a group that is no inner one: its text and word, from its flight recorder. False: it
 * did not come so far, or it is too long ago. */
bool tt__find_call(const tt__world *world, int r, uint32_t group, uint32_t seq, char *text, size_t size,
                   uint32_t *word);

/* What rank r of the job, of this host, called when it wrote this record of a send, a receive or a batch in `group`. False: too long ago. */
bool tt__find_p2p(const tt__world *world, int r, uint32_t group, uint32_t number, char *text, size_t size);

/* The job's ranks of a set of the group's. */
tt__rankset tt__job_ranks(const tt_group *group, const tt__rankset *set);

/* ---- queue.c: the native engine's works */

tt_status tt__native_submit(tt_group *group, const tt_call *call, tt_work **work);
tt_status tt__native_wait(tt_work *work);

/* Go on with a synchronous call that runs alone and was published, as `seq` with `word`, outside of a work; if `algorithm` is given, all is agreed and its
 * machine is at stage 1, where it waits for all ranks' `step`. */
tt_status tt__native_go_on(tt_group *group, const tt_call *call, tt__record *record, uint32_t seq, uint64_t word,
                           const tt__algorithm *algorithm, uint32_t step);
tt_status tt__native_progress(tt_group *group);
void tt__native_forget(tt_work *work);

/* Advance the group's works; the lock is held. */
void tt__group_advance(tt_group *group);

/* Take works that are done out of the group's lists; those that nobody owns can be used again. */
void tt__group_unlink(tt_group *group);

/* ---- work_messages.c */

/* Did those of the work's messages that are done go well? The error names the peer. */
tt_status tt__check_messages(tt_work *work);

/* Take those that are not done back. */
void tt__cancel_messages(tt_work *work);

/* The ranks differ in call `seq`, or shortly before: TT_ERR_MISMATCH, recorded: who called what. Not of an inner group. The lock is held, and given back
 * while other hosts are asked. */
tt_status tt__fail_differing(tt_group *group, uint32_t seq);

/* The work, on messages, begins: remember its word, and compare it with what others have sent for it already. */
void tt__note_begun(tt_work *work);

/* A rank has called something with this word as number `seq`: if this rank called something else, group->differs tells, of the group or of the one that
 * it is an inner group of. tt__group_advance() fails the group then. */
void tt__hear_word(tt_group *group, uint32_t seq, uint32_t word);

/* Compare the call that this work is, or is part of, with what the ranks of this host called. */
void tt__look_at_calls(const tt_work *work);

/* A synchronous call in which every rank gives `bytes` (at most 48) of its own, and reads everybody's: all (size, bytes). */
tt_status tt__exchange(tt_group *group, const tt_call *call, const void *mine, size_t bytes, void *all);

/* ---- wait.c */

bool tt__ready_rank(const tt_group *group, const tt__wait *wait, int r);

/* Look once, without waiting. */
bool tt__ready(const tt_group *group, tt__wait *wait);

/* Wait for what the work, which runs alone, waits for. On an error the group has failed. */
tt_status tt__wait_alone(tt_work *work);

/* Wait until the work, which is queued, is done. The lock is held, and released while waiting. */
void tt__wait_done(tt_work *work);

/* For whoever polls a queued work instead of waiting for it: look after those whom it waits for, and whether its time is up. To be called every now and
 * then, and when the work is done. Takes the lock. */
void tt__look_after(tt_work *work);

/* Reserve `n` steps for the call just agreed on; every rank plans the same. Returns the step before the first of them. */
uint32_t tt__plan_steps(tt_group *group, uint32_t n);

/* Everything up to `step` is done by this rank: tell the others. */
void tt__finish_step(tt_group *group, uint32_t step);

/* Wake whoever of the group has announced to sleep, for whomever. */
void tt__wake_all(tt_group *group);

/* Wake those who sleep for what this rank published. Waiting does it, too. */
void tt__ring_peers(const tt_group *group);
static inline void tt__wake_peers(tt_group *group) {
    if (!group->unrung)
        return;
    group->unrung = false;
    tt__ring_peers(group);
}

/* The order (size) in which this rank should turn to the others to move `bytes` of each; itself last. Ranks needn't agree. turn_order.c */
const uint8_t *tt__turns(tt_group *group, size_t bytes);

/* Decide whether busy waiting pays, from what all ranks say about their CPUs. */
bool tt__ranks_fit_cpus(const tt_group *group);

/* ---- failure.c. The lock is held. */

/* Whom of the group the work waits for. */
void tt__work_waits_for(const tt_work *work, tt__rankset *set);

/* Is somebody whom the work waits for gone, frozen or out of the group? `processes`: look at the processes too, not only at what ranks say of
 * themselves. On success, nobody is. Otherwise the error is recorded; the caller fails the group. */
tt_status tt__check_peers(tt_work *work, bool processes);

/* Has rank r said that the group failed? Its error, recorded. */
tt_status tt__check_failed(const tt_group *group, int r);

/* Has rank r of the group left it, or failed? TT_ERR_PEER or its error, recorded. */
tt_status tt__check_member(const tt_work *work, int r);

/* A message to or from rank r failed: is it gone, or has it failed or left the group? Recorded. */
tt_status tt__check_rank(tt_work *work, int r);

/* Of a group that stands behind another engine's: has rank r failed, ended or frozen, or left where it must not? Recorded; `doing` ends the text. Whoever
 * asks keeps world->last_check_ms. */
tt_status tt__check_gone(const tt_group *group, int r, bool may_leave, const char *doing);

/* Has rank r of the job, of this host, been stopped for most of the heartbeat? Then TT_ERR_PEER, recorded. To be asked every now and then; whoever asks
 * keeps world->last_check_ms. */
tt_status tt__check_stopped(tt__world *world, int r, int64_t now_ms);

/* The thread's last error ends the group: say so to the others, end all its works. Returns the error's status. */
tt_status tt__group_fail(tt_group *group);

void tt__native_retire(tt_group *group);
void tt__native_abort(tt_group *group, const char *reason);

/* This process has nothing more to say in the group: it left (status 0) or failed. */
void tt__say(tt_group *group, tt_status status, const char *text);

/* ---- deadlock.c. The lock is held; it is given back while other hosts are asked. */

/* Do ranks wait for each other in different calls, this one among them or behind them? TT_ERR_MISMATCH, recorded: who, and in which calls. To be asked
 * every now and then by a rank that has published whom it waits for. */
tt_status tt__check_deadlock(tt__world *world);

/* Nobody but the calling thread seems to use this process's groups. */
bool tt__one_thread(const tt__world *world);

/* ---- inner_groups.c */

/* Sets group->local, cross and subtrees, where they are useful. */
tt_status tt__make_inner_groups(tt_group *group);

/* ---- subgroup.c */

tt_status tt__native_new_group(tt_group *group, const tt_call *call, const int *ranks, size_t count, tt_group **out);
tt_status tt__native_split(tt_group *group, const tt_call *call, int color, int key, tt_group **out);

/* ---- alloc.c */

tt_status tt__native_alloc(tt_group *group, const tt_call *call, void **out);
tt_status tt__native_free(tt_group *group, const tt_call *call, void *ptr);

/* ---- backend/native.c */

/* Who the ranks are: what tt__native_join() needs to know beside the store. */
typedef struct tt__member {
    int rank, world;
    int64_t timeout_ms, heartbeat_ms;
    tt_store *store;        /* to meet through; not needed for a world of one */
    char prefix[96];        /* of the keys */
    const char *transport;  /* as tt_init_process_group() has it; never NULL */
    const char *algorithms; /* likewise, or NULL */
    tt__launcher launcher;  /* whose ranks these are */
} tt__member;

/* Rank 0 tells its table of algorithms before anybody can need it: what fails later must not keep the others waiting for it. Whatever is wrong comes out
 * in tt__tuning_agree(). */
void tt__tuning_tell(const tt__member *member);

/* Rank 0's table of algorithms for all ranks: world->tuning. TT_ERR_INVALID, on all: what is wrong with it. rendezvous/tuning_agree.c */
tt_status tt__tuning_agree(tt__world *world, const tt__member *member);

/* Where all share memory there is no table but the names that rank 0 forces ("": none), the same text on all: world->tuning. TT_ERR_INVALID, on all,
 * likewise. */
tt_status tt__tuning_force(tt__world *world, const char *algorithms);

/* Make the group: share memory with all other ranks. On return nobody needs the store any more. */
tt_status tt__native_join(tt_group **out, const tt__member *member);

/* Meet all others: sets world->peers, and the links to other hosts. */
tt_status tt__join(tt__world *world, const tt__member *member, int64_t deadline_ms);

/* A group with room for `room` ranks and an area of its own, to be told to the others. Then either it begins: who they are (of the job), where their areas lie
 * (in the memory of each), how the group is named; or it is discarded. NULL: no memory. */
tt_group *tt__native_prepare(tt__world *world, int room, int64_t timeout_ms);
void tt__native_begin(tt_group *group, uint32_t id, const int *ranks, int size, const uint64_t *offsets);
void tt__native_discard(tt_group *group);

#endif
