/* The table of functions that carry out a group's calls: the native engine's (native.c) or a plug-in's
 * (plugin_group.c). The public functions check arguments, fill a tt_call (call/) and call it; engines share nothing but
 * tt_group's first part and tt_work. */
#ifndef TT_COMM_BACKEND_GROUP_ENGINE_H
#define TT_COMM_BACKEND_GROUP_ENGINE_H

#include <tutti/backend.h>

struct tt__callback;

/* Arguments are checked, the group is usable; errors are recorded. Functions that take a work, progress() and abort()
 * come from any thread; the others from the one that uses the group. */
typedef struct tt__engine {
    const char *name;
    unsigned devices; /* as in tt_backend */

    /* Carry out `call`, any op before TT_OP_NEW_GROUP, behind the works queued before it. `call` and its lists are the
     * caller's and are copied where they must outlive the function. work == NULL: return when the call is complete.
     * Else *work := the call's work, which is the caller's until tt_work_free(); an error that the call meets at once
     * is the work's, but no work at all (TT_ERR_MEMORY) is returned, with *work NULL. */
    tt_status (*submit)(tt_group *group, const tt_call *call, tt_work **work);

    /* Collective over `group`. Ranks that are in no new group get *out = NULL. */
    tt_status (*new_group)(tt_group *group, const tt_call *call, const int *ranks, size_t count, tt_group **out);
    tt_status (*split)(tt_group *group, const tt_call *call, int color, int key, tt_group **out);

    /* call->count: bytes. */
    tt_status (*alloc)(tt_group *group, const tt_call *call, void **out);
    tt_status (*free)(tt_group *group, const tt_call *call, void *ptr);

    /* Wait until the work is done, its deadline has passed, or it is `until_ms`. Returns its status, TT_OK of one that
     * is not done; an error is recorded. *done tells: afterwards the work may have been freed, as by its callback. */
    tt_status (*wait)(tt_work *work, int64_t until_ms, bool *done);

    /* The calls that the library made for itself last, all done, were a step of the program: count it as one call. */
    void (*note_step)(tt_group *group);

    /* Advance the group's works without waiting. Returns the group's failure, if any. */
    tt_status (*progress)(tt_group *group);

    /* Release the owner's hold on the work: a work that is done can be used again; another one goes on without an
     * owner. */
    void (*forget)(tt_work *work);

    /* The work's to call when it is done; now if it is. */
    void (*add_callback)(tt_work *work, struct tt__callback *callback);

    /* Fail the group, from any thread. `reason` is not NULL. */
    void (*abort)(tt_group *group, const char *reason);

    /* Leave: tell the peers, end all works with TT_ERR_STATE (retire); release everything (release), the group
     * included. retire() is called once, when the owner destroys the group; release() when nobody holds its memory any
     * more. */
    void (*retire)(tt_group *group);
    void (*release)(tt_group *group);
} tt__engine;

#endif
