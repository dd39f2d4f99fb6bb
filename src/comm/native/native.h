/* The native engine: its groups' calls on shared memory and on messages. A file uses what stands below it here:
 *
 *   native.c                 the engine's table, joining
 *   subgroup.c               groups of a group's ranks
 *   alloc.c                  symmetric memory, of all ranks together and of one alone
 *   all_reduce_fast.c        the commonest call, from its publication to its end in one function
 *   submit.c                 a call: alone, or as a work in the queue
 *   wait.c                   waiting for a work
 *   driver.c                 runs works' machines
 *   end.c                    completes works, ends groups and the world
 *   form.c                   how groups are made
 *   join.c, world_messages.c   the process meets the others */
#ifndef TT_COMM_NATIVE_NATIVE_H
#define TT_COMM_NATIVE_NATIVE_H

#include "comm/native_group.h"
#include "comm/rendezvous/rendezvous.h"

/* ---- native.c */

/* Make the first group: join all ranks. On return no rank needs the store any more. */
tt_status tt__native_join(tt_group **out, const tt__member *member);

/* ---- subgroup.c, alloc.c */

tt_status tt__native_new_group(tt_group *group, const tt_call *call, const int *ranks, size_t count, tt_group **out);
tt_status tt__native_split(tt_group *group, const tt_call *call, int color, int key, tt_group **out);
tt_status tt__native_alloc(tt_group *group, const tt_call *call, void **out);
tt_status tt__native_free(tt_group *group, const tt_call *call, void *ptr);

/* ---- all_reduce_fast.c */

/* Use the fast all_reduce from now on, if the group's ranks share memory and have a CPU each: see tt_group. */
void tt__all_reduce_fast_begin(tt_group *group);

/* ---- submit.c */

tt_status tt__native_submit(tt_group *group, const tt_call *call, tt_work **work);
tt_status tt__native_wait(tt_work *work, int64_t until_ms, bool *done);
tt_status tt__native_progress(tt_group *group);
void tt__native_forget(tt_work *work);
void tt__native_add_callback(tt_work *work, tt__callback *callback);

/* Go on with a synchronous call that runs alone and was published with `word`, outside of a work; if `algorithm` is
 * given, all ranks have agreed and its machine is at stage 1, where it waits for all ranks' `step`. */
tt_status tt__native_go_on(tt_group *group, const tt_call *call, tt__record_slot *record, uint64_t word,
                           const tt__algorithm *algorithm, uint32_t step);

/* Exchange `bytes` (at most 48) of every rank, in a synchronous call: all (size, bytes). */
tt_status tt__exchange(tt_group *group, const tt_call *call, const void *mine, size_t bytes, void *all);

/* ---- wait.c */

/* Wait for what the work, which runs alone, waits for. On an error the group has failed. */
tt_status tt__wait_alone(tt_work *work);

/* Wait until the queued work is done, or until `until_ms`, exact to TT__LOOK_MS. The lock is held, and released while
 * waiting. */
void tt__wait_done(tt_work *work, int64_t until_ms);

/* Check the peers and the deadline of a queued work that is polled, not waited for. To be called regularly, and when
 * the work is done. Takes the lock. */
void tt__look_after(tt_work *work);

/* ---- driver.c. The lock is held, except by the driver of a call that runs alone. */

typedef enum tt__run { TT__RUN_WAITS, TT__RUN_DONE, TT__RUN_REFUSED, TT__RUN_FAILED } tt__run;

/* Run the work's machine as far as possible without waiting. FAILED: the caller fails the group with the recorded
 * error. */
tt__run tt__work_run(tt_work *work);

/* Publish a work on shared memory; it waits for the others' arrival then. */
void tt__work_publish(tt_work *work);

/* Advance the group's works. */
void tt__group_advance(tt_group *group);

/* Advance every group's works and messages, without waiting. Returns whether any work is not done. */
bool tt__world_progress(tt__world *world);
bool tt__world_has_works(const tt__world *world);

/* ---- end.c. The lock is held. */

/* Complete the work. `status` TT_OK, or an error whose text is the group's (failed) or, else, the thread's last
 * error. */
void tt__work_complete(tt_work *work, tt_status status);

/* Fail the group with the thread's last error: announce it to the others, end all its works. Returns the error's
 * status. */
tt_status tt__group_fail(tt_group *group);

/* Publish this thread's last error, if there is one, as the reason why the rank frees or leaves. */
void tt__note_own_failure(tt__world *world);

/* These take the lock. */
void tt__native_note_step(tt_group *group);
void tt__native_retire(tt_group *group);
void tt__native_abort(tt_group *group, const char *reason);

/* ---- form.c */

/* prepare: make a group with room for `room` ranks and an area, which is to be announced to the others; NULL: no
 * memory. Then begin it, with its id, its ranks (of the job) and the offsets of their areas (each in its own memory);
 * or discard it. */
tt_group *tt__native_prepare(tt__world *world, int room, int64_t timeout_ms);
void tt__native_begin(tt_group *group, uint32_t id, const int *ranks, int size, const uint64_t *offsets);
void tt__native_discard(tt_group *group);

/* ---- join.c */

/* Meet all other ranks: set world->peers, and make the links to other hosts. */
tt_status tt__join(tt__world *world, const tt__member *member, int64_t deadline_ms);

/* Set world->tuning to the algorithms that rank 0 forces ("": none). For jobs whose ranks all share memory: they need
 * no other table. The text is the same on all ranks, and so is TT_ERR_INVALID. */
tt_status tt__tuning_force(tt__world *world, const char *algorithms);

/* ---- world_messages.c */

/* Make the message engine, if there is none yet. */
tt_status tt__world_messages(tt__world *world);

#endif
